"""Output files of commands: a file appears when it is complete, or not at all.

Output to a pipe or a device is written directly.
"""
from __future__ import annotations

import errno
import os
import secrets
import select
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kafkastore.cli import interrupts
from kafkastore.errors import ChangeRefusedError
from kafkastore.store.log_store import LogStore

if TYPE_CHECKING:
    from pyarrow import Schema
    from pyarrow.ipc import RecordBatchFileWriter, RecordBatchStreamWriter
    from pyarrow.parquet import ParquetWriter

#: Of Parquet, before compression: a page and what it is copied to are in a core's own cache.
_PAGE_BYTES = 128 * 1024
#: Of Parquet: keys with more distinct values than this are likely all different.
_DICTIONARY_BYTES = 128 * 1024
#: The length of file names on most systems.
_MOST_NAME_BYTES = 255
#: Names of standard output.
STDOUT = frozenset({"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"})


def is_stdout(path: Path | None) -> bool:
    """Return whether a path is standard output."""
    return str(path) in STDOUT


def check_reader(file: BinaryIO) -> None:
    """Raise BrokenPipeError if a file is a pipe that no process reads any more."""
    output = select.poll()
    output.register(file, 0)  # errors are always reported
    if output.poll(0):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def check_output(path: Path, store: LogStore) -> None:
    """Raise ChangeRefusedError for an output file in `store`, or unwritable."""
    if is_stdout(path):
        raise ChangeRefusedError(f"{path} is standard output; choose a file")
    if _is_stream(path):
        return
    check_outside(path, store)
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise ChangeRefusedError(f"{path}: {target.parent} is not a directory")
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise ChangeRefusedError(f"{path} exists and is not a regular file; choose another one")


def check_outside(path: Path, store: LogStore) -> None:
    """Raise ChangeRefusedError for a path in a directory of `store`."""
    target = Path(os.path.realpath(path))
    for root in store.paths:
        if Path(os.path.realpath(root)) in target.parents:
            raise ChangeRefusedError(
                f"{path} is in {root}, which is only read; choose a file outside of it"
            )


def _is_stream(path: Path) -> bool:
    """Return whether a path is a pipe or a character device."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def is_regular_file(file: BinaryIO) -> bool:
    """Whether a file is open, and neither a pipe nor a device."""
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except OSError:
        return False


@contextmanager
def open_output(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears under its name if the block succeeds.

    An existing file is replaced. The temporary file is next to it, and removed after an error. A
    pipe or a device is written directly.
    """
    if _is_stream(path):
        with errors_named(path, str(path)), open(path, "wb") as stream:
            yield stream
        return
    target = Path(os.path.realpath(path))
    name = str(partial_path(target))
    # Added before the file exists: an interrupt may come at any moment.
    interrupts.temporary_files.add(name)
    try:
        with errors_named(path, name):
            descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                os.fchmod(descriptor, mode_of(target))
                yield file
                file.flush()
                os.fsync(descriptor)
            os.replace(name, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name)
        raise
    finally:
        interrupts.temporary_files.discard(name)


def partial_path(target: Path) -> Path:
    """Return a new temporary name next to a file, no longer than names may be."""
    suffix = f".{secrets.token_hex(4)}.partial"
    start = os.fsencode(target.name)[: _MOST_NAME_BYTES - len(suffix) - 1]
    return target.with_name(f".{start.decode(errors='ignore')}{suffix}")


@contextmanager
def errors_named(path: Path, temporary: str) -> Iterator[None]:
    """Name the user's file in errors of the system, not the temporary one."""
    try:
        yield
    except OSError as error:
        if error.filename in (None, temporary):
            error.filename = str(path)
        raise


def open_columns_writer(
    file: BinaryIO,
    form: str,
    columns: Schema,
    *,
    dated: Sequence[str] | bool = True,
    repeating: Sequence[str] | bool = True,
) -> RecordBatchFileWriter | RecordBatchStreamWriter | ParquetWriter:
    """Open a writer for Arrow IPC or Parquet, with statistics of `dated`.

    Of `repeating` columns Parquet keeps each value once, where that is smaller.
    """
    if form in ("arrow", "arrows"):
        from pyarrow import ipc

        return ipc.new_file(file, columns) if form == "arrow" else ipc.new_stream(file, columns)
    from pyarrow.parquet import ParquetWriter

    return ParquetWriter(
        file, columns, compression="zstd", write_statistics=dated, use_dictionary=repeating,
        data_page_size=_PAGE_BYTES, dictionary_pagesize_limit=_DICTIONARY_BYTES,
    )  # fmt: skip


def mode_of(target: Path) -> int:
    """Return the mode of the file to replace, or the default mode of a new file."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
