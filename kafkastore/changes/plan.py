"""The changes of a job, as data for ``--dry-run``, `apply` and `undo`.

A plan names files relative to one root. For each file it has the current state, the new state, how
the new bytes are made and why, and which other files must not have changed when it is applied.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from os import PathLike
from pathlib import PurePosixPath
from typing import Any

from kafkastore.arguments import INT32_MAX, INT64_MAX, INT64_MIN
from kafkastore.changes.file_state import PERMISSIONS, FileState
from kafkastore.errors import KafkaStoreError
from kafkastore.formats.primitives.json_text import parse_json
from kafkastore.formats.state import file_names
from kafkastore.formats.state.file_names import InvalidNameError, parse_partition_directory
from kafkastore.paths import is_url

#: The format of a plan, and of its journal and undo area. docs/upgrades.md says when it rises.
PLAN_FORMAT = 1
#: The format of plans with new directories, which a reader of the first one would not create.
_FORMAT_WITH_DIRECTORIES = 2
#: Every format begins with its number: it is read before anything that a newer one may contain.
_FORMAT = re.compile(r'\s*\{\s*"kafkastore_plan"\s*:\s*([0-9]{1,18})\s*[,}]')

# The limit of chown(2), where -1 means "no change".
_MAX_OWNER = (1 << 32) - 2
#: The mode bits of a directory that a file in it may have.
NOT_EXECUTABLE = 0o666

# Files that brokers write into a partition directory; they delete others there by suffix. Files of
# the log directory itself are excluded: a job that wrote those would declare unflushed bytes
# flushed, or take the broker's lock away.
_FILE_OF_A_PARTITION = re.compile(
    r"[0-9]+(-[0-9]+){0,2}\.(log|index|timeindex|txnindex|snapshot|checkpoint)"
    r"(\.(deleted|cleaned|swap|part))?|[^/\0]+\.(deleted|cleaned|swap)"
)
_SMALL_FILES_OF_A_PARTITION = frozenset(
    {
        file_names.LEADER_EPOCH_CHECKPOINT,
        file_names.PARTITION_METADATA,
        file_names.QUORUM_STATE,
    }
)


class InvalidPlanError(KafkaStoreError, ValueError):
    """A plan that contradicts itself, has paths outside its root, or cannot be read.

    Parameters
    ----------
    problem : str
        What is wrong.
    path : path-like, optional
        The file of the plan, or the plan itself, that has the problem.
    """

    def __init__(self, problem: str, path: str | PathLike[str] | None = None) -> None:
        super().__init__(problem, path)
        self.problem, self.path = problem, path

    def __str__(self) -> str:
        return self.problem


@dataclass(frozen=True, slots=True)
class Inline:
    """New bytes stored in the plan itself; for small files."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """An index rebuilt from its segment's ``.log``, as recovery does.

    `index_interval_bytes` is Kafka's ``index.interval.bytes``; `has_first_offsets` says whether the
    offset index has first offsets, as brokers up to 1.1 write it.
    """

    index_interval_bytes: int
    has_first_offsets: bool = False


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first `length` bytes of the current file: a truncation."""

    length: int


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes [start, end) of the file `source` in the same directory."""

    source: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Converted:
    """The ``.log`` itself with messages of old formats rewritten as record batches.

    `codec` None keeps the compression; `untimed_ms` is LogAppendTime of format 0 (None: no
    timestamp). `leader_epoch` is of messages before the first batch, with `is_only_epoch` of all.
    """

    codec: str | None
    untimed_ms: int | None
    leader_epoch: int
    is_only_epoch: bool = False


@dataclass(frozen=True, slots=True)
class Copied:
    """The bytes of another file, by its absolute path, or a ``.log`` converted."""

    source: str
    converted: Converted | None = None


Content = Inline | Rebuilt | Prefix | ByteRange | Converted | Copied


@dataclass(frozen=True, slots=True)
class Reliance:
    """A file that a change was computed from, and that must not change.

    `path` is relative to the plan's root; `size` is in bytes, `mtime_ns` in ns since 1970.
    """

    path: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class FileChange:
    """The change of one file, by its path, such as ``orders-3/….timeindex``.

    `before` None: the file is missing; `after` and `content` None: it is removed, and kept in the
    undo area. `reason` is one sentence; the files of `relies_on` must be unchanged since the plan.
    """

    path: str
    before: FileState | None
    after: FileState | None
    content: Content | None
    reason: str
    relies_on: tuple[Reliance, ...] = ()

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuse a contradictory change, or one of a file outside the partitions.

        Called for changes from another process too, because these were not created here.
        """
        _check_path(self.path)
        for reliance in self.relies_on:
            _check_path(reliance.path)
        for state in (self.before, self.after):
            if state is not None and state.mode & ~PERMISSIONS:
                raise InvalidPlanError(
                    f"{self.path} must have a mode of permission bits only, got {state.mode:#o}",
                    self.path,
                )
        if (self.after is None) != (self.content is None):
            raise InvalidPlanError(
                f"the change of {self.path} must have both a new state and content, or neither",
                self.path,
            )
        if self.before is None and self.after is None:
            raise InvalidPlanError(f"the change of {self.path} changes nothing", self.path)
        if isinstance(self.content, Prefix) and (
            self.before is None or not 0 <= self.content.length <= self.before.size
        ):
            raise InvalidPlanError(
                f"{self.path} can't be truncated to {self.content.length} bytes", self.path
            )
        if isinstance(self.content, Copied):
            *above, directory, name = self.content.source.split("/")
            if not above or above[0]:
                raise InvalidPlanError(f"{self.content.source} is not an absolute path", self.path)
            _check_path(f"{directory}/{name}")
        if isinstance(self.content, ByteRange):
            _check_path(self.content.source)
            if "/" in self.content.source:
                raise InvalidPlanError(
                    f"{self.content.source} is not next to {self.path}", self.path
                )
            if not 0 <= self.content.start <= self.content.end:
                raise InvalidPlanError(
                    f"{self.path} can't be made of bytes {self.content.start} to "
                    f"{self.content.end}",
                    self.path,
                )

    def __str__(self) -> str:
        if self.before is None and self.after is not None:
            what = f"create {self.path}, {self.after.size} bytes"
        elif self.after is None and self.before is not None:
            what = f"remove {self.path}, {self.before.size} bytes"
        elif self.before is not None and self.after is not None:
            what = f"replace {self.path}, {self.before.size} -> {self.after.size} bytes"
        return f"{what}: {self.reason}"


@dataclass(frozen=True, slots=True)
class NewDirectory:
    """A partition directory that is created, by its name, such as ``orders-3``.

    Its mode has permission bits only. Files in it may have its owners and its mode without
    execution.
    """

    name: str
    mode: int
    user: int
    group: int

    def check(self) -> None:
        """Refuse a directory that is not a partition's."""
        if not is_partition_name(self.name) or parse_partition_directory(self.name).suffix:
            raise InvalidPlanError(f"{self.name!r} is not a partition directory", self.name)
        if self.mode & ~PERMISSIONS:
            raise InvalidPlanError(
                f"{self.name} must have a mode of permission bits only, got {self.mode:#o}",
                self.name,
            )

    @property
    def file_mode(self) -> int:
        """The mode of files in it: that of the directory, but not executable."""
        return self.mode & NOT_EXECUTABLE

    def __str__(self) -> str:
        return f"create directory {self.name}"


@dataclass(frozen=True, slots=True)
class Plan:
    """All changes of one job below one root.

    Parameters
    ----------
    root : str
        Absolute path of a log.dirs root, or of one partition directory.
    job : str
        The job that made the plan, for people: ``migrate (auto)``.
    changes : tuple of FileChange
        In the order in which they are applied; each file once.
    directories : tuple of NewDirectory
        The partition directories that are created first; each has a file in `changes`.

    Examples
    --------
    >>> plan = Plan("/d", "migrate (empty)", ())
    >>> Plan.from_json(plan.to_json()) == plan
    True
    >>> print(plan)
    migrate (empty) of /d: nothing to change
    """

    root: str
    job: str
    changes: tuple[FileChange, ...]
    directories: tuple[NewDirectory, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        if not is_url(self.root) and not PurePosixPath(self.root).is_absolute():
            raise InvalidPlanError(
                f"the root of a plan must be an absolute path or a URL, got {self.root!r}"
            )
        seen: set[str] = set()
        for change in self.changes:
            change.check()
            if change.path in seen:
                raise InvalidPlanError(f"{change.path} is changed twice by one plan", change.path)
            if _is_of_log_dir(change.path) == self.is_of_partition:
                raise InvalidPlanError(
                    f"{change.path} is changed by a plan that changes {self.changes[0].path} too: "
                    "the root must be a log directory, or a partition directory",
                    change.path,
                )
            seen.add(change.path)
        self._check_directories()

    def _check_directories(self) -> None:
        """Refuse new directories without files, or with files that exist."""
        names = {each.name for each in self.directories}
        if len(names) != len(self.directories):
            raise InvalidPlanError("a directory is created twice by one plan")
        for each in self.directories:
            each.check()
        inside = [each for each in self.changes if os.path.dirname(each.path) in names]
        for change in inside:
            if change.before is not None:
                raise InvalidPlanError(
                    f"{change.path} can't exist: its directory is created", change.path
                )
        for name in names.difference(os.path.dirname(each.path) for each in inside):
            raise InvalidPlanError(f"{name} is created without files", name)

    def __eq__(self, other: object) -> bool:
        # Also equal to an instance of a subclass: its additional results are not part of a plan.
        if not isinstance(other, Plan):
            return NotImplemented
        return self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[object, ...]:
        return self.root, self.job, self.changes, self.directories

    @property
    def is_of_partition(self) -> bool:
        """Whether the root is a partition directory; else it is a log.dirs root."""
        return bool(self.changes) and not _is_of_log_dir(self.changes[0].path)

    @property
    def id(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of the plan's JSON.

        Each use makes the whole JSON again.
        """
        digest = hashlib.sha256()
        for piece in self._json_pieces():
            digest.update(piece.encode())
        return digest.hexdigest()[:16]

    @property
    def new_bytes(self) -> int:
        """The total size of the new files in bytes."""
        return sum(change.after.size for change in self.changes if change.after is not None)

    def to_json(self) -> str:
        """Return the plan as JSON: one line per change, the same text for the same plan.

        Returns
        -------
        str
            JSON that `from_json` reads.
        """
        return "".join(self._json_pieces())

    def _json_pieces(self) -> Iterator[str]:
        """Yield the plan's JSON line by line, because a large plan has large JSON."""
        head: dict[str, Any] = {
            "kafkastore_plan": PLAN_FORMAT, "root": self.root, "job": self.job
        }
        if self.directories:
            head["kafkastore_plan"] = _FORMAT_WITH_DIRECTORIES
            head["directories"] = list(map(directory_to_json, self.directories))
        yield json.dumps(head)[:-1] + ', "changes": [\n'
        for number, change in enumerate(self.changes):
            yield (",\n" if number else "") + json.dumps(change_to_json(change))
        yield "\n]}\n"

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read a plan from JSON.

        Parameters
        ----------
        text : str
            As returned by `to_json`.

        Returns
        -------
        Plan
            An equal plan.

        Raises
        ------
        InvalidPlanError
            If the text is not a plan, or one of a newer version.
        """
        found = _FORMAT.match(text)
        if found is not None and int(found[1]) > _FORMAT_WITH_DIRECTORIES:
            raise InvalidPlanError(
                f"plan format {found[1]} is of a newer kafkastore, this one reads formats up to "
                f"{_FORMAT_WITH_DIRECTORIES}; upgrade kafkastore"
            )
        try:
            value = parse_json(text, object_hook=_change_or_object)
            plan_format, directories = value["kafkastore_plan"], value.get("directories", ())
            if plan_format != (_FORMAT_WITH_DIRECTORIES if directories else PLAN_FORMAT):
                raise InvalidPlanError(f"plan format {plan_format} is not known")
            return cls(
                _text(value["root"]),
                _text(value["job"]),
                tuple(
                    change if isinstance(change, FileChange) else _change_from_json(change)
                    for change in value["changes"]
                ),
                directories=tuple(map(_directory_from_json, directories)),
            )
        except InvalidPlanError:
            raise
        except json.JSONDecodeError as error:
            what = f"not JSON: {error.msg} at character {error.pos}"
            raise InvalidPlanError(what) from error
        except KeyError as error:
            raise InvalidPlanError(f"not a plan: it has no {error}") from error
        except TypeError as error:
            raise InvalidPlanError("not a plan: a value has the wrong kind") from error
        except ValueError as error:
            raise InvalidPlanError(f"not a plan: {error}") from error

    def __str__(self) -> str:
        if not self.changes:
            return f"{self.job} of {self.root}: nothing to change"
        lines = [
            f"{self.job} of {self.root}: {len(self.changes)} files, {self.new_bytes} new bytes"
        ]
        return "\n".join(lines + [f"  {each}" for each in (*self.directories, *self.changes)])


def _is_of_log_dir(path: str) -> bool:
    """Return whether a path begins at a log directory, not at a partition directory."""
    return "/" in path or path == file_names.LOG_START_OFFSET_CHECKPOINT


def _check_path(path: str) -> None:
    """Refuse a path that is not a partition directory's file by Kafka's names.

    The log start checkpoint is allowed too: its loss shows records again, and loses none.
    """
    if path == file_names.LOG_START_OFFSET_CHECKPOINT:
        return
    *directories, name = path.split("/")
    is_named = (
        name in _SMALL_FILES_OF_A_PARTITION or _FILE_OF_A_PARTITION.fullmatch(name) is not None
    )
    if not is_named or len(directories) > 1 or not all(map(is_partition_name, directories)):
        raise InvalidPlanError(f"{path!r} is not a file of a partition directory", path)


@lru_cache(maxsize=1024)
def is_partition_name(name: str) -> bool:
    """Return whether a broker accepts a name as that of a partition directory."""
    try:
        parse_partition_directory(name)
    except InvalidNameError:
        return False
    return "/" not in name and "\0" not in name


def change_to_json(change: FileChange) -> dict[str, Any]:
    """Return a change as JSON types, as in the plan's JSON."""
    value: dict[str, Any] = {"path": change.path, "reason": change.reason}
    value["before"] = None if change.before is None else _fields(change.before)
    value["after"] = None if change.after is None else _fields(change.after)
    match change.content:
        case Inline(data):
            value["content"] = {"kind": "inline", "base64": base64.b64encode(data).decode()}
        case Rebuilt(index_interval_bytes, has_first_offsets):
            value["content"] = {"kind": "rebuilt", "index_interval_bytes": index_interval_bytes}
            if has_first_offsets:
                value["content"]["has_first_offsets"] = True
        case Prefix(length):
            value["content"] = {"kind": "prefix", "length": length}
        case ByteRange():
            value["content"] = {"kind": "part", **_fields(change.content)}
        case Converted():
            value["content"] = {"kind": "converted", **_fields(change.content)}
        case Copied(source, converted):
            as_json = None if converted is None else _fields(converted)
            value["content"] = {"kind": "copied", "source": source, "converted": as_json}
        case None:
            value["content"] = None
    value["relies_on"] = [_fields(reliance) for reliance in change.relies_on]
    return value


def directory_to_json(directory: NewDirectory) -> dict[str, Any]:
    """Return a new directory as JSON types, as in the plan's JSON."""
    return _fields(directory)


def _directory_from_json(value: Mapping[str, Any]) -> NewDirectory:
    """Read a new directory from JSON."""
    return NewDirectory(
        _text(value["name"]),
        _count(value["mode"], 0, INT32_MAX),
        _count(value["user"], 0, _MAX_OWNER),
        _count(value["group"], 0, _MAX_OWNER),
    )


def _fields(
    value: FileState | NewDirectory | Reliance | ByteRange | Converted
) -> dict[str, Any]:
    """Return a flat dataclass as a dictionary; `asdict` copies, and is slower."""
    return {name: getattr(value, name) for name in value.__slots__}


def _change_or_object(value: dict[str, Any]) -> dict[str, Any] | FileChange:
    """Convert a parsed object to a change, which needs far less memory.

    Any other object is kept, and refused later if it should have been a change.
    """
    if "relies_on" not in value:
        return value
    try:
        return _change_from_json(value)
    except (ValueError, KeyError, TypeError):
        return value


def _change_from_json(value: Mapping[str, Any]) -> FileChange:
    """Read a change from JSON."""
    relies_on = tuple(
        Reliance(_text(each["path"]), _count(each["size"]), _count(each["mtime_ns"], INT64_MIN))
        for each in value["relies_on"]
    )
    return FileChange(
        _text(value["path"]),
        _state_from_json(value["before"]),
        _state_from_json(value["after"]),
        _content_from_json(value["content"]),
        sys.intern(_text(value["reason"])),  # one of a few texts
        relies_on,
    )


def _state_from_json(value: Mapping[str, Any] | None) -> FileState | None:
    """Read a file state from JSON."""
    if value is None:
        return None
    return FileState(
        _count(value["size"]),
        _text(value["sha256"]),
        _count(value["mtime_ns"], INT64_MIN),
        _count(value["mode"], 0, INT32_MAX),
        _count(value["user"], 0, _MAX_OWNER),
        _count(value["group"], 0, _MAX_OWNER),
    )


def _content_from_json(value: Mapping[str, Any] | None) -> Content | None:
    """Read from JSON how new bytes are made."""
    if value is None:
        return None
    match value["kind"]:
        case "inline":
            return Inline(base64.b64decode(value["base64"], validate=True))
        case "rebuilt":
            return _rebuilt(
                _count(value["index_interval_bytes"], 0, INT32_MAX),
                value.get("has_first_offsets") is True,
            )
        case "prefix":
            return Prefix(_count(value["length"]))
        case "part":
            return ByteRange(_text(value["source"]), _count(value["start"]), _count(value["end"]))
        case "converted":
            return _converted(value)
        case "copied":
            conversion = value["converted"]
            return Copied(
                _text(value["source"]), None if conversion is None else _converted(conversion)
            )
        case other:
            raise InvalidPlanError(f"content of unknown kind {other!r}")


def _converted(value: Mapping[str, Any]) -> Converted:
    """Read from JSON how messages are converted."""
    codec, untimed_ms = value["codec"], value["untimed_ms"]
    return Converted(
        None if codec is None else _text(codec),
        None if untimed_ms is None else _count(untimed_ms, INT64_MIN),
        _count(value["leader_epoch"], -1, INT32_MAX),
        value.get("is_only_epoch") is True,
    )


@lru_cache(maxsize=16)
def _rebuilt(index_interval_bytes: int, has_first_offsets: bool) -> Rebuilt:
    """Return one shared object for all changes of a plan."""
    return Rebuilt(index_interval_bytes, has_first_offsets)


def _count(value: object, least: int = 0, most: int = INT64_MAX) -> int:
    """Return an integer from JSON; refuse anything else."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidPlanError(f"value must be an integer from {least} to {most}, got {value!r}")
    return value


def _text(value: object) -> str:
    """Return a string from JSON that can be a file name; refuse all else."""
    if not isinstance(value, str):
        raise InvalidPlanError(f"value must be a string, got {value!r}")
    try:
        os.fsencode(value)  # JSON can have surrogates
    except UnicodeEncodeError as error:
        raise InvalidPlanError(f"{value!r} must be valid Unicode") from error
    if "\0" in value:
        raise InvalidPlanError(f"{value!r} must not have null characters")
    return value
