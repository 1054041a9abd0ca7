"""Frames written as logs: what a session sees, what tasks and the driver do, what is refused."""
import json
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.record_strategies import bounded
from models.written_log import UnsyncedFileSystem
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql.pandas.types import from_arrow_schema

import kafkastore
from kafkastore.errors import (
    ChangeRefusedError,
    InvalidRecordError,
    InvalidTimestampError,
    OutOfOrderAppendError,
    RecordTooLargeError,
)
from kafkastore.formats.checkpoints import parse_offset_checkpoint
from kafkastore.formats.file_names import InvalidNameError, TopicPartition
from kafkastore.fs import FileSystem
from kafkastore.log.log_dir_writer import LogDirWriter
from kafkastore.spark.source.options import OptionError
from kafkastore.spark.source.writing import merged_logs
from kafkastore.spark.source.writing.key_partitions import murmur2, partitions_of_keys
from kafkastore.spark.source.writing.write_options import CODECS, OPTIONS, parse_write_options
from kafkastore.spark.source.writing.writer import writer_of

NOW = 1_500_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("offset", pa.int64()),
    ]
)
COLUMNS = tuple(SCHEMA.names[:-1])
MARKER = ".kafka_cleanshutdown"


def row(value, partition=0, *, topic="t", key=None, timestamp=NOW, headers=None, offset=None):
    return {
        "topic": topic, "partition": partition, "key": key, "value": value,
        "timestamp": None if timestamp is None else timestamp * 1000, "headers": headers,
        "offset": offset,
    }


def batch(rows, columns=COLUMNS):
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    return pa.RecordBatch.from_pylist([{name: each[name] for name in columns} for each in rows],
                                      schema)


def writer(target, columns=COLUMNS, **options):
    """A writer as Spark makes it in its planner and sends it to tasks and committer."""
    schema = from_arrow_schema(pa.schema([SCHEMA.field(name) for name in columns]))
    given = {"path": str(target)} | {key.replace("_", "."): text for key, text in options.items()}
    return pickle.loads(pickle.dumps(writer_of(given, schema, overwrite=False)))


def write(target, tasks, columns=COLUMNS, **options):
    """Write batches of rows, a list of them for each task, as Spark does."""
    made = writer(target, columns, **options)
    messages = [
        pickle.loads(
            pickle.dumps(made.write_task([batch(rows, columns) for rows in batches], task, task))
        )
        for task, batches in enumerate(tasks)
    ]
    made.commit(messages)


def records(target):
    """What the logs hold: by partition, rows of offset, timestamp, key, value, headers."""
    return {
        str(log.topic_partition): [
            (each.offset, each.timestamp, each.key, each.value, each.headers)
            for each in log.records()
        ]
        for log in kafkastore.open(target)
    }


def values(target):
    return {name: [each[3] for each in rows] for name, rows in records(target).items()}


TYPES = {
    "string": pa.string(), "binary": pa.binary(), "int": pa.int32(), "bigint": pa.int64(),
    "double": pa.float64(), "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"), "map<string,binary>": pa.map_(pa.string(), pa.binary()),
}


def schema_of(columns):
    """The schema of columns as SQL names them, without Spark's parser of that."""
    named = (each.split() for each in columns.split(", "))
    return from_arrow_schema(pa.schema([(name, TYPES[kind]) for name, kind in named]))


def faults(target):
    """What is wrong, but for offsets that are missing, and mtimes, which are those of the write."""
    return [
        found
        for found in kafkastore.verify(target)
        if found.severity != kafkastore.Severity.STYLE
        and not found.what.startswith("modification times look lost")
    ]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def target(tmp_path):
    return tmp_path / "beside" / "logs"


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch):
    """Nothing in this process waits until bytes are on the disk."""
    monkeypatch.setattr(FileSystem, "fsync", UnsyncedFileSystem.fsync)
    monkeypatch.setattr(FileSystem, "fsync_directory", UnsyncedFileSystem.fsync_directory)


# ---------------------------------------------------------------- in a session


def test_a_frame_is_written_by_several_tasks_and_read_again(spark, target):
    frame = spark.range(0, 3000, 1, 6).selectExpr(
        "if(id % 5 = 0, 'a', 'b-c.d') topic",
        "cast(id % 3 as int) partition",
        "if(id % 7 = 0, null, cast(id as string)) key",
        "if(id % 11 = 0, null, cast(repeat(cast(id as string), 30) as binary)) value",
        f"timestamp_millis({NOW} + id) timestamp",
        "if(id % 2 = 0, null, array(struct('n' as key, cast('v' as binary) as value),"
        " struct('' as key, cast(null as binary) as value))) headers",
    )
    options = {"compression": "zstd", "segment.bytes": 4096, "batch.size": 1000}
    frame.write.format("kafkastore").mode("append").options(**options).save(str(target))
    read = spark.read.format("kafkastore").option("includeHeaders", True).load(str(target))
    columns = ["topic", "partition", "cast(key as binary) key", "value", "timestamp", "headers"]
    both = frame.selectExpr(*columns), read.select(*columns[:2], "key", *columns[3:])
    first, second = (sorted(map(repr, each.toLocalIterator())) for each in both)
    assert first == second
    rows = read.select("topic", "partition", "offset", "timestamp").toPandas()
    for _, part in rows.groupby(["topic", "partition"]):
        in_order = part.sort_values("offset")
        # In the order of the tasks, and of each task's rows.
        assert in_order["timestamp"].is_monotonic_increasing
        assert in_order["offset"].tolist() == list(range(len(part)))
    assert not list(kafkastore.verify(target))
    assert names(target.parent) == ["logs"]


def test_what_was_read_is_written_with_its_offsets(spark, golden, target):
    """Without the records that compaction took there are gaps."""
    source = golden("2.4.0", "compacted", "answers").logs
    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "headers"]
    read = spark.read.format("kafkastore").option("includeHeaders", True)
    frame = read.load(str(source))
    frame.write.format("kafkastore").mode("append").save(str(target))
    assert_same = [sorted(map(repr, each.select(*columns).toLocalIterator()))
                   for each in (frame, read.load(str(target)))]
    assert assert_same[0] == assert_same[1]
    assert assert_same[0]
    first = kafkastore.open(source)
    for log in kafkastore.open(target):
        assert log.log_start_offset == next(first[log.topic_partition].records()).offset
    assert not faults(target)


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("overwrite", "no log is overwritten"),
        ("errorifexists", "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
        ("ignore", "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
    ],
)
def test_only_append_is_a_mode(spark, target, mode, text):
    frame = spark.range(1).selectExpr("'t' topic", "0 partition", "'x' value")
    with pytest.raises(AnalysisException, match=text):
        frame.write.format("kafkastore").mode(mode).save(str(target))
    assert not target.parent.exists() or not names(target.parent)


def test_a_failed_job_leaves_nothing(spark, target):
    frame = spark.range(0, 2000, 1, 4).selectExpr(
        "'t' topic", "cast(id % 3 as int) partition",
        "if(id = 1900, raise_error('no such luck'), 'x') value",
    )
    with pytest.raises(Exception, match="no such luck"):
        frame.write.format("kafkastore").mode("append").save(str(target))
    assert not names(target.parent)


def test_what_a_task_refuses_is_a_sentence_at_the_end_of_sparks(spark, target):
    frame = spark.range(1).selectExpr("'t' topic", "0 partition", "repeat('x', 2000000) value")
    with pytest.raises(PythonException) as raised:
        frame.write.format("kafkastore").mode("append").save(str(target))
    assert "RecordTooLargeError: t-0: a batch has 2000" in str(raised.value)
    assert not names(target.parent)


DRIVER = """
import sys
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql.functions import udf
from kafkastore.spark import register, session

target, job = sys.argv[1:]
spark = session("local[2,3]", **{"spark.driver.memory": "1g"})
register(spark)

@udf("string")
def value(number):
    if job == "fails" and number == 450 and TaskContext.get().attemptNumber() < 2:
        raise RuntimeError("one of two failures")
    if job == "waits" and number == 700:
        Path(target + ".waiting").touch()
        import time
        time.sleep(600)
    return "x" * 3000 + str(number)

frame = spark.range(0, 1000, 1, 4).withColumn("value", value("id")).selectExpr(
    "'t' topic", "cast(id % 2 as int) partition", "value")
frame.write.format("kafkastore").mode("append").save(target)
spark.stop()
"""


@pytest.mark.soak
def test_tasks_that_fail_are_tried_again_and_count_once(target):
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(target), "fails"], check=True, capture_output=True,
        text=True, timeout=280,
    )
    assert "one of two failures" in done.stderr
    assert names(target.parent) == ["logs"]
    written = [value.lstrip(b"x") for each in values(target).values() for value in each]
    assert written == [b"%d" % number for half in (0, 1) for number in range(half, 1000, 2)]
    assert not list(kafkastore.verify(target))


@pytest.mark.soak
def test_a_driver_that_is_killed_leaves_no_target_and_the_next_write_works(spark, target):
    target.parent.mkdir()
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(target), "waits"])
    waiting = target.with_name("logs.waiting")
    try:
        deadline = time.monotonic() + 250
        while not waiting.exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        (staged,) = set(target.parent.iterdir()) - {waiting}
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    waiting.unlink()
    assert not target.exists()
    pid = json.loads((staged / "owner").read_text())["pid"] if staged.exists() else 0
    while pid and Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    frame = spark.range(10).selectExpr("'t' topic", "0 partition", "cast(id as string) value")
    frame.write.format("kafkastore").mode("append").save(str(target))
    assert values(target) == {"t-0": [b"%d" % number for number in range(10)]}
    assert names(target.parent) == ["logs"]


def test_the_documents_example_runs_and_names_every_option_and_column(spark, tmp_path, capfd):
    text = (Path(__file__).parents[2] / "docs" / "spark-writing.md").read_text()
    for name in (*OPTIONS[1:], *SCHEMA.names):
        assert f"`{name}`" in text
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    example = example.replace('"new-logs"', repr(str(tmp_path / "new-logs")))
    exec(compile(example, "spark-writing.md", "exec"), {"spark": spark})
    assert len(values(tmp_path / "new-logs")) == 6
    assert capfd.readouterr().out


# ---------------------------------------------------------------- rows


KEYS = st.one_of(st.none(), st.just(b""), st.binary(max_size=9))
VALUES = st.one_of(KEYS, st.just(b"v" * 700), st.just(b"w" * 5000))
PAIRS = st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=3), "value": KEYS}), max_size=3
)
ROWS = st.builds(
    row,
    VALUES,
    st.integers(0, 3),
    topic=st.sampled_from(["t", "t-1.x"]),
    key=KEYS,
    timestamp=st.one_of(st.integers(NOW - 10**9, NOW), st.sampled_from([-1, 0])),
    headers=st.one_of(st.none(), PAIRS),
)
TASKS = st.lists(st.lists(st.lists(ROWS, max_size=15), max_size=3), max_size=3)
CHOICES = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(CODECS),
        "segment.bytes": st.sampled_from(["6000", "20000", "1073741824"]),
        "batch.size": st.sampled_from(["1", "300", "16384"]),
        "index.interval.bytes": st.sampled_from(["0", "4096"]),
    }
)


def expected(tasks):
    """What the logs hold of rows whose offsets are given, or else follow from their order."""
    logs = {}
    for each in (each for batches in tasks for rows in batches for each in rows):
        log = logs.setdefault(f"{each['topic']}-{each['partition']}", [])
        pairs = tuple((pair["key"], pair["value"]) for pair in each["headers"] or ())
        offset = len(log) if each["offset"] is None else each["offset"]
        log.append((offset, each["timestamp"] // 1000, each["key"], each["value"], pairs))
    return logs


@bounded(25)
@given(TASKS, CHOICES, st.integers(1, 3))
def test_what_is_written_is_what_was_given(tmp_path_factory, tasks, options, open_logs):
    target = tmp_path_factory.mktemp("written") / "logs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merged_logs, "open_logs_limit", lambda: open_logs)
        patch.setattr("kafkastore.spark.source.writing.writer.open_logs_limit", lambda: open_logs)
        write(target, tasks, **options)
    assert records(target) == expected(tasks)
    assert not faults(target)
    assert names(target.parent) == ["logs"]


@bounded(15)
@given(TASKS, CHOICES, st.randoms(use_true_random=False))
def test_offsets_that_are_given_are_kept(tmp_path_factory, tasks, options, chance):
    next_offsets = {}
    for each in (each for batches in tasks for rows in batches for each in rows):
        place = each["topic"], each["partition"]
        each["offset"] = next_offsets.get(place, 0) + chance.choice([0, 0, 1, 9, 2**31, 2**40])
        next_offsets[place] = each["offset"] + 1
    target = tmp_path_factory.mktemp("written") / "logs"
    write(target, tasks, SCHEMA.names, **options)
    assert records(target) == expected(tasks)
    for log in kafkastore.open(target):
        assert log.log_start_offset == expected(tasks)[str(log.topic_partition)][0][0]
    assert not faults(target)


def test_tasks_that_overlap_in_offsets_or_rows_that_fall_back_are_refused(target):
    one = [[row(b"x", offset=offset) for offset in (0, 4)]]
    with pytest.raises(OutOfOrderAppendError, match=r"t-0: one task has offsets 0 to 4, another b"):
        write(target, [one, [[row(b"y", offset=3)]]], SCHEMA.names)
    for second in (3, 4):
        rows = [[row(b"x", offset=4)], [row(b"x", offset=second)]]
        for batches in (rows, [rows[0] + rows[1]]):
            with pytest.raises(OutOfOrderAppendError, match=r"t-0: .*; sortWithinPartitions"):
                write(target, [batches], SCHEMA.names)
    write(target, [[[row(b"second", offset=9)]], one], SCHEMA.names)
    assert [each[0] for each in records(target)["t-0"]] == [0, 4, 9]


def test_a_row_without_timestamp_gets_the_time_and_one_that_says_none_has_none(target):
    before = time.time_ns() // 10**6
    write(target, [[[row(b"x", timestamp=None), row(b"y", timestamp=-1), row(b"z")]]])
    write(target, [[[row(b"x", 1)]]], ("topic", "partition", "value"))
    now, none, then = (each[1] for each in records(target)["t-0"])
    assert (none, then) == (-1, NOW)
    (other,) = records(target)["t-1"]
    assert before <= now <= other[1] <= time.time_ns() // 10**6


def murmur2_by_bytes(data):
    """Kafka's ``Utils.murmur2``, line by line."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    for at in range(0, len(data) & ~3, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if rest := data[len(data) & ~3 :]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def test_keys_choose_the_partition_as_kafkas_producers_do(target):
    keys = [bytes(random.Random(number).randbytes(number % 23)) for number in range(500)]
    rows = [row(b"%d" % number, key=key) for number, key in enumerate(keys)]
    write(target, [[rows[:200], rows[200:]]], ("topic", "key", "value"), partitions="7")
    for name, log in records(target).items():
        for _, _, key, _, _ in log:
            assert (murmur2_by_bytes(key) & 0x7FFFFFFF) % 7 == int(name[2:])
    assert sum(map(len, records(target).values())) == 500


def test_the_hash_is_kafkas():
    """Of Kafka's UtilsTest."""
    known = {
        b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829, b"abc": 479470107,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    }
    keys = pa.array([b"in front", *known])[1:]
    assert murmur2(keys).astype(np.int32).tolist() == list(known.values())
    assert partitions_of_keys(keys, 1).tolist() == [0] * len(known)


def test_rows_without_key_and_partition_are_spread(target):
    rows = [row(b"%d" % number, None) for number in range(40)]
    rows[7] = row(b"here", 5)
    write(target, [[rows[:10], rows[10:]]], partitions="8")
    found = values(target)
    assert len(found) == 8
    assert b"here" in found["t-5"]
    assert sorted(map(len, found.values())) == [4, *[5] * 6, 6]


def test_the_topic_option_wins_over_the_column_and_strings_are_bytes(target):
    schema = schema_of("topic string, partition bigint, key string, value string")
    made = writer_of({"path": str(target), "topic": "u"}, schema, overwrite=False)
    rows = pa.RecordBatch.from_pylist(
        [{"topic": None, "partition": 3, "key": "ä", "value": None}],
        pa.schema([("topic", pa.string()), ("partition", pa.int64()), ("key", pa.string()),
                   ("value", pa.string())]),
    )
    made.commit([made.write_task([rows], 0, 0)])
    ((name, [(_, _, key, value, _)]),) = records(target).items()
    assert (name, key, value) == ("u-3", "ä".encode(), None)


def test_a_frame_without_rows_makes_an_empty_log_directory(target, spark):
    write(target, [[], [[]], []])
    assert records(target) == {}
    assert (target / MARKER).exists()
    assert spark.read.format("kafkastore").load(str(target)).count() == 0


# ---------------------------------------------------------------- options and columns


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "no path"),
        ({"path": "s3://bucket/x"}, "s3://bucket/x is no path of a file system"),
        ({"path": "/x", "segment.byte": "1"}, "segment.byte is not known; did you mean segment.b"),
        ({"path": "/x", "partition": "1"}, "did you mean partitions?"),
        ({"path": "/x", "checkpointing": "1"}, "those of a Kafka topic"),
        ({"path": "/x", "segment.bytes": "1"}, "segment.bytes is 1; it must be a whole number"),
        ({"path": "/x", "compression": "lzo"}, "one of none, gzip, snappy, lz4, zstd, not lzo"),
        ({"path": "/x", "compression": "none", "compression.type": "gzip"}, "contradict"),
        ({"path": "/x", "partitions": "0"}, "from 1 to 2147483647, not 0"),
        ({"path": "/x", "batch.size": "1e3"}, "from 1 to 2147483647, not 1e3"),
    ],
)
def test_an_option_that_says_nothing_is_refused(options, text):
    with pytest.raises(OptionError, match=re.escape(text)):
        parse_write_options(options)


def test_options_are_those_of_kafka_and_what_only_reaches_a_broker_is_ignored():
    options = parse_write_options(
        {"path": "file:///x/../y", "kafka.bootstrap.servers": "a:1", "segment.bytes": "1000",
         "Compression": "none", "min.insync.replicas": "2"}
    )
    assert (options.path, options.batch_bytes) == ("/y", 16384)
    assert (options.config.segment_bytes, options.config.compression_type) == (1000, "uncompressed")


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ("topic string, partition int", {}, "no column 'value'"),
        ("partition int, value string", {}, "neither a column 'topic' nor an option topic"),
        ("topic string, value string", {}, "neither a column 'partition' nor an option partitions"),
        ("value int", {}, "column 'value' must be string or binary, not int; cast it"),
        ("topic binary, value string", {}, "column 'topic' must be string, not binary"),
        ("value string, key map<string,binary>", {}, "'key' must be string or binary, not map<"),
        ("value string, timestamp bigint", {}, "column 'timestamp' must be timestamp, not bigint"),
        ("value string, timestamp timestamp_ntz", {}, "must be timestamp, not timestamp_ntz"),
        ("value string, partition string", {}, "column 'partition' must be a whole number"),
        ("value string, offset double", {}, "column 'offset' must be a whole number, not double"),
        ("value string, headers map<string,binary>", {}, "array<struct<key:string,value:binary>>"),
        ("value string, header string", {}, "column 'header' is none of a record; did you mean he"),
        ("value string, Key string", {}, "column 'Key' is none of a record; did you mean key?"),
        ("value string, abc string", {}, "there are topic, partition, key, value"),
    ],
)
def test_columns_that_make_no_records_are_refused(target, columns, options, text):
    schema = schema_of(columns)
    with pytest.raises(OptionError, match=re.escape(text)):
        writer_of({"path": str(target), **options}, schema, overwrite=False)
    assert not target.parent.exists()


@pytest.mark.parametrize(
    ("rows", "options", "error", "text"),
    [
        ([row(b"x", topic=None)], {}, InvalidRecordError, "column 'topic' is null in a row"),
        ([row(b"x", None)], {}, InvalidRecordError, "column 'partition' is null in a row, and no"),
        ([row(b"x", -2)], {}, InvalidRecordError, "column 'partition' is -2 in a row"),
        ([row(b"x", 7)], {"partitions": "7"}, InvalidRecordError, "is 7 in a row, which is no pa"),
        ([row(b"x", topic="a/b")], {}, InvalidNameError, "'a/b' is no name"),
        ([row(b"x", timestamp=-2)], {}, InvalidTimestampError, "-2000 microseconds from 1970"),
        ([row(b"x", timestamp=10**14)], {}, InvalidTimestampError, r"message.timestamp.after.max"),
        ([row(b"x" * 2000)], {"max_message_bytes": "1000"}, RecordTooLargeError, "t-0: a batch ha"),
        ([row(b"x")], {"cleanup_policy": "compact"}, InvalidRecordError, "t-0: .* has no key"),
        ([row(b"x", headers=[{"key": None, "value": None}])], {}, ValueError, "without a name"),
        ([row(b"x", headers=[None])], {}, InvalidRecordError, "null among the headers"),
    ],
)
def test_rows_that_are_no_records_are_refused_and_nothing_stays(
    target, rows, options, error, text
):
    made = writer(target, **options)
    with pytest.raises(error, match=text):
        made.write_task([batch(rows)], 0, 0)
    made.abort([None])
    assert not names(target.parent)


@pytest.mark.parametrize("offset", [None, -1])
def test_a_row_without_its_offset_is_refused(target, offset):
    with pytest.raises(InvalidRecordError, match="column 'offset' is null or negative"):
        write(target, [[[row(b"x", offset=1), row(b"x", 1, offset=offset)]]], SCHEMA.names)


# ---------------------------------------------------------------- the log directory


def left(folder):
    """All files but locks, with what is in them."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def checkpoint(target, name):
    return parse_offset_checkpoint((target / f"{name}-checkpoint").read_bytes())


TWO = [[[row(b"x"), row(b"y", 1)]], [[row(b"z")]]]


def test_a_new_directory_is_one_that_was_shut_down_in_order(target):
    write(target, TWO)
    ends = {TopicPartition("t", 0): 2, TopicPartition("t", 1): 1}
    assert checkpoint(target, "recovery-point-offset") == ends
    assert checkpoint(target, "replication-offset") == ends
    assert checkpoint(target, "log-start-offset") == {}
    assert (target / MARKER).exists()
    assert not (target / "meta.properties").exists()  # the broker's to say
    assert not (target / ".lock").exists()


@pytest.mark.parametrize("is_clean", [True, False])
def test_other_partitions_are_added_to_a_directory(target, is_clean):
    target.parent.mkdir()
    with LogDirWriter(target) as log_dir:
        log_dir.writer("old", 0).append_columns(batch([row(b"a"), row(b"b")]))
        log_dir.writer("old", 0 + 1).append_columns(batch([row(b"c")]))
        log_dir.writers["old", 0].delete_records(1)
    gone = target / "log-start-offset-checkpoint"
    gone.write_bytes(gone.read_bytes().replace(b"0\n1\n", b"0\n2\nt 1 77\n"))
    if not is_clean:
        (target / MARKER).unlink()
    before = left(target)
    write(target, TWO)
    after = left(target)
    assert values(target) == {"old-0": [b"b"], "old-1": [b"c"], "t-0": [b"x", b"z"], "t-1": [b"y"]}
    altered = {name for name in before if after[name] != before[name]}
    assert altered == {f"{name}-checkpoint" for name in
                       ("recovery-point-offset", "replication-offset", "log-start-offset")}
    assert checkpoint(target, "log-start-offset") == {("old", 0): 1}
    assert checkpoint(target, "recovery-point-offset")["t", 0] == 2
    assert (target / MARKER).exists() == is_clean
    assert names(target.parent) == ["logs"]


def test_an_empty_directory_stays_the_same_directory(target):
    target.mkdir(parents=True, mode=0o750)
    before = target.stat()
    write(target, TWO)
    after = target.stat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert (target / MARKER).exists()
    assert not list(kafkastore.verify(target))


def test_a_partition_that_is_there_is_left_alone(target):
    write(target, TWO)
    before = left(target)
    made = writer(target)
    with pytest.raises(ChangeRefusedError, match="has partition t-1 already"):
        made.write_task([batch([row(b"u", 1)])], 0, 0)
    made.abort([None])
    # And one that comes while tasks write.
    made = writer(target)
    message = made.write_task([batch([row(b"u", 2), row(b"v", 3)])], 0, 0)
    write(target, [[[row(b"w", 2)]]])
    before = left(target)
    with pytest.raises(ChangeRefusedError, match="has partition t-2 already"):
        made.commit([message])
    made.abort([message])
    assert left(target) == before
    assert names(target.parent) == ["logs"]


def test_a_directory_that_a_broker_uses_is_left_alone(target):
    target.parent.mkdir()
    made = writer(target)
    message = made.write_task([batch([row(b"u")])], 0, 0)
    with LogDirWriter(target) as log_dir:
        log_dir.writer("old", 0)
        with pytest.raises(ChangeRefusedError, match="held by a broker"):
            writer(target)
        with pytest.raises(ChangeRefusedError, match="held by a broker"):
            made.commit([message])
    made.abort([message])
    assert names(target.parent) == ["logs"]
    assert values(target) == {"old-0": []}


def test_what_is_no_log_directory_is_refused(tmp_path):
    file = tmp_path / "file"
    file.touch()
    other = tmp_path / "other"
    (other / "documents").mkdir(parents=True)
    write(tmp_path / "logs", TWO)
    damaged = tmp_path / "damaged"
    shutil.copytree(tmp_path / "logs", damaged)
    (damaged / "replication-offset-checkpoint").write_text("nonsense\n")
    before = left(tmp_path)
    for path, text in (
        (file, "is a file"),
        (other, "is not empty, and no log directory"),
        (tmp_path / "logs" / "t-0", "is a partition's directory"),
        (damaged, "is damaged: "),
        (Path("/dev/shm"), "is a mount point"),
        (tmp_path / "logs" / "copy", "would lie in the log directory"),
        (tmp_path / "logs" / "deep" / "copy", "would lie in the log directory"),
    ):
        with pytest.raises(ChangeRefusedError, match=text):
            writer(path)
    assert left(tmp_path) == before
    assert names(tmp_path) == ["damaged", "file", "logs", "other"]


# ---------------------------------------------------------------- attempts, failures, crashes


@pytest.mark.parametrize("partition", [0, 1])
def test_of_two_copies_of_a_task_one_counts_and_the_other_ends(target, partition):
    made = writer(target)
    counted = made.write_task([batch([row(b"x")])], 0, 0)
    made.write_task([batch([row(b"x")])], 0, 1)

    def rows():
        """Of a copy that goes on while the job is committed."""
        yield batch([row(b"x" * 600_000)])
        made.commit([counted])
        yield batch([row(b"y", partition)])

    with pytest.raises(FileNotFoundError):
        made.write_task(rows(), 0, 2)
    assert values(target) == {"t-0": [b"x"]}
    assert names(target.parent) == ["logs"]


def test_abort_removes_what_tasks_wrote_of_which_it_is_not_told(target):
    made = writer(target)
    made.write_task([batch([row(b"x")])], 0, 0)
    made.abort([None, None])
    assert not names(target.parent)
    made.abort([None])
    with pytest.raises(ChangeRefusedError, match="is gone"):
        made.commit([])
    with pytest.raises(ChangeRefusedError, match="file system that driver and executors share"):
        made.write_task([batch([row(b"x")])], 0, 0)


def test_a_task_that_failed_gives_its_files_back(target):
    made = writer(target)
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    for attempt in range(3):
        with pytest.raises(InvalidRecordError):
            made.write_task([batch([row(b"x" * 600_000)]), batch([row(b"x", -1)])], 0, attempt)
    assert len(os.listdir("/proc/self/fd")) == before
    made.abort([])


class _Killed(BaseException):
    pass


def dead_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def abandoned(made):
    """Let a job be one whose driver is gone."""
    owner = json.loads((made.job.path / "owner").read_text())
    (made.job.path / "owner").write_text(json.dumps(owner | {"pid": dead_process()}))


ADDED = [[[row(b"%d" % number, number, topic="new") for number in range(3)]]]


def committing(target, monkeypatch, step, error):
    """Commit three partitions into a directory; at one step of altering it raise an error."""
    write(target, TWO)
    made = writer(target)
    messages = [made.write_task([batch(rows) for rows in ADDED[0]], 0, 0)]
    steps = 0

    def counted(method):
        def call(self, *arguments):
            nonlocal steps
            steps += 1
            if steps == step:
                raise error
            return method(self, *arguments)

        return call

    with monkeypatch.context() as patch:
        for name in ("rename", "fsync_directory", "create", "mkdir", "unlink"):
            patch.setattr(FileSystem, name, counted(getattr(FileSystem, name)))
        try:
            made.commit(messages)
        except (OSError, _Killed) as raised:
            assert raised is error
            return made, True
    return made, False


def test_killed_at_any_step_of_a_commit_the_next_write_ends_it_or_removes_it(
    tmp_path, monkeypatch
):
    seen = set()
    for step in range(1, 100):
        target = tmp_path / str(step) / "logs"
        made, is_killed = committing(target, monkeypatch, step, _Killed())
        if not is_killed:
            break
        assert values(target).items() >= {"t-0": [b"x", b"z"], "t-1": [b"y"]}.items()
        writer(target).abort([])  # while the driver lives
        assert is_killed == made.job.path.exists()
        abandoned(made)
        write(target, [[[row(b"later", 9)]]])
        found = values(target)
        new = {name: found.pop(name) for name in list(found) if name.startswith("new")}
        assert found == {"t-0": [b"x", b"z"], "t-1": [b"y"], "t-9": [b"later"]}
        assert new in ({}, {f"new-{number}": [b"%d" % number] for number in range(3)})
        seen.add(len(new))
        assert names(target.parent) == ["logs"]
        assert not list(kafkastore.verify(target))
    assert seen == {0, 3}
    assert step > 10


def test_an_error_at_any_step_of_a_commit_leaves_all_of_it_or_nothing(tmp_path, monkeypatch):
    for step in range(1, 100):
        target = tmp_path / str(step) / "logs"
        made, has_failed = committing(target, monkeypatch, step, OSError(28, "no space left"))
        if not has_failed:
            break
        made.abort([None])
        assert values(target) == {"t-0": [b"x", b"z"], "t-1": [b"y"]}
        assert names(target.parent) == ["logs"]
    assert step > 10
    assert len(values(target)) == 5


def test_a_job_of_another_machine_is_left_alone(target):
    made = writer(target)
    owner = made.job.path / "owner"
    abandoned(made)
    text = owner.read_text()
    for name in ("host", "namespace"):
        known = json.loads(text) | {name: "elsewhere"}
        owner.write_text(json.dumps(known))
        writer(target).abort([])
        assert made.job.path.exists()
    owner.write_text(text)
    (target.parent / ".logs.kafkastore-0-removed").mkdir()
    (target.parent / ".logs2.kafkastore-0").mkdir()
    writer(target).abort([])
    assert names(target.parent) == [".logs2.kafkastore-0"]
