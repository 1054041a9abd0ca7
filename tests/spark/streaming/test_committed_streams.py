"""Streams of committed records."""
import random

import pytest
from log.written_logs import TransactionalProducer
from spark.streaming.streams import ALL, append, read, reader_of

from kafkastore.store.growing_logs import StableEnd, inspect_log
from kafkastore.store.log_store import open_store


@pytest.mark.parametrize("seed", range(2))
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
        now = inspect_log(log, known)
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


def test_a_task_reads_only_the_transaction_indexes_that_it_needs(log_dir, read_bytes):
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
