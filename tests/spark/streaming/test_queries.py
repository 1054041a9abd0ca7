"""Streams through Spark."""
import json
import re
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from spark.streaming.processes import record
from spark.streaming.streams import append, numbers


def started(spark, folder, sink="noop", **options):
    """A query from logs to a sink."""
    trigger = options.pop("trigger", {"availableNow": True})
    options = {"startingOffsets": "earliest", **options}
    stream = spark.readStream.format("kafkastore").options(**options).load(str(folder / "logs"))
    writing = stream.writeStream.format(sink).option("path", str(folder / "sink"))
    return (
        writing.option("checkpointLocation", str(folder / "checkpoint")).trigger(**trigger).start()
    )


@pytest.mark.soak
def test_available_now_reads_existing_records_in_batches_of_a_size(spark, log_dir, tmp_path):
    for partition, count in enumerate([60, 30]):
        log_dir.writer("orders", partition).append_records([record(b"x")] * count)
    query = started(spark, tmp_path, "parquet", maxOffsetsPerTrigger=60)
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


def test_a_loss_ends_a_running_query(spark, log_dir, tmp_path):
    writer = log_dir.writer("orders", 0)
    append(writer, *numbers(0, 9))
    running = {"processingTime": "0 seconds"}
    query = started(spark, tmp_path, trigger=running)
    query.processAllAvailable()
    writer.truncate_to(6)
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(300)
    assert str(raised.value).count("DataLossError: ") == 1


@pytest.mark.soak
def test_a_tolerated_loss_is_in_the_progress(spark, log_dir, tmp_path):
    writer = log_dir.writer("orders", 0)
    append(writer, *numbers(0, 9))
    assert started(spark, tmp_path).awaitTermination(300)
    writer.truncate_to(6)
    append(writer, "other")
    query = started(spark, tmp_path, failOnDataLoss="false")
    assert query.awaitTermination(300)
    lost = json.loads(query.lastProgress.sources[0].endOffset)["@lost"]
    assert lost.keys() == {"orders"}
    assert "orders-0" in lost["orders"]["0"]


def test_a_stream_refuses_an_option(spark, log_dir, tmp_path):
    append(log_dir.writer("orders", 0), "0")
    query = started(spark, tmp_path, endingOffsets="latest")
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(300)
    assert str(raised.value).count("OptionError: ") == 1
    assert "endingOffsets" in str(raised.value)


def test_the_example_of_the_documentation_runs(spark, log_dir, tmp_path):
    append(log_dir.writer("orders", 0), *numbers(0, 3))
    text = (Path(__file__).parents[3] / "docs" / "streaming.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for name, path in (("kafka-logs", "logs"), ("orders.checkpoint", "cp"), ("orders", "rows")):
        example = re.sub(rf'(load\(|"(?:path|checkpointLocation)", )"{name}"',
                         rf"\1{str(tmp_path / path)!r}", example)
    names = {"spark": spark}
    exec(compile(example, "streaming.md", "exec"), names)
    assert names["query"].awaitTermination(300)
    assert spark.read.parquet(str(tmp_path / "rows")).count() == 3
    progress = names["query"].lastProgress.sources[0]
    assert json.loads(progress.latestOffset) == {"orders": {"0": 3}}
    assert json.loads(progress.endOffset)["orders"] == {"0": 3}
