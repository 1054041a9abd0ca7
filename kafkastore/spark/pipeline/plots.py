"""The report's plots: SVG that is part of the page and takes its colours from it."""
from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from kafkastore.legacy import OffsetTimes, first_offsets_before
from kafkastore.legacy.staircase import draw_boundaries, draw_steps
from kafkastore.spark.jobs.partition_jobs import PartitionRow
from kafkastore.time_axes import LAST_DATE_MS, Palette, time_axes, write_times

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Colours to draw with, and the page's variables that take their place: one page, light or dark.
DRAWN = Palette("#010101", "#020202", "#030303", "#040404", "#050505")
COLOURS: Mapping[str, str] = {
    getattr(DRAWN, name): f"var(--{name})" for name in Palette._fields
}


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
    with _figure(f"segments-{_identity(row)}") as (axes, svg):
        stamps, offsets = _samples(row)
        if stamps:
            axes.plot(
                stamps,
                offsets,
                ".",
                color=DRAWN.correct,
                markersize=3,
                label="records, by timestamp",
            )
        ends = [segment.base_offset for segment in row.segments[1:]] + [row.log_end_offset]
        draw_boundaries(axes, DRAWN, [segment.base_offset for segment in row.segments])
        modified = [
            (segment.last_modified_ms, end)
            for segment, end in zip(row.segments, ends, strict=True)
            if 0 <= segment.last_modified_ms <= LAST_DATE_MS
        ]
        axes.plot(
            [when for when, _ in modified],
            [end for _, end in modified],
            "v",
            color=DRAWN.mtime,
            markersize=5,
            label="segments' ends, by modification time",
        )
        axes.set_ylabel("offset")
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
    with _figure(f"staircase-{_identity(row)}") as (axes, svg):
        stamps, offsets = _samples(row)
        if stamps:
            reached = np.maximum.accumulate(np.array(stamps))
            first = np.flatnonzero(np.diff(reached, prepend=-1))
            draw_steps(
                axes,
                DRAWN.correct,
                reached[first],
                np.array(offsets)[first],
                "pre",
                "correct: first record at or after",
            )
        times, answers = _legacy_steps(row, now)
        draw_steps(axes, DRAWN.legacy, times, answers, "post", "legacy: by modification times")
        axes.set_ylabel("offset answered")
    return svg[0]


def _legacy_steps(row: PartitionRow, now: int) -> tuple[list[int], list[int]]:
    """Return the times at which the legacy answer changes, and the answers from then on."""
    segments = tuple((each.base_offset, each.last_modified_ms) for each in row.segments)
    moments = sorted({when for _, when in segments if 0 <= when <= LAST_DATE_MS})
    if not moments:
        return [], []
    moments.append(max([moments[-1], *_samples(row)[0]]))
    times = OffsetTimes(segments, None, row.log_start_offset)
    return moments, first_offsets_before(times, moments, now).tolist()


def _samples(row: PartitionRow) -> tuple[list[int], list[int]]:
    shown = [each for each in row.samples if each[0] <= LAST_DATE_MS]
    return [timestamp for timestamp, _ in shown], [offset for _, offset in shown]


def _identity(row: PartitionRow) -> str:
    return re.sub(r"\W", "_", f"{row.place.store}-{row.place.topic}-{row.place.partition}")


@contextmanager
def _figure(identity: str) -> Iterator[tuple[Axes, list[str]]]:
    """Give axes to draw on; the element is in the list when the block has ended."""
    svg: list[str] = []
    # As wide as a phone is, so that text keeps its size there and grows elsewhere.
    with time_axes(DRAWN, (4.2, 2.6), identity) as (figure, axes):
        yield axes, svg
        write_times(figure, axes)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg.append(_part_of_page(text.getvalue(), identity))


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
