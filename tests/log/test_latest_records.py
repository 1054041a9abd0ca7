"""The last record of each key: as a slow model has it, and as brokers' cleaners left it."""

import random
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from golden.make.brokers import version_key
from golden.make.cases import compaction
from models.latest_model import committed, latest, topic_logs, write_topic
from models.log_directory import Log, Segment
from models.record_format import CODEC_NAMES, NONE, Batch, Row, marker
from models.record_strategies import in_a_row
from models.refused import refused
from models.seed import SEED, examples, some

import kafkastore
from kafkastore import CorruptBatchError
from kafkastore.errors import ArgumentTypeError
from kafkastore.log.damage import SkippedBytes
from kafkastore.log.records_as_arrow import ArrowOptions
from kafkastore.store.latest_records import LatestRecords

MICROS_END = 2**63 // 1000


def rows(reader):
    """[(partition, offset, timestamp, key, value)]; the timestamp None if Arrow has no room."""
    table = reader.read_all()
    timestamps = [
        None if each is None else each // 1000
        for each in table["timestamp"].cast(pa.int64()).to_pylist()
    ]
    names = ("partition", "offset")
    columns = [*(table[name].to_pylist() for name in names), timestamps]
    columns += [table[name].to_pylist() for name in ("key", "value")]
    return list(zip(*columns, strict=True))


def wanted(found):
    return [
        (partition, offset, timestamp if abs(timestamp) <= MICROS_END else None, key, value)
        for partition, (offset, timestamp, _, key, value, *_) in found
    ]


def one_log(tmp_path, *batches, first_offset=0):
    """The log of these batches, in two segments."""
    moved = in_a_row(batches, first_offset)
    middle = len(moved) // 2
    segments = [Segment(first_offset, tuple(moved[:middle])).indexed()] if middle else []
    base_offset = moved[middle].base_offset if middle else first_offset
    segments.append(Segment(base_offset, tuple(moved[middle:])).indexed())
    return kafkastore.open(Log(tuple(segments)).write(tmp_path / "logs"))["t-0"]


def record(key, value, timestamp=5, **fields):
    return Batch((Row(0, timestamp, key, value),), **fields)


def test_the_last_record_of_each_key_is_that_of_a_slow_model(tmp_path):
    for number in range(examples(240)):
        logs = topic_logs(f"{SEED}/{number}", 1)
        root = write_topic(tmp_path / str(number), "t", logs)
        log = kafkastore.open(root)["t-0"]
        records = {0: committed(logs[0])}
        for tombstones in (False, True):
            found = latest(records, include_tombstones=tombstones)
            got = rows(log.latest(include_tombstones=tombstones, batch_rows=3))
            assert got == wanted(found)
        shutil.rmtree(root)


def test_keys_that_moved_between_partitions_have_their_newest_record(tmp_path):
    moved = 0
    for number in range(examples(120)):
        logs = topic_logs(f"{SEED}/topic/{number}", 4)
        root = write_topic(tmp_path / str(number), "t", logs)
        topic = kafkastore.open(root).topic("t")
        records = {n: committed(log) for n, log in logs.items()}
        keys = [{record[3] for record in each} - {None} for each in records.values()]
        moved += sum(map(len, keys)) > len(set().union(*keys))
        for tombstones in (False, True):
            got = rows(topic.latest(include_tombstones=tombstones))
            found = latest(records, include_tombstones=tombstones)
            assert got == wanted(found)
        shutil.rmtree(root)
    assert moved


def test_an_end_timestamp_gives_the_state_at_that_time(tmp_path):
    for number in range(examples(60)):
        logs = topic_logs(f"{SEED}/time/{number}", 1)
        root = write_topic(tmp_path / str(number), "t", logs)
        log = kafkastore.open(root)["t-0"]
        records = {0: committed(logs[0])}
        times = sorted({record[1] for record in records[0] if 0 <= record[1] < 2**63 - 1})
        for until in some(times, 3, number):
            found = latest(records, until=until)
            assert rows(log.latest(end_timestamp=until)) == wanted(found)
        shutil.rmtree(root)


def test_of_the_records_between_two_offsets_the_last_count(tmp_path):
    log = one_log(tmp_path, *(record(b"k", b"%d" % number) for number in range(10)))
    assert [row[1] for row in rows(log.latest())] == [9]
    assert [row[1] for row in rows(log.latest(end_offset=7))] == [6]
    assert rows(log.latest(start_offset=10)) == []
    assert [row[1] for row in rows(log.latest(start_offset=3, end_offset=5))] == [4]


def test_an_aborted_record_does_not_replace_an_earlier_one(tmp_path):
    producer = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    log = one_log(
        tmp_path,
        record(b"k", b"old"),
        record(b"gone", None),
        record(b"k", b"aborted", base_sequence=0, **producer),
        record(b"gone", b"aborted", base_sequence=1, **producer),
        marker(0, 5, is_commit=False, producer_id=7),
        record(b"k", b"undecided", base_sequence=2, **producer),
        record(b"other", b"after the last stable offset"),
    )
    assert rows(log.latest()) == [(0, 0, 5, b"k", b"old")]


def test_a_committed_tombstone_deletes_its_key(tmp_path):
    producer = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    log = one_log(
        tmp_path,
        record(b"k", b"old"),
        record(b"k", None, base_sequence=0, **producer),
        marker(0, 5, is_commit=True, producer_id=7),
        record(b"", b"an empty key is a key"),
        record(None, b"no key"),
    )
    assert rows(log.latest()) == [(0, 3, 5, b"", b"an empty key is a key")]
    kept = rows(log.latest(include_tombstones=True))
    assert kept == [(0, 1, 5, b"k", None), (0, 3, 5, b"", b"an empty key is a key")]


def test_columns_are_those_of_to_arrow(tmp_path):
    batch = Batch((Row(0, 5, b"k", b"v", (("name", b"x"),)),))
    log = one_log(tmp_path, batch, batch)
    assert log.latest(["offset"]).read_all().to_pydict() == {"offset": [1]}
    found = log.latest(["value", "topic"]).read_all()
    assert found.to_pydict() == {"value": [b"v"], "topic": ["t"]}
    full = log.latest(include_headers=True)
    assert full.schema == log.to_arrow(include_headers=True).schema
    assert full.read_all()["headers"].to_pylist() == [[{"key": "name", "value": b"x"}]]
    assert log.latest([]).read_all().num_rows == 1
    text = log.latest(["key", "value"], decode="utf-8", dictionary=True).read_all()
    assert text.to_pydict() == {"key": ["k"], "value": ["v"]}
    topic, all_rows = (read(["topic"], dictionary=True) for read in (log.latest, log.to_arrow))
    assert topic.read_all().schema == topic.schema == all_rows.schema


def test_text_that_is_not_utf_8_is_found_by_its_bytes(tmp_path):
    """Both keys become the same text."""
    log = one_log(tmp_path, record(b"\xff", b"a"), record(b"\xfe", b"\xfd"), record(b"", b""))
    found = log.latest(["key", "value"], decode="utf-8").read_all()
    assert found.to_pydict() == {"key": ["\ufffd"] * 2 + [""], "value": ["a", "\ufffd", ""]}
    assert log.latest(["key"], decode="utf-8", start_offset=2).read_all()["key"].to_pylist() == [""]


@pytest.mark.parametrize("threads", [1, 3])
def test_any_number_of_threads_gives_the_same_rows(tmp_path, threads):
    """The log is large enough to be read in pieces."""
    chance = random.Random(SEED)
    batches = [
        Batch(tuple(
            Row(number, 5, b"%d" % chance.randrange(5000), chance.randbytes(1000))
            for number in range(50)
        ))
        for _ in range(100)
    ]
    log = one_log(tmp_path, *batches)
    last = {each.key: each for each in log.records()}
    wanted_rows = sorted((each.offset, each.key, each.value) for each in last.values())
    assert [(row[1], *row[3:]) for row in rows(log.latest(threads=threads))] == wanted_rows


def test_small_results_are_joined_and_large_ones_divided(tmp_path):
    batches = (record(b"%d" % (number % 90), b"v") for number in range(300))
    log = one_log(tmp_path, *batches)
    assert [batch.num_rows for batch in log.latest(batch_rows=40)] == [40, 40, 10]
    assert [batch.num_rows for batch in log.latest()] == [90]


def test_wrong_arguments_are_refused_before_anything_is_read(tmp_path):
    log = one_log(tmp_path, record(b"k", b"v"))
    for segment in log.segments:
        segment.log_path.unlink()
    with refused("columns"):
        log.latest(["nothing"])
    with refused("batch_rows"):
        log.latest(batch_rows=0)
    with refused("on_corrupt"):
        log.latest(on_corrupt="?")
    with refused("end_offset", ArgumentTypeError):
        log.latest(end_offset="7")


def damaged_log(tmp_path):
    """Three records of one key; the second is corrupt."""
    log = one_log(tmp_path, *(record(b"k", b"%d" % number) for number in range(4)))
    path = log.segments[1].log_path
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    return kafkastore.open(tmp_path / "logs")["t-0"]


def test_corrupt_bytes_raise_before_the_first_row(tmp_path):
    log = damaged_log(tmp_path)
    reader = log.latest()
    with pytest.raises(CorruptBatchError):
        reader.read_next_batch()


@pytest.mark.parametrize("on_corrupt", ["skip", "stop"])
def test_corrupt_bytes_are_skipped_by_both_passes_and_noted_once(tmp_path, on_corrupt):
    log = damaged_log(tmp_path)
    skipped: list[SkippedBytes] = []
    assert [row[1] for row in rows(log.latest(on_corrupt=on_corrupt, skipped=skipped))] == [2]
    assert len(skipped) == 1
    with pytest.warns(kafkastore.SkippedBytesWarning) as warned:
        log.latest(on_corrupt=on_corrupt).read_all()
    assert len(warned) == 1


def test_random_damage_that_is_skipped_leaves_the_last_readable_record_of_each_key():
    for number in range(examples(120)):
        chance = random.Random(f"{SEED}/damage/{number}")
        with tempfile.TemporaryDirectory() as directory:
            root = write_topic(Path(directory) / "logs", "t", topic_logs(f"{SEED}/{number}", 1))
            for path in (root / "t-0").glob("*.log"):
                data = bytearray(path.read_bytes())
                if data and chance.random() < 0.5:
                    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
                    path.write_bytes(data)
            log = kafkastore.open(root)["t-0"]
            read = log.records(isolation="read_committed", on_corrupt="skip", skipped=[])
            found = wanted(latest({0: list(read)}))
            assert rows(log.latest(on_corrupt="skip", skipped=[])) == found


def test_what_is_appended_between_the_passes_does_not_count(tmp_path):
    log = one_log(tmp_path, record(b"k", b"first"), record(b"other", b"v"))
    latest_records = LatestRecords(across_partitions=False)
    latest_records.add(log, ArrowOptions())
    with open(log.segments[-1].log_path, "ab") as file:
        file.write(record(b"k", b"later").with_offset(2).data)
    log.refresh()
    (batch,) = latest_records.read(log, ArrowOptions(binary_view=True))
    assert batch["offset"].to_pylist() == [0, 1]
    assert batch.schema == log.to_arrow(binary_view=True).schema
    assert [row[1] for row in rows(log.latest())] == [1, 2]


# Logs before and after real cleaners

COMPACTED = pytest.mark.golden_cases(names="compacted", answers="answers")


def produced(case):
    """The batches that were produced in the case, by partition, with their offsets."""
    seed = case.answers.get("seed", "data")
    chance = random.Random(f"{seed}/{case.version}/{case.name}")
    codecs = {name: number for number, name in enumerate(CODEC_NAMES)} | {"none": NONE}
    version = version_key(case.version)
    magic = 0 if version < (0, 10) else 1 if version < (0, 11) else 2
    batches = {0: [], 1: []}
    for turn in compaction.produced_turns(chance, 1_500_000_000_000):
        for partition, codec, made in turn:
            for batch in made:
                rows = [Row(number, *each[:3]) for number, each in enumerate(batch)]
                if magic < 2 and codec == "none":
                    batches[partition] += [Batch((row,), magic=magic) for row in rows]
                else:
                    fields = {"magic": magic, "codec": codecs[codec]}
                    batches[partition].append(Batch(tuple(rows), **fields))
    return batches


def values(reader):
    return [row[1:] for row in rows(reader)]


@COMPACTED
def test_a_log_and_what_a_broker_compacted_it_to_have_the_same_latest_records(
    golden_case, tmp_path
):
    """The records before the cleaning are made again, by the seed of the data."""
    checkpoint = (golden_case.logs / "cleaner-offset-checkpoint").read_text().splitlines()
    ends = {int(line.split()[1]): int(line.split()[2]) for line in checkpoint[2:]}
    cleaned = kafkastore.open(golden_case.logs)
    for partition, batches in produced(golden_case).items():
        after = cleaned["compacted", partition]
        root = tmp_path / str(partition)
        before = kafkastore.open(Log((Segment(0, tuple(in_a_row(batches))),)).write(root))["t-0"]
        assert before.log_end_offset == after.log_end_offset
        assert values(before.latest()) == values(after.latest())
        # The cleaner came as far as its checkpoint says.
        left = [
            (each.offset, each.timestamp, each.key, each.value)
            for each in after.records(end_offset=ends[partition])
        ]
        assert [row for row in left if row[3] is not None] == values(
            before.latest(end_offset=ends[partition])
        )
        tombstones = {row for row in left if row[3] is None}
        kept = values(before.latest(end_offset=ends[partition], include_tombstones=True))
        assert tombstones <= {row for row in kept if row[3] is None}


@pytest.mark.golden_cases(
    names=["transactions", "compacted*", "headers-and-nulls", "old-formats", "codecs"],
    answers="answers",
)
def test_latest_records_of_golden_logs_are_those_of_their_committed_records(golden_case):
    for log in kafkastore.open(golden_case.logs):
        records = {0: list(log.records(isolation="read_committed"))}
        assert values(log.latest()) == [row[1:] for row in wanted(latest(records))]
