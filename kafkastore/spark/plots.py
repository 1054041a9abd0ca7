"""The report's plots: SVG that is part of the page and takes its colours from it."""
from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkastore.legacy import offsets_before
from kafkastore.spark.jobs import PartitionRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Colours to draw with, and the page's variables that take their place: one page, light or dark.
COLOURS: Mapping[str, str] = {
    "#010101": "var(--ink)",
    "#020202": "var(--faint)",
    "#030303": "var(--correct)",
    "#040404": "var(--legacy)",
    "#050505": "var(--mtime)",
}
INK, FAINT, CORRECT, LEGACY, MTIME = COLOURS
#: The last ms of the year 9999, the last that a date can have.
LAST_DATE_MS = 253_402_300_799_999
MOST_TICKS = 5
SECOND, HOUR, DAY = 1000, 3_600_000, 86_400_000
#: Distances of ticks; how to write a tick, and what all of them have in common.
STEPS = [
    *((ms, "%H:%M:%S.%f", "%Y-%m-%d") for ms in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *((SECOND * n, "%H:%M:%S", "%Y-%m-%d") for n in (1, 2, 5, 10, 15, 30)),
    *((60 * SECOND * n, "%H:%M", "%Y-%m-%d") for n in (1, 2, 5, 10, 15, 30)),
    *((HOUR * n, "%H:%M", "%Y-%m-%d") for n in (1, 2, 3)),
    *((HOUR * n, "%m-%d %Hh", "%Y") for n in (6, 12)),
    *((DAY * n, "%m-%d", "%Y") for n in (1, 2, 5, 7, 14)),
    *((DAY * n, "%Y-%m-%d", "") for n in (30, 61, 91, 182, 365)),
    *((int(DAY * 365.25 * n), "%Y", "") for n in (2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)),
]
#: Lines of more segments would be one grey area.
MOST_LINES = 100


def segments_over_time(row: PartitionRow) -> str:
    """Draw a partition's records by time and offset, its segments, and when each was last modified.

    Parameters
    ----------
    row : PartitionRow

    Returns
    -------
    str
        An ``<svg>`` element.
    """
    with _figure(f"segments-{_identity(row)}") as (figure, axes, svg):
        stamps, offsets = _samples(row)
        if stamps:
            axes.plot(
                stamps, offsets, ".", color=CORRECT, markersize=3, label="records, by timestamp"
            )
        ends = [segment.base_offset for segment in row.segments[1:]] + [row.log_end_offset]
        if len(row.segments) <= MOST_LINES:
            for segment in row.segments:
                axes.axhline(segment.base_offset, color=FAINT, linewidth=0.6, zorder=0)
        modified = [
            (segment.last_modified_ms, end)
            for segment, end in zip(row.segments, ends, strict=True)
            if 0 <= segment.last_modified_ms <= LAST_DATE_MS
        ]
        axes.plot(
            [when for when, _ in modified],
            [end for _, end in modified],
            "v",
            color=MTIME,
            markersize=5,
            label="segments' ends, by modification time",
        )
        axes.set_ylabel("offset")
        _finish(figure, axes)
    return svg[0]


def staircase(row: PartitionRow, now: int) -> str:
    """Draw which offset answers which time: by modification times, and in truth.

    Parameters
    ----------
    row : PartitionRow
    now : int
        The clock of the legacy rules, ms since 1970.

    Returns
    -------
    str
        An ``<svg>`` element.
    """
    with _figure(f"staircase-{_identity(row)}") as (figure, axes, svg):
        stamps, offsets = _samples(row)
        if stamps:
            reached = np.maximum.accumulate(np.array(stamps))
            first = np.flatnonzero(np.diff(reached, prepend=-1))
            axes.plot(
                reached[first].tolist(),
                [offsets[number] for number in first.tolist()],
                color=CORRECT,
                drawstyle="steps-pre",
                label="correct: first record at or after",
            )
        times, answers = _legacy_steps(row, now)
        axes.plot(
            times,
            answers,
            color=LEGACY,
            drawstyle="steps-post",
            label="legacy: by modification times",
        )
        axes.set_ylabel("offset answered")
        _finish(figure, axes)
    return svg[0]


def _legacy_steps(row: PartitionRow, now: int) -> tuple[list[int], list[int]]:
    """Return the times at which the legacy answer changes, and the answers from then on."""
    segments = [(segment.base_offset, segment.last_modified_ms) for segment in row.segments]
    times, answers = [], []
    moments = sorted({when for _, when in segments if 0 <= when <= LAST_DATE_MS})
    if moments:
        moments.append(max([moments[-1], *_samples(row)[0]]))
    for moment in moments:
        found = offsets_before(
            segments, moment, 1, log_end_offset=None, now=now, log_start_offset=row.log_start_offset
        )
        times.append(moment)
        answers.append(found[0])
    return times, answers


def _samples(row: PartitionRow) -> tuple[list[int], list[int]]:
    shown = [each for each in row.samples if each[0] <= LAST_DATE_MS]
    return [timestamp for timestamp, _ in shown], [offset for _, offset in shown]


def _identity(row: PartitionRow) -> str:
    return re.sub(r"\W", "_", f"{row.place.store}-{row.place.topic}-{row.place.partition}")


@contextmanager
def _figure(identity: str) -> Iterator[tuple[Figure, Axes, list[str]]]:
    """Give axes to draw on; the element is in the list when the block has ended."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": identity,
        "font.family": "sans-serif",
        "font.size": 8,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": FAINT,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }
    svg: list[str] = []
    with mpl.rc_context(settings):
        # As wide as a phone is, so that text keeps its size there and grows elsewhere.
        figure = Figure(figsize=(4.2, 2.6), layout="constrained")
        yield figure, figure.add_subplot(), svg
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg.append(_part_of_page(text.getvalue(), identity))


def _finish(figure: Figure, axes: Axes) -> None:
    """Write times below, and the legend above."""
    first, last = axes.get_xlim()
    ticks, form, above = time_ticks(int(first), int(last))
    when = [datetime.fromtimestamp(tick / 1000, UTC) for tick in ticks]
    axes.set_xticks(ticks, [f"{each:{form}}" for each in when])
    if above and when:
        axes.set_xlabel(f"{when[0]:{above}}")
    axes.set_xlim(first, last)
    axes.ticklabel_format(axis="y", style="plain", useOffset=False)
    figure.legend(loc="outside upper left", ncols=1)


def time_ticks(first: int, last: int) -> tuple[list[int], str, str]:
    """Choose at most five round times between two.

    Parameters
    ----------
    first, last : int
        ms since 1970, inclusive.

    Returns
    -------
    ticks : list of int
        ms since 1970.
    form : str
        How to write them (`strftime`).
    above : str
        How to write, once, what they have in common.

    Examples
    --------
    >>> time_ticks(1499999999999, 1500000180000)
    ([1500000000000, 1500000060000, 1500000120000, 1500000180000], '%H:%M', '%Y-%m-%d')
    """
    first, last = max(first, 0), min(last, LAST_DATE_MS)
    for step, form, above in STEPS:
        ticks = range(-(-first // step) * step, last + 1, step)
        if len(ticks) <= MOST_TICKS:
            return list(ticks), form, above
    return [first, last], "%Y", ""


def _part_of_page(text: str, identity: str) -> str:
    """Make an SVG file an element of a page: no prolog, the page's colours, ids of its own."""
    svg = text[text.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)
    svg = re.sub(r' width="[^"]*pt"| height="[^"]*pt"', "", svg, count=2)
    svg = re.sub(r'id="([^"]*)"', rf'id="{identity}-\1"', svg)
    svg = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{identity}-", svg)
    for drawn, shown in COLOURS.items():
        svg = svg.replace(drawn, shown)
    return svg
