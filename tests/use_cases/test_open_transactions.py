"""Open transactions of logs, and what their coordinators know."""

import shutil
import struct

import pytest
from models import internal_topics, metadata_directory
from models.record_format import Batch, Row, marker

import kafkastore
from kafkastore.formats.topics.transaction_state import TransactionState, coordinator_partition
from kafkastore.use_cases.open_transactions import open_transactions_of

TIME = 1_500_000_000_000


def transactional(offset, producer_id, epoch=0):
    """A batch of a transaction."""
    row = Row(offset, TIME + offset, b"k", b"v")
    return Batch(
        (row,), producer_id=producer_id, producer_epoch=epoch, base_sequence=offset,
        is_transactional=True,
    )


@pytest.fixture
def root(tmp_path):
    """Logs in which producers 7 and 9 have open transactions, and 8 a committed one."""

    def write(name, *batches):
        path = tmp_path / name / f"{0:020}.log"
        path.parent.mkdir()
        path.write_bytes(b"".join(batch.data for batch in batches))

    write(
        "t-0", Batch((Row(0, TIME, b"k", b"v"),)), transactional(1, 8), transactional(2, 9, 3),
        transactional(3, 7), marker(4, TIME, producer_id=8), transactional(5, 9, 3),
    )
    write("t-1", transactional(0, 8), marker(1, TIME, producer_id=8, is_commit=False))
    return tmp_path


def coordinate(root, number=0, **states):
    """Write ``__transaction_state``: producer id, state and partitions by transactional id."""
    rows = []
    for name, (producer_id, state, partitions) in states.items():
        value = internal_topics.pack_transaction_value(
            0, producer_id=producer_id, producer_epoch=3, transaction_timeout_ms=60_000,
            transaction_status=state,
            transaction_partitions=tuple(
                {"topic": topic, "partition_ids": numbers} for topic, numbers in partitions.items()
            ),
            transaction_last_update_timestamp_ms=TIME,
            transaction_start_timestamp_ms=TIME,
        )
        rows.append(Row(len(rows), TIME, internal_topics.pack_transaction_key(name), value))
    rows.append(Row(len(rows), TIME, internal_topics.pack_transaction_key("gone"), None))
    path = root / f"__transaction_state-{number}" / f"{0:020}.log"
    path.parent.mkdir()
    path.write_bytes(Batch(tuple(rows)).data)


def test_open_transactions_are_found_oldest_first(root):
    first, second = open_transactions_of(kafkastore.open(root)["t-0"])
    assert (first.producer_id, first.producer_epoch, first.first_offset) == (9, 3, 2)
    assert (first.first_timestamp, first.last_timestamp) == (TIME + 2, TIME + 5)
    assert (second.producer_id, second.first_offset) == (7, 3)
    assert (first.holds_last_stable_offset, second.holds_last_stable_offset) == (True, False)
    assert open_transactions_of(kafkastore.open(root)["t-1"]) == []


def test_without_coordinators_it_is_unknown_whether_one_hangs(root):
    found = [each for found in kafkastore.transactions(root) for each in found]
    assert [(each.coordinator, each.is_hanging) for each in found] == [(None, None)] * 2


def test_one_hangs_unless_its_coordinator_runs_it_in_the_partition(root):
    coordinate(
        root, a=(9, TransactionState.ONGOING, {"t": (0, 5)}),
        b=(7, TransactionState.COMPLETE_ABORT, {}),
    )
    (first, second), others = list(kafkastore.transactions(root, partitions=["t-0", "t-1"]))
    assert (first.coordinator.transactional_id, first.is_hanging) == ("a", False)
    assert (first.coordinator.state, first.coordinator.timeout_ms) == (1, 60_000)
    assert (second.coordinator.transactional_id, second.is_hanging) == ("b", True)
    assert others == []


@pytest.mark.parametrize("state", [
    TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT,
])
@pytest.mark.parametrize("partitions", [{"t": (0,)}, {"t": (1,)}, {"u": (0,)}])
def test_a_running_transaction_may_be_of_other_partitions(root, state, partitions):
    coordinate(root, a=(9, state, partitions))
    (first, second), _ = kafkastore.transactions(root, partitions=["t-0", "t-1"])
    assert first.is_hanging == (partitions != {"t": (0,)})
    assert (second.coordinator, second.is_hanging) == (None, True)


def hanging(root):
    """Whether the transactions of the producers 9 and 7 hang."""
    found = next(iter(kafkastore.transactions(root, partitions=["t-0"])))
    return [each.is_hanging for each in found]


def test_a_producer_may_have_its_coordinator_in_a_partition_that_is_not_here(root):
    # "a" is in partition 47 of 50, and "gone" is not, although it is written there
    coordinate(root, 47, a=(9, TransactionState.ONGOING, {"t": (0,)}))
    assert hanging(root) == [False, None]
    for number in range(50):
        (root / f"__transaction_state-{number}").mkdir(exist_ok=True)
        (root / f"__transaction_state-{number}" / f"{0:020}.log").touch()
    shutil.rmtree(root / "__transaction_state-47")
    coordinate(root, 47, a=(9, TransactionState.ONGOING, {"t": (0,)}))
    assert hanging(root) == [False, None]  # "gone" is not in its partition
    shutil.rmtree(root / "__transaction_state-47")
    (root / "__transaction_state-47").mkdir()
    (root / "__transaction_state-47" / f"{0:020}.log").touch()
    assert hanging(root) == [True, True]


def test_the_metadata_has_the_number_of_coordinator_partitions(root):
    (root / "__transaction_state-0").mkdir()
    (root / "__transaction_state-0" / f"{0:020}.log").touch()
    assert hanging(root) == [None, None]  # a first partition of 1, or of 50
    for count, expected in ((2, [None, None]), (1, [True, True])):
        metadata_directory.write_log(root / "__cluster_metadata-0", [
            metadata_directory.topic("__transaction_state"),
            *map(metadata_directory.partition, range(count)),
        ])
        assert hanging(root) == expected


@pytest.mark.parametrize(("name", "partition"), [
    ("tx-4", 0), ("txn-tg-done", 0), ("open-1", 1), ("open \u00e9:x", 2), ("tx-0", 2),
])
def test_ids_are_in_the_partitions_of_their_hash_codes(name, partition):
    """As a broker of 4.3.1 with three partitions has them."""
    assert coordinator_partition(name, 3) == partition


def test_a_corrupt_record_of_a_coordinator_is_named(root):
    coordinate(root, a=(9, TransactionState.ONGOING, {"t": (0,)}))
    path = root / "__transaction_state-0" / f"{0:020}.log"
    path.write_bytes(Batch((Row(0, TIME, struct.pack(">hh", 0, 9), b"\0\0"),)).data)
    with pytest.raises(kafkastore.CorruptionError) as refused:
        kafkastore.transactions(root)
    assert refused.value.path == path.parent


@pytest.mark.golden_cases(names="transactions", answers="answers")
def test_the_oldest_one_holds_the_last_stable_offset_of_the_broker(golden_case):
    store = kafkastore.open(golden_case.logs)
    for name, answers in golden_case.answers["partitions"].items():
        stable, end = answers["last_stable_offset"], answers["log_end_offset"]
        found = open_transactions_of(store[name])
        holders = [each.first_offset for each in found if each.holds_last_stable_offset]
        assert holders == ([stable] if stable < end else [])
