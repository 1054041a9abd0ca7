"""The data source as a stream: logs that grow, roll, are cut and deleted under it."""
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

import pyarrow.dataset
import pytest
from log.written_logs import TransactionalProducer
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from spark.streaming_processes import Writer, follow, offsets_of, record

from kafkastore import LogDirWriter
from kafkastore.errors import CorruptBatchError
from kafkastore.log.log_store import open_store
from kafkastore.segment import log_file
from kafkastore.spark.source.data_source import KafkaStoreDataSource
from kafkastore.spark.source.options import OptionError
from kafkastore.spark.source.schema import spark_schema
from kafkastore.spark.source.slice_reading import DataLossError
from kafkastore.spark.source.streaming.growing_logs import BatchMark, StableEnd, look
from kafkastore.spark.source.streaming.stream_offsets import StreamOffset
from kafkastore.spark.source.streaming.stream_reader import parse_stream_options

ALL = ReadAllAvailable()
PROCESSES = Path(__file__).with_name("streaming_processes.py")


@pytest.fixture
def log_dir(tmp_path):
    with LogDirWriter(tmp_path / "logs") as writer:
        yield writer


@pytest.fixture
def read_bytes(monkeypatch):
    """How much each read of a log got."""
    sizes = []
    preadv = os.preadv

    def counted(descriptor, buffers, position):
        got = preadv(descriptor, buffers, position)
        sizes.append(got)
        return got

    monkeypatch.setattr(log_file.os, "preadv", counted)
    return sizes


def reader_of(path, **options):
    """A stream reader as Spark makes it; from the earliest offset, unless told otherwise."""
    source = KafkaStoreDataSource({"path": str(path), "startingOffsets": "earliest", **options})
    return source.streamReader(schema=source.schema())


def read(reader, start, end):
    """Partition, offset and value of a batch's rows, through the JSON and pickles of Spark."""
    start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
    tasks = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    in_task = pickle.loads(pickle.dumps(reader))
    return [
        (row["topic"], row["partition"], row["offset"], row["value"].decode())
        for task in tasks or [InputPartition(None)]
        for batch in in_task.read(task)
        for row in batch.to_pylist()
    ]


def append(writer, *values, **how):
    """Append each value as a batch."""
    for value in values:
        writer.append_records([record(value.encode())], **how)


def numbers(first, last):
    return [str(number) for number in range(first, last)]


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is not for streams, which have no end"),
        ({"endingTimestamp": "1"}, "endingTimestamp is not for streams, which have no end"),
        ({"pushFilters": "true"}, "pushFilters is not for streams, but for reads"),
        ({"table": "segments"}, "table is not for streams, but for reads"),
        ({"maxOffsetsPerTrigger": "0"}, "must be an integer of at least 1, not 0"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "contradict each other"),
        ({"maxTriggerDelay": "soon"}, "must be a time such as 90s or 15m, not soon"),
    ],
)
def test_options_that_are_not_for_streams_are_refused(options, sentence):
    with pytest.raises(OptionError, match=sentence):
        parse_stream_options({"path": "/logs", **options})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1500", 1.5), ("250ms", 0.25), ("90s", 90), ("15m", 900), ("2 min", 120), ("1h", 3600)],
)
def test_the_delay_is_a_time_as_spark_writes_it(text, seconds):
    assert parse_stream_options({"path": "/", "maxTriggerDelay": text}).max_delay == seconds


def test_a_read_takes_no_notice_of_the_options_of_streams(log_dir):
    append(log_dir.writer("orders", 0), *numbers(0, 3))
    options = {"path": str(log_dir.path), "maxOffsetsPerTrigger": "1", "maxTriggerDelay": "1s"}
    source = KafkaStoreDataSource(options)
    (task,) = source.reader(schema=source.schema()).partitions()
    assert task.slices[0].start_offset == 0
    assert task.slices[0].known_end_offset == 3


# ---------------------------------------------------------------- what is new


def test_a_stream_begins_at_the_latest_offset_unless_told_otherwise(log_dir):
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
    with pytest.raises(OptionError, match="no record of orders-0 is at or after 1800000000000"):
        reader.latestOffset({}, ALL)


def test_a_topic_that_is_subscribed_to_must_be_there_at_first(log_dir):
    append(log_dir.writer("orders", 0), "0")
    with pytest.raises(OptionError, match="no topic payments"):
        reader_of(log_dir.path, subscribe="payments").latestOffset({}, ALL)


def test_nothing_new_is_the_offset_before(log_dir):
    append(log_dir.writer("orders", 0), "0")
    reader = reader_of(log_dir.path)
    end = reader.latestOffset({}, ALL)
    assert reader.latestOffset(end, ALL) is end
    assert reader_of(log_dir.path).latestOffset(end, ALL) is end
    assert reader.partitions(end, end) == []


def test_rolls_new_partitions_and_new_topics_are_followed(log_dir):
    writer = log_dir.writer("orders", 0)
    append(writer, "0")
    reader = reader_of(log_dir.path)
    first = reader.latestOffset({}, ALL)
    append(writer, "1")
    writer.roll()
    rolled = reader.latestOffset(first, ALL)
    assert rolled["orders"] == {"0": 2}
    append(writer, "2")
    writer.roll()
    append(writer, "3")
    append(log_dir.writer("orders", 1), "a")
    append(log_dir.writer("payments", 0), "b")
    second = reader.latestOffset(rolled, ALL)
    assert sorted(read(reader, rolled, second)) == [
        ("orders", 0, 2, "2"), ("orders", 0, 3, "3"), ("orders", 1, 0, "a"), ("payments", 0, 0, "b")
    ]


def test_a_stream_of_an_empty_directory_begins_with_the_first_record_all_the_same(log_dir):
    reader = KafkaStoreDataSource({"path": str(log_dir.path)}).streamReader(spark_schema())
    start = reader.latestOffset(reader.initialOffset(), ALL)
    assert start != reader.initialOffset()
    assert reader.latestOffset(start, ALL) is start
    assert reader.reportLatestOffset() is None
    append(log_dir.writer("orders", 0), "0")
    end = reader.latestOffset(start, ALL)
    assert read(reader, start, end) == [("orders", 0, 0, "0")]


def test_what_is_not_subscribed_to_is_not_followed(log_dir):
    for topic in ("orders", "payments"):
        append(log_dir.writer(topic, 0), "0")
    reader = reader_of(log_dir.path, subscribePattern="^ord")
    append(log_dir.writer("orders", 1), "1")
    end = reader.latestOffset({}, ALL)
    assert {row[0] for row in read(reader, {}, end)} == {"orders"}
    assert end["orders"] == {"0": 1, "1": 1}


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("tail", [b"\0" * 100, b"torn", "half", "harmed"], ids=str)
def test_the_end_is_behind_the_last_whole_batch(log_dir, tail, isolation):
    writer = log_dir.writer("orders", 0)
    append(writer, "0", "1", "2")
    path = writer.path / f"{0:020}.log"
    whole = path.read_bytes()
    batch = len(whole) // 3
    tails = {"half": whole[2 * batch : -5], "harmed": whole[2 * batch : -1] + b"\xff"}
    copy = log_dir.path.parent / "copy" / "orders-0"
    shutil.copytree(writer.path, copy)
    copied = copy / path.name
    copied.write_bytes(whole[: 2 * batch] + tails.get(tail, tail))
    reader = reader_of(copy, isolation=isolation)
    first = reader.latestOffset({}, ALL)
    assert [row[3] for row in read(reader, {}, first)] == ["0", "1"]
    copied.write_bytes(whole)  # what was being written is there now
    second = reader.latestOffset(first, ALL)
    assert [row[3] for row in read(reader, first, second)] == ["2"]


def test_a_harmed_batch_with_others_behind_it_fails_the_task(log_dir, caplog):
    writer = log_dir.writer("orders", 0)
    append(writer, *numbers(0, 3))
    copy = log_dir.path.parent / "copy" / "orders-0"
    shutil.copytree(writer.path, copy)
    path = copy / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    reader = reader_of(copy)
    end = reader.latestOffset({}, ALL)
    assert end["orders"] == {"0": 3}
    with pytest.raises(CorruptBatchError, match="at byte"):
        read(reader, {}, end)
    rows = read(reader_of(copy, failOnDataLoss="false"), {}, end)
    assert [row[3] for row in rows] == ["0"]
    assert "what is behind, up to offset 3 of" in caplog.text


def test_looking_again_reads_what_is_new_and_nothing_else(log_dir, read_bytes):
    writer = log_dir.writer("orders", 0)
    for number in range(300):
        writer.append_records([record(b"x" * 5000)] * 3)
        if number == 150:
            writer.roll()
    writer.flush()
    reader = reader_of(log_dir.path)
    end = reader.latestOffset({}, ALL)
    assert sum(read_bytes) < 100_000
    read_bytes.clear()
    assert reader.latestOffset(end, ALL) is end
    assert sum(read_bytes) < 500
    read_bytes.clear()
    writer.append_records([record(b"x" * 5000)] * 3)
    new = writer.path / f"{writer.base_offsets[-1]:020}.log"
    size = new.stat().st_size
    reader.latestOffset(end, ALL)
    assert 15_000 < sum(read_bytes) < 16_000
    assert size > 2_000_000


# ---------------------------------------------------------------- limits


def test_offsets_of_a_trigger_are_shared_in_proportion(log_dir):
    for partition, count in enumerate([600, 300, 2, 0]):
        writer = log_dir.writer("orders", partition)
        if count:
            writer.append_records([record(b"x")] * count)
    reader = reader_of(log_dir.path, maxOffsetsPerTrigger="90")
    assert reader.getDefaultReadLimit() == ReadMaxRows(90)
    end, ends = {}, []
    for _ in range(20):
        following = reader.latestOffset(end, ReadMaxRows(90))
        if following is end:
            break
        assert len(read(reader, end, following)) <= 91
        end = following
        ends.append(end["orders"])
    # floor(90 * 600 / 902), floor(90 * 300 / 902), ceil(90 * 2 / 902)
    assert ends[0] == {"0": 59, "1": 29, "2": 1, "3": 0}
    assert ends[-1] == {"0": 600, "1": 300, "2": 2, "3": 0}
    assert reader.reportLatestOffset() == {"orders": {"0": 600, "1": 300, "2": 2, "3": 0}}


def test_a_limit_that_spark_lifts_does_not_count(log_dir):
    append(log_dir.writer("orders", 0), *numbers(0, 9))
    reader = reader_of(log_dir.path, maxOffsetsPerTrigger="2", minOffsetsPerTrigger="1")
    assert reader.latestOffset({}, ALL)["orders"] == {"0": 9}


def test_a_batch_waits_for_enough_records_or_for_the_delay(log_dir, monkeypatch):
    writer = log_dir.writer("orders", 0)
    append(writer, "0")
    reader = reader_of(log_dir.path, minOffsetsPerTrigger="3", maxTriggerDelay="10s")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(3)
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    first = reader.latestOffset({}, limit)
    assert first["orders"] == {"0": 1}  # a query's first batch does not wait
    append(writer, "1", "2")
    assert reader.latestOffset(first, limit) is first
    append(writer, "3")
    second = reader.latestOffset(first, limit)
    assert second["orders"] == {"0": 4}
    append(writer, "4")
    clock[0] += 9.9
    assert reader.latestOffset(second, limit) is second
    clock[0] += 0.1
    assert reader.latestOffset(second, limit)["orders"] == {"0": 5}


def test_available_now_ends_where_the_logs_ended_when_it_began(log_dir):
    writer = log_dir.writer("orders", 0)
    append(writer, *numbers(0, 5))
    reader = reader_of(log_dir.path, maxOffsetsPerTrigger="2")
    reader.prepareForTriggerAvailableNow()
    append(writer, *numbers(5, 9))
    append(log_dir.writer("payments", 0), "new")
    end, rows = {}, []
    while (following := reader.latestOffset(end, ReadMaxRows(2))) is not end:
        rows += read(reader, end, following)
        end = following
    assert [row[3] for row in rows] == numbers(0, 5)
    later = reader_of(log_dir.path)
    assert {row[3] for row in read(later, end, later.latestOffset(end, ALL))} == {
        "5", "6", "7", "8", "new"
    }


def test_tasks_have_few_records_and_are_many_where_asked_for(log_dir):
    for partition in range(4):
        log_dir.writer("orders", partition).append_records([record(b"x")] * 100)
    few = reader_of(log_dir.path)
    end = few.latestOffset({}, ALL)
    (task,) = few.partitions({}, end)
    assert len(task.slices) == 4
    many = reader_of(log_dir.path, maxRecordsPerPartition="30")
    counts = [sum(1 for batch in many.read(each) for _ in batch.to_pylist())
              for each in many.partitions({}, end)]
    assert sum(counts) == 400
    assert max(counts) <= 30
    assert len(reader_of(log_dir.path, minPartitions="12").partitions({}, end)) >= 12
    rows = read(reader_of(log_dir.path, minPartitions="12"), {}, end)
    assert len(set(rows)) == len(rows) == 400


# ---------------------------------------------------------------- losses


def lose(reader, start, sentence):
    """A loss fails the query, or with failOnDataLoss off is told in the next offset."""
    with pytest.raises(DataLossError, match=sentence) as raised:
        reader.latestOffset(start, ALL)
    assert "set failOnDataLoss to false" in str(raised.value)
    indulgent = reader_of(reader.given["path"], failOnDataLoss="false")
    end = indulgent.latestOffset(start, ALL)
    assert indulgent.latestOffset(end, ALL) is end  # told once
    assert reader_of(reader.given["path"]).latestOffset(end, ALL) is end
    return end, read(indulgent, start, end)


def test_a_log_that_ends_before_what_was_read_was_truncated(log_dir):
    writer = log_dir.writer("orders", 0)
    append(writer, *numbers(0, 9))
    reader = reader_of(log_dir.path)
    start = reader.latestOffset({}, ALL)
    writer.truncate_to(6)
    end, rows = lose(reader, start, "orders-0 ends at offset 6, and was read up to 9")
    assert rows == []
    assert end["orders"] == {"0": 6}
    assert end["@lost"]["orders"]["0"].startswith("orders-0 ends at offset 6")
    append(writer, "other")
    indulgent = reader_of(log_dir.path, failOnDataLoss="false")
    following = indulgent.latestOffset(end, ALL)
    assert read(indulgent, end, following) == [("orders", 0, 6, "other")]
    assert "@lost" not in following


@pytest.mark.parametrize("rolls", [False, True])
@pytest.mark.parametrize("is_new", [False, True])
def test_a_log_that_was_cut_and_written_anew_is_noticed(log_dir, rolls, is_new):
    writer = log_dir.writer("orders", 0)
    append(writer, *numbers(0, 9))
    reader = reader_of(log_dir.path)
    start = reader.latestOffset({}, ALL)
    writer.truncate_to(6)
    append(writer, "a", "b")
    if rolls:
        writer.roll()
    append(writer, *"cdefgh")
    if is_new:
        reader = reader_of(log_dir.path)
    _, rows = lose(reader, start, "orders-0 has other records before offset 9")
    assert rows == [("orders", 0, 9, "d"), *(("orders", 0, 10 + n, "efgh"[n]) for n in range(4))]


def test_with_a_new_leader_the_place_is_known_from_which_records_are_others(log_dir):
    writer = log_dir.writer("orders", 0)
    append(writer, *numbers(0, 9))
    reader = reader_of(log_dir.path)
    start = reader.latestOffset({}, ALL)
    writer.truncate_to(6)
    append(writer, "a", leader_epoch=1)
    sentence = "orders-0 ends at offset 7, and was read up to 9"
    assert lose(reader, start, sentence)[1] == [("orders", 0, 6, "a")]
    append(writer, *"bcd", leader_epoch=1)
    sentence = "orders-0 has other records from offset 6 on"
    assert [row[3] for row in lose(reader, start, sentence)[1]] == list("abcd")


def test_what_was_cut_before_it_was_read_is_no_loss(log_dir):
    writer = log_dir.writer("orders", 0)
    append(writer, *numbers(0, 9))
    reader = reader_of(log_dir.path, maxOffsetsPerTrigger="4")
    start = reader.latestOffset({}, ReadMaxRows(4))
    writer.truncate_to(4)
    append(writer, "a", "b", leader_epoch=1)
    end = reader.latestOffset(start, ALL)
    assert read(reader, start, end) == [("orders", 0, 4, "a"), ("orders", 0, 5, "b")]


def test_retention_beyond_what_was_read_is_a_loss(log_dir):
    writer = log_dir.writer("orders", 0, {"segment.bytes": 150, "retention.ms": -1})
    append(writer, *numbers(0, 4))
    reader = reader_of(log_dir.path)
    start = reader.latestOffset({}, ALL)
    append(writer, *numbers(4, 9))
    writer.delete_records(4)
    writer.delete_old_segments()
    log_dir.checkpoint()
    end = reader.latestOffset(start, ALL)
    assert [row[2] for row in read(reader, start, end)] == [4, 5, 6, 7, 8]
    writer.delete_records(6)
    log_dir.checkpoint()
    sentence = "orders-0 begins at offset 6, and was read up to 4: retention has deleted"
    assert [row[2] for row in lose(reader, start, sentence)[1]] == [6, 7, 8]


def test_a_topic_that_is_gone_is_a_loss(log_dir):
    append(log_dir.writer("orders", 0), "0")
    append(gone := log_dir.writer("payments", 0), "0")
    reader = reader_of(log_dir.path)
    start = reader.latestOffset({}, ALL)
    gone.path.rename(gone.path.with_name("payments-0." + "0" * 32 + "-delete"))
    end, rows = lose(reader, start, "payments-0 is gone, and was read up to 1")
    assert rows == []
    assert "payments" not in end
    with LogDirWriter(log_dir.path.parent / "other") as other:
        append(made := other.writer("payments", 0), "made anew")
        shutil.copytree(made.path, gone.path)
    following = reader_of(log_dir.path)
    assert [row[3] for row in read(following, end, following.latestOffset(end, ALL))] == [
        "made anew"
    ]


def test_a_topic_that_is_not_subscribed_to_any_more_is_a_loss(log_dir):
    for topic in ("orders", "payments"):
        append(log_dir.writer(topic, 0), "0")
    start = reader_of(log_dir.path).latestOffset({}, ALL)
    with pytest.raises(DataLossError, match="payments-0 is gone, and was read up to 1"):
        reader_of(log_dir.path, subscribe="orders").latestOffset(start, ALL)


def test_a_topic_that_was_made_anew_is_noticed(log_dir, tmp_path):
    append(log_dir.writer("orders", 0), *numbers(0, 3))
    start = reader_of(log_dir.path).latestOffset({}, ALL)
    with LogDirWriter(tmp_path / "anew") as anew:
        append(anew.writer("orders", 0), *"abcdef")
        with pytest.raises(DataLossError, match="other records before offset 3"):
            reader_of(anew.path).latestOffset(start, ALL)


def test_a_new_partition_that_does_not_begin_at_0_has_lost_its_beginning(log_dir):
    append(log_dir.writer("orders", 0), "0")
    reader = reader_of(log_dir.path)
    start = reader.latestOffset({}, ALL)
    new = log_dir.writer("orders", 1)
    append(new, *numbers(0, 3))
    new.delete_records(2)
    log_dir.checkpoint()
    sentence = "orders-1 is new, and begins at offset 2, not at 0"
    assert lose(reader, start, sentence)[1] == [("orders", 1, 2, "2")]


@pytest.mark.parametrize("change", ["cut", "written anew", "deleted", "gone"])
def test_a_task_that_comes_too_late_fails(log_dir, change, caplog):
    writer = log_dir.writer("orders", 0, {"segment.bytes": 150, "retention.ms": -1})
    append(writer, *numbers(0, 9))
    reader = reader_of(log_dir.path)
    end = reader.latestOffset({}, ALL)
    tasks = reader.partitions({}, end)
    if change in ("cut", "written anew"):
        writer.truncate_to(5)
    if change == "written anew":
        append(writer, *"abcdef")
    if change == "deleted":
        writer.delete_records(5)
        writer.delete_old_segments()
    if change == "gone":
        writer.path.rename(writer.path.with_name("elsewhere"))
    sentence = {
        "cut": "ends at offset 5, and was read up to 9",
        "written anew": "other records before offset 9",
        "deleted": "begins at offset 4, and was to be read from 0",
        "gone": "orders-0 can't be listed",
    }[change]
    with pytest.raises(DataLossError, match=sentence):
        [list(reader.read(task)) for task in tasks]
    if change == "gone":
        with pytest.raises(DataLossError, match="orders-0 is gone, and was to be read from 0 to 9"):
            reader.partitions({}, end)
    indulgent = reader_of(log_dir.path, failOnDataLoss="false")
    rows = [row for task in tasks for batch in indulgent.read(task) for row in batch.to_pylist()]
    assert [row["value"].decode() for row in rows] == {
        "cut": numbers(0, 5), "written anew": [*numbers(0, 5), *"abcd"],
        "deleted": numbers(4, 9), "gone": [],
    }[change]
    assert sentence in caplog.text
    if change == "gone":
        writer.path.with_name("elsewhere").rename(writer.path)


def test_compaction_is_no_loss(golden):
    case = golden("2.4.0", "compacted", "answers")
    log = next(iter(open_store(case.logs)))
    before = StreamOffset({log.topic_partition: log.segments[-1].base_offset - 1})
    before.marks[log.topic_partition] = BatchMark(log.segments[-1].base_offset - 2, 0, 1)
    reader = reader_of(case.logs, subscribe=log.topic)
    start = before.to_json()
    end = reader.latestOffset(start, ALL)
    assert "@lost" not in end
    # In the active segment, which is never compacted, it would be one.
    at = log.log_end_offset
    active = StreamOffset({log.topic_partition: at}, {log.topic_partition: BatchMark(at - 1, 0, 1)})
    with pytest.raises(DataLossError, match="other records"):
        reader.latestOffset(active.to_json(), ALL)


# ---------------------------------------------------------------- transactions


@pytest.mark.parametrize("seed", range(4))
def test_the_last_stable_offset_is_found_again_and_again(log_dir, seed):
    chance = random.Random(seed)
    writer = log_dir.writer("orders", 0, {"segment.bytes": 3000, "retention.ms": -1})
    ids = iter(range(1000))
    producers = [TransactionalProducer(writer, next(ids)) for _ in range(2)]
    stable, known, found = StableEnd(), [], set()
    log = open_store(log_dir.path)["orders", 0]
    for _ in range(150):
        number = chance.randrange(len(producers))
        match chance.randrange(12):
            case 0 | 1 | 2 | 3 | 4:
                producers[number].send(*[1] * chance.randint(1, 5))
            case 5 | 6 | 7:
                producers[number].end(1, is_commit=chance.random() < 0.5)
            case 8:
                writer.roll()
            case 9 if chance.random() < 0.3:
                places = [batch.base_offset for batch in log.batches()]
                writer.truncate_to(chance.choice(places[len(places) // 2 :]))
                producers = [TransactionalProducer(writer, next(ids)) for _ in range(2)]
                log.refresh()
            case _:
                append(writer, "x")
        if chance.random() < 0.5:
            continue
        log = open_store(log_dir.path)["orders", 0]
        now = look(log, known)
        known = [now.last] if now.last else []
        assert now.end_offset == writer.log_end_offset
        assert stable.find(log, now) == writer.last_stable_offset
        found.add((writer.last_stable_offset, writer.log_end_offset))
    assert any(stable_offset < end for stable_offset, end in found)
    assert any(stable_offset == end for stable_offset, end in found)


def test_a_stream_of_committed_records_waits_for_what_is_not_decided(log_dir):
    writer = log_dir.writer("orders", 0)
    first, second = TransactionalProducer(writer, 1), TransactionalProducer(writer, 2)
    reader = reader_of(log_dir.path, **{"kafka.isolation.level": "read_committed"})
    first.send(1, 1)  # 0, 1
    append(writer, "2")
    start = reader.latestOffset({}, ALL)
    assert start["orders"] == {"0": 0}
    assert read(reader, {}, start) == []
    second.send(1)  # 3
    first.end(1, is_commit=False)  # 4
    end = reader.latestOffset(start, ALL)
    assert end["orders"] == {"0": 3}
    assert [row[2] for row in read(reader, start, end)] == [2]
    second.end(1, is_commit=True)  # 5
    last = reader.latestOffset(end, ALL)
    assert reader.reportLatestOffset() == {"orders": {"0": 6}}
    assert [row[2] for row in read(reader, end, last)] == [3]


def test_a_task_reads_no_more_for_what_was_aborted_than_its_records_need(log_dir, read_bytes):
    writer = log_dir.writer("orders", 0)
    append(writer, *["v" * 10_000] * 200)  # 2 MB
    reader = reader_of(log_dir.path, isolation="read_committed")
    before = reader.latestOffset({}, ALL)
    producer = TransactionalProducer(writer, 1)
    producer.send(1, 1)
    producer.end(1, is_commit=False)
    append(writer, "whole")
    end = reader.latestOffset(before, ALL)
    (task,) = reader.partitions(before, end)
    read_bytes.clear()
    rows = [row for batch in reader.read(task) for row in batch.to_pylist()]
    assert 0 < sum(read_bytes) < 1_000_000
    assert [row["value"] for row in rows] == [b"whole"]


def test_a_partition_that_is_in_no_directory_for_a_moment_is_not_gone(log_dir, monkeypatch):
    append(log_dir.writer("orders", 0), "0")
    append(log_dir.writer("orders", 1), "0")
    reader = reader_of(log_dir.path)
    start = reader.latestOffset({}, ALL)
    moved, away = log_dir.path / "orders-1", log_dir.path.parent / "orders-1"
    moved.rename(away)

    def come_back(_seconds):
        away.rename(moved)

    monkeypatch.setattr("kafkastore.spark.source.streaming.stream_reader.time.sleep", come_back)
    assert reader.latestOffset(start, ALL) == start


# ---------------------------------------------------------------- offsets


def test_a_batch_that_is_repeated_has_the_same_records(log_dir):
    writer = log_dir.writer("orders", 0)
    append(writer, *numbers(0, 5))
    source = KafkaStoreDataSource({"path": str(log_dir.path), "startingTimestamp": "1"})
    reader = source.streamReader(schema=source.schema())
    end = reader.latestOffset(reader.initialOffset(), ALL)
    rows = read(reader, reader.initialOffset(), end)
    append(writer, *numbers(5, 8))
    append(log_dir.writer("orders", 1), "new")
    again = source.streamReader(schema=source.schema())
    assert read(again, again.initialOffset(), end) == rows


def test_offsets_of_sparks_kafka_source_are_understood(log_dir):
    append(log_dir.writer("orders", 0), *numbers(0, 5))
    reader = reader_of(log_dir.path)
    start = {"orders": {"0": 3}}
    end = reader.latestOffset(start, ALL)
    assert [row[2] for row in read(reader, start, end)] == [3, 4]


@pytest.mark.parametrize("offset", [{"orders": 3}, {"orders": {"0": "x"}}, {"@batches": {"o": 1}}])
def test_other_offsets_are_refused(log_dir, offset):
    append(log_dir.writer("orders", 0), "0")
    with pytest.raises(OptionError, match="choose another checkpointLocation"):
        reader_of(log_dir.path).latestOffset(offset, ALL)


def test_a_first_batch_of_which_the_beginning_is_not_known_is_refused(log_dir):
    append(log_dir.writer("orders", 0), "0")
    with pytest.raises(OptionError, match="does not say where its first batch begins in orders-0"):
        reader_of(log_dir.path).partitions({}, {"orders": {"0": 1}})


def test_offsets_are_equal_whatever_order_partitions_were_found_in():
    ways = [
        StreamOffset({("b", 1): 1, ("a", 10): 2, ("a", 9): 3}),
        StreamOffset({("a", 9): 3, ("b", 1): 1, ("a", 10): 2}),
    ]
    texts = {
        json.dumps(StreamOffset.from_json(_as_json(way)).to_json()) for way in ways
    }
    assert texts == {'{"a": {"9": 3, "10": 2}, "b": {"1": 1}}'}


def _as_json(way):
    nested = {}
    for (topic, partition), offset in way.offsets.items():
        nested.setdefault(topic, {})[str(partition)] = offset
    return nested


# ---------------------------------------------------------------- every record once


@pytest.mark.parametrize("seed", range(2))
def test_each_record_is_read_once_whatever_happens_beside(tmp_path, seed):
    writer, chance = Writer(tmp_path / "logs", seed), random.Random(seed)
    for partition in range(3):
        writer.add("orders", partition)
        writer.append(("orders", partition), 3)
    reader = reader_of(writer.log_dir.path)
    delivered, start, repeated = {}, {}, 0
    for _ in range(40):
        for _ in range(chance.randrange(8)):
            writer.step()
        limit = ReadMaxRows(chance.randint(1, 60)) if chance.random() < 0.7 else ALL
        end = reader.latestOffset(start, limit)
        rows = read(reader, start, end)
        if chance.random() < 0.3:  # the query ends, before or behind its delivery
            reader = reader_of(writer.log_dir.path)
            if chance.random() < 0.5:
                writer.step()
                assert read(reader, start, end) == rows
                repeated += bool(rows)
        for topic, partition, offset, value in rows:
            assert (topic, partition, offset) not in delivered
            delivered[topic, partition, offset] = value
        for which in list(writer.truth):
            at = end.get(which[0], {}).get(str(which[1]), 0)
            if chance.random() < 0.2:
                writer.cut_behind(which, at)
            if chance.random() < 0.2:
                writer.delete_before(which, start.get(which[0], {}).get(str(which[1]), 0))
        writer.log_dir.checkpoint()
        start = end
    end = reader.latestOffset(start, ALL)
    delivered |= {row[:3]: row[3] for row in read(reader, start, end)}
    writer.log_dir.close()
    assert delivered == {
        (*which, offset): value
        for which, rows in writer.truth.items()
        for offset, value in rows.items()
    }
    assert repeated > 3
    assert min(writer.cuts, writer.rolls, writer.deletions, len(writer.truth)) > 3


# ---------------------------------------------------------------- through Spark


def started(spark, folder, **options):
    """A query from logs to Parquet files."""
    trigger = options.pop("trigger", {"availableNow": True})
    options = {"startingOffsets": "earliest", **options}
    stream = spark.readStream.format("kafkastore").options(**options).load(str(folder / "logs"))
    writing = stream.writeStream.format("parquet").option("path", str(folder / "sink"))
    return (
        writing.option("checkpointLocation", str(folder / "checkpoint")).trigger(**trigger).start()
    )


def test_available_now_reads_what_is_there_in_batches_of_a_size(spark, log_dir, tmp_path):
    for partition, count in enumerate([60, 30]):
        log_dir.writer("orders", partition).append_records([record(b"x")] * count)
    query = started(spark, tmp_path, maxOffsetsPerTrigger=60)
    assert query.awaitTermination(300)
    assert [each.numInputRows for each in query.recentProgress] == [60, 30]
    source = query.lastProgress.sources[0]
    assert json.loads(source.latestOffset) == {"orders": {"0": 60, "1": 30}}
    assert json.loads(source.startOffset)["orders"] == {"0": 40, "1": 20}
    assert json.loads(source.endOffset)["orders"] == {"0": 60, "1": 30}
    rows = spark.read.parquet(str(tmp_path / "sink"))
    assert rows.columns == ["key", "value", "topic", "partition", "offset", "timestamp",
                            "timestampType"]
    assert rows.distinct().count() == rows.count() == 90


def test_a_loss_ends_a_running_query_with_its_sentence(spark, log_dir, tmp_path):
    writer = log_dir.writer("orders", 0)
    append(writer, *numbers(0, 9))
    running = {"processingTime": "0 seconds"}
    query = started(spark, tmp_path, trigger=running)
    query.processAllAvailable()
    writer.truncate_to(6)
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(300)
    message = str(raised.value).partition(" SQLSTATE")[0].strip()
    assert message.endswith(
        "DataLossError: orders-0 ends at offset 6, and was read up to 9: the log was truncated. "
        "Records may have been missed; to go on with what is there, set failOnDataLoss to false"
    )
    append(writer, "other")
    query = started(spark, tmp_path, failOnDataLoss="false")
    assert query.awaitTermination(300)
    lost = json.loads(query.lastProgress.sources[0].endOffset)["@lost"]
    assert lost["orders"]["0"].startswith("orders-0 ends at offset 7, and was read up to 9")


def test_a_stream_refuses_an_option_with_its_sentence(spark, log_dir, tmp_path):
    append(log_dir.writer("orders", 0), "0")
    query = started(spark, tmp_path, endingOffsets="latest")
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(300)
    message = str(raised.value).partition(" SQLSTATE")[0].strip()
    assert message.endswith("option endingOffsets is not for streams, which have no end")


def test_the_example_of_the_documentation_runs(spark, log_dir, tmp_path):
    append(log_dir.writer("orders", 0), *numbers(0, 3))
    text = (Path(__file__).parents[2] / "docs" / "streaming.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for name, path in (("kafka-logs", "logs"), ("orders.checkpoint", "cp"), ("orders", "rows")):
        example = re.sub(rf'(load\(|"(?:path|checkpointLocation)", )"{name}"',
                         rf"\1{str(tmp_path / path)!r}", example)
    names = {"spark": spark}
    exec(compile(example, "streaming.md", "exec"), names)
    assert names["query"].awaitTermination(300)
    assert spark.read.parquet(str(tmp_path / "rows")).count() == 3


class Processes:
    """A writer and a query in processes of their own, the query killed again and again."""

    def __init__(self, folder, seed, **options):
        self.folder, self.options = folder, options
        for name in ("control", "sink"):
            (folder / name).mkdir()
        self.writer = self.run("write", str(seed))
        self.query = None

    def run(self, *arguments):
        what, argument = arguments
        with (self.folder / f"{what}.log").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, str(PROCESSES), what, str(self.folder), argument],
                stdout=output, stderr=output, start_new_session=True,
            )

    def follow(self, what="follow"):
        self.query = self.run(what, json.dumps(self.options))

    def planned(self):
        """How many batches were planned, delivered or not."""
        return len(list((self.folder / "checkpoint" / "offsets").glob("[0-9]*")))

    def wait_for(self, count, what):
        until = time.monotonic() + 300
        while what() < count:
            assert self.query.poll() is None, (self.folder / "follow.log").read_text()[-4000:]
            assert time.monotonic() < until
            time.sleep(0.01)

    def kill(self):
        """Kill the query's whole process group, as a machine that loses power does."""
        os.killpg(self.query.pid, signal.SIGKILL)
        self.query.wait()

    def stop_writer(self):
        (self.folder / "control" / "stop").touch()
        assert self.writer.wait(60) == 0, (self.folder / "write.log").read_text()[-4000:]

    def check(self, spark):
        """Let the query read the rest; then the sink must hold what was in the logs, once."""
        options = {**self.options, "maxOffsetsPerTrigger": "1000000"}
        query = follow(spark, self.folder, options, availableNow=True)
        assert query.awaitTermination(300)
        first = {
            (topic, int(partition)): offset
            for topic, partitions in offsets_of(self.folder / "checkpoint", 0)["@from"].items()
            for partition, offset in partitions.items()
        }
        truth = json.loads((self.folder / "truth").read_text())
        expected = {}
        for name, rows in truth["records"].items():
            topic, _, partition = name.rpartition("-")
            which = (topic, int(partition))
            for offset, value in rows.items():
                if int(offset) >= first.get(which, 0):
                    expected[(*which, int(offset))] = value
        rows = self.delivered("*")
        assert {row[:3]: row[3] for row in rows} == expected
        assert len(rows) == len(expected)
        return truth

    def delivered(self, batch):
        """The rows of one batch in the sink, or of all."""
        name = batch if batch == "*" else f"{batch:06}"
        paths = sorted(str(path) for path in (self.folder / "sink").glob(f"{name}/*.parquet"))
        rows = pyarrow.dataset.dataset(paths, format="parquet").to_table().to_pylist()
        return sorted(
            (row["topic"], row["partition"], row["offset"], row["value"].decode()) for row in rows
        )


@pytest.fixture
def processes(tmp_path):
    begun = []

    def begin(seed, **options):
        begun.append(Processes(tmp_path, seed, **options))
        return begun[-1]

    yield begin
    for each in begun:
        for process in (each.query, each.writer):
            if process is not None and process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.mark.soak
def test_a_first_batch_is_the_same_after_a_kill_between_delivery_and_commit(spark, processes):
    running = processes(1, maxOffsetsPerTrigger="100", startingOffsets="earliest")
    delivered = running.folder / "control" / "delivered"
    running.follow("hang")
    running.wait_for(1, lambda: int(delivered.exists()))
    running.kill()
    first = running.delivered(0)
    assert not list((running.folder / "checkpoint" / "commits").glob("[0-9]*"))
    running.stop_writer()
    truth = running.check(spark)
    assert running.delivered(0) == first
    assert 0 < len(first) < sum(map(len, truth["records"].values()))


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [int(os.environ.get("KAFKASTORE_SEED", "7"))])
def test_a_query_that_is_killed_again_and_again_delivers_each_record_once(
    spark, processes, seed
):
    chance = random.Random(seed)
    running = processes(seed, maxOffsetsPerTrigger="2000")
    for _ in range(4):
        running.follow()
        running.wait_for(running.planned() + chance.randint(1, 3), running.planned)
        time.sleep(chance.random())
        running.kill()
    running.stop_writer()
    truth = running.check(spark)
    assert truth["cuts"] > 0
    assert truth["rolls"] > 0
    assert truth["deletions"] > 0
