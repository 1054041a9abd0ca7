"""Spark jobs that report progress, and stop immediately when interrupted."""
from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from kafkastore.errors import KafkaStoreError
from kafkastore.runner import Progress
from kafkastore.spark.failures import is_worker_lost, reason
from kafkastore.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.shell.progress import StageInfo

Result = TypeVar("Result")

SECONDS_BETWEEN_LOOKS = 0.1
#: How long to wait for a stopped job to return.
SECONDS_TO_STOP = 10.0


class SparkFailedError(KafkaStoreError):
    """Spark itself failed, or lost a process; the work is not at fault."""


@contextmanager
def failures_of_spark() -> Iterator[None]:
    """Raise `SparkFailedError`, with one sentence, for Spark's errors in the block.

    Errors of the work itself, which `spread` raises unchanged, are not converted.
    """
    from py4j.protocol import Py4JError, Py4JNetworkError
    from pyspark.errors import PySparkException

    hushed = logging.getLogger()
    hushed.addFilter(_is_not_of_py4j)
    has_ended = False
    try:
        yield
    except (Py4JNetworkError, ConnectionRefusedError, ConnectionResetError, EOFError) as error:
        has_ended = True  # other threads may find out, and log, after this one
        raise SparkFailedError("Spark's driver, a Java process, has ended") from error
    except (PySparkException, Py4JError) as error:
        why = reason(error)
        if is_worker_lost(error):
            why = "a Python worker ended unexpectedly: it was killed, or had no memory left"
        raise SparkFailedError(f"Spark failed: {why}") from error
    finally:
        if not has_ended:
            hushed.removeFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Suppress Py4J's tracebacks of errors that its caller gets as exceptions."""
    return "py4j" not in record.pathname


def watch(
    spark: SparkSession, work: Callable[[], Result], progress: Progress | None = None
) -> Result:
    """Run `work` in a thread; report progress; cancel its jobs when interrupted.

    `progress` gets the tasks done and known so far, in this thread, and again at the end.
    PySpark itself leaves jobs running after Ctrl-C.
    """
    jobs = _ConnectJobs(spark) if is_connect(spark) else _ClassicJobs(spark)
    results: list[Result] = []
    errors: list[BaseException] = []
    is_done = threading.Event()
    counts = 0, 0

    def look() -> None:
        nonlocal counts
        is_last = False
        while not is_last:
            is_last = is_done.wait(SECONDS_BETWEEN_LOOKS)
            with suppress(Exception):  # of Spark that has failed: the work raises it
                counts = jobs.tasks_done()

    def run() -> None:
        try:
            jobs.begin()
            results.append(work())
        except BaseException as error:  # raised again below, in the thread that waits
            errors.append(error)
        finally:
            is_done.set()

    thread = jobs.thread(run)
    thread.start()
    looking = threading.Thread(target=look, daemon=True)
    if progress is not None:
        looking.start()
    try:
        while not is_done.wait(SECONDS_BETWEEN_LOOKS):
            if progress is not None:
                progress(*counts)
    except BaseException:
        jobs.cancel()
        is_done.wait(SECONDS_TO_STOP)
        raise
    finally:
        jobs.end()
    thread.join()
    if errors:
        raise errors[0]
    if progress is not None:
        looking.join()
        _, total = counts  # Spark updates what is done a little late
        progress(total, total)
    return results[0]


#: If Java only distributes work, its second compiler takes longer than it saves.
_QUICKLY_STARTED = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}


@contextmanager
def borrowed_session(master: str) -> Iterator[SparkSession]:
    """Start a Spark session for a command; stop it unless it was running before.

    `master` is as for `kafkastore.spark.session`.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # Active sessions are per thread; the context is shared by all threads.
    is_ours = (
        SparkSession.getActiveSession() is None and SparkContext._active_spark_context is None
    )
    spark = session(master, **({} if master.startswith("sc://") else _QUICKLY_STARTED))
    try:
        yield spark
    except BaseException as error:
        is_interrupted = KeyboardInterrupt in (type(error), type(error.__cause__))
        if is_interrupted and is_ours and not is_connect(spark):
            _silence_jvm(spark)
        raise
    finally:
        if is_ours:
            with suppress(SparkFailedError), failures_of_spark():  # already reported
                spark.stop()


def _silence_jvm(spark: SparkSession) -> None:
    """Silence a JVM that is about to end, whose tasks would report shutdown errors."""
    from py4j.protocol import Py4JError

    jvm = spark.sparkContext._jvm
    assert jvm is not None, "of a session that runs"
    with suppress(ConnectionError, Py4JError):  # if the interrupt also reached the JVM
        spark.sparkContext.setLogLevel("OFF")
        jvm.System.setErr(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


class _ClassicJobs:
    """The Spark jobs of one piece of work, with the driver in this process."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._context = spark.sparkContext
        self._group = f"kafkastore-{uuid.uuid4()}"

    def thread(self, run: Callable[[], None]) -> threading.Thread:
        from pyspark import InheritableThread

        return InheritableThread(target=run, daemon=True)

    def begin(self) -> None:
        self._context.setJobGroup(self._group, "kafkastore", interruptOnCancel=True)

    def cancel(self) -> None:
        self._context.cancelJobGroup(self._group)
        # Py4J drops a connection whose call was interrupted. Java's thread for the next one has no
        # active session, and Spark then does not find a Python data source to write to. This call
        # sets it.
        self._spark.createDataFrame([], "id long")

    def end(self) -> None:
        pass

    def tasks_done(self) -> tuple[int, int]:
        tracker = self._context.statusTracker()
        done = total = 0
        for job in tracker.getJobIdsForGroup(self._group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                details = tracker.getStageInfo(stage)
                if details is not None:
                    done, total = done + details.numCompletedTasks, total + details.numTasks
        return done, total


class _ConnectJobs:
    """The Spark jobs of one piece of work on a server, which reports them."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._tag = f"kafkastore-{uuid.uuid4()}"
        self._done = 0, 0
        # Declared as a class, but any function works.
        spark.registerProgressHandler(self._look)  # type: ignore[arg-type]

    def _look(
        self,
        stages: Iterable[StageInfo] | None,
        inflight_tasks: int,
        operation_id: str | None,
        done: bool,
    ) -> None:
        listed = list(stages or ())
        if listed:
            self._done = (
                sum(each.num_completed_tasks for each in listed),
                sum(each.num_tasks for each in listed),
            )

    def thread(self, run: Callable[[], None]) -> threading.Thread:
        return threading.Thread(target=run, daemon=True)

    def begin(self) -> None:
        self._spark.addTag(self._tag)

    def cancel(self) -> None:
        self._spark.interruptTag(self._tag)

    def end(self) -> None:
        self._spark.removeProgressHandler(self._look)  # type: ignore[arg-type]

    def tasks_done(self) -> tuple[int, int]:
        return self._done
