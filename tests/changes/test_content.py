import gc
import random
import shutil
import threading
from functools import partial

import pytest
from models.chance_logs import write_chance_logs
from models.iteration import until_error
from models.record_format import GZIP, Batch, Row
from models.record_strategies import in_a_row
from models.seed import SEED, examples

import kafkastore
from kafkastore.changes import new_bytes
from kafkastore.changes.new_bytes import chunks_of, converted_in_threads
from kafkastore.changes.plan import Converted, Inline, InvalidPlanError, Prefix, Rebuilt
from kafkastore.formats.records.compression import Codec
from kafkastore.segment import conversion, log_file
from kafkastore.segment.conversion import Conversion
from kafkastore.segment.log_file import LogFile
from kafkastore.segment.recovery import rebuild_indexes


def written(content, path):
    return b"".join(chunks_of(content, path))


def test_inline_content_is_written_as_it_is(tmp_path):
    assert written(Inline(b"\0abc"), tmp_path / "missing") == b"\0abc"


@pytest.mark.parametrize("length", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_a_prefix_is_the_first_bytes_of_the_file(tmp_path, length):
    path = tmp_path / "00000000000000000000.log"
    data = bytes(range(256)) * (3 << 12)
    path.write_bytes(data)
    assert written(Prefix(length), path) == data[:length]


def test_a_prefix_of_a_file_that_shrank_is_shorter(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"abc")
    assert written(Prefix(10), path) == b"abc"


@pytest.mark.parametrize("interval", [0, 200, 4096])
def test_an_index_is_rebuilt_from_the_log_next_to_it(golden, tmp_path, interval):
    logs = golden("0.10.0.1", "upgrade", "answers").logs
    source = sorted(logs.glob("up-0/*.log"))[1]
    log = tmp_path / source.name
    shutil.copy(source, log)
    rebuilt = rebuild_indexes(log, int(log.stem), index_interval_bytes=interval)
    assert written(Rebuilt(interval), log.with_suffix(".timeindex")) == rebuilt.time_index != b""
    assert written(Rebuilt(interval), log.with_suffix(".index")) == rebuilt.offset_index


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000000.log",
        "00000000000000000000.timeindex.swap",
        "00000000000000000000.txnindex",
        "meta.properties",
    ],
)
def test_other_files_are_not_rebuilt(tmp_path, name):
    with pytest.raises(InvalidPlanError) as refusal:
        written(Rebuilt(4096), tmp_path / name)
    assert refusal.value.path == tmp_path / name


def use_small_reads(monkeypatch, size):
    """Logs of a few kilobytes have many runs."""
    monkeypatch.setattr(conversion, "_READ", size)


def flip(path, chance):
    data = bytearray(path.read_bytes())
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def converted_by(open_log, conversion, threads):
    """The bytes up to an error, and the error."""
    with open_log() as log:
        found, error = until_error(converted_in_threads(log, conversion, threads), Exception)
    where = getattr(error, "position", None), getattr(error, "path", None)
    return b"".join(found), type(error), str(error), where


def test_threads_convert_random_logs_to_the_bytes_of_one(tmp_path, monkeypatch, threads_left):
    write_chance_logs(tmp_path / "logs", SEED, examples(240), is_clean=False)
    chance = random.Random(SEED)
    outcomes = set()
    with monkeypatch.context() as patch:
        for log in kafkastore.open(tmp_path / "logs"):
            use_small_reads(patch, chance.choice((64, 400, 3000)))
            for segment in log.segments:
                if chance.random() < 0.3:
                    flip(segment.log_path, chance)
                asked = Conversion(
                    chance.choice((None, *Codec)),
                    chance.choice((None, 777)),
                    leader_epoch=chance.choice((0, 3)),
                    is_only_epoch=chance.random() < 0.3,
                )
                # With the segment's bounds, as a plan, and without, as `apply`.
                for open_log in (segment.open_log, partial(LogFile, segment.log_path)):
                    one, two, five = (
                        converted_by(open_log, asked, count) for count in (1, 2, 5)
                    )
                    assert one == two == five, segment.log_path
                    assert threads_left("kafkastore-convert") == []
                    outcomes.add(one[1])
            patch.undo()
    assert len(outcomes) > 1  # with and without errors


def test_threads_convert_every_golden_case_as_one_does(golden_case, monkeypatch):
    use_small_reads(monkeypatch, 300)
    for log in kafkastore.open(golden_case.logs):
        for segment in log.segments:
            asked = Conversion(Codec.LZ4)
            one = converted_by(segment.open_log, asked, 1)
            assert one == converted_by(segment.open_log, asked, 2)
            assert one == converted_by(segment.open_log, asked, 5)


GZIPPED = in_a_row(
    Batch((Row(0, 100, b"k", b"v" * 40), Row(1, 101, b"k", b"w")), magic=1, codec=GZIP)
    for _ in range(200)
)


def test_the_new_bytes_do_not_depend_on_the_machines_caches(tmp_path, monkeypatch):
    """A plan that is made on one machine can be applied on another."""
    path = tmp_path / "00000000000000000000.log"
    messages = in_a_row(Batch((Row(0, 100, b"k", b"v" * 40),), magic=1) for _ in range(400))
    path.write_bytes(b"".join(batch.data for batch in messages))
    expected = b"".join(chunks_of(Converted(None, None, 0, False), path))
    monkeypatch.setattr(log_file, "LARGEST_READ", 300)
    assert b"".join(chunks_of(Converted(None, None, 0, False), path)) == expected
    use_small_reads(monkeypatch, 300)
    assert b"".join(chunks_of(Converted(None, None, 0, False), path)) != expected


def test_one_thread_converts_in_the_caller_alone(tmp_path, monkeypatch, threads_left):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(batch.data for batch in GZIPPED))
    use_small_reads(monkeypatch, 200)
    found = chunks_of(Converted(None, None, 0, False), path)
    before = next(found)
    assert threads_left("kafkastore-convert") == []
    assert before + b"".join(found) == b"".join(chunks_of(Converted(None, None, 0, False), path, 3))


def test_a_conversion_that_is_dropped_ends_its_threads_without_a_wait(
    tmp_path, monkeypatch, threads_left
):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(batch.data for batch in GZIPPED))
    use_small_reads(monkeypatch, 200)
    convert = new_bytes.converted_run
    is_busy, may_end = threading.Event(), threading.Event()

    def slow(log, conversion, scanned):
        if scanned.run.position:
            if threading.current_thread() is threading.main_thread():
                assert is_busy.wait(60)
            else:
                is_busy.set()
                may_end.wait()
        return convert(log, conversion, scanned)

    monkeypatch.setattr(new_bytes, "converted_run", slow)
    found = chunks_of(Converted(None, None, 0, False), path, 2)
    next(found)
    assert is_busy.wait(60)
    del found
    gc.collect()
    left = threads_left("kafkastore-convert")
    assert left  # the drop did not wait for them
    may_end.set()
    for thread in left:
        thread.join(60)
    assert threads_left("kafkastore-convert") == []
