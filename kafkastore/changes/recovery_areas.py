"""List and remove the bytes that recoveries of `LogDirWriter` truncated, like undo areas.

They cannot be restored, because a recovered log may have grown since. They are kept for users who
want to inspect them, or to append the readable records in them again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kafkastore.changes.journal import list_areas, remove_tree
from kafkastore.changes.undo_area import check_own
from kafkastore.errors import ChangeRefusedError
from kafkastore.fs import FileSystem
from kafkastore.log.log_dir_writer import CUT_MARK

RECOVERY_JOB = "recovery (LogDirWriter)"


class RecoveryArea(NamedTuple):
    """Where the recoveries of one writer keep the bytes that they truncated.

    `files` is the number of kept logs or ends of logs; `at_ms` is the time in ms since 1970.
    """

    root: Path
    area: Path
    files: int
    at_ms: int | None


def is_recovery_area(area: Path) -> bool:
    """Return whether a directory has the name of a recovery area."""
    return CUT_MARK in area.name and area.is_dir()


def kept_files(area: Path) -> int:
    """Count the files that are kept in an area."""
    return sum(len(names) for _, _, names in os.walk(area))


def find_recovery_areas(
    root: str | os.PathLike[str], undo_dir: str | os.PathLike[str] | None = None
) -> Iterator[RecoveryArea]:
    """Yield the recovery areas of a log.dirs root or a partition directory, by time.

    They are in `undo_dir`, if not next to the root.
    """
    for home, area in list_areas(Path(os.path.realpath(root)), undo_dir, CUT_MARK):
        if area.is_dir():
            digits = area.name.rpartition(CUT_MARK)[2]
            at_ms = int(digits) if digits.isascii() and digits.isdigit() else None
            yield RecoveryArea(home, area, kept_files(area), at_ms)


def remove_recovery_area(
    area: Path, *, trust_area: bool = False, fs: FileSystem = FileSystem()
) -> None:
    """Delete a recovery area; refuse any other directory, and one that others can have written."""
    if not is_recovery_area(area):
        raise ChangeRefusedError(f"{area} is not named as what a recovery cut is: nothing was done")
    check_own(area, os.lstat(area), is_directory=True, trust_area=trust_area)
    remove_tree(area, fs)
