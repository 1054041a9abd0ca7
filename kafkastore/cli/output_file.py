"""A file that a command writes: there whole, or not at all."""
from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from kafkastore.cli import interrupts
from kafkastore.errors import ChangeRefusedError
from kafkastore.log.log_store import LogStore


def check_output(path: Path, store: LogStore) -> None:
    """Refuse an output file that would lie in a directory being read, or that is no file.

    Parameters
    ----------
    path : path
        Where the output is to go.
    store : LogStore
        What is being read.

    Raises
    ------
    ChangeRefusedError
        If it is not safe.
    """
    target = Path(os.path.realpath(path))
    roots = [log_dir.path for log_dir in store.log_dirs]
    roots += [log.path for log in store if log.log_dir is None]
    for root in roots:
        if Path(os.path.realpath(root)) in target.parents:
            raise ChangeRefusedError(
                f"{path} lies in {root}, which is only read; name a file outside of it"
            )
    if not target.parent.is_dir():
        raise ChangeRefusedError(f"{target.parent} is no directory, so that {path} can't be made")
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise ChangeRefusedError(f"{path} is there and is no file; name another one")


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears under its name when the `with` block ends without an error.

    Parameters
    ----------
    path : path
        The file; replaced if it is there.

    Yields
    ------
    binary file
        A temporary file beside it, removed if anything goes wrong.
    """
    target = Path(os.path.realpath(path))
    name = str(target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial"))
    # Known before it is there: an interrupt may come at any moment.
    interrupts.temporary_files.add(name)
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, _mode(target))
            yield file
            file.flush()
            os.fsync(descriptor)
        os.replace(name, target)
    except BaseException as error:
        with suppress(FileNotFoundError):
            os.unlink(name)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # of a full disk, say, which one
        raise
    finally:
        interrupts.temporary_files.discard(name)


def _mode(target: Path) -> int:
    """Return the mode of the file to be replaced, or that of any new one."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
