from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkastore.cli.options.times import Moment, find_unit_warning, format_time, parse_moment
from kafkastore.log.timestamp_warnings import TimestampWarning

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "timestamp"),
    [
        ("0", 0),
        ("1500000000123", 1500000000123),
        ("9223372036854775807", (1 << 63) - 1),
        ("2017-07-14T02:40:00Z", 1500000000000),
        ("2017-07-14T04:40:00+02:00", 1500000000000),
        ("2017-07-14 02:40:00.123Z", 1500000000123),
        ("20170714T024000Z", 1500000000000),
        ("1970-01-01T00:00:00Z", 0),
    ],
)
def test_absolute_times(text: str, timestamp: int) -> None:
    assert parse_moment(text) == Moment(text, timestamp)


@pytest.mark.parametrize(
    ("text", "back"),
    [("now", 0), ("-2h", 7_200_000), ("-90s", 90_000), ("-1d12h", 129_600_000),
     ("-1w", 604_800_000), ("-5m", 300_000), ("-250ms", 250), ("-0s", 0)],
)
def test_relative_times(text: str, back: int) -> None:
    assert parse_moment(text) == Moment(text, -back, is_relative=True)


def test_the_time_zone_applies_to_times_without_one() -> None:
    assert parse_moment("2017-07-14T04:40:00", BERLIN).timestamp == 1500000000000
    assert parse_moment("2017-07-14", BERLIN).timestamp == 1499983200000
    assert parse_moment("2017-07-14T02:40:00Z", BERLIN).timestamp == 1500000000000


@pytest.mark.parametrize("text", [
    "2017-07-14T04:40:00",
    "2017-07-14",
    "-2",
    "-2y",
    "-",
    "",
    "14:05",
    "1e3",
    "\u0661\u0665\u0660\u0660",
    "-\u0662h",
    "\u0662\u0660\u0661\u0667-07-14T02:40:00Z",
    "-\uff12h",
    "-" + "9" * 5000 + "h",
    "9223372036854775808",
    "-9223372036854775809",
    "1969-12-31T23:59:59Z",
])
def test_text_that_is_not_a_time_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError):
        parse_moment(text)


@pytest.mark.parametrize("text", ["2024-10-27T02:30:00", "2024-03-31T02:30:00"])
def test_a_time_when_clocks_change_needs_its_offset(text: str) -> None:
    with pytest.raises(click.UsageError):
        parse_moment(text, BERLIN)
    assert parse_moment(text + "+01:00", BERLIN).timestamp > 0


def test_fractions_of_a_ms_are_rounded_up_so_that_ranges_are_exact() -> None:
    assert parse_moment("2017-07-14T02:40:00.000001Z").timestamp == 1500000000001


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("1500000000", TimestampWarning.SECONDS),
        ("1500000000000000", TimestampWarning.MICROSECONDS),
        ("1500000000000000000", TimestampWarning.NANOSECONDS),
        ("1500000000000", None),
        ("7000000000000", None),
        ("500", None),
        ("0", None),
        ("1970-01-18T08:40:00Z", None),
        ("-2h", None),
    ],
)
def test_a_number_in_another_unit_than_ms_is_noticed(
    text: str, unit: TimestampWarning | None
) -> None:
    assert find_unit_warning(parse_moment(text)) is unit


def test_times_are_shown_in_the_chosen_time_zone() -> None:
    assert format_time(1500000000123) == "2017-07-14T02:40:00.123Z"
    assert format_time(1500000000123, BERLIN) == "2017-07-14T04:40:00.123+02:00"
    assert format_time(1500000000123, ZoneInfo("UTC")) == "2017-07-14T02:40:00.123+00:00"


def test_missing_times_are_shown_as_a_dash_and_times_beyond_the_calendar_as_a_number() -> None:
    for zone in (None, BERLIN):
        assert format_time(None, zone) == format_time(-1, zone) == "-"
        assert format_time((1 << 63) - 1, zone) == "9223372036854775807 ms"
        assert format_time(-(1 << 63), zone) == "-9223372036854775808 ms"
    assert format_time(-62_135_596_800_001) == "-62135596800001 ms"


def test_times_before_1970_are_times() -> None:
    assert format_time(-2) == "1969-12-31T23:59:59.998Z"
    assert format_time(-2, BERLIN) == "1970-01-01T00:59:59.998+01:00"
    assert format_time(-62_135_596_800_000) == "0001-01-01T00:00:00.000Z"


@given(st.integers(0, int(datetime(9999, 12, 31, tzinfo=UTC).timestamp() * 1000)))
def test_a_shown_time_can_be_given_as_an_argument(timestamp: int) -> None:
    assert parse_moment(format_time(timestamp)).timestamp == timestamp
    shown = format_time(timestamp, BERLIN)
    assert parse_moment(shown).timestamp == timestamp


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_any_timestamp_can_be_shown(timestamp: int) -> None:
    for zone in (None, BERLIN):
        assert format_time(timestamp, zone)
