"""One function, many partition directories, few tasks: how Spark gets work.

What is to be done is pickled into as many packs as there are tasks; a frame has one row for each,
and `mapInArrow` calls the function for every item of a pack. So it is the same on Spark Connect,
where there is neither an RDD nor an accumulator. Packs hold items in their order, and Spark hands
out rows in the order of tasks: results need no sorting.
"""
from __future__ import annotations

import contextlib
import io
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kafkastore.changes.runner import Progress
from kafkastore.errors import KafkaStoreError
from kafkastore.jobs.job import Job, Row
from kafkastore.paths import name_url
from kafkastore.spark.watch import is_connect, watch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Result = TypeVar("Result")
Item = TypeVar("Item")
#: What a worker does with one item: rows as mappings of columns.
Rows = Callable[[Any], Iterable[Row]]

#: A task costs tens of ms; this many for each core even out what they have to do.
TASKS_PER_CORE = 4
#: More to read is shared out to more tasks: what a lost machine takes with it is read again.
TASK_BYTES = 32 << 30
#: How many rows a worker hands over at once.
ROWS_IN_A_BATCH = 500


class JobError(KafkaStoreError):
    """An error of a job that can't travel between processes; its text could."""


def spread(
    spark: SparkSession,
    job: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    weigh: Callable[[Item], int],
    progress: Progress | None = None,
) -> Iterator[Result]:
    """Run a function over many items in few tasks, as `map` does in one process.

    Parameters
    ----------
    spark : SparkSession
        Classic, or of Spark Connect.
    job : callable
        A function of an importable module, or a `functools.partial` of one. Spark may call it twice
        for an item, where a task is lost.
    items : iterable
        What it is called with.
    weigh : callable
        About how many bytes the job reads for an item.
    progress : callable, optional
        Called with about how many items are done, by whole tasks, and how many there are.

    Returns
    -------
    iterator of object
        The results, in the order of `items`. The work begins when the first is asked for; when that
        comes all work is done, and Spark keeps the others until they are asked for, so that this
        process need not hold them. What the job raised for an item is raised in its turn.
    """
    import pyarrow as pa

    items = list(items)
    if not items:
        return iter(())
    schema = pa.schema([pa.field("result", pa.binary(), nullable=False)])
    frame = _frame(spark, partial(_pickled, job), items, schema, weigh)

    most = 0

    def scale(done: int, tasks: int | None) -> None:
        nonlocal most
        # One more task, known only when all others are done, adds up what they counted.
        most = max(most, len(items) * done // tasks if tasks else 0)
        if progress is not None:
            progress(most, len(items))

    def run() -> DataFrame:
        kept = frame.persist()
        try:
            watch(spark, kept.count, scale)
        except BaseException:
            kept.unpersist()
            raise
        scale(1, 1)
        return kept

    return _Kept(run)


class _Kept(Iterator[Result]):
    """Results that Spark keeps until they are asked for.

    Spark is told to drop them at the end, or by `close`. Not where the iterator is dropped: that
    waits for an answer, and the garbage collector may run in any thread. The session's end does.
    """

    def __init__(self, run: Callable[[], DataFrame]) -> None:
        self._run = run
        self._kept: DataFrame | None = None
        self._rows: Iterator[Any] | None = None

    def __next__(self) -> Result:
        """Return the next result; the first when all work is done."""
        try:
            if self._rows is None:
                self._kept = self._run()
                self._rows = self._kept.toLocalIterator(prefetchPartitions=True)
            is_raised, result = pickle.loads(next(self._rows)[0])
            if is_raised:
                raise result
        except BaseException:
            self.close()
            raise
        return cast(Result, result)

    def close(self) -> None:
        """Let Spark drop the results; safe to repeat."""
        self._rows, kept, self._kept = iter(()), self._kept, None
        if kept is not None:
            kept.unpersist()


def table(spark: SparkSession, job: Job[Any, Any], items: Iterable[Any]) -> DataFrame:
    """Make the table of a job; what fails for an item is the ``error`` of its last row.

    Parameters
    ----------
    spark : SparkSession
        Classic, or of Spark Connect.
    job : Job
        What is done with each item, and the rows that its results have.
    items : iterable
        As the job lists them.

    Returns
    -------
    DataFrame
        Nothing is run before the frame is used, and each use runs it again: `persist` one that is
        used twice.
    """
    return _frame(spark, job.rows_of, list(items), job.schema(), job.weigh)


def even_packs(weights: Sequence[int], count: int) -> list[list[int]]:
    """Share out items by weight, in their order.

    Parameters
    ----------
    weights : sequence of int
        Each above 0.
    count : int
        How many packs at most.

    Returns
    -------
    list of list of int
        The items' numbers, rising from pack to pack; no pack is empty, and none heavier than an
        even share and the heaviest item together.

    Examples
    --------
    >>> even_packs([5, 1, 1, 4, 3], 2)
    [[0, 1, 2], [3, 4]]
    """
    packs: list[list[int]] = [[] for _ in range(count)]
    total, before = sum(weights), 0
    for item, weight in enumerate(weights):
        packs[(2 * before + weight) * count // (2 * total)].append(item)
        before += weight
    return [pack for pack in packs if pack]


def _frame(
    spark: SparkSession,
    rows_of: Rows,
    items: Sequence[Item],
    schema: pa.Schema,
    weigh: Callable[[Item], int],
) -> DataFrame:
    """Make a frame of the rows of all items, a task for each pack."""
    from pyspark.sql.pandas.types import from_arrow_schema

    weights = [weigh(item) + 1 for item in items]
    tasks = max(TASKS_PER_CORE * _cores(spark), sum(weights) // TASK_BYTES)
    numbers = even_packs(weights, min(len(items), tasks))
    packs = [pickle.dumps([items[number] for number in pack]) for pack in numbers]
    tasks = len(packs)
    work = _Work(rows_of, packs, schema, os.getcwd())
    # As many slices as rows: each task has the row with the number of its pack.
    numbered = spark.range(0, tasks, 1, numPartitions=max(tasks, 1))
    return numbered.mapInArrow(work, from_arrow_schema(schema))


class _Work:
    """What a task does; called by a worker with the numbers of packs."""

    def __init__(
        self, rows_of: Rows, packs: list[bytes], schema: pa.Schema, directory: str
    ) -> None:
        self.rows_of, self.packs = rows_of, packs
        self.schema, self.directory = schema, directory

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all items in the packs."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                done = self._pack(pickle.loads(self.packs[number]))
                while (rows := self._next(done)) is not None:
                    yield rows

    def _next(self, done: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        """Go on in the driver's directory; back before the caller goes on, or drops the rest."""
        with _inside(self.directory):
            return next(done, None)

    def _pack(self, items: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        # pyarrow 18 takes a map as pairs only.
        maps = [each.name for each in self.schema if pa.types.is_map(each.type)]
        rows = (_with_pairs(row, maps) for item in items for row in self.rows_of(item))
        while batch := list(islice(rows, ROWS_IN_A_BATCH)):
            yield pa.RecordBatch.from_pylist(batch, self.schema)


def _with_pairs(row: Row, maps: Sequence[str]) -> Row:
    """Return a row with pairs for the mappings in some of its columns."""
    return {**row, **{name: list(row[name].items()) for name in maps if row.get(name) is not None}}


@contextlib.contextmanager
def _inside(directory: str) -> Iterator[None]:
    """Let relative paths mean what they mean to the driver, where its directory is here too."""
    try:
        before = os.getcwd()
        os.chdir(directory)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        os.chdir(before)


def _pickled(job: Callable[[Item], Result], item: Item) -> Iterator[Row]:
    """Yield one row: whether the job raised, and what it raised or returned."""
    try:
        yield {"result": dumps((False, job(item)))}
    except Exception as error:
        name_url(error)
        try:
            data = dumps((True, error))
            pickle.loads(data)
        except Exception:
            data = dumps((True, JobError(f"{type(error).__name__}: {error}")))
        yield {"result": data}


def dumps(value: object) -> bytes:
    """Pickle a value; the errors in it keep their ``__cause__``, which `pickle` drops.

    Parameters
    ----------
    value : object

    Returns
    -------
    bytes
        For `pickle.loads`.
    """
    stream = io.BytesIO()
    _Pickler(stream, pickle.HIGHEST_PROTOCOL).dump(value)
    return stream.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: object) -> Any:
        """Return how an error that has a cause is made again."""
        if isinstance(value, BaseException) and value.__cause__ is not None:
            return _caused, (value.__reduce_ex__(pickle.HIGHEST_PROTOCOL), value.__cause__)
        return NotImplemented


def _caused(reduced: tuple[Any, ...], cause: BaseException) -> BaseException:
    """Make an error again, and its cause."""
    make, arguments, *state = reduced
    error: BaseException = make(*arguments)
    if state and state[0]:
        error.__setstate__(state[0])
    error.__cause__ = cause
    return error


def _cores(spark: SparkSession) -> int:
    """Count what can run at once."""
    if not is_connect(spark):
        return int(spark.sparkContext.defaultParallelism)
    from pyspark.sql import functions

    # A frame of numbers has as many slices as there are cores, if not told otherwise.
    slices = spark.range(1 << 20).select(functions.spark_partition_id().alias("slice"))
    (row,) = slices.agg(functions.max("slice")).collect()
    return int(row[0]) + 1
