"""Parse and format durations."""
from __future__ import annotations

import re

import click

from kafkastore.arguments import INT64_MAX

_UNITS_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
# ASCII digits only: digits of other scripts may be mistaken for another number.
_DURATION = re.compile(r"(?:[0-9]+(?:ms|[smhdw]))+")
_PART = re.compile(r"([0-9]+)(ms|[smhdw])")
_NUMBER = re.compile(r"[0-9]+")
#: Names of units by which people write durations, and the unit that is meant.
_UNIT_NAMES = {
    name: unit
    for unit, names in {
        "ms": "ms msec msecs millis millisecond milliseconds",
        "s": "s sec secs second seconds",
        "m": "m min mins minute minutes",
        "h": "h hr hrs hour hours",
        "d": "d day days",
        "w": "w week weeks",
    }.items()
    for name in names.split()
}
_NAMED_PART = re.compile(r"([0-9]+) *([a-z]+) *(?:,|and)? *")


def parse_duration(
    context: click.Context | None, parameter: click.Parameter | None, text: str | None
) -> int | None:
    """Parse a duration to ms; a callback of options. None stays None.

    The text is in ms, or has units: ``90s``, ``1h30m``. Raises click.BadParameter if it is not a
    duration or needs more than 64 bits of ms.

    >>> parse_duration(None, None, "1h30m")
    5400000
    """
    if text is None:
        return None
    text = text.strip()
    duration = int(text[:20]) if _NUMBER.fullmatch(text) else duration_of(text)
    if duration is None:
        meant = meant_duration(text)
        hint = f"; did you mean {meant}?" if meant else ""
        raise click.BadParameter(
            "must be a number of ms or a duration such as 90s, 5m or 1h30m (units: ms s m h d w), "
            f"got {text!r}{hint}"
        )
    if duration > INT64_MAX:
        raise click.BadParameter(f"must be at most {INT64_MAX} ms, got {text!r}")
    return duration


def duration_of(text: str) -> int | None:
    """Return a duration with units in ms; None for any other text.

    >>> duration_of("1h30m"), duration_of("90")
    (5400000, None)
    """
    if not _DURATION.fullmatch(text):
        return None
    return sum(int(count[:20]) * _UNITS_MS[unit] for count, unit in _PART.findall(text))


def meant_duration(text: str) -> str | None:
    """Return a duration with other names of units as it should be written; else None.

    >>> [meant_duration(each) for each in ("5 min", "1 hour and 30 mins", "soon")]
    ['5m', '1h30m', None]
    """
    text, parts, at = text.strip().lower(), list[str](), 0
    while at < len(text):
        found = _NAMED_PART.match(text, at)
        if found is None or found[2] not in _UNIT_NAMES:
            return None
        parts.append(found[1] + _UNIT_NAMES[found[2]])
        at = found.end()
    return "".join(parts) or None


def format_duration(duration_ms: int | None) -> str:
    """Format a duration in ms with its two largest units; None is unknown.

    >>> [format_duration(each) for each in (None, 0, 999, 1250, 61_000, 5_400_000, 90_061_000)]
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
