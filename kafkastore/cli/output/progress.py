"""Progress bars on stderr, if stderr is a terminal."""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from typing import TYPE_CHECKING

from kafkastore.cli.options.durations import format_duration
from kafkastore.shown_text import escape_control_characters

if TYPE_CHECKING:
    from rich.progress import Progress, Task, TaskID


class ProgressBar:
    """A progress bar, or none: ``bar(3)`` is called after three more steps."""

    def __init__(self, shown: Progress | None = None, task: TaskID | None = None) -> None:
        self._shown, self._task = shown, task

    def __call__(self, steps: int) -> None:
        """Move the bar."""
        if self._shown is not None and self._task is not None:
            self._shown.advance(self._task, steps)

    def set_total(self, total: int | None) -> None:
        """Set the number of all steps, if it is known now."""
        if self._shown is not None and self._task is not None and total is not None:
            self._shown.update(self._task, total=total)


@contextmanager
def progress(
    what: str, total: int | None, *, while_printing: bool = False
) -> Iterator[ProgressBar]:
    """Show a progress bar; yield a function of the number of new steps.

    `what` is the label, `total` the number of steps if known. `while_printing`: the work prints
    lines as it runs, so no bar is drawn if stdout is a terminal too.
    """
    if not sys.stderr.isatty() or (while_printing and sys.stdout.isatty()):
        yield ProgressBar()
        return
    with create_bar() as shown:
        label = escape_control_characters(what).replace("[", "\\[")
        task = shown.add_task(label, total=total, unit="")
        yield ProgressBar(shown, task)


def to_progress_callback(bar: ProgressBar) -> Callable[[int, int | None], None]:
    """Return a callback for `progress(done, total)` that moves a bar."""
    before = 0

    def show(done: int, total: int | None) -> None:
        nonlocal before
        bar.set_total(total)
        bar(done - before)
        before = done

    return show


def format_time_left(seconds: float | None) -> str:
    """Format how long the work takes from now; nothing if that is not known.

    >>> [format_time_left(each) for each in (None, 0, 0.4, 65, 7300.5)]
    ['', '', '1s left', '1m 5s left', '2h 1m left']
    """
    if not seconds:
        return ""
    whole = ceil(seconds)
    return f"{format_duration(whole * 1000) if whole >= 60 else f'{whole}s'} left"


def create_bar() -> Progress:
    """Return a bar that disappears when its `with` block ends."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.text import Text

    class TimeLeft(ProgressColumn):
        """The time that is left, by the speed of the last steps."""

        max_refresh = 0.5  # more often, it is hard to read

        def render(self, task: Task) -> Text:
            """Return the time; nothing if it is not known."""
            return Text(format_time_left(task.time_remaining))

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
        TimeLeft(),
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
