"""Where a job keeps what it replaced, and the names it uses beside a broker's files.

The area is a directory beside the log.dirs root, never in it: a broker does not start with a
directory in its root that is no partition.  It holds ``plan.json``, ``journal.jsonl`` and, below
``kept/``, the replaced files under their own relative paths.
"""

from __future__ import annotations

import os
from pathlib import Path

from kafkastore.changes.plan import Plan
from kafkastore.errors import ChangeRefusedError
from kafkastore.formats.file_names import parse_segment_file
from kafkastore.log.log_dir import MARKS
from kafkastore.log.log_store import is_partition_directory

AREA_MARK = ".kafkastore-undo-"
REMOVED_MARK = ".kafkastore-removed-"
PLAN_FILE = "plan.json"
JOURNAL_FILE = "journal.jsonl"
KEPT_DIRECTORY = "kept"
PARTS_MARK = "parts-"
LINES_SUFFIX = ".jsonl"


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
    # By the files themselves, and by the plan, which may remove the last of them.
    inside_partition = is_partition_directory(root) or any(
        "/" not in change.path and parse_segment_file(change.path) is not None
        for change in plan.changes
    )
    return root.parent if inside_partition else root


def area_of(plan: Plan, undo_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return where a plan's undo area is, or would be."""
    home = log_dirs_root(plan)
    parent = home.parent if undo_dir is None else Path(os.path.realpath(undo_dir))
    return parent / f"{home.name}{AREA_MARK}{plan.id}"


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
        raise ChangeRefusedError(
            f"{home} is a mount point, and {parent} another file system: "
            "name the place for what is replaced (undo_dir)"
        )
