"""A bar on stderr while long work goes on, if somebody is there to see it."""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Advance]:
    """Show how far some work is.

    Parameters
    ----------
    what : str
        The work, in a word or two.
    total : int or None
        Steps in all, if known.

    Yields
    ------
    callable
        To be told of every few steps done. Shows nothing where stderr is no terminal.
    """
    if not sys.stderr.isatty():
        yield lambda steps: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as shown:
        task = shown.add_task(what.replace("[", "\\["), total=total)
        yield lambda steps: shown.advance(task, steps)
