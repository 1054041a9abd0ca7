"""Reading one partition from Python: records and batches between offsets."""

import tempfile
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.iteration import until_error
from models.log_directory import Log, Segment
from models.record_format import GZIP, ZSTD, Batch, Row, emptied, marker, message
from models.record_strategies import bounded, in_a_row, logs

import kafkastore
from kafkastore import (
    CorruptBatchError,
    CorruptionError,
    TopicPartition,
    UnsupportedFormatError,
)
from kafkastore.errors import (
    ChecksumError,
    DecompressedSizeError,
    DecompressionError,
    NotALogDirectoryError,
)


@pytest.fixture
def opened(tmp_path):
    """A function that writes a model log and opens it."""

    def write_and_open(log):
        (found,) = kafkastore.open(log.write(tmp_path / "logs"))
        return found

    return write_and_open


def numbered(*numbers, **fields):
    """Batches of one record each, at these offsets."""
    return tuple(Batch((Row(number, 10 * number, b"k", b"v"),), **fields) for number in numbers)


TWO = Log((Segment(0, numbered(0, 1, 2)), Segment(5, numbered(5, 6, 9))))


@bounded(150)
@given(
    logs(has_headers=True), st.booleans(),
    st.one_of(st.none(), st.integers(-1, 60)), st.one_of(st.none(), st.integers(-1, 60)),
)
def test_records_between_offsets_are_those_written(log, include_control, start, end):
    wanted = [
        record
        for record in log.records(include_control=include_control)
        if (start is None or record[0] >= start) and (end is None or record[0] < end)
    ]
    with tempfile.TemporaryDirectory() as directory:
        (found,) = kafkastore.open(log.write(Path(directory) / "logs"))
        records = [
            tuple(record) for record in found.records(start, end, include_control=include_control)
        ]
    assert records == wanted


@bounded(100)
@given(logs(), st.one_of(st.none(), st.integers(-1, 60)), st.one_of(st.none(), st.integers(-1, 60)))
def test_batches_between_offsets_are_all_that_overlap_them(log, start, end):
    first = max(log.start_offset, start or 0)
    wanted = [
        (position, batch.last_offset)
        for segment in log.segments
        for position, batch in segment.placed
        if batch.last_offset >= first and (end is None or batch.base_offset < end)
    ]
    with tempfile.TemporaryDirectory() as directory:
        (found,) = kafkastore.open(log.write(Path(directory) / "logs"))
        batches = [(batch.position, batch.last_offset) for batch in found.batches(start, end)]
    assert batches == wanted


@bounded(100)
@given(logs())
def test_the_bounds_of_the_log_are_those_written(log):
    ends = [batch.last_offset + 1 for batch in log.segments[-1].batches]
    with tempfile.TemporaryDirectory() as directory:
        (found,) = kafkastore.open(log.write(Path(directory) / "logs"))
        assert found.log_start_offset == log.start_offset
        end = max([log.segments[-1].base_offset, *ends])
        assert found.log_end_offset == max(end, log.start_offset)
        assert found.is_clean == log.is_clean
        assert found.recovery_point == log.recovery_point
        assert [segment.base_offset for segment in found.segments] == [
            segment.base_offset for segment in log.segments
        ]


def test_a_partition_has_its_name_and_its_directory(opened, tmp_path):
    found = opened(TWO)
    assert (found.topic, found.partition) == ("t", 0)
    assert found.topic_partition == TopicPartition("t", 0)
    assert found.path == tmp_path / "logs" / "t-0"
    assert found.log_dir.path == tmp_path / "logs"
    assert "t-0" in repr(found)


def test_segments_know_their_neighbours(opened):
    first, last = opened(TWO).segments
    assert (first.next_base_offset, first.is_active) == (5, False)
    assert (last.next_base_offset, last.is_active) == (None, True)


@pytest.mark.parametrize("start", range(-1, 12))
@pytest.mark.parametrize("end", [0, 1, 5, 6, 9, 2**62])
def test_segments_between_offsets_are_those_that_may_hold_one(opened, start, end):
    log = opened(Log((*TWO.segments, Segment(9, ()))))
    wanted = [
        segment.base_offset
        for segment in log.segments
        if segment.base_offset < end
        and (segment.next_base_offset is None or segment.next_base_offset > start)
    ]
    assert [segment.base_offset for segment in log.segments_between(start, end)] == wanted


def test_files_that_are_being_deleted_are_not_segments(opened):
    found = opened(TWO)
    for name in (
        "00000000000000000007.log.deleted", "00000000000000000000.log.swap",
        "00000000000000000000.log.cleaned", "0.log", "00000000000000000008.index", "x.log",
    ):
        (found.path / name).write_bytes(b"anything")
    assert [segment.base_offset for segment in found.segments] == [0, 5]


def test_a_partition_without_segments_is_empty(tmp_path):
    (tmp_path / "meta.properties").write_text("version=0\n")
    (tmp_path / "t-0").mkdir()
    (found,) = kafkastore.open(tmp_path)
    assert found.segments == ()
    assert (found.log_start_offset, found.log_end_offset) == (0, 0)
    assert list(found.records()) == list(found.batches()) == []
    assert found.to_arrow().read_all().num_rows == 0
    assert found.offset_for_timestamp(0) is None
    assert found.offset_for_timestamp(0, rules="2.4") is None
    assert found.leader_epochs == ()


def test_a_log_start_beyond_the_end_leaves_an_empty_log(opened):
    found = opened(Log(TWO.segments, checkpointed_start=50))
    assert (found.log_start_offset, found.log_end_offset) == (50, 50)
    assert list(found.records()) == []


def test_a_log_start_within_a_batch_cuts_its_first_records(opened):
    batch = Batch(tuple(Row(offset, 5) for offset in range(10)))
    found = opened(Log((Segment(0, (batch,)),), checkpointed_start=4))
    assert [record.offset for record in found.records()] == [4, 5, 6, 7, 8, 9]
    assert [record.offset for record in found.records(0, 6)] == [4, 5]
    assert found.to_arrow(["offset"]).read_all()["offset"].to_pylist() == [4, 5, 6, 7, 8, 9]


def test_markers_and_emptied_batches_are_batches_but_not_records(opened):
    batches = (*numbered(0), marker(1, 5), emptied(2, 6, 5), *numbered(7))
    found = opened(Log((Segment(0, batches),)))
    assert [record.offset for record in found.records()] == [0, 7]
    assert [record.offset for record in found.records(include_control=True)] == [0, 1, 7]
    assert [batch.last_offset for batch in found.batches()] == [0, 1, 6, 7]


def test_records_are_read_lazily(opened):
    found = opened(Log((Segment(0, numbered(0, 1), tail=b"\xff" * 50),)))
    records = found.records()
    assert next(records).offset == 0
    assert next(records).offset == 1
    with pytest.raises(CorruptBatchError):
        next(records)


# A batch at offset 2, and the type of error.
BROKEN = {
    "a wrong checksum": (numbered(2)[0].data[:-1] + b"x", ChecksumError),
    "a false count": (
        Batch((Row(2, 5),), stated_count=7).data, CorruptBatchError),
    "compressed records that end early": (
        Batch((Row(2, 5),), codec=ZSTD, stated_count=2).data, CorruptBatchError),
    "no gzip": (message(1, 2, 5, None, b"not gzip at all", GZIP), DecompressionError),
    "an unknown codec": (message(1, 2, 5, None, b"x", 5), UnsupportedFormatError),
    "a magic that is not known": (
        numbered(2)[0].data[:16] + b"\x03" + numbered(2)[0].data[17:], UnsupportedFormatError),
    "a length that can't be": (
        numbered(2)[0].data[:8] + b"\xff" * 4 + numbered(2)[0].data[12:], CorruptBatchError),
}


@pytest.mark.parametrize(("damage", "kind"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("reader", ["records", "records to an end", "arrow"])
def test_a_broken_batch_is_reported_with_file_and_byte_after_all_before_it(
    opened, damage, kind, reader
):
    before = Segment(0, numbered(0, 1))
    found = opened(Log((before, Segment(2, (), tail=damage + numbered(3)[0].data))))
    if reader == "arrow":
        batches, error = until_error(found.to_arrow(["offset"]))
        offsets = [offset for batch in batches for offset in batch["offset"].to_pylist()]
    else:
        end = 3 if reader == "records to an end" else None
        records, error = until_error(found.records(0, end))
        offsets = [record.offset for record in records]
    assert offsets == [0, 1]
    assert type(error) is kind
    assert (error.path, error.position) == (found.segments[1].log_path, 0)
    assert "\n" not in str(error)


def test_a_broken_wrapper_at_the_end_of_a_range_is_reported_with_its_file(opened):
    broken = message(1, 9, 5, None, b"not gzip at all", GZIP)
    found = opened(Log((Segment(0, numbered(0, 1), tail=broken),)))
    with pytest.raises(CorruptBatchError) as caught:
        list(found.records(0, 5))
    assert caught.value.path == found.segments[0].log_path
    skipped = []
    records = found.records(0, 5, on_corrupt="skip", skipped=skipped)
    assert [record.offset for record in records] == [0, 1]
    assert [each.path for each in skipped] == [found.segments[0].log_path]
    assert len(list(found.batches(0, 5))) == len(list(found.batches())) == 3  # none is decoded


def test_a_corrupt_offset_does_not_lead_to_another_file(opened):
    damaged = bytearray(numbered(1)[0].data)
    damaged[26] ^= 0x08      # the last offset delta: the batch seems to end with offset 9
    found = opened(Log((Segment(0, numbered(0), tail=bytes(damaged)), Segment(5, numbered(5)))))
    with pytest.raises(CorruptBatchError) as caught:
        list(found.records())
    assert caught.value.path == found.segments[0].log_path


def test_checksums_need_not_be_verified(opened):
    damaged = numbered(1)[0].data[:-2] + b"V\0"
    found = opened(Log((Segment(0, numbered(0), tail=damaged),)))
    assert [record.value for record in found.records(verify=False)] == [b"v", b"V"]
    table = found.to_arrow(["value"], verify=False).read_all()
    assert table["value"].to_pylist() == [b"v", b"V"]


def test_decompression_is_bounded(opened):
    large = Batch((Row(0, 5, None, bytes(100_000)),), codec=ZSTD)
    found = opened(Log((Segment(0, (large,)),)))
    assert len(list(found.records())) == 1
    with pytest.raises(DecompressedSizeError):
        list(found.records(max_decompressed_bytes=1000))
    with pytest.raises(DecompressedSizeError):
        found.to_arrow(max_decompressed_bytes=1000).read_all()


def test_gaps_between_segments_and_batches_are_skipped(opened):
    found = opened(TWO)
    assert [record.offset for record in found.records(3, 5)] == []
    assert [record.offset for record in found.records(3)] == [5, 6, 9]
    assert [record.offset for record in found.records(7)] == [9]
    assert [record.offset for record in found.records(10)] == []


@pytest.mark.parametrize("bounds", [(5, 2), (-10, -1), (2**62, None), (0, 0), (9, 9)])
def test_ranges_without_records_are_empty(opened, bounds):
    found = opened(TWO)
    assert list(found.records(*bounds)) == []
    assert found.to_arrow(start_offset=bounds[0], end_offset=bounds[1]).read_all().num_rows == 0


def test_a_missing_directory_is_one_clear_error(opened):
    found = opened(TWO)
    for path in found.path.iterdir():
        path.unlink()
    found.path.rmdir()
    with pytest.raises(NotALogDirectoryError):
        list(found.records())


def test_an_error_that_is_kept_gathers_no_traceback(opened):
    corrupt = bytearray(numbered(1)[0].data)
    corrupt[26] ^= 0x08
    log = opened(Log((Segment(0, numbered(0), tail=bytes(corrupt)), Segment(5, numbered(5)))))
    (log.path / f"{5:020}.log").write_bytes(numbered(5)[0].data + b"no batch follows at this byte")

    def lengths(ask):
        for _ in range(3):
            try:
                ask()
            except CorruptionError as error:
                yield len(traceback.extract_tb(error.__traceback__))

    for ask in (
        lambda: log.log_end_offset,
        log.end_offset,
        lambda: log.offset_for_timestamp(60),
        log.segments[0].largest_record_timestamp,
    ):
        found = list(lengths(ask))
        assert len(found) == 3
        assert len(set(found[1:])) == 1


def test_only_readers_that_verify_find_a_batch_whose_header_ends_before_the_start(opened):
    """The magic of a batch is changed to 0: as a message it would end with its first offset."""
    batches = [Batch(tuple(Row(slot, slot, b"k", b"v") for slot in range(3)))] * 3
    log = opened(Log((Segment(0, tuple(in_a_row(batches))),)))
    path, size = log.segments[0].log_path, len(batches[0].data)
    changed = bytearray(path.read_bytes())
    changed[size + 16] ^= 2
    path.write_bytes(changed)
    log.refresh()
    for read in (lambda: list(log.records(4)), lambda: log.to_arrow(start_offset=4).read_all()):
        with pytest.raises(ChecksumError) as caught:
            read()
        assert (caught.value.path, caught.value.position) == (path, size)
    unverified = {"on_corrupt": "skip", "skipped": []}
    assert [batch.base_offset for batch in log.batches(4, **unverified)] == [6]
    unverified["verify"] = False
    assert [record.offset for record in log.records(4, **unverified)] == [6, 7, 8]
    rows = log.to_arrow(["offset"], start_offset=4, **unverified).read_all()
    assert rows["offset"].to_pylist() == [6, 7, 8]
    assert unverified["skipped"] == []
