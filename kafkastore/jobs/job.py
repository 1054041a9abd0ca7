"""The base class of jobs: items of a store, a function, rows of results.

The Python API, the command line and Spark's tables use the same jobs. A runner
(`kafkastore.runner`, or `kafkastore.spark.runner`) calls `Job.run` for the items.
"""
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kafkastore.errors import KafkaStoreError
from kafkastore.log.damage import SkippedBytes
from kafkastore.paths import describe_error
from kafkastore.runner import Failed, Runner, attempt, run_here
from kafkastore.store.log_store import AnyPartition, LogStore
from kafkastore.store.partition_path import Copies, PartitionPath, list_copies, weight

if TYPE_CHECKING:
    import pyarrow as pa

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
#: Values by column name; a missing column is null.
Row = Mapping[str, Any]


class Job(ABC, Generic[ItemT, ResultT]):
    """Work on many items, one after another or in parallel.

    A subclass is a frozen dataclass of the job's options, which is pickled for Spark's executors.
    """

    @abstractmethod
    def run(self, item: ItemT) -> ResultT:
        """Do the work on one item, in any process."""

    @abstractmethod
    def rows(self, result: ResultT) -> Iterator[Row]:
        """Yield the rows of a result, without the columns of `place`."""

    @staticmethod
    @abstractmethod
    def columns() -> list[tuple[str, pa.DataType]]:
        """Return the table's own columns, without those that every table has."""

    @abstractmethod
    def place(self, item: ItemT) -> Row:
        """Return the columns that all rows of an item have in common."""

    @abstractmethod
    def weigh(self, item: ItemT) -> int:
        """Return about how many bytes are read for an item."""

    def schema(self) -> pa.Schema:
        """Return the schema of the job's table."""
        return table_schema(self.columns())

    def outcomes(
        self, items: Sequence[ItemT], runner: Runner
    ) -> Iterator[tuple[ItemT, ResultT | Failed]]:
        """Yield each item with its result; one's error does not stop the others."""
        return zip(items, runner(partial(attempt, self.run), items, weigh=self.weigh), strict=True)

    def results(self, items: Iterable[ItemT], runner: Runner) -> Iterator[ResultT]:
        """Yield the result of each item; an error for an item is raised at its turn."""
        return iter(runner(self.run, items, weigh=self.weigh))

    def rows_of(self, item: ItemT) -> Iterator[Row]:
        """Yield the rows of an item's table; a failure is the ``error`` of the last row."""
        place = self.place(item)
        try:
            for row in self.rows(self.run(item)):
                yield {**place, **row}
        except Exception as error:
            yield self.failure_row(item, error)

    def failure_row(self, item: ItemT, error: Exception) -> Row:
        """Return the row of an item's error."""
        is_ours = isinstance(error, KafkaStoreError | OSError)
        what = describe_error(error) if is_ours else f"{type(error).__name__}: {error}"
        return {**self.place(item), "error": what}


class JobResults(Iterator[ResultT], Generic[ItemT, ResultT]):
    """The results of a job, computed in this thread as they are requested.

    A table of the same job is made of `job` and of `items(is_weighed=True)`.
    """

    def __init__(
        self, job: Job[ItemT, ResultT], items: Callable[..., Sequence[ItemT]]
    ) -> None:
        self.job, self.items = job, items
        self._results: Iterator[ResultT] | None = None

    def __next__(self) -> ResultT:
        """Return the next result; the items are listed for the first."""
        if self._results is None:
            self._results = self.job.results(self.items(is_weighed=False), run_here)
        return next(self._results)


class PartitionJob(Job[Copies, ResultT]):
    """Work on each partition of a store; `run` opens it by `open_copies`."""

    @staticmethod
    def items(
        store: LogStore,
        partitions: Iterable[AnyPartition] | None = None,
        *,
        is_weighed: bool = True,
    ) -> list[Copies]:
        """Return all or some partitions of a store; see `list_copies`."""
        return list_copies(store, partitions, is_weighed=is_weighed)

    def place(self, item: Copies) -> Row:
        """Return store, topic, partition and path."""
        return columns_of(item)

    def weigh(self, item: Copies) -> int:
        """Return the size of the partition's logs."""
        return weight(item)


def columns_of(copies: Sequence[PartitionPath]) -> Mapping[str, Any]:
    """Return the columns that name a partition: those of its first path."""
    path = copies[0]
    return {
        "store": path.store,
        "topic": path.topic,
        "partition": path.partition,
        "path": path.path,
    }


def path_fields() -> list[tuple[str, pa.DataType]]:
    """Return the first columns of every table."""
    import pyarrow as pa

    return [
        ("store", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("path", pa.string()),
    ]


def skipped_column() -> tuple[str, pa.DataType]:
    """Return the column of the corrupt bytes that were skipped; see `skipped_rows`."""
    import pyarrow as pa

    number, text = pa.int64(), pa.string()
    types = {"path": text, "reason": text}
    fields = [(name, types.get(name, number)) for name in SkippedBytes._fields]
    return "skipped", pa.list_(pa.struct(fields))


def skipped_rows(skipped: Iterable[SkippedBytes]) -> list[Row]:
    """Return the value of the column `skipped`: a list, which may be empty."""
    return [each._asdict() | {"path": str(each.path)} for each in skipped]


def table_schema(columns: Iterable[tuple[str, pa.DataType]]) -> pa.Schema:
    """Return the schema of a table: a partition, own columns, an error."""
    import pyarrow as pa

    return pa.schema([*path_fields(), *columns, ("error", pa.string())])
