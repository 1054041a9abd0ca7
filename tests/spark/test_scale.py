"""1,000 partitions of 20 segments on Spark (2,000 in full), compared with the same work by threads.

`docs/scale.md` has the figures.

Each job is a separate process. Spark may take three times as long as threads, its start not
counted; and the driver's memory hardly grows with the partitions, but for a migration's plan.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from models import measured_command
from models.seed import one_in, some
from remote.conftest import s3, s3_port  # noqa: F401
from test_limits import (
    FIRST_TIMESTAMP,
    MEMORY_A_CHANGE,
    MEMORY_A_SEGMENT,
    SEGMENTS,
    UNINDEXED,
    write_store,
)

import kafkastore
from kafkastore.jobs.inventory import MOST_SAMPLED_RECORDS
from kafkastore.remote.sparse_files import BLOCK_BYTES, LARGEST_FETCH_BLOCKS
from kafkastore.spark.runner import TASK_BYTES, TASKS_PER_CORE

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
TESTS = Path(__file__).parents[1]
PYTHONPATH = f"{TESTS}{os.pathsep}{TESTS / 'models' / 'unsynced'}"
MASTER = "local[2]"
FEW, MANY = 400 // one_in(2), 2000 // one_in(2)
MOST_TIMES_THREADS = 3
MOST_FILES = "1024"

MIB = 1 << 20
#: How much memory may vary between runs, for a store of any size.
SOME_MEMORY = 8 * MIB
#: The memory of a partition in the driver: its location is some 300 bytes of text and numbers, and
#: is there as objects, pickled, and once more on its way to the JVM. Findings stay with Spark.
MEMORY_A_PLACE = 4096
#: For a migration, also the plan and its inputs.
MEMORY_A_PLAN = SEGMENTS * MEMORY_A_SEGMENT + len(UNINDEXED) * MEMORY_A_CHANGE


@dataclass
class Run:
    """A process that was run: how long it took, the most memory it had, and its output."""

    seconds: float
    memory: int
    output: object


def run(home, program, *words):
    """Run a program that records its time and memory."""
    figures = home / "figures"
    began = time.monotonic()
    ran = subprocess.run(
        [sys.executable, program, figures, *map(str, words)],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": PYTHONPATH},
    )
    seconds = time.monotonic() - began
    assert ran.returncode == 0, ran.stderr
    used = json.loads(figures.read_text())
    used["said"] = re.sub("undo-[0-9a-f]+", "", ran.stdout)
    return Run(seconds, used.pop("memory"), used)


def command(home, *words, on_spark):
    """Run a command of kafkastore."""
    spark = ("--spark", MASTER) if on_spark else ()
    found = run(home, measured_command.__file__, MOST_FILES, *words, *spark)
    del found.output["cpu"]
    return found


def start(home):
    """Start Spark without any work."""
    return run(home, Path(__file__).with_name("measured_jobs.py"), "start")


def verify(home, *, on_spark):
    return command(home, "verify", home / "logs", "--json", on_spark=on_spark)


def inventory(home, *, on_spark):
    how = "spark" if on_spark else "threads"
    return run(home, Path(__file__).with_name("measured_jobs.py"), how, home / "logs")


def migrate(home, *, on_spark):
    """Migrate a store that has lost a tenth of its time indexes, and put it back."""
    logs = home / "logs"
    found = command(home, "migrate", logs, "--in-place", "--yes", "--samples", 0, on_spark=on_spark)
    found.output["indexes"] = digest_of(logs.glob("*/*.timeindex"))
    (area,) = home.glob("logs.kafkastore-undo-*")
    command(home, "changes", "undo", area, on_spark=False)
    shutil.rmtree(area)
    return found


def digest_of(paths):
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(b"%s %d\n" % (path.name.encode(), path.stat().st_size))
        digest.update(path.read_bytes())
    return digest.hexdigest()


def lose_time_indexes(home):
    for directory in (home / "logs").glob("t-*"):
        for path in sorted(directory.glob("*.timeindex"))[:: UNINDEXED.step]:
            path.unlink()


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    """Folders with a store of a few partitions, and of many."""
    found = {}
    for partitions in (FEW, MANY):
        found[partitions] = tmp_path_factory.mktemp(f"of-{partitions}-")
        write_store(found[partitions] / "logs", partitions)
        lose_time_indexes(found[partitions])
    yield found
    for home in found.values():
        shutil.rmtree(home)  # pytest keeps what tests leave, and this is half a gigabyte


@pytest.mark.soak
@pytest.mark.parametrize(
    ("job", "memory_a_partition"),
    some(
        [
            pytest.param(verify, MEMORY_A_PLACE, id="verify"),
            pytest.param(inventory, MEMORY_A_PLACE, id="inventory"),
            pytest.param(migrate, MEMORY_A_PLACE + MEMORY_A_PLAN, id="migrate"),
        ],
        1,
        "jobs at scale",
    ),
)
def test_spark_does_what_threads_do_in_three_times_their_time_and_in_flat_memory(
    homes, job, memory_a_partition
):
    few = job(homes[FEW], on_spark=True)
    for _ in range(2):  # repeat if another process used the machine for a while
        started = start(homes[MANY])
        threads = job(homes[MANY], on_spark=False)
        many = job(homes[MANY], on_spark=True)
        print(
            f"{job.__name__:8} threads {threads.seconds:5.1f} s, Spark {many.seconds:5.1f} s, "
            f"of these {started.seconds:5.1f} s start; "
            f"{few.memory / MIB:4.0f} -> {many.memory / MIB:4.0f} MiB"
        )
        assert many.output == threads.output
        assert many.memory - few.memory < SOME_MEMORY + (MANY - FEW) * memory_a_partition
        is_fast = many.seconds - started.seconds < MOST_TIMES_THREADS * threads.seconds
        if is_fast:
            break
    assert is_fast


def values():
    """The page's tables of named values."""
    rows = re.findall(r"^\| `(\w+)` \| ([\d_.]+) \|", PAGE.read_text(), re.MULTILINE)
    return {name: float(value) for name, value in rows}


def gets(bytes_of_logs, segments):
    """The page's formula for the GET requests that reading a store takes."""
    names = values()
    return bytes_of_logs / (names["fetch_mib"] * 2**20) + segments * names["gets_segment"]


def test_the_page_s_results_are_what_its_formulas_give():
    rows = re.findall(r"^\| ([^|]+) \| `([^`|]+)` \| ([\d.]+) \|", PAGE.read_text(), re.MULTILINE)
    assert len(rows) > 10
    for what, formula, result in rows:
        names = {"__builtins__": {}} | values()
        assert eval(formula, names) == pytest.approx(float(result), rel=0.02), what


def test_the_page_has_the_constants_that_the_code_has():
    names = values()
    assert names["tasks_core"] == TASKS_PER_CORE
    assert names["task_gigabytes"] == pytest.approx(TASK_BYTES / 1e9, rel=1e-3)
    assert names["fetch_mib"] * MIB == BLOCK_BYTES * LARGEST_FETCH_BLOCKS
    assert names["segment_kib"] * 1024 == MEMORY_A_SEGMENT
    assert names["change_kib"] * 1024 == MEMORY_A_CHANGE
    assert names["place_kib"] * 1024 == MEMORY_A_PLACE
    assert f"up to {MOST_SAMPLED_RECORDS} points" in PAGE.read_text()


def test_reading_a_store_in_s3_takes_no_more_requests_than_documented(s3, tmp_path):  # noqa: F811
    records = 1024
    with kafkastore.LogDirWriter(tmp_path / "logs") as log_dir:
        writer = log_dir.writer("t", 0, {"segment.bytes": 10 * MIB, "retention.ms": -1})
        for number in range(25):
            first = FIRST_TIMESTAMP + number * records
            columns = {"value": [bytes(1000)] * records, "timestamp": range(first, first + records)}
            writer.append_columns(pa.table(columns))
    logs = list(tmp_path.glob("logs/t-0/*.log"))
    size = sum(path.stat().st_size for path in logs)
    url = s3.put(tmp_path / "logs", "logs")
    assert [*kafkastore.verify(url)] == []
    of_logs = [each for each in s3.proxy.gets if each.path.endswith(".log")]
    assert size <= sum(each.bytes for each in of_logs)
    of_store_and_partition = 8
    assert len(s3.proxy.gets) <= gets(size, len(logs)) + of_store_and_partition
