"""What is done with each partition directory: functions of paths, that a task calls for many.

Each takes a `Place` and returns plain values, whatever it finds: a partition that can't be read is
a row with its error. `spread` spreads them.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafkastore import legacy
from kafkastore.spark.jobs.places import FAILURES, open_place
from kafkastore.spark.jobs.reading import Reading, SegmentRow
from kafkastore.spark.spread import Place
from kafkastore.store.sample_times import sample_times

BROKER_RULES = "2.4"
#: Times that a partition is asked for at most, unless they are given.
MOST_TIMES = 200


class PartitionRow(NamedTuple):
    """One partition, surveyed.

    Attributes
    ----------
    place : Place
    segments : tuple of SegmentRow
        By base offset.
    log_start_offset, log_end_offset : int
        Inclusive, exclusive.
    records : int
        How many can be read.
    readable_end : int or None
        Exclusive end of what can be read, where the log is broken; else None.
    samples : tuple of (timestamp, offset)
        Records spread over the log, in offset order, those without timestamp left out.
    error : str or None
        Why the survey is not complete.
    times : tuple of int
        Times to ask for offsets, ms since 1970, rising; none of a partition that can't be read.
    """

    place: Place
    segments: tuple[SegmentRow, ...]
    log_start_offset: int
    log_end_offset: int
    records: int
    readable_end: int | None
    samples: tuple[tuple[int, int], ...]
    error: str | None
    times: tuple[int, ...] = ()


class AnswerRow(NamedTuple):
    """One time asked of one partition: offsets, None where there is no answer.

    Attributes
    ----------
    timestamp : int
        ms since 1970.
    legacy : int or None
        The first that OffsetRequest v0 answers, by modification times.
    kip_33, broker, correct : int or None
        By KIP-33's text, by a broker of `BROKER_RULES`, and the first record at or after the time.
    redelivered, missed : int or None
        Records between the legacy and the correct answer: read although they come before, or not
        seen.
    """

    timestamp: int
    legacy: int | None
    kip_33: int | None
    broker: int | None
    correct: int | None
    redelivered: int | None
    missed: int | None


class Answers(NamedTuple):
    """The answers of one partition, or why there are none."""

    place: Place
    rows: tuple[AnswerRow, ...]
    error: str | None


def survey_partition(place: Place, *, spread: int = 0) -> PartitionRow:
    """Read one partition once: what its segments hold, how far it can be read, records to sample.

    Parameters
    ----------
    place : Place
    spread : int
        How many of the times to ask for lie spread over its records, the others where answers can
        differ. 0: no times are chosen.

    Returns
    -------
    PartitionRow
    """
    reading = Reading()
    times: list[int] = []
    try:
        log = open_place(place)
        reading.begin(log)
        for batch in log.to_arrow(["offset", "timestamp"]):
            # Timestamps that do not fit Arrow's microseconds are null there.
            stamps = batch.column(1).fill_null(-1000).cast("int64").to_numpy() // 1000
            reading.add(batch.column(0).to_numpy(), stamps)
        log_end_offset, readable_end, error = log.log_end_offset, None, None
        if spread:
            modified = [segment.last_modified_ms for segment in log.segments]
            times = sample_times(log, spread, max(MOST_TIMES - spread, 0), modified)
    except FAILURES as failure:
        log_end_offset = readable_end = reading.next_offset
        error = str(failure)
    return PartitionRow(
        place,
        reading.segment_rows(),
        reading.log_start_offset,
        log_end_offset,
        int(reading.records.sum()),
        readable_end,
        reading.samples(),
        error,
        tuple(times),
    )


def answer_times(asked: tuple[Place, Sequence[int]], *, now: int) -> Answers:
    """Ask one partition for offsets by times, by each of the rules.

    Parameters
    ----------
    asked : Place and sequence of int
        Times in ms since 1970.
    now : int
        The clock of the legacy rules.

    Returns
    -------
    Answers
        In the order of the times.
    """
    place, times = asked
    rows: list[AnswerRow] = []
    try:
        log = open_place(place)
        for each in legacy.compare(log, times, now=now, broker_rules=BROKER_RULES):
            rows.append(
                AnswerRow(
                    each.target_timestamp,
                    each.legacy,
                    _offset(log.offset_for_timestamp(each.target_timestamp, "kip-33")),
                    _offset(each.broker),
                    _offset(each.correct),
                    each.redelivered,
                    each.missed,
                )
            )
    except FAILURES as failure:
        return Answers(place, (), str(failure))
    return Answers(place, tuple(rows), None)


def _offset(found: object) -> int | None:
    """Return the offset of a look-up's answer."""
    offset: int | None = getattr(found, "offset", None)
    return offset
