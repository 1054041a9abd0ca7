"""``--spark``: run a command's work on Spark, or in this process."""
from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from itertools import chain, islice
from typing import Any, TypeVar

import click

from kafkastore.arguments import INT64_MAX
from kafkastore.cli import interrupts
from kafkastore.cli.options.whole_numbers import WholeNumber
from kafkastore.cli.output.failures import format_error
from kafkastore.cli.output.progress import progress, to_progress_callback
from kafkastore.errors import KafkaStoreError
from kafkastore.runner import Runner, run_here

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Item = TypeVar("Item")
Result = TypeVar("Result")

#: Packages that jobs on Spark import.
_REQUIRED_PACKAGES = ("pyspark", "pandas")


class NotInstalledError(KafkaStoreError):
    """A package of an extra that is not installed."""


def spark_option(function: FunctionT) -> FunctionT:
    """Add ``--spark``, passed as `master`; None runs the work in this process."""
    return click.option(
        "--spark", "master", metavar="MASTER",
        help="Run on this Spark master, with the same output: local[*], local[4], "
        "spark://host:7077, sc://host:15002.",
    )(function)


def _check_threads(
    context: click.Context, parameter: click.Parameter, threads: int | None
) -> int | None:
    """Refuse a number beyond int64; the help shows only the lower bound."""
    if threads is not None and threads > INT64_MAX:
        raise click.BadParameter(f"must be at most {INT64_MAX}, got {threads}")
    return threads


def threads_option(function: FunctionT) -> FunctionT:
    """Add ``--threads``; None is as many as there are processors."""
    return click.option(
        "--threads", type=WholeNumber(min=1), callback=_check_threads, metavar="N",
        help="Number of threads.  [default: the number of processors]",
    )(function)


def check_one_runner(threads: int | None, master: str | None) -> None:
    """Refuse ``--threads`` together with ``--spark``."""
    if threads is not None and master is not None:
        raise click.UsageError("--threads and --spark cannot be combined")


@contextmanager
def executor(
    master: str | None,
    what: str,
    *,
    here: Runner = run_here,
    total: int | None = None,
    while_printing: bool = False,
) -> Iterator[Runner]:
    """Choose the runner of a job, and show a progress bar.

    With a `master`, start a Spark session and stop it at the end if it is new; else use `here`. The
    results of Spark come when all work is done. Raises NotInstalledError without Spark.
    """
    if master is not None:
        with open_session(master) as spark:
            yield _on_spark(spark, what)
        return

    # Not a `with` in a generator: the garbage collector may close that in any thread.
    with ExitStack() as shown:

        def run(
            work: Callable[[Item], Result], items: Iterable[Item], *, weigh: Callable[[Item], int]
        ) -> Iterator[Result]:
            count = len(items) if isinstance(items, Sized) else total
            advance = shown.enter_context(progress(what, count, while_printing=while_printing))
            for result in here(work, items, weigh=weigh):
                yield result
                advance(1)
            shown.close()

        yield run


def _on_spark(spark: Any, what: str) -> Runner:
    """Return a runner that uses a Spark session."""
    from kafkastore.spark.runner import spread  # this module is imported by every command
    from kafkastore.spark.watch import failures_of_spark

    def run(
        work: Callable[[Item], Result], items: Iterable[Item], *, weigh: Callable[[Item], int]
    ) -> Iterator[Result]:
        items = list(items)
        with progress(what, len(items)) as advance:
            show = to_progress_callback(advance)
            with failures_of_spark():
                results = spread(spark, work, items, weigh=weigh, progress=show)
                first = list(islice(results, 1))  # all results come together: the bar can end
        return chain(first, _convert_spark_errors(results))

    return run


def _convert_spark_errors(results: Iterator[Result]) -> Iterator[Result]:
    """Yield results; turn an error of Spark into one sentence."""
    from kafkastore.spark.watch import failures_of_spark

    while True:
        with failures_of_spark():
            following = list(islice(results, 1))
        if not following:
            return
        yield following[0]


@contextmanager
def open_session(master: str) -> Iterator[Any]:
    """Start a Spark session, and stop it at the end if it is new.

    `master` is as for `kafkastore.spark.session`. Raises NotInstalledError if Spark is not
    installed, and SparkFailedError, with the remedy, if Spark fails in the `with` block.
    """
    from kafkastore.spark.watch import SparkFailedError, borrowed_session

    check_installed("--spark", _REQUIRED_PACKAGES)
    with ExitStack() as stack:
        with progress("starting Spark", None):
            spark = stack.enter_context(borrowed_session(master))
            interrupts.reinstall()
        try:
            yield spark
        except SparkFailedError as error:
            raise KafkaStoreError(f"{error}; run the command again") from error


def describe_failure(error: Exception) -> str:
    """Describe an error of a partition as one sentence without a full stop.

    Raises the error itself if a directory cannot cause it.
    """
    if isinstance(error, KafkaStoreError | OSError):
        return format_error(error)
    raise error


def check_installed(what: str, packages: Sequence[str]) -> None:
    """Raise NotInstalledError if packages of the extra ``spark`` are missing.

    `what` names the feature that needs them.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise NotInstalledError(
            f"{what} runs on Spark, and {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not installed: "
            f"{shlex.quote(sys.executable)} -m pip install 'kafkastore[spark]'"
        )
