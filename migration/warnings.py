"""Warnings to read before a directory is migrated, from its survey."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from kafkastore.migration.segment_survey import SegmentSurvey

from kafkastore.log.modification_times import (
    SegmentTimes,
    in_the_future,
    of_a_copy,
    older_than_records,
)


class WarningKind(StrEnum):
    """The subject of a warning."""

    BROKER_RUNNING = "broker-running"
    UNCLEAN = "unclean"
    MODIFICATION_TIMES_LOST = "modification-times-lost"
    MODIFICATION_TIME_IN_THE_FUTURE = "modification-time-in-the-future"
    ZEROS = "zeros"
    NO_OFFSET_INDEX = "no-offset-index"
    UNREADABLE = "unreadable"
    SKIPPED = "skipped"


_COPY = "they look like those of a copy; pass the original ones with --mtimes FILE (mtimes=)"


@dataclass(frozen=True, slots=True)
class SurveyWarning:
    """One warning.

    Parameters
    ----------
    kind : WarningKind
        The subject.
    text : str
        One or two sentences.
    paths : tuple of str
        The affected files, relative to the survey's root; empty for the whole directory.
    """

    kind: WarningKind
    text: str
    paths: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind.value.replace('-', ' ')}: {self.text}"


class Surveyed(Protocol):
    """The attributes of a `Survey` that warnings need."""

    @property
    def root(self) -> str:
        """The directory."""

    @property
    def is_clean(self) -> bool | None:
        """Whether there was a clean shutdown; None: not a log directory."""

    @property
    def broker(self) -> int | None:
        """The process that has the directory open, or None."""

    @property
    def surveyed_at_ms(self) -> int:
        """The time of the survey, ms since 1970."""

    @property
    def skipped(self) -> tuple[str, ...]:
        """Directories that were not read, with the reason."""

    @property
    def segments_by_path(self) -> list[tuple[str, SegmentSurvey]]:
        """All segments, with the relative paths of their logs."""


def warnings_of(survey: Surveyed) -> tuple[SurveyWarning, ...]:
    """Return the warnings of a survey, the most severe first."""
    return tuple(
        warning
        for find in (
            _broker,
            _zeros,
            _unreadable,
            _older_than_records,
            _of_a_copy,
            _in_the_future,
            _unclean,
            _no_index,
            _skipped,
        )
        for warning in find(survey)
    )


def _broker(survey: Surveyed) -> Iterator[SurveyWarning]:
    """Warn of a running broker."""
    if survey.broker is not None:
        who = f"process {survey.broker}" if survey.broker > 0 else "another process"
        yield SurveyWarning(
            WarningKind.BROKER_RUNNING,
            f"{who} has {survey.root} open; stop the broker before the migration",
        )


def _older_than_records(survey: Surveyed) -> Iterator[SurveyWarning]:
    """Warn of segments whose modification time is before their newest record."""
    times, _ = _times(survey)
    older = [each.path for each in older_than_records(times)]
    if older:
        stamped = sum(each.newest_ms is not None for each in times)
        yield SurveyWarning(
            WarningKind.MODIFICATION_TIMES_LOST,
            f"{len(older)} of {stamped} segments with timestamps were last modified before "
            f"their newest record, such as {older[0]}: lookups by modification time are wrong",
            tuple(older),
        )


def _of_a_copy(survey: Surveyed) -> Iterator[SurveyWarning]:
    """Warn of modification times closer together than appends could be."""
    times, all_known = _times(survey)
    why = of_a_copy(times, all_known=all_known)
    if why is not None:
        yield SurveyWarning(WarningKind.MODIFICATION_TIMES_LOST, f"{why}: {_COPY}")


def _in_the_future(survey: Surveyed) -> Iterator[SurveyWarning]:
    """Warn of modification times in the future, which delay retention."""
    times = (SegmentTimes(path, each.mtime_ms, None) for path, each in survey.segments_by_path)
    future = [each.path for each in in_the_future(times, survey.surveyed_at_ms)]
    if future:
        yield SurveyWarning(
            WarningKind.MODIFICATION_TIME_IN_THE_FUTURE,
            f"{len(future)} segments, such as {future[0]}: time-based retention deletes neither "
            "them nor later segments before these times",
            tuple(future),
        )


def _times(survey: Surveyed) -> tuple[list[SegmentTimes], bool]:
    """List segments' modification times, and whether all newest records are known.

    Logs of segments with a time index are not read, so their newest records are unknown.
    """
    full = [(path, each) for path, each in survey.segments_by_path if each.log.size > 0]
    times = [
        SegmentTimes(
            path,
            each.mtime_ms,
            None if each.scan is None else each.scan.largest_record_timestamp,
        )
        for path, each in full
    ]
    return times, all(each.scan is not None for _, each in full)


def _zeros(survey: Surveyed) -> Iterator[SurveyWarning]:
    """Warn of time indexes of zeros, which make a broker delete data."""
    paths = [
        path
        for path, each in survey.segments_by_path
        if each.time_index == "zeros" and not each.is_recovered_by_broker
    ]
    if paths:
        yield SurveyWarning(
            WarningKind.ZEROS,
            f"the time indexes of {len(paths)} segments are all zeros, such as that of {paths[0]}: "
            "a broker takes 0 as the segment's largest timestamp, and retention deletes it",
            tuple(paths),
        )


def _unreadable(survey: Surveyed) -> Iterator[SurveyWarning]:
    """Warn of logs that can't be read to the end, or that change."""
    for path, each in survey.segments_by_path:
        if each.scan is not None and each.scan.problem is not None:
            yield SurveyWarning(
                WarningKind.UNREADABLE,
                f"{os.path.join(survey.root, path)}: {each.scan.problem}; the time index is not "
                "rebuilt; repair the log first (kafkastore repair)",
                (path,),
            )


def _unclean(survey: Surveyed) -> Iterator[SurveyWarning]:
    """Report what the next start of a broker rebuilds."""
    if survey.is_clean is False:
        count = sum(each.is_recovered_by_broker for _, each in survey.segments_by_path)
        yield SurveyWarning(
            WarningKind.UNCLEAN,
            f"{survey.root} had no clean shutdown; the next start of a broker recovers {count} "
            "segments at or above their recovery points, and overwrites the indexes written for "
            "them now",
        )


def _no_index(survey: Surveyed) -> Iterator[SurveyWarning]:
    """Report the segments that a broker rebuilds whatever their time index is."""
    paths = tuple(
        path
        for path, each in survey.segments_by_path
        if not each.has_offset_index and each.time_index != "present"
    )
    if paths:
        yield SurveyWarning(
            WarningKind.NO_OFFSET_INDEX,
            f"{len(paths)} segments have no .index, such as {paths[0]}; a broker that finds none "
            "recovers the whole segment and rebuilds both indexes, so that an entry made from the "
            "modification time is lost; the modes auto and rebuild also create the .index",
            paths,
        )


def _skipped(survey: Surveyed) -> Iterator[SurveyWarning]:
    """Report the directories that were not read."""
    for each in survey.skipped:
        yield SurveyWarning(WarningKind.SKIPPED, each)
