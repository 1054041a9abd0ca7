"""Format errors as one sentence: what, where, at which byte, and what to do."""
from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import click

from kafkastore.cli import interrupts
from kafkastore.cli.visible import visible
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

FOUND_PROBLEMS = 1
UNREADABLE = 2

NO_PERMISSION = "run as the user that the files belong to, or as root"

#: Remedies for errors of the operating system, by errno.
_REMEDIES_BY_ERRNO = {
    errno.EACCES: ("no permission", NO_PERMISSION),
    errno.EPERM: ("not permitted", NO_PERMISSION),
    errno.ENOENT: ("does not exist", "look for a slip in the path"),
    errno.EROFS: ("is on a read-only file system", "name a place that can be written to"),
    errno.ENOSPC: ("no space is left on the disk", "make room, or name another place"),
    errno.EDQUOT: ("the disk quota is used up", "make room, or name another place"),
    errno.EIO: (
        "the disk can't read or write it",
        "copy what can be read (ddrescue) and work on the copy",
    ),
    errno.EMFILE: ("too many files are open", "raise the limit (ulimit -n)"),
}

#: Remedies for corrupt bytes, by error class; the first match is used.
_REMEDIES_BY_CLASS = (
    (UnsupportedFormatError, "the file is damaged there or is no Kafka log of a known version"),
    (CorruptBatchError, "what lies before that byte can be read"),
    (CorruptIndexError, "the log itself may be whole, and indexes can be rebuilt from it"),
    (CorruptCheckpointError, "kafkastore verify says what a broker makes of it"),
)


class Interrupted(click.ClickException):
    """Ctrl-C during a job that reports what it leaves unfinished."""

    exit_code = interrupts.INTERRUPTED


@contextmanager
def left_behind_is_told(left_behind: Callable[[], str | None]) -> Iterator[None]:
    """Add to an error of the `with` block what the work leaves unfinished, and how to resume it.

    `left_behind` returns that text, or None if nothing is left.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        if (left := left_behind()) is None:
            raise
        raise Interrupted(f"interrupted; {left}") from error
    except (OSError, KafkaStoreError) as error:
        if (left := left_behind()) is None:
            raise
        raise KafkaStoreError(f"{sentence(error)}; {left}") from None  # the text has everything


def tell(what: str) -> None:
    """Print one sentence to stderr, after flushing stdout."""
    flush_quietly()
    click.echo(f"kafkastore: {visible(' '.join(what.split()))}", err=True)


def note(what: str) -> None:
    """Print a note to stderr that is not a problem."""
    flush_quietly()
    click.echo(f"note: {visible(' '.join(what.split()))}", err=True)


def flush_quietly() -> None:
    """Flush stdout; if its reader is gone, discard all further output."""
    try:
        sys.stdout.flush()
    except OSError:
        drop_output()


def drop_output() -> None:
    """Discard all further output to stdout, and what is still buffered."""
    with suppress(OSError):  # the stdout of tests has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def sentence(error: BaseException) -> str:
    """Describe a `KafkaStoreError`, an `OSError` or a `click.ClickException`.

    The result is one sentence without a full stop.

    >>> sentence(FileNotFoundError(errno.ENOENT, "No such file or directory", "/d/t-0"))
    '/d/t-0 does not exist; look for a slip in the path'
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
    if error.filename is None:
        said = what
    elif what.startswith(("does", "is ")):
        said = f"{error.filename} {what}"
    else:
        said = f"{error.filename}: {what}"
    return f"{said}; {remedy}" if remedy else said
