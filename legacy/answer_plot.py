"""Draw the offset for each time: legacy, by indexes, and correct.

The answers form steps: the legacy one changes at modification times, the others after timestamps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO, Literal, NamedTuple

import numpy as np
from kafkastore.legacy.comparison import Timestamps, as_timestamps
from numpy.typing import NDArray

from kafkastore.clock import clock
from kafkastore.errors import InRemoteSegmentError, KafkaStoreError
from kafkastore.lookup.legacy import offset_times
from kafkastore.lookup.offsets_before import OffsetTimes, first_offsets_before
from kafkastore.lookup.rules import CORRECT
from kafkastore.store.partition_log import PartitionLog
from kafkastore.time_axes import LAST_DATE_MS, ON_WHITE, Palette, time_axes, write_times
from kafkastore.versions import NEWEST_VERSION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The lines of more segments would merge into a grey area.
MOST_LINES = 100
#: Number of times in a drawing, which is about 600 points wide.
_TIMES = 1500
_SIZE = (7.5, 4.2)


class NothingToDrawError(KafkaStoreError, ValueError):
    """There are no two different times between which to draw answers."""


class AnswerPlot(NamedTuple):
    """The answers of one partition over a range of times.

    Parameters
    ----------
    timestamps : numpy.ndarray of int64, shape (n,)
        ms since 1970, ascending.
    legacy, broker, correct : numpy.ndarray of int64, shape (n,)
        Offsets; -1 if there is no answer.
    times : OffsetTimes
        The segments, and their modification times.
    """

    timestamps: NDArray[np.int64]
    legacy: NDArray[np.int64]
    broker: NDArray[np.int64]
    correct: NDArray[np.int64]
    times: OffsetTimes


def plot_answers(
    log: PartitionLog,
    timestamps: Timestamps,
    *,
    now: int | None = None,
    mtimes: Mapping[str, int] | None = None,
    rules: str = NEWEST_VERSION,
    whole_seconds: bool = False,
) -> AnswerPlot:
    """Look up many times from the first to the last of `timestamps`.

    The arguments are as for `compare`. The result contains every time at which the legacy answer
    changes. Raises NothingToDrawError if there are no two different times.
    """
    span = as_timestamps(timestamps)
    span = span[span <= LAST_DATE_MS]
    first, last = span.min(initial=LAST_DATE_MS), span.max(initial=0)
    if first >= last:
        raise NothingToDrawError("a plot needs at least two different times")
    now = clock() if now is None else now
    times = offset_times(log, now, mtimes=mtimes, whole_seconds=whole_seconds)
    changes = np.array([mtime for _, mtime in times.elements(now)], np.int64)
    targets = np.unique(
        np.concatenate((np.linspace(first, last, _TIMES).astype(np.int64), changes, changes - 1))
    )
    targets = targets[(targets >= first) & (targets <= last)]
    return AnswerPlot(
        targets,
        first_offsets_before(times, targets, now),
        _find_offsets(log, targets, rules),
        _find_offsets(log, targets, CORRECT),
        times,
    )


def _find_offsets(
    log: PartitionLog, targets: NDArray[np.int64], rules: str
) -> NDArray[np.int64]:
    """Find offsets for times; raise if one is in remote storage, and so unknown."""
    remote: dict[int, InRemoteSegmentError] = {}
    found = log.offsets_for_timestamps(targets, rules, remote=remote)
    for error in remote.values():
        raise error
    return np.ascontiguousarray(found["offset"])


def draw_answers(
    file: BinaryIO,
    form: Literal["svg", "png"],
    drawn: AnswerPlot,
    rules: str = NEWEST_VERSION,
) -> None:
    """Draw answers over time, with the segments and their modification times.

    `rules` is the broker's version for the legend. Raises ImportError without matplotlib.
    """
    palette = ON_WHITE
    with time_axes(palette, _SIZE, "answers") as (figure, axes):
        first, last = int(drawn.timestamps[0]), int(drawn.timestamps[-1])
        draw_boundaries(axes, palette, [base_offset for base_offset, _ in drawn.times.segments])
        draw_steps(
            axes,
            palette.correct,
            drawn.timestamps,
            drawn.correct,
            "pre",
            "correct: first record at or after",
            linewidth=3.5,
            alpha=0.4,
        )
        draw_steps(
            axes,
            palette.ink,
            drawn.timestamps,
            drawn.broker,
            "pre",
            f"{rules}: by time indexes",
            linewidth=1,
        )
        draw_steps(
            axes,
            palette.legacy,
            drawn.timestamps,
            drawn.legacy,
            "post",
            "legacy: by modification times",
        )
        marks = [each for each in drawn.times.segments if first <= each[1] <= last]
        axes.plot(
            [mtime for _, mtime in marks],
            [base_offset for base_offset, _ in marks],
            "v",
            color=palette.mtime,
            markersize=5,
            label="segments' first offsets, by modification time",
        )
        margin = (last - first) / 40
        axes.set_xlim(first - margin, last + margin)
        axes.set_ylabel("offset answered")
        write_times(figure, axes)
        if form == "svg":
            figure.savefig(file, format="svg", metadata={"Date": None})
        else:
            figure.savefig(file, format="png", dpi=160)


def draw_steps(
    axes: Axes,
    colour: str,
    timestamps: Sequence[int] | NDArray[np.int64],
    offsets: Sequence[int] | NDArray[np.int64],
    where: Literal["pre", "post"],
    label: str,
    **line: float,
) -> None:
    """Draw answers as steps, with nothing where the offset is -1.

    `timestamps` ascend. `where` is as in matplotlib: an answer is for the times up to its own
    ("pre") or from its own on ("post"). `line` are options of matplotlib's `plot`.
    """
    shown = np.asarray(offsets, np.float64)
    axes.plot(
        np.asarray(timestamps, np.float64),
        np.where(shown < 0, np.nan, shown),
        color=colour,
        drawstyle=f"steps-{where}",
        label=label,
        **line,  # type: ignore[arg-type]
    )


def draw_boundaries(axes: Axes, palette: Palette, base_offsets: Sequence[int]) -> None:
    """Draw a line at each segment's base offset, unless there are too many."""
    if len(base_offsets) <= MOST_LINES:
        for base_offset in base_offsets:
            axes.axhline(base_offset, color=palette.faint, linewidth=0.6, zorder=0)
