"""The same times asked in three ways: OffsetRequest v0, a broker with time indexes, the truth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from kafkastore.legacy.offsets_before import fetch_offsets_before

from kafkastore.formats.entries import TimestampAndOffset
from kafkastore.log.partition_log import PartitionLog


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a consumer begins with for one time, and what it costs.

    Parameters
    ----------
    target_timestamp : int
        ms since 1970.
    legacy : int or None
        The offset that OffsetRequest v0 gave first; None if it gave none.
    broker : TimestampAndOffset or None
        What a broker with time indexes answers.
    correct : TimestampAndOffset or None
        The first record at or after the time; None if there is none.
    redelivered : int or None
        Records between the legacy and the correct offset, if the legacy one is lower: those that a
        consumer reads although they come before. Where no record matches, all from the legacy
        offset on. None without a legacy answer.
    missed : int or None
        Records between the two if the legacy offset is higher: those it never sees.
    """

    target_timestamp: int
    legacy: int | None
    broker: TimestampAndOffset | None
    correct: TimestampAndOffset | None
    redelivered: int | None
    missed: int | None


def compare(
    log: PartitionLog,
    timestamps: Iterable[int],
    *,
    now: int | None = None,
    mtimes: Mapping[str, int] | None = None,
    broker_rules: str = "2.4",
    legacy_rules: str = "2.4",
) -> list[Comparison]:
    """Ask for times in three ways, and count the records that lie between the answers.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    timestamps : iterable of int
        ms since 1970.
    now : int, optional
        The clock of the legacy rules, ms since 1970; by default that of this machine.
    mtimes : mapping of str to int, optional
        Modification times in ms for the legacy rules, where the files no longer have them.
    broker_rules, legacy_rules : str
        Kafka versions.

    Returns
    -------
    list of Comparison
        One for each time, in the order asked.

    Notes
    -----
    Records are counted, not offsets: gaps of compacted logs and transaction markers do not count.
    The records between the lowest and the highest answer are read once, however many times are
    asked for.
    """
    answers = []
    for timestamp in timestamps:
        before = fetch_offsets_before(log, timestamp, 1, now, legacy_rules, mtimes)
        answers.append(
            (
                timestamp,
                before[0] if before else None,
                log.offset_for_timestamp(timestamp, broker_rules),
                log.offset_for_timestamp(timestamp),
            )
        )
    end = log.log_end_offset
    # Where no record matches, a right consumer begins at the log end.
    begins = {each: end if each is None else each.offset for *_, each in answers}
    offsets = {legacy for _, legacy, _, _ in answers if legacy is not None} | set(begins.values())
    counts = _records_before(log, offsets)
    comparisons = []
    for timestamp, legacy, broker, correct in answers:
        redelivered = missed = None
        if legacy is not None:
            ahead = counts[begins[correct]] - counts[legacy]
            redelivered, missed = max(ahead, 0), max(-ahead, 0)
        comparisons.append(Comparison(timestamp, legacy, broker, correct, redelivered, missed))
    return comparisons


def _records_before(log: PartitionLog, offsets: set[int]) -> dict[int, int]:
    """Count the records from the lowest of some offsets up to each, exclusive, in one pass."""
    wanted = np.array(sorted(offsets), np.int64)
    if len(wanted) < 2:
        return dict.fromkeys(offsets, 0)
    counts = np.zeros(len(wanted), np.int64)
    reader = log.to_arrow(["offset"], start_offset=int(wanted[0]), end_offset=int(wanted[-1]))
    for batch in reader:
        read: npt.NDArray[np.int64] = batch.column(0).to_numpy()
        counts += np.searchsorted(read, wanted)
    return dict(zip(wanted.tolist(), counts.tolist(), strict=True))
