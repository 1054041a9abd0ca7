"""The state of producers: Kafka's own test cases, a model, and the snapshots of real brokers."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import producer_model, record_reader
from models.producer_model import Batch, Producers, headers, marker
from models.producers import append, entry_of, refused, reloaded, replay
from models.refused import refused as argument_refused
from models.seed import examples
from models.stub import differences

from kafkastore import errors
from kafkastore.formats.indexes import transaction_index
from kafkastore.formats.indexes.transaction_index import ABORTED_TXN
from kafkastore.formats.records import batch_header
from kafkastore.formats.records.batch_header import BATCH_HEADER
from kafkastore.formats.records.control_records import ControlRecord, first_control_record
from kafkastore.formats.records.record_batch import RecordBatch
from kafkastore.formats.state import producer_entry, producer_snapshot
from kafkastore.formats.state.producer_snapshot import PRODUCER_ENTRY
from kafkastore.formats.state.producer_state import ProducerState
from kafkastore.versions import rules_of

VERSIONS = ["0.11", "2.4", "2.4.1", "2.5", "2.8", "4.1", "4.2", "4.3"]
LAST_SEQUENCE = 2**31 - 1
DAY_MS = 24 * 60 * 60 * 1000


# Kafka's ProducerStateManagerTest: sequences


def test_a_producer_continues_with_the_next_sequence_or_a_new_epoch_from_0():
    state = ProducerState()
    append(state, Batch(1, 0, sequence=0))
    append(state, Batch(1, 1, sequence=1))
    assert refused(state, Batch(1, 2, sequence=5)) is errors.OutOfOrderSequenceError
    assert refused(state, Batch(1, 2, epoch=1, sequence=2)) is errors.OutOfOrderSequenceError
    append(state, Batch(1, 2, epoch=1, sequence=0))
    assert refused(state, Batch(1, 3, sequence=2)) is errors.InvalidProducerEpochError
    assert entry_of(state)["producer_epoch"] == 1


def test_sequences_continue_with_0_after_the_last_one():
    state = ProducerState()
    append(state, Batch(1, 735, epoch=15, sequence=LAST_SEQUENCE), origin="replication")
    assert refused(state, Batch(1, 736, epoch=15, sequence=1)) is errors.OutOfOrderSequenceError
    append(state, Batch(1, 1235, epoch=15, sequence=0))
    assert [batch[:2] for batch in state.last_batches(1)] == [(LAST_SEQUENCE,) * 2, (0, 0)]


def test_a_batch_may_wrap_around_the_last_sequence():
    state = ProducerState()
    batch = Batch(1, 2000, 21, epoch=15, sequence=LAST_SEQUENCE - 10)
    append(state, batch, origin="replication")
    assert state.last_batches(1) == ((LAST_SEQUENCE - 10, 9, 2000, 2020, 0),)
    assert entry_of(state)["last_sequence"] == 9
    assert state.prepare(*headers([batch]), origin="client").duplicate == (
        LAST_SEQUENCE - 10, 9, 2000, 2020, 0
    )


@pytest.mark.parametrize("repeated", range(7))
def test_the_last_five_batches_are_reported_if_they_arrive_twice(repeated):
    state = ProducerState()
    for number in range(7):
        append(state, Batch(1, 10 * number, 2, sequence=2 * number, timestamp=number))
    again = headers([Batch(1, 99, 2, sequence=2 * repeated)])
    if repeated < 2:
        with pytest.raises(errors.OutOfOrderSequenceError):
            state.prepare(*again, origin="client")
        return
    known = state.prepare(*again, origin="client").duplicate
    assert known == (2 * repeated, 2 * repeated + 1, 10 * repeated, 10 * repeated + 1, repeated)
    assert state.last_batches(1)[repeated - 2] == known


def test_a_part_of_a_batch_is_not_a_duplicate():
    state = ProducerState()
    append(state, Batch(1, 0, 4, sequence=0))
    assert refused(state, Batch(1, 4, 3, sequence=0)) is errors.OutOfOrderSequenceError


def test_replicas_accept_gaps_and_unknown_producers():
    state = ProducerState()
    append(state, Batch(1, 735, epoch=5, sequence=16), origin="replication")
    append(state, Batch(1, 736, epoch=5, sequence=30), origin="replication")
    append(state, Batch(1, 737, epoch=4, sequence=30), origin="replication")
    assert entry_of(state)["producer_epoch"] == 4
    assert entry_of(state)["last_sequence"] == 30
    assert state.first_refusal is None


def test_consumer_offsets_are_written_without_sequences():
    state = ProducerState()
    for offset in (99, 100):
        append(state, Batch(1, offset, sequence=-1, is_transactional=True), origin="coordinator")
    older = Batch(1, 101, epoch=-1, sequence=-1, is_transactional=True)
    assert refused(state, older, origin="coordinator") is errors.InvalidProducerEpochError


@pytest.mark.parametrize("transaction_version", [0, 1, 2])
@pytest.mark.parametrize("epoch", [3, 2**15 - 1])
@pytest.mark.parametrize("version", ["4.1", "4.2", "4.3"])
def test_a_marker_of_transaction_version_2_raises_the_epoch(version, epoch, transaction_version):
    """Since 4.2, and unless there is no higher one, since 4.3."""
    state = ProducerState(rules=rules_of(version))
    as_coordinator = {"origin": "coordinator", "transaction_version": transaction_version}
    append(state, Batch(1, 0, epoch=epoch, is_transactional=True))
    same = marker(1, 1, epoch=epoch)
    last_is_refused = version == "4.2"
    if transaction_version == 2 and (last_is_refused or (version == "4.3" and epoch == 3)):
        assert refused(state, same, **as_coordinator) is errors.InvalidProducerEpochError
        assert state.open_transactions == {1: 0}
        assert append(state, same, origin="replication") == [(1, 0, 1, 2)]
    else:
        assert append(state, same, **as_coordinator) == [(1, 0, 1, 2)]
    # A marker that is sent again ends no transaction, and its epoch is that of the first one.
    assert append(state, marker(1, 2, epoch=epoch), **as_coordinator) == []
    older = marker(1, 3, epoch=epoch - 1)
    assert refused(state, older, **as_coordinator) is errors.InvalidProducerEpochError


@pytest.mark.parametrize("version", VERSIONS)
def test_since_kip_360_an_unknown_producer_begins_with_any_sequence(version):
    state = ProducerState(rules=rules_of(version))
    if version in ("0.11", "2.4", "2.4.1"):
        assert refused(state, Batch(1, 0, sequence=7)) is errors.UnknownProducerIdError
    else:
        append(state, Batch(1, 0, sequence=7))
        assert entry_of(state)["last_sequence"] == 7


def test_a_producer_that_expired_may_continue():
    state = ProducerState()
    append(state, Batch(1, 0, sequence=0, timestamp=5))
    state.remove_expired(5 + DAY_MS - 1)
    assert len(state.entries()) == 1
    state.remove_expired(5 + DAY_MS)
    assert state.is_empty
    append(state, Batch(1, 1, sequence=1))
    assert entry_of(state)["last_sequence"] == 1


@pytest.mark.parametrize(("version", "days"), [("2.4", 7), ("3.3", 7), ("3.4", 1)])
def test_producers_expire_after_the_time_of_the_version(version, days):
    state = ProducerState(rules=rules_of(version))
    append(state, Batch(1, 0))
    state.remove_expired(days * DAY_MS - 1)
    assert len(state.entries()) == 1
    state.remove_expired(days * DAY_MS)
    assert state.is_empty


def test_batches_without_a_producer_are_skipped():
    state = ProducerState()
    assert append(state, Batch(-1, 0), Batch(3, 1, magic=1), marker(-1, 2)) == []
    assert replay(state, Batch(-1, 0), Batch(3, 1, magic=1), marker(-1, 2)) == []
    assert state.is_empty
    assert state.entries().dtype == PRODUCER_ENTRY
    assert state.replay(np.zeros(0, BATCH_HEADER)).dtype == ABORTED_TXN


def test_preparing_does_not_change_the_state():
    state = ProducerState()
    batch = Batch(1, 15, 6, sequence=0, is_transactional=True)
    first = state.prepare(*headers([batch]), origin="client")
    assert state.is_empty
    assert state.first_undecided_offset is None
    state.update(first)
    state.prepare(*headers([marker(1, 21)]), origin="coordinator")
    assert state.open_transactions == {1: 15}
    assert entry_of(state)["last_offset"] == 20


def test_batches_of_one_append_are_judged_one_after_the_other():
    state = ProducerState()
    append(state, Batch(1, 0, 2, sequence=0), Batch(1, 2, 2, sequence=2), Batch(5, 4, sequence=9))
    assert refused(state, Batch(1, 5, sequence=4), Batch(1, 6, sequence=4)) is (
        errors.OutOfOrderSequenceError
    )
    assert refused(state, Batch(1, 5, epoch=1, sequence=0), Batch(1, 6, sequence=4)) is (
        errors.InvalidProducerEpochError
    )
    prepared = state.prepare(
        *headers([Batch(1, 5, sequence=4), Batch(1, 6, 2, sequence=2)]), origin="client"
    )
    assert prepared.duplicate == (2, 3, 2, 3, 0)
    for number in range(7):
        append(state, Batch(1, 10 + number, sequence=4 + number))
    assert [batch.last_sequence for batch in state.last_batches(1)] == [6, 7, 8, 9, 10]


# Snapshots


def test_a_snapshot_holds_the_last_batch_and_the_open_transaction():
    state = ProducerState()
    append(state, Batch(1, 0, sequence=0, is_transactional=True))
    append(state, Batch(1, 1, sequence=1, is_transactional=True, timestamp=77))
    loaded = reloaded(state)
    assert loaded.last_batches(1) == ((1, 1, 1, 1, 77),)
    assert loaded.open_transactions == {1: 0}
    assert loaded.first_unstable_offset == 0
    append(loaded, Batch(1, 2, sequence=2, is_transactional=True))
    assert append(loaded, marker(1, 3), origin="coordinator") == [(1, 0, 3, 4)]


def test_a_snapshot_of_a_finished_transaction_has_none_open():
    state = ProducerState()
    append(state, Batch(1, 0, sequence=0, is_transactional=True))
    append(state, marker(1, 1), origin="coordinator")
    assert reloaded(state).first_undecided_offset is None
    assert [batch[:4] for batch in reloaded(state).last_batches(1)] == [(0, 0, 0, 0)]


@pytest.mark.parametrize(("version", "timestamp"), [("2.4", -1), ("2.4.1", 1234)])
def test_since_2_4_1_a_marker_keeps_its_producer_from_expiring(version, timestamp):
    state = ProducerState(rules=rules_of(version))
    append(state, marker(1, 0, epoch=3, timestamp=1234), origin="coordinator")
    loaded = reloaded(state, rules_of(version))
    for each in (state, loaded):
        assert entry_of(each)["timestamp"] == timestamp
        each.remove_expired(1234 + 7 * DAY_MS - 1)
        assert len(each.entries()) == (version == "2.4.1")


def test_producers_in_a_transaction_do_not_expire():
    state = ProducerState()
    append(state, Batch(1, 99, is_transactional=True), Batch(2, 100))
    state.remove_expired(10**15)
    assert state.entries()["producer_id"].tolist() == [1]
    assert state.first_undecided_offset == 99


def test_entries_are_sorted_by_producer_id_and_are_a_copy():
    state = ProducerState()
    replay(state, Batch(9, 0), Batch(2**62, 1), Batch(3, 2))
    entries = state.entries()
    assert entries["producer_id"].tolist() == [3, 9, 2**62]
    entries["producer_id"] = 0
    assert state.entries()["producer_id"].tolist() == [3, 9, 2**62]


def test_of_a_producer_that_a_snapshot_names_twice_the_last_entry_counts():
    entries = np.zeros(2, PRODUCER_ENTRY)
    entries["producer_id"], entries["current_txn_first_offset"] = 7, [3, 5]
    state = ProducerState(entries)
    assert state.open_transactions == {7: 5}
    assert append(state, marker(7, 9), origin="coordinator") == [(7, 5, 9, 10)]
    assert state.first_undecided_offset is None


@given(st.binary(max_size=46 * 4), st.sampled_from(VERSIONS))
def test_any_entries_can_be_loaded_and_written_again(data, version):
    entries = np.frombuffer(data[: len(data) // 46 * 46], PRODUCER_ENTRY)
    state = ProducerState(entries, rules=rules_of(version))
    again = ProducerState(state.entries(), rules=rules_of(version))
    assert again.entries().tolist() == state.entries().tolist()
    assert again.open_transactions == state.open_transactions


@settings(max_examples=examples(200))
@given(st.binary(max_size=BATCH_HEADER.itemsize * 6), st.integers(0, 2**12), st.data())
def test_any_headers_are_taken_in_or_refused(data, magics, drawn):
    """Numbers that no sound batch has come to this from sound checksums."""
    rows = np.frombuffer(data[: len(data) // BATCH_HEADER.itemsize * BATCH_HEADER.itemsize],
                         BATCH_HEADER).copy()
    rows["magic"] = [2 if magics >> number & 3 else 1 for number in range(len(rows))]
    rows["producer_id"] %= 3
    is_control = (rows["magic"] == 2) & (rows["attributes"] & 0x20 != 0)
    kinds = st.sampled_from([None, ControlRecord(0, 0, -(2**31)), ControlRecord(1, 0, 2**31 - 1),
                             ControlRecord(0, 0), ControlRecord(-9, 3)])
    controls = [drawn.draw(kinds) for _ in range(int(is_control.sum()))]
    state = ProducerState(rules=rules_of(drawn.draw(st.sampled_from(VERSIONS))))
    found = state.replay(rows, controls)
    assert producer_snapshot.parse(producer_snapshot.pack(state.entries())).tolist() == (
        state.entries().tolist()
    )
    assert len(transaction_index.pack(found)) == 34 * len(found)
    for origin in ("client", "coordinator", "replication"):
        try:
            prepared = state.prepare(rows, controls, origin=origin)
        except errors.ProducerStateError:
            continue
        if prepared.duplicate is None:
            state.update(prepared)
        assert state.entries().dtype == PRODUCER_ENTRY


# Arguments


@pytest.mark.parametrize("name", ["replay", "prepare"])
def test_there_must_be_as_many_control_records_as_control_batches(name):
    rows, _ = headers([Batch(1, 0), marker(1, 1)])
    options = {"origin": "client"} if name == "prepare" else {}
    for controls in ([], [None, None]):
        with argument_refused("controls"):
            getattr(ProducerState(), name)(rows, controls, **options)


def test_an_unknown_origin_is_refused():
    with argument_refused("origin"):
        ProducerState().prepare(*headers([Batch(1, 0)]), origin="broker")


def test_headers_of_another_kind_are_refused():
    with argument_refused("headers", errors.ArgumentTypeError):
        ProducerState().replay(np.zeros(3, PRODUCER_ENTRY))


def test_headers_may_be_any_view_of_an_array():
    rows, controls = headers([Batch(number, number) for number in range(9)])
    rows.flags.writeable = False
    state = ProducerState()
    state.replay(rows[::2], controls)
    assert state.entries()["producer_id"].tolist() == [0, 2, 4, 6, 8]


def test_the_stub_matches_the_module():
    assert differences(producer_entry) == []


def test_refusals_can_be_pickled():
    state = ProducerState()
    replay(state, Batch(1, 0, is_transactional=True), Batch(1, 1))
    again = pickle.loads(pickle.dumps(state.first_refusal))
    assert (type(again), str(again)) == (type(state.first_refusal), str(state.first_refusal))


# A model


@settings(max_examples=examples(150))
@given(
    st.lists(producer_model.STEPS, max_size=25),
    st.lists(st.integers(0, 25), max_size=4),
    st.sampled_from(VERSIONS),
    st.integers(-1, 80),
)
def test_a_replay_has_the_state_of_the_model_for_any_runs(
    steps, cuts, version, high_watermark
):
    producers = Producers(rules_of(version))
    offset, refusal = 0, None
    for step in steps:
        batch = producer_model.batch_of(producers, step, offset)
        refusal = refusal or producers.objection(batch, "replication")
        producers.batches.append(batch)
        offset = batch.last_offset + 1
    state, found, start = ProducerState(rules=rules_of(version)), [], 0
    for end in [*sorted(cuts), len(steps)]:
        found += replay(state, *producers.batches[start:end])
        start = max(start, min(end, len(steps)))
    assert found == producers.aborted()
    assert state.entries().tolist() == producers.entries()
    assert state.open_transactions == producers.open_transactions()
    assert state.first_undecided_offset == producers.first_undecided_offset()
    state.on_high_watermark(high_watermark)
    assert state.first_unreplicated_offset == producers.first_unreplicated_offset(high_watermark)
    for producer_id in (0, 1, 7):
        assert list(state.last_batches(producer_id)) == producers.remembered(producer_id)
    assert (None if state.first_refusal is None else type(state.first_refusal).__name__) == refusal


@settings(max_examples=examples(150))
@given(
    st.lists(
        st.tuples(
            producer_model.STEPS,
            st.sampled_from([
                ("client", 0), ("client", 0), ("client", 0), ("coordinator", 1),
                ("coordinator", 2), ("replication", 0),
            ]),
        ),
        max_size=25,
    ),
    st.sampled_from(VERSIONS),
)
def test_a_batch_is_refused_reported_or_taken_as_the_model_says(steps, version):
    producers, state = Producers(rules_of(version)), ProducerState(rules=rules_of(version))
    offset, found = 0, []
    for step, (origin, transaction_version) in steps:
        batch = producer_model.batch_of(producers, step, offset)
        known = producers.duplicate_of(batch) if origin == "client" and batch.magic == 2 else None
        refusal = None if known else producers.objection(batch, origin, transaction_version)
        try:
            prepared = state.prepare(
                *headers([batch]), origin=origin, transaction_version=transaction_version
            )
        except errors.ProducerStateError as error:
            assert type(error).__name__ == refusal
            continue
        assert refusal is None
        assert prepared.duplicate == known
        if known is None:
            producers.batches.append(batch)
            found += state.update(prepared).tolist()
            offset = batch.last_offset + 1
        assert state.entries().tolist() == producers.entries()
    assert found == producers.aborted()
    assert state.first_undecided_offset == producers.first_undecided_offset()


# Real brokers


def batches_of(path):
    """Header, batch and control records of each batch in a log file."""
    for position, data in record_reader.split(path.read_bytes())[0]:
        batch = RecordBatch(data, position)
        controls = [first_control_record(batch)] if batch.is_control else []
        yield batch_header.parse(data, position), controls


@pytest.mark.golden_cases(names=["transactions", "leader-epochs"], answers="answers")
def test_a_replay_gives_the_snapshots_and_transaction_indexes_that_the_broker_wrote(golden_case):
    compared = entries = 0
    for partition in sorted({path.parent for path in golden_case.logs.glob("*/*.log")}):
        state = ProducerState(rules=rules_of(golden_case.version))
        snapshots = {
            int(path.stem): producer_snapshot.parse(path.read_bytes())
            for path in partition.glob("*.snapshot")
        }
        for path in sorted(partition.glob("*.log")):
            aborted = [np.empty(0, ABORTED_TXN)]
            end = int(path.stem)
            for header, controls in batches_of(path):
                # A snapshot may have any offset in it, also one in a gap before a batch.
                end = int(header["base_offset"][0])
                for offset in sorted(offset for offset in snapshots if offset <= end):
                    expected = np.sort(snapshots.pop(offset), order="producer_id")
                    assert state.entries().tolist() == expected.tolist()
                    compared += 1
                    entries += len(expected)
                aborted.append(state.replay(header, controls))
                end = int(header["last_offset"][0]) + 1
            index = path.with_suffix(".txnindex")
            expected = index.read_bytes() if index.exists() else b""
            assert transaction_index.pack(np.concatenate(aborted)) == expected
        for offset, expected in snapshots.items():
            assert offset == end
            assert state.entries().tolist() == np.sort(expected, order="producer_id").tolist()
            compared += 1
        assert state.first_refusal is None
    assert compared
    assert entries or golden_case.name != "transactions"
