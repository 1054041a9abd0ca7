"""Durations as people write and read them."""
from __future__ import annotations

import re

import click

from kafkastore.arguments import INT64_MAX

_UNITS_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_DURATION = re.compile(r"(?:[0-9]+(?:ms|[smhdw]))+")
_PART = re.compile(r"([0-9]+)(ms|[smhdw])")
_NUMBER = re.compile(r"[0-9]+")


def parse_duration(
    context: click.Context | None, parameter: click.Parameter | None, text: str | None
) -> int | None:
    """Parse a duration; a callback of options.

    Parameters
    ----------
    context, parameter : click.Context, click.Parameter
        Of the option; not looked at.
    text : str or None
        ms, or numbers with units: ``90s``, ``1h30m``.

    Returns
    -------
    int or None
        ms; None where nothing was given.

    Raises
    ------
    click.BadParameter
        If the text is none, or longer than 64 bits of ms.

    Examples
    --------
    >>> parse_duration(None, None, "1h30m")
    5400000
    """
    if text is None:
        return None
    text = text.strip()
    if _NUMBER.fullmatch(text):
        duration = int(text[:20])
    elif _DURATION.fullmatch(text):
        duration = sum(int(count[:20]) * _UNITS_MS[unit] for count, unit in _PART.findall(text))
    else:
        raise click.BadParameter(
            f"{text!r} is no duration; write ms, or such as 90s, 5m or 1h30m "
            f"(units: ms s m h d w)"
        )
    if duration > INT64_MAX:
        raise click.BadParameter(f"{text} is longer than 64 bits of ms")
    return duration


def show_duration(duration_ms: int | None) -> str:
    """Write a duration for people: its two largest units.

    Parameters
    ----------
    duration_ms : int or None
        ms; None is unknown.

    Returns
    -------
    str

    Examples
    --------
    >>> [show_duration(each) for each in (None, 0, 999, 1250, 61_000, 5_400_000, 90_061_000)]
    ['-', '0 ms', '999 ms', '1.250 s', '1m 1s', '1h 30m', '1d 1h']
    """
    if duration_ms is None:
        return "-"
    sign, left = ("-", -duration_ms) if duration_ms < 0 else ("", duration_ms)
    if left < 1000:
        return f"{sign}{left} ms"
    if left < 60_000:
        return f"{sign}{left / 1000:.3f} s"
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, _UNITS_MS[unit])
        if count or parts:
            parts.append(f"{count}{unit}")
    return sign + " ".join(part for part in parts[:2] if not part.startswith("0"))
