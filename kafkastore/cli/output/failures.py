"""Format errors as one sentence: what, where, at which byte, and what to do."""
from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import click

from kafkastore.cli import interrupts
from kafkastore.errors import (
    CorruptBatchError,
    CorruptCheckpointError,
    CorruptIndexError,
    KafkaStoreError,
    NoUndoPlaceError,
    RemoteStoreError,
    UnsupportedFormatError,
)
from kafkastore.paths import name_url
from kafkastore.shown_text import escape_control_characters

FOUND_PROBLEMS = 1
UNREADABLE = 2

NO_PERMISSION = "run as the user that the files belong to, or as root"

#: Remedies for errors of the operating system, by errno.
_REMEDIES_BY_ERRNO = {
    errno.EACCES: ("no permission", NO_PERMISSION),
    errno.EPERM: ("not permitted", NO_PERMISSION),
    errno.ENOENT: ("does not exist", "check the path"),
    errno.EROFS: ("is on a read-only file system", "choose a writable directory"),
    errno.ENOSPC: ("no space is left on the disk", "free some space, or choose another directory"),
    errno.EDQUOT: ("the disk quota is used up", "free some space, or choose another directory"),
    errno.EIO: (
        "I/O error",
        "copy what can be read (ddrescue) and work on the copy",
    ),
    errno.EMFILE: ("too many files are open", "raise the limit (ulimit -n)"),
}

#: Errors whose texts have the path as their subject.
_OF_THE_PATH = (errno.ENOENT, errno.EROFS)

#: Remedies for corrupt bytes, by error class; the first match is used.
_REMEDIES_BY_CLASS = (
    (UnsupportedFormatError, "the file is corrupt there, or not a Kafka log of a known version"),
    (CorruptBatchError, "kafkastore repair shows what can be kept"),
    (CorruptIndexError, "kafkastore reindex rebuilds it from its log"),
    (CorruptCheckpointError, "kafkastore verify shows what a broker does with it"),
)


class Interrupted(click.ClickException):
    """Ctrl-C during a job that reports what it leaves unfinished."""

    exit_code = interrupts.INTERRUPTED


@contextmanager
def report_unfinished(describe: Callable[[], str | None]) -> Iterator[None]:
    """Add to an error of the block what is unfinished, and how to resume it.

    `describe` returns that text, or None if nothing is left.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        if (left := describe()) is None:
            raise
        raise Interrupted(f"interrupted; {left}") from error
    except (OSError, KafkaStoreError) as error:
        if (left := describe()) is None:
            raise
        raise KafkaStoreError(f"{format_error(error)}; {left}") from None  # the text has everything


def print_problem(what: str) -> None:
    """Print one sentence to stderr, after flushing stdout."""
    flush_output()
    click.echo(f"kafkastore: {escape_control_characters(' '.join(what.split()))}", err=True)


def print_note(what: str) -> None:
    """Print a note to stderr that is not a problem."""
    flush_output()
    click.echo(f"note: {escape_control_characters(' '.join(what.split()))}", err=True)


def flush_output() -> None:
    """Flush stdout; if its reader is gone, discard all further output."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()


def discard_output() -> None:
    """Discard all further output to stdout, and what is still buffered."""
    with suppress(OSError):  # the stdout of tests has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def format_error(error: BaseException) -> str:
    """Describe a `KafkaStoreError`, an `OSError` or a `click.ClickException`.

    The result is one sentence without a full stop.

    >>> format_error(FileNotFoundError(errno.ENOENT, "No such file or directory", "/d/t-0"))
    '/d/t-0 does not exist; check the path'
    """
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError):
        return _sentence_of_os_error(error)
    if isinstance(error, NoUndoPlaceError):
        said = f"{error.problem}; choose another directory for replaced files with --undo-dir"
    else:
        said = str(error)
    if isinstance(error.__cause__, PermissionError) and not isinstance(error, RemoteStoreError):
        return f"{said}; {NO_PERMISSION}"
    for kind, remedy in _REMEDIES_BY_CLASS:
        if isinstance(error, kind):
            return f"{said}; {remedy}"
    return said


def _sentence_of_os_error(error: OSError) -> str:
    name_url(error)
    what, remedy = _REMEDIES_BY_ERRNO.get(
        error.errno or 0, ((error.strerror or str(error)).lower(), "")
    )
    separator = " " if error.errno in _OF_THE_PATH else ": "
    said = what if error.filename is None else f"{error.filename}{separator}{what}"
    return f"{said}; {remedy}" if remedy else said
