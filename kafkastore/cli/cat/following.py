"""Follow growing partitions, for ``kafkastore cat --follow``."""
from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from kafkastore.cli.cat.bounds import Bounds
from kafkastore.cli.options.selection import Selection
from kafkastore.cli.output.failures import print_note
from kafkastore.cli.output.partition_errors import Problems
from kafkastore.errors import KafkaStoreError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.isolation import Isolation, reads_committed
from kafkastore.store.growing_logs import (
    LogNow,
    StableEnd,
    find_loss,
    inspect_log,
)
from kafkastore.store.partition_log import PartitionLog

#: Seconds between two looks at the directories.
INTERVAL_SECONDS = 0.5


class FollowedLog:
    """A growing log, and how far it has been read."""

    def __init__(self, log: PartitionLog, isolation: Isolation) -> None:
        self.log = log
        self._stable = StableEnd() if reads_committed(isolation) else None
        self._seen: LogNow | None = None
        self._next_offset: int | None = None

    def new_range(self) -> tuple[int | None, int]:
        """Return the start, at first None, and the end (exclusive) to read now.

        A note tells of records that were deleted before they were read, or have been replaced.
        """
        self.log.refresh()
        seen, start = self._seen, self._next_offset
        known = [] if seen is None or seen.last is None else [seen.last]
        now = inspect_log(self.log, known)
        if start is not None and seen is not None:
            is_marked = seen.last is not None and seen.end_offset == start
            mark = seen.last.mark if is_marked and seen.last is not None else None
            loss = find_loss(self.log, now, start, mark, known)
            if loss is not None:
                print_note(f"{loss}; continuing at offset {loss.resume_offset}")
                start = loss.resume_offset
        end = now.end_offset if self._stable is None else self._stable.find(self.log, now)
        self._seen, self._next_offset = now, max(end, start or 0)
        return start, end


def follow(
    select: Callable[[], Selection],
    bounds: Bounds,
    problems: Problems,
    flush: Callable[[], None],
    is_over: Callable[[], bool],
) -> Iterator[tuple[PartitionLog, Bounds]]:
    """Yield each partition that has new records, with their bounds, until `is_over`.

    `select` lists the partitions again, and `flush` is called before each pause. A partition that
    cannot be read is reported once, and not followed any more.
    """
    followed: dict[TopicPartition, FollowedLog] = {}
    ended: set[TopicPartition] = set()
    first, selection = bounds, select()
    while not is_over():
        for which in selection.topic_partitions:
            if which not in followed and which not in ended:
                log = selection.store.partitions[which]
                followed[which] = FollowedLog(log, bounds.isolation)
        for which, each in list(followed.items()):
            count = problems.count
            try:
                start, end = each.new_range()
            except (KafkaStoreError, OSError) as error:
                problems.add(which, error)
            else:
                asked = first if start is None else _from(bounds, start)
                if start is None or start < end:
                    yield each.log, asked._replace(end_offset=end, is_decided=True)
            if problems.on_corrupt == "skip":
                has_ended = problems.has_error(which)
            else:
                has_ended = problems.count > count
            if has_ended:
                del followed[which]
                ended.add(which)
        if not followed:
            return
        first = bounds._replace(tail=None)
        flush()
        time.sleep(INTERVAL_SECONDS)
        with suppress(KafkaStoreError, OSError):  # deleted: its partitions report it
            selection = select()


def _from(bounds: Bounds, start_offset: int) -> Bounds:
    """Return the bounds of what comes after the records read so far."""
    return bounds._replace(start_offset=max(start_offset, bounds.start_offset or 0), tail=None)
