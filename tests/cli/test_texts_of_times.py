"""The texts of errors about times; all other tests check only types."""
from __future__ import annotations

from zoneinfo import ZoneInfo

import click
import pytest

from kafkastore.cli.options.times import parse_moment

TEXTS = [
    ("2017-07-14T04:40:00", "has no time zone; write 2017-07-14T04:40:00Z"),
    ("2017-07-14", "has no time zone; write 2017-07-14T00:00:00Z"),
    ("-2y", "a time must be in ms since 1970, ISO 8601 such as"),
    ("1969-12-31T23:59:59Z", "is before 1970; timestamps count from 1970 on"),
]


@pytest.mark.parametrize(("text", "problem"), TEXTS)
def test_the_error_about_an_invalid_time_shows_the_format(text: str, problem: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        parse_moment(text)
    assert problem in str(refused.value)


def test_a_time_when_clocks_change_needs_its_offset() -> None:
    with pytest.raises(click.UsageError) as refused:
        parse_moment("2024-10-27T02:30:00", ZoneInfo("Europe/Berlin"))
    assert "exists twice or not at all in Europe/Berlin" in str(refused.value)
