"""Any byte of any file may be wrong: readers return true records, or one kind of error."""

import random
import tempfile
import time
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.chance_logs import TOPIC, write_chance_logs
from models.iteration import until_error
from models.log_directory import Log, Segment
from models.record_format import GZIP, ZSTD, Batch, Row, marker
from models.record_strategies import bounded, logs
from models.seed import SEED, examples
from models.written_log import UnsyncedFileSystem

import kafkastore
from kafkastore import CorruptBatchError, KafkaStoreError, LogDirWriter

from .test_parallel_reading import use_small_pieces
from .written_logs import new_record

PARTITIONS = 12



def damage(path, source):
    """Flip bits, cut, insert or zero some bytes of a file."""
    data = bytearray(path.read_bytes())
    for _ in range(source.randrange(1, 4)):
        at = source.randrange(len(data) + 1)
        kind = source.randrange(5)
        if kind == 0:
            del data[at:]
        elif kind == 1:
            data[at:at] = source.randbytes(source.randrange(1, 40))
        elif kind == 2:
            data[at : at + 30] = bytes(len(data[at : at + 30]))
        elif at < len(data):
            data[at] ^= 1 << source.randrange(8)
    path.write_bytes(data)


def all_readers(root):
    """All reads of a store, as functions that return values or raise our errors."""
    log = kafkastore.open(root)["t-0"]
    yield lambda: log.log_start_offset
    yield lambda: log.log_end_offset
    yield lambda: log.leader_epochs
    for rules in ("correct", "2.4", "0.10.1", "kip-33"):
        for target in (-1, 0, 7, 40, 10**6, 2**63 - 1):
            yield lambda rules=rules, target=target: log.offset_for_timestamp(target, rules)
    yield lambda: [batch.last_offset for batch in log.batches(2, 30)]
    yield lambda: log.to_arrow(include_headers=True, verify=False).read_all()
    yield lambda: list(log.records(verify=False, include_control=True))
    for segment in log.segments:
        yield lambda segment=segment: segment.summary
        yield lambda segment=segment: segment.rebuilt_indexes(60)
        yield lambda segment=segment: segment.translate_offset(5)
        yield lambda segment=segment: segment.largest_record_timestamp()


@pytest.mark.filterwarnings("ignore::kafkastore.UnknownLogStartWarning")
@bounded(150)
@given(logs(has_headers=True), st.randoms(use_true_random=False))
def test_every_question_has_an_answer_or_an_error_of_ours(log, source):
    with tempfile.TemporaryDirectory() as directory:
        root = log.write(Path(directory) / "logs")
        files = [path for path in sorted(root.rglob("*")) if path.is_file()]
        for path in source.sample(files, source.randrange(1, len(files) + 1)):
            damage(path, source)
        for query in all_readers(root):
            try:
                query()
            except KafkaStoreError as error:
                assert "\n" not in str(error)


@bounded(150)
@given(logs(), st.randoms(use_true_random=False))
def test_records_that_are_read_were_written(log, source):
    written = {(record[3], record[4]) for record in log.records(include_control=True)}
    written |= {(record[3], record[4]) for batch in log.batches for record in batch.records}
    with tempfile.TemporaryDirectory() as directory:
        root = log.write(Path(directory) / "logs")
        for path in sorted((root / "t-0").glob("*.log")):
            damage(path, source)
        (root / "log-start-offset-checkpoint").unlink(missing_ok=True)
        (found,) = kafkastore.open(root)
        records, error = until_error(found.records(include_control=True))
        assert {(record.key, record.value) for record in records} <= written
        tables, arrow_error = until_error(found.to_arrow(["key", "value"], include_control=True))
        rows = {
            (row["key"], row["value"]) for table in tables for row in table.to_pylist()
        }
        assert rows <= written
        assert (error is None) == (arrow_error is None)


def offset_near(log, source):
    """None, or an offset in a log, before it or after it."""
    if source.randrange(3) == 0:
        return None
    bases = [segment.base_offset for segment in log.segments]
    return max(source.choice(bases) + source.randrange(-3, 30), 0)


def what_is_read(rows, skipped):
    """Offsets, keys and values before an error; the error; the skipped bytes."""
    found, error = until_error(rows)
    described = error and (type(error), str(error), getattr(error, "position", None))
    return found, described, skipped


def by_records(log, options):
    skipped = []
    records = log.records(skipped=skipped, **options)
    return what_is_read(((each.offset, each.key, each.value) for each in records), skipped)


def by_arrow(log, threads, options):
    skipped = []
    columns = ["offset", "key", "value", "headers"]
    table = log.to_arrow(columns, threads=threads, skipped=skipped, **options)
    rows = (
        (row["offset"], row["key"], row["value"]) for batch in table for row in batch.to_pylist()
    )
    return what_is_read(rows, skipped)


def by_batches(log, options, decoded_elsewhere):
    """As `by_records`; decoding damage is taken from the skipped bytes of another reader."""
    start, end, choice = (options[name] for name in ("start_offset", "end_offset", "on_corrupt"))
    skipped = []
    batches, *found = what_is_read(
        log.batches(start, end, on_corrupt=choice, skipped=skipped), skipped
    )
    unread = {(each.position, each.end_offset) for each in decoded_elsewhere}
    start, end = log.bounds(start, end)
    rows = [
        (each.offset, each.key, each.value)
        for batch in batches
        if not batch.is_control and (batch.position, batch.last_offset + 1) not in unread
        for each in batch.records()
        if start <= each.offset < end
    ]
    return rows, *found


@pytest.mark.filterwarnings("ignore::kafkastore.UnknownLogStartWarning")
def test_all_readers_find_the_same_rows_and_the_same_damage(tmp_path, monkeypatch):
    use_small_pieces(monkeypatch)
    chance = random.Random(SEED)
    write_chance_logs(tmp_path / "logs", SEED, PARTITIONS, is_clean=False)
    for number in range(PARTITIONS):
        for path in sorted((tmp_path / f"logs/{TOPIC}-{number}").glob("*.log")):
            if chance.random() < 0.5:
                damage(path, chance)
        log = kafkastore.open(tmp_path / "logs")[TOPIC, number]
        for _ in range(examples(80)):
            options = {
                "start_offset": offset_near(log, chance),
                "end_offset": offset_near(log, chance),
                "verify": chance.random() < 0.3,
                "on_corrupt": chance.choice(("raise", "skip", "stop")),
                "include_control": chance.random() < 0.3,
                "isolation": chance.choice(("read_uncommitted", "read_committed")),
            }
            expected = by_records(log, options)
            for threads in (1, 2):
                assert by_arrow(log, threads, options) == expected, (number, threads, options)
            options |= {
                "verify": False, "include_control": False, "isolation": "read_uncommitted",
                "on_corrupt": "skip",
            }  # fmt: skip
            rows, error, skipped = by_records(log, options)
            found = by_batches(log, options, skipped)
            assert found[:2] == (rows, error), (number, options)
            assert {*found[2]} <= {*skipped}, (number, options)


@pytest.mark.parametrize("start", [0, 1])
def test_broken_headers_are_found_although_other_records_are_asked_for(tmp_path, start):
    batch = Batch((Row(0, 5, headers=(("name", b"x"),)), Row(1, 6)))
    root = Log((Segment(0, (batch, Batch((Row(2, 7),)))),)).write(tmp_path / "logs")
    path = root / "t-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[data.index(b"name") - 1] = 2  # its length: the bytes after the name are then a value
    path.write_bytes(data)
    log = kafkastore.open(root)["t-0"]
    options = {"start_offset": start, "verify": False, "on_corrupt": "skip"}
    rows, error, skipped = by_records(log, options)
    assert ([offset for offset, *_ in rows], error) == ([2], None)
    assert [(each.position, each.end_offset) for each in skipped] == [(0, 2)]
    assert by_arrow(log, 1, options) == (rows, error, skipped)


KINDS = {
    "v0": Batch((Row(1, 7, b"k", b"v"),), magic=0),
    "v1": Batch((Row(1, 7, b"k", b"v"),), magic=1),
    "v1 wrapper": Batch((Row(1, 7, b"k", b"v"), Row(2, 8)), magic=1, codec=GZIP),
    "v2": Batch((Row(1, 7, b"k", b"v"), Row(2, 8, headers=(("h", b""),)))),
    "v2 compressed": Batch((Row(1, 7, b"k", b"v"), Row(2, 8)), codec=ZSTD),
    "v2 marker": marker(1, 7),
}


@pytest.mark.parametrize("batch", KINDS.values(), ids=KINDS)
def test_every_flipped_bit_after_the_checksum_is_found(tmp_path, batch):
    before, after = Batch((Row(0, 5),)).data, Batch((Row(3, 9),)).data
    root = Log((Segment(0, ()),)).write(tmp_path / "logs")
    path = root / "t-0" / "00000000000000000000.log"
    guarded_from = 21 if batch.magic == 2 else 17
    for bit in range(guarded_from * 8, len(batch.data) * 8):
        damaged = bytearray(batch.data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(before + bytes(damaged) + after)
        log = kafkastore.open(root)["t-0"]
        records, error = until_error(log.records())
        tables, arrow_error = until_error(log.to_arrow(["offset"]))
        assert [record.offset for record in records] == [0], bit
        assert [offset for table in tables for offset in table["offset"].to_pylist()] == [0], bit
        for each in (error, arrow_error):
            assert (each.path, each.position) == (path, len(before)), bit


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_log_of_noise_is_refused_quickly(tmp_path, magic):
    source = random.Random(magic)
    path = tmp_path / "t-0" / "00000000000000000000.log"
    path.parent.mkdir()
    noise = bytearray(source.randbytes(2_000_000))
    noise[8:12] = (1_000_000).to_bytes(4, "big")
    noise[16] = magic
    path.write_bytes(noise)
    start = time.process_time()
    log = kafkastore.open(path.parent)["t-0"]
    records, error = until_error(log.records())
    assert records == []
    assert error is not None
    try:
        assert log.offset_for_timestamp(2**62) is None
    except CorruptBatchError as raised:
        assert raised.path == path
    assert log.segments[0].rebuilt_indexes().valid_bytes == 0
    assert time.process_time() - start < 2


@pytest.mark.parametrize("size", [10, 15_000])
@pytest.mark.parametrize("to", ["a lower offset", "a higher offset"])
def test_a_wrong_base_offset_is_found_by_each_range_that_it_changes(tmp_path, size, to):
    """Although the index leads to that batch, or the range ends with it."""
    with LogDirWriter(tmp_path / "logs", fs=UnsyncedFileSystem()) as log_dir:
        writer = log_dir.writer("t", 0, {"index.interval.bytes": 0})
        for _ in range(30):
            writer.append_records([new_record(0, value=bytes(size))])
    (path,) = (tmp_path / "logs/t-0").glob("*.log")
    with kafkastore.open(tmp_path / "logs")["t", 0].segments[0].open_log() as log:
        positions = [at for run in log.runs() for at in run.headers["position"].tolist()]
    wrong = 2 if to == "a lower offset" else 26
    with path.open("r+b") as file:
        file.seek(positions[15])
        file.write(wrong.to_bytes(8, "big"))
    damaged = kafkastore.open(tmp_path / "logs")["t", 0]
    for start, end in combinations((0, *range(10, 20), 30), 2):
        try:
            found = [record.offset for record in damaged.records(start, end)]
        except CorruptBatchError:
            continue
        assert found == [*range(start, end)]
        assert 15 not in found
