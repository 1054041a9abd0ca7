"""The journal of a plan that is applied: one JSON line a step, flushed before the next step.

What counts is always the files themselves: each is wholly as before or wholly as planned, and a
line that a crash cut short only means that the step has to be looked up there.  The journal tells
which of the two a file is meant to be, and whether it was ever ours to change.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kafkastore.changes.plan import InvalidPlanError, Plan
from kafkastore.changes.undo_area import (
    AREA_MARK,
    JOURNAL_FILE,
    KEPT_DIRECTORY,
    LINES_SUFFIX,
    PARTS_MARK,
    PLAN_FILE,
    REMOVED_MARK,
)
from kafkastore.errors import ChangeRefusedError
from kafkastore.fs import FileSystem

Phase = Literal["applying", "applied", "undoing", "undone"]
Step = Literal["changed", "restored", "left"]


@dataclass(frozen=True, slots=True)
class Journal:
    """How far a plan is applied or undone.

    Parameters
    ----------
    area : Path
        The undo area: plan, journal, and the files that were replaced.
    plan : Plan
        What is applied.
    phase : {"applying", "applied", "undoing", "undone"}
        The two that end in *ing* were interrupted, or go on at this moment.
    changed : frozenset of str
        Paths recorded as changed and not restored since.
    left : frozenset of str
        Paths that `undo` left alone, because somebody else had changed them since.
    at_ms : int or None
        When that phase was recorded, in ms since 1970; None where it was not.
    """

    area: Path
    plan: Plan
    phase: Phase
    changed: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    at_ms: int | None = None

    @classmethod
    def open(cls, area: str | os.PathLike[str]) -> Journal:
        """Read the journal in an undo area.

        Raises
        ------
        InvalidPlanError
            If the plan in it cannot be read.
        FileNotFoundError
            If there is no plan: nothing was ever changed by it.
        """
        area = Path(area)
        try:
            return cls._of(area, Plan.from_json((area / PLAN_FILE).read_bytes().decode()))
        except ValueError as error:  # InvalidPlanError too
            raise InvalidPlanError(f"{area / PLAN_FILE} can't be read: {error}") from error

    def read_again(self) -> Journal:
        """Return the journal as it is now; its plan is what it was."""
        return self._of(self.area, self.plan)

    @classmethod
    def _of(cls, area: Path, plan: Plan) -> Journal:
        """Read the lines of a plan's journal."""
        # First the parts': their lines go into the journal before they are removed.
        of_parts = _lines_of_parts(area)
        try:
            lines = (area / JOURNAL_FILE).read_bytes().split(b"\n")
        except FileNotFoundError:
            lines = []
        phase: Phase = "applying"
        at_ms: int | None = None
        changed: set[str] = set()
        left: set[str] = set()
        for event, path, event_ms in filter(None, map(parse_line, [*lines, *of_parts])):
            match event:
                case "applying" | "applied" | "undoing" | "undone":
                    phase, at_ms = event, event_ms
                    if event == "applying":
                        left.clear()
                case "changed":
                    changed.add(path)
                case "restored":
                    changed.discard(path)
                    left.discard(path)
                case "left":
                    left.add(path)
        return cls(area, plan, phase, frozenset(changed), frozenset(left), at_ms)

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to resume."""
        return self.phase in ("applied", "undone")


def parse_line(line: bytes) -> tuple[Phase | Step, str, int | None] | None:
    """Read one line; None for one that a crash cut short."""
    try:
        value = json.loads(line)
        return value["event"], value.get("path", ""), value.get("at_ms")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _lines_of_parts(area: Path) -> list[bytes]:
    """Read the journals of parts that are not yet in the journal itself; see `part_journals`."""
    lines: list[bytes] = []
    for path in sorted(area.glob(f"{PARTS_MARK}*/*{LINES_SUFFIX}")):
        with suppress(FileNotFoundError):  # they have just gone into the journal
            lines += path.read_bytes().split(b"\n")
    return lines


class JournalWriter:
    """Adds lines to a journal, each durable before the call returns.

    Parameters
    ----------
    path : Path
        The journal.
    fs : FileSystem
        The altering calls.
    """

    def __init__(self, path: Path, fs: FileSystem) -> None:
        self._fs, self._lock = fs, threading.Lock()
        self._descriptor = fs.open_append(path)
        try:
            # A crash may have cut the last line short; what follows begins a new one.
            if _last_byte(path) not in (b"", b"\n"):
                fs.write_all(self._descriptor, b"\n")
            fs.fsync_directory(path.parent)
        except BaseException:
            fs.close(self._descriptor)
            raise

    @classmethod
    def of(cls, area: Path, fs: FileSystem) -> JournalWriter:
        """Open the journal of an undo area."""
        return cls(area / JOURNAL_FILE, fs)

    def phase(self, phase: Phase) -> None:
        """Record that a phase begins, or is finished."""
        self._add({"event": phase, "at_ms": time.time_ns() // 1_000_000})

    def step(self, step: Step, path: str) -> None:
        """Record what became of one file."""
        self._add({"event": step, "path": path})

    def steps(self, step: Step, paths: Iterable[str]) -> None:
        """Record what became of several files, all at once."""
        self._add(*({"event": step, "path": path} for path in paths))

    def _add(self, *values: Mapping[str, object]) -> None:
        with self._lock:
            lines = b"".join(json.dumps(value).encode() + b"\n" for value in values)
            self._fs.write_all(self._descriptor, lines)
            self._fs.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        self._fs.close(self._descriptor)


def _last_byte(path: Path) -> bytes:
    """Return the last byte of a file, nothing for an empty one."""
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        if file.tell() == 0:
            return b""
        file.seek(-1, os.SEEK_END)
        return file.read(1)


def start_journal(plan: Plan, area: Path, fs: FileSystem) -> Journal:
    """Make a plan's undo area, or find it again, and return its journal.

    Raises
    ------
    ChangeRefusedError
        If the area cannot be made there, or holds another plan.
    """
    try:
        fs.mkdir(area)
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise ChangeRefusedError(
            f"cannot make {area}: name another place for what is replaced (undo_dir)"
        ) from error
    text = plan.to_json().encode()
    try:
        if (area / PLAN_FILE).read_bytes() != text:
            raise ChangeRefusedError(f"{area} holds another plan")
    except FileNotFoundError:
        _write_plan(text, area, fs)
    return Journal._of(area, plan)


def _write_plan(text: bytes, area: Path, fs: FileSystem) -> None:
    """Put the plan into its area, whole or not at all."""
    temporary = area / (PLAN_FILE + ".new")
    if temporary.exists():
        fs.unlink(temporary)
    try:
        descriptor = fs.create(temporary)
        try:
            fs.write_all(descriptor, text)
            fs.fsync(descriptor)
        finally:
            fs.close(descriptor)
        fs.rename(temporary, area / PLAN_FILE)
    except BaseException:
        with suppress(OSError):  # an area without a plan is of no use
            fs.unlink(temporary)
        with suppress(OSError):
            fs.rmdir(area)
        raise
    fs.fsync_directory(area)


def find_journals(
    root: str | os.PathLike[str], undo_dir: str | os.PathLike[str] | None = None
) -> tuple[Journal, ...]:
    """Find the journals of all plans that were applied to a directory.

    Parameters
    ----------
    root : path-like
        A log.dirs root, or a partition directory.
    undo_dir : path-like, optional
        Where the undo areas are, if not beside the root.

    Returns
    -------
    tuple of Journal
        By name; areas without a plan, which never changed anything, are left out.
    """
    return tuple(each_journal(root, undo_dir))


def each_journal(
    root: str | os.PathLike[str], undo_dir: str | os.PathLike[str] | None = None
) -> Iterator[Journal]:
    """Find the same journals, one at a time: a plan may be large."""
    real = Path(os.path.realpath(root))
    for area in _beside(real, undo_dir, AREA_MARK):
        try:
            journal = Journal.open(area)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if _overlap(real, Path(os.path.realpath(journal.plan.root))):
            yield journal


def _beside(
    root: Path, undo_dir: str | os.PathLike[str] | None, mark: str
) -> Iterator[Path]:
    """List what is named after a directory, or the one above it, and has a mark."""
    for home in (root, root.parent):
        place = home.parent if undo_dir is None else Path(os.path.realpath(undo_dir))
        yield from sorted(place.glob(glob.escape(home.name) + mark + "*"))


def find_half_removed(
    root: str | os.PathLike[str], undo_dir: str | os.PathLike[str] | None = None
) -> tuple[Path, ...]:
    """Find what is left of undo areas whose removal was interrupted; `remove` takes these too."""
    return tuple(_beside(Path(os.path.realpath(root)), undo_dir, REMOVED_MARK))


def _overlap(one: Path, other: Path) -> bool:
    """Answer whether two roots are the same, or one is a partition directory in the other."""
    return one == other or one.parent == other or one == other.parent


def remove(journal: Journal | str | os.PathLike[str], *, fs: FileSystem = FileSystem()) -> None:
    """Delete a finished undo area with the replaced files in it; they cannot be brought back then.

    Parameters
    ----------
    journal : Journal or path-like
        The journal, or its undo area.
    fs : FileSystem
        The altering calls.

    Raises
    ------
    ChangeRefusedError
        If the plan was interrupted: resume or undo it first.
    """
    area = journal.area if isinstance(journal, Journal) else Path(journal)
    # Under its new name nobody takes a half-deleted area for one that can be undone.
    doomed = area.with_name(area.name.replace(AREA_MARK, REMOVED_MARK))
    if area != doomed and (area.exists() or not doomed.exists()):
        journal = Journal.open(area)
        if not journal.is_finished:
            raise ChangeRefusedError(
                f"{area} is unfinished ({journal.phase}): resume or undo it first"
            )
        fs.rename(area, doomed)
    fs.fsync_directory(area.parent)
    for directory, _, names in os.walk(doomed / KEPT_DIRECTORY, topdown=False):
        for name in names:
            fs.unlink(Path(directory, name))
        fs.rmdir(Path(directory))
    for path in sorted(doomed.iterdir()):
        fs.unlink(path)
    fs.rmdir(doomed)
