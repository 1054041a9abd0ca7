"""Reading beside a broker: files grow, shrink and vanish, and no record is ever halved."""

import os
import random
import subprocess
import sys

import pytest
from models.iteration import until_error
from models.log_directory import Log, Segment
from models.record_format import GZIP, Batch, Row

import kafkastore
from kafkastore import KafkaStoreError
from kafkastore.log import partition_log, records_as_arrow
from kafkastore.segment import log_file


def batches_of(count, word, *, per_batch=3, codec=0, first_offset=0):
    """Batches whose values tell offset and writer."""
    return tuple(
        Batch(
            tuple(
                Row(offset, offset, b"k", b"%s %d" % (word, offset))
                for offset in range(first, first + per_batch)
            ),
            codec=codec,
        )
        for first in range(first_offset, first_offset + count * per_batch, per_batch)
    )


WRITTEN = batches_of(40, b"old")
LOG = b"".join(batch.data for batch in WRITTEN)
VALUES = [record[4] for batch in WRITTEN for record in batch.records]


@pytest.fixture
def small_reads(monkeypatch):
    """Reads of some hundred bytes, so that files change between them."""
    for module in (partition_log, records_as_arrow):
        monkeypatch.setattr(module, "LARGEST_READ", 300)
        monkeypatch.setattr(module, "SMALLEST_READ", 300)
    monkeypatch.setattr(log_file, "LARGEST_READ", 300)


@pytest.fixture
def root(tmp_path):
    """A log directory whose one segment has all of `WRITTEN`."""
    return Log((Segment(0, WRITTEN).indexed(interval=200),)).write(tmp_path / "logs")


def path_of(root):
    return root / "t-0" / "00000000000000000000.log"


def open_log(root):
    return kafkastore.open(root)["t-0"]


READERS = {
    "records": lambda log: (record.value for record in log.records()),
    "arrow": lambda log: (
        value
        for batch in log.to_arrow(["value"], batch_rows=5)
        for value in batch["value"].to_pylist()
    ),
    "batches": lambda log: (
        record.value for batch in log.batches() for record in batch.records()
    ),
}
with_every_reader = pytest.mark.parametrize("read", READERS.values(), ids=READERS)


@with_every_reader
def test_a_log_that_grows_byte_by_byte_shows_whole_batches_only(root, read):
    path, ends, end = path_of(root), [0], 0
    for batch in WRITTEN:
        end += len(batch.data)
        ends.append(end)
    for size in (*range(300), *range(len(LOG) - 100, len(LOG) + 1)):
        path.write_bytes(LOG[:size])
        whole = sum(size >= end for end in ends) - 1
        log = open_log(root)
        assert list(read(log)) == VALUES[: 3 * whole], size
        assert log.log_end_offset == 3 * whole
        found = log.offset_for_timestamp(3 * whole - 1)
        assert (found and found.offset) == (3 * whole - 1 if whole else None)


SLOW_WRITER = """
import random, sys, time
source, data = random.Random(1), sys.stdin.buffer.read()
with open(sys.argv[1], "ab", buffering=0) as file:
    while data:
        size = source.randrange(1, 400)
        file.write(data[:size])
        data = data[size:]
        time.sleep(0.001)
"""


def test_readers_beside_a_writer_see_ever_more_and_never_less(tmp_path):
    written = batches_of(300, b"live")
    values = [record[4] for batch in written for record in batch.records]
    root = Log((Segment(0, ()),)).write(tmp_path / "logs")
    writer = subprocess.Popen(
        [sys.executable, "-c", SLOW_WRITER, path_of(root)], stdin=subprocess.PIPE
    )
    with writer, writer.stdin as pipe:
        pipe.write(b"".join(batch.data for batch in written))
        pipe.close()
        seen = 0
        while seen < len(values):
            has_ended = writer.poll() is not None
            log = open_log(root)
            found = [record.value for record in log.records()]
            assert found == values[: len(found)]
            assert len(found) >= seen
            seen = len(found)
            table = log.to_arrow(["value"]).read_all()["value"].to_pylist()
            assert table == values[: len(table)]
            assert log.offset_for_timestamp(0) in (None, (0, 0, 0))
            assert seen == len(values) or not has_ended


@with_every_reader
def test_an_iterator_goes_on_while_the_log_grows(root, read):
    path = path_of(root)
    os.truncate(path, len(LOG) // 2)
    values = read(open_log(root))
    first = next(values)
    path.write_bytes(LOG)
    rest = [first, *values]
    assert rest == VALUES[: len(rest)]
    assert len(rest) >= len(VALUES) // 2 - 3


@with_every_reader
@pytest.mark.parametrize("left", [0, 1, 17, 150, 301, 600, 1000, len(LOG) - 1])
@pytest.mark.usefixtures("small_reads")
def test_a_log_that_is_cut_while_it_is_read_ends_earlier(root, read, left):
    values = read(open_log(root))
    found = [next(values)]
    os.truncate(path_of(root), left)
    found += values
    assert found == VALUES[: len(found)]


@pytest.mark.parametrize("reader", ["records", "arrow"])    # `batches` looks at no checksum
@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.usefixtures("small_reads")
def test_a_log_that_is_cut_and_written_anew_gives_records_of_either(root, reader, codec):
    """A follower truncates what its leader does not have, and fetches other batches instead."""
    path, source = path_of(root), random.Random(9)
    for _ in range(30):
        path.write_bytes(LOG)
        values = READERS[reader](open_log(root))
        found = [next(values) for _ in range(source.randrange(1, 30))]
        kept = source.randrange(40)
        other = batches_of(40, b"a new writer's", first_offset=3 * kept, per_batch=2, codec=codec)
        path.write_bytes(b"".join(batch.data for batch in (*WRITTEN[:kept], *other)))
        rest, error = until_error(values)
        assert error is None or (error.path == path and error.position is not None)
        known = {*VALUES, *(record[4] for batch in other for record in batch.records)}
        assert {*found, *rest} <= known


@with_every_reader
@pytest.mark.usefixtures("small_reads")
def test_a_deleted_segment_is_read_to_its_end_by_who_had_it_open(root, read):
    values = read(open_log(root))
    first = next(values)
    path_of(root).unlink()
    assert [first, *values] == VALUES


@with_every_reader
def test_a_segment_that_vanished_is_an_error_with_its_path(tmp_path, read):
    second = Segment(120, batches_of(5, b"old", first_offset=120))
    root = Log((Segment(0, WRITTEN), second)).write(tmp_path / "logs")
    log = open_log(root)
    assert len(log.segments) == 2
    second_path = root / "t-0" / "00000000000000000120.log"
    second_path.rename(second_path.with_suffix(".log.deleted"))
    found, error = until_error(read(log), (KafkaStoreError, OSError))
    assert str(second_path) in str(error)
    assert found == VALUES[: len(found)]
    assert list(read(open_log(root))) == VALUES


def test_a_rolled_segment_is_seen_by_the_next_opening(root):
    log = open_log(root)
    assert log.log_end_offset == 120
    Segment(120, batches_of(2, b"old", first_offset=120)).write(root / "t-0")
    assert len(list(log.records())) == 120
    assert len(list(open_log(root).records())) == 126


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_indexes_that_vanish_or_change_meanwhile_change_no_answer(root, suffix):
    path = path_of(root).with_suffix(suffix)
    data, source = path.read_bytes(), random.Random(3)
    for change in (path.unlink, lambda: path.write_bytes(b""), lambda: path.write_bytes(data * 2),
                   lambda: path.write_bytes(source.randbytes(len(data)))):
        path.write_bytes(data)
        log = open_log(root)
        assert log.segments
        change()
        assert [record.offset for record in log.records(60, 66)] == list(range(60, 66))
        assert log.offset_for_timestamp(77).offset == 77


def test_a_preallocated_log_that_fills_up_shows_whole_batches_only(root):
    path = path_of(root)
    with path.open("r+b") as file:
        file.truncate(0)
        file.truncate(100_000)
        for number, batch in enumerate(WRITTEN):
            assert [record.value for record in open_log(root).records()] == VALUES[: 3 * number]
            file.write(batch.data)
            file.flush()
    log = open_log(root)
    assert [record.value for record in log.records()] == VALUES
    assert log.segments[0].summary.valid_bytes == len(LOG)
    assert log.segments[0].summary.problem is None
