"""The pipeline's output directory: made beside its place, and moved there when it is whole.

So a reader finds the last finished run or the next, never half of one, and a run that was killed
leaves only a hidden directory that the next one takes over or removes. Nothing that is not ours is
ever replaced.
"""
from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kafkastore.errors import ChangeRefusedError
from kafkastore.fs import FileSystem

MARK = ".kafkastore-pipeline"
#: Holds what only a run that resumes this one needs; gone when the output has appeared.
STEPS = ".steps"
#: What a run leaves; with anything else in it an output is not replaced.
_OURS = {MARK, STEPS, "records", "migrated", "report.html", "result.json"}


@contextmanager
def output_directory(
    out: str | os.PathLike[str], inputs: Sequence[Path], *, resume: bool = False
) -> Iterator[Path]:
    """Make a directory that takes the place of `out` when the block ends well.

    Parameters
    ----------
    out : path-like
        Missing, empty, or the output of an earlier run, which is replaced.
    inputs : sequence of Path
        Directories that must neither lie in it nor around it.
    resume : bool
        Whether what an interrupted run left is kept, to be taken over; otherwise it is removed.

    Yields
    ------
    Path
        Where to write meanwhile; on the same file system.

    Raises
    ------
    ChangeRefusedError
        If `out` holds something else, cannot be replaced, or another run is writing it.
    """
    target = Path(os.path.realpath(out))
    _check_place(target, inputs)
    working = target.with_name(f".{target.name}.kafkastore-running")
    old = target.with_name(f".{target.name}.kafkastore-old")
    target.parent.mkdir(parents=True, exist_ok=True)
    with _claimed(working, target):
        if old.exists():  # a run was killed between the two renames below, or just behind them
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
    """Refuse a place that is not ours to replace."""
    for path in inputs:
        real = Path(os.path.realpath(path))
        if target == real or target in real.parents or real in target.parents:
            raise ChangeRefusedError(
                f"{target} can't be the output for {path}: one contains the other"
            )
    for directory in target.parents:
        if (directory / MARK).exists():
            raise ChangeRefusedError(
                f"{target} lies in {directory}, the output of another run, which goes when that is "
                "run again: name another directory"
            )
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise ChangeRefusedError(f"{target} is a file: name a directory for the output")
    if target.is_mount():
        raise ChangeRefusedError(f"{target} is a mount point: name a directory in it")
    if any(target.iterdir()) and not (target / MARK).exists():
        raise ChangeRefusedError(
            f"{target} is not empty and no output of an earlier run: name another directory"
        )
    _check_only_ours(target)


def _check_only_ours(target: Path) -> None:
    """Refuse to replace an output that somebody has put something into."""
    strangers = sorted({path.name for path in target.glob("*")} - _OURS)
    if strangers:
        raise ChangeRefusedError(
            f"{target} is replaced as a whole, and {', '.join(strangers)} in it is not of an "
            "earlier run: move it elsewhere"
        )


@contextmanager
def _claimed(working: Path, target: Path) -> Iterator[None]:
    """Keep other runs off for the length of the block; make the directory if it is missing."""
    working.mkdir(exist_ok=True)
    mark = working / MARK
    descriptor = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise
            raise ChangeRefusedError(f"another run is writing {target}") from None
        # A run that ended meanwhile has taken the directory away.
        if not mark.exists() or not os.path.samestat(os.stat(mark), os.fstat(descriptor)):
            raise ChangeRefusedError(f"another run has just written {target}")
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
