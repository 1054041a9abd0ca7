"""The last stable offset of a broker that starts, as brokers answered."""

import pytest
from models.log_directory import TOPIC_PARTITION, Log, Segment
from models.record_format import Batch, Row, marker
from models.segment_indexes import pack_offset_entries

import kafkastore
from kafkastore.formats.state import producer_snapshot
from kafkastore.recovery.log_recovery import recover_log

OPENED, AGAIN, END = 2, 6, 9
VERSIONS = ["2.4.0", "2.7", "2.8", "3.9.1", "4.1.1"]


def written_by(producer_id, offsets, sequence):
    rows = tuple(Row(offset, 100 + offset) for offset in offsets)
    fields = {"producer_epoch": 0, "base_sequence": sequence, "is_transactional": True}
    return Batch(rows, producer_id=producer_id, **fields)


def log_of(**fields):
    """Three segments: a transaction is ended in the first; another is open in all of them."""
    first = (written_by(1, [0], 0), marker(1, 101), written_by(2, [OPENED, 3], 0))
    batches = (first, (Batch((Row(4, 104), Row(5, 105))), written_by(2, [AGAIN], 2)),
               (written_by(2, [7, 8], 3),))
    segments = (Segment(each[0].base_offset, each).recovered() for each in batches)
    return Log(tuple(segments), **fields)


@pytest.fixture
def opened(tmp_path):
    """A function that writes a model log, changes its directory, and opens it."""

    def write_and_open(log, change=None):
        root = log.write(tmp_path / "logs")
        if change is not None:
            change(root / TOPIC_PARTITION)
        (found,) = kafkastore.open(root)
        return found

    return write_and_open


def last_stable_offsets(log):
    """By version: what LATEST with read_committed answers."""
    return {
        rules: log.list_offset(-1, rules, "read_committed").offset
        for rules in ("correct", *VERSIONS)
    }


def same_everywhere(offset):
    return dict.fromkeys(("correct", *VERSIONS), offset)


def test_without_a_producer_snapshot_a_cleanly_closed_log_has_no_open_transaction(opened):
    log = opened(log_of(is_clean=True))
    assert last_stable_offsets(log) == same_everywhere(END) | {"correct": OPENED}


def add_snapshot(partition):
    """The snapshot that a broker writes at the log end in a clean shutdown."""
    path = partition / f"{END:020}.snapshot"
    path.write_bytes(producer_snapshot.pack([(2, 0, 4, 8, 1, 108, -1, OPENED)]))


def test_a_snapshot_at_the_end_reports_what_is_open(opened):
    log = opened(log_of(is_clean=True), add_snapshot)
    assert last_stable_offsets(log) == same_everywhere(OPENED)


def test_a_segment_that_is_recovered_for_want_of_its_index_reports_what_is_open(opened):
    log = opened(log_of(is_clean=True), lambda path: (path / f"{7:020}.index").unlink())
    found = last_stable_offsets(log)
    assert [found[rules] for rules in ("correct", "2.8", "3.9.1", "4.1.1")] == [OPENED] * 4
    # Since 2.8 alone a recovery carries producers from one segment to the next.
    assert [found[rules] for rules in ("2.4.0", "2.7")] == [AGAIN] * 2


def test_before_2_8_a_recovery_forgets_where_transactions_of_earlier_segments_began(opened):
    log = opened(log_of(recovery_point=8))
    expected = same_everywhere(OPENED) | {"2.4.0": AGAIN, "2.7": AGAIN}
    assert last_stable_offsets(log) == expected


def test_snapshots_of_such_a_recovery_are_those_that_a_broker_wrote(opened):
    log = opened(log_of(recovery_point=8))
    at = f"{7:020}.snapshot"
    entries = {
        version: producer_snapshot.parse(recover_log(log, version).written[at]).tolist()
        for version in ("2.4.0", "2.8")
    }
    closed = (1, 0, 0, 0, 0, 100, 0, -1)
    assert entries["2.4.0"] == [closed, (2, 0, 2, 6, 0, 106, -1, AGAIN)]
    assert entries["2.8"][1] == (2, 0, 2, 6, 0, 106, -1, OPENED)


@pytest.mark.parametrize(("start", "since_4"), [(3, OPENED), (OPENED, OPENED), (5, 4)])
def test_since_4_0_it_is_the_base_offset_of_its_batch(opened, start, since_4):
    log = opened(log_of(is_clean=True, checkpointed_start=start), add_snapshot)
    found = last_stable_offsets(log)
    assert found["correct"] == found["3.9.1"] == start
    assert found["4.1.1"] == since_4


def mislead(partition):
    """An offset index whose entry for the open transaction's batch has a later batch's place."""
    add_snapshot(partition)
    (log,) = kafkastore.open(partition.parent)
    where = log.segments[1].translate_offset(AGAIN).position
    index = pack_offset_entries([(4, where)], 4)
    (partition / f"{4:020}.index").write_bytes(index)


def test_since_4_0_it_is_of_the_batch_that_the_offset_index_leads_to(opened):
    found = last_stable_offsets(opened(log_of(is_clean=True, checkpointed_start=5), mislead))
    assert found["correct"] == found["3.9.1"] == 5
    assert found["4.1.1"] == AGAIN


@pytest.mark.parametrize(("start", "recovered"), [(3, 3), (5, AGAIN)])
def test_a_recovery_forgets_what_began_in_a_segment_before_the_log_start(opened, start, recovered):
    """The snapshot taken after that segment is not above the log start, and is dropped."""
    found = last_stable_offsets(opened(log_of(checkpointed_start=start)))
    assert (found["correct"], found["3.9.1"]) == (start, recovered)


def test_times_are_found_up_to_there(opened):
    log = opened(log_of(recovery_point=8))
    for rules, bound in last_stable_offsets(log).items():
        for offset in (0, OPENED, 3, 4, AGAIN, 8):
            found = log.list_offset(100 + offset, rules, "read_committed")
            assert (found and found.offset) == (offset if offset < bound else None), rules
