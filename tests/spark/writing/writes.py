"""Frames written as Spark does, but without Spark, and the resulting logs."""
import pickle

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

import kafkastore
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


TYPES = {
    "string": pa.string(), "binary": pa.binary(), "int": pa.int32(), "bigint": pa.int64(),
    "double": pa.float64(), "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"), "map<string,binary>": pa.map_(pa.string(), pa.binary()),
}


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
    """The contents of the logs: by partition, rows of offset, timestamp, key, value, headers."""
    return {
        str(log.topic_partition): [
            (each.offset, each.timestamp, each.key, each.value, each.headers)
            for each in log.records()
        ]
        for log in kafkastore.open(target)
    }


def values(target):
    return {name: [each[3] for each in rows] for name, rows in records(target).items()}


def schema_of(columns):
    """The schema of columns as SQL names them, without Spark's parser of that."""
    named = (each.split() for each in columns.split(", "))
    return from_arrow_schema(pa.schema([(name, TYPES[kind]) for name, kind in named]))


def faults(target):
    """The findings other than missing offsets and mtimes, which are those of the write."""
    return [
        found
        for found in kafkastore.verify(target)
        if found.severity != kafkastore.Severity.STYLE
        and found.kind is not kafkastore.FindingKind.LOST_MODIFICATION_TIMES
    ]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def left(folder):
    """All files except locks, with their contents."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


TWO = [[[row(b"x"), row(b"y", 1)]], [[row(b"z")]]]
