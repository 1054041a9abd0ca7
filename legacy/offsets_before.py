"""OffsetRequest v0: offsets by the modification times of segments, as SimpleConsumer had them.

A broker lists (base offset, modification time) of every segment and, if the last one is not
empty, adds (log end offset, now).  From the newest on it looks for the first element that is not
later than the time asked for, and answers the offsets from there down, as many as wanted::

    segment 0           segment 7           padding
    (0, t1)             (7, t2)             (8, now)

    LatestTime, -1    -> from (8, now)      [8, 7, 0] at most
    T >= t2           -> from (7, t2)       [7, 0]
    t1 <= T < t2      -> from (0, t1)       [0]
    T < t1            ->                    []
    EarliestTime, -2  -> (0, t1)            [0]

So an answer is the *first* offset of a segment whose *last* append was not after T.

=============  ==============================  ================================
rules          offset of a segment             other negative times
=============  ==============================  ================================
0.8 to 0.10.2  base offset                     like any time: nothing is older
0.11 to 3.8    not below the log start offset  like any time
3.9            not below the log start offset  refused (UNSUPPORTED_VERSION)
from 4.0 on    no OffsetRequest v0             --
=============  ==============================  ================================

Source: Kafka 0.10.0.1 ``KafkaApis.fetchOffsetsBefore``; 2.4.0 ``Log.legacyFetchOffsetsBefore``,
``KafkaApis.handleListOffsetRequestV0``; 3.9.1 ``KafkaApis.handleListOffsetRequest``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence

from kafkastore.legacy.segment_times import SegmentTime, segment_times

from kafkastore.errors import KafkaStoreError
from kafkastore.log.offset_lookup import UnknownRulesError
from kafkastore.log.partition_log import PartitionLog

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2

_FIRST_WITH_LOG_START = (0, 11)
_FIRST_THAT_REFUSES_NEGATIVE = (3, 9)
_FIRST_WITHOUT_V0 = (4, 0)
_VERSION = re.compile(r"\d+(\.\d+){1,3}")


class UnsupportedTimestampError(KafkaStoreError, ValueError):
    """A negative timestamp that a broker of this version refuses: error 35, UNSUPPORTED_VERSION."""


def fetch_offsets_before(
    log: PartitionLog,
    target_timestamp: int,
    max_num_offsets: int,
    now: int | None = None,
    rules: str = "2.4",
    mtimes: Mapping[str, int] | None = None,
    *,
    high_watermark: int | None = None,
) -> list[int]:
    """Answer what a broker answered to OffsetRequest v0 (``getOffsetsBefore``).

    Parameters
    ----------
    log : PartitionLog
        The partition.
    target_timestamp : int
        ms since 1970, inclusive; -1 for the latest, -2 for the earliest offset.
    max_num_offsets : int
        How many offsets at most.
    now : int, optional
        The broker's clock, ms since 1970; by default that of this machine.
    rules : str
        Kafka version, 0.8 to 3.9.
    mtimes : mapping of str to int, optional
        Modification times in ms, where the files no longer have them; see `segment_times`.
    high_watermark : int, optional
        Exclusive end of what a consumer may see; by default the log end, as of a sole replica.

    Returns
    -------
    list of int
        Offsets, falling; the same one repeatedly where several segments lie below the log start
        offset. Empty when `target_timestamp` is before every modification time.

    Raises
    ------
    UnknownRulesError
        If the version has no OffsetRequest v0.
    UnsupportedTimestampError
        If that version refuses the timestamp.
    ValueError
        If `max_num_offsets` is negative.
    """
    version = parse_rules(rules)
    end: int | None = log.log_end_offset
    if log.segments and log.segments[-1].next_offset == log.segments[-1].base_offset:
        end = None  # the last segment holds nothing
    return offsets_before(
        segment_times(log, mtimes) or (SegmentTime(log.log_start_offset, 0),),
        target_timestamp,
        max_num_offsets,
        log_end_offset=end if log.segments else None,
        now=time.time_ns() // 1_000_000 if now is None else now,
        log_start_offset=log.log_start_offset if version >= _FIRST_WITH_LOG_START else 0,
        high_watermark=log.high_watermark if high_watermark is None else high_watermark,
        refuses_negative=version >= _FIRST_THAT_REFUSES_NEGATIVE,
    )


def offsets_before(
    segments: Sequence[tuple[int, int]],
    target_timestamp: int,
    max_num_offsets: int,
    *,
    log_end_offset: int | None,
    now: int,
    log_start_offset: int = 0,
    high_watermark: int | None = None,
    refuses_negative: bool = False,
) -> list[int]:
    """Work out the answer from segments' times alone.

    Parameters
    ----------
    segments : sequence of (base offset, modification time in ms)
        In offset order, at least one.
    target_timestamp : int
        ms since 1970, inclusive; -1 latest, -2 earliest.
    max_num_offsets : int
        How many offsets at most.
    log_end_offset : int or None
        Offset the next record will get; None if the last segment is empty.
    now : int
        The clock, ms since 1970.
    log_start_offset : int
        Offsets below it are answered as it.
    high_watermark : int, optional
        All offsets above it are answered as one: it.
    refuses_negative : bool
        Whether negative times other than -1 and -2 are an error.

    Returns
    -------
    list of int
        Offsets, falling.

    Examples
    --------
    Segments at 0 and 7, last appended to at 100 and 200; one record in the second:

    >>> segments = [(0, 100), (7, 200)]
    >>> offsets_before(segments, -1, 1, log_end_offset=8, now=300)
    [8]
    >>> offsets_before(segments, -2, 1, log_end_offset=8, now=300)
    [0]
    >>> offsets_before(segments, 150, 1, log_end_offset=8, now=300)
    [0]
    >>> offsets_before(segments, 250, 1, log_end_offset=8, now=300)
    [7]
    >>> offsets_before(segments, -1, 10, log_end_offset=8, now=300)
    [8, 7, 0]
    >>> offsets_before(segments, 99, 10, log_end_offset=8, now=300)
    []
    """
    if max_num_offsets < 0:
        raise ValueError(f"at most {max_num_offsets} offsets cannot be answered")
    elements = [(max(base_offset, log_start_offset), mtime) for base_offset, mtime in segments]
    if log_end_offset is not None:
        elements.append((log_end_offset, now))
    if target_timestamp == LATEST_TIMESTAMP:
        newest = len(elements) - 1
    elif target_timestamp == EARLIEST_TIMESTAMP:
        newest = 0
    elif target_timestamp < 0 and refuses_negative:
        raise UnsupportedTimestampError(f"timestamp {target_timestamp} is refused: error 35")
    else:
        # Backwards: modification times need not rise, and the newest element that fits wins.
        newest = len(elements) - 1
        while newest >= 0 and elements[newest][1] > target_timestamp:
            newest -= 1
    # A plain slice would wrap round at newest - max_num_offsets = -1.
    oldest = max(newest - max_num_offsets, -1)
    offsets = sorted((elements[each][0] for each in range(newest, oldest, -1)), reverse=True)
    if high_watermark is not None and any(offset > high_watermark for offset in offsets):
        offsets = [high_watermark, *(each for each in offsets if each <= high_watermark)]
    return offsets


def parse_rules(rules: str) -> tuple[int, ...]:
    """Return the Kafka version whose answers are wanted.

    Raises
    ------
    UnknownRulesError
        If that is no version with OffsetRequest v0.
    """
    if not _VERSION.fullmatch(rules):
        raise UnknownRulesError(f"rules {rules!r} are no Kafka version, such as 0.8.2 or 2.4")
    version = tuple(int(part) for part in rules.split("."))
    if version < (0, 8) or version >= _FIRST_WITHOUT_V0:
        raise UnknownRulesError(f"Kafka {rules} has no OffsetRequest v0: it is in 0.8 to 3.9")
    return version
