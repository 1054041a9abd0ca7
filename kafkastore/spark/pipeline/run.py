"""The state of one pipeline run: paths, results, and progress."""
from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from kafkastore.jobs.error_fields import ErrorFields
from kafkastore.jobs.inventory import PartitionInventory
from kafkastore.paths import to_path
from kafkastore.runner import Progress
from kafkastore.spark.pipeline.results import FailedStep, PipelineResult, Problem, Step, StoreResult
from kafkastore.spark.pipeline.saved_steps import SavedSteps
from kafkastore.spark.progress import PipelineProgress, Silent
from kafkastore.store.log_store import open_store
from kafkastore.store.partition_path import PartitionPath, list_partition_paths

Result = TypeVar("Result")


class RunningStep:
    """The current step.

    `saved` is its result in the resumed run, if any. The step sets `summary`, a short text, and
    `kept`, the value to save for a run that resumes this one.
    """

    def __init__(self, progress: Progress, saved: Mapping[str, Any] | None) -> None:
        self.progress = progress
        self.saved = saved
        self.summary = ""
        self.kept: Any = None

    def result(self, make: Callable[[], Result], unpack: Callable[[Any], Result]) -> Result:
        """Return the result of `make`, or the saved one.

        `make` returns a value that can be written as JSON; `unpack` rebuilds it from JSON values.
        """
        if self.saved is not None:
            return unpack(self.saved["result"])
        self.kept = made = make()
        return made


class Run:
    """The state that the steps of a run share.

    Steps fill in `result`, whose paths are those after the run; `working` is the output directory
    during the run.
    """

    def __init__(
        self,
        result: PipelineResult,
        working: Path,
        saved: SavedSteps,
        progress: PipelineProgress | None,
        *,
        is_resumed: bool = False,
    ) -> None:
        self.result = result
        self.working = working
        self.saved = saved
        self.progress = progress or Silent()
        self._stores = {store.name: store for store in result.stores}
        # The numbers of known problems, as thousands of partitions may fail in several steps.
        self._failures: dict[tuple[object, ...], int] = {}
        self.is_copied = False
        self.is_resumed = is_resumed

    @contextmanager
    def step(self, name: str, unit: str, total: int | None = None) -> Iterator[RunningStep]:
        """Time a step, report it, and save its result."""
        began = time.monotonic()
        self.progress.step_started(name, unit, total)
        reported: list[tuple[int, int | None]] = [(0, total)]

        def advance(done: int, total: int | None) -> None:
            if reported[-1] != (done, total):
                reported[-1] = (done, total)
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

    def store(self, place: PartitionPath) -> StoreResult:
        """Return the result of the store that a place belongs to."""
        return self._stores[place.store]

    def location(self, store: StoreResult) -> Path:
        """Return where to read a store now: its copy if there is one, else its source."""
        return self.copy_of(store) if self.is_copied else to_path(store.path)

    def is_in_output(self, store: StoreResult) -> bool:
        """Return whether a store is migrated within the output directory."""
        return Path(store.migrated).is_relative_to(self.result.out)

    def copy_of(self, store: StoreResult) -> Path:
        """Return the path of a store's copy during the run."""
        copy = Path(store.migrated)
        if self.is_in_output(store):
            return self.working / copy.relative_to(self.result.out)
        return copy

    def copied(self) -> None:
        """Read stores from their copies from now on."""
        self.is_copied = True

    def places(self) -> list[PartitionPath]:
        """Return the partitions of all stores."""
        return [
            place
            for store in self.result.stores
            for place in list_partition_paths(store.name, open_store(self.location(store)))
        ]

    def final(self, path: Path) -> Path:
        """Return where a path in the working directory is after the run."""
        if path.is_relative_to(self.working):
            return self.result.out / path.relative_to(self.working)
        return path

    def fail_partition(self, place: PartitionPath, error: ErrorFields, step: FailedStep) -> None:
        """Record a failure of one partition."""
        self.fail(self.store(place), str(place.topic_partition), error, step)

    def fail(self, store: StoreResult, whose: str, error: ErrorFields, step: FailedStep) -> None:
        """Record a failure; the same error in the copy is recorded only once."""
        new = Problem(whose, (step,), store.path, self._in_source(store, error))
        at = self._failures.setdefault((store.name, new.key), len(store.problems))
        if at == len(store.problems):
            store.problems.append(new)
            return
        known = store.problems[at]
        store.problems[at] = known._replace(steps=tuple(dict.fromkeys((*known.steps, step))))

    def _in_source(self, store: StoreResult, error: ErrorFields) -> ErrorFields:
        """Return an error whose path is relative to the store or to its copy."""
        path = None if error.path is None else to_path(error.path)
        for root in (self.copy_of(store), to_path(store.migrated), to_path(store.path)):
            if path is not None and path.is_relative_to(root):
                return error._replace(path=str(path.relative_to(root)))
        return error

    def inventories(self) -> Iterable[PartitionInventory]:
        """Yield the inventory of each partition."""
        for store in self.result.stores:
            yield from store.partitions
