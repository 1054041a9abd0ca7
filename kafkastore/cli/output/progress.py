"""Progress bars on stderr, if stderr is a terminal."""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from kafkastore.shown_text import escape_control_characters

if TYPE_CHECKING:
    from rich.progress import Progress

Item = TypeVar("Item")
Advance = Callable[[int], None]


@contextmanager
def progress(what: str, total: int | None, *, while_printing: bool = False) -> Iterator[Advance]:
    """Show a progress bar; yield a function of the number of new steps.

    `what` is the label, `total` the number of steps if known. `while_printing`: the work prints
    lines as it runs, so no bar is drawn if stdout is a terminal too.
    """
    if not sys.stderr.isatty() or (while_printing and sys.stdout.isatty()):
        yield lambda steps: None
        return
    with create_bar() as shown:
        label = escape_control_characters(what).replace("[", "\\[")
        task = shown.add_task(label, total=total, unit="")
        yield lambda steps: shown.advance(task, steps)


def to_progress_callback(advance: Advance) -> Callable[[int, int | None], None]:
    """Return a callback for `progress(done, total)` that moves a bar."""
    before = 0

    def show(done: int, _: int | None) -> None:
        nonlocal before
        advance(done - before)
        before = done

    return show


def create_bar() -> Progress:
    """Return a bar that disappears when its `with` block ends."""
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
        redirect_stdout=False,  # otherwise piped output would go to the terminal
    )


class StepProgress:
    """Shows the steps of a long job: a bar while it runs, then a line.

    A `kafkastore.spark.progress.PipelineProgress`. `report` is called after each step with its
    name, its seconds and a summary.
    """

    def __init__(self, report: Callable[[str, float, str], None]) -> None:
        self._report = report
        self._bar: Progress | None = None

    def step_started(self, step: str, unit: str, total: int | None) -> None:
        """Show a bar."""
        if sys.stderr.isatty():
            self._bar = create_bar()
            self._bar.add_task(step, total=total, unit=unit)
            self._bar.start()

    def step_advanced(self, step: str, done: int, total: int | None) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total)

    def step_finished(self, step: str, seconds: float, summary: str) -> None:
        """Remove the bar and report the step."""
        self.close()
        self._report(step, seconds, summary)

    def close(self) -> None:
        """Remove the bar of a failed step; may be called again."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
