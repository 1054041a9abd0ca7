"""Markers and transactions of producers: Kafka's own test cases, version by version."""

import numpy as np
import pytest
from models.producer_model import Batch, marker
from models.producers import append, entry_of, refused, reloaded, replay

from kafkastore import errors
from kafkastore.formats.records.batch_header import BATCH_HEADER
from kafkastore.formats.records.control_records import ControlRecord
from kafkastore.formats.state.producer_state import ProducerState
from kafkastore.versions import rules_of

VERSIONS = ["0.11", "2.4", "2.4.1", "2.5", "2.8", "4.1"]
LAST_SEQUENCE = 2**31 - 1
DAY_MS = 24 * 60 * 60 * 1000


def test_a_marker_alone_fences_older_epochs():
    state = ProducerState()
    append(state, marker(1, 27, abort=False, epoch=2), origin="coordinator")
    assert entry_of(state) == {
        "producer_id": 1, "producer_epoch": 2, "last_sequence": -1, "last_offset": -1,
        "offset_delta": 0, "timestamp": 0, "coordinator_epoch": 0, "current_txn_first_offset": -1,
    }
    assert refused(state, Batch(1, 28, epoch=0)) is errors.InvalidProducerEpochError
    assert refused(state, Batch(1, 28, epoch=2, sequence=17)) is errors.OutOfOrderSequenceError
    append(state, Batch(1, 28, epoch=2, sequence=0))
    assert entry_of(state)["last_sequence"] == 0


def test_before_kip_360_a_producer_with_only_a_marker_is_unknown():
    state = ProducerState(rules=rules_of("2.4"))
    append(state, marker(1, 27, epoch=2), origin="coordinator")
    assert refused(state, Batch(1, 28, epoch=2, sequence=17)) is errors.UnknownProducerIdError
    append(state, Batch(1, 28, epoch=2, sequence=0))


def test_a_marker_of_a_newer_epoch_forgets_the_batches():
    state = ProducerState()
    append(state, Batch(1, 0, sequence=0, is_transactional=True))
    append(state, marker(1, 1, epoch=1), origin="coordinator")
    assert state.last_batches(1) == ()
    assert entry_of(state)["current_txn_first_offset"] == -1
    for epoch in (1, 2):
        batch = Batch(1, 2, epoch=epoch, sequence=2, is_transactional=True)
        assert refused(state, batch) is errors.OutOfOrderSequenceError
    append(state, Batch(1, 2, epoch=1, sequence=0))


def test_a_marker_of_the_same_epoch_leaves_the_batches():
    state = ProducerState()
    append(state, Batch(1, 16, 5, sequence=1, is_transactional=True), origin="replication")
    append(state, Batch(1, 26, 5, sequence=6, is_transactional=True))
    append(state, marker(1, 40, abort=False, coordinator_epoch=15), origin="coordinator")
    assert [batch[:4] for batch in state.last_batches(1)] == [(1, 5, 16, 20), (6, 10, 26, 30)]
    assert entry_of(state)["coordinator_epoch"] == 15
    append(state, Batch(1, 41, sequence=11))


def test_an_open_transaction_accepts_only_transactional_batches():
    state = ProducerState()
    append(state, Batch(1, 0, sequence=0, is_transactional=True))
    assert refused(state, Batch(1, 1, sequence=1)) is errors.InvalidTxnStateError
    assert refused(state, Batch(1, 1, sequence=1), origin="replication") is (
        errors.InvalidTxnStateError
    )


def test_a_marker_of_an_older_epoch_is_refused():
    state = ProducerState()
    append(state, Batch(1, 99, epoch=5, sequence=0, is_transactional=True))
    assert refused(state, marker(1, 100, epoch=3), origin="coordinator") is (
        errors.InvalidProducerEpochError
    )


def test_a_marker_of_an_older_coordinator_is_refused_also_after_a_reload():
    state = ProducerState()
    append(state, Batch(1, 99, sequence=0, is_transactional=True))
    append(state, marker(1, 100, coordinator_epoch=1), origin="coordinator")
    append(state, marker(1, 101, coordinator_epoch=1), origin="coordinator")
    append(state, marker(1, 102, coordinator_epoch=2), origin="coordinator")
    for each in (state, reloaded(state)):
        assert refused(each, marker(1, 103, coordinator_epoch=1), origin="coordinator") is (
            errors.TransactionCoordinatorFencedError
        )


@pytest.mark.parametrize(("version", "is_refused"), [("2.4", True), ("2.4.1", False)])
def test_since_2_4_1_replicas_accept_markers_of_any_epoch(version, is_refused):
    state = ProducerState(rules=rules_of(version))
    later = [marker(1, 101, coordinator_epoch=1), marker(1, 102, epoch=-1, coordinator_epoch=3)]
    append(state, marker(1, 100, coordinator_epoch=2), origin="replication")
    if is_refused:
        assert refused(state, later[0], origin="replication") is (
            errors.TransactionCoordinatorFencedError
        )
        assert refused(state, later[1], origin="replication") is errors.InvalidProducerEpochError
        replay(state, *later)
        assert type(state.first_refusal) is errors.TransactionCoordinatorFencedError
    else:
        append(state, *later, origin="replication")
        assert state.first_refusal is None
    assert entry_of(state)["coordinator_epoch"] == 3


def test_a_control_batch_that_lost_its_record_begins_nothing():
    state = ProducerState()
    emptied = marker(23423, 15)._replace(control=None)
    assert append(state, emptied, origin="coordinator") == []
    assert state.entries().tolist() == [(23423, -1, -1, -1, 0, -1, -1, -1)]
    assert state.first_unstable_offset is None


def test_a_producer_s_control_batch_that_is_not_a_marker_is_refused():
    state = ProducerState()
    odd = marker(1, 5)._replace(control=ControlRecord(9, 0))
    assert refused(state, odd, origin="replication") is errors.InvalidTxnStateError
    assert replay(state, odd) == []
    assert type(state.first_refusal) is errors.InvalidTxnStateError


def test_an_offset_is_unstable_until_it_is_decided_and_the_marker_replicated():
    state = ProducerState()

    def offsets():
        return state.first_undecided_offset, state.first_unstable_offset

    assert offsets() == (None, None)
    append(state, Batch(1, 99, sequence=0, is_transactional=True))
    append(state, Batch(2, 105, sequence=0, is_transactional=True))
    assert offsets() == (99, 99)
    append(state, marker(1, 109, abort=False), origin="coordinator")
    assert offsets() == (105, 99)
    state.on_high_watermark(100)
    assert offsets() == (105, 99)
    state.on_high_watermark(109)
    assert offsets() == (105, 99)
    state.on_high_watermark(110)
    assert offsets() == (105, 105)
    assert append(state, marker(2, 112), origin="coordinator") == [(2, 105, 112, 113)]
    assert offsets() == (None, 105)
    state.on_high_watermark(113)
    assert offsets() == (None, None)
    assert not state.is_empty


def test_the_last_stable_offset_of_a_transaction_is_where_another_is_open():
    state = ProducerState()
    for producer_id, offset in ((1, 10), (2, 35), (3, 67)):
        append(state, Batch(producer_id, offset, is_transactional=True))
    assert append(state, marker(1, 82), origin="coordinator") == [(1, 10, 82, 35)]
    assert append(state, marker(3, 102), origin="coordinator") == [(3, 67, 102, 35)]
    assert append(state, marker(2, 180), origin="coordinator") == [(2, 35, 180, 181)]


def test_of_one_append_transactions_after_the_marker_count_too():
    """Kafka begins all of them before it ends one; those of the same producer are left out."""
    batches = [
        Batch(1, 0, is_transactional=True), marker(1, 1),
        Batch(1, 2, sequence=1, is_transactional=True),
        Batch(2, 9, is_transactional=True),
    ]
    together, one_by_one = ProducerState(), ProducerState()
    assert append(together, *batches, origin="replication") == [(1, 0, 1, 9)]
    assert replay(one_by_one, *batches) == [(1, 0, 1, 2)]
    assert together.entries().tolist() == one_by_one.entries().tolist()
    assert together.open_transactions == one_by_one.open_transactions == {1: 2, 2: 9}


@pytest.mark.parametrize("version", ["2.7", "2.8"])
def test_since_2_8_transactions_without_batches_do_not_count(version):
    state = ProducerState(rules=rules_of(version))
    append(state, Batch(1, 16, 5, is_transactional=True))
    state.on_high_watermark(21)
    found = append(
        state,
        marker(1, 21, abort=False), marker(1, 22, abort=False), marker(1, 23),
        Batch(1, 24, 4, sequence=5, is_transactional=True), marker(1, 28), marker(1, 29),
        Batch(1, 30, 2, sequence=9, is_transactional=True),
        origin="coordinator",
    )
    empty = [(1, 23, 23, 24), (1, 29, 29, 30)] if version == "2.7" else []
    assert found == sorted([(1, 24, 28, 29), *empty])
    assert state.first_unstable_offset == 16
    state.on_high_watermark(32)
    assert state.first_unstable_offset == 30


def test_many_open_transactions_take_no_longer_to_end():
    count = 50_000
    rows = np.zeros(count, BATCH_HEADER)
    rows["magic"], rows["attributes"], rows["producer_id"] = 2, 0x10, np.arange(count)
    rows["base_offset"] = rows["last_offset"] = np.arange(count)
    state = ProducerState()
    state.replay(rows)
    rows["attributes"], rows["base_offset"] = 0x30, count + np.arange(count)
    found = state.replay(rows, [marker(0, 0).control] * count)
    assert (found["last_stable_offset"][:-1] == np.arange(1, count)).all()
    assert state.first_undecided_offset is None
