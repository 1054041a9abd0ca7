"""Real brokers with short retention delete the predicted segments of written directories."""
from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from golden.make.brokers import WORK
from golden.make.case_context import CaseContext, Surroundings
from golden.make.java_client import JavaClients
from models.log_directory import Segment

import kafkastore
from kafkastore.formats.records.record_builder import build_batch
from kafkastore.log.timestamp_warnings import TimestampWarning
from kafkastore.use_cases.retention import DatedBy, PartitionRetention, retention_of

pytestmark = pytest.mark.kafka

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
RECORDS = 5
MARKER = ".kafka_cleanshutdown"
KEPT = "partition.metadata"

# For each segment the ages of its newest record and its file in ms; None: no timestamp.
OLD, NEW = (3 * HOUR_MS, 3 * HOUR_MS), (0, 0)
PARTITIONS = {
    "by-time": [OLD, OLD, NEW, OLD, NEW],
    "all-over": [OLD, OLD],
    "by-files": [(None, 3 * HOUR_MS), (None, 0), (None, 3 * HOUR_MS)],
    "files-do-not-count": [(3 * HOUR_MS, 0), (0, 3 * HOUR_MS), OLD],
    "future": [OLD, (-2 * DAY_MS, 0), OLD, OLD],
    "seconds": ["seconds", NEW, OLD],
    "microseconds": [OLD, "microseconds", OLD],
    "zeros": ["zeros", NEW, OLD],
}
BY_SIZE = {"retention.ms": -1, "retention.bytes": 3000}


class _Record:
    key = None

    def __init__(self, offset: int, timestamp: int) -> None:
        self.offset, self.timestamp, self.value = offset, timestamp, bytes(200)


class _Batch:
    """The attributes of a batch that `Segment` needs."""

    def __init__(self, base_offset: int, timestamp: int, magic: int) -> None:
        records = [_Record(base_offset + number, timestamp) for number in range(RECORDS)]
        self.data = build_batch(records, magic=magic)
        self.last_offset, self.max_timestamp = records[-1].offset, timestamp


def write_partition(directory: Path, ages: list, now: int, magic: int) -> None:
    """Write a partition directory with one batch a segment."""
    directory.mkdir(parents=True)
    for number, age in enumerate(ages):
        of_record, of_file = age if isinstance(age, tuple) else (0, 0)
        timestamp = -1 if of_record is None else now - of_record
        if age == "seconds":
            timestamp //= 1000
        if age == "microseconds":
            timestamp *= 1000
        batch = _Batch(number * RECORDS, timestamp, magic)
        segment = Segment(number * RECORDS, (batch,), now - of_file).recovered()
        if age == "zeros":
            segment = replace(segment, time_index=bytes(1020))
        segment.write(directory)


def log_files(directory: Path) -> set[str]:
    return {name for name in os.listdir(directory) if name.endswith(".log")}


class BrokerRun(NamedTuple):
    """The prediction for each partition, and what the broker did."""

    said: dict[str, PartitionRetention]
    left: dict[str, set[str]]
    opened: list[str]
    mapped: str


def run_broker(version: str, folder: Path) -> BrokerRun:
    """Start a broker on written partitions, and let it delete segments."""
    now = int(time.time() * 1000)
    has_times = version != "0.10.0.1"
    ages = dict(PARTITIONS)
    if not has_times:  # it has no time index and does not alter such files
        del ages["zeros"]
    sources = {}
    for name, segments in ages.items():
        sources[f"{name}-0"] = folder / "made" / f"{name}-0"
        write_partition(sources[f"{name}-0"], segments, now, 2 if version >= "0.11" else 1)
    sources["by-size-0"] = folder / "made" / "by-size-0"
    write_partition(sources["by-size-0"], [NEW, OLD, NEW, NEW], now, 2 if version >= "0.11" else 1)
    hour = {"retention.ms": HOUR_MS}

    with JavaClients(WORK) as clients:
        context = CaseContext(version, "retention", folder / "out",
                              Surroundings("retention", WORK, clients))
        settings = {"log.retention.check.interval.ms": 1000}
        if context.since(3, 9):
            settings["log.initial.task.delay.ms"] = 1000
        try:
            context.start(settings)
            for name in sources:
                config = BY_SIZE if name.startswith("by-size") else hour
                context.create_topic(name[:-2], 1, dict(config), segment_bytes=1048576)
            context.stop()
            logs = context.cluster.logs
            for name, source in sources.items():
                for path in (logs / name).iterdir():
                    if path.name != KEPT:
                        path.unlink()
                for path in source.iterdir():
                    shutil.copy2(path, logs / name / path.name)
            assert (logs / MARKER).exists()
            store = kafkastore.open(logs)
            said = {
                name: retention_of(
                    store[name], config=BY_SIZE if name.startswith("by-size") else hour,
                    version=version,
                )
                for name in sources
            }
            context.start()
            # Before there was a setting for the delay, retention began 30 s after the start.
            time.sleep(4 if context.since(3, 9) else 32)
            for name in sources:
                context.wait_until_still(name)
            left = {name: log_files(logs / name) for name in sources}
            process = context.cluster.broker.process.pid
            opened = [os.readlink(fd) for fd in Path(f"/proc/{process}/fd").iterdir()]
            mapped = Path(f"/proc/{process}/maps").read_text()
            context.stop()
        finally:
            context.abandon()
            context.remove_run_directory()
    return BrokerRun(said, left, opened, mapped)


@pytest.fixture(scope="module")
def brokers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[BrokerRun]]]:
    """Return future results by version: all wait in parallel, most of them half a minute."""
    versions = [
        item.callspec.params["version"]
        for item in request.session.items
        if getattr(item, "originalname", None) == test_a_broker_deletes_predicted_segments.__name__
    ]
    with ThreadPoolExecutor(len(versions)) as pool:
        yield {
            version: pool.submit(run_broker, version, tmp_path_factory.mktemp(version))
            for version in versions
            if (WORK / "jars" / version).is_dir()
        }


@pytest.mark.parametrize("version", ["0.10.0.1", "0.10.2.2", "2.4.0", "3.9.1", "4.3.1"])
def test_a_broker_deletes_predicted_segments(version, require_broker, brokers):
    require_broker(version)
    said, left, opened, mapped = brokers[version].result()
    has_times = version != "0.10.0.1"
    for name, found in said.items():
        stays = {fate.path.name for fate in found.segments if fate.deleted_by is None}
        if found.outcome.rolls:
            stays.add(f"{found.outcome.log_start_offset:020}.log")
        assert left[name] == stays, name
    goes = {name[:-2]: [fate.base_offset for fate in found.going] for name, found in said.items()}
    assert goes["by-size"] == [0]
    if has_times:
        assert goes["by-time"] == [0, 5]
        assert goes["by-files"] == goes["files-do-not-count"] == goes["zeros"] == [0]
        assert said["zeros-0"].segments[0].dated_by is DatedBy.ZEROS
        assert said["future-0"].blocker.doubt is TimestampWarning.FUTURE
        assert said["microseconds-0"].blocker.doubt is TimestampWarning.MICROSECONDS
        assert said["seconds-0"].going[0].doubt is TimestampWarning.SECONDS
    # KIP-33: "the number of open file handlers will increase by about 1/3". An index file is closed
    # as soon as it is mapped: only .log files are kept open.
    assert any(path.endswith(".log") for path in opened)
    assert not any(path.endswith(("index", "index.deleted")) for path in opened)
    assert ".index" in mapped
    assert (".timeindex" in mapped) == has_times
