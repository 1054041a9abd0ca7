"""Compare the data source with Spark's Kafka source on the same topic, and print one table.

usage:  run.py spark [--only MEASURE ...] [--warm-up N] [--rounds N] [--work DIR]

All sides run in one session, in turn. README.md says what is measured.
"""
from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from build_peers import PEERS, make_data
from contestant import Failed
from data import log_path
from local_broker import TOPIC, broker_with

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DATA_SET = "b"
SUM, COUNT = ("sum(length(value))", "count(*)"), ("count(*)",)
#: Spark's own schema of its Kafka source.
SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " timestampType int"
)
READY_ROWS = 10_000
PARTS = 2
EMPTY = "kafkastore, nothing to read"
READY = "ready-made batches"


class Bar(NamedTuple):
    """A requirement on the first side of a measure, relative to some others.

    It is at least `times` as fast as the best of `others`, or takes at most `seconds` longer.
    """

    others: tuple[str, ...]
    times: float = 0
    seconds: float | None = None


class Measure(NamedTuple):
    """A query, and the sides that run it; meeting any one bar is enough."""

    name: str
    columns: tuple[str, ...]
    sides: dict[str, Callable[[], DataFrame]]
    bars: tuple[Bar, ...]
    is_same_answer: bool = True


class Samples(NamedTuple):
    """The results of one side."""

    measure: str
    who: str
    answer: list[int | None]
    wall: list[float]
    cpu: list[float]


def ready_made(value_bytes: int, rows: int) -> type:
    """Return a source that yields one batch repeatedly: no Python source can be faster."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):  # type: ignore[misc]
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(PARTS)]

        def read(self, partition: InputPartition) -> Iterator[object]:
            import numpy as np
            import pyarrow as pa

            def batch(count: int) -> pa.RecordBatch:
                offsets = np.arange(count)
                columns = [
                    pa.array([b"12345678"] * count, pa.binary()),
                    pa.array([b"v" * value_bytes] * count, pa.binary()),
                    pa.array(["benchmark"] * count),
                    pa.array(np.zeros(count, np.int32)),
                    pa.array(offsets),
                    pa.array(offsets * 1000, pa.timestamp("us", "UTC")),
                    pa.array(np.zeros(count, np.int32)),
                ]
                names = [column.split()[0] for column in SCHEMA.split(", ")]
                return pa.RecordBatch.from_arrays(columns, names)

            share = rows // PARTS + (rows % PARTS if partition.value == 0 else 0)
            full = batch(min(READY_ROWS, share))
            for _ in range(share // READY_ROWS):
                yield full
            if share % READY_ROWS:
                yield full.slice(0, share % READY_ROWS)

    class ReadyMade(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return "ready_made"

        def schema(self) -> str:
            return SCHEMA

        def reader(self, schema: object) -> DataSourceReader:
            return Reader()

    return ReadyMade


class Sources:
    """The same records by each source."""

    def __init__(self, spark: SparkSession, directory: Path, address: str, parquet: Path) -> None:
        self._spark, self._directory, self._address = spark, directory, address
        self._parquet = parquet

    def ours(self, **options: str) -> DataFrame:
        return self._spark.read.format("kafkastore").options(**options).load(str(self._directory))

    def kafka(self, **options: str) -> DataFrame:
        where = {"kafka.bootstrap.servers": self._address, "subscribe": TOPIC}
        return self._spark.read.format("kafka").options(**where, **options).load()

    def ready(self) -> DataFrame:
        return self._spark.read.format("ready_made").load()

    def parquet(self) -> DataFrame:
        return self._spark.read.parquet(str(self._parquet))


def measures(sources: Sources, first: int, last: int) -> Iterator[Measure]:
    """Yield what is measured; times in ms, of the first record and of the last."""
    ours, kafka, ready, parquet = sources.ours, sources.kafka, sources.ready, sources.parquet
    start, end = (first + int((last - first) * share) for share in (0.45, 0.46))
    times = {"startingTimestamp": str(start), "endingTimestamp": str(end)}
    where = (
        f"timestamp >= timestamp_millis({start}) and timestamp < timestamp_millis({end})"
    )
    all_columns: dict[str, Callable[[], DataFrame]] = {
        "kafkastore": ours,
        "kafka": kafka,
        "kafka, 2 parts": partial(kafka, minPartitions=str(PARTS)),
        READY: ready,
        "parquet": parquet,
    }
    best = ("kafka", "kafka, 2 parts")
    full = (Bar(best, 1.2), Bar((READY,), 0.9))
    value_only = {"kafkastore, value": partial(ours, columns="value")}
    yield Measure("sum", SUM, all_columns | value_only, full)
    narrow = {"kafkastore, offset": partial(ours, columns="offset")}
    yield Measure("count", COUNT, all_columns | narrow, full)
    yield Measure(
        "where",
        SUM,
        {
            "kafkastore": lambda: ours(pushFilters="true", indexes="trust").where(where),
            "kafka": lambda: kafka().where(where),
            "kafka, 2 parts": lambda: kafka(minPartitions=str(PARTS)).where(where),
            "parquet": lambda: parquet().where(where),
        },
        (Bar(best, 4),),
    )
    nothing = {"startingTimestamp": str(last + 10**6), "endingTimestamp": str(last + 10**6)}
    nothing["startingOffsetsByTimestampStrategy"] = "latest"
    yield Measure(
        "times",
        SUM,
        {
            "kafkastore": partial(ours, **times),
            EMPTY: partial(ours, **nothing),
            "kafka": partial(kafka, **times),
        },
        (Bar((EMPTY,), seconds=0.1),),
    )


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process and of those it started; 0 without ``/proc``."""
    found: dict[int, list[tuple[int, float]]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        seconds = sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")
        found.setdefault(int(words[1]), []).append((int(status.parent.name), seconds))
        if int(status.parent.name) == process:
            found[-1] = [(process, seconds)]
    waiting, total = found.get(-1, []), 0.0
    while waiting:
        number, seconds = waiting.pop()
        total += seconds
        waiting = waiting + found.get(number, [])
    return total


def compare(measure: Measure, processes: list[int], warm_up: int, rounds: int) -> list[Samples]:
    """Run all sides in turn.

    Raises
    ------
    Failed
        If answers differ, between sides or between rounds: a wrong answer has no time.
    """
    sides = {who: Samples(measure.name, who, [], [], []) for who in measure.sides}
    for number in range(warm_up + rounds):
        for who, frame in measure.sides.items():
            cpu, wall = sum(map(cpu_seconds, processes)), time.perf_counter()
            answer = list(frame().selectExpr(*measure.columns).collect()[0])
            wall, cpu = time.perf_counter() - wall, sum(map(cpu_seconds, processes)) - cpu
            samples = sides[who]
            if samples.answer and samples.answer != answer:
                raise Failed(f"{who}: {answer} in round {number}, {samples.answer} before")
            samples.answer[:] = answer
            if number >= warm_up:
                samples.wall.append(wall)
                samples.cpu.append(cpu)
    answers = {who: each.answer for who, each in sides.items() if who != EMPTY}
    if any(answer != answers["kafkastore"] for answer in answers.values()):
        raise Failed(f"answers differ: {answers}")
    return list(sides.values())


LINE = "{:8} {:28} {:>14} {:>14} {:>7}  {}"
HEADING = LINE.format("measure", "who", "wall min/med s", "CPU min/med s", "speed", "wanted")


def lines(measure: Measure, all_samples: list[Samples]) -> Iterator[str]:
    """Show a comparison: how many times as fast as each other side the first one is."""
    least = {each.who: min(each.wall) for each in all_samples}
    ours = least[all_samples[0].who]
    for samples in all_samples:
        speed = "" if samples is all_samples[0] else f"{least[samples.who] / ours:.2f}x"
        verdict = _verdict(measure, least) if samples is all_samples[0] else ""
        both = (
            f"{min(each):.2f} / {sorted(each)[len(each) // 2]:.2f}"
            for each in (samples.wall, samples.cpu)
        )
        yield LINE.format(measure.name, samples.who, *both, speed, verdict).rstrip()


def _verdict(measure: Measure, least: dict[str, float]) -> str:
    ours, said, is_met = least["kafkastore"], [], False
    for bar in measure.bars:
        best = min(least[who] for who in bar.others)
        if bar.seconds is None:
            is_met |= best / ours >= bar.times
            said.append(f"{bar.times:g}x {bar.others[0]}")
        else:
            is_met |= ours - best <= bar.seconds
            said.append(f"{bar.seconds:g} s of {bar.others[0]}")
    return f"{' or '.join(said)}: {'ok' if is_met else 'BELOW'}"


def jars(work: Path) -> list[str]:
    """Return the jars of Spark's Kafka source; fetch them if they are missing."""
    folder = work.absolute() / "spark-jars"
    if not folder.is_dir():
        fetched = work.absolute() / "making-spark-jars"
        subprocess.run(
            [
                *("mvn", "-q", "-B", "-f", str(PEERS / "spark"), "dependency:copy-dependencies"),
                *("-DincludeScope=runtime", f"-DoutputDirectory={fetched}"),
            ],
            check=True,
        )
        fetched.rename(folder)
    return sorted(map(str, folder.glob("*.jar")))


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="spark", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], help="measures; a beginning will do")
    parser.add_argument("--warm-up", type=int, default=2, help="rounds before those that count")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", type=Path, default=Path("build/benchmarks"))
    arguments = parser.parse_args(words)
    # If this process is terminated, it also ends the broker.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    work: Path = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    partition = log_path(work / "data", DATA_SET, partial(make_data, work)).parent.absolute()
    from kafkastore.spark import register, session

    spark = session("local[2]", **{"spark.jars": ",".join(jars(work))})
    register(spark)
    with broker_with(partition, work) as (address, broker):
        parquet = work.absolute() / "records.parquet"
        sources = Sources(spark, partition, address, parquet)
        if not parquet.is_dir():
            making = parquet.with_name("making-records.parquet")
            sources.ours().write.mode("overwrite").parquet(str(making))
            making.rename(parquet)
        bounds = ("unix_millis(min(timestamp))", "unix_millis(max(timestamp))", "count(*)")
        first, last, rows, size = sources.parquet().selectExpr(
            *bounds, "sum(length(value))"
        ).collect()[0]  # fmt: skip
        spark.dataSource.register(ready_made(size // rows, rows))
        print(HEADING, flush=True)
        with (work / "spark.jsonl").open("w") as out:
            for measure in measures(sources, first, last):
                if arguments.only and not measure.name.startswith(tuple(arguments.only)):
                    continue
                found = compare(
                    measure, [os.getpid(), broker], arguments.warm_up, arguments.rounds
                )
                for samples in found:
                    print(json.dumps(samples._asdict()), file=out, flush=True)
                for line in lines(measure, found):
                    print(line, flush=True)
    spark.stop()
    return 0
