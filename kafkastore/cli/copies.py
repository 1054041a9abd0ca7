"""A copy of a whole directory for a job to work on."""
from __future__ import annotations

import os
from pathlib import Path

from kafkastore.changes.copy_store import COPYING_SUFFIX, copy_store
from kafkastore.cli.failures import Interrupted, sentence
from kafkastore.cli.progress import progress
from kafkastore.cli.tables import counted
from kafkastore.errors import ChangeRefusedError, KafkaStoreError


def make_copy(source: Path, destination: Path, *, as_json: bool) -> None:
    """Copy a directory and say so.

    Parameters
    ----------
    source, destination : path
        The directory, and what the copy is called.
    as_json : bool
        Say nothing.

    Raises
    ------
    ChangeRefusedError
        If there is no place for it.
    """
    if not destination.parent.is_dir():
        raise ChangeRefusedError(f"{destination.parent} is no directory; make it first")
    with progress(f"copying {source.name}", None) as advance:
        try:
            copied = copy_store(source, destination, progress=lambda path: advance(1))
        except KeyboardInterrupt as error:
            raise Interrupted(f"interrupted{_left_behind(destination)}") from error
        except (OSError, ChangeRefusedError) as error:
            if not (left := _left_behind(destination)):
                raise
            raise KafkaStoreError(f"{sentence(error)}{left}") from None  # all is said
    if not as_json:
        print(f"copied {counted(copied.files, 'file')} of {source} to {copied.destination}")


def _left_behind(destination: Path) -> str:
    """Say where an unfinished copy lies; nothing if there is none."""
    real = Path(os.path.realpath(destination))
    working = real.with_name(real.name + COPYING_SUFFIX)
    if not working.is_dir():
        return ""
    return f"; the unfinished copy is {working}: the same command goes on with it"
