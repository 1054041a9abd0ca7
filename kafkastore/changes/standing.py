"""Where the files of a plan stand before it is applied, or applied further."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NoReturn

from kafkastore.changes.file_state import FileState, read_state, status_of
from kafkastore.changes.opened_directory import opened_directory
from kafkastore.changes.plan import FileChange
from kafkastore.errors import ChangeRefusedError

# done: as planned, and recorded so.  unrecorded: as planned, but a crash cut the journal's line.
Standing = Literal["done", "unrecorded", "to do"]

_MOST_TOLD = 3


def look_at_all(
    root: Path, changes: Iterable[FileChange], recorded: frozenset[str]
) -> tuple[dict[str, Standing], list[str]]:
    """Find out what is left to do of some changes.

    Parameters
    ----------
    root : Path
        What their paths are relative to.
    changes : iterable of FileChange
        Some of a plan's, or all.
    recorded : frozenset of str
        Paths that the journal has as changed.

    Returns
    -------
    dict of str to Standing, list of str
        Where each file stands, and a sentence for each that does not fit the plan: with one of
        these, nothing is to be touched.
    """
    standings: dict[str, Standing] = {}
    refusals = []
    directories: set[str] = set()
    for change in changes:
        try:
            check_directory(root, change, directories)
            standings[change.path] = _look_at(root, change, change.path in recorded)
        except ChangeRefusedError as error:
            refusals.append(str(error))
    return standings, refusals


def check_directory(root: Path, change: FileChange, known: set[str]) -> None:
    """Refuse a change in a directory that a symbolic link stands for; each is looked at once."""
    directory = os.path.dirname(change.path)
    if directory not in known:
        with suppress(FileNotFoundError), opened_directory(root / directory):
            known.add(directory)


def refuse(refusals: Sequence[str]) -> NoReturn:
    """Refuse a plan for what was found, the first few said."""
    told = list(dict.fromkeys(refusals))  # a directory's is that of each file in it
    left = len(told) - _MOST_TOLD
    more = f"; and {left} more" if left > 0 else ""
    raise ChangeRefusedError("; ".join(told[:_MOST_TOLD]) + more)


def _look_at(root: Path, change: FileChange, recorded: bool) -> Standing:
    """Find out where one file stands.

    | the file is            | recorded as changed        | not recorded              |
    | ---------------------- | -------------------------- | ------------------------- |
    | as planned             | done                       | unrecorded                |
    | as before              | to do (somebody restored)  | to do                     |
    | neither                | done (a broker went on)    | refused                   |
    """
    path = root / change.path
    status = status_of(path)
    if recorded and change.after is not None and change.after.looks_same(status):
        return "done"
    state = read_state(path)
    if _same(change.after, state):
        return "done" if recorded else "unrecorded"
    if _same(change.before, state):
        check_reliances(root, change)
        return "to do"
    if recorded:
        return "done"
    raise ChangeRefusedError(f"{path} has changed since the plan was made")


def _same(expected: FileState | None, found: FileState | None) -> bool:
    """Answer whether a file is the expected one, or is missing as expected."""
    return found is None if expected is None else expected.same_file(found)


def check_reliances(root: Path, change: FileChange) -> None:
    """Refuse a change if a file that it was computed from has changed.

    Parameters
    ----------
    root : Path
        What paths are relative to.
    change : FileChange
        The change.

    Raises
    ------
    ChangeRefusedError
        If one has.
    """
    for reliance in change.relies_on:
        status = status_of(root / reliance.path)
        found = None if status is None else (status.st_size, status.st_mtime_ns)
        if found != (reliance.size, reliance.mtime_ns):
            raise ChangeRefusedError(
                f"{root / reliance.path} has changed since the plan was made, "
                f"and {change.path} depends on it"
            )
