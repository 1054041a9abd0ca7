"""What is done with each partition directory: functions of paths, that a task calls for many.

Each takes a `Place` and returns plain values, whatever it finds: a partition that can't be read is
a row with its error. `spread` spreads them.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kafkastore import legacy
from kafkastore.spark.jobs.places import FAILURES, open_place
from kafkastore.spark.jobs.reading import Reading, SegmentRow
from kafkastore.spark.spread import Place

BROKER_RULES = "2.4"


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
    """

    place: Place
    segments: tuple[SegmentRow, ...]
    log_start_offset: int
    log_end_offset: int
    records: int
    readable_end: int | None
    samples: tuple[tuple[int, int], ...]
    error: str | None


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


def survey_partition(place: Place) -> PartitionRow:
    """Read one partition once: what its segments hold, how far it can be read, records to sample.

    Parameters
    ----------
    place : Place

    Returns
    -------
    PartitionRow
    """
    reading = Reading()
    try:
        log = open_place(place)
        reading.begin(log)
        for batch in log.to_arrow(["offset", "timestamp"]):
            # Timestamps that do not fit Arrow's microseconds are null there.
            stamps = batch.column(1).fill_null(-1000).cast("int64").to_numpy() // 1000
            reading.add(batch.column(0).to_numpy(), stamps)
        log_end_offset, readable_end, error = log.log_end_offset, None, None
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


def times_to_ask(row: PartitionRow, quantiles: int, most: int = 200) -> list[int]:
    """Choose times at which the rules may differ, for one partition.

    Parameters
    ----------
    row : PartitionRow
        Its survey.
    quantiles : int
        How many times spread evenly over its records.
    most : int
        How many times at most; of more, every so manieth.

    Returns
    -------
    list of int
        ms since 1970, rising: each segment's modification time and largest timestamp, and the
        quantiles, all of them also one ms before and after.
    """
    marks: set[int] = set()
    for segment in row.segments:
        marks.add(segment.last_modified_ms)
        if segment.largest_timestamp is not None:
            marks.add(segment.largest_timestamp)
    stamps = sorted(timestamp for timestamp, _ in row.samples)
    if stamps and quantiles:
        places = np.linspace(0, len(stamps) - 1, quantiles).round().astype(int).tolist()
        marks.update(stamps[place] for place in places)
    times = sorted({mark + step for mark in marks for step in (-1, 0, 1) if mark + step >= 0})
    if len(times) > most:
        kept = np.linspace(0, len(times) - 1, most).round().astype(int).tolist()
        times = [times[number] for number in kept]
    return times
