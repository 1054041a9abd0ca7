"""The contents of a checkpoint; with it each record is delivered once."""
import json
import random

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from spark.refused_options import option_refused
from spark.streaming.processes import Writer
from spark.streaming.streams import ALL, append, numbers, read, reader_of

from kafkastore.spark.source.data_source import KafkaStoreDataSource
from kafkastore.spark.source.streaming.stream_offsets import StreamOffset


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
    with option_refused("value", "checkpointLocation"):
        reader_of(log_dir.path).latestOffset(offset, ALL)


def test_a_first_batch_of_which_the_beginning_is_not_known_is_refused(log_dir):
    append(log_dir.writer("orders", 0), "0")
    with option_refused("missing", "checkpointLocation"):
        reader_of(log_dir.path).partitions({}, {"orders": {"0": 1}})


def test_offsets_are_equal_for_any_order_of_partitions():
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


@pytest.mark.parametrize("seed", range(2))
def test_each_record_is_read_once_during_any_changes(tmp_path, seed):
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
        if chance.random() < 0.3:  # the query ends, before or after its delivery
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
                writer.cut_at_or_after(which, at)
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
