"""How a long run tells what it is doing, for whoever draws it."""
from __future__ import annotations

from typing import Protocol


class PipelineProgress(Protocol):
    """Told of each step of a run, in the thread that started the run.

    A step is named by a few words (``verify``), told of when it starts, again and again while it
    goes on, and when it is done; the next starts after that. A step that fails is not told of as
    done.
    """

    def step_started(self, step: str, unit: str, total: int | None) -> None:
        """Take note of a step: what is counted, and how many there will be, if known."""

    def step_advanced(self, step: str, done: int, total: int | None) -> None:
        """Take note of how many units are done so far; `total` may have become known, or grown."""

    def step_finished(self, step: str, seconds: float, summary: str) -> None:
        """Take note of how long it took, and what came of it, in a few words."""


class Silent:
    """Progress that nobody looks at."""

    def step_started(self, step: str, unit: str, total: int | None) -> None:
        """Do nothing."""

    def step_advanced(self, step: str, done: int, total: int | None) -> None:
        """Do nothing."""

    def step_finished(self, step: str, seconds: float, summary: str) -> None:
        """Do nothing."""
