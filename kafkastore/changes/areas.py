"""Find, list and remove undo areas and recovery areas.

A recovery area has the bytes that recoveries of `LogDirWriter` truncated. They cannot be restored,
because a recovered log may have grown since. They are kept for users who want to inspect them, or
to append the readable records in them again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kafkastore.changes import AREA_MARK, REMOVED_MARK, list_areas
from kafkastore.changes.journal import FINISHED, Journal, Phase, read_steps
from kafkastore.changes.no_follow import opened_directory
from kafkastore.changes.undo_area import (
    PLAN_FILE,
    check_own,
    check_trusted,
)
from kafkastore.errors import ChangeRefusedError, KafkaStoreError, NotAFileError, RefusalReason
from kafkastore.fs import FileSystem
from kafkastore.writing import CUT_MARK

RECOVERY_JOB = "recovery (LogDirWriter)"


class UnreadableArea(NamedTuple):
    """An undo area whose plan or journal cannot be read."""

    area: Path
    error: KafkaStoreError | OSError


def find_journals(
    root: str | os.PathLike[str], undo_dir: str | os.PathLike[str] | None = None
) -> tuple[Journal, ...]:
    """Find the journals of all plans applied to a directory.

    Sorted by name. `undo_dir` is where the undo areas are if not next to the root. Areas without a
    plan never changed anything, and are skipped.
    """
    return tuple(each_journal(root, undo_dir))


def each_journal(
    root: str | os.PathLike[str], undo_dir: str | os.PathLike[str] | None = None
) -> Iterator[Journal]:
    """Yield the same journals one at a time, because a plan may be large."""
    for journal in open_journals(root, undo_dir):
        if isinstance(journal, UnreadableArea):
            raise journal.error
        yield journal


def open_journals(
    root: str | os.PathLike[str], undo_dir: str | os.PathLike[str] | None = None
) -> Iterator[Journal | UnreadableArea]:
    """Yield the same journals, and the undo areas that cannot be read."""
    real = Path(os.path.realpath(root))
    for home, area in list_areas(real, undo_dir, AREA_MARK):
        try:
            journal = Journal.open(area, home)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (KafkaStoreError, OSError) as error:
            yield UnreadableArea(area, error)
            continue
        # Directories with equal names may share an undo_dir.
        if _overlap(real, Path(os.path.realpath(journal.plan.root))):
            yield journal


def find_unfinished(root: str | os.PathLike[str]) -> Iterator[tuple[Path, Phase]]:
    """Find the undo areas of a directory whose change was interrupted or is running.

    For commands that only read the directory: plans, which may be large, are not read, and an
    unreadable journal is skipped.
    """
    for _, area in list_areas(Path(os.path.realpath(root)), None, AREA_MARK):
        with suppress(OSError, ValueError, NotAFileError):
            if (area / PLAN_FILE).exists():
                phase: Phase = "applying"
                for event, _, _ in read_steps(area):
                    match event:
                        case "applying" | "applied" | "undoing" | "undone":
                            phase = event
                if phase not in FINISHED:
                    yield area, phase


def find_half_removed(
    root: str | os.PathLike[str], undo_dir: str | os.PathLike[str] | None = None
) -> tuple[Path, ...]:
    """Find undo areas whose removal was interrupted; `remove` accepts these too."""
    found = list_areas(Path(os.path.realpath(root)), undo_dir, REMOVED_MARK)
    return tuple(path for _, path in found)


def _overlap(one: Path, other: Path) -> bool:
    """Return whether two roots are equal, or one is a partition of the other."""
    return one == other or one.parent == other or one == other.parent


def remove(
    journal: Journal | str | os.PathLike[str],
    *,
    trust_area: bool = False,
    fs: FileSystem = FileSystem(),
) -> None:
    """Delete a finished undo area; `undo` is impossible then.

    Refused if the plan was interrupted, if the name is not an undo area's, or if other users than
    this one and root can have written the area; `trust_area` accepts the last.
    """
    area = journal.area if isinstance(journal, Journal) else Path(journal)
    area = Path(os.path.realpath(area.parent), area.name)
    if AREA_MARK not in area.name and REMOVED_MARK not in area.name:
        raise ChangeRefusedError(
            f"{area} does not have the name of an undo area; nothing was removed",
            RefusalReason.UNKNOWN_AREA,
            area,
        )
    # A partly deleted area must not look like one that can be undone.
    area_to_remove = area.with_name(area.name.replace(AREA_MARK, REMOVED_MARK))
    if area != area_to_remove and (area.exists() or not area_to_remove.exists()):
        check_trusted(area, trust_area=trust_area)
        journal = Journal.open(area)
        if not journal.is_finished:
            raise ChangeRefusedError(
                f"{area} is unfinished ({journal.phase}): resume or undo it first",
                RefusalReason.UNFINISHED,
                area,
            )
        fs.rename(area, area_to_remove)
    else:
        check_trusted(area_to_remove, trust_area=trust_area)
    fs.fsync_directory(area.parent)
    remove_tree(area_to_remove, fs)


def remove_tree(directory: Path, fs: FileSystem) -> None:
    """Delete a directory tree; symbolic links are removed, not followed."""
    with opened_directory(directory) as descriptor:
        for inner, directories, names, here in os.fwalk(dir_fd=descriptor, topdown=False):
            for name in names:
                fs.unlink(directory / inner / name, dir_fd=here)
            for name in directories:
                path = directory / inner / name
                (fs.unlink if path.is_symlink() else fs.rmdir)(path, dir_fd=here)
    fs.rmdir(directory)


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
    """Delete a recovery area; refuse one that others can have written."""
    area = Path(os.path.realpath(area.parent), area.name)
    if not is_recovery_area(area):
        raise ChangeRefusedError(
            f"{area} does not have the name of a recovery area; nothing was removed",
            RefusalReason.UNKNOWN_AREA,
            area,
        )
    check_own(area, os.lstat(area), is_directory=True, trust_area=trust_area)
    remove_tree(area, fs)
