"""Tables for people."""
from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Wide enough for every table: what is not a terminal has no edge to fold at.
_NO_EDGE = 10_000


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: str = "", title: str = ""
) -> None:
    """Print a table.

    Parameters
    ----------
    columns : sequence of str
        The head.
    rows : iterable of sequence of str
        As many cells each as there are columns.
    right : str
        Names of columns that are set to the right, separated by commas: numbers.
    title : str
        A line above it.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD, title=Text(title) if title else None, title_justify="left",
        show_edge=False, pad_edge=False, header_style="bold", title_style="",
    )
    to_the_right = right.split(",")
    for name in columns:
        table.add_column(
            Text(name), justify="right" if name in to_the_right else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    _print(table)


def _print(renderable: RenderableType) -> None:
    """Print with the terminal's width and colours, or, to a file or pipe, plainly and unfolded."""
    from rich.console import Console

    if sys.stdout.isatty():
        Console(highlight=False, markup=False, emoji=False).print(renderable)
        return
    console = Console(width=_NO_EDGE, color_system=None, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(renderable)
    for line in captured.get().splitlines():
        print(line.rstrip())


class StreamedTable:
    """A table of any length: each row is printed at once, in columns of fixed widths.

    Parameters
    ----------
    **widths : int
        Columns and their widths; a negative one is set to the left. The last may be any length.
    """

    def __init__(self, **widths: int) -> None:
        self._formats = [
            f"{{:{'<' if width < 0 else '>'}{abs(width)}}}" for width in widths.values()
        ]
        self._names = [name.replace("_", " ") for name in widths]
        self._has_head = False

    def add(self, *cells: object) -> None:
        """Print one row, under the head if it is the first."""
        if not self._has_head:
            self._has_head = True
            self._print(self._names)
        self._print(cells)

    def _print(self, cells: Iterable[object]) -> None:
        pairs = zip(self._formats, cells, strict=True)
        sys.stdout.write("  ".join(each.format(str(cell)) for each, cell in pairs).rstrip() + "\n")


def show_size(size: int) -> str:
    """Write a number of bytes with three digits.

    Examples
    --------
    >>> show_size(0), show_size(1023), show_size(2048), show_size(5 * 1024**3)
    ('0 B', '1023 B', '2.00 KiB', '5.00 GiB')
    """
    amount, units = float(size), iter(("KiB", "MiB", "GiB", "TiB", "PiB"))
    unit = "B"
    while amount >= 1024 and unit != "PiB":
        amount, unit = amount / 1024, next(units)
    if unit == "B":
        return f"{size} B"
    return f"{amount:.{2 if amount < 10 else 1 if amount < 100 else 0}f} {unit}"


def counted(count: int, one: str, many: str = "") -> str:
    """Write a number with its noun.

    Examples
    --------
    >>> counted(1, "entry", "entries"), counted(2000, "file")
    ('1 entry', '2,000 files')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
