"""Distribution of work: one function, many directories, few Spark tasks.

The items are pickled into as many packs as there are tasks. A frame has one row for each pack, and
`mapInArrow` calls the function for every item of a pack. This also works on Spark Connect, which
has neither RDDs nor accumulators. Packs keep the order of the items, and Spark returns rows in the
order of tasks, so results need no sorting.
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

from kafkastore.errors import KafkaStoreError
from kafkastore.jobs.job import Job, Row
from kafkastore.paths import name_url
from kafkastore.runner import Progress
from kafkastore.spark.watch import is_connect, watch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Result = TypeVar("Result")
Item = TypeVar("Item")
#: Returns the rows of one item, each a mapping of columns.
Rows = Callable[[Any], Iterable[Row]]

#: A task costs tens of ms; several for each core even out the load.
TASKS_PER_CORE = 4
#: Upper limit of one task's input: the tasks of a lost machine are read again.
TASK_BYTES = 32 << 30
#: How many rows a worker returns at once.
ROWS_IN_A_BATCH = 500


class JobError(KafkaStoreError):
    """An error of a job that cannot be pickled; it has the error's text."""


def spread(
    spark: SparkSession,
    job: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    weigh: Callable[[Item], int],
    progress: Progress | None = None,
) -> Iterator[Result]:
    """Run a function over many items in few tasks; return results in item order.

    `job` (importable, or a partial of it) may run twice for an item. `weigh` estimates bytes. The
    first `next` returns when all work is done; an item's error is raised at its turn.
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
        # A last task adds up the counts of the others, and is known only when they are done.
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
    """Results that Spark keeps until they are requested.

    Spark drops them at the end, or by `close`, or with the session. There is no ``__del__``:
    dropping waits for an answer, and the garbage collector may run in any thread.
    """

    def __init__(self, run: Callable[[], DataFrame]) -> None:
        self._run = run
        self._kept: DataFrame | None = None
        self._rows: Iterator[Any] | None = None

    def __next__(self) -> Result:
        """Return the next result; the first call waits until all work is done."""
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
        """Make Spark drop the results; safe to repeat."""
        self._rows, kept, self._kept = iter(()), self._kept, None
        if kept is not None:
            kept.unpersist()


def table(spark: SparkSession, job: Job[Any, Any], items: Iterable[Any]) -> DataFrame:
    """Return the table of a job; an item's error is in ``error`` of its last row.

    Nothing runs before the frame is used, and each use runs the job again: `persist` a frame that
    is used twice.
    """
    return _frame(spark, job.rows_of, list(items), job.schema(), job.weigh)


def frame_of(spark: SparkSession, rows: Iterable[Row], schema: pa.Schema) -> DataFrame:
    """Return a frame of rows that this process has."""
    import pyarrow as pa

    return spark.createDataFrame(pa.Table.from_pylist(list(rows), schema))


def even_packs(weights: Sequence[int], count: int) -> list[list[int]]:
    """Divide items, in their order, among at most `count` packs of even weight.

    Each weight must be above 0. Returns the items' numbers. No pack is empty, and none is heavier
    than an even share and the heaviest item together.

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
    """Return a frame of the rows of all items, with a task for each pack."""
    from pyspark.sql.pandas.types import from_arrow_schema

    weights = [weigh(item) + 1 for item in items]
    tasks = max(TASKS_PER_CORE * _cores(spark), sum(weights) // TASK_BYTES)
    numbers = even_packs(weights, min(len(items), tasks))
    packs = [pickle.dumps([items[number] for number in pack]) for pack in numbers]
    tasks = len(packs)
    work = _Work(rows_of, packs, schema, os.getcwd())
    # As many slices as rows: each task gets the row with the number of its pack.
    numbered = spark.range(0, tasks, 1, numPartitions=max(tasks, 1))
    return numbered.mapInArrow(work, from_arrow_schema(schema))


class _Work:
    """The function of a task; a worker calls it with the numbers of packs."""

    def __init__(
        self, rows_of: Rows, packs: list[bytes], schema: pa.Schema, directory: str
    ) -> None:
        self.rows_of, self.packs = rows_of, packs
        self.schema, self.directory = schema, directory

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a pickle that says in a worker if its Python lacks a module."""
        from kafkastore.spark.by_value import sent_by_value

        return sent_by_value(self)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all items in the packs."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                done = self._pack(pickle.loads(self.packs[number]))
                while (rows := self._next(done)) is not None:
                    yield rows

    def _next(self, done: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        """Compute the next batch in the driver's directory, then change back."""
        with _inside(self.directory):
            return next(done, None)

    def _pack(self, items: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        # pyarrow 18 accepts a map only as pairs.
        maps = [each.name for each in self.schema if pa.types.is_map(each.type)]
        rows = (_with_pairs(row, maps) for item in items for row in self.rows_of(item))
        while batch := list(islice(rows, ROWS_IN_A_BATCH)):
            yield pa.RecordBatch.from_pylist(batch, self.schema)


def _with_pairs(row: Row, maps: Sequence[str]) -> Row:
    """Return a row in which the mappings of some columns are lists of pairs."""
    return {**row, **{name: list(row[name].items()) for name in maps if row.get(name) is not None}}


@contextlib.contextmanager
def _inside(directory: str) -> Iterator[None]:
    """Change to the driver's directory, if it exists here, for relative paths."""
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
    """Yield one row: whether the job raised an error, and the error or the result."""
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
    """Pickle a value; its errors keep their ``__cause__``, which `pickle` drops."""
    stream = io.BytesIO()
    _Pickler(stream, pickle.HIGHEST_PROTOCOL).dump(value)
    return stream.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: object) -> Any:
        """Return how to rebuild an error that has a cause."""
        if isinstance(value, BaseException) and value.__cause__ is not None:
            return _caused, (value.__reduce_ex__(pickle.HIGHEST_PROTOCOL), value.__cause__)
        return NotImplemented


def _caused(reduced: tuple[Any, ...], cause: BaseException) -> BaseException:
    """Rebuild an error and set its cause."""
    make, arguments, *state = reduced
    error: BaseException = make(*arguments)
    if state and state[0]:
        error.__setstate__(state[0])
    error.__cause__ = cause
    return error


def _cores(spark: SparkSession) -> int:
    """Return how many tasks can run in parallel."""
    if not is_connect(spark):
        return int(spark.sparkContext.defaultParallelism)
    from pyspark.sql import functions

    # By default a frame of numbers has as many slices as there are cores.
    slices = spark.range(1 << 20).select(functions.spark_partition_id().alias("slice"))
    (row,) = slices.agg(functions.max("slice")).collect()
    return int(row[0]) + 1
