"""Print tables for people."""
from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from kafkastore.shown_text import escape_control_characters

#: Larger tables are printed as plain lines on a terminal too: layout takes 1 ms per row.
_MAX_LAID_OUT_ROWS = 1000
_MIN_PROSE_WIDTH = 30
_COLUMN_SEPARATOR = "  "


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: str = "", prose: str = ""
) -> None:
    """Print a table: with layout on a terminal, as plain lines to a file or pipe.

    `right` has the names of right-aligned columns, `prose` those whose text may wrap on a narrow
    terminal, both separated by commas.
    """
    cells = [list(map(escape_control_characters, row)) for row in rows]
    to_the_right = [name in right.split(",") for name in columns]
    is_prose = [name in prose.split(",") for name in columns]
    if sys.stdout.isatty() and len(cells) <= _MAX_LAID_OUT_ROWS:
        _print_laid_out(columns, cells, to_the_right, is_prose)
    else:
        _print_plain(columns, cells, to_the_right)


def _print_plain(
    columns: Sequence[str], rows: Sequence[Sequence[str]], to_the_right: Sequence[bool]
) -> None:
    """Print lines without wrapping."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, ["─" * width for width in widths], *rows):
        line = _COLUMN_SEPARATOR.join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, to_the_right, strict=True)
        )
        print(line.rstrip())


def _print_laid_out(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    to_the_right: Sequence[bool],
    is_prose: Sequence[bool],
) -> None:
    """Print with colours, prose columns wrapped to the terminal's width."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
    )
    narrowest = 0
    for index, name in enumerate(columns):
        width = max(Text(row[index]).cell_len for row in (columns, *rows))
        if is_prose[index]:
            width = min(width, _MIN_PROSE_WIDTH)
        narrowest += width + len(_COLUMN_SEPARATOR)
        table.add_column(
            Text(name),
            justify="right" if to_the_right[index] else "left",
            overflow="fold",
            no_wrap=not is_prose[index],
            min_width=width,
        )
    for row in rows:
        table.add_row(*map(Text, row))
    if narrowest > console.width:
        # The terminal then wraps the lines, and every character can still be copied.
        console = Console(width=narrowest, height=console.height)
    console.print(table, crop=False)


class StreamedTable:
    """A table of any length: rows are printed immediately, in fixed widths.

    A negative width left-aligns the column. The last column may be longer than its width.
    """

    def __init__(self, **widths: int) -> None:
        self._formats = [
            f"{{:{'<' if width < 0 else '>'}{abs(width)}}}" for width in widths.values()
        ]
        self._names = [name.replace("_", " ") for name in widths]
        self._has_head = False

    def add(self, *cells: object) -> None:
        """Print one row; the first call also prints the header."""
        if not self._has_head:
            self._has_head = True
            self._print(self._names)
        self._print(cells)

    def _print(self, cells: Iterable[object]) -> None:
        pairs = zip(self._formats, map(escape_control_characters, map(str, cells)), strict=True)
        sys.stdout.write("  ".join(each.format(cell) for each, cell in pairs).rstrip() + "\n")


def format_value(value: int | str | None) -> str:
    """Format a number, without separators, or a name; None is a dash."""
    return "-" if value is None else str(value)


def format_count(count: int, one: str, many: str = "") -> str:
    """Format a number with its noun.

    >>> format_count(1, "entry", "entries"), format_count(2000, "file")
    ('1 entry', '2,000 files')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
