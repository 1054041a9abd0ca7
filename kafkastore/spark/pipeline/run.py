"""One run of the pipeline while it goes on: where things are, what was found, who is told."""
from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kafkastore.log.log_store import open_store
from kafkastore.spark.jobs.partition_jobs import PartitionRow, places_of
from kafkastore.spark.pipeline.results import PipelineResult, Step, StoreResult
from kafkastore.spark.progress import Progress, Silent
from kafkastore.spark.spread import Place, Tell


class RunningStep:
    """The step that goes on.

    Attributes
    ----------
    tell : callable
        To be called with how many units are done, and of how many.
    summary : str
        To be set to what came of it.
    """

    def __init__(self, tell: Tell) -> None:
        self.tell = tell
        self.summary = ""


class Run:
    """What the steps of a run have in common.

    Parameters
    ----------
    result : PipelineResult
        Filled in by the steps; paths in it are those after the run.
    working : Path
        Where the output directory is while the run goes on.
    progress : Progress or None
        Told of the steps.
    """

    def __init__(self, result: PipelineResult, working: Path, progress: Progress | None) -> None:
        self.result = result
        self.working = working
        self.progress = progress or Silent()
        self._stores = {store.name: store for store in result.stores}
        self.is_copied = False

    @contextmanager
    def step(self, name: str, unit: str, total: int | None = None) -> Iterator[RunningStep]:
        """Time a step, and tell of it."""
        began = time.monotonic()
        self.progress.step_started(name, unit, total)
        told: list[tuple[int, int | None]] = [(0, total)]

        def tell(done: int, total: int | None) -> None:
            if told[-1] != (done, total):
                told[-1] = (done, total)
                self.progress.step_advanced(name, done, total)

        step = RunningStep(tell)
        yield step
        seconds = time.monotonic() - began
        self.result.steps.append(Step(name, seconds, step.summary))
        self.progress.step_finished(name, seconds, step.summary)

    def store(self, place: Place) -> StoreResult:
        """Return the result of the store that a place belongs to."""
        return self._stores[place.store]

    def location(self, store: StoreResult) -> Path:
        """Return where a store is to be read now: its source, or, once there is one, its copy."""
        return self.copy_of(store) if self.is_copied else Path(store.path)

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

    def fail(self, place: Place, error: str, what: str) -> None:
        """Note what could not be done with a partition."""
        self.store(place).problems.append(
            f"{place.topic}-{place.partition} could not be {what}: {self.final(error)}"
        )

    def surveyed(self) -> Iterable[PartitionRow]:
        """Yield the survey of all partitions."""
        for store in self.result.stores:
            yield from store.partitions
