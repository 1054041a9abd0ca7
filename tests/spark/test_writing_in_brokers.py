"""Real brokers are started on logs that Spark wrote, and consumers get the frame's rows."""
import pytest
from models.seed import some
from spark.frames import expected_rows, rows_of

import kafkastore

pytestmark = pytest.mark.kafka

NOW = 1_500_000_000_000
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


@pytest.mark.parametrize("version", some(["2.4.0", "3.9.1", "4.3.1"], 2, __name__))
def test_consumers_get_the_rows_that_were_written(spark, load_into_broker, tmp_path, version):
    target = tmp_path / "written"
    frame = spark.range(0, 600, 1, 4).selectExpr(
        "if(id % 3 = 0, 'plain', 'other') topic",
        "cast(id % 2 as int) partition",
        "if(id % 5 = 0, null, cast(id as string)) key",
        "if(id % 7 = 0, null, cast(repeat(cast(id as string), cast(id % 40 as int)) as binary))"
        " value",
        f"timestamp_millis({NOW} + id * 10) timestamp",
        "if(id % 2 = 0, null, array(struct('n' as key, cast(id as string) as value),"
        " struct('' as key, cast(null as string) as value))) headers",
    ).withColumn("headers", _as_headers())
    kept = frame.where("topic = 'other'").selectExpr(
        "'kept' topic", "partition", "key", "value", "headers", "timestamp",
        "cast(5000 + unix_millis(timestamp) % 10000 as long) offset",
    )
    small = {"segment.bytes": 5000, "batch.size": 700, "index.interval.bytes": 200}
    write = [
        (frame.where("topic = 'plain'"), {"compression": "none", **small}),
        (frame.where("topic = 'other'").repartition("topic", "partition"), {"compression": "zstd"}),
        (kept, {"compression": "lz4", **small}),
        (
            frame.where("topic = 'plain' and key is not null").drop("partition"),
            {"topic": "keyed", "partitions": 3, "compression": "snappy"},
        ),
    ]
    for each, options in write:
        each.write.format("kafkastore").mode("append").options(**options).save(str(target))
    assert {found.severity for found in kafkastore.verify(target)} <= {kafkastore.Severity.STYLE}
    said = load_into_broker(
        [path for path in sorted(target.iterdir()) if path.is_dir()],
        version,
        topic_config={"segment.bytes": 1048576},
        appended_timestamps=[NOW + 10**8],
    )
    got = expected_rows(said.answers, headers=True)
    read = spark.read.format("kafkastore").option("includeHeaders", True).load(str(target))
    assert rows_of(read.select(COLUMNS).toArrow()) == got
    for topic, rows in (("plain", frame), ("other", frame), ("kept", kept)):
        given = rows_of(
            rows.where(f"topic = '{topic}'")
            .selectExpr(
                "cast(key as binary) key", "value", "topic", "partition",
                "offset" if topic == "kept" else "0L offset", "timestamp", "0 timestampType",
                "headers",
            )
            .toArrow()
        )
        ours = [row for row in got if row[2] == topic]
        without_offset = sorted((*row[:4], *row[5:]) for row in map(_comparable, given))
        assert without_offset == sorted((*row[:4], *row[5:]) for row in map(_comparable, ours))
        if topic == "kept":
            assert sorted(map(_comparable, given)) == sorted(map(_comparable, ours))
    keyed = [row for row in got if row[2] == "keyed"]
    assert len(keyed) == frame.where("topic = 'plain' and key is not null").count()
    # In addition, a broker appended one record of its own to each log.
    for name, partition_answers in said.answers["partitions"].items():
        assert partition_answers["records"][0][0] == kafkastore.open(target)[name].log_start_offset
        after = list(kafkastore.open(said.logs)[name].records())
        assert after[-1].offset == kafkastore.open(target)[name].log_end_offset
    logged = [line for line in said.answers["broker_log"] if "WARN" in line or "ERROR" in line]
    assert not logged


def _as_headers():
    from pyspark.sql.functions import expr

    return expr("cast(headers as array<struct<key: string, value: binary>>)")


def _comparable(row):
    """A row in which nothing is null."""
    return tuple((value is not None, value or 0) if value is None else (True, value)
                 for value in row)
