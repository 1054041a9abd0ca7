"""New records in logs that grow, roll, appear and disappear."""
import json
import os
import shutil
import time
from types import SimpleNamespace

import pytest
from spark.streaming.processes import record
from spark.streaming.streams import ALL, append, read, reader_of

from kafkastore import LogDirWriter
from kafkastore.spark.source.data_source import KafkaStoreDataSource
from kafkastore.spark.source.schema import spark_schema


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


def test_a_stream_of_an_empty_directory_begins_with_the_first_record(log_dir):
    reader = KafkaStoreDataSource({"path": str(log_dir.path)}).streamReader(spark_schema())
    start = reader.latestOffset(reader.initialOffset(), ALL)
    assert start != reader.initialOffset()
    assert reader.latestOffset(start, ALL) is start
    assert reader.reportLatestOffset() is None
    append(log_dir.writer("orders", 0), "0")
    end = reader.latestOffset(start, ALL)
    assert read(reader, start, end) == [("orders", 0, 0, "0")]


def test_topics_that_are_not_subscribed_are_not_followed(log_dir):
    for topic in ("orders", "payments"):
        append(log_dir.writer(topic, 0), "0")
    reader = reader_of(log_dir.path, subscribePattern="^ord")
    append(log_dir.writer("orders", 1), "1")
    end = reader.latestOffset({}, ALL)
    assert {row[0] for row in read(reader, {}, end)} == {"orders"}
    assert end["orders"] == {"0": 1, "1": 1}


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("tail", [b"\0" * 100, "little", "half", "damaged"], ids=str)
def test_the_end_is_after_the_last_complete_batch(log_dir, tail, isolation):
    writer = log_dir.writer("orders", 0)
    append(writer, "0", "1", "2")
    path = writer.path / f"{0:020}.log"
    complete = path.read_bytes()
    batch = len(complete) // 3
    third = complete[2 * batch :]
    tails = {"little": third[:10], "half": third[:-5], "damaged": third[:-1] + b"\xff"}
    copy = log_dir.path.parent / "copy" / "orders-0"
    shutil.copytree(writer.path, copy)
    copied = copy / path.name
    copied.write_bytes(complete[: 2 * batch] + tails.get(tail, tail))
    reader = reader_of(copy, isolation=isolation)
    first = reader.latestOffset({}, ALL)
    assert [row[3] for row in read(reader, {}, first)] == ["0", "1"]
    copied.write_bytes(complete)  # what was being written is there now
    second = reader.latestOffset(first, ALL)
    assert [row[3] for row in read(reader, first, second)] == ["2"]


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


def instead_of_waiting(monkeypatch, change):
    """Let something change while the reader waits; other threads sleep as before."""
    monkeypatch.setattr(
        "kafkastore.spark.source.streaming.stream_reader.time",
        SimpleNamespace(sleep=change, monotonic=time.monotonic),
    )


def test_a_partition_briefly_in_no_directory_is_not_deleted(log_dir, monkeypatch):
    append(log_dir.writer("orders", 0), "0")
    append(log_dir.writer("orders", 1), "0")
    reader = reader_of(log_dir.path)
    start = reader.latestOffset({}, ALL)
    moved, away = log_dir.path / "orders-1", log_dir.path.parent / "orders-1"
    moved.rename(away)

    def come_back(_seconds):
        away.rename(moved)

    instead_of_waiting(monkeypatch, come_back)
    assert reader.latestOffset(start, ALL) == start


@pytest.mark.parametrize("question", ["what is new", "which tasks"])
def test_a_partition_that_is_in_two_directories_for_a_moment_is_waited_for(
    log_dir, monkeypatch, question
):
    append(log_dir.writer("orders", 0), "0")
    other = log_dir.path.parent / "other"
    with LogDirWriter(other) as writing:
        append(writing.writer("orders", 1), "1")
    source = KafkaStoreDataSource(
        {"paths": json.dumps([str(log_dir.path), str(other)]), "startingOffsets": "earliest"}
    )
    reader = source.streamReader(source.schema())
    end = reader.latestOffset({}, ALL)
    shutil.copytree(other / "orders-1", log_dir.path / "orders-1")

    def moved(_seconds):
        shutil.rmtree(other / "orders-1")

    instead_of_waiting(monkeypatch, moved)
    if question == "what is new":
        assert reader.latestOffset(end, ALL) is end
    else:
        assert [row[3] for row in read(reader, {}, end)] == ["0", "1"]


def test_preallocated_space_is_not_read(log_dir, read_bytes):
    writer = log_dir.writer("orders", 0)
    append(writer, *["x" * 3000] * 50)
    copy = log_dir.path.parent / "copy" / "orders-0"
    shutil.copytree(writer.path, copy)
    path = copy / f"{0:020}.log"
    written = path.stat().st_size
    os.truncate(path, 64 << 20)  # as log.preallocate does; zeros without blocks
    reader = reader_of(copy)
    start = reader.latestOffset({}, ALL)
    assert start["orders"] == {"0": 50}
    assert sum(read_bytes) < 4 * written
    read_bytes.clear()
    append(writer, "y" * 3000)
    with path.open("r+b") as log:
        log.seek(written)
        log.write((writer.path / path.name).read_bytes()[written:])
    end = reader.latestOffset(start, ALL)
    assert end["orders"] == {"0": 51}
    assert reader.latestOffset(end, ALL) is end
    assert sum(read_bytes) < 100_000
    assert [row[2] for row in read(reader, start, end)] == [50]
