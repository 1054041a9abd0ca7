"""A broker's disk, 1,000 partitions of 20 segments (2,000 in full), compared with a tenth of it.

Ten times the store takes ten times the time, no more files open at once, and no more memory but
for the partitions' names, and for the plan, which names each file that is altered. And a long log
is checked in a time that grows as its bytes do.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from models import measured_command
from models.record_format import Batch, Row
from models.seed import one_in

import kafkastore
from kafkastore.formats.primitives.crc import crc32c
from kafkastore.segment.recovery import rebuild_indexes

pytestmark = pytest.mark.soak

FEW, MANY, SEGMENTS = 200 // one_in(2), 2000 // one_in(2), 20
#: The segments of each partition that lose their time index.
UNINDEXED = range(0, SEGMENTS, 10)
#: The topic's ``index.interval.bytes``, which its directory does not record.
INTERVAL = 200
FIRST_TIMESTAMP = 1_600_000_000_000
MOST_FILES = 128

UNSYNCED = Path(measured_command.__file__).with_name("unsynced")

MIB = 1 << 20
#: How much memory may vary between runs, for a store of any size.
SOME_MEMORY = 8 * MIB
#: Memory for each partition (its directory, its lines in the checkpoints), what a survey
#: may take for each segment, and a plan for each file that it alters.
MEMORY_A_PARTITION, MEMORY_A_SEGMENT, MEMORY_A_CHANGE = 2048, 1024, 2048


def write_store(root, partitions):
    """Write one partition as a broker does, and the others with the same bytes."""
    with kafkastore.LogDirWriter(root, version="2.4") as log_dir:
        writer = log_dir.writer("t", 0, {"segment.bytes": 700, "index.interval.bytes": INTERVAL})
        while len(list(writer.path.glob("*.log"))) < SEGMENTS:
            end = writer.log_end_offset
            writer.append_records(
                SimpleNamespace(
                    timestamp=FIRST_TIMESTAMP + 1000 * offset, key=b"%d" % end, value=b"v" * 20,
                    headers=(),
                )
                for offset in range(end, end + 5)
            )
    first = root / "t-0"
    files = [(path.name, path.read_bytes(), path.stat().st_mtime_ns) for path in first.iterdir()]
    for number in range(1, partitions):
        directory = root / f"t-{number}"
        directory.mkdir()
        for name, data, mtime_ns in files:
            (directory / name).write_bytes(data)
            os.utime(directory / name, ns=(mtime_ns, mtime_ns))
    for checkpoint in root.glob("*-checkpoint"):
        version, _, *entries = checkpoint.read_text().splitlines()
        if entries:
            offset = entries[0].split()[2]
            lines = [f"t {number} {offset}" for number in range(partitions)]
            checkpoint.write_text("\n".join([version, str(partitions), *lines, ""]))


@dataclass
class Job:
    """A command that was run: its output, time and memory."""

    said: str
    code: int
    cpu: float
    memory: int


def run(figures, *words):
    """Run a command of kafkastore, and measure it."""
    figures.unlink(missing_ok=True)
    ran = subprocess.run(
        [sys.executable, measured_command.__file__, figures, str(MOST_FILES), *map(str, words)],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(UNSYNCED)},
    )
    assert ran.returncode == 0, ran.stderr
    return Job(ran.stdout, **json.loads(figures.read_text()))



def count_time_indexes(root):
    return sum(1 for _ in root.glob("t-*/*.timeindex"))


def run_all(home, partitions):
    """Run each job once over a separate store."""
    root, figures = home / "logs", home / "figures"
    write_store(root, partitions)
    jobs = {"verify": run(figures, "verify", root, "--fail-on", "slow"),
            "predict": run(figures, "predict", root),
            "repair": run(figures, "repair", root, "--dry-run"),
            "reindex": run(figures, "reindex", root, "--dry-run",
                           "--index-interval-bytes", INTERVAL)}
    for directory in root.glob("t-*"):
        for path in sorted(directory.glob("*.timeindex"))[:: UNINDEXED.step]:
            path.unlink()
    assert count_time_indexes(root) == partitions * (SEGMENTS - len(UNINDEXED))
    jobs["plan"] = run(figures, "migrate", root, "--dry-run", "--json")
    jobs["migrate"] = run(figures, "migrate", root, "--in-place", "--yes")
    assert count_time_indexes(root) == partitions * SEGMENTS
    (area,) = home.glob("logs.kafkastore-undo-*")
    jobs["undo"] = run(figures, "changes", "undo", area)
    assert count_time_indexes(root) == partitions * (SEGMENTS - len(UNINDEXED))
    shutil.rmtree(home)  # pytest keeps what tests leave, and this is half a gigabyte
    return jobs


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """The jobs over the small store and over the large one."""
    homes = [tmp_path_factory.mktemp(f"of-{partitions}-") for partitions in (FEW, MANY)]
    found = [run_all(home, partitions) for home, partitions in zip(homes, (FEW, MANY), strict=True)]
    for name in found[0]:
        few, many = (each[name] for each in found)
        print(f"{name:8} {few.memory / MIB:6.0f} -> {many.memory / MIB:4.0f} MiB, "
              f"{few.cpu:5.2f} -> {many.cpu:5.2f} s")
    return found


NAMES = ("verify", "predict", "repair", "reindex", "plan", "migrate", "undo")


def test_each_job_did_all_of_its_work(jobs):
    for found, partitions in zip(jobs, (FEW, MANY), strict=True):
        changes = f"{partitions * len(UNINDEXED):,} files"
        assert f"{partitions:,} partitions checked" in found["verify"].said
        assert f"{partitions:,} directories" in found["predict"].said
        assert "nothing to change" in found["repair"].said
        assert "nothing to change" in found["reindex"].said
        assert found["plan"].said.count('"kind": "change"') == partitions * len(UNINDEXED)
        assert changes in found["migrate"].said
        assert changes in found["undo"].said
        assert [found[name].code for name in NAMES] == [0] * len(NAMES)


@pytest.mark.parametrize("name", ["verify", "predict", "repair", "reindex"])
def test_reading_a_store_takes_memory_for_the_names_of_partitions_only(jobs, name):
    few, many = (found[name].memory for found in jobs)
    assert many - few < SOME_MEMORY + (MANY - FEW) * MEMORY_A_PARTITION


@pytest.mark.parametrize(
    ("name", "memory_a_partition"),
    [
        ("plan", SEGMENTS * MEMORY_A_SEGMENT + len(UNINDEXED) * MEMORY_A_CHANGE),
        ("migrate", SEGMENTS * MEMORY_A_SEGMENT + len(UNINDEXED) * MEMORY_A_CHANGE),
        ("undo", len(UNINDEXED) * MEMORY_A_CHANGE),
    ],
)
def test_altering_a_store_takes_memory_for_its_plan_only(jobs, name, memory_a_partition):
    few, many = (found[name].memory for found in jobs)
    assert many - few < SOME_MEMORY + (MANY - FEW) * memory_a_partition


@pytest.mark.parametrize("name", NAMES)
def test_a_partition_takes_the_same_time_in_a_larger_store(jobs, name):
    few, many = (found[name].cpu for found in jobs)
    assert many / MANY < 1.5 * few / FEW + 0.0005


def write_log(directory, batches):
    """Write a log of batches of about 1 KB, and indexes with an entry for each."""
    batch = Batch((Row(0, FIRST_TIMESTAMP, b"k", b"v" * 950),)).data
    rows = np.tile(np.frombuffer(batch, np.uint8), (batches, 1))
    numbers = np.arange(batches, dtype=">i8")
    rows[:, :8] = numbers.view(np.uint8).reshape(-1, 8)
    timestamps = (FIRST_TIMESTAMP + numbers).astype(">i8").view(np.uint8).reshape(-1, 8)
    rows[:, 27:35] = rows[:, 35:43] = timestamps
    checksums = np.array([crc32c(row[21:]) for row in rows], ">u4")
    rows[:, 17:21] = checksums.view(np.uint8).reshape(-1, 4)
    directory.mkdir()
    log = directory / f"{0:020}.log"
    log.write_bytes(rows.data)
    rebuilt = rebuild_indexes(log, 0, index_interval_bytes=0)
    assert len(rebuilt.time_index) >= 12 * (batches - 1)
    log.with_suffix(".index").write_bytes(rebuilt.offset_index)
    log.with_suffix(".timeindex").write_bytes(rebuilt.time_index)
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return log.stat().st_size


def test_index_entries_are_checked_in_a_time_that_grows_as_the_log_does(tmp_path):
    """DumpLogSegments takes four times as long for a time index of twice the entries."""
    seconds_a_byte = []
    for batches in (16_000, 128_000 // one_in(2)):
        size = write_log(tmp_path / f"t-{batches}", batches)
        seconds = []
        for _ in range(4):
            start = time.process_time()
            assert [*kafkastore.verify(tmp_path / f"t-{batches}")] == []
            seconds.append(time.process_time() - start)
        seconds_a_byte.append(min(seconds) / size)
    short, long = seconds_a_byte
    assert long < 3 * short  # a quadratic one: 4 or 8 times
