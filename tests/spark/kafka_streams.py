"""Streams written for Spark's Kafka source, run on a broker and on its directory.

    python kafka_streams.py REQUEST.json OUT

The request has ``jars``, ``logs``, ``server`` and ``streams``: options each, as the Kafka source
takes them. Every stream runs with ``Trigger.AvailableNow`` from either source. Then records are
added to the partitions of ``added``, and streams with ``_again`` run once more, from their
checkpoints: with ``moved`` from the directory, too, by the checkpoint that the Kafka source has
left. OUT gets ``<number>.<format>.json``: of each run the schema and the rows by batch, or what was
raised.
"""
from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

#: Not an option: whether there is a second run, and whether that begins where Kafka's source was.
AGAIN = "_again"
SOURCES = ("kafkastore", "kafka")
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def run(spark: SparkSession, source: str, path: str | None, options: dict[str, str],
        checkpoint: Path) -> dict[str, Any]:
    """Run a stream to the current end."""
    batches: list[list[Any]] = []

    def deliver(frame: DataFrame, _number: int) -> None:
        order = ["topic", "partition", "offset"]
        rows = frame.sort(*order).toArrow().to_pylist()
        if rows:
            batches.append([[repr(row[name]) for name in COLUMNS if name in row] for row in rows])

    try:
        frame = spark.readStream.format(source).options(**options).load(path)
        query = (
            frame.writeStream.foreachBatch(deliver)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    except Exception as error:
        return {"error": str(error)}
    return {"schema": frame.schema.json(), "batches": batches}


def main(request_file: str, out: str) -> None:
    from kafkastore.spark import register, session

    request = json.loads(Path(request_file).read_text())
    spark = session(
        "local[2]", "tests",
        **{"spark.jars": ",".join(request["jars"]), "spark.driver.memory": "1g",
           "spark.sql.shuffle.partitions": "1"},
    )
    register(spark)
    answers: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for turn in range(2):
        for number, given in enumerate(request["streams"]):
            options = {name: value for name, value in given.items() if name != AGAIN}
            if turn == 1 and AGAIN not in given:
                continue
            ours, theirs = (Path(out, f"{number}.{source}.checkpoint") for source in SOURCES)
            if turn == 1 and given[AGAIN] == "moved":
                shutil.rmtree(ours)
                shutil.copytree(theirs, ours)
            for source, path, checkpoint in (
                ("kafkastore", request["logs"], ours), ("kafka", None, theirs)
            ):
                answer = run(spark, source, path, options, checkpoint)
                answers.setdefault((number, source), []).append(answer)
        for topic, partition in request["added"] if turn == 0 else ():
            more = spark.range(20).selectExpr(
                f"'{topic}' topic", f"{partition} partition", "cast(id as string) key",
                "repeat('added', cast(id as int)) value",
            )
            more.coalesce(1).write.format("kafka").options(**request["server"]).save()
    for (number, source), answer in answers.items():
        Path(out, f"{number}.{source}.json").write_text(json.dumps(answer))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
