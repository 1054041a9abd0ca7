"""Rewritten batches with valid checksums, and renamed segments: which checks find them."""

import shutil
import struct

import pytest
from models.log_directory import Log, Segment
from models.record_format import GZIP, Batch, Row, with_right_crc
from models.record_strategies import in_a_row

import kafkastore
from kafkastore.checks.findings import FindingKind, Severity
from kafkastore.jobs.verify import verify

NOW = 1_600_000_000_000
BATCHES = in_a_row(
    [
        Batch((Row(0, NOW + 1000 * slot, b"k", b"v"), Row(1, NOW + 1000 * slot + 500, b"k", b"v")))
        for slot in range(30)
    ]
)
CHANGED = 5
AT = sum(len(each.data) for each in BATCHES[:CHANGED])
FIRST = 2 * CHANGED
RECORD = 61  # of a record batch's header


@pytest.fixture
def root(tmp_path):
    segments = [Segment(2 * base, tuple(BATCHES[base : base + 10])) for base in (0, 10, 20)]
    Log(tuple(each.recovered(200) for each in segments)).write(tmp_path)
    return tmp_path


def rewrite(root, position, layout, value):
    """Write a value into the batch, and update its checksum."""
    path = root / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    batch = data[AT : AT + len(BATCHES[CHANGED].data)]
    struct.pack_into(layout, batch, position, value)
    data[AT : AT + len(batch)] = with_right_crc(bytes(batch))
    path.write_bytes(data)


def is_found(root):
    return any(each.severity.is_at_least(Severity.SLOW) for each in verify(root))


def offsets(root, **bounds):
    (log,) = kafkastore.open(root)
    return [record.offset for record in log.records(**bounds)]


def test_a_record_that_does_not_fit_its_batch_is_an_error_only_for_readers(root):
    rewrite(root, RECORD + 4, ">b", 100)  # the key's length
    assert not is_found(root)
    with pytest.raises(kafkastore.CorruptBatchError) as caught:
        offsets(root)
    assert caught.value.position == AT
    assert caught.value.path == root / "t-0" / f"{0:020}.log"


def test_changed_offsets_and_timestamps_of_records_are_returned_as_written(root):
    rewrite(root, RECORD + 3, ">b", 4)  # the offset delta 2
    assert not is_found(root)
    assert offsets(root)[FIRST : FIRST + 2] == [FIRST + 2, FIRST + 1]


def test_a_maximum_timestamp_below_that_of_the_records_hides_the_batch_from_lookups(root):
    at = NOW + 1000 * CHANGED + 500
    assert kafkastore.open(root)["t-0"].offset_for_timestamp(at).offset == FIRST + 1
    rewrite(root, 35, ">q", at - 400)
    assert not is_found(root)
    assert kafkastore.open(root)["t-0"].offset_for_timestamp(at).offset == FIRST + 2


def test_a_maximum_timestamp_above_that_of_the_records_is_found_if_there_is_a_time_index(root):
    rewrite(root, 35, ">q", NOW + 100_000)
    assert is_found(root)


def test_a_record_count_that_does_not_match_is_found(root):
    rewrite(root, 57, ">i", 3)
    assert is_found(root)


def rename(root, base_offset, renamed):
    for path in (root / "t-0").glob(f"{base_offset:020}.*"):
        path.rename(path.with_name(path.name.replace(f"{base_offset:020}", f"{renamed:020}")))


def test_a_segment_renamed_upwards_is_found_but_not_by_reads_of_ranges_below_its_name(root):
    rename(root, 20, 30)
    assert is_found(root)
    with pytest.raises(kafkastore.CorruptBatchError):
        offsets(root)
    assert offsets(root, start_offset=10, end_offset=30) == [*range(10, 20)]


def test_a_segment_renamed_downwards_is_found_but_not_by_reads_that_begin_after_its_name(root):
    rename(root, 40, 15)
    assert is_found(root)
    with pytest.raises(kafkastore.CorruptBatchError):
        offsets(root)
    assert offsets(root, start_offset=20) == [*range(20, 40)]
    assert kafkastore.open(root)["t-0"].list_offset(-1).offset == 40


@pytest.mark.parametrize("magic", [0, 1])
def test_a_segment_renamed_into_its_first_wrapper_is_found(tmp_path, magic):
    rows = tuple(Row(offset, -1 if magic == 0 else NOW) for offset in range(4))
    wrappers = in_a_row([Batch(rows, magic, GZIP)] * 3)
    Log((Segment(0, tuple(wrappers)).recovered(200),)).write(tmp_path)
    assert not is_found(tmp_path)
    rename(tmp_path, 0, 2)
    (finding,) = [each for each in verify(tmp_path) if each.severity is Severity.DATA_LOSS_RISK]
    assert (finding.kind, finding.position) == (FindingKind.BATCH_OUTSIDE_SEGMENT, 0)
    with pytest.raises(kafkastore.CorruptBatchError) as caught:
        offsets(tmp_path)
    assert caught.value.position == 0


@pytest.mark.parametrize("left", [0, 1, 9])
def test_batches_lost_at_the_end_of_an_inactive_segment_are_found_only_by_its_indexes(root, left):
    """Readers see a gap, as compaction leaves it."""
    path = root / "t-0" / f"{0:020}.log"
    path.write_bytes(b"".join(each.data for each in BATCHES[:left]))
    assert is_found(root)
    assert offsets(root) == [*range(2 * left), *range(20, 60)]
    path.with_suffix(".index").unlink()
    path.with_suffix(".timeindex").write_bytes(b"")
    kinds = {each.kind for each in verify(root)}
    assert FindingKind.MISSING_OFFSETS in kinds
    assert FindingKind.OFFSET_INDEX_BEYOND_LOG_END not in kinds


def test_a_producer_snapshot_of_another_partition_is_found_only_by_verify(golden, tmp_path):
    directory = tmp_path / "logs"
    shutil.copytree(golden("4.1.1", "transactions", "answers").logs, directory)
    assert not is_found(directory)
    right = kafkastore.open(directory)["txn-0"].last_stable_offset
    shutil.copy(
        directory / "txn-1" / f"{42:020}.snapshot", directory / "txn-0" / f"{128:020}.snapshot"
    )
    assert is_found(directory)
    log = kafkastore.open(directory)["txn-0"]
    assert log.last_stable_offset < right
    committed = [record.offset for record in log.records(isolation="read_committed")]
    assert max(committed) < log.last_stable_offset
