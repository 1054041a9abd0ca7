"""A bar on stderr while long work goes on, if somebody is there to see it."""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeVar

import click

from kafkastore.cli.visible import visible

if TYPE_CHECKING:
    from rich.progress import Progress

Item = TypeVar("Item")
Advance = Callable[[int], None]


@contextmanager
def progress(what: str, total: int | None, *, while_printing: bool = False) -> Iterator[Advance]:
    """Show how far some work is.

    Parameters
    ----------
    what : str
        The work, in a word or two.
    total : int or None
        Steps in all, if known.
    while_printing : bool
        Whether the work prints lines as it goes: no bar is drawn then where they go to a terminal.

    Yields
    ------
    callable
        To be told of every few steps done. Shows nothing where stderr is no terminal.
    """
    if not sys.stderr.isatty() or (while_printing and sys.stdout.isatty()):
        yield lambda steps: None
        return
    with bar() as shown:
        task = shown.add_task(visible(what).replace("[", "\\["), total=total, unit="")
        yield lambda steps: shown.advance(task, steps)


def counting(advance: Advance) -> Callable[[int, int | None], None]:
    """Return the callback that moves a bar on to the number of steps that are done."""
    before = 0

    def show(done: int, _: int | None) -> None:
        nonlocal before
        advance(done - before)
        before = done

    return show


def track(
    items: Iterable[Item], what: str, total: int, *, while_printing: bool = False
) -> Iterator[Item]:
    """Yield items one by one, and show how far the command is with them.

    Parameters
    ----------
    items : iterable
        Each is done when the next is asked for.
    what, total, while_printing : str, int, bool
        As for `progress`.

    Yields
    ------
    object
        The items.
    """
    # A `with` block here would end where the generator is dropped: the garbage collector may do
    # that in any thread, and the bar waits for one of its own. The command's end takes it away.
    stack = click.get_current_context().with_resource(ExitStack())
    advance = stack.enter_context(progress(what, total, while_printing=while_printing))
    for each in items:
        yield each
        advance(1)
    stack.close()


def bar() -> Progress:
    """Make a bar that is gone when its `with` block ends."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,  # else what is piped on would go to the terminal
    )


class StepProgress:
    """Shows the steps of a long job, each with a bar while it goes on and a line when it is done.

    A `kafkastore.spark.progress.Progress`.

    Parameters
    ----------
    tell : callable
        Told of each step that is done: its name, its seconds, what came of it.
    """

    def __init__(self, tell: Callable[[str, float, str], None]) -> None:
        self._tell = tell
        self._bar: Progress | None = None

    def step_started(self, step: str, unit: str, total: int | None) -> None:
        """Begin a bar."""
        if sys.stderr.isatty():
            self._bar = bar()
            self._bar.add_task(step, total=total, unit=unit)
            self._bar.start()

    def step_advanced(self, step: str, done: int, total: int | None) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total)

    def step_finished(self, step: str, seconds: float, summary: str) -> None:
        """Take the bar away and tell of the step."""
        self.close()
        self._tell(step, seconds, summary)

    def close(self) -> None:
        """Take away the bar of a step that failed; safe to repeat."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
