"""Progress of the pipeline, as a protocol for programs that show it."""
from __future__ import annotations

from typing import Protocol


class PipelineProgress(Protocol):
    """Callbacks for each step of a run, called in the thread that started the run.

    A step has a short name (``verify``). It is reported when it starts, repeatedly while it runs,
    and when it is done; then the next one starts. A step that fails is not reported as finished.
    """

    def step_started(self, step: str, unit: str, total: int | None) -> None:
        """Handle the start of a step that counts `unit`.

        `total` is None if it is not known yet.
        """

    def step_advanced(self, step: str, done: int, total: int | None) -> None:
        """Handle the number of units done so far.

        `total` may be known only now, or may have grown.
        """

    def step_finished(self, step: str, seconds: float, summary: str) -> None:
        """Handle the end of a step: its duration and a short summary of its result."""


class Silent:
    """Progress that is not shown."""

    def step_started(self, step: str, unit: str, total: int | None) -> None:
        """Do nothing."""

    def step_advanced(self, step: str, done: int, total: int | None) -> None:
        """Do nothing."""

    def step_finished(self, step: str, seconds: float, summary: str) -> None:
        """Do nothing."""
