"""Check from the records of both clusters whether a failover loses records."""
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafkastore.arguments import check_choice
from kafkastore.formats.records.batch_header import LOG_APPEND_TIME_BIT
from kafkastore.store.partition_log import PartitionLog
from kafkastore.use_cases.fingerprints import Fingerprints, Hashes, Match
from kafkastore.use_cases.kept_create_times import keeps_create_times
from kafkastore.use_cases.record_times import runs_between


class FailoverCheck(NamedTuple):
    """The result of comparing the records of two clusters with a failover answer.

    Each record counts as often as it occurs. Two records are the same if key, value and, by
    default, time are equal.

    Parameters
    ----------
    unread : int
        Records of cluster 1 at or after the position.
    found : int
        How many of these cluster 2 has.
    lost : int
        How many of those found are before the offset in cluster 2; 0 unless the answer is wrong.
    duplicates : int
        Records at or after the offset in cluster 2 that were consumed in cluster 1.
    unmatched : int
        Records before the offset in cluster 2 that cluster 1 does not have: deleted there, or never
        arrived.
    """

    unread: int
    found: int
    lost: int
    duplicates: int
    unmatched: int


def check_failover(
    source: PartitionLog,
    position: int,
    target: PartitionLog,
    offset: int,
    *,
    match: Match = "timestamp",
) -> FailoverCheck:
    """Check whether a failover from `position` in `source` to `offset` loses records.

    Both are the next offset to read. Cluster 2 has create times if a batch kept them; cluster 1 the
    times that consumers see or, if those match more records, create times.
    """
    check_choice("match", match, ("timestamp", "content"))
    start, end = source.log_start_offset, source.log_end_offset
    there = (
        _fingerprints(target, target.log_start_offset, offset, match, as_created=True)[0],
        _fingerprints(target, offset, target.log_end_offset, match, as_created=True)[0],
    )
    best: FailoverCheck | None = None
    most = -1
    for as_created in (False, True):
        consumed, has_both = _fingerprints(source, start, position, match, as_created=as_created)
        unread, have_both = _fingerprints(source, position, end, match, as_created=as_created)
        same, check = _compared((consumed, unread, *there))
        if same > most:
            most, best = same, check
        if match == "content" or not (has_both or have_both):
            break
    assert best is not None
    return best


def _compared(parts: tuple[Hashes, Hashes, Hashes, Hashes]) -> tuple[int, FailoverCheck]:
    """Compare records before and after the offset; count common ones.

    Of equal records in cluster 2, the consumed ones count as the first.
    """
    kinds, numbers = np.unique(np.concatenate(parts), return_inverse=True)
    counts, start = [], 0
    for part in parts:
        counts.append(np.bincount(numbers[start : start + len(part)], minlength=len(kinds)))
        start += len(part)
    consumed, unread, before, after = counts
    skipped = np.maximum(before - consumed, 0)
    found = np.minimum(unread, np.maximum(before + after - consumed, 0))
    same = np.minimum(consumed + unread, before + after)
    return int(same.sum()), FailoverCheck(
        unread=int(unread.sum()),
        found=int(found.sum()),
        lost=int(np.minimum(unread, skipped).sum()),
        duplicates=int(np.maximum(np.minimum(consumed, before + after) - before, 0).sum()),
        unmatched=int(np.maximum(skipped - unread, 0).sum()),
    )


def _fingerprints(
    log: PartitionLog, start: int, end: int, match: Match, *, as_created: bool
) -> tuple[Hashes, bool]:
    """Compute the fingerprints of records from `start` to `end`, exclusive.

    Also returns whether some records have both a create time and an append time.
    """
    start = max(start, log.log_start_offset)
    fingerprints = Fingerprints(start, end, match)
    found: list[Hashes] = [np.empty(0, np.uint64)]
    has_both = False
    for located in runs_between(log, start, end):
        headers = located.headers.copy()
        kept = keeps_create_times(headers)
        has_both = has_both or bool(kept.any())
        if as_created:
            headers["attributes"][kept] &= ~LOG_APPEND_TIME_BIT
        chosen = located.of(headers)
        found += [each for _, each in fingerprints.of(chosen)]
    return np.concatenate(found), has_both
