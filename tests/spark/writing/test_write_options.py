"""Options, columns and rows of which no log can be made."""
import re

import pytest
from spark.writing.writes import SCHEMA, batch, names, row, schema_of, write, writer

from kafkastore.errors import InvalidRecordError, InvalidTimestampError, RecordTooLargeError
from kafkastore.formats.file_names import InvalidNameError
from kafkastore.spark.source.options import OptionError
from kafkastore.spark.source.writing.write_options import parse_write_options
from kafkastore.spark.source.writing.writer import writer_of


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
