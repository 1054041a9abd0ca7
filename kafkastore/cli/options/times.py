"""Parse and format times: ms since 1970, ISO 8601, or relative (``-2h``)."""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from typing import Any, NamedTuple, TypeVar

import click

from kafkastore.arguments import INT64_MAX
from kafkastore.cli.options.durations import duration_of, meant_duration
from kafkastore.cli.options.selection import NotInStoreError, Selection
from kafkastore.cli.output.failures import print_note
from kafkastore.clock import EPOCH, MILLISECOND, clock
from kafkastore.log.time_text import format_time
from kafkastore.log.timestamp_warnings import (
    TimestampWarning,
    find_timestamp_warning,
    meant_timestamp,
)
from kafkastore.segment.index_trust import DEFAULT_INDEXES, INDEXES, Indexes
from kafkastore.shown_text import similar_names

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

_NUMBER = re.compile(r"[0-9]{1,19}")
#: Dates as people write them that can be read in one way only.
_OTHER_DATES = ("%d.%m.%Y", "%Y/%m/%d")
_TIME_OF_DAY = re.compile(r"[0-9]{1,2}:[0-9]{2}")
_DATE = re.compile(r"(?:19|20)[0-9]{6}")
LARGEST_TIMESTAMP = INT64_MAX


class Moment(NamedTuple):
    """A time from the user, and its original `text`.

    `timestamp` is ms since 1970; for a relative time, ms to add to the reference time, 0 or less.
    """

    text: str
    timestamp: int
    is_relative: bool = False


def _zone(
    context: click.Context, parameter: click.Parameter, name: str | None
) -> tzinfo | None:
    """Look up a zone in the time zone database."""
    if name is None:
        return None
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise click.BadParameter(
            f"must be a time zone such as Europe/Berlin or UTC, got {name!r}"
        ) from None


def zone_option(function: FunctionT) -> FunctionT:
    """Add ``--tz``, passed as `zone`."""
    return click.option(
        "--tz",
        "zone",
        callback=_zone,
        metavar="ZONE",
        help="Time zone of the output, and of times given without one. Default of the output: UTC.",
    )(function)


def relative_option(function: FunctionT) -> FunctionT:
    """Add ``--relative-to``."""
    return click.option(
        "--relative-to",
        type=click.Choice(["now", "newest"]),
        default="now",
        show_default=True,
        help="Times such as -2h are relative to the clock, or to the newest selected record.",
    )(function)


def indexes_option(function: FunctionT) -> FunctionT:
    """Add ``--indexes``."""
    return click.option(
        "--indexes",
        type=click.Choice(INDEXES),
        default=DEFAULT_INDEXES,
        show_default=True,
        help="How far time indexes are trusted. check compares them with their logs, and is always "
        "correct. trust reads little: it checks only a few index entries, and no checksums. ignore "
        "reads as check does, and uses no time indexes.",
    )(function)


def parse_moment(
    text: str, zone: tzinfo | None = None, more_names: Iterable[str] = ()
) -> Moment:
    """Parse ms since 1970, ISO 8601, ``now``, or a duration before now.

    `zone` applies to ISO 8601 without a zone. Fractions of a ms are rounded up. Raises
    click.UsageError for any other text, with the time, or one of `more_names`, that may be meant.

    >>> parse_moment("2017-07-14T02:40:00Z").timestamp
    1500000000000
    >>> parse_moment("-1h30m")[1:]
    (-5400000, True)
    """
    text = text.strip()
    if _NUMBER.fullmatch(text) and int(text) <= LARGEST_TIMESTAMP:
        return Moment(text, int(text))
    if text == "now":
        return Moment(text, 0, is_relative=True)
    back = duration_of(text[1:]) if text.startswith("-") else None
    if back is not None and back <= LARGEST_TIMESTAMP:
        return Moment(text, -back, is_relative=True)
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        meant = _meant_time(text, more_names)
        hint = f"; did you mean {meant}?" if meant else ""
        raise click.UsageError(
            "a time must be in ms since 1970, ISO 8601 such as 2024-03-01T14:05:00Z, or a time ago "
            f"such as -2h (units: ms s m h d w), got {text!r}{hint}"
        ) from None
    return Moment(text, _timestamp(text, parsed, zone))


def _meant_time(text: str, more_names: Iterable[str]) -> str | None:
    """Return the time that is meant by other words; None if that is not clear.

    >>> [_meant_time(each, ()) for each in ("10m", "1 hour ago", "yesterday", "14.07.2017")]
    ['-10m', '-1h', '-1d', '2017-07-14T00:00:00Z']
    """
    word = text.lower()
    if word == "yesterday":
        return "-1d"
    if ago := meant_duration(word.removeprefix("-").removesuffix("ago")):
        return f"-{ago}"
    for form in _OTHER_DATES:
        with suppress(ValueError):
            return f"{datetime.strptime(word, form):%Y-%m-%d}T00:00:00Z"
    if _TIME_OF_DAY.fullmatch(word):
        return f"{datetime.fromtimestamp(clock() / 1000, UTC):%Y-%m-%d}T{word.zfill(5)}Z"
    return next(iter(similar_names(word, ["now", *more_names], cutoff=0.7)), None)


def _timestamp(text: str, parsed: datetime, zone: tzinfo | None) -> int:
    """Return a date and time in ms since 1970."""
    if parsed.tzinfo is None:
        if zone is None:
            joined = text.replace(" ", "T")
            raise click.UsageError(
                f"{text} has no time zone; write {joined}Z for UTC, {joined}+01:00, or give --tz "
                "ZONE"
                if "T" in text or " " in text
                else f"{text} has no time zone; write {text}T00:00:00Z, or give --tz ZONE"
            )
        parsed = parsed.replace(tzinfo=zone)
        if parsed.utcoffset() != parsed.replace(fold=1).utcoffset():
            raise click.UsageError(
                f"{text} exists twice or not at all in {zone}, where clocks change then; "
                f"write the offset from UTC, such as {text}+01:00"
            )
    timestamp = -((EPOCH - parsed) // MILLISECOND)
    if timestamp < 0:
        raise click.UsageError(f"{text} is before 1970; timestamps count from 1970 on")
    return timestamp


def find_unit_warning(moment: Moment) -> TimestampWarning | None:
    """Return the unit that a number probably has, if that is not ms."""
    if moment.is_relative or moment.text != str(moment.timestamp):
        return None
    return find_timestamp_warning(moment.timestamp, now=moment.timestamp)


def _date_of(moment: Moment) -> str | None:
    """Return the day that a number such as 20240301 seems to be, in ISO 8601."""
    if moment.is_relative or not _DATE.fullmatch(moment.text):
        return None
    try:
        return f"{datetime.fromisoformat(moment.text):%Y-%m-%d}T00:00:00Z"
    except ValueError:
        return None


def resolve_times(
    moments: Iterable[Moment],
    selection: Selection,
    relative_to: str,
    indexes: Indexes = DEFAULT_INDEXES,
) -> list[int]:
    """Convert times to timestamps in ms since 1970, at least 0.

    `relative_to` is ``now`` or ``newest``, the newest record of the selection. Raises
    NotInStoreError if that is needed and no record has a timestamp.
    """
    moments = list(moments)
    base = 0
    if any(moment.is_relative for moment in moments):
        is_now = relative_to == "now"
        base = clock() if is_now else find_newest_timestamp(selection, indexes)
    for moment in moments:
        unit = find_unit_warning(moment)
        meant = meant_timestamp(moment.timestamp, unit)
        if unit is not None and meant is not None:
            print_note(
                f"{moment.text} is taken as ms since 1970; as {unit.value} it is "
                f"{format_time(meant)}, and in ms {meant}"
            )
        if meant is None and (date := _date_of(moment)) is not None:
            print_note(f"{moment.text} is taken as ms since 1970; write {date} for that day")
    return [
        max(base + moment.timestamp, 0) if moment.is_relative else moment.timestamp
        for moment in moments
    ]


def find_newest_timestamp(selection: Selection, indexes: Indexes) -> int:
    """Return the largest timestamp of the selected partitions."""
    found = [
        largest
        for log in selection.logs()
        for segment in log.segments
        if (largest := segment.largest_record_timestamp(indexes)) is not None
    ]
    if not found:
        raise NotInStoreError(
            "no selected record has a timestamp, so no time can be relative to the newest; give an "
            "absolute time"
        )
    return max(found)
