"""A copy of a whole directory for a job to work on."""
from __future__ import annotations

from pathlib import Path

from kafkastore.changes.copy_store import copy_store
from kafkastore.cli.progress import progress
from kafkastore.cli.tables import counted
from kafkastore.errors import ChangeRefusedError


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
        copied = copy_store(source, destination, progress=lambda path: advance(1))
    if not as_json:
        print(f"copied {counted(copied.files, 'file')} of {source} to {copied.destination}")
