"""When each segment was last appended to, as far as brokers before the time index could tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kafkastore.formats.arguments import check_kind
from kafkastore.formats.file_names import LOG_SUFFIX, segment_file_name
from kafkastore.log.partition_log import PartitionLog


class SegmentTime(NamedTuple):
    """A segment's base offset and the modification time of its ``.log``, ms since 1970."""

    base_offset: int
    last_modified_ms: int


def segment_times(
    log: PartitionLog, mtimes: Mapping[str, int] | None = None, *, whole_seconds: bool = False
) -> tuple[SegmentTime, ...]:
    """List when the segments of a log were last appended to.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    mtimes : mapping of str to int, optional
        Modification times, ms since 1970, by the name of the ``.log``, or by its path from the log
        directory (``orders-3/00000000000000000042.log``). For directories that lost theirs; what is
        not named is taken from the files. `read_mtimes` reads such a mapping.
    whole_seconds : bool
        Whether the broker's Java saw whole seconds only, as Java 8 and 9 do (JDK-8177809; later
        updates of 8 are mended). A directory does not tell which Java it was.

    Returns
    -------
    tuple of SegmentTime
        By base offset. The times need not rise.

    Raises
    ------
    TypeError
        If `log` is no partition that is open, or `mtimes` no mapping.

    Notes
    -----
    Source: Kafka 2.4.0 ``LogSegment.lastModified``, which is Java's ``File.lastModified``.
    """
    check_kind("log", log, PartitionLog)
    given = {} if mtimes is None else mtimes
    if not isinstance(given, Mapping):
        raise TypeError(f"mtimes is a mapping of names to times in ms, not {mtimes!r}")
    times = []
    for segment in log.segments:
        name = segment_file_name(segment.base_offset, LOG_SUFFIX)
        mtime = given.get(f"{log.topic_partition}/{name}", given.get(name))
        if mtime is None:
            mtime = segment.last_modified_ms
        if whole_seconds:
            mtime -= mtime % 1000
        times.append(SegmentTime(segment.base_offset, mtime))
    return tuple(times)


def spread_times(log: PartitionLog, count: int, modified: Iterable[SegmentTime]) -> list[int]:
    """Choose times evenly from the first to the last that a partition knows of.

    Parameters
    ----------
    log : PartitionLog
        The partition: its segments' largest timestamps count.
    count : int
        How many.
    modified : iterable of SegmentTime
        When its segments were last modified.

    Returns
    -------
    list of int
        ms since 1970, rising; fewer where there are not so many.
    """
    moments: list[int | None] = [mtime for _, mtime in modified]
    moments += [segment.largest_record_timestamp("trust") for segment in log.segments]
    known = [each for each in moments if each is not None and each >= 0]
    if not known:
        return []
    first, last = min(known), max(known)
    if count == 1:
        return [last]
    return sorted({first + (last - first) * step // (count - 1) for step in range(count)})
