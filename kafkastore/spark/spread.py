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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from kafkastore.errors import KafkaStoreError
from kafkastore.paths import forget_listings, name_url
from kafkastore.spark.watch import Tell, is_connect, watch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Result = TypeVar("Result")
Item = TypeVar("Item")
#: What a worker does with one item: rows as mappings of columns.
Rows = Callable[[Any], Iterable[Mapping[str, Any]]]

#: A task costs tens of ms; this many for each core even out what they have to do.
TASKS_PER_CORE = 4
#: More to read is shared out to more tasks: what a lost machine takes with it is read again.
TASK_BYTES = 32 << 30
#: How many rows a worker hands over at once.
ROWS_IN_A_BATCH = 500


class Run(Protocol):
    """Does a piece of work on many items: `spread` with a session, or what does the same here."""

    def __call__(
        self, job: Callable[[Item], Result], items: Sequence[Item], *, weigh: Callable[[Item], int]
    ) -> Iterator[Result]:
        """Yield what comes of each of `items`, in their order."""


class JobError(KafkaStoreError):
    """An error of a job that can't travel between processes; its text could."""


class Place(NamedTuple):
    """Where one partition lies.

    Attributes
    ----------
    store : str
        The name of the store it belongs to.
    root : str or None
        The log directory around it, whose checkpoints bound it; None for a directory by itself.
    path : str
        The partition directory.
    topic, partition : str, int
        What the directory's name says.
    bytes : int
        Size of its ``.log`` files: how long a job will take.
    """

    store: str
    root: str | None
    path: str
    topic: str
    partition: int
    bytes: int


class Failed(NamedTuple):
    """What a job raised, as a value."""

    error: Exception


def attempt(job: Callable[[Item], Result], item: Item) -> Result | Failed:
    """Call a job, and return what it raises.

    Parameters
    ----------
    job : callable
    item : object
        What it is called with.

    Returns
    -------
    object or Failed
        What the job returns; what it raises, if that is an `Exception`.
    """
    try:
        return job(item)
    except Exception as error:
        name_url(error)
        return Failed(error)


def spread(
    spark: SparkSession,
    job: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    weigh: Callable[[Item], int],
    tell: Tell | None = None,
) -> Iterator[Result]:
    """Run a function over many items in few tasks, as `map` does in one process.

    Parameters
    ----------
    spark : SparkSession
        Classic, or of Spark Connect.
    job : callable
        A function of an importable module, or a `functools.partial` of one. Spark may call it twice
        for an item, where a task is lost.
    items : sequence
        What it is called with.
    weigh : callable
        About how many bytes the job reads for an item.
    tell : callable, optional
        Told about how many items are done, by whole tasks.

    Returns
    -------
    iterator of object
        The results, in the order of `items`. The work begins when the first is asked for; when that
        comes all work is done, and Spark keeps the others until they are asked for, so that this
        process need not hold them. What the job raised for an item is raised in its turn.
    """
    import pyarrow as pa

    if not items:
        return iter(())
    schema = pa.schema([pa.field("result", pa.binary(), nullable=False)])
    frame = _frame(spark, partial(_pickled, job), items, schema, weigh)

    most = 0

    def scale(done: int, tasks: int | None) -> None:
        nonlocal most
        # One more task, known only when all others are done, adds up what they counted.
        most = max(most, len(items) * done // tasks if tasks else 0)
        if tell is not None:
            tell(most, len(items))

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


def table(
    spark: SparkSession,
    job: Rows,
    items: Sequence[Item],
    schema: pa.Schema,
    *,
    where: Callable[[Item], Mapping[str, Any]],
    weigh: Callable[[Item], int],
) -> DataFrame:
    """Make a table of what a function tells of many items; a failure is a row of it.

    Parameters
    ----------
    spark : SparkSession
        Classic, or of Spark Connect.
    job : callable
        As for `spread`; yields rows, each a mapping of columns that `where` does not give.
    items : sequence
        What it is called with.
    schema : pyarrow.Schema
        The table's columns, ``error`` among them; what a row does not name is null.
    where : callable
        The columns that all rows of an item have in common.
    weigh : callable
        About how many bytes the job reads for an item.

    Returns
    -------
    DataFrame
        Nothing is run before the frame is used, and each use runs it again: `persist` one that is
        used twice. Where the job raises, the last row of an item has its ``error``.
    """
    return _frame(spark, partial(_told, job, where), items, schema, weigh)


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

        forget_listings()
        rows = (row for item in items for row in self.rows_of(item))
        while batch := list(islice(rows, ROWS_IN_A_BATCH)):
            yield pa.RecordBatch.from_pylist(batch, self.schema)


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


def _pickled(job: Callable[[Item], Result], item: Item) -> Iterator[Mapping[str, Any]]:
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


def _told(
    job: Rows, where: Callable[[Item], Mapping[str, Any]], item: Item
) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of an item, and one more for what was raised."""
    place = where(item)
    try:
        for row in job(item):
            yield {**place, **row}
    except Exception as error:
        name_url(error)
        told = isinstance(error, KafkaStoreError | OSError)
        what = str(error) if told else f"{type(error).__name__}: {error}"
        yield {**place, "error": what}


def _cores(spark: SparkSession) -> int:
    """Count what can run at once."""
    if not is_connect(spark):
        return int(spark.sparkContext.defaultParallelism)
    from pyspark.sql import functions

    # A frame of numbers has as many slices as there are cores, if not told otherwise.
    slices = spark.range(1 << 20).select(functions.spark_partition_id().alias("slice"))
    (row,) = slices.agg(functions.max("slice")).collect()
    return int(row[0]) + 1
