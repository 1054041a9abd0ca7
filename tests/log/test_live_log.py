"""Reading next to a broker: files grow, shrink and vanish; every record read is complete."""

import mmap
import os
import random
import subprocess
import sys
from types import SimpleNamespace

import pytest
from models.iteration import until_error
from models.live_partition import LivePartition
from models.log_directory import Log, Segment
from models.record_format import GZIP, Batch, Row
from models.record_strategies import in_a_row

import kafkastore
from kafkastore import CorruptionError
from kafkastore.errors import ChecksumError, NotAFileError, NotALogDirectoryError
from kafkastore.log import range_scan
from kafkastore.segment import log_file


def batches_of(count, word, *, per_batch=3, codec=0, first_offset=0):
    """Batches whose values contain the offset and the writer."""
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
    """Reads of a few hundred bytes, so that files change between them."""
    monkeypatch.setattr(range_scan, "LARGEST_READ", 300)
    monkeypatch.setattr(range_scan, "SMALLEST_READ", 300)
    monkeypatch.setattr(log_file, "LARGEST_READ", 300)


@pytest.fixture
def root(tmp_path):
    """A log directory with one segment that holds all of `WRITTEN`."""
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
def test_a_log_that_grows_byte_by_byte_shows_complete_batches_only(root, read):
    path, ends, end = path_of(root), [0], 0
    for batch in WRITTEN:
        end += len(batch.data)
        ends.append(end)
    for size in (*range(300), *range(len(LOG) - 100, len(LOG) + 1)):
        path.write_bytes(LOG[:size])
        complete_count = sum(size >= end for end in ends) - 1
        log = open_log(root)
        assert list(read(log)) == VALUES[: 3 * complete_count], size
        assert log.log_end_offset == 3 * complete_count
        found = log.offset_for_timestamp(3 * complete_count - 1)
        assert (found and found.offset) == (3 * complete_count - 1 if complete_count else None)


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


def test_readers_next_to_a_writer_see_ever_more_and_never_less(tmp_path):
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
def test_an_iterator_continues_while_the_log_grows(root, read):
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


@pytest.mark.parametrize("reader", ["records", "arrow"])    # `batches` verifies no checksum
@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.usefixtures("small_reads")
def test_a_log_that_is_cut_and_written_again_gives_records_of_either(root, reader, codec):
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
def test_a_segment_that_vanished_is_left_out_by_a_new_listing(tmp_path, read):
    second = Segment(120, batches_of(5, b"old", first_offset=120))
    root = Log((Segment(0, WRITTEN), second)).write(tmp_path / "logs")
    log = open_log(root)
    assert len(log.segments) == 2
    second_path = root / "t-0" / "00000000000000000120.log"
    second_path.rename(second_path.with_suffix(".log.deleted"))
    assert list(read(log)) == VALUES
    assert len(log.segments) == 1
    assert log.log_end_offset == 120


@with_every_reader
def test_a_topic_that_is_deleted_meanwhile_is_one_clear_error(tmp_path, read):
    second = Segment(120, batches_of(5, b"old", first_offset=120))
    root = Log((Segment(0, WRITTEN), second)).write(tmp_path / "logs")
    log = open_log(root)
    assert len(log.segments) == 2
    (root / "t-0").rename(root / "t-0.0123456789abcdef0123456789abcdef-delete")
    found, error = until_error(read(log))
    assert found == []
    assert isinstance(error, NotALogDirectoryError)
    assert str(root / "t-0") in str(error)


@with_every_reader
def test_a_link_to_nothing_is_one_clear_error(root, read):
    path = root / "t-0" / "00000000000000000120.log"
    path.symlink_to("nowhere")
    found, error = until_error(read(open_log(root)))
    assert found == VALUES
    assert isinstance(error, NotAFileError)
    assert (error.path, error.kind) == (path, "a link to nothing")


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


def test_a_preallocated_log_that_fills_up_shows_complete_batches_only(root):
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
    assert log.segments[0].summary.error is None


def read_offsets(log, way):
    """[(offset, value or None)] of one way to read."""
    if way == "records":
        return [(record.offset, record.value) for record in log.records()]
    if way == "arrow":
        return [
            (row["offset"], row["value"])
            for batch in log.to_arrow(["offset", "value"], batch_rows=7)
            for row in batch.to_pylist()
        ]
    if way == "records from an offset":
        start = (log.log_start_offset + log.log_end_offset) // 2
        found = [(record.offset, record.value) for record in log.records(start)]
        assert all(offset >= start for offset, _ in found)
        return found
    if way == "a time":
        target = (log.log_start_offset + log.log_end_offset) // 2
        found = log.offset_for_timestamp(target)
        assert found is None or found.timestamp == found.offset >= target
        return []
    if way == "committed":
        return [(record.offset, record.value) for record in log.records(isolation="read_committed")]
    bounds = log.explain_bounds()
    assert bounds.log_start_offset.offset <= bounds.log_end_offset.offset
    return []


WAYS = ("records", "arrow", "records from an offset", "a time", "committed", "bounds")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("small_reads")
def test_readers_next_to_a_broker_that_alters_everything_get_true_records(tmp_path, seed):
    directory = tmp_path / "logs" / "t-0"
    directory.mkdir(parents=True)
    (tmp_path / "logs" / "meta.properties").write_text("version=0\n")
    partition = LivePartition(directory, random.Random(seed))
    writer = partition.altering(400)
    writer.start()
    attempts, refused, kept_open = 0, 0, open_log(tmp_path / "logs")
    while writer.is_alive() or not attempts:
        for what in WAYS:
            kept_open.refresh()
            for log in (open_log(tmp_path / "logs"), kept_open):
                attempts += 1
                try:
                    found = read_offsets(log, what)
                except CorruptionError as error:
                    # A batch that was overwritten while it was read.
                    assert error.path.parent == directory, what
                    assert error.position is not None
                    refused += 1
                    continue
                offsets = [offset for offset, _ in found]
                assert offsets == sorted(set(offsets)), what
                for offset, value in found:
                    assert value in partition.written[offset], what
    writer.join()
    assert refused < attempts / 2
    log = open_log(tmp_path / "logs")
    wanted = [
        record[0]
        for _, batches in partition.segments
        for each in batches
        for record in each.records
    ]
    assert [record.offset for record in log.records()] == wanted
    assert log.log_end_offset == max(partition.next_offset, log.log_start_offset)


LOG_WRITER = """
import random, sys, time
from types import SimpleNamespace
from kafkastore.writing.log_dir_writer import LogDirWriter

source = random.Random(int(sys.argv[2]))
with LogDirWriter(sys.argv[1]) as log_dir:
    config = {"segment.bytes": 2000, "index.interval.bytes": 200}
    log = log_dir.writer("t", 0, config)
    print(flush=True)
    for step in range(400):
        action = source.randrange(20)
        start, end = log.log_start_offset, log.log_end_offset
        if action == 0:
            log.truncate_to(source.randrange(max(start, end - 30), end + 1))
        elif action == 1:
            log.delete_records(source.randrange(start, end + 1) if end > start + 100 else start)
        elif action == 2:
            log.roll()
        elif action == 3:
            log.flush()
        else:
            log.append_records(
                SimpleNamespace(timestamp=offset, key=b"k", value=b"%d of %d" % (offset, step),
                                headers=())
                for offset in range(end, end + source.randrange(1, 6))
            )
        time.sleep(0.001)
    print(log.log_start_offset, log.log_end_offset)
"""


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.usefixtures("small_reads")
def test_readers_next_to_a_log_writer_get_true_records(tmp_path, seed):
    """In another process, whose writes fall between any two instructions of the reader."""
    writer = subprocess.Popen(
        [sys.executable, "-c", LOG_WRITER, tmp_path / "logs", str(seed)], stdout=subprocess.PIPE
    )
    attempts = refused = 0
    with writer:
        assert writer.stdout.readline()
        while writer.poll() is None or not attempts:
            for what in WAYS:
                attempts += 1
                try:
                    found = read_offsets(open_log(tmp_path / "logs"), what)
                except CorruptionError as error:
                    assert error.path.is_relative_to(tmp_path)
                    assert error.position is not None
                    refused += 1
                    continue
                offsets = [offset for offset, _ in found]
                assert offsets == sorted(set(offsets)), what
                for offset, value in found:
                    assert value.startswith(b"%d of " % offset), what
        start, end = map(int, writer.stdout.read().split())
    assert refused < attempts / 2
    log = open_log(tmp_path / "logs")
    assert log.log_start_offset == start
    assert start <= log.log_end_offset <= end       # cut within a batch, files end before the log
    left = [record.offset for record in log.records()]
    assert set(left) <= set(range(start, end))      # cut within a batch, a log lacks all of it
    assert len(left) > (end - start) / 2


@with_every_reader
def test_nothing_is_mapped_unless_requested(root, read, monkeypatch):
    """A mapping of a file that shrinks kills its process."""
    def refuse(*arguments, **options):
        raise AssertionError(arguments)

    monkeypatch.setattr(mmap, "mmap", refuse)
    log = open_log(root)
    assert list(read(log)) == VALUES
    assert log.offset_for_timestamp(77, rules="2.4").offset == 77
    assert log.explain_bounds().last_stable_offset.offset == 120


@pytest.mark.parametrize("read", [
    lambda log: [each.offset for each in log.records()],
    lambda log: log.to_arrow(["offset"]).read_all()["offset"].to_pylist(),
    lambda log: list(range(log.end_offset())),
])
def test_a_batch_that_is_being_written_into_preallocated_space_is_not_damage(
    tmp_path, read, monkeypatch
):
    batches = in_a_row([Batch((Row(0, slot, b"k", b"v" * 100),)) for slot in range(3)])
    sound = Segment(0, tuple(batches[:2])).log
    root = Log((Segment(0, (), tail=sound + batches[2].data[:90] + bytes(9000)),)).write(tmp_path)
    path = root / "t-0" / f"{0:020}.log"
    # A broker is writing: the modification time is now.
    monkeypatch.setattr(log_file, "clock", lambda: path.stat().st_mtime_ns // 1_000_000)
    looks = []

    def complete_at_the_second_look(_):
        looks.append(path)
        if len(looks) == 2:
            with path.open("r+b") as file:
                file.seek(len(sound))
                file.write(batches[2].data)

    monkeypatch.setattr(log_file, "time", SimpleNamespace(sleep=complete_at_the_second_look))
    assert read(kafkastore.open(root)["t", 0]) in ([0, 1], [0, 1, 2])
    assert len(looks) == 2
    assert read(kafkastore.open(root)["t", 0]) == [0, 1, 2]
    with path.open("r+b") as file:  # if this persists, it is damage
        file.seek(len(sound) + 90)
        file.write(bytes(100))
    with pytest.raises(ChecksumError):
        read(kafkastore.open(root)["t", 0])
    assert len(looks) > 2
