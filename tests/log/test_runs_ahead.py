"""Several threads scan a segment as one does: the same batches, checksums and errors."""

import random
import threading

import pytest
from models.chance_logs import TOPIC, write_chance_logs
from models.harmed_logs import harm
from models.iteration import until_error
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.seed import SEED, examples

import kafkastore
from kafkastore.checks.partition_check import check_partition
from kafkastore.log.parallel import runs_ahead

PARTITIONS = 40


def use_pieces_of(monkeypatch, piece_bytes):
    monkeypatch.setattr(runs_ahead, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(runs_ahead, "_LARGEST_PIECE_BYTES", 4 * piece_bytes)


def scanned(segment, threads):
    """The headers and the bytes of all batches before an error, and the error."""
    with segment.open_as_broker() as file:
        runs = runs_ahead.runs_ahead(segment, file, 0, threads)
        found, error = until_error((run.headers.tobytes(), bytes(run.data)) for run in runs)
    headers, data = (b"".join(parts) for parts in zip(*found, strict=True)) if found else (b"", b"")
    return headers, data, None if error is None else (type(error), str(error))


def threads_left():
    return [each for each in threading.enumerate() if each.name.startswith("kafkastore-scan")]


def test_threads_scan_and_verify_random_logs_as_one_does(tmp_path, monkeypatch):
    write_chance_logs(tmp_path / "logs", SEED, PARTITIONS, is_clean=False)
    chance = random.Random(SEED)
    store = kafkastore.open(tmp_path / "logs")
    for number in range(PARTITIONS):
        log = store[TOPIC, number]
        for _ in range(examples(8)):
            use_pieces_of(monkeypatch, chance.choice((1, 150, 700)))
            for segment in log.segments:
                assert scanned(segment, 3) == scanned(segment, 1), (number, segment)
            expected = check_partition(log)
            found = check_partition(log, threads=chance.choice((2, 4)))
            assert found.findings == expected.findings
            assert found.failures == expected.failures == []
            harm(chance, log.path)
            log.refresh()
    assert threads_left() == []


def test_threads_verify_every_golden_case_as_one_does(golden_case, monkeypatch):
    use_pieces_of(monkeypatch, 300)
    for log in kafkastore.open(golden_case.logs):
        assert check_partition(log, threads=3).findings == check_partition(log).findings


def segment_of(tmp_path, count):
    batches = tuple(Batch((Row(offset, 1000 + offset, b"k", b"value"),)) for offset in range(count))
    logs = Log((Segment(0, batches).indexed(interval=200),)).write(tmp_path / "logs")
    return kafkastore.open(logs)["t-0"].segments[0]


def test_the_pieces_are_scanned_by_threads(tmp_path, monkeypatch):
    use_pieces_of(monkeypatch, 300)
    segment = segment_of(tmp_path, 300)
    scanners = set()
    scan = runs_ahead._scan

    def noting(*arguments):
        scanners.add(threading.current_thread().name)
        return scan(*arguments)

    monkeypatch.setattr(runs_ahead, "_scan", noting)
    scanned(segment, 2)
    assert scanners
    assert all(name.startswith("kafkastore-scan") for name in scanners)
    scanners.clear()
    scanned(segment, 1)
    assert scanners == set()


def test_an_index_that_points_into_a_batch_leaves_the_rest_to_one_thread(tmp_path, monkeypatch):
    use_pieces_of(monkeypatch, 300)
    segment = segment_of(tmp_path, 300)
    expected = scanned(segment, 1)
    data = bytearray(segment.offset_index_path.read_bytes())
    data[8 * 20 + 7] += 1
    segment.offset_index_path.write_bytes(data)
    again = kafkastore.open(tmp_path / "logs")["t-0"].segments[0]
    assert scanned(again, 2) == expected


@pytest.mark.parametrize("runs_taken", [0, 1, 5])
def test_a_scan_that_is_dropped_stops_its_threads(tmp_path, monkeypatch, runs_taken):
    use_pieces_of(monkeypatch, 300)
    segment = segment_of(tmp_path, 500)
    with segment.open_as_broker() as file:
        runs = runs_ahead.runs_ahead(segment, file, 0, 3)
        for _ in range(runs_taken):
            next(runs)
        del runs
    for thread in threads_left():
        thread.join(20)
        assert not thread.is_alive()
