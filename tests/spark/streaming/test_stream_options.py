"""The options of a stream, and where it begins."""

import pytest
from spark.refused_options import option_refused
from spark.streaming.streams import ALL, append, numbers, read, reader_of

from kafkastore.spark.source.data_source import KafkaStoreDataSource
from kafkastore.spark.source.streaming.stream_reader import parse_stream_options


@pytest.mark.parametrize(
    ("options", "problem", "named"),
    [
        ({"endingOffsets": "latest"}, "unsuitable", ["endingOffsets"]),
        ({"endingTimestamp": "1"}, "unsuitable", ["endingTimestamp"]),
        ({"pushFilters": "true"}, "unsuitable", ["pushFilters"]),
        ({"latest": "true"}, "unsuitable", ["latest"]),
        ({"table": "segments"}, "unsuitable", ["table"]),
        ({"maxOffsetsPerTrigger": "0"}, "value", ["maxOffsetsPerTrigger"]),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
         "contradiction", ["minOffsetsPerTrigger", "maxOffsetsPerTrigger"]),
        ({"maxTriggerDelay": "soon"}, "value", ["maxTriggerDelay"]),
    ],
)
def test_options_that_are_not_for_streams_are_refused(options, problem, named):
    with option_refused(problem, *named):
        parse_stream_options({"path": "/logs", **options})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1500", 1.5), ("250ms", 0.25), ("90s", 90), ("15m", 900), ("2 min", 120), ("1h", 3600)],
)
def test_the_delay_is_a_time_as_spark_writes_it(text, seconds):
    assert parse_stream_options({"path": "/", "maxTriggerDelay": text}).max_delay == seconds


def test_a_read_ignores_the_options_of_streams(log_dir):
    append(log_dir.writer("orders", 0), *numbers(0, 3))
    options = {"path": str(log_dir.path), "maxOffsetsPerTrigger": "1", "maxTriggerDelay": "1s"}
    source = KafkaStoreDataSource(options)
    (task,) = source.reader(schema=source.schema()).partitions()
    assert task.slices[0].start_offset == 0
    assert task.slices[0].known_end_offset == 3


def test_a_stream_begins_at_the_latest_offset_unless_set_otherwise(log_dir):
    writer = log_dir.writer("orders", 0)
    append(writer, *numbers(0, 3))
    source = KafkaStoreDataSource({"path": str(log_dir.path)})
    reader = source.streamReader(schema=source.schema())
    first = reader.latestOffset(reader.initialOffset(), ALL)
    assert read(reader, {}, first) == []
    append(writer, *numbers(3, 5))
    second = reader.latestOffset(first, ALL)
    assert read(reader, first, second) == [("orders", 0, 3, "3"), ("orders", 0, 4, "4")]


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"startingOffsets": '{"orders": {"0": 2}}'}, 2),
        ({"startingOffsets": '{"orders": {"0": -2}}'}, 0),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, 5),
        ({"startingTimestamp": "1700000000000"}, 0),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": 1700000000000}}'}, 0),
        (
            {"startingTimestamp": "1700000000001", "startingOffsetsByTimestampStrategy": "latest"},
            5,
        ),
    ],
)
def test_a_stream_begins_where_the_options_say(log_dir, options, first):
    append(log_dir.writer("orders", 0), *numbers(0, 5))
    reader = reader_of(log_dir.path, **options)
    end = reader.latestOffset({}, ALL)
    assert [row[2] for row in read(reader, {}, end)] == list(range(first, 5))


def test_a_starting_time_after_all_records_is_an_error(log_dir):
    append(log_dir.writer("orders", 0), "0")
    reader = reader_of(log_dir.path, startingTimestamp="1800000000000")
    with option_refused("not-found", "startingTimestamp"):
        reader.latestOffset({}, ALL)


def test_a_topic_that_is_subscribed_to_must_be_there_at_first(log_dir):
    append(log_dir.writer("orders", 0), "0")
    with option_refused("not-found", "subscribe"):
        reader_of(log_dir.path, subscribe="payments").latestOffset({}, ALL)
