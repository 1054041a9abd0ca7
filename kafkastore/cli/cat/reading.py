"""Read the records that ``kafkastore cat`` was asked for."""
from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kafkastore.cli.cat.bounds import Bounds
from kafkastore.cli.cat.record_writer import RecordWriter
from kafkastore.cli.output.failures import print_note
from kafkastore.cli.output.partition_errors import Problems
from kafkastore.errors import CorruptionError, KafkaStoreError
from kafkastore.log.damage import CorruptionHandler, OnCorrupt, SkippedBytes
from kafkastore.log.isolation import find_committed, reads_committed
from kafkastore.log.range_scan import SMALL_RANGE
from kafkastore.log.record_reading import RecordOptions, read
from kafkastore.store.partition_log import PartitionLog
from kafkastore.use_cases.lag import find_unread

if TYPE_CHECKING:
    from kafkastore.log.records_as_arrow import ArrowOptions

#: How much larger each range of offsets is in which the last records are searched.
_GROWTH = 4


def read_batches(
    log: PartitionLog,
    writer: RecordWriter,
    bounds: Bounds,
    limit: int | None,
    threads: int,
    on_corrupt: OnCorrupt,
    skipped: list[SkippedBytes],
) -> Iterator[Any]:
    """Yield a partition's records within the bounds, at most `limit`."""
    if limit == 0 or bounds.tail == 0:
        return
    if bounds.tail is not None:
        bounds = bounds._replace(start_offset=_tail_start(log, bounds, bounds.tail, on_corrupt))
    options = {
        "threads": threads, **writer.reading, "on_corrupt": on_corrupt, "skipped": skipped,
    }
    left = limit
    matching = _matching(log, bounds, writer.columns, limit, options, in_arrow=writer.in_arrow)
    for batch in matching:
        yield batch if left is None else batch.slice(0, left)
        if left is not None:
            left -= batch.num_rows
            if left <= 0:
                return
        del batch  # may be large; free it before the next one is decoded


def _matching(
    log: PartitionLog,
    bounds: Bounds,
    columns: tuple[str, ...],
    limit: int | None,
    options: dict[str, Any],
    *,
    in_arrow: bool = False,
) -> Iterator[Any]:
    """Yield the records that match the filter, with at least some columns."""
    compared = bounds.records.columns
    needed = tuple(dict.fromkeys((*columns, *compared)))
    options = {**options, "columns": needed, "limit": None if compared else limit}
    for batch in _rows(log, bounds, options, in_arrow=in_arrow):
        kept: Any = bounds.records.kept(batch)
        if kept.num_rows:
            is_wider = in_arrow and len(needed) > len(columns)
            yield kept.select(list(columns)) if is_wider else kept
        del batch, kept  # may be large; free them before the next one is decoded


def _rows(
    log: PartitionLog, bounds: Bounds, options: dict[str, Any], *, in_arrow: bool
) -> Iterator[Any]:
    """Yield the records within the bounds, as Arrow record batches or as buffers."""
    if bounds.latest is None and not in_arrow:
        yield from read(log, RecordOptions(**_within(bounds), **options))
        return
    from kafkastore.log.records_as_arrow import buffers_of

    chosen = _arrow_options(bounds, exact=not in_arrow, **options)
    batches = read(log, chosen) if bounds.latest is None else bounds.latest.read(log, chosen)
    for batch in batches:
        yield batch if in_arrow else buffers_of(batch)


def _arrow_options(bounds: Bounds, **others: Any) -> ArrowOptions:
    from kafkastore.log.records_as_arrow import ArrowOptions

    return ArrowOptions(**_within(bounds), **others)


def _within(bounds: Bounds) -> dict[str, Any]:
    """Return the options of reading that the bounds are."""
    names = (
        "start_offset", "end_offset", "start_timestamp", "end_timestamp", "isolation",
        "is_decided", "indexes",
    )
    return {name: getattr(bounds, name) for name in names}


def of_latest(
    logs: Iterable[PartitionLog], bounds: Bounds, problems: Problems
) -> Iterator[tuple[PartitionLog, Bounds]]:
    """Yield partitions with the last records of their topic's keys.

    The keys of a topic are read before its first partition is yielded. If one partition can't be
    read to its end, the last records are unknown, and none of the topic is yielded.
    """
    from kafkastore.store.latest_records import LatestRecords

    # Reading the records again reports what is skipped.
    options = _arrow_options(bounds, on_corrupt=problems.on_corrupt, skipped=[])
    for _, each in groupby(logs, key=attrgetter("topic")):
        topic = tuple(each)
        latest = LatestRecords(across_partitions=len(topic) > 1)
        try:
            for log in topic:
                latest.add(log, options)
        except (KafkaStoreError, OSError) as error:
            problems.add(log.topic_partition, error)
            if len(topic) > 1:
                print_note(f"nothing of {log.topic} is printed: last records may be unknown")
            continue
        for log in topic:
            yield log, bounds._replace(latest=latest)


def _tail_start(log: PartitionLog, bounds: Bounds, count: int, on_corrupt: OnCorrupt) -> int:
    """Return the offset of the first of the last `count` records.

    Offsets are searched from the end on, in ranges that grow; each is read once.
    """
    start, end = log.bounds(bounds.start_offset, bounds.end_offset)
    end = min(end, log.end_before(CorruptionHandler(on_corrupt, [])))
    size = max(count, SMALL_RANGE)
    # Reading the records again reports what is skipped.
    options: dict[str, Any] = {"on_corrupt": on_corrupt, "skipped": []}
    while start < end:
        first = max(start, end - size)
        last: deque[int] = deque(maxlen=count)
        within = bounds._replace(start_offset=first, end_offset=end)
        for batch in _matching(log, within, ("offset",), None, options):
            last.extend(batch.numbers("offset")[-count:].tolist())
        if len(last) == count:
            return last[0]
        count -= len(last)
        end, size = first, size * _GROWTH
    return start


def count_records(
    log: PartitionLog, bounds: Bounds, on_corrupt: OnCorrupt, skipped: list[SkippedBytes]
) -> Iterator[int]:
    """Yield numbers of records within the bounds, up to the first unreadable one.

    If every record of a range counts, headers say how many there are.
    """
    if bounds.tail == 0:
        return
    if bounds.tail is not None:
        bounds = bounds._replace(start_offset=_tail_start(log, bounds, bounds.tail, on_corrupt))
    is_timed = bounds.start_timestamp is not None or bounds.end_timestamp is not None
    if not is_timed and not bounds.records.columns and bounds.latest is None:
        try:
            yield _count_by_headers(log, bounds, CorruptionHandler(on_corrupt, skipped))
        except CorruptionError:
            pass  # count the records before it, as they are printed
        else:
            return
    options = {"on_corrupt": on_corrupt, "skipped": skipped}
    for batch in _matching(log, bounds, (), None, options):
        yield batch.num_rows


def _count_by_headers(log: PartitionLog, bounds: Bounds, damage: CorruptionHandler) -> int:
    start, end = log.bounds(bounds.start_offset, bounds.end_offset)
    aborted = None
    if reads_committed(bounds.isolation):
        last_stable_offset, aborted, _ = find_committed(log, start, end, damage=damage)
        end = min(end, last_stable_offset)
    return find_unread(log, start, end, aborted, damage).records
