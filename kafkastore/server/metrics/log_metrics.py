"""The logs and the lag of consumer groups, as Prometheus scrapes them.

A lag counts the unread records, which may be a whole disk. So a scrape counts for a limited time,
and the next one continues where it ended; until then there is no sample.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from kafkastore.errors import KafkaStoreError
from kafkastore.server.catalog import Catalog
from kafkastore.store.partition_log import PartitionLog
from kafkastore.use_cases.lag import Unread, find_unread

if TYPE_CHECKING:
    from prometheus_client import Metric

#: Committed offsets by group, topic and partition.
Positions = Mapping[tuple[str, str, int], int]
#: For counting in one scrape; scrapers wait 10 s by default.
_COUNT_SECONDS = 3.0
_UNREADABLE = (KafkaStoreError, OSError)
_NOTHING = Unread(0, 0, None, None, None)


@dataclass
class _Count:
    """The unread records from an offset on, as far as they are counted."""

    start_offset: int
    counted_to: int
    unread: Unread = _NOTHING
    #: The base offset and size of the segments that were counted to their ends.
    closed: tuple[tuple[int, int], ...] = ()

    def go_on(self, log: PartitionLog, end_offset: int, deadline: float) -> bool:
        """Count segment by segment up to an offset; return whether it was reached."""
        while self.counted_to < end_offset:
            if time.monotonic() >= deadline:
                return False
            bases = (each.base_offset for each in log.segments)
            until = min((each for each in bases if each > self.counted_to), default=end_offset)
            until = min(until, end_offset)
            found = find_unread(log, self.counted_to, until)
            self.unread, self.counted_to = self.unread.followed_by(found), until
            self.closed = self._closed(log)
        return True

    def is_of(self, log: PartitionLog) -> bool:
        """Return whether what was counted is still there: compaction rewrites segments."""
        return self._closed(log)[: len(self.closed)] == self.closed

    def _closed(self, log: PartitionLog) -> tuple[tuple[int, int], ...]:
        return tuple(
            (each.base_offset, each.size)
            for each, following in pairwise(log.segments)
            if self.start_offset < following.base_offset <= self.counted_to
        )


class LogMetrics:
    """A collector of prometheus_client.

    `positions` returns what groups have committed.
    """

    def __init__(
        self,
        catalog: Catalog,
        positions: Callable[[], Positions],
        count_seconds: float = _COUNT_SECONDS,
    ) -> None:
        self._catalog, self._positions, self._seconds = catalog, positions, count_seconds
        self._counts: dict[tuple[str, str, int], _Count] = {}
        self._lock = threading.Lock()

    def describe(self) -> list[Metric]:
        """Return nothing: the names are known when they are collected."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; one scrape after the other."""
        with self._lock:
            deadline = time.monotonic() + self._seconds
            self._catalog.follow()
            return iter([*self._bounds(deadline), *self._lags(deadline)])

    def _bounds(self, deadline: float) -> list[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        labels = ["topic", "partition"]
        start = GaugeMetricFamily(
            "kafkastore_log_start_offset", "The first offset of a log.", labels=labels
        )
        end = GaugeMetricFamily(
            "kafkastore_log_end_offset", "The offset after the last of a log.", labels=labels
        )
        failed = waiting = 0
        for topic in self._catalog.topics.values():
            for number, served in sorted(topic.partitions.items()):
                place = [topic.name, str(number)]
                if time.monotonic() >= deadline:
                    waiting += 1
                    continue
                try:
                    served.follow()
                    bounds = served.log.log_start_offset, served.log.log_end_offset
                except _UNREADABLE:
                    failed += 1
                    continue
                for family, value in zip((start, end), bounds, strict=True):
                    family.add_metric(place, value)
        return [
            start,
            end,
            GaugeMetricFamily(
                "kafkastore_unreadable_partitions", "Partitions whose logs can't be read.",
                value=failed,
            ),
            GaugeMetricFamily(
                "kafkastore_unlisted_partitions",
                "Partitions that have no sample yet, because reading them takes longer.",
                value=waiting,
            ),
        ]

    def _lags(self, deadline: float) -> list[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        labels = ["group", "topic", "partition"]
        committed = GaugeMetricFamily(
            "kafkastore_group_committed_offset", "The offset that a group reads next.",
            labels=labels,
        )
        records = GaugeMetricFamily(
            "kafkastore_group_lag_records", "Records that a group has not read.", labels=labels
        )
        seconds = GaugeMetricFamily(
            "kafkastore_group_lag_seconds",
            "Time from the first record that a group has not read to the newest one.",
            labels=labels,
        )
        positions = self._positions()
        self._counts = {key: each for key, each in self._counts.items() if key in positions}
        waiting = 0
        # First what was counted least: else the last groups might never have their turn.
        for key in sorted(positions, key=lambda key: (key in self._counts, key)):
            group, topic, partition = key
            served = self._catalog.log(topic, partition)
            if served is None:
                continue
            place = [group, topic, str(partition)]
            committed.add_metric(place, positions[key])
            try:
                unread = served.log.retry_if_changed(
                    partial(self._unread, key, served.log, positions[key], deadline)
                )
            except _UNREADABLE:
                continue
            if unread is None:
                waiting += 1
                continue
            records.add_metric(place, unread.records)
            lag_ms = unread.lag_ms(None)
            if lag_ms is not None:
                seconds.add_metric(place, lag_ms / 1000)
        uncounted = GaugeMetricFamily(
            "kafkastore_group_lags_uncounted",
            "Lags that have no sample yet, because counting the records takes longer.",
            value=waiting,
        )
        return [committed, records, seconds, uncounted]

    def _unread(
        self, key: tuple[str, str, int], log: PartitionLog, offset: int, deadline: float
    ) -> Unread | None:
        """Return the unread records; None if they are not counted yet or lie elsewhere."""
        end, start = log.log_end_offset, max(offset, log.log_start_offset)
        if start < log.local_log_start_offset:
            return None
        count = self._counts.get(key)
        is_known = count is not None and count.start_offset == start and count.is_of(log)
        if count is None or not is_known or count.counted_to > max(start, end):
            count = self._counts[key] = _Count(start, start)
        return count.unread if count.go_on(log, end, deadline) else None
