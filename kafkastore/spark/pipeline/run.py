"""One run of the pipeline while it goes on: where things are, what was found, who is told."""
from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from kafkastore.changes.runner import Progress
from kafkastore.jobs.inventory import PartitionInventory
from kafkastore.jobs.places import Place, places_of
from kafkastore.paths import to_path
from kafkastore.spark.pipeline.results import PipelineResult, Step, StoreResult
from kafkastore.spark.pipeline.saved_steps import SavedSteps
from kafkastore.spark.progress import PipelineProgress, Silent
from kafkastore.store.log_store import open_store

Result = TypeVar("Result")


class RunningStep:
    """The step that goes on.

    Parameters
    ----------
    progress : callable
        To be called with how many units are done, and of how many.
    saved : mapping or None
        What the step came to in the run that is resumed.

    Attributes
    ----------
    summary : str
        To be set to what came of it.
    kept : object
        What is kept for a run that resumes this one; None if nothing is.
    """

    def __init__(self, progress: Progress, saved: Mapping[str, Any] | None) -> None:
        self.progress = progress
        self.saved = saved
        self.summary = ""
        self.kept: Any = None

    def result(self, make: Callable[[], Result], unpack: Callable[[Any], Result]) -> Result:
        """Do the step's work, or take over what came of it.

        Parameters
        ----------
        make : callable
            Does it; what it returns can be written as JSON.
        unpack : callable
            Makes that again of values as JSON has them.

        Returns
        -------
        object
            The same whether it was done now or before.
        """
        if self.saved is not None:
            return unpack(self.saved["result"])
        self.kept = made = make()
        return made


class Run:
    """What the steps of a run have in common.

    Parameters
    ----------
    result : PipelineResult
        Filled in by the steps; paths in it are those after the run.
    working : Path
        Where the output directory is while the run goes on.
    saved : SavedSteps
        The results of steps that are done.
    progress : PipelineProgress or None
        Told of the steps.
    """

    def __init__(
        self,
        result: PipelineResult,
        working: Path,
        saved: SavedSteps,
        progress: PipelineProgress | None,
    ) -> None:
        self.result = result
        self.working = working
        self.saved = saved
        self.progress = progress or Silent()
        self._stores = {store.name: store for store in result.stores}
        self._failures: dict[tuple[str, str, str], dict[str, None]] = {}
        self.is_copied = False

    @contextmanager
    def step(self, name: str, unit: str, total: int | None = None) -> Iterator[RunningStep]:
        """Time a step, tell of it, and keep what came of it."""
        began = time.monotonic()
        self.progress.step_started(name, unit, total)
        told: list[tuple[int, int | None]] = [(0, total)]

        def advance(done: int, total: int | None) -> None:
            if told[-1] != (done, total):
                told[-1] = (done, total)
                self.progress.step_advanced(name, done, total)

        step = RunningStep(advance, self.saved.read(name))
        yield step
        seconds = time.monotonic() - began
        if step.saved is not None:
            seconds = step.saved["seconds"]
        elif step.kept is not None:
            self.saved.write(name, {"seconds": seconds, "result": step.kept})
        self.result.steps.append(Step(name, seconds, step.summary))
        self.progress.step_finished(name, seconds, step.summary)

    def store(self, place: Place) -> StoreResult:
        """Return the result of the store that a place belongs to."""
        return self._stores[place.store]

    def location(self, store: StoreResult) -> Path:
        """Return where a store is to be read now: its source, or, once there is one, its copy."""
        return self.copy_of(store) if self.is_copied else to_path(store.path)

    def copy_of(self, store: StoreResult) -> Path:
        """Return where a store's copy is while the run goes on."""
        return self.working / Path(store.migrated).relative_to(self.result.out)

    def copied(self) -> None:
        """From here on, stores are read from their copies."""
        self.is_copied = True

    def places(self) -> list[Place]:
        """List the partitions of all stores."""
        return [
            place
            for store in self.result.stores
            for place in places_of(store.name, open_store(self.location(store)))
        ]

    def final(self, text: str) -> str:
        """Name places in the output as they are called when the run is done."""
        return text.replace(f"{self.working}{os.sep}", f"{self.result.out}{os.sep}")

    def fail_partition(self, place: Place, error: str, what: str) -> None:
        """Note what could not be done with a partition."""
        self.fail(self.store(place), f"{place.topic}-{place.partition}", error, what)

    def fail(self, store: StoreResult, whose: str, error: str, what: str) -> None:
        """Note what could not be done; the same fault, met again in the copy too, only once."""
        fault = self.final(error).replace(store.migrated, store.path)
        failed = self._failures.setdefault((store.name, whose, fault), {})
        before = _problem(whose, failed, fault)
        failed[what] = None
        if before in store.problems:
            store.problems[store.problems.index(before)] = _problem(whose, failed, fault)
        else:
            store.problems.append(_problem(whose, failed, fault))

    def surveyed(self) -> Iterable[PartitionInventory]:
        """Yield the survey of all partitions."""
        for store in self.result.stores:
            yield from store.partitions


def _problem(whose: str, failed: Iterable[str], fault: str) -> str:
    return f"{whose} could not be {' or '.join(failed)}: {fault}"
