"""The new records that a trigger takes, and their division into tasks."""
import time

from pyspark.sql.streaming.datasource import ReadMaxRows, ReadMinRows
from spark.streaming.processes import record
from spark.streaming.streams import ALL, append, numbers, read, reader_of


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


def test_tasks_have_few_records_and_are_many_on_request(log_dir):
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
