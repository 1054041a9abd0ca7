"""The undo area of a plan, and the names that jobs use.

The area is a directory next to the log.dirs root, never in it: a broker does not start with an
unknown directory in its root. It holds ``plan.json``, ``journal.jsonl`` and, below ``kept/``, the
replaced files under their own relative paths.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kafkastore.changes import AREA_MARK
from kafkastore.changes.no_follow import opened_directory
from kafkastore.changes.plan import InvalidPlanError, Plan, is_partition_name
from kafkastore.errors import ChangeRefusedError, NoUndoPlaceError, RefusalReason
from kafkastore.log.log_dir import MARKS
from kafkastore.store.log_store import is_partition_directory

PLAN_FILE = "plan.json"
JOURNAL_FILE = "journal.jsonl"
KEPT_DIRECTORY = "kept"
PARTS_MARK = "parts-"
LINES_SUFFIX = ".jsonl"
#: Mode of the area and all directories in it: only its owner and root decide what is undone.
AREA_MODE = 0o755


def temporary_file(path: Path, plan_id: str) -> Path:
    """Return the name next to a file under which its new bytes are written."""
    # Brokers choose files by suffix: .log, the indexes and .snapshot are loaded; .deleted, .cleaned
    # and .swap are deleted or renamed. Since 3.0, finishing an interrupted compaction also deletes
    # every file whose name up to the first dot is an offset within the compacted range
    # (Log.removeTempFilesAndCollectSwapFiles; LogLoader.load). So neither prefix nor suffix of the
    # name must look like one of theirs.
    return path.with_name(f"kafkastore-{plan_id}.{path.name}.new")


def kept_in(area: Path, path: str) -> Path:
    """Return where the old file of a change is kept."""
    return area / KEPT_DIRECTORY / path


def log_dirs_root(plan: Plan) -> Path:
    """Return the directory that would be a broker's root: the plan's, or its parent."""
    root = Path(os.path.realpath(plan.root))
    is_partition = plan.is_of_partition if plan.changes else is_partition_directory(root)
    return root.parent if is_partition else root


def area_of(plan: Plan, undo_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return where a plan's undo area is, or would be."""
    home = log_dirs_root(plan)
    parent = home.parent if undo_dir is None else Path(os.path.realpath(undo_dir))
    return parent / f"{home.name}{AREA_MARK}{plan.id}"


def root_of(plan: Plan, area: Path, named: Path | None) -> Path:
    """Return the directory that a plan's paths are relative to.

    It is the one that the caller named, or the one next to the undo area; the plan itself is only
    trusted for the name of a partition.
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
            f"{area} is not next to {home}, the log directory in its plan; name the log directory "
            "(--root)",
            RefusalReason.UNKNOWN_AREA,
            area,
        )
    return said


def check_trusted(area: Path, *, trust_area: bool = False, dir_fd: int | None = None) -> None:
    """Refuse an undo area that users other than this one and root can have written.

    `trust_area` accepts it, but never symbolic links; `dir_fd` is the open area, used instead of
    its path. Replaced files are checked by their digests instead.
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
                # Replaced files of a single partition directory are directly in it.
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
    """Refuse our file or directory if other users can have written it."""
    is_as_made = stat.S_ISDIR if is_directory else stat.S_ISREG
    if not is_as_made(status.st_mode):
        kind = "directory" if is_directory else "regular file"
        wrong = RefusalReason.NOT_A_DIRECTORY if is_directory else RefusalReason.NOT_A_FILE
        raise ChangeRefusedError(
            f"{path} must be a {kind} in an undo area; nothing was done", wrong, path
        )
    if trust_area:
        return
    if status.st_uid not in (0, os.geteuid()):
        why = f"belongs to user {status.st_uid}"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = f"is writable for others (mode {stat.S_IMODE(status.st_mode):04o})"
    else:
        return
    raise ChangeRefusedError(
        f"{path} {why}, so that others may have written the plan or the replaced files; inspect "
        "it, then add --trust-area (trust_area=True), or run as that user",
        RefusalReason.UNTRUSTED_AREA,
        path,
    )


def check_area(plan: Plan, area: Path, *, chosen: bool) -> None:
    """Refuse an undo area that stops a broker, or is on another file system.

    `chosen`: the caller named the location; else it must be on the root's file system.
    """
    home, parent = log_dirs_root(plan), area.parent
    if not parent.is_dir():
        raise ChangeRefusedError(
            f"undo_dir must be a directory, got {parent}", RefusalReason.NOT_A_DIRECTORY, parent
        )
    if parent == home or home in parent.parents:
        raise ChangeRefusedError(
            f"undo_dir must not be in the log directory {home}, got {parent}: a broker does not "
            "start with an unknown directory in it",
            RefusalReason.UNSUITABLE_PLACE,
            parent,
        )
    marks = [mark for mark in MARKS if (parent / mark).exists()]
    if marks:
        raise ChangeRefusedError(
            f"undo_dir must not be a log.dirs root, got {parent} with {marks[0]}",
            RefusalReason.UNSUITABLE_PLACE,
            parent,
        )
    if not chosen and os.stat(parent).st_dev != os.stat(plan.root).st_dev:
        raise NoUndoPlaceError(
            f"{home} is a mount point, and {parent} is on another file system"
        )
