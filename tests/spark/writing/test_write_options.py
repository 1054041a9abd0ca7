"""Options, columns and rows that cannot be written as a log."""

import pytest
from spark.refused_options import option_refused
from spark.writing.writes import SCHEMA, batch, names, row, schema_of, write, writer

from kafkastore.errors import (
    InvalidColumnError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
)
from kafkastore.formats.state.file_names import InvalidNameError
from kafkastore.spark.source.writing.write_options import parse_write_options
from kafkastore.spark.source.writing.writer import writer_of


@pytest.mark.parametrize(
    ("options", "problem", "named"),
    [
        ({}, "missing", ["path"]),
        ({"path": "s3://bucket/x"}, "value", ["path"]),
        ({"path": "/x", "segment.byte": "1"}, "unknown", ["segment.byte"]),
        ({"path": "/x", "partition": "1"}, "unknown", ["partition"]),
        ({"path": "/x", "checkpointing": "1"}, "unknown", ["checkpointing"]),
        ({"path": "/x", "segment.bytes": "1"}, "value", ["segment.bytes"]),
        ({"path": "/x", "compression": "lzo"}, "value", ["compression"]),
        ({"path": "/x", "compression": "none", "compression.type": "gzip"},
         "contradiction", ["compression", "compression.type"]),
        ({"path": "/x", "partitions": "0"}, "value", ["partitions"]),
        ({"path": "/x", "batch.size": "1e3"}, "value", ["batch.size"]),
    ],
)
def test_an_option_without_a_value_is_refused(options, problem, named):
    with option_refused(problem, *named):
        parse_write_options(options)


def test_options_are_those_of_kafka_and_what_only_reaches_a_broker_is_ignored():
    options = parse_write_options(
        {"path": "file:///x/../y", "kafka.bootstrap.servers": "a:1", "segment.bytes": "1000",
         "Compression": "none", "min.insync.replicas": "2"}
    )
    assert (options.path, options.batch_bytes) == ("/y", 16384)
    assert (options.config.segment_bytes, options.config.compression_type) == (1000, "uncompressed")


@pytest.mark.parametrize(
    ("columns", "problem", "named"),
    [
        ("topic string, partition int", "missing", "value"),
        ("partition int, value string", "missing", "topic"),
        ("topic string, value string", "missing", "partitions"),
        ("value int", "value", "value"),
        ("topic binary, value string", "value", "topic"),
        ("value string, key map<string,binary>", "value", "key"),
        ("value string, timestamp bigint", "value", "timestamp"),
        ("value string, timestamp timestamp_ntz", "value", "timestamp"),
        ("value string, partition string", "value", "partition"),
        ("value string, offset double", "value", "offset"),
        ("value string, headers map<string,binary>", "value", "headers"),
        ("value string, header string", "unknown", "header"),
        ("value string, Key string", "unknown", "Key"),
        ("value string, abc string", "unknown", "abc"),
    ],
)
def test_columns_that_are_not_records_are_refused(target, columns, problem, named):
    schema = schema_of(columns)
    with option_refused(problem, named):
        writer_of({"path": str(target)}, schema, overwrite=False)
    assert not target.parent.exists()


@pytest.mark.parametrize(
    ("rows", "options", "error"),
    [
        ([row(b"x", topic=None)], {}, "topic"),
        ([row(b"x", None)], {}, "partition"),
        ([row(b"x", -2)], {}, "partition"),
        ([row(b"x", 7)], {"partitions": "7"}, "partition"),
        ([row(b"x", topic="a/b")], {}, InvalidNameError),
        ([row(b"x", timestamp=-2)], {}, InvalidTimestampError),
        ([row(b"x", timestamp=10**14)], {}, InvalidTimestampError),
        ([row(b"x" * 2000)], {"max_message_bytes": "1000"}, RecordTooLargeError),
        ([row(b"x")], {"cleanup_policy": "compact"}, InvalidRecordError),
        ([row(b"x", headers=[{"key": None, "value": None}])], {}, "headers"),
        ([row(b"x", headers=[None])], {}, "headers"),
    ],
)
def test_rows_that_are_not_records_are_refused_and_nothing_remains(
    target, rows, options, error
):
    """The error is a class, or a column about which there is an `InvalidColumnError`."""
    made = writer(target, **options)
    kind = InvalidColumnError if isinstance(error, str) else error
    with pytest.raises(kind) as caught:
        made.write_task([batch(rows)], 0, 0)
    assert type(caught.value) is kind
    if kind is InvalidColumnError:
        assert caught.value.column == error
    made.abort([None])
    assert not names(target.parent)


@pytest.mark.parametrize("offset", [None, -1])
def test_a_row_without_its_offset_is_refused(target, offset):
    with pytest.raises(InvalidColumnError) as caught:
        write(target, [[[row(b"x", offset=1), row(b"x", 1, offset=offset)]]], SCHEMA.names)
    assert caught.value.column == "offset"
