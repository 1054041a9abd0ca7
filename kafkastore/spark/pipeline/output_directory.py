"""The pipeline's output directory, moved to its place when complete.

It is written next to its place. Readers find the last finished run or the next one, never part of
one. A killed run leaves only a hidden directory, which the next run resumes or removes. Files of
others are never replaced.
"""
from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kafkastore.errors import ChangeRefusedError, RefusalReason
from kafkastore.fs import FileSystem
from kafkastore.paths import to_path

MARK = ".kafkastore-pipeline"
#: For a run that resumes this one; removed when the output is complete.
STEPS = ".steps"
#: The files of a run; an output with any other file is not replaced.
_OURS = {MARK, STEPS, "records", "migrated", "report.html", "result.json"}


@contextmanager
def output_directory(
    out: str | os.PathLike[str], inputs: Sequence[Path], *, resume: bool = False
) -> Iterator[Path]:
    """Yield a working directory that replaces `out` if the block succeeds.

    With `resume` an interrupted run's files are kept. Raises `ChangeRefusedError` if `out` has
    foreign files, is in use or can't be replaced, or if an input is inside it or contains it.
    """
    target = Path(os.path.realpath(out))
    _check_place(target, inputs)
    working = target.with_name(f".{target.name}.kafkastore-running")
    old = target.with_name(f".{target.name}.kafkastore-old")
    target.parent.mkdir(parents=True, exist_ok=True)
    with _claimed(working, target):
        if old.exists():  # a run was killed between the two renames below, or just after them
            if target.exists():
                shutil.rmtree(old)
            else:
                old.rename(target)
        if not resume:
            _clear(working)
        yield working
        _check_only_ours(target)
        if target.exists():
            target.rename(old)
        working.rename(target)
        FileSystem().fsync_directory(target.parent)
        shutil.rmtree(target / STEPS, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _check_place(target: Path, inputs: Sequence[Path]) -> None:
    """Raise an error for a place that may not be replaced."""
    for path in inputs:
        real = Path(os.path.realpath(path))
        if target == real or target in real.parents or real in target.parents:
            raise ChangeRefusedError(
                f"{target} can't be the output for {path}: one contains the other",
                RefusalReason.OVERLAP, target,
            )
    for directory in target.parents:
        if (directory / MARK).exists():
            raise ChangeRefusedError(
                f"{target} is in {directory}, the output of another run, which the next such run "
                "deletes: name another directory",
                RefusalReason.UNSUITABLE_PLACE, target,
            )
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise ChangeRefusedError(
            f"{target} is a file: name a directory for the output",
            RefusalReason.NOT_A_DIRECTORY, target,
        )
    if target.is_mount():
        raise ChangeRefusedError(
            f"{target} is a mount point: name a directory in it",
            RefusalReason.UNSUITABLE_PLACE, target,
        )
    if any(target.iterdir()) and not (target / MARK).exists():
        raise ChangeRefusedError(
            f"{target} is not empty and not the output of an earlier run: name another directory",
            RefusalReason.NOT_EMPTY, target,
        )
    _check_only_ours(target)


def _check_only_ours(target: Path) -> None:
    """Raise an error for an output that contains files of others."""
    foreign = sorted({path.name for path in target.glob("*")} - _OURS)
    if foreign:
        raise ChangeRefusedError(
            f"{target} contains {', '.join(foreign)}, which no earlier run wrote; move it",
            RefusalReason.NOT_EMPTY, target,
        )


@contextmanager
def _claimed(working: Path, target: Path) -> Iterator[None]:
    """Create the directory if missing; keep other runs out during the block."""
    working.mkdir(exist_ok=True)
    mark = working / MARK
    descriptor = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise
            raise ChangeRefusedError(
                f"another run is writing {target}; wait until it ends",
                RefusalReason.OTHER_JOB, target,
            ) from None
        # A run that ended meanwhile has removed the directory.
        if not mark.exists() or not os.path.samestat(os.stat(mark), os.fstat(descriptor)):
            raise ChangeRefusedError(
                f"another run has just written {target}",
                RefusalReason.OTHER_JOB, target,
            )
        yield
    finally:
        os.close(descriptor)


def _clear(working: Path) -> None:
    for path in working.iterdir():
        if path.name == MARK:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def store_names(paths: Sequence[Path]) -> list[str]:
    """Return unique names for stores, with parent directories where needed.

    `paths` are absolute; the names are valid file names. Raises `ChangeRefusedError` if a path is
    given twice.

    >>> store_names([Path("/disks/a/kafka-logs"), Path("/disks/b/kafka-logs"), Path("/old logs")])
    ['a-kafka-logs', 'b-kafka-logs', 'old_logs']
    """
    real = [to_path(os.path.realpath(path)) for path in paths]
    for path in real:
        if real.count(path) > 1:
            raise ChangeRefusedError(f"{path} is given twice", RefusalReason.OVERLAP, path)
    names = [_plain(path.parts[-1:]) for path in real]
    for depth in range(2, max((len(path.parts) for path in real), default=0)):
        names = [
            _plain(path.parts[-depth:]) if names.count(name) > 1 else name
            for path, name in zip(real, names, strict=True)
        ]
    return [
        f"{name}-{number}" if names.count(name) > 1 else name for number, name in enumerate(names)
    ]


def _plain(parts: Sequence[str]) -> str:
    """Join parts of a path without characters special to Spark or a shell."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(part.strip("/") for part in parts))
    return name.strip("-._") or "store"
