import errno
import os
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import record_reader
from models.record_format import CODECS_OF, GZIP, Batch, Row, emptied, marker, message
from models.record_strategies import NEAR_TIMESTAMPS, batches, bounded, in_a_row

from kafkastore import CorruptBatchError, UnsupportedFormatError
from kafkastore.segment import log_file
from kafkastore.segment.log_file import LogFile
from kafkastore.segment.timestamp_search import SegmentSearch

V0 = message(0, 0, -1, b"key", b"value")
V1 = message(1, 1, 1000, b"key", b"value")
V2 = Batch((Row(2, 2000, b"key", b"value"), Row(3, 1999))).data
LOG = V0 + V1 + V2
FIRST_READS = [1, 18, 60, 100, 4096, log_file.LARGEST_READ]


@pytest.fixture
def open_log(tmp_path):
    """A function that writes bytes and opens them as a log."""
    opened = []

    def write_and_open(data):
        path = tmp_path / f"{len(opened):020}.log"
        path.write_bytes(data)
        opened.append(LogFile(path))
        return opened[-1]

    yield write_and_open
    for log in opened:
        log.close()


def positions(log, starting_position=0, **options):
    """The positions of batches; also checks that their bytes are those of the file."""
    data, found = log.path.read_bytes(), []
    for run in log.runs(starting_position, **options):
        for index, (position, size) in enumerate(run.headers[["position", "size"]].tolist()):
            assert run.batch(index) == data[position : position + size]
            found.append(position)
    return found


def with_length(batch, length):
    return batch[:8] + struct.pack(">i", length) + batch[12:]


def with_magic(batch, magic):
    return batch[:16] + struct.pack(">b", magic) + batch[17:]


# Bytes after complete batches where a log just ends, as Kafka's FileLogInputStream has it.
ENDS = {
    "nothing": b"",
    "one byte": V2[:1],
    "17 bytes": V2[:17],
    "17 bytes of an impossible length": with_length(V2, 0)[:17],
    "17 bytes of magic 3": with_magic(V2, 3)[:17],
    "half a batch": V2[:40],
    "half a message": V0[:20],
    "all but one byte": V2[:-1],
    "a length of two billion": with_length(V2, 2**31 - 13),
    "a length beyond an int": with_length(V2, 2**31 - 1),
    "half a batch of magic 3": with_magic(V2, 3)[:-1],
    "half a batch of magic 2 with the length of a message": with_length(V2, 40)[:51],
    "preallocated zeros": bytes(500),
    "zeros up to the largest read and more": bytes(log_file.LARGEST_READ + 12345),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("first_read", [18, log_file.LARGEST_READ])
def test_a_torn_tail_and_preallocated_space_are_the_end(open_log, end, first_read):
    log = open_log(LOG + end)
    assert positions(log, first_read=first_read) == [0, len(V0), len(V0 + V1)]
    assert [batch.last_offset for batch in log.batches()] == [0, 1, 3]


# Corrupt bytes after complete batches, the error, and its message.
DAMAGES = {
    "a length of 13": (with_length(V2, 13), CorruptBatchError),
    "a negative length": (with_length(V2, -5), CorruptBatchError),
    "a length too short for magic 1": (with_length(V1, 21), CorruptBatchError),
    "a length too short for magic 2": (with_length(V2, 48), CorruptBatchError),
    "zeros, then something": (bytes(100) + V2, CorruptBatchError),
    "magic 3": (with_magic(V2, 3), UnsupportedFormatError),
    "magic 200": (with_magic(V2, -56), UnsupportedFormatError),
    "magic 3 within the log": (with_magic(V2, 3) + V2, UnsupportedFormatError),
}


@pytest.mark.parametrize(("damage", "kind"), DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("first_read", [18, log_file.LARGEST_READ])
def test_broken_bytes_are_reported_with_their_place(open_log, damage, kind, first_read):
    log, found = open_log(LOG + damage), []
    with pytest.raises(kind) as caught:
        for run in log.runs(first_read=first_read):
            found += run.headers["position"].tolist()
    assert found == [0, len(V0), len(V0 + V1)]
    assert (caught.value.path, caught.value.position) == (log.path, len(LOG))
    assert str(log.path) in str(caught.value)


@pytest.mark.parametrize("first_read", FIRST_READS)
def test_batches_of_every_size_are_found_with_every_read_size(open_log, first_read):
    sizes = [0, 1, 10, 100, 5_000, 50_000, 3, 70_000]
    written = in_a_row([Batch((Row(0, 1, None, bytes(size)),)) for size in sizes])
    log = open_log(b"".join(batch.data for batch in written))
    wanted, position = [], 0
    for batch in written:
        wanted.append(position)
        position += len(batch.data)
    assert positions(log, first_read=first_read) == wanted
    assert positions(log, wanted[4], first_read=first_read) == wanted[4:]


def test_a_batch_larger_than_the_largest_read_is_found(open_log):
    large = Batch((Row(0, 1, None, bytes(log_file.LARGEST_READ + 100)),)).data
    log = open_log(V0 + large + V1)
    assert positions(log) == [0, len(V0), len(V0 + large)]


def test_more_batches_than_headers_of_one_scan_are_found(open_log, monkeypatch):
    monkeypatch.setattr(log_file, "HEADERS_A_SCAN", 7)
    log = open_log(V0 * 100)
    assert positions(log) == list(range(0, 100 * len(V0), len(V0)))


@pytest.mark.parametrize("position", [0, 1, len(LOG) - 1, len(LOG), len(LOG) + 1, 2**40])
def test_reading_from_the_end_or_after_it_finds_nothing(open_log, position):
    log = open_log(LOG[:10])
    assert positions(log, position) == []
    assert log.search_for_offset(0, position) is None
    assert log.header_at(position) is None


def test_an_empty_log_has_no_batches(open_log):
    log = open_log(b"")
    assert positions(log) == []
    assert list(log.batches()) == []
    assert log.search_for_timestamp(0) is None


@bounded(80)
@given(st.lists(batches(), max_size=6), st.sampled_from(FIRST_READS), st.integers(0, 300))
def test_random_logs_cut_anywhere_are_walked_as_the_model_walks_them(
    tmp_path_factory, written, first_read, cut
):
    data = b"".join(batch.data for batch in in_a_row(written))
    path = tmp_path_factory.mktemp("log") / "0.log"
    path.write_bytes(data[: max(0, len(data) - cut)])
    complete, _ = record_reader.split(path.read_bytes())
    with LogFile(path) as log:
        assert positions(log, first_read=first_read) == [position for position, _ in complete]


def test_random_damage_is_walked_as_the_model_walks_it(open_log):
    source = random.Random(11)
    written = in_a_row([Batch((Row(0, 1, None, bytes(size)),)) for size in (1, 2, 30, 4, 5)])
    data = b"".join(batch.data for batch in written)
    for _ in range(300):
        damaged = bytearray(data)
        at = source.choice([position for position, _ in record_reader.split(data)[0]])
        damaged[at + source.randrange(8, 17)] = source.randrange(256)
        complete, why = record_reader.split(bytes(damaged))
        log, found = open_log(bytes(damaged)), []
        try:
            for run in log.runs(first_read=64):
                found += run.headers["position"].tolist()
            assert why == "end"
        except (CorruptBatchError, UnsupportedFormatError) as error:
            assert why == "broken"
            assert error.position == (complete[-1][0] + len(complete[-1][1]) if complete else 0)
        assert found == [position for position, _ in complete]
        log.close()


# Offsets of a log with gaps, and the batch that an offset is found in: (last offset, position).
GAPS = in_a_row([Batch((Row(0, 1), Row(1, 1))), Batch((Row(5, 1), Row(9, 1)))], 40)
GAPS.append(Batch((Row(60, 1), Row(61, 1)), codec=GZIP, magic=1))
SEARCHES = {0: 0, 40: 0, 41: 0, 42: 1, 46: 1, 47: 2, 60: 2, 61: 2, 62: None}


@pytest.mark.parametrize(("target", "number"), SEARCHES.items())
def test_an_offset_is_found_in_the_first_batch_that_ends_at_or_after_it(open_log, target, number):
    data = [batch.data for batch in GAPS]
    found = open_log(b"".join(data)).search_for_offset(target)
    wanted = None
    if number is not None:
        position = sum(len(each) for each in data[:number])
        wanted = (GAPS[number].last_offset, position, len(data[number]))
    assert found == wanted


@pytest.mark.parametrize(
    ("magic", "codec"), [(magic, codec) for magic in (0, 1, 2) for codec in CODECS_OF[magic]]
)
def test_a_time_is_searched_in_every_magic_and_codec(open_log, magic, codec):
    """As in Kafka's FileRecordsTest.testSearchForTimestamp."""
    sizes = [1, 1, 1] if magic < 2 and codec == 0 else [2, 1, 3]
    written, offset = [], 10
    for size in sizes:
        rows = tuple(Row(offset + i, 10 * (offset + i)) for i in range(size))
        written.append(Batch(rows, magic=magic, codec=codec, leader_epoch=5))
        offset += size
    records = [record for batch in written for record in batch.records]
    log = open_log(b"".join(batch.data for batch in written))
    epoch = 5 if magic == 2 else -1
    for target in range(98, 10 * offset + 2):
        for start in (0, 11, offset - 1, offset):
            wanted = next(
                ((r[1], r[0], epoch) for r in records if r[1] >= target and r[0] >= start), None
            )
            assert log.search_for_timestamp(target, 0, start) == wanted, (target, start)


def test_markers_are_found_unless_skipped(open_log):
    log = open_log(Batch((Row(0, 5),)).data + marker(1, 100).data + Batch((Row(2, 90),)).data)
    assert log.search_for_timestamp(50) == (100, 1, 0)
    without_markers = SegmentSearch(lambda: log, 0, b"", b"", skip_control=True)
    assert without_markers.find_from(0, 50, 0) == (90, 2, 0)
    assert without_markers.find_from(0, 95, 0) is None


def test_an_emptied_batch_is_stepped_over(open_log):
    log = open_log(emptied(0, 4, 1000).data + Batch((Row(5, 7),)).data)
    assert log.search_for_timestamp(5) == (7, 5, 0)
    assert log.search_for_timestamp(8) is None


def test_only_batches_that_can_hold_the_time_are_decoded(open_log):
    broken = Batch((Row(0, 5),), stated_count=9, stated_max_timestamp=50)
    log = open_log(broken.data + Batch((Row(1, 90),)).data)
    assert log.search_for_timestamp(51) == (90, 1, 0)
    assert log.search_for_timestamp(20, 0, 1) == (90, 1, 0)
    with pytest.raises(CorruptBatchError) as caught:
        log.search_for_timestamp(20)
    assert (caught.value.path, caught.value.position) == (log.path, 0)


@bounded(80)
@given(
    st.lists(batches(timestamps=NEAR_TIMESTAMPS), max_size=6), NEAR_TIMESTAMPS, st.integers(0, 20)
)
def test_a_time_is_searched_as_by_brute_force(tmp_path_factory, written, target, start):
    written = in_a_row(written)
    path = tmp_path_factory.mktemp("log") / "0.log"
    path.write_bytes(b"".join(batch.data for batch in written))
    wanted = next(
        (
            (record[1], record[0], batch.leader_epoch if batch.magic == 2 else -1)
            for batch in written
            if batch.max_timestamp >= target
            for record in batch.records
            if record[1] >= target and record[0] >= start
        ),
        None,
    )
    with LogFile(path) as log:
        assert log.search_for_timestamp(target, 0, start) == wanted


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [0, GZIP])
def test_the_first_offset_of_a_batch_is_read_at_its_position(open_log, magic, codec):
    rows = (Row(7, 1), Row(9, 1)) if codec or magic == 2 else (Row(7, 1),)
    batch = Batch(rows, magic=magic, codec=codec).data
    log = open_log(V0 + batch)
    assert log.first_offset_at(len(V0)) == 7
    for position in (1, len(V0) + 1, len(V0 + batch), -1 + len(V0), 10**6):
        assert log.first_offset_at(position) is None


def test_the_first_offset_of_a_wrapper_that_can_t_be_read_is_none(open_log):
    log = open_log(message(1, 5, 1, None, b"no gzip", GZIP))
    assert log.first_offset_at(0) is None


def test_the_header_of_a_batch_that_is_cut_is_none(open_log):
    for size in range(len(V2)):
        assert open_log(V2[:size]).header_at(0) is None
    assert open_log(V2).header_at(0)["last_offset"] == 3


def test_a_read_error_is_reported_with_its_place(open_log, monkeypatch):
    log = open_log(V0 * 1000)
    real = os.preadv

    def fail_after_first(descriptor, buffers, position):
        if position >= 2 * len(V0):
            raise OSError(errno.EIO, "Input/output error")
        return real(descriptor, buffers, position)

    monkeypatch.setattr(os, "preadv", fail_after_first)
    found = []
    with pytest.raises(CorruptBatchError) as caught:
        for run in log.runs(first_read=2 * len(V0)):
            found += run.headers["position"].tolist()
    assert found == [0, len(V0)]
    assert (caught.value.path, caught.value.position) == (log.path, 2 * len(V0))
    assert caught.value.__cause__.errno == errno.EIO


def test_short_reads_are_continued(open_log, monkeypatch):
    log = open_log(LOG)
    real = os.preadv
    monkeypatch.setattr(
        os, "preadv",
        lambda descriptor, buffers, position: real(descriptor, [buffers[0][:5]], position),
    )
    assert positions(log) == [0, len(V0), len(V0 + V1)]


def test_batches_appended_after_opening_are_not_seen(open_log):
    log = open_log(LOG + V0[:10])
    with log.path.open("ab") as file:
        file.write(V0[10:] + LOG)
    assert positions(log) == [0, len(V0), len(V0 + V1)]
    with LogFile(log.path) as reopened:
        assert len(positions(reopened)) == 7


@pytest.mark.parametrize("left", range(0, len(LOG), 7))
def test_a_log_that_shrinks_while_it_is_read_ends_before_the_cut(open_log, left):
    log = open_log(LOG * 3)
    runs = log.runs(first_read=len(V0))
    first = next(runs).headers["position"].tolist()
    os.truncate(log.path, left)
    found = first + [position for run in runs for position in run.headers["position"].tolist()]
    complete = [position for position, _ in record_reader.split(LOG[:left])[0]]
    assert found in (complete, [0, *complete[1:]])


def test_a_deleted_log_can_be_read_to_its_end(open_log):
    log = open_log(LOG * 3)
    log.path.unlink()
    assert len([position for run in log.runs() for position in run.headers["position"]]) == 9


def test_batches_keep_their_bytes_when_the_next_are_read(open_log):
    copies = 3 * log_file.LARGEST_READ // len(LOG)
    kept = list(open_log(LOG * copies).batches())
    assert len(kept) == 3 * copies
    assert all(batch.is_valid() for batch in kept)


def test_space_that_a_broker_fills_while_we_read_is_the_end(open_log, monkeypatch):
    log = open_log(LOG + bytes(log_file.LARGEST_READ))
    real, reads = os.preadv, []

    def write_after_the_first_read(descriptor, buffers, position):
        got = real(descriptor, buffers, position)
        if not reads:
            with log.path.open("r+b") as file:
                file.seek(len(LOG))
                file.write(LOG)
        reads.append(position)
        return got

    monkeypatch.setattr(os, "preadv", write_after_the_first_read)
    assert positions(log, first_read=200) == [0, len(V0), len(V0 + V1)]


def test_closing_twice_is_allowed_and_a_missing_file_is_an_os_error(open_log, tmp_path):
    log = open_log(LOG)
    log.close()
    log.close()
    with pytest.raises(FileNotFoundError):
        LogFile(tmp_path / "none.log")
