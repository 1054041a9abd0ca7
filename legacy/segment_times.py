"""The time of the last append to each segment, as brokers before the time index knew it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkastore.arguments import check_kind
from kafkastore.errors import ArgumentTypeError
from kafkastore.formats.state.file_names import LOG_SUFFIX, segment_file_name
from kafkastore.store.partition_log import PartitionLog


class SegmentTime(NamedTuple):
    """A segment's base offset and the modification time of its ``.log``, ms since 1970."""

    base_offset: int
    last_modified_ms: int


def segment_times(
    log: PartitionLog, mtimes: Mapping[str, int] | None = None, *, whole_seconds: bool = False
) -> tuple[SegmentTime, ...]:
    """List the times of the last append to the segments of a log.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    mtimes : mapping of str to int, optional
        Modification times, ms since 1970, by the name of the ``.log``, or by its path relative to
        the log directory (``orders-3/00000000000000000042.log``). For directories that lost theirs;
        a missing entry is taken from the file. `read_mtimes` reads such a mapping.
    whole_seconds : bool
        Whether the broker's Java returned whole seconds only, as Java 8 and 9 do (JDK-8177809;
        fixed in later updates of 8). A directory does not show which Java it was.

    Returns
    -------
    tuple of SegmentTime
        By base offset. The times may not ascend.

    Raises
    ------
    TypeError
        If `log` is not an open partition, or `mtimes` is not a mapping.

    Notes
    -----
    Source: Kafka 2.4.0 ``LogSegment.lastModified``, which is Java's ``File.lastModified``.
    """
    check_kind("log", log, PartitionLog)
    given = {} if mtimes is None else mtimes
    if not isinstance(given, Mapping):
        raise ArgumentTypeError("mtimes", "a mapping of file names to times in ms", mtimes)
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
