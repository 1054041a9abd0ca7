"""Logs of one partition that several tasks wrote, merged into one.

Batches are copied unchanged, compressed or not. Their offsets change, which the checksums do not
cover; indexes and segments are rebuilt.
"""
from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kafkastore.arguments import INT32_MAX
from kafkastore.errors import OutOfOrderAppendError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.parallel.parallel_map import ParallelMap
from kafkastore.segment.log_file import BatchRun
from kafkastore.store.partition_log import PartitionLog
from kafkastore.writing.cluster_topics import ClusterTopics
from kafkastore.writing.log_dir_writer import LogDirWriter
from kafkastore.writing.log_writer import LogWriter

#: Open files of a log while it is written; the process has others open too.
FILES_OF_A_LOG = 3
OTHER_FILES = 200
MOST_OPEN_LOGS = 2000
#: Appends are this fraction of a segment, so that segments come close to their size.
APPENDS_A_SEGMENT = 64


class StagedLog(NamedTuple):
    """A task's log of a partition or a part of it: start inclusive, end exclusive.

    `root` is the staged log directory that contains it.
    """

    topic_partition: TopicPartition
    root: str
    start_offset: int
    end_offset: int

    @property
    def path(self) -> Path:
        """The partition directory."""
        return Path(self.root, str(self.topic_partition))


def open_logs_limit() -> int:
    """Return how many logs this process may write at once."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MOST_OPEN_LOGS
    return min(max((files - OTHER_FILES) // FILES_OF_A_LOG, 16), MOST_OPEN_LOGS)


def whole_logs(
    logs: Sequence[StagedLog],
    work: Path,
    given: Mapping[str, str],
    topics: ClusterTopics,
    *,
    keeps_offsets: bool,
) -> Iterator[StagedLog]:
    """Yield each partition as one log, merged if it has several, in no order.

    `logs` are in record order, or `keeps_offsets` gives it. Merged logs are written to `work`, the
    originals removed. Raises `OutOfOrderAppendError` if kept offsets do not increase.
    """
    by_partition: dict[TopicPartition, list[StagedLog]] = {}
    for log in sorted(logs, key=lambda log: log.start_offset) if keeps_offsets else logs:
        by_partition.setdefault(log.topic_partition, []).append(log)
    several = []
    for each in by_partition.values():
        if keeps_offsets:
            _check_order(each)
        if len(each) > 1:
            several.append(each)
        else:
            yield each[0]
    at_once = open_logs_limit()
    for number, first in enumerate(range(0, len(several), at_once)):
        now = several[first : first + at_once]
        yield from _merged(work / f"merged-{number}", now, given, topics)


def _merged(
    root: Path, several: list[list[StagedLog]], given: Mapping[str, str], topics: ClusterTopics
) -> list[StagedLog]:
    """Append the logs of each partition, one after another, to a new log."""
    with LogDirWriter(root, metadata=topics) as log_dir:
        work = []
        for logs in several:
            first = logs[0]
            writer = log_dir.writer(
                *first.topic_partition, given, start_offset=first.start_offset
            )
            work.append((writer, logs))
        threads = min(len(work), os.cpu_count() or 1)
        with ParallelMap(_append, work, threads, "kafkastore-commit") as appended:
            for _ in appended:
                pass
        return [
            StagedLog(
                logs[0].topic_partition, str(root), logs[0].start_offset, writer.log_end_offset
            )
            for writer, logs in work
        ]


def _append(work: tuple[LogWriter, list[StagedLog]]) -> None:
    """Append logs to a writer and remove them; keep offsets that already increase."""
    writer, logs = work
    largest = max(writer.config.segment_bytes // APPENDS_A_SEGMENT, 1)
    for log in logs:
        shift = max(writer.log_end_offset - log.start_offset, 0)
        for segment in PartitionLog(log.path, log.topic_partition).segments:
            with segment.open_log() as file:
                for run in file.runs():
                    if shift:
                        _shift_offsets(run, shift)
                    for data in _pieces(run, largest):
                        writer.append(data, as_follower=True)
        shutil.rmtree(log.path)


def _check_order(logs: Sequence[StagedLog]) -> None:
    """Raise an error if offsets of one task lie between those of another."""
    for log, following in pairwise(logs):
        if following.start_offset < log.end_offset:
            raise OutOfOrderAppendError(
                f"{log.topic_partition}: one task has offsets {log.start_offset} to "
                f"{log.end_offset - 1}, another begins with {following.start_offset}; "
                "repartition('topic', 'partition') and sortWithinPartitions('offset') first, or "
                "drop the column offset"
            )


def _shift_offsets(run: BatchRun, shift: int) -> None:
    """Shift the offsets of batches; the checksum does not cover the base offset."""
    data = np.frombuffer(run.data, np.uint8)
    offsets = (run.headers["base_offset"] + shift).astype(">i8").view(np.uint8).reshape(-1, 8)
    positions = run.headers["position"] - run.position
    data[positions[:, np.newaxis] + np.arange(8)] = offsets


def _pieces(run: BatchRun, largest: int) -> Iterator[memoryview]:
    """Divide a run where a segment may end: by size, and by offset distance."""
    ends = run.headers["position"] + run.headers["size"] - run.position
    last_offsets = run.headers["last_offset"]
    first = start = 0
    while first < len(ends):
        farthest = int(run.headers["base_offset"][first]) + INT32_MAX
        by_size = int(np.searchsorted(ends, start + largest, "right"))
        by_offset = int(np.searchsorted(last_offsets, farthest, "right"))
        first = max(min(by_size, by_offset), first + 1)
        end = int(ends[first - 1])
        yield run.data[start:end]
        start = end
