"""Where a job keeps what it replaced, and the names it uses beside a broker's files.

The area is a directory beside the log.dirs root, never in it: a broker does not start with a
directory in its root that is no partition.  It holds ``plan.json``, ``journal.jsonl`` and, below
``kept/``, the replaced files under their own relative paths.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kafkastore.changes.opened_directory import opened_directory
from kafkastore.changes.plan import InvalidPlanError, Plan, is_partition_name
from kafkastore.errors import ChangeRefusedError, NoUndoPlaceError
from kafkastore.log.log_dir import MARKS
from kafkastore.store.log_store import is_partition_directory

AREA_MARK = ".kafkastore-undo-"
REMOVED_MARK = ".kafkastore-removed-"
PLAN_FILE = "plan.json"
JOURNAL_FILE = "journal.jsonl"
KEPT_DIRECTORY = "kept"
PARTS_MARK = "parts-"
LINES_SUFFIX = ".jsonl"
#: Of the area and what is in it: nobody but its owner, and root, says what is undone.
AREA_MODE = 0o755


def temporary_beside(path: Path, plan_id: str) -> Path:
    """Return the name under which a file's new bytes are written before they take its place.

    Parameters
    ----------
    path : Path
        The file.
    plan_id : str
        The plan's id.

    Notes
    -----
    Brokers choose by the end of a name: ``.log``, the indexes, ``.snapshot`` are loaded,
    ``.deleted``, ``.cleaned`` and ``.swap`` deleted or moved.  That is not all: since 3.0,
    finishing an interrupted compaction deletes *every* file whose name up to the first dot is an
    offset within the compacted range.  So the name neither ends nor begins like one of theirs.

    Source: Kafka 2.4.0 ``Log.removeTempFilesAndCollectSwapFiles``; since 3.0 ``LogLoader.load``.

    Examples
    --------
    >>> temporary_beside(Path("/d/t-0/00000000000000000042.timeindex"), "8a5e").name
    'kafkastore-8a5e.00000000000000000042.timeindex.new'
    """
    return path.with_name(f"kafkastore-{plan_id}.{path.name}.new")


def kept_in(area: Path, path: str) -> Path:
    """Return where the old file of a change is kept."""
    return area / KEPT_DIRECTORY / path


def log_dirs_root(plan: Plan) -> Path:
    """Return the directory that would be a broker's root: the plan's, or the one above it."""
    root = Path(os.path.realpath(plan.root))
    is_partition = plan.is_of_partition if plan.changes else is_partition_directory(root)
    return root.parent if is_partition else root


def area_of(plan: Plan, undo_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return where a plan's undo area is, or would be."""
    home = log_dirs_root(plan)
    parent = home.parent if undo_dir is None else Path(os.path.realpath(undo_dir))
    return parent / f"{home.name}{AREA_MARK}{plan.id}"


def root_of(plan: Plan, area: Path, named: Path | None) -> Path:
    """Return what a plan's paths are relative to, as an undo area's place says, or the caller.

    Parameters
    ----------
    plan : Plan
        The plan in the area; its own word counts for nothing but a partition's name.
    area : Path
        The undo area.
    named : Path or None
        The real path of the log directory, or of the partition directory.

    Raises
    ------
    ChangeRefusedError
        If none is named, and the area does not lie beside the plan's root.
    InvalidPlanError
        If the plan's root has no partition directory's name, and its files are a partition's.
    """
    said = Path(os.path.realpath(plan.root))
    if plan.is_of_partition and not is_partition_name(said.name):
        raise InvalidPlanError(f"{said} must have a partition directory's name")
    if named is not None:
        is_home = plan.is_of_partition and named.name != said.name
        return named / said.name if is_home else named
    home = said.parent if plan.is_of_partition else said
    name, _, _ = area.name.rpartition(AREA_MARK)
    if Path(os.path.realpath(area.parent)) / name != home:
        raise ChangeRefusedError(
            f"{area} does not lie beside {home}, which its plan names: name the log directory that "
            "is meant (--root)"
        )
    return said


def check_trusted(area: Path, *, trust_area: bool = False, dir_fd: int | None = None) -> None:
    """Refuse an undo area that others than this user and root may have written.

    Parameters
    ----------
    area : Path
        The undo area.
    trust_area : bool
        Whether the caller takes it all the same; symbolic links are never taken.
    dir_fd : int, optional
        The area, open: whatever has become of its path since, that one is looked at.

    Raises
    ------
    ChangeRefusedError
        If it is, or a file or directory of its own in it; replaced files are known by digests.
    FileNotFoundError
        If there is none.
    """
    if dir_fd is None:
        with opened_directory(area) as descriptor:
            check_trusted(area, trust_area=trust_area, dir_fd=descriptor)
        return
    check_own(area, os.fstat(dir_fd), is_directory=True, trust_area=trust_area)
    for name in sorted(os.listdir(dir_fd)):
        path, status = area / name, os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        has_more = name == KEPT_DIRECTORY or name.startswith(PARTS_MARK)
        check_own(path, status, is_directory=has_more, trust_area=trust_area)
        if not has_more:
            continue
        with opened_directory(path) as here, os.scandir(here) as entries:
            for entry in entries:
                # In it are the replaced files, of a lone partition directory at once.
                is_kept = name == KEPT_DIRECTORY and entry.is_file(follow_symlinks=False)
                if not is_kept:
                    check_own(
                        path / entry.name,
                        entry.stat(follow_symlinks=False),
                        is_directory=name == KEPT_DIRECTORY,
                        trust_area=trust_area,
                    )


def check_own(
    path: Path, status: os.stat_result, *, is_directory: bool, trust_area: bool = False
) -> None:
    """Refuse one of our own files or directories, by what `lstat` says; see `check_trusted`."""
    is_as_made = stat.S_ISDIR if is_directory else stat.S_ISREG
    if not is_as_made(status.st_mode):
        kind = "directory" if is_directory else "regular file"
        raise ChangeRefusedError(f"{path} must be a {kind} in an undo area; nothing was done")
    if trust_area:
        return
    if status.st_uid not in (0, os.geteuid()):
        why = f"belongs to user {status.st_uid}"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = f"may be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
    else:
        return
    raise ChangeRefusedError(
        f"{path} {why}, so that others may have written what is to be done; look at it, then add "
        "--trust-area (trust_area=True), or run as that user"
    )


def check_area(plan: Plan, area: Path, *, chosen: bool) -> None:
    """Refuse a place for the undo area that would harm a broker or not survive.

    Parameters
    ----------
    plan : Plan
        What is going to be applied.
    area : Path
        The undo area, not yet made.
    chosen : bool
        Whether the caller named the place.

    Raises
    ------
    ChangeRefusedError
        If the place lies in a log.dirs root, does not exist, or, when nobody chose it, is on
        another file system than the root (the root is a mount point).
    """
    home, parent = log_dirs_root(plan), area.parent
    if not parent.is_dir():
        raise ChangeRefusedError(
            f"{parent} is no directory: name another place for what is replaced"
        )
    if parent == home or home in parent.parents:
        raise ChangeRefusedError(
            f"{parent} lies in {home}: a broker would not start with an unknown directory in it"
        )
    marks = [mark for mark in MARKS if (parent / mark).exists()]
    if marks:
        raise ChangeRefusedError(
            f"{parent} looks like a log.dirs root ({marks[0]}): "
            "name another place for what is replaced"
        )
    if not chosen and os.stat(parent).st_dev != os.stat(plan.root).st_dev:
        raise NoUndoPlaceError(f"{home} is a mount point, and {parent} another file system")
