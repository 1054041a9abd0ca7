"""Logs of a Spark job: staged next to the log directory, moved when complete.

::

    <target>                              the log directory
    .<target>.kafkastore-<job>/           next to it: a broker rejects unknown names inside
        owner                             the process of the driver, while it runs
        task-<number>-<attempt>-<part>/   log directories of one attempt of a task
        merged-<number>/                  the partitions that several tasks wrote
        log-dir/                          becomes the target, or is moved into it
        committed                         the partitions to move into an existing target

A new target appears by one rename. In an existing one each partition does; if the process crashes
in between, the next write finishes the move. The next job also removes all other files that a job
left, once that job's driver has ended.
"""
from __future__ import annotations

import json
import os
import platform
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafkastore.errors import (
    ChangeRefusedError,
    DirectoryInUseError,
    NotAFileError,
    RefusalReason,
)
from kafkastore.formats.primitives.json_text import parse_json
from kafkastore.formats.state.file_names import LOCK_FILE, TopicPartition, parse_segment_file
from kafkastore.fs import FileSystem, LockFile, lock_holder
from kafkastore.log.log_dir import MARKS, LogDir
from kafkastore.segment.small_file import read_own_file
from kafkastore.spark.source.writing.committed_logs import (
    LOG_DIR,
    CommittedLogs,
    check_partition,
    mark_clean,
    write_checkpoints,
)
from kafkastore.spark.source.writing.merged_logs import StagedLog, whole_logs
from kafkastore.writing.cluster_topics import ClusterTopics

_OWNER, _REMOVED = "owner", "-removed"


@dataclass(frozen=True)
class StagedJob:
    """One write into a log directory; see `begin_job`.

    `path` is the staging directory; `given` and `topics` configure the logs, the given ones win;
    `keeps_offsets` says that the records have offsets already.
    """

    target: Path
    path: Path
    given: Mapping[str, str]
    topics: ClusterTopics
    keeps_offsets: bool

    def commit(self, logs: Sequence[StagedLog]) -> None:
        """Merge what the tasks wrote, in record order, and move it to the target.

        Raises `ChangeRefusedError` if the target has one of the partitions by now, or a broker uses
        it, and `OutOfOrderAppendError` if offsets to keep do not increase from task to task.
        """
        fs = FileSystem()
        if not self.path.is_dir():
            raise ChangeRefusedError(
                f"{self.path} was deleted, with all rows written so far",
                RefusalReason.CHANGED, self.path,
            )
        log_dir = self.path / LOG_DIR
        fs.mkdir(log_dir)
        ends = {}
        merging = whole_logs(
            logs, self.path, self.given, self.topics, keeps_offsets=self.keeps_offsets
        )
        for log in merging:
            fs.rename(log.path, log_dir / log.path.name)
            ends[log.topic_partition] = log.end_offset
        fs.fsync_directory(log_dir)
        if not os.path.lexists(self.target):
            write_checkpoints(log_dir, ends, fs)
            mark_clean(log_dir, fs)
            fs.rename(log_dir, self.target)
            fs.fsync_directory(self.target.parent)
        else:
            self._commit_into(ends)
        _remove(self.path)

    def abort(self) -> None:
        """Remove the staged files; first undo the moves of a killed commit.

        Raises `ChangeRefusedError` if a broker uses the target, or has used it. The next write then
        moves the rest.
        """
        committed = CommittedLogs(self.path, self.target)
        if committed.is_there and self.target.is_dir():
            with _locked(self.target):
                committed.undo_move()
        _remove(self.path)

    def _commit_into(self, ends: Mapping[TopicPartition, int]) -> None:
        """Move the partitions into an existing directory; move them back if that fails."""
        with _locked(self.target):
            check_target(self.target)
            for topic_partition in ends:
                check_partition(self.target, topic_partition)
            is_new = not (LogDir(self.target).partition_paths or _marks(self.target))
            committed = CommittedLogs(self.path, self.target)
            try:
                committed.begin(ends, is_new=is_new)
                committed.finish()
            except OSError:
                if committed.is_there:
                    committed.undo_move()
                raise


def begin_job(
    target: str, given: Mapping[str, str], topics: ClusterTopics, *, keeps_offsets: bool
) -> StagedJob:
    """Create a job's staging directory; finish or remove those of killed jobs.

    The target may be missing, empty, or have other partitions. Raises `ChangeRefusedError` if it
    cannot be written.
    """
    place = Path(os.path.realpath(target))
    if not os.path.lexists(place):
        _check_around(place)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_create(place, error) from error
    prefix = f".{place.name}.kafkastore-"
    for path in sorted(place.parent.iterdir()):
        if path.name.startswith(prefix) and _is_of_this_user(path) and _is_dead(path):
            _finish_move(path, place)
    check_target(place)
    lock = place / LOCK_FILE
    if (holder := lock_holder(lock)) is not None:
        raise DirectoryInUseError(place, lock, holder)
    path = place.parent / f"{prefix}{uuid.uuid4().hex[:12]}"
    try:
        path.mkdir()
        (path / _OWNER).write_text(json.dumps(_owner()))
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)
        raise _cannot_create(place, error) from error
    return StagedJob(place, path, given, topics, keeps_offsets)


def check_target(target: Path) -> None:
    """Raise `ChangeRefusedError` if a directory cannot hold logs; it may be missing."""
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise ChangeRefusedError(
            f"{target} is a file: name a directory for the logs",
            RefusalReason.NOT_A_DIRECTORY, target,
        )
    if target.is_mount() and _marks(target):
        raise ChangeRefusedError(
            f"{target} is a log directory and a mount point; logs written next to it cannot be "
            f"moved into it: name another directory, and move its partitions",
            RefusalReason.UNSUITABLE_PLACE, target,
        )
    if target.is_mount():
        raise ChangeRefusedError(
            f"{target} is a mount point; logs written next to it cannot be moved into it: name a "
            f"directory in it",
            RefusalReason.UNSUITABLE_PLACE, target,
        )
    if not os.access(target, os.R_OK | os.W_OK | os.X_OK):
        raise ChangeRefusedError(
            f"no permission to write into {target}",
            RefusalReason.FILE_ACCESS, target,
        )
    names = os.listdir(target)
    if any(parse_segment_file(name) for name in names):
        raise ChangeRefusedError(
            f"{target} is a partition directory: name its log directory, or another directory",
            RefusalReason.UNSUITABLE_PLACE, target,
        )
    log_dir = LogDir(target)
    if set(names) - {LOCK_FILE} and not (log_dir.partition_paths or _marks(target)):
        raise ChangeRefusedError(
            f"{target} is not empty and not a log directory: name another directory",
            RefusalReason.NOT_EMPTY, target,
        )
    for checkpoint in log_dir.corrupt_checkpoints:
        raise ChangeRefusedError(
            f"{target} has a corrupt checkpoint: {checkpoint.error}",
            RefusalReason.CHANGED, target,
        )
    _check_around(target)


def _check_around(target: Path) -> None:
    """Raise an error for a target inside a log directory.

    A broker does not start on a log directory with directories other than partitions.
    """
    around = next(each for each in target.parents if each.exists())
    if around.is_dir() and (
        _marks(around) or any(parse_segment_file(name) for name in os.listdir(around))
    ):
        raise ChangeRefusedError(
            f"{target} would be in the log directory {around}, and a broker does not start with "
            "directories other than partitions in it: name another directory",
            RefusalReason.UNSUITABLE_PLACE, target,
        )


def _finish_move(path: Path, target: Path) -> None:
    """Finish the move that a killed job began; remove the rest of its files."""
    committed = CommittedLogs(path, target)
    if committed.is_there and target.is_dir():  # otherwise it was removed with its partitions
        try:
            with _locked(target):
                committed.finish()
        except ChangeRefusedError as error:
            raise ChangeRefusedError(
                f"{path} has the logs of an earlier write that was killed, which cannot be moved "
                f"into place; remove them, or move them: {error}",
                RefusalReason.UNFINISHED, path,
            ) from error
    _remove(path)


def _remove(path: Path) -> None:
    """Remove a staging directory; a task attempt that still writes there fails."""
    removed = path.with_name(f"{path.name.removesuffix(_REMOVED)}{_REMOVED}")
    with suppress(FileNotFoundError):
        path.rename(removed)
    shutil.rmtree(removed, ignore_errors=True)


def _owner() -> dict[str, Any]:
    """Return the process that lives as long as the driver: daemon or JVM."""
    return {"host": platform.node(), "namespace": _namespace(), "pid": os.getppid()}


def _namespace() -> str:
    """Return the namespace of process ids; containers have their own."""
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def _is_of_this_user(path: Path) -> bool:
    """Return whether only this user and root can have filled a staging directory.

    Another user's is left for that user to finish, because it says which files to move.
    """
    status = os.lstat(path)
    is_private = not status.st_mode & stat.S_IWOTH
    return stat.S_ISDIR(status.st_mode) and status.st_uid in (0, os.geteuid()) and is_private


def _is_dead(path: Path) -> bool:
    """Return whether a job's driver has certainly ended.

    One on another machine may still run.
    """
    if path.name.endswith(_REMOVED):
        return True
    try:
        owner = parse_json(read_own_file(path / _OWNER))
        if (owner["host"], owner["namespace"]) != (platform.node(), _namespace()):
            return False
        os.kill(owner["pid"], 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, KeyError, TypeError, NotAFileError):
        return False
    return False


def _marks(target: Path) -> Iterable[str]:
    return [name for name in MARKS if (target / name).exists()]


def _cannot_create(target: Path, error: OSError) -> ChangeRefusedError:
    return ChangeRefusedError(
        f"can't create the logs next to {target}, in {target.parent}: {error}",
        RefusalReason.FILE_ACCESS, target.parent,
    )


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    """Hold the lock that keeps brokers and other writers out."""
    path = target / LOCK_FILE
    try:
        lock = LockFile(path, create=True)
    except BlockingIOError as error:
        raise DirectoryInUseError(target, path, lock_holder(path)) from error
    try:
        yield
    finally:
        lock.close()
