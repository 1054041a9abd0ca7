"""The journal of a plan: one JSON line per step, flushed before the next step.

The files themselves are decisive: each is either old or new as a whole, and a line that a crash
truncated only means that the file has to be inspected. The journal records in which of the two
states a file should be, and whether this package ever changed it.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Self

from kafkastore.changes.no_follow import opened_directory
from kafkastore.changes.plan import InvalidPlanError, Plan
from kafkastore.changes.undo_area import (
    AREA_MODE,
    JOURNAL_FILE,
    LINES_SUFFIX,
    PARTS_MARK,
    PLAN_FILE,
    check_trusted,
    root_of,
)
from kafkastore.clock import clock
from kafkastore.errors import (
    ChangeRefusedError,
    KafkaStoreError,
    NotAFileError,
    NoUndoPlaceError,
    RefusalReason,
)
from kafkastore.formats.primitives.json_text import parse_json
from kafkastore.fs import FileSystem
from kafkastore.segment.small_file import read_own_file

Phase = Literal["applying", "applied", "undoing", "undone"]
Step = Literal["created", "changed", "restored", "left"]

FINISHED = ("applied", "undone")


class FailedPartition(NamedTuple):
    """A partition that a task did not finish; no file is half changed.

    `directory` is relative to the plan's root, and empty if it is the root.
    """

    directory: str
    error: KafkaStoreError | OSError


@dataclass(frozen=True, slots=True)
class Journal:
    """How far a plan is applied or undone.

    Parameters
    ----------
    area : Path
        The undo area: plan, journal, and the files that were replaced.
    plan : Plan
        The plan that is applied.
    phase : {"applying", "applied", "undoing", "undone"}
        *applying* and *undoing*: the job was interrupted, or is running.
    changed : frozenset of str
        Paths recorded as changed and not restored since.
    left : frozenset of str
        Paths that `undo` did not restore, because they were changed since; also directories that it
        did not remove, because they are not empty.
    at_ms : int or None
        When that phase was recorded, in ms since 1970; None if it was not.
    failures : tuple of FailedPartition
        The partitions that the run that returned this journal did not finish.
    named_root : Path or None
        The directory that the caller named; see `root`.
    created : frozenset of str
        The plan's directories that are recorded as created and not removed since.
    """

    area: Path
    plan: Plan
    phase: Phase
    changed: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    at_ms: int | None = None
    failures: tuple[FailedPartition, ...] = field(default=(), compare=False)
    named_root: Path | None = field(default=None, compare=False)
    created: frozenset[str] = frozenset()

    @classmethod
    def open(
        cls,
        area: str | os.PathLike[str],
        root: str | os.PathLike[str] | None = None,
        *,
        dir_fd: int | None = None,
    ) -> Journal:
        """Read the journal in an undo area.

        Parameters
        ----------
        area : path-like
            The undo area.
        root : path-like, optional
            The log directory, or partition directory, that was changed; required if the area is not
            next to it.
        dir_fd : int, optional
            The descriptor of the open area, used instead of its path.

        Returns
        -------
        Journal
            The journal as it is now.

        Raises
        ------
        InvalidPlanError
            If the plan or the journal in the area cannot be read, or is of a newer version.
        FileNotFoundError
            If there is no plan: nothing was ever changed.
        """
        area = Path(area)
        named = None if root is None else Path(os.path.realpath(root))
        with _named_in_errors(area / PLAN_FILE) as path:
            plan = Plan.from_json(read_own_file(path, dir_fd=dir_fd).decode())
        with _named_in_errors(area / JOURNAL_FILE):
            return cls.of_plan(area, plan, named)

    @property
    def root(self) -> Path:
        """The directory that the plan's paths are relative to.

        Raises
        ------
        ChangeRefusedError
            If the area is next to another directory than the plan says, and the caller named none:
            the plan alone is not trusted.
        """
        return root_of(self.plan, self.area, self.named_root)

    def read_again(self) -> Journal:
        """Return the journal as it is now, with the same plan."""
        return self.of_plan(self.area, self.plan, self.named_root)

    @classmethod
    def of_plan(cls, area: Path, plan: Plan, named_root: Path | None) -> Journal:
        """Read the journal of a plan.

        Parameters
        ----------
        area : Path
            The undo area.
        plan : Plan
            The plan in it.
        named_root : Path or None
            The directory that the caller named; see `root`.

        Returns
        -------
        Journal
            The journal as it is now.
        """
        phase: Phase = "applying"
        at_ms: int | None = None
        created: set[str] = set()
        changed: set[str] = set()
        left: set[str] = set()
        for event, path, event_ms in read_steps(area):
            match event:
                case "applying" | "applied" | "undoing" | "undone":
                    phase, at_ms = event, event_ms
                    if event == "applying":
                        left.clear()
                case "created":
                    created.add(path)
                case "changed":
                    changed.add(path)
                case "restored":
                    for paths in (created, changed, left):
                        paths.discard(path)
                case "left":
                    left.add(path)
                case _:
                    raise InvalidPlanError(
                        f"a step {event!r:.40} is not known; if a newer kafkastore made the "
                        "journal, upgrade this one",
                        area / JOURNAL_FILE,
                    )
        return cls(
            area, plan, phase, frozenset(changed), frozenset(left), at_ms, named_root=named_root,
            created=frozenset(created),
        )

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing to resume."""
        return self.phase in FINISHED

    @property
    def is_begun(self) -> bool:
        """Whether directories of the plan may exist that are not recorded as created."""
        return self.at_ms is not None and self.phase != "undone"


def open_trusted(
    journal: Journal | str | os.PathLike[str],
    root: str | os.PathLike[str] | None,
    *,
    trust_area: bool,
) -> Journal:
    """Read a journal before files are changed by it; `undo` explains the parameters."""
    if isinstance(journal, Journal):
        area, root = journal.area, journal.named_root if root is None else root
    else:
        area = Path(journal)
    area = Path(os.path.realpath(area))
    if not area.is_dir():
        return Journal.open(area, root)  # its error describes the problem best
    with opened_directory(area) as descriptor:
        check_trusted(area, trust_area=trust_area, dir_fd=descriptor)
        return Journal.open(area, root, dir_fd=descriptor)


def parse_line(line: bytes) -> tuple[Phase | Step, str, int | None] | None:
    """Parse one line; return None for a line that a crash truncated."""
    try:
        value = parse_json(line)
        event, path, at_ms = value["event"], value.get("path", ""), value.get("at_ms")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if not isinstance(path, str) or not (at_ms is None or type(at_ms) is int):
        return None
    return event, path, at_ms


def read_steps(area: Path) -> Iterator[tuple[Phase | Step, str, int | None]]:
    """Yield the steps of a journal; those of partitions' own journals come last."""
    # Read these before the journal: their lines are moved into it before they are removed.
    of_partitions = _lines_of_partitions(area)
    try:
        lines = read_own_file(area / JOURNAL_FILE).split(b"\n")
    except FileNotFoundError:
        lines = []
    yield from filter(None, map(parse_line, [*lines, *of_partitions]))


def _lines_of_partitions(area: Path) -> list[bytes]:
    """Read the journals of partitions that are not yet in the area's journal."""
    lines: list[bytes] = []
    for path in sorted(area.glob(f"{PARTS_MARK}*/*{LINES_SUFFIX}")):
        with suppress(FileNotFoundError):  # its lines are in the journal by now
            lines += read_own_file(path).split(b"\n")
    return lines


@contextmanager
def _named_in_errors(path: Path) -> Iterator[Path]:
    """Turn an error of reading a file of an undo area into one that names the file."""
    try:
        yield path
    except NotAFileError as error:
        raise InvalidPlanError(str(error), path) from error
    except ValueError as error:  # includes InvalidPlanError
        raise InvalidPlanError(f"{path} can't be read: {error}", path) from error


class JournalWriter:
    """Appends lines to a journal; each is flushed before the call returns.

    A journal that has another name (a hard link) is refused.
    """

    def __init__(self, path: Path, fs: FileSystem) -> None:
        self._fs, self._lock = fs, threading.Lock()
        self._descriptor = fs.open_append(path)
        try:
            if os.fstat(self._descriptor).st_nlink > 1:
                raise ChangeRefusedError(
                    f"{path} also has another name (a hard link), under which the new lines would "
                    "appear too; replace it with a copy",
                    RefusalReason.UNTRUSTED_AREA,
                    path,
                )
            # A crash may have truncated the last line; start a new one.
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
        """Record that a phase begins or is finished."""
        self._add({"event": phase, "at_ms": clock()})

    def step(self, step: Step, path: str) -> None:
        """Record a step for one file."""
        self._add({"event": step, "path": path})

    def steps(self, step: Step, paths: Iterable[str]) -> None:
        """Record a step for several files with one flush."""
        self._add(*({"event": step, "path": path} for path in paths))

    def _add(self, *values: Mapping[str, object]) -> None:
        with self._lock:
            lines = b"".join(json.dumps(value).encode() + b"\n" for value in values)
            self._fs.write_all(self._descriptor, lines)
            self._fs.fsync(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._fs.close(self._descriptor)


def _last_byte(path: Path) -> bytes:
    """Return the last byte of a file; empty for an empty file."""
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        if file.tell() == 0:
            return b""
        file.seek(-1, os.SEEK_END)
        return file.read(1)


def start_journal(plan: Plan, area: Path, fs: FileSystem) -> Journal:
    """Create or reopen the undo area of a plan, and return its journal."""
    try:
        fs.mkdir(area, AREA_MODE)
    except FileExistsError:
        check_trusted(area)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise NoUndoPlaceError(f"cannot create {area}") from error
    text = plan.to_json().encode()
    try:
        if read_own_file(area / PLAN_FILE) != text:
            raise ChangeRefusedError(
                f"{area} has another plan; name another undo_dir",
                RefusalReason.UNKNOWN_AREA,
                area,
            )
    except FileNotFoundError:
        _write_plan(text, area, fs)
    return Journal.of_plan(area, plan, Path(os.path.realpath(plan.root)))


def _write_plan(text: bytes, area: Path, fs: FileSystem) -> None:
    """Write the plan into its area, completely or not at all."""
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
        with suppress(OSError):  # an area without a plan is useless
            fs.unlink(temporary)
        with suppress(OSError):
            fs.rmdir(area)
        raise
    fs.fsync_directory(area)
