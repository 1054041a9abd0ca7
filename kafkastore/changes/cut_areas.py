"""What recoveries of `LogDirWriter` cut: listed and removed with the undo areas of plans.

A log that was recovered may have grown since, so nothing is put back by itself: the bytes are there
for whoever wants to look at them, or to append what can be read of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kafkastore.changes.journal import beside, remove_tree
from kafkastore.changes.undo_area import check_own
from kafkastore.errors import ChangeRefusedError
from kafkastore.fs import FileSystem
from kafkastore.log.log_dir_writer import CUT_MARK

RECOVERY_JOB = "recovery (LogDirWriter)"


class CutArea(NamedTuple):
    """What one writer's recoveries cut.

    Attributes
    ----------
    root, area : Path
        The log directory, and where the bytes are kept.
    files : int
        How many logs, or ends of logs.
    at_ms : int or None
        When, in ms since 1970.
    """

    root: Path
    area: Path
    files: int
    at_ms: int | None


def is_cut_area(area: Path) -> bool:
    """Answer whether a directory is named as what recoveries cut."""
    return CUT_MARK in area.name and area.is_dir()


def kept_files(area: Path) -> int:
    """Count what is kept in an area."""
    return sum(len(names) for _, _, names in os.walk(area))


def find_cut_areas(
    root: str | os.PathLike[str], undo_dir: str | os.PathLike[str] | None = None
) -> Iterator[CutArea]:
    """Find what recoveries cut of the logs in a directory.

    Parameters
    ----------
    root : path-like
        A log.dirs root, or a partition directory.
    undo_dir : path-like, optional
        Where it is kept, if not beside the root.

    Yields
    ------
    CutArea
        By time.
    """
    for home, area in beside(Path(os.path.realpath(root)), undo_dir, CUT_MARK):
        if area.is_dir():
            digits = area.name.rpartition(CUT_MARK)[2]
            at_ms = int(digits) if digits.isascii() and digits.isdigit() else None
            yield CutArea(home, area, kept_files(area), at_ms)


def remove_cut_area(
    area: Path, *, trust_area: bool = False, fs: FileSystem = FileSystem()
) -> None:
    """Delete what recoveries cut.

    Raises
    ------
    ChangeRefusedError
        If the directory has another name, or others than this user and root may have written it.
    """
    if not is_cut_area(area):
        raise ChangeRefusedError(f"{area} is not named as what a recovery cut is: nothing was done")
    check_own(area, os.lstat(area), is_directory=True, trust_area=trust_area)
    remove_tree(area, fs)
