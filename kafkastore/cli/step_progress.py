"""The steps of a long job: each with a bar while it goes on, and a line when it is done."""
from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kafkastore.cli.json_lines import write_json

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class StepProgress:
    """Shows steps; a `kafkastore.spark.progress.Progress`.

    Parameters
    ----------
    as_json : bool
        Write the lines as JSON.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._bars: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                SpinnerColumn,
                TextColumn,
                TimeElapsedColumn,
            )

            self._bars = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[unit]}"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def step_started(self, step: str, unit: str, total: int | None) -> None:
        """Begin a bar."""
        if self._bars is not None:
            self._task = self._bars.add_task(step, total=total, unit=unit)

    def step_advanced(self, step: str, done: int, total: int | None) -> None:
        """Move the bar."""
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, completed=done, total=total)

    def step_finished(self, step: str, seconds: float, summary: str) -> None:
        """Take the bar away and write a line."""
        if self._bars is not None and self._task is not None:
            self._bars.remove_task(self._task)
        if self._as_json:
            write_json(
                {"kind": "step", "step": step, "seconds": round(seconds, 3), "summary": summary}
            )
            sys.stdout.buffer.flush()
        else:
            print(f"{step:<16} {seconds:8.1f} s  {summary}".rstrip(), flush=True)
