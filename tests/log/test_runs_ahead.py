"""Several threads scan a segment as one does: the same batches, checksums and errors."""

import random
import threading

import numpy as np
import pytest
from models.chance_logs import TOPIC, write_chance_logs
from models.harmed_logs import harm
from models.iteration import until_error
from models.log_directory import Log, Segment
from models.record_format import GZIP, Batch, Row
from models.record_strategies import in_a_row
from models.seed import SEED, examples

import kafkastore
from kafkastore.checks.findings import FindingKind
from kafkastore.checks.partition_check import check_partition
from kafkastore.formats.records.batch_header import BATCH_HEADER
from kafkastore.log.parallel import runs_ahead
from kafkastore.segment.decoding.header_scan import scan_file
from kafkastore.segment.log_file import LogFile

PARTITIONS = 40


def use_pieces_of(monkeypatch, piece_bytes, *, read=120, headers=3):
    monkeypatch.setattr(runs_ahead, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(runs_ahead, "_LARGEST_PIECE_BYTES", 4 * piece_bytes)
    monkeypatch.setattr(runs_ahead, "_READ", read)
    monkeypatch.setattr(runs_ahead, "HEADERS_A_SCAN", headers)


def bytes_of(run):
    return b"".join(run.batch(index) for index in range(len(run.headers)))


def scanned(segment, threads):
    """The headers and the bytes of all batches before an error, and the error."""
    with segment.open_as_broker() as file:
        runs = runs_ahead.runs_ahead(segment, file, 0, threads)
        found, error = until_error((run.headers.tobytes(), bytes_of(run)) for run in runs)
    headers, data = (b"".join(parts) for parts in zip(*found, strict=True)) if found else (b"", b"")
    return headers, data, None if error is None else (type(error), str(error))


def wait_for_threads():
    for thread in threading.enumerate():
        if thread.name.startswith("kafkastore-scan"):
            thread.join(20)
            assert not thread.is_alive()


def test_threads_scan_and_verify_random_logs_as_one_does(tmp_path, monkeypatch):
    write_chance_logs(tmp_path / "logs", SEED, PARTITIONS, is_clean=False)
    chance = random.Random(SEED)
    store = kafkastore.open(tmp_path / "logs")
    for number in range(PARTITIONS):
        log = store[TOPIC, number]
        for _ in range(examples(8)):
            use_pieces_of(
                monkeypatch,
                chance.choice((1, 150, 700)),
                read=chance.choice((12, 100, 1000)),
                headers=chance.choice((1, 4, 100)),
            )
            for segment in log.segments:
                expected_runs = scanned(segment, 1)
                for threads in (2, 5):
                    assert scanned(segment, threads) == expected_runs, (number, segment)
            expected = check_partition(log)
            for threads in (2, 5):
                found = check_partition(log, threads=threads)
                assert found.findings == expected.findings
                assert found.failures == expected.failures == []
            harm(chance, log.path)
            log.refresh()
    wait_for_threads()


def test_threads_verify_every_golden_case_as_one_does(golden_case, monkeypatch):
    use_pieces_of(monkeypatch, 300)
    for log in kafkastore.open(golden_case.logs):
        expected = check_partition(log).findings
        for threads in (2, 5):
            assert check_partition(log, threads=threads).findings == expected


def segment_of(tmp_path, count):
    batches = tuple(Batch((Row(offset, 1000 + offset, b"k", b"value"),)) for offset in range(count))
    logs = Log((Segment(0, batches).indexed(interval=200),)).write(tmp_path / "logs")
    return kafkastore.open(logs)["t-0"].segments[0]


def test_the_pieces_are_scanned_by_threads_and_by_their_owner(tmp_path, monkeypatch):
    use_pieces_of(monkeypatch, 300)
    segment = segment_of(tmp_path, 300)
    scanners, both_scan = set(), threading.Barrier(2)
    scan = runs_ahead._scan

    def noting(*arguments):
        name = threading.current_thread().name
        if name not in scanners:
            scanners.add(name)
            both_scan.wait(60)
        return scan(*arguments)

    monkeypatch.setattr(runs_ahead, "_scan", noting)
    scanned(segment, 2)
    scanners.remove(threading.current_thread().name)
    (thread,) = scanners
    assert thread.startswith("kafkastore-scan")


@pytest.mark.parametrize("slot", range(6))
@pytest.mark.parametrize("piece_bytes", [1, 300])
def test_threads_find_wrong_wrappers_as_one_does(tmp_path, monkeypatch, piece_bytes, slot):
    use_pieces_of(monkeypatch, piece_bytes, headers=20)
    rows = tuple(Row(each, 100 + each) for each in range(6))
    batches = in_a_row([Batch(rows, magic=1, codec=GZIP) for _ in range(6)])
    logs = Log((Segment(0, tuple(batches)).indexed(interval=1),)).write(tmp_path / "logs")
    path = logs / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[sum(len(each.data) for each in batches[:slot]) + 7] -= 1
    path.write_bytes(data)
    log = kafkastore.open(logs)["t-0"]
    expected = check_partition(log).findings
    assert FindingKind.OUT_OF_ORDER_OFFSETS in {each.kind for each in expected}
    for threads in (2, 5):
        assert check_partition(log, threads=threads).findings == expected


@pytest.mark.parametrize(("length", "wanted"), [(1 << 30, 0), (500, 512)])
def test_only_a_batch_that_fits_its_piece_gets_more_memory(tmp_path, length, wanted):
    path = tmp_path / "log"
    path.write_bytes(bytes(8) + length.to_bytes(4, "big") + b"\0\0\0\0\2" + bytes(1000))
    headers = np.empty(4, BATCH_HEADER)
    with LogFile(path) as file:
        found = scan_file(file.descriptor, 0, file.size, memoryview(bytearray(100)), headers)
    assert found == (0, 0, wanted)


def test_one_thread_scans_no_pieces(tmp_path, monkeypatch):
    use_pieces_of(monkeypatch, 300)
    monkeypatch.delattr(runs_ahead, "_scan")
    assert scanned(segment_of(tmp_path, 300), 1)[0]


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
    wait_for_threads()
