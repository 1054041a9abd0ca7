"""Processes of the streaming tests: one writes logs, one is a query that is killed.

Run as a script: ``write <folder> <seed>``, ``follow <folder> <options>``, or ``hang``, which
delivers one batch and never commits it. The folder has `logs`, `sink`, `checkpoint` and `control`.
"""
from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from kafkastore import LogDirWriter
from kafkastore.formats.records.record_batch import Record, TimestampType
from kafkastore.spark import register, session
from kafkastore.writing.log_writer import LogWriter


def record(value: bytes) -> Record:
    """A record that differs from others in its value only."""
    return Record(0, 1_700_000_000_000, TimestampType.CREATE_TIME, b"key", value, (), None)


class Writer:
    """A log directory that changes, and all records that it has held."""

    def __init__(self, logs: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.log_dir = LogDirWriter(logs)
        self.truth: dict[tuple[str, int], dict[int, str]] = {}
        self.batches: dict[tuple[str, int], list[int]] = {}
        self.epochs: dict[tuple[str, int], int] = {}
        self.count = 0
        self.cuts = self.rolls = self.deletions = 0

    def add(self, topic: str, partition: int) -> None:
        """Make a partition, of very small segments."""
        config = {"segment.bytes": 5000, "retention.ms": -1}
        self.log_dir.writer(topic, partition, config)
        which = (topic, partition)
        self.truth[which], self.batches[which], self.epochs[which] = {}, [], 0

    def writer(self, which: tuple[str, int]) -> LogWriter:
        """The writer of a partition."""
        return next(each for name, each in self.log_dir.writers.items() if tuple(name) == which)

    def append(self, which: tuple[str, int], count: int) -> None:
        """Append one batch."""
        values = [f"{which[0]}-{which[1]} {self.count + each}" for each in range(count)]
        self.count += count
        info = self.writer(which).append_records(
            [record(value.encode()) for value in values], leader_epoch=self.epochs[which]
        )
        self.batches[which].append(info.first_offset)
        self.truth[which].update(enumerate(values, info.first_offset))

    def cut(self, which: tuple[str, int], offset: int) -> None:
        """Truncate where a batch begins, as a follower does; often a new leader follows."""
        self.writer(which).truncate_to(offset)
        self.batches[which] = [each for each in self.batches[which] if each < offset]
        for each in [each for each in self.truth[which] if each >= offset]:
            del self.truth[which][each]
        self.epochs[which] += self.random.randrange(2)
        self.cuts += 1

    def cut_at_or_after(self, which: tuple[str, int], offset: int) -> None:
        """Truncate anywhere at or after an offset, and write something else there."""
        if places := [each for each in self.batches[which] if each >= offset]:
            self.cut(which, self.random.choice(places))
            if self.random.random() < 0.7:
                self.append(which, self.random.randint(1, 40))

    def delete_before(self, which: tuple[str, int], offset: int) -> None:
        """Let retention delete the records before an offset."""
        self.writer(which).delete_records(offset)
        self.deletions += len(self.writer(which).delete_old_segments().deletions)

    def step(self) -> None:
        """Append, and sometimes roll or add a partition."""
        which = self.random.choice(list(self.truth))
        self.append(which, self.random.randint(1, 12))
        chance = self.random.random()
        if chance < 0.05:
            self.writer(which).roll()
            self.rolls += 1
        elif chance < 0.07 and len(self.truth) < 8:
            self.add(*self.random.choice([("orders", len(self.truth)), (f"t{len(self.truth)}", 0)]))


def write(folder: Path, seed: int) -> None:
    """Write until asked to stop; cut and delete when, and where, the query says that it is safe."""
    writer = Writer(folder / "logs", seed)
    for partition in range(3):
        writer.add("orders", partition)
    control = folder / "control"
    while not (control / "stop").exists():
        writer.step()
        for request in sorted(control.glob("*.request")):
            bounds = json.loads(request.read_text())
            for topic, partitions in bounds["ends"].items():
                for partition, end in partitions.items():
                    which = (topic, int(partition))
                    if writer.random.random() < 0.5:
                        writer.cut_at_or_after(which, end)
                    if writer.random.random() < 0.5:
                        starts = bounds["starts"].get(topic, {})
                        writer.delete_before(which, starts.get(partition, 0))
            writer.log_dir.checkpoint()
            request.rename(request.with_suffix(".done"))
        time.sleep(0.05)
    writer.log_dir.close()
    truth = {f"{topic}-{number}": rows for (topic, number), rows in writer.truth.items()}
    counts = {"cuts": writer.cuts, "rolls": writer.rolls, "deletions": writer.deletions}
    (folder / "truth").write_text(json.dumps({"records": truth, **counts}))


def offsets_of(checkpoint: Path, batch: int) -> dict[str, Any]:
    """The end of a batch by a query's checkpoint."""
    text = (checkpoint / "offsets" / str(batch)).read_text()
    return json.loads(text.splitlines()[-1])


def follow(
    spark: SparkSession,
    folder: Path,
    options: dict[str, str],
    *,
    hangs: bool = False,
    **trigger: Any,
) -> StreamingQuery:
    """Start a query whose sink holds each batch once, by its number."""

    def deliver(frame: DataFrame, batch: int) -> None:
        rows = frame.select("topic", "partition", "offset", "value")
        rows.write.mode("overwrite").parquet(str(folder / "sink" / f"{batch:06}"))
        if hangs:
            (folder / "control" / "delivered").touch()
            time.sleep(600)
        if not trigger:  # the next batch is planned only after this
            ask_for_cuts(folder, batch)

    stream = spark.readStream.format("kafkastore").options(**options).load(str(folder / "logs"))
    writing = stream.writeStream.foreachBatch(deliver)
    return (
        writing.option("checkpointLocation", str(folder / "checkpoint")).trigger(
            **(trigger or {"processingTime": "0 seconds"})
        )
    ).start()


def ask_for_cuts(folder: Path, batch: int) -> None:
    """Have the writer truncate after this batch and delete before it; wait until it did."""
    checkpoint = folder / "checkpoint"
    bounds = {
        "ends": _topics(offsets_of(checkpoint, batch)),
        "starts": _topics(offsets_of(checkpoint, batch - 1)) if batch else {},
    }
    request = folder / "control" / f"{batch:06}-{os.getpid()}.request"
    unfinished = request.with_suffix(".part")
    unfinished.write_text(json.dumps(bounds))
    unfinished.rename(request)
    until = time.monotonic() + 800
    while request.exists() and time.monotonic() < until:
        time.sleep(0.005)


def _topics(offset: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in offset.items() if not name.startswith("@")}


def main(what: str, folder: Path, argument: str) -> None:
    """Run as a separate process."""
    if what == "write":
        write(folder, int(argument))
    else:
        spark = session("local[2]", "follow", **{"spark.driver.memory": "1g"})
        register(spark)
        query = follow(spark, folder, json.loads(argument), hangs=what == "hang")
        query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
