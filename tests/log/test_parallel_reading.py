"""Several threads read a log as one does: the same rows, errors and skipped bytes, in order."""

import gc
import os
import random
import threading
import time

import pyarrow as pa
import pytest
from models.chance_logs import TOPIC, write_chance_logs
from models.harmed_logs import harm
from models.iteration import until_error
from models.log_directory import Log, Segment
from models.record_format import GZIP, Batch, Row, marker
from models.seed import SEED, examples

import kafkastore
from kafkastore import CorruptionError, KafkaStoreError
from kafkastore.log import range_scan, record_reading, records_as_arrow
from kafkastore.log.parallel import log_pieces, piece_reading
from kafkastore.segment import log_file

PARTITIONS = 40


def use_small_pieces(monkeypatch, piece_bytes=300):
    """Logs of a few kilobytes are read in pieces."""
    monkeypatch.setattr(piece_reading, "SMALL_LOG_BYTES", 1)
    monkeypatch.setattr(piece_reading, "_SMALLEST_PIECE", piece_bytes)
    monkeypatch.setattr(piece_reading, "_FIRST_PIECE", piece_bytes)
    monkeypatch.setattr(piece_reading, "_LARGEST_PIECE", piece_bytes)
    monkeypatch.setattr(record_reading, "MANY_ROWS", 1)
    monkeypatch.setattr(range_scan, "SMALL_RANGE", 0)


@pytest.fixture
def small_pieces(monkeypatch):
    use_small_pieces(monkeypatch)


def rows_of(batches):
    """The rows before an error, and the error or None."""
    found, error = until_error(batches)
    return [row for batch in found for row in dated_by_number(batch).to_pylist()], error


def dated_by_number(batch):
    """Timestamps as microseconds: those of year 300,000 are no `datetime`."""
    if "timestamp" not in batch.schema.names:
        return batch
    number = batch.schema.names.index("timestamp")
    return batch.set_column(number, "timestamp", batch.column(number).cast("int64"))


def described(error):
    return None if error is None else (type(error), str(error))


def read(log, threads, **options):
    """All that a caller sees: rows, error, skipped bytes."""
    skipped = []
    log.refresh()
    try:
        batches = log.to_arrow(threads=threads, skipped=skipped, **options)
    except KafkaStoreError as error:
        return [], described(error), skipped
    rows, error = rows_of(batches)
    return rows, described(error), skipped


def options_of(chance, log):
    """Options of `to_arrow`, random, within the log and outside."""
    bases = [segment.base_offset for segment in log.segments]

    def offset():
        return max(chance.choice(bases) + chance.randrange(-3, 30), 0)

    options = {
        "on_corrupt": chance.choice(("raise", "skip", "stop")),
        "isolation": chance.choice(("read_uncommitted", "read_committed")),
        "include_control": chance.random() < 0.5,
        "verify": chance.random() < 0.8,
        "binary_view": chance.random() < 0.2,
        "include_headers": chance.random() < 0.5,
        "batch_rows": chance.choice((1, 3, 1000)),
        "batch_bytes": chance.choice((10, 10**6)),
        "indexes": chance.choice(("check", "trust")),
    }
    if chance.random() < 0.4:
        options["start_offset"] = offset()
    if chance.random() < 0.4:
        options["end_offset"] = offset()
    if chance.random() < 0.2:
        options["known_end_offset"] = offset()
    if chance.random() < 0.2:
        options["start_timestamp"] = chance.choice((0, 30, 1_500_000_000_020))
    if chance.random() < 0.2:
        options["limit"] = chance.randrange(0, 40)
    return options


def test_threads_read_random_logs_as_one_does(tmp_path, monkeypatch, threads_left):
    write_chance_logs(tmp_path / "logs", SEED, PARTITIONS, is_clean=False)
    chance = random.Random(SEED)
    store = kafkastore.open(tmp_path / "logs")
    for number in range(PARTITIONS):
        log = store[TOPIC, number]
        harm(chance, log.path)
        for _ in range(examples(48)):
            use_small_pieces(monkeypatch, chance.choice((1, 150, 700, 5000)))
            options = options_of(chance, log)
            expected = read(log, 1, **options)
            for threads in (2, chance.choice((3, 4))):
                found = read(log, threads, **options)
                assert found == expected, (number, threads, options)
    assert threads_left("kafkastore-read") == []


def test_threads_read_every_golden_case_as_one_does(golden_case, small_pieces):
    for log in kafkastore.open(golden_case.logs):
        options = {"include_headers": True, "on_corrupt": "skip"}
        assert read(log, 3, **options) == read(log, 1, **options)


def batches_of(count, first=0, codec=0, value=b"value"):
    return tuple(
        Batch((Row(offset, 1000 + offset, b"k", b"%s %d" % (value, offset)),), codec=codec)
        for offset in range(first, first + count)
    )


def written(tmp_path, *segments, interval=200):
    indexed = (each.indexed(interval=interval) for each in segments)
    return kafkastore.open(Log(tuple(indexed)).write(tmp_path / "logs"))["t-0"]


def counting_starts(monkeypatch):
    """Return a list that receives each piece that threads decoded and that counted."""
    counted = []
    take_decoded = piece_reading.LogReading._take_decoded

    def counting(self, piece, decoder):
        left = yield from take_decoded(self, piece, decoder)
        if left is None or left.position > piece.start.position:
            counted.append(piece)
        return left

    monkeypatch.setattr(piece_reading.LogReading, "_take_decoded", counting)
    return counted


@pytest.mark.parametrize("has_index", [True, False])
def test_one_segment_is_divided_with_or_without_its_index(
    tmp_path, small_pieces, monkeypatch, has_index
):
    log = written(tmp_path, Segment(0, batches_of(200)))
    if not has_index:
        log.segments[0].offset_index_path.unlink()
    counted = counting_starts(monkeypatch)
    rows, error, skipped = read(log, 2)
    assert [row["offset"] for row in rows] == list(range(200))
    assert (error, skipped) == (None, [])
    assert len(counted) > 20


@pytest.mark.parametrize("magic", [0, 1])
def test_compressed_messages_of_old_formats_are_decoded_by_threads(
    tmp_path, small_pieces, monkeypatch, magic
):
    wrappers = tuple(
        Batch(
            tuple(Row(3 * number + row, 1, None, b"value %d" % number) for row in range(3)),
            magic=magic,
            codec=GZIP,
        )
        for number in range(200)
    )
    counted = counting_starts(monkeypatch)
    rows, error, skipped = read(written(tmp_path, Segment(0, wrappers)), 2)
    assert [row["offset"] for row in rows] == list(range(600))
    assert (error, skipped) == (None, [])
    assert len(counted) > 20


def test_threads_leave_out_the_batches_of_aborted_transactions(
    tmp_path, small_pieces, monkeypatch
):
    batches, kept = [], []
    for number in range(600):
        producer, is_commit = number % 3, number % 2 == 0
        row = Row(2 * number, 1, None, b"value")
        batches.append(
            Batch((row,), producer_id=producer, producer_epoch=0, is_transactional=True)
        )
        batches.append(marker(2 * number + 1, 1, is_commit=is_commit, producer_id=producer))
        kept += [2 * number] * is_commit
    counted = counting_starts(monkeypatch)
    rows, error, skipped = read(
        written(tmp_path, Segment(0, tuple(batches))), 2, isolation="read_committed"
    )
    assert [row["offset"] for row in rows] == kept
    assert (error, skipped) == (None, [])
    assert len(counted) > 20


@pytest.mark.parametrize("threads", [1, 2])
def test_whole_batches_after_the_last_stable_offset_are_no_torn_end(
    tmp_path, small_pieces, threads
):
    """The caller knows where the log ends, and reads only what is decided."""
    open_one = Batch((Row(50, 1),), producer_id=7, producer_epoch=0, is_transactional=True)
    log = written(tmp_path, Segment(0, (*batches_of(50), open_one, *batches_of(20, first=51))))
    rows, error, skipped = read(
        log, threads, isolation="read_committed", known_end_offset=log.end_offset()
    )
    assert [row["offset"] for row in rows] == list(range(50))
    assert (error, skipped) == (None, [])


def test_an_index_that_points_into_records_changes_nothing(tmp_path, small_pieces):
    """Every value holds a batch that looks like one of the log, and the index points at it."""
    inner = Batch((Row(500, 5, b"no", b"no"),)).data
    rows = [Row(offset, 5, b"k", inner * 3) for offset in range(60)]
    log = written(tmp_path, Segment(0, tuple(Batch((row,)) for row in rows)))
    data = log.segments[0].log_path.read_bytes()
    entries, at = [], -1
    while (at := data.find(inner, at + 1)) >= 0:
        entries.append(len(entries).to_bytes(4, "big") + at.to_bytes(4, "big"))
    log.segments[0].offset_index_path.write_bytes(b"".join(entries))
    found, error, _ = read(log, 3)
    assert [row["offset"] for row in found] == list(range(60))
    assert error is None


def test_after_a_segment_with_a_wrong_index_threads_read_the_next_one(
    tmp_path, small_pieces, monkeypatch
):
    log = written(tmp_path, *(Segment(base, batches_of(60, base)) for base in (0, 60, 120)))
    index = log.segments[0].offset_index_path
    data = bytearray(index.read_bytes())
    data[7::8] = bytes((each ^ 1) for each in data[7::8])
    index.write_bytes(data)
    counted = counting_starts(monkeypatch)
    assert [row["offset"] for row in read(log, 2)[0]] == list(range(180))
    assert {piece.segment.base_offset for piece in counted} >= {60, 120}


def in_disorder(path):
    data = path.read_bytes()
    entries = [data[at : at + 8] for at in range(0, len(data), 8)]
    random.Random(SEED).shuffle(entries)
    path.write_bytes(b"".join(entries))


def a_directory(path):
    path.unlink()
    path.mkdir()


def without_rights(path):
    path.chmod(0)


def too_large(path):
    os.truncate(path, 1 << 30)
    with path.open("r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(b"\1" * 8)


@pytest.mark.parametrize("harm_index", [in_disorder, a_directory, without_rights, too_large])
def test_an_index_that_is_no_help_changes_nothing(tmp_path, small_pieces, harm_index):
    log = written(tmp_path, Segment(0, batches_of(200)), Segment(200, batches_of(200, 200)))
    harm_index(log.segments[0].offset_index_path)
    rows, error, skipped = read(log, 3)
    assert [row["offset"] for row in rows] == list(range(400))
    assert (error, skipped) == (None, [])


def test_after_skipped_bytes_threads_read_on(tmp_path, small_pieces, monkeypatch):
    log = written(tmp_path, Segment(0, batches_of(300)))
    path = log.segments[0].log_path
    data = bytearray(path.read_bytes())
    data[80] ^= 1  # in the first or second batch
    path.write_bytes(data)
    counted = counting_starts(monkeypatch)
    rows, _, skipped = read(log, 2, on_corrupt="skip")
    assert len(rows) == 299
    assert len(skipped) == 1
    assert len(counted) > 20


def test_a_small_log_and_a_small_limit_start_no_thread(tmp_path, monkeypatch):
    log = written(tmp_path, Segment(0, batches_of(100)))
    monkeypatch.setattr(piece_reading, "PieceDecoder", None)
    assert log.to_arrow(threads=4).read_all().num_rows == 100
    monkeypatch.setattr(piece_reading, "SMALL_LOG_BYTES", 1)
    assert log.to_arrow(threads=4, limit=50).read_all().num_rows == 50
    with pytest.raises(TypeError):
        log.to_arrow(threads=4).read_all()


def test_a_dropped_reader_stops_its_threads_without_waiting(
    tmp_path, small_pieces, monkeypatch, threads_left
):
    log = written(tmp_path, Segment(0, batches_of(400)))
    counted = counting_starts(monkeypatch)
    reader = log.to_arrow(threads=2)
    reader.read_next_batch()
    del reader
    gc.collect()
    deadline = time.monotonic() + 600
    while threads_left("kafkastore-read") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads_left("kafkastore-read") == []
    assert len(counted) < 20


def test_at_the_end_no_thread_is_left_and_no_file_is_open(tmp_path, small_pieces, threads_left):
    log = written(tmp_path, Segment(0, batches_of(100)), Segment(100, batches_of(100, 100)))
    reader = log.to_arrow(threads=4)
    reader.read_all()
    assert threads_left("kafkastore-read") == []


def test_a_growing_log_is_read_up_to_the_size_at_the_beginning_of_its_segment(
    tmp_path, small_pieces
):
    log = written(tmp_path, Segment(0, batches_of(100)))
    path = log.segments[0].log_path
    stop, size = threading.Event(), 100

    def write():
        nonlocal size
        with path.open("ab") as file:
            while not stop.is_set() and size < 1500:
                file.write(b"".join(batch.data for batch in batches_of(3, size)))
                file.flush()
                size += 3

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(6):
            before = size
            log.refresh()
            offsets = [row["offset"] for batch in log.to_arrow(threads=3)
                       for row in batch.to_pylist()]  # fmt: skip
            assert offsets == list(range(len(offsets)))
            assert before <= len(offsets) <= size + 3
    finally:
        stop.set()
        writer.join()


def test_what_a_compressed_log_becomes_does_not_fill_the_memory(tmp_path, monkeypatch):
    """A piece pauses when its rows are large, and goes on when they are taken."""
    log = written(tmp_path, Segment(0, batches_of(60, codec=GZIP, value=b"x" * 200_000)))
    use_small_pieces(monkeypatch, piece_bytes=10**6)
    before = pa.total_allocated_bytes()
    rows = 0
    for batch in log.to_arrow(threads=2):
        rows += batch.num_rows
        assert batch.nbytes < 5 * 10**6
    assert rows == 60
    assert pa.total_allocated_bytes() <= before + 10**6


class Gone(Exception):
    """An error of no kind that readers know."""


def test_an_unknown_error_is_raised_and_ends_the_threads(
    tmp_path, small_pieces, monkeypatch, threads_left
):
    log = written(tmp_path, Segment(0, batches_of(100)))

    def fail(*_):
        raise Gone

    monkeypatch.setattr(piece_reading.LogReading, "_take_sized", fail)
    with pytest.raises(Gone):
        log.to_arrow(threads=2).read_all()
    assert threads_left("kafkastore-read") == []


def read_many(logs, **options):
    return record_reading.read_many(logs, records_as_arrow.ArrowOptions(**options))


def test_several_logs_are_read_in_order_up_to_the_first_error(tmp_path, small_pieces):
    roots = [
        Log((Segment(0, batches_of(50, value=b"%d" % number)).indexed(interval=200),))
        .write(tmp_path / str(number))
        for number in range(4)
    ]  # fmt: skip
    logs = [kafkastore.open(root)["t-0"] for root in roots]
    expected = [row for log in logs for row in read(log, 1)[0]]
    for threads in (1, 3):
        reader = read_many(logs, threads=threads)
        assert rows_of(reader) == (expected, None)
        limited = read_many(logs, columns=["offset"], limit=77, threads=threads)
        assert len(rows_of(limited)[0]) == 77
    path = logs[2].segments[0].log_path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    for threads in (1, 3):
        rows, error = rows_of(read_many(logs, threads=threads))
        assert rows == expected[: len(rows)]
        assert 100 < len(rows) < 150
        assert isinstance(error, CorruptionError)
        assert error.path == path


def test_a_log_that_cannot_be_opened_is_an_error_after_the_rows_before_it(tmp_path, small_pieces):
    log = written(tmp_path, Segment(0, batches_of(50)))
    second = KafkaStoreError("the second")

    def logs():
        yield log
        raise second

    for threads in (1, 2):
        rows, error = rows_of(read_many(logs(), threads=threads))
        assert len(rows) == 50
        assert error is second


def test_pieces_are_cut_only_at_entries_that_the_file_holds(tmp_path):
    log = written(tmp_path, Segment(0, batches_of(50)))
    pieces = list(log_pieces.cut_log(log.segments, 0, 2**62, lambda: 500))
    starts = [piece.start.position for piece in pieces]
    assert starts == sorted(set(starts))
    assert [piece.end_position for piece in pieces] == [*starts[1:], None]
    with log_file.LogFile(log.segments[0].log_path) as file:
        assert all(file.header_at(start) is not None for start in starts)
