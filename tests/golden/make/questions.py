"""All queries of one partition to a running broker, in the form of the answers files."""
from __future__ import annotations

import random
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from .answers_file import modified_ms_of, shorten
from .cluster import Cluster
from .java_client import JavaClient
from .wire import EARLIEST_TIMESTAMP, FETCH, LATEST_TIMESTAMP, RETRIABLE_ERRORS, Watermarks

FAR_FUTURE = 4_102_444_800_000  # 2100-01-01
LARGEST_INT64 = (1 << 63) - 1
_DAY_MS = 86_400_000
_SPECIAL_TIMESTAMPS = (-1, -2, -3, -4, -5)
_FIRST_WITH_PENDING_UPLOAD = 11  # which is -6
# The versions at which ListOffsets changed; the broker's highest is used too.
_LIST_OFFSETS_VERSIONS = (1, 2, 4, 6, 7, 8, 9, 10)

Row = list[Any]


def log_files(partition: Path) -> list[Path]:
    """Return a partition's ``.log`` files by base offset."""
    return sorted(path for path in partition.iterdir() if path.name.endswith(".log"))


@dataclass(frozen=True)
class PartitionQuestions:
    """Query one partition's broker.

    Attributes
    ----------
    cluster : Cluster
        Runs.
    client : JavaClient
        Connected to it.
    rng : random.Random
        Chooses among many timestamps.
    topic, partition : str, int
        What is queried.
    """

    cluster: Cluster
    client: JavaClient
    rng: random.Random
    topic: str
    partition: int

    @property
    def directory(self) -> Path:
        """The partition's directory in the broker."""
        return self.cluster.logs / f"{self.topic}-{self.partition}"

    def answers(
        self, *, committed: bool = False, extra_timestamps: Iterable[int] = ()
    ) -> dict[str, Any]:
        """Run all queries.

        Parameters
        ----------
        committed : bool
            Also what a read_committed consumer gets, and every timestamp with both isolations.
        extra_timestamps : iterable of int
            Looked up in addition to those around records and mtimes.

        Returns
        -------
        dict
            A partition's part of an answers file, without its dump.
        """
        extra = [timestamp for timestamp in extra_timestamps if timestamp >= 0]
        newest = self.cluster.list_offsets_versions[1]
        self.cluster.wire.wait_for_leader(self.topic, self.partition, version=min(1, newest))
        log_start_offset = self._end_of_log(EARLIEST_TIMESTAMP)
        log_end_offset = self._end_of_log(LATEST_TIMESTAMP)
        watermarks = self._watermarks(log_end_offset)
        answers: dict[str, Any] = {
            "log_start_offset": log_start_offset,
            "log_end_offset": log_end_offset,
            "high_watermark": watermarks.high_watermark,
            "last_stable_offset": watermarks.last_stable_offset,
        }
        if watermarks.error:
            answers["fetch_error"] = watermarks.error
        records = answers["records"] = self._consume("read_uncommitted", log_start_offset)
        if committed:
            rows = self._consume("read_committed")
            answers["committed_offsets"] = [row[0] for row in rows]
        mtimes_ms = {path.name: modified_ms_of(path) for path in log_files(self.directory)}
        answers["mtimes_when_asked_ms"] = mtimes_ms
        timestamps = self._timestamps(records) | set(extra)
        if any(row[1] < 0 for row in records):  # segments without timestamps use mtimes
            timestamps |= _around(mtimes_ms.values())
        if newest >= 1:
            looked_up = sorted(timestamps)
            answers["list_offsets"] = self._list_offsets(looked_up, committed=committed)
        if self.cluster.list_offsets_versions[0] == 0:
            segment_times = sorted(set(mtimes_ms.values()))
            answers["list_offsets_v0"] = self._list_offsets_v0(segment_times, extra)
        return answers

    def _end_of_log(self, timestamp: int) -> int:
        """Query one of the ends."""
        wire = self.cluster.wire
        if self.cluster.list_offsets_versions[1] >= 1:
            offset: int = wire.list_offsets(self.topic, self.partition, timestamp)["offset"]
            return offset
        return wire.list_offsets_v0(self.topic, self.partition, timestamp, 1)[1][0]

    def _watermarks(self, log_end_offset: int) -> Watermarks:
        """Fetch at the end until the high watermark has reached it, five seconds at most."""
        version = min(4, self.cluster.api_versions.get(FETCH, (0, 0))[1])
        for _ in range(50):
            answer = self.cluster.wire.watermarks(
                self.topic, self.partition, log_end_offset, version=version
            )
            if answer.error not in RETRIABLE_ERRORS and answer.high_watermark >= log_end_offset:
                break
            time.sleep(0.1)
        return answer

    def _consume(self, isolation: str, start_offset: int | None = None) -> list[Row]:
        """Read all records with a consumer."""
        start = {} if start_offset is None else {"from": start_offset}
        answer = self.client(
            "consume", topic=self.topic, partition=self.partition, isolation=isolation, **start
        )
        rows: list[Row] = answer["rows"]
        for row in rows:
            row[4] = shorten(row[4])
        return rows

    def _timestamps(self, records: list[Row]) -> set[int]:
        """Choose timestamps to look up: around records', segments' first, last and extreme ones."""
        stamps = sorted({row[1] for row in records if row[1] >= 0})
        kept = set(stamps)
        if len(stamps) > 24:
            kept = {*stamps[:2], *stamps[-2:], *self.rng.sample(stamps, 12)}
        names = [path.name for path in log_files(self.directory)]
        starts = [int(name[:20]) for name in names if re.fullmatch(r"\d{20}\.log", name)]
        for start, end in zip(starts, [*starts[1:], LARGEST_INT64], strict=True):
            segment = [row[1] for row in records if start <= row[0] < end and row[1] >= 0]
            if segment:
                kept |= {segment[0], segment[-1], max(segment), min(segment)}
        targets = _around(kept) | {0, 1, FAR_FUTURE + 1, LARGEST_INT64}
        if len(stamps) >= 12:
            targets.add((stamps[0] + stamps[-1]) // 2)
        else:
            targets |= {(a + b) // 2 for a, b in pairwise(stamps)}
        return {timestamp for timestamp in targets if timestamp >= 0}

    def _list_offsets(self, timestamps: list[int], *, committed: bool) -> list[dict[str, Any]]:
        """Call ListOffsets in the versions at which it changed."""
        newest = self.cluster.list_offsets_versions[1]
        queries = [(timestamp, 1, 0) for timestamp in timestamps]
        if newest >= 2:
            some = timestamps[:: max(1, len(timestamps) // 12)]
            queries += [(timestamp, newest, 0) for timestamp in (timestamps if committed else some)]
            some = timestamps if committed else some[:4]
            queries += [(timestamp, newest, 1) for timestamp in some]
            queries += [(-1, 2, 1), (-2, 2, 1)]
        versions = sorted({*_LIST_OFFSETS_VERSIONS, newest})
        queries += [
            (timestamp, version, 0)
            for version in versions
            if version <= newest
            for timestamp in _SPECIAL_TIMESTAMPS
        ]
        queries.append((-6, newest, 0))
        if newest >= _FIRST_WITH_PENDING_UPLOAD:
            queries += [(-6, newest - 1, 0), (-7, newest, 0)]
        if newest >= 2:
            queries.append((-1, newest, 1))
        return [self.list_offsets_row(*question) for question in queries]

    def list_offsets_row(self, timestamp: int, version: int, isolation: int) -> dict[str, Any]:
        """Call ListOffsets once; the row has the question and the answer."""
        answer = self.cluster.wire.list_offsets(
            self.topic, self.partition, timestamp, version=version, isolation=isolation
        )
        return {"timestamp": timestamp, "version": version, "isolation": isolation} | answer

    def _list_offsets_v0(self, segment_times: list[int], extra: list[int]) -> list[dict[str, Any]]:
        """Call the ListOffsets that uses mtimes."""
        if len(segment_times) > 12:
            middle = self.rng.sample(segment_times[4:-4], 4)
            segment_times = segment_times[:4] + middle + segment_times[-4:]
        tomorrow = int(time.time() * 1000) + _DAY_MS
        timestamps = _around(segment_times) | {0, 1, tomorrow, LARGEST_INT64} | set(extra)
        rows: list[dict[str, Any]] = []
        for timestamp in (-1, -2, -3, *sorted(timestamps)):
            one, hundred, two = (
                self._list_offsets_v0_row(timestamp, number) for number in (1, 100, 2)
            )
            rows += [one, hundred]
            if (two["error"], two["offsets"]) != (hundred["error"], hundred["offsets"]):
                rows.append(two)
        for timestamp in (-1, -2, LARGEST_INT64):
            try:
                rows.append(self._list_offsets_v0_row(timestamp, 0))
            except (OSError, EOFError) as error:
                question = {"timestamp": timestamp, "max_num_offsets": 0}
                rows.append(question | {"exception": str(error)})
        return rows

    def _list_offsets_v0_row(self, timestamp: int, max_num_offsets: int) -> dict[str, Any]:
        """Call ListOffsets v0 once."""
        error, offsets = self.cluster.wire.list_offsets_v0(
            self.topic, self.partition, timestamp, max_num_offsets
        )
        question = {"timestamp": timestamp, "max_num_offsets": max_num_offsets}
        return question | {"error": error, "offsets": offsets}


def _around(timestamps: Iterable[int]) -> set[int]:
    """Return the timestamps with their neighbours."""
    return {timestamp + delta for timestamp in timestamps for delta in (-1, 0, 1)}
