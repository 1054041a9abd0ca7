"""``--spark``: a command's work on many partitions, by Spark instead of by this process."""
from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import chain, islice
from typing import Any, TypeVar

import click

from kafkastore.cli import interrupts
from kafkastore.cli.failures import sentence
from kafkastore.cli.progress import progress
from kafkastore.errors import KafkaStoreError
from kafkastore.spark.spread import Run, spread
from kafkastore.spark.watch import SparkFailedError, borrowed_session, failures_of_spark

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Item = TypeVar("Item")
Result = TypeVar("Result")

#: What jobs on Spark import.
_NEEDED = ("pyspark", "pandas")


class NotInstalledError(KafkaStoreError):
    """A package of an extra is not there."""


def spark_option(function: FunctionT) -> FunctionT:
    """Add ``--spark``, passed on as `master`: None where the work is done here."""
    return click.option(
        "--spark", "master", metavar="MASTER",
        help="Do the work on Spark: local[*], local[4], spark://host:7077, sc://host:15002. What "
        "is printed is the same.",
    )(function)


@contextmanager
def executor(master: str | None, what: str, *, while_printing: bool = False) -> Iterator[Run]:
    """Choose who does the work, and show how far it is.

    Parameters
    ----------
    master : str or None
        As `spark_option` passes it on. The Spark session is started here, and stopped at the end if
        it was not there before.
    what : str
        The work, in a word or two, for the bar.
    while_printing : bool
        Whether results are printed as they come. Those of Spark come when all work is done.

    Yields
    ------
    Run

    Raises
    ------
    NotInstalledError
        If there is no Spark here.
    """
    if master is not None:
        with session_of(master) as spark:
            yield _on_spark(partial(spread, spark), what)
        return

    # The bar's `with` is not in a generator, which the garbage collector may end in any thread.
    with ExitStack() as shown:

        def run(
            job: Callable[[Item], Result], items: Sequence[Item], *, weigh: Callable[[Item], int]
        ) -> Iterator[Result]:
            advance = shown.enter_context(
                progress(what, len(items), while_printing=while_printing)
            )
            for item in items:
                yield job(item)
                advance(1)
            shown.close()

        yield run


def _on_spark(work: Callable[..., Iterator[Any]], what: str) -> Run:
    """Return what does work by `spread` with a session."""
    def run(
        job: Callable[[Item], Result], items: Sequence[Item], *, weigh: Callable[[Item], int]
    ) -> Iterator[Result]:
        with progress(what, len(items)) as advance:
            told = [0]

            def tell(done: int, _: int | None) -> None:
                advance(done - told.pop())
                told.append(done)

            with failures_of_spark():
                results = work(job, items, weigh=weigh, tell=tell)
                first = list(islice(results, 1))  # when it is there all are, and the bar can go
        return chain(first, _told_of_spark(results))

    return run


def _told_of_spark(results: Iterator[Result]) -> Iterator[Result]:
    """Yield results; what Spark ends with becomes a sentence."""
    while True:
        with failures_of_spark():
            following = list(islice(results, 1))
        if not following:
            return
        yield following[0]


@contextmanager
def session_of(master: str) -> Iterator[Any]:
    """Start a Spark session, and stop it at the end if it was not there before.

    Parameters
    ----------
    master : str
        As for `kafkastore.spark.session`.

    Yields
    ------
    SparkSession

    Raises
    ------
    NotInstalledError
        If there is no Spark here.
    SparkFailedError
        If Spark fails in the `with` block; says what to do.
    """
    check_installed("--spark", _NEEDED)
    with ExitStack() as stack:
        with progress("starting Spark", None):
            spark = stack.enter_context(borrowed_session(master))
            interrupts.take_back()
        try:
            yield spark
        except SparkFailedError as error:
            told = f"{error}; nothing is half done: run the command again"
            raise KafkaStoreError(told) from error


def expected(error: Exception) -> str:
    """Say what went wrong with one partition of several.

    Parameters
    ----------
    error : Exception
        As a job ended with.

    Returns
    -------
    str
        One sentence, without a full stop.

    Raises
    ------
    Exception
        The error, if it is none that a directory can cause.
    """
    if isinstance(error, KafkaStoreError | OSError):
        return sentence(error)
    raise error


def check_installed(what: str, packages: Sequence[str]) -> None:
    """Refuse where packages of the extra ``spark`` are missing.

    Parameters
    ----------
    what : str
        What needs them.
    packages : sequence of str
        Their names.

    Raises
    ------
    NotInstalledError
        If one is not there.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise NotInstalledError(
            f"{what} runs on Spark, and {', '.join(missing)} is not installed: "
            f"{shlex.quote(sys.executable)} -m pip install 'kafkastore[spark]'"
        )
