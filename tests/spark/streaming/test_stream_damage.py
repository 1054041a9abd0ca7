"""Streams over logs that are corrupt, or become so while they grow."""
import json

import pytest
from models.damaged_store import closed_log, flip_length, flip_payload, zero_batch
from pyspark.errors import StreamingQueryException
from spark.streaming.streams import ALL, append, numbers, read, reader_of
from spark.streaming.test_queries import started

from kafkastore.errors import CorruptBatchError


@pytest.mark.parametrize("damage", [flip_length, flip_payload, zero_batch])
@pytest.mark.parametrize("segment", [0, 1, 2])
def test_a_stream_continues_past_damage_anywhere(log_dir, tmp_path, damage, segment, caplog):
    """Damage in closed segments and in the active one; before and after what was read."""
    writer = log_dir.writer("orders", 0)
    for number in range(3):
        append(writer, *numbers(5 * number, 5 * number + 5))
        if number < 2:
            writer.roll()
    logs = tmp_path / "logs"
    damage(closed_log(logs, "orders-0", segment), 2)
    lost = 5 * segment + 2
    with pytest.raises(CorruptBatchError):
        reader = reader_of(logs)
        read(reader, {}, reader.latestOffset({}, ALL))
    reader = reader_of(logs, onCorrupt="skip")
    end = reader.latestOffset({}, ALL)
    rows = read(reader, {}, end)
    assert [row[2] for row in rows] == [each for each in range(15) if each != lost]
    assert caplog.text.count("skipped bytes") == 1
    caplog.clear()
    append(writer, "more")
    again = reader_of(logs, onCorrupt="skip")  # as after a restart
    after = again.latestOffset(json.loads(json.dumps(end)), ALL)
    assert [row[2] for row in read(again, end, after)] == [15]
    assert "skipped bytes" not in caplog.text


@pytest.mark.parametrize("damage", [flip_length, flip_payload, zero_batch])
def test_a_stream_continues_if_records_it_has_read_are_damaged(log_dir, tmp_path, damage):
    writer = log_dir.writer("orders", 0)
    append(writer, *numbers(0, 5))
    logs = tmp_path / "logs"
    reader = reader_of(logs, onCorrupt="skip")
    end = reader.latestOffset({}, ALL)
    assert len(read(reader, {}, end)) == 5
    append(writer, *numbers(5, 8))
    writer.roll()
    append(writer, "8")
    damage(closed_log(logs, "orders-0", 0), 3)
    for again in (reader, reader_of(logs, onCorrupt="skip")):
        after = again.latestOffset(end, ALL)
        assert [row[2] for row in read(again, end, after)] == [5, 6, 7, 8]


@pytest.mark.soak
def test_a_query_continues_past_damage_and_from_its_checkpoint(spark, log_dir, tmp_path):
    writer = log_dir.writer("orders", 0)
    append(writer, *numbers(0, 5))
    running = {"onCorrupt": "skip", "maxOffsetsPerTrigger": 3}
    assert started(spark, tmp_path, "parquet").awaitTermination(300)
    writer.roll()
    append(writer, *numbers(5, 9))
    writer.roll()
    append(writer, "9")
    flip_length(closed_log(tmp_path / "logs", "orders-0", 1))
    query = started(spark, tmp_path, "parquet")
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(300)
    assert str(raised.value).count("CorruptBatchError: ") == 1
    assert started(spark, tmp_path, "parquet", **running).awaitTermination(300)
    rows = spark.read.parquet(str(tmp_path / "sink")).select("offset").collect()
    assert sorted(row.offset for row in rows) == [0, 1, 2, 3, 4, 5, 7, 8, 9]
