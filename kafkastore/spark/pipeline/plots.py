"""The report's drawings of a store and of a partition."""
from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kafkastore.jobs.compare import AnswerRow
from kafkastore.jobs.inventory import PartitionInventory
from kafkastore.legacy import OffsetTimes, first_offsets_before
from kafkastore.legacy.answer_plot import draw_boundaries, draw_steps
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES
from kafkastore.spark.pipeline.digest import (
    LEAST_POWER,
    MOST_POWER,
    densities,
    distances,
    name_of,
)
from kafkastore.spark.pipeline.page_svg import DRAWN, figure_in_page, write_times_and_legend
from kafkastore.spark.pipeline.results import RULES, StoreResult
from kafkastore.time_axes import LAST_DATE_MS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Limits of one plot: more points are thinned, more segments are combined into bars.
MOST_POINTS, MOST_ROWS, MOST_BARS, MOST_LETTERS = 300, 12, 60, 16
MARKS = {
    "legacy": (DRAWN.legacy, "."),
    "kip_33": (DRAWN.mtime, "x"),
    "broker": (DRAWN.ink, "+"),
}


class Bar(NamedTuple):
    """The time span of a segment, or of several successive ones."""

    first: int
    last: int


def timeline(store: StoreResult) -> str | None:
    """Draw the segments of the largest partitions over time; None without times."""
    rows = [row for row in store.partitions if row.records]
    timed = [row for row in rows if row.samples]
    colour = DRAWN.correct if timed else DRAWN.mtime
    chosen = sorted(timed or rows, key=lambda row: -row.place.bytes)[:MOST_ROWS]
    spans = [(name_of(row), _bars(row)) for row in chosen]
    spans = [(name, bars) for name, bars in spans if bars]
    if not spans:
        return None
    what = f"Segments of {len(spans)} partitions of {store.name} over time"
    height = 0.7 + 0.22 * len(spans)
    with figure_in_page(_identity("timeline", store.name), what, height) as (figure, axes, svg):
        for number, (_, bars) in enumerate(spans):
            for side in (0, 1):  # the next segment is drawn lower, so that both are visible
                _draw_bars(axes, bars[side::2], number - 0.38 + 0.38 * side, 0.38, colour)
        axes.set_ylim(len(spans) - 0.4, -0.6)
        first = min(bar.first for _, bars in spans for bar in bars)
        last = max(bar.last for _, bars in spans for bar in bars)
        margin = (last - first) // 40 + 1
        axes.set_xlim(first - margin, last + margin)
        known = "records' timestamps" if timed else "modification times"
        axes.plot([], [], color=colour, linewidth=4, label=f"segments, by their {known}")
        write_times_and_legend(figure, axes)
        axes.set_yticks(range(len(spans)), [_shortened(name) for name, _ in spans])
    return svg[0]


def _bars(row: PartitionInventory) -> list[Bar]:
    """Return the time span of each segment's records, or else of its writes."""
    stamps = np.array(_samples(row), np.int64).reshape(2, -1)
    places = np.searchsorted([each.base_offset for each in row.segments], stamps[1], "right") - 1
    bars: list[Bar] = []
    for number, segment in enumerate(row.segments):
        last = segment.largest_timestamp if row.samples else segment.modified
        if last is None or not 0 <= last <= LAST_DATE_MS:
            continue
        seen = stamps[0][places == number]
        first = int(seen.min()) if len(seen) else bars[-1].last if bars else last
        bars.append(Bar(min(first, last), last))
    together = -(-len(bars) // MOST_BARS)
    return [
        Bar(min(bar.first for bar in some), max(bar.last for bar in some))
        for some in (bars[at : at + together] for at in range(0, len(bars), together or 1))
    ]


def _draw_bars(axes: Axes, bars: Sequence[Bar], top: float, height: float, colour: str) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    if bars:
        shapes = [
            Path([(first, top), (last, top), (last, top + height), (first, top + height),
                  (first, top)], closed=True)
            for first, last in bars
        ]  # fmt: skip
        path = Path.make_compound_path(*shapes)
        axes.add_patch(PathPatch(path, facecolor=colour, edgecolor=colour, linewidth=0.8))


def _shortened(name: str) -> str:
    if len(name) <= MOST_LETTERS:
        return name
    return name[: MOST_LETTERS // 2 - 1] + "…" + name[-MOST_LETTERS // 2 :]


def density(store: StoreResult) -> str | None:
    """Draw how many segments have an index entry every so many bytes.

    Returns None if no segment is large enough.
    """
    offset, time = densities(store.partitions)
    if not sum(offset.counts) + sum(time.counts):
        return None
    powers = np.arange(LEAST_POWER, MOST_POWER + 1)
    what = f"Segments of {store.name} by bytes of log for one index entry"
    with figure_in_page(_identity("density", store.name), what) as (figure, axes, svg):
        for index, colour, width in ((offset, DRAWN.correct, 3.5), (time, DRAWN.mtime, 1.5)):
            axes.stairs(
                index.counts,
                np.append(powers, MOST_POWER + 1),
                color=colour,
                linewidth=width,
                label=f"{index.kind} indexes",
            )
        axes.axvline(
            float(np.log2(INDEX_INTERVAL_BYTES)),
            color=DRAWN.legacy,
            linewidth=1,
            label=f"index.interval.bytes={INDEX_INTERVAL_BYTES}",
        )
        shown = [power for power in powers.tolist() if power % 4 == 0]
        axes.set_xticks(shown, [_bytes(power) for power in shown])
        axes.set_xlabel("bytes of log for one entry")
        axes.set_ylabel("segments")
        axes.set_ylim(bottom=0)
        axes.locator_params(axis="y", integer=True)
        figure.legend(loc="outside upper left", ncols=1)
    return svg[0]


def _bytes(power: int) -> str:
    return f"{1 << power} B" if power < 10 else (
        f"{1 << power - 10} KiB" if power < 20 else f"{1 << power - 20} MiB"
    )


def differences_over_time(store: StoreResult) -> str | None:
    """Draw the distance of each rule's answers from the correct offset.

    The answers are those before the migration. Returns None if no answer is wrong.
    """
    found = {rule: distances(store, rule) for rule in MARKS}
    if not any(np.any(_is_date(stamps)) for stamps, _ in found.values()):
        return None
    what = f"Wrong answers of {store.name} over time, by their distance"
    with figure_in_page(_identity("differences", store.name), what) as (figure, axes, svg):
        axes.axhline(0, color=DRAWN.correct, linewidth=1, label="correct")
        for rule, (stamps, offsets) in found.items():
            if np.any(shown := _is_date(stamps)):
                _draw_marks(axes, rule, stamps[shown], offsets[shown], RULES[rule])
        axes.set_ylabel("offsets too early or late")
        furthest = max(int(np.abs(offsets).max(initial=10)) for _, offsets in found.values())
        write_times_and_legend(figure, axes, len(found) + 1)
        axes.set_yscale("symlog", linthresh=10)
        axes.set_ylim(-2 * furthest, 2 * furthest)
        powers = 10 ** np.arange(1, np.log10(furthest) + 1, max(1, np.log10(furthest) // 3))
        axes.set_yticks([*-powers[::-1], 0, *powers])
        axes.yaxis.set_major_formatter(lambda offset, _: f"{offset:+,.0f}" if offset else "0")
        axes.minorticks_off()
    return svg[0]


def segments_over_time(row: PartitionInventory) -> str:
    """Draw a partition by time and offset: records, segments, modification times."""
    identity = _identity("segments", row.place.store, name_of(row))
    what = f"Records and segments of {name_of(row)} by time and offset"
    with figure_in_page(identity, what) as (figure, axes, svg):
        stamps, offsets = _samples(row)
        if stamps:
            _draw_dots(axes, stamps, offsets, "records, by timestamp")
        ends = [segment.base_offset for segment in row.segments[1:]] + [row.log_end_offset]
        draw_boundaries(axes, DRAWN, [segment.base_offset for segment in row.segments])
        modified = [
            (segment.modified, end)
            for segment, end in zip(row.segments, ends, strict=True)
            if 0 <= segment.modified <= LAST_DATE_MS
        ]
        axes.plot(
            _thinned([when for when, _ in modified]),
            _thinned([end for _, end in modified]),
            "v",
            color=DRAWN.mtime,
            markersize=5,
            label="segments' ends, by modification time",
        )
        axes.set_ylabel("offset")
        write_times_and_legend(figure, axes)
    return svg[0]


def answers_over_time(row: PartitionInventory, answers: Sequence[AnswerRow], now: int) -> str:
    """Draw the offset for each time: by modification times, correct, and wrong.

    `answers` are those before the migration; `now` is the clock of the legacy rules, ms since 1970.
    """
    identity = _identity("answers", row.place.store, name_of(row))
    what = f"Offsets that {name_of(row)} answers for times"
    with figure_in_page(identity, what) as (figure, axes, svg):
        stamps, offsets = _samples(row)
        if stamps:
            reached = np.maximum.accumulate(np.array(stamps))
            first = np.flatnonzero(np.diff(reached, prepend=-1))
            draw_steps(
                axes,
                DRAWN.correct,
                reached[_with_last(first)],
                np.array(offsets)[_with_last(first)],
                "pre",
                "correct: first record at or after",
            )
        times, given = _legacy_steps(row, now)
        draw_steps(axes, DRAWN.legacy, times, given, "post", "legacy: by modification times")
        for rule in ("kip_33", "broker"):
            wrong = [
                (each.target_timestamp, getattr(each, rule))
                for each in answers
                if each.target_timestamp <= LAST_DATE_MS
                and getattr(each, rule) not in (None, each.correct)
            ]
            if wrong:
                at, given_then = np.array(wrong, np.int64).T
                label = f"wrong by {RULES[rule]}, before the migration"
                _draw_marks(axes, rule, at, given_then, label)
        axes.set_ylabel("offset answered")
        write_times_and_legend(figure, axes)
    return svg[0]


def _legacy_steps(row: PartitionInventory, now: int) -> tuple[list[int], list[int]]:
    """Return the times at which the legacy answer changes, and the new answers."""
    segments = tuple((each.base_offset, each.modified) for each in row.segments)
    moments = sorted({when for _, when in segments if 0 <= when <= LAST_DATE_MS})
    if not moments:
        return [], []
    moments = _thinned([*moments, max([moments[-1], *_samples(row)[0]])])
    times = OffsetTimes(segments, None, row.log_start_offset)
    return moments, first_offsets_before(times, moments, now).tolist()


def _draw_dots(axes: Axes, times: Sequence[int], offsets: Sequence[int], label: str) -> None:
    """Draw points as one path of zero-length strokes: a tenth of the bytes."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    points = np.repeat(np.array([_thinned(times), _thinned(offsets)], np.float64).T, 2, axis=0)
    codes = np.tile([Path.MOVETO, Path.LINETO], len(points) // 2)
    path = Path(points, codes)
    path.should_simplify = False
    axes.add_patch(
        PathPatch(path, fill=False, edgecolor=DRAWN.correct, linewidth=1.8, capstyle="round")
    )
    axes.update_datalim(points)
    axes.autoscale_view()
    axes.plot([], [], ".", color=DRAWN.correct, label=label)


def _draw_marks(
    axes: Axes, rule: str, times: NDArray[np.int64], offsets: NDArray[np.int64], label: str
) -> None:
    colour, mark = MARKS[rule]
    axes.plot(
        _thinned(times.tolist()),
        _thinned(offsets.tolist()),
        mark,
        color=colour,
        markersize=4,
        label=label,
    )


def _thinned(values: Sequence[int]) -> list[int]:
    """Return the first, the last and every n-th value."""
    return [values[at] for at in _with_last(np.arange(len(values))).tolist()]


def _with_last(places: NDArray[np.int64]) -> NDArray[np.int64]:
    if len(places) <= MOST_POINTS:
        return places
    return places[np.linspace(0, len(places) - 1, MOST_POINTS).astype(np.int64)]


def _is_date(stamps: ArrayLike) -> NDArray[np.bool_]:
    return np.asarray(stamps) <= LAST_DATE_MS


def _samples(row: PartitionInventory) -> tuple[list[int], list[int]]:
    shown = [each for each in row.samples if each[0] <= LAST_DATE_MS]
    return [timestamp for timestamp, _ in shown], [offset for _, offset in shown]


def _identity(*names: str) -> str:
    return re.sub(r"\W", "_", "-".join(names))
