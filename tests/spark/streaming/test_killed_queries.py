"""Queries that are killed next to a running writer: the sink holds each record once."""
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.dataset
import pytest
from models.seed import SEED
from spark.streaming.processes import follow, offsets_of

PROCESSES = Path(__file__).with_name("processes.py")


class Processes:
    """A writer and a query in separate processes; the query is killed repeatedly."""

    def __init__(self, folder, seed, **options):
        self.folder, self.options = folder, options
        for name in ("control", "sink"):
            (folder / name).mkdir()
        self.writer = self.run("write", str(seed))
        self.query = None

    def run(self, *arguments):
        what, argument = arguments
        with (self.folder / f"{what}.log").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, str(PROCESSES), what, str(self.folder), argument],
                stdout=output, stderr=output, start_new_session=True,
            )

    def follow(self, what="follow"):
        self.query = self.run(what, json.dumps(self.options))

    def planned(self):
        """The number of batches planned, delivered or not."""
        return len(list((self.folder / "checkpoint" / "offsets").glob("[0-9]*")))

    def wait_for(self, count, what):
        until = time.monotonic() + 800
        while what() < count:
            assert self.query.poll() is None, (self.folder / "follow.log").read_text()[-4000:]
            assert time.monotonic() < until
            time.sleep(0.01)

    def kill(self):
        """Kill the query's process group, as a machine that loses power does."""
        os.killpg(self.query.pid, signal.SIGKILL)
        self.query.wait()

    def stop_writer(self):
        (self.folder / "control" / "stop").touch()
        assert self.writer.wait(800) == 0, (self.folder / "write.log").read_text()[-4000:]

    def check(self, spark):
        """Let the query read the rest; then the sink must hold what was in the logs, once."""
        options = {**self.options, "maxOffsetsPerTrigger": "1000000"}
        query = follow(spark, self.folder, options, availableNow=True)
        assert query.awaitTermination(300)
        first = {
            (topic, int(partition)): offset
            for topic, partitions in offsets_of(self.folder / "checkpoint", 0)["@from"].items()
            for partition, offset in partitions.items()
        }
        truth = json.loads((self.folder / "truth").read_text())
        expected = {}
        for name, rows in truth["records"].items():
            topic, _, partition = name.rpartition("-")
            which = (topic, int(partition))
            for offset, value in rows.items():
                if int(offset) >= first.get(which, 0):
                    expected[(*which, int(offset))] = value
        rows = self.delivered("*")
        assert {row[:3]: row[3] for row in rows} == expected
        assert len(rows) == len(expected)
        return truth

    def delivered(self, batch):
        """The rows of one batch in the sink, or of all."""
        name = batch if batch == "*" else f"{batch:06}"
        paths = sorted(str(path) for path in (self.folder / "sink").glob(f"{name}/*.parquet"))
        rows = pyarrow.dataset.dataset(paths, format="parquet").to_table().to_pylist()
        return sorted(
            (row["topic"], row["partition"], row["offset"], row["value"].decode()) for row in rows
        )


@pytest.fixture
def processes(tmp_path):
    begun = []

    def begin(seed, **options):
        begun.append(Processes(tmp_path, seed, **options))
        return begun[-1]

    yield begin
    for each in begun:
        for process in (each.query, each.writer):
            if process is not None and process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.mark.soak
def test_a_first_batch_is_the_same_after_a_kill_between_delivery_and_commit(spark, processes):
    running = processes(1, maxOffsetsPerTrigger="100", startingOffsets="earliest")
    delivered = running.folder / "control" / "delivered"
    running.follow("hang")
    running.wait_for(1, lambda: int(delivered.exists()))
    running.kill()
    first = running.delivered(0)
    assert not list((running.folder / "checkpoint" / "commits").glob("[0-9]*"))
    running.stop_writer()
    truth = running.check(spark)
    assert running.delivered(0) == first
    assert 0 < len(first) < sum(map(len, truth["records"].values()))


@pytest.mark.soak
def test_a_query_that_is_killed_again_and_again_delivers_each_record_once(
    spark, processes
):
    chance = random.Random(SEED)
    running = processes(SEED, maxOffsetsPerTrigger="2000")
    for _ in range(4):
        running.follow()
        running.wait_for(running.planned() + chance.randint(1, 3), running.planned)
        time.sleep(chance.random())
        running.kill()
    running.stop_writer()
    truth = running.check(spark)
    assert truth["cuts"] > 0
    assert truth["rolls"] > 0
    assert truth["deletions"] > 0
