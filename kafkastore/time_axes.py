"""Plots over time: a figure with round times on its horizontal axis.

matplotlib is imported when something is drawn; the extra `spark` installs it.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The last ms of the year 9999, the largest time of a `datetime`.
LAST_DATE_MS = 253_402_300_799_999
MOST_TICKS = 5
SECOND, HOUR, DAY = 1000, 3_600_000, 86_400_000
#: Distances of ticks; the format of a tick, and of the part that all ticks have in common.
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


class Palette(NamedTuple):
    """Colours of text, of the frame, and of the plotted series."""

    ink: str
    faint: str
    correct: str
    legacy: str
    mtime: str


#: For a white page.
ON_WHITE = Palette("#1c2024", "#c8cdd2", "#0b6bcb", "#c2410c", "#7c3aed")


@contextmanager
def time_axes(
    palette: Palette, size: tuple[float, float], salt: str
) -> Iterator[tuple[Figure, Axes]]:
    """Yield a figure and axes to draw on; save the figure within the block.

    `size` is in inches. `salt` makes the ids of an SVG differ from those of others.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
        "font.family": "sans-serif",
        "font.size": 8,
        "text.color": palette.ink,
        "axes.labelcolor": palette.ink,
        "axes.edgecolor": palette.faint,
        "xtick.color": palette.ink,
        "ytick.color": palette.ink,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }
    with mpl.rc_context(settings):
        figure = Figure(figsize=size, layout="constrained")
        yield figure, figure.add_subplot()


def write_times(figure: Figure, axes: Axes) -> None:
    """Write times (ms since 1970) below a plot, and its legend above it."""
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
    """Choose at most five round times between two, both inclusive.

    Times are in ms since 1970. Also return the format of a tick (`strftime`), and of what all have
    in common.

    >>> time_ticks(1499999999999, 1500000180000)
    ([1500000000000, 1500000060000, 1500000120000, 1500000180000], '%H:%M', '%Y-%m-%d')
    """
    first, last = max(first, 0), min(last, LAST_DATE_MS)
    for step, form, above in STEPS:
        ticks = range(-(-first // step) * step, last + 1, step)
        if len(ticks) <= MOST_TICKS:
            return list(ticks), form, above
    return [first, last], "%Y", ""
