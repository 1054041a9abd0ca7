"""Tasks of a stream whose logs were truncated or damaged since they were planned."""
import shutil

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from spark.raised import fields, losses
from spark.streaming.streams import ALL, append, numbers, read, reader_of

import kafkastore
from kafkastore.errors import CorruptBatchError
from kafkastore.formats.state.checkpoints import parse_offset_checkpoint
from kafkastore.log.damage import SkippedBytes
from kafkastore.spark.source.streaming.stream_tasks import plan_tasks
from kafkastore.store.data_loss import Loss
from kafkastore.store.log_store import open_store


def test_a_corrupt_batch_with_others_after_it_fails_the_task(log_dir, caplog):
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
    with pytest.raises(CorruptBatchError) as caught:
        read(reader, {}, end)
    assert (caught.value.path, caught.value.position is None) == (path, False)
    rows = read(reader_of(copy, failOnDataLoss="false"), {}, end)
    assert [row[3] for row in rows] == ["0"]
    warned = [each for record in caplog.records for each in record.args]
    (skipped,) = (each for each in warned if isinstance(each, SkippedBytes))
    assert (skipped.path, skipped.position) == (path, caught.value.position)
    assert (skipped.start_offset, skipped.end_offset) == (1, None)


@pytest.mark.parametrize("change", ["cut", "rewritten", "deleted", "directory deleted"])
def test_a_task_that_runs_too_late_fails(log_dir, change, caplog):
    writer = log_dir.writer("orders", 0, {"segment.bytes": 150, "retention.ms": -1})
    append(writer, *numbers(0, 9))
    reader = reader_of(log_dir.path)
    end = reader.latestOffset({}, ALL)
    tasks = reader.partitions({}, end)
    if change in ("cut", "rewritten"):
        writer.truncate_to(5)
    if change == "rewritten":
        append(writer, *"abcdef")
    if change == "deleted":
        writer.delete_records(5)
        writer.delete_old_segments()
    if change == "directory deleted":
        writer.path.rename(writer.path.with_name("elsewhere"))
    loss = {
        "cut": ("truncated", "orders-0", 5),
        "rewritten": ("rewritten", "orders-0", 9),
        "deleted": ("deleted", "orders-0", 4),
        "directory deleted": ("gone", "orders-0", 9),
    }[change]
    with losses(loss):
        [list(reader.read(task)) for task in tasks]
    if change == "directory deleted":
        with losses(loss):
            reader.partitions({}, end)
    indulgent = reader_of(log_dir.path, failOnDataLoss="false")
    rows = [row for task in tasks for batch in indulgent.read(task) for row in batch.to_pylist()]
    assert [row["value"].decode() for row in rows] == {
        "cut": numbers(0, 5), "rewritten": [*numbers(0, 5), *"abcd"],
        "deleted": numbers(4, 9), "directory deleted": [],
    }[change]
    warned = [each for record in caplog.records for each in record.args if isinstance(each, Loss)]
    assert {fields(each) for each in warned} == {loss}
    if change == "directory deleted":
        writer.path.with_name("elsewhere").rename(writer.path)


@pytest.mark.parametrize("limit", [3, 5])
def test_bytes_that_break_off_before_records_fail_the_task(log_dir, limit):
    writer = log_dir.writer("orders", 0)
    append(writer, *numbers(0, 3))
    writer.roll()
    append(writer, *numbers(3, 5))
    copy = log_dir.path.parent / "copy" / "orders-0"
    shutil.copytree(writer.path, copy)
    path = copy / f"{0:020}.log"
    path.write_bytes(path.read_bytes()[:-5])
    reader = reader_of(copy)
    end = reader.latestOffset({}, ReadMaxRows(limit))
    assert end["orders"] == {"0": limit}
    with pytest.raises(CorruptBatchError) as caught:
        read(reader, {}, end)
    assert str(caught.value.path) == str(path)


def test_retention_while_tasks_are_planned_is_met_by_the_task(log_dir):
    writer = log_dir.writer("orders", 0, {"segment.bytes": 150, "retention.ms": -1})
    append(writer, *numbers(0, 9))
    log = open_store(log_dir.path)["orders", 0]
    assert len(log.segments) > 3
    writer.delete_records(5)
    writer.delete_old_segments()
    reader = reader_of(log_dir.path, minPartitions="3")
    tasks = plan_tasks([(log, 0, 9)], {}, reader.options.read)
    assert tasks[0].slices[0].start_offset == 0
    with losses(("deleted", "orders-0", 4)):
        [list(reader.read(task)) for task in tasks]


def test_a_task_reads_a_checkpoint_once_for_all_its_partitions(log_dir, monkeypatch):
    for partition in range(10):
        append(log_dir.writer("orders", partition), "0")
    log_dir.checkpoint()
    reader = reader_of(log_dir.path)
    end = reader.latestOffset({}, ALL)
    (task,) = reader.partitions({}, end)
    parsed = []

    def counted(data):
        parsed.append(data)
        return parse_offset_checkpoint(data)

    monkeypatch.setattr(kafkastore.log.log_dir, "parse_offset_checkpoint", counted)
    assert sum(batch.num_rows for batch in reader.read(task)) == 10
    assert len(parsed) == 1
