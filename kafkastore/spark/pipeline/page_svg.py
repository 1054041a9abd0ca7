"""Drawings as SVG elements of the report's page, in the page's colours."""
from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafkastore.time_axes import Palette, time_axes, write_times

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Placeholder colours, replaced by the page's variables, so that one page can be light or dark.
DRAWN = Palette("#010101", "#020202", "#030303", "#040404", "#050505")
COLOURS: Mapping[str, str] = {
    getattr(DRAWN, name): f"var(--{name})" for name in Palette._fields
}
#: Inches; the width of a phone, so that text keeps its size there and is larger elsewhere.
WIDTH, HEIGHT = 3.9, 2.6
#: Width of a letter in the labels below an axis, in points.
LETTER = 5.5


@contextmanager
def figure_in_page(
    identity: str, what: str, height: float = HEIGHT
) -> Iterator[tuple[Figure, Axes, list[str]]]:
    """Yield axes to draw on and a list, which has the element after the block.

    `identity` is unique on the page, `what` is the text for screen readers, and `height` is in
    inches.
    """
    svg: list[str] = []
    with time_axes(DRAWN, (WIDTH, height), identity) as (figure, axes):
        yield figure, axes, svg
        _lay_out(figure, axes)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg.append(_part_of_page(text.getvalue(), identity, what))


def write_times_and_legend(figure: Figure, axes: Axes, columns: int = 1) -> None:
    """Write times below a drawing, and its legend of some columns above."""
    write_times(figure, axes)
    figure.legends[0].remove()
    figure.legend(loc="outside upper left", ncols=columns)


def _lay_out(figure: Figure, axes: Axes) -> None:
    """Fix the layout, with no more ticks than fit."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")
    ticks, labels = axes.get_xticks(), [each.get_text() for each in axes.get_xticklabels()]
    letters = axes.get_position().width * figure.get_figwidth() * 72 / LETTER
    longest = max(map(len, labels), default=0)
    every = max(1, -(-int(longest * len(labels)) // int(letters)))
    axes.set_xticks(ticks[::every], labels[::every])


def _part_of_page(text: str, identity: str, what: str) -> str:
    """Convert an SVG file to an element of a page, with the page's colours.

    The element has no prolog, and its ids are unique.
    """
    svg = text[text.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)
    svg = re.sub(r' width="[^"]*pt"| height="[^"]*pt"', "", svg, count=2)
    svg = re.sub(r'id="([^"]*)"', rf'id="{identity}-\1"', svg)
    svg = re.sub(r'xlink:href="#|url\(#', lambda at: at[0].removeprefix("xlink:") + identity + "-",
                 svg)
    svg = re.sub(r'( (?:d|x|y|transform)=")([^"]*)', _rounded, svg)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(what)}"', 1)
    for drawn, shown in COLOURS.items():
        svg = svg.replace(drawn, shown)
    return svg


def _rounded(attribute: re.Match[str]) -> str:
    """Round to two decimals; hundredths of a point are enough."""
    return attribute[1] + re.sub(r"(\.\d\d)\d+", r"\1", attribute[2])
