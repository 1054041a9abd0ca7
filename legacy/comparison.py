"""Compare offsets for a time: OffsetRequest v0, by time indexes, correct."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.arguments import INT64_MAX, timestamps_ms
from kafkastore.clock import clock
from kafkastore.errors import ArgumentTypeError, InRemoteSegmentError
from kafkastore.formats.indexes.entries import (
    IN_REMOTE_STORAGE,
    TIMESTAMP_AND_OFFSET,
    TimestampAndOffset,
    as_targets,
)
from kafkastore.log.damage import OnCorrupt, SkippedBytes, check_on_corrupt
from kafkastore.log.record_reading import RecordOptions, read
from kafkastore.lookup.legacy import offset_times
from kafkastore.lookup.offsets_before import first_offsets_before
from kafkastore.store.partition_log import PartitionLog
from kafkastore.versions import NEWEST_LEGACY_VERSION, NEWEST_VERSION

Timestamps = Iterable[int | datetime] | NDArray[np.int64 | np.datetime64]

COMPARISON = np.dtype(
    [
        ("target_timestamp", "<i8"),
        ("legacy", "<i8"),
        ("broker", TIMESTAMP_AND_OFFSET),
        ("correct", TIMESTAMP_AND_OFFSET),
        ("redelivered", "<i8"),
        ("missed", "<i8"),
    ]
)
"""One `Comparison`; -1 where there is none, `IN_REMOTE_STORAGE` for an offset that is there."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The offsets for one time, and the cost of starting at the legacy one.

    Parameters
    ----------
    target_timestamp : int
        ms since 1970.
    legacy : int or None
        The first offset that OffsetRequest v0 returned; None if it returned none.
    broker : TimestampAndOffset, InRemoteSegmentError or None
        The answer of a broker with time indexes, or the remote segment in which it looks for it.
    correct : TimestampAndOffset, InRemoteSegmentError or None
        The first record at or after the time, or the remote segment that has it; None if there is
        none.
    redelivered : int or None
        If the legacy offset is lower than the correct one: records between the two, which a
        consumer reads although they are earlier. If no record matches: all records from the legacy
        offset on. None without a legacy answer, and if the correct offset is in remote storage.
    missed : int or None
        If the legacy offset is higher: records between the two, which a consumer never reads.
    """

    target_timestamp: int
    legacy: int | None
    broker: TimestampAndOffset | InRemoteSegmentError | None
    correct: TimestampAndOffset | InRemoteSegmentError | None
    redelivered: int | None
    missed: int | None


class ComparisonSummary(NamedTuple):
    """The comparison of many times; see `combined` for several partitions.

    Parameters
    ----------
    times : int
        Number of times.
    unanswered_times : int
        Times without an answer from OffsetRequest v0.
    too_low, too_high : int
        Times whose legacy answer is too low, or too high, with records between.
    redelivered, missed : int
        Records that are read although they are before the correct offset, and records that are
        never read, in total.
    most_redelivered, most_missed : int
        The same for the worst time.
    broker_differs : int
        Times for which the broker with time indexes does not return the correct offset.
    remote_times : int
        Times for which one of these two is in remote storage, and so unknown; not counted in
        `broker_differs`.
    """

    times: int = 0
    unanswered_times: int = 0
    too_low: int = 0
    too_high: int = 0
    redelivered: int = 0
    missed: int = 0
    most_redelivered: int = 0
    most_missed: int = 0
    broker_differs: int = 0
    remote_times: int = 0

    def combined(self, other: ComparisonSummary) -> ComparisonSummary:
        """Return the summary of both.

        Parameters
        ----------
        other : ComparisonSummary
            Of other times or of another partition.
        """
        return ComparisonSummary(
            *(
                max(mine, its) if name.startswith("most_") else mine + its
                for name, mine, its in zip(self._fields, self, other, strict=True)
            )
        )


class RemoteOutcomes(NamedTuple):
    """The remote segments of times whose answers are in remote storage, by time.

    Parameters
    ----------
    broker, correct : dict of int to InRemoteSegmentError
        Of the answers of the broker with time indexes, and of the correct ones.
    """

    broker: dict[int, InRemoteSegmentError]
    correct: dict[int, InRemoteSegmentError]

    def segment_of(self, timestamp: int) -> InRemoteSegmentError | None:
        """Return the segment of the correct answer, or else of the broker's, if any.

        Parameters
        ----------
        timestamp : int
            The requested time, ms since 1970.
        """
        return self.correct.get(timestamp) or self.broker.get(timestamp)


def compare(
    log: PartitionLog,
    timestamps: Timestamps,
    *,
    now: int | None = None,
    mtimes: Mapping[str, int] | None = None,
    rules: str = NEWEST_VERSION,
    legacy_rules: str = NEWEST_LEGACY_VERSION,
    whole_seconds: bool = False,
    on_corrupt: OnCorrupt = "raise",
    skipped: list[SkippedBytes] | None = None,
) -> list[Comparison]:
    """Look up times in three ways, and count the records between the answers.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    timestamps : iterable of int or datetime, or numpy.ndarray of int64, shape (n,)
        ms since 1970, at least 0.
    now : int, optional
        The clock of the legacy rules, ms since 1970; by default this machine's clock.
    mtimes : mapping of str to int, optional
        Modification times in ms for the legacy rules, if the files have lost theirs; see
        `segment_times`.
    rules, legacy_rules : str
        Kafka versions.
    whole_seconds : bool
        Whether the legacy broker's Java returned whole seconds only; see `segment_times`.
    on_corrupt, skipped
        As for `PartitionLog.offset_for_timestamp`.

    Returns
    -------
    list of Comparison
        One for each time, in the order of `timestamps`.

    Raises
    ------
    UnknownRulesError
        If a version is unknown, has no time indexes, or does not support OffsetRequest v0.
    UnsupportedTimestampError
        If a time is negative.

    Notes
    -----
    Records are counted, not offsets: gaps of compacted logs and transaction markers do not count.
    The records between the lowest and the highest answer are read only once for all times.
    """
    remote = RemoteOutcomes({}, {})
    compared = compare_columns(
        log,
        timestamps,
        now=now,
        mtimes=mtimes,
        rules=rules,
        legacy_rules=legacy_rules,
        whole_seconds=whole_seconds,
        on_corrupt=on_corrupt,
        skipped=skipped,
        remote=remote,
    )
    return [
        Comparison(
            target,
            _or_none(legacy),
            remote.broker.get(target) or _record(broker),
            remote.correct.get(target) or _record(correct),
            _or_none(redelivered),
            _or_none(missed),
        )
        for target, legacy, broker, correct, redelivered, missed in compared.tolist()
    ]


def columns_by_name(compared: NDArray[np.void]) -> dict[str, NDArray[np.int64]]:
    """Return the columns of rows of COMPARISON, with the offsets of its answers only."""
    names = COMPARISON.names or ()
    columns = {name: compared[name] for name in names}
    return {
        name: np.ascontiguousarray(each if each.dtype.names is None else each["offset"])
        for name, each in columns.items()
    }


def compare_columns(
    log: PartitionLog,
    timestamps: Timestamps,
    *,
    now: int | None = None,
    mtimes: Mapping[str, int] | None = None,
    rules: str = NEWEST_VERSION,
    legacy_rules: str = NEWEST_LEGACY_VERSION,
    whole_seconds: bool = False,
    on_corrupt: OnCorrupt = "raise",
    skipped: list[SkippedBytes] | None = None,
    remote: RemoteOutcomes | None = None,
) -> NDArray[np.void]:
    """Compare many times at once; otherwise the same as `compare`.

    Parameters
    ----------
    log, timestamps, now, mtimes, rules, legacy_rules, whole_seconds, on_corrupt, skipped
        As for `compare`.
    remote : RemoteOutcomes, optional
        Gets the remote segments of the times whose answers are in remote storage.

    Returns
    -------
    numpy.ndarray of COMPARISON, shape (n,)
        One for each time, in the order of `timestamps`; -1 for None, and `IN_REMOTE_STORAGE`, -2,
        for an offset in remote storage.
    """
    check_on_corrupt(on_corrupt, skipped)
    remote = RemoteOutcomes({}, {}) if remote is None else remote
    targets = as_timestamps(timestamps)
    now = clock() if now is None else now
    times = offset_times(log, now, legacy_rules, mtimes, whole_seconds=whole_seconds)
    compared = np.empty(len(targets), COMPARISON)
    compared["target_timestamp"] = targets
    compared["legacy"] = first_offsets_before(times, targets, now)
    # The lookup of correct answers records the skipped bytes.
    compared["broker"] = log.offsets_for_timestamps(
        targets, rules, on_corrupt=on_corrupt, skipped=[], remote=remote.broker
    )
    corrupt: list[SkippedBytes] = []
    compared["correct"] = log.offsets_for_timestamps(
        targets, on_corrupt=on_corrupt, skipped=corrupt, remote=remote.correct
    )
    legacy, correct = compared["legacy"], compared["correct"]["offset"]
    end, last = log.end_offset(on_corrupt, corrupt), INT64_MAX
    if on_corrupt == "stop" and corrupt:
        end = last = corrupt[0].start_offset
    # If no record matches, a correct consumer starts at the log end.
    begins = np.where(correct < 0, end, correct)
    is_unknown = (legacy < 0) | (correct == IN_REMOTE_STORAGE)
    from_legacy = np.where(is_unknown, begins, np.minimum(legacy, last))
    offsets = np.unique(np.concatenate((begins, from_legacy)))
    counts = _records_before(log, offsets, on_corrupt, corrupt)
    if skipped is not None:
        skipped += dict.fromkeys(corrupt)
    ahead = (
        counts[np.searchsorted(offsets, begins)] - counts[np.searchsorted(offsets, from_legacy)]
    )
    compared["redelivered"] = np.where(is_unknown, -1, np.maximum(ahead, 0))
    compared["missed"] = np.where(is_unknown, -1, np.maximum(-ahead, 0))
    return compared


def as_timestamps(timestamps: Timestamps) -> NDArray[np.int64]:
    """Return times as an array of int64, ms since 1970."""
    if isinstance(timestamps, str | bytes) or not isinstance(timestamps, Iterable):
        raise ArgumentTypeError("timestamps", "a sequence of ints", timestamps)
    given = timestamps if isinstance(timestamps, np.ndarray) else list(timestamps)
    return as_targets(timestamps_ms("timestamps", given))


def summarize(compared: NDArray[np.void]) -> ComparisonSummary:
    """Summarise the costs of a comparison.

    Parameters
    ----------
    compared : numpy.ndarray of COMPARISON, shape (n,)
        As returned by `compare_columns`.

    Returns
    -------
    ComparisonSummary
        Of all times together.
    """
    redelivered = np.maximum(compared["redelivered"], 0)
    missed = np.maximum(compared["missed"], 0)
    broker, correct = compared["broker"]["offset"], compared["correct"]["offset"]
    are_remote = (broker == IN_REMOTE_STORAGE) | (correct == IN_REMOTE_STORAGE)
    return ComparisonSummary(
        times=len(compared),
        unanswered_times=int((compared["legacy"] < 0).sum()),
        too_low=int((redelivered > 0).sum()),
        too_high=int((missed > 0).sum()),
        redelivered=int(redelivered.sum()),
        missed=int(missed.sum()),
        most_redelivered=int(redelivered.max(initial=0)),
        most_missed=int(missed.max(initial=0)),
        broker_differs=int(((broker != correct) & ~are_remote).sum()),
        remote_times=int(are_remote.sum()),
    )


def _or_none(number: int) -> int | None:
    return None if number < 0 else number


def _record(found: tuple[int, int, int]) -> TimestampAndOffset | None:
    timestamp, offset, epoch = found
    return None if offset < 0 else TimestampAndOffset(timestamp, offset, _or_none(epoch))


def _records_before(
    log: PartitionLog,
    offsets: NDArray[np.int64],
    on_corrupt: OnCorrupt,
    skipped: list[SkippedBytes],
) -> NDArray[np.int64]:
    """Count the records from the lowest of ascending offsets up to each, exclusive."""
    counts = np.zeros(len(offsets), np.int64)
    if len(offsets) < 2:
        return counts
    options = RecordOptions(
        columns=["offset"],
        start_offset=int(offsets[0]),
        end_offset=int(offsets[-1]),
        on_corrupt=on_corrupt,
        skipped=skipped,
    )
    for batch in read(log, options):
        counts += np.searchsorted(batch.numbers("offset"), offsets)
    return counts
