"""One function, many partition directories, few tasks: how Spark gets work, and is stopped."""
from __future__ import annotations

import heapq
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

Result = TypeVar("Result")
Item = TypeVar("Item")
#: Told how many units are done, and of how many, where that is known.
Tell = Callable[[int, int | None], None]

#: A task costs tens of ms; this many for each core even out what they have to do.
TASKS_PER_CORE = 4
SECONDS_BETWEEN_LOOKS = 0.1
#: How long a stopped job may take to come back, before we no longer wait for it.
SECONDS_TO_STOP = 10.0


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


def spread(
    spark: SparkSession,
    job: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    weigh: Callable[[Item], int],
    tell: Tell | None = None,
) -> list[Result]:
    """Run a function over many items in few tasks.

    Parameters
    ----------
    spark : SparkSession
    job : callable
        A function of an importable module, or a `functools.partial` of one; what it raises ends the
        run.
    items : sequence
        What it is called with.
    weigh : callable
        About how long the job takes for an item, in any unit.
    tell : callable, optional
        Told how many items are done; by whole tasks.

    Returns
    -------
    list
        The results, in the order of `items`.
    """
    if not items:
        return []
    context = spark.sparkContext
    count = min(len(items), TASKS_PER_CORE * context.defaultParallelism)
    packs = even_packs([weigh(item) + 1 for item in items], count)
    done = context.accumulator(0)

    def run(pack: Iterable[list[tuple[int, Item]]]) -> Iterator[tuple[int, Result]]:
        for numbered in pack:
            for number, item in numbered:
                yield number, job(item)
                done.add(1)

    numbered = [[(number, items[number]) for number in pack] for pack in packs]
    tasks = context.parallelize(numbered, len(numbered)).mapPartitions(run)

    def look(_group: str) -> None:
        if tell is not None:
            tell(done.value, len(items))

    results = watch(context, tasks.collect, look)
    return [result for _, result in sorted(results, key=lambda pair: pair[0])]


def even_packs(weights: Sequence[int], count: int) -> list[list[int]]:
    """Share out items by weight: the heaviest first, each to the lightest pack so far.

    Parameters
    ----------
    weights : sequence of int
    count : int
        How many packs, at most as many as items.

    Returns
    -------
    list of list of int
        The items' numbers.

    Examples
    --------
    >>> even_packs([5, 1, 1, 4, 3], 2)
    [[0, 1, 2], [3, 4]]
    """
    packs: list[list[int]] = [[] for _ in range(count)]
    heap = [(0, number) for number in range(count)]
    for item in sorted(range(len(weights)), key=lambda item: -weights[item]):
        weight, number = heapq.heappop(heap)
        packs[number].append(item)
        heapq.heappush(heap, (weight + weights[item], number))
    return packs


def watch(
    context: SparkContext, work: Callable[[], Result], look: Callable[[str], None]
) -> Result:
    """Do something with Spark, look at it meanwhile, and stop its jobs at once when interrupted.

    Parameters
    ----------
    context : SparkContext
    work : callable
        Runs Spark jobs; called in a thread of its own.
    look : callable
        Called with the name of the work's job group (see `tasks_done`), in this thread, again and
        again until the work is done, and once after that.

    Returns
    -------
    object
        What `work` returned.

    Notes
    -----
    PySpark's own answer to Ctrl-C leaves jobs running; so the work has a job group that is
    cancelled by name. Interrupts arrive in the main thread, which waits here.
    """
    from pyspark import InheritableThread

    group = f"kafkastore-{uuid.uuid4()}"
    results: list[Result] = []
    errors: list[BaseException] = []
    is_done = threading.Event()

    def run() -> None:
        try:
            context.setJobGroup(group, "kafkastore", interruptOnCancel=True)
            results.append(work())
        except BaseException as error:  # raised again below, in the thread that waits
            errors.append(error)
        finally:
            is_done.set()

    thread = InheritableThread(target=run, daemon=True)
    thread.start()
    try:
        while not is_done.wait(SECONDS_BETWEEN_LOOKS):
            look(group)
    except BaseException:
        context.cancelJobGroup(group)
        is_done.wait(SECONDS_TO_STOP)
        raise
    thread.join()
    if errors:
        raise errors[0]
    look(group)
    return results[0]


def tasks_done(context: SparkContext, group: str) -> tuple[int, int]:
    """Count the tasks of a job group: done, and known so far."""
    tracker = context.statusTracker()
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            details = tracker.getStageInfo(stage)
            if details is not None:
                done, total = done + details.numCompletedTasks, total + details.numTasks
    return done, total
