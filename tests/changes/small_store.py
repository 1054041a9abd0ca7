"""Files for the tests of changes: a few small ones with unusual modification times."""

from __future__ import annotations

import os
from pathlib import Path

from kafkastore.changes.file_state import FileState, read_state
from kafkastore.changes.plan import Content, FileChange, Reliance

Contents = dict[str, tuple[bytes, int, int]]

#: A directory in a tree: only its name counts.
DIRECTORY = (b"", 0, 0)
# Odd nanoseconds: a restore that goes through floats or microseconds would lose them.
MTIME_NS = 1_456_000_000_123_456_789


def write(path: Path, data: bytes, mtime_ns: int, mode: int = 0o640) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(data)
    path.chmod(mode)
    os.utime(path, ns=(mtime_ns, mtime_ns))


def contents(root: Path) -> Contents:
    """Return the bytes, modification time and mode of every file below a root."""
    return {
        path.relative_to(root).as_posix(): (
            path.read_bytes(),
            path.stat().st_mtime_ns,
            path.stat().st_mode,
        )
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def tree(root: Path) -> Contents:
    """Return the contents of the files, and the names of the directories."""
    directories = (path for path in root.rglob("*") if path.is_dir())
    names = (f"{path.relative_to(root).as_posix()}/" for path in directories)
    return {**contents(root), **dict.fromkeys(names, DIRECTORY)}


def state(path: Path) -> FileState:
    found = read_state(path)
    assert found is not None
    return found


def change(root: Path, path: str, content: Content | None, new: bytes | None) -> FileChange:
    """Return a change of a file; a new file gets the modification time of the `.log`."""
    log = root / path.rpartition("/")[0] / "00000000000000000000.log"
    before = read_state(root / path)
    like = os.stat(log if before is None else root / path)
    after = None if new is None else FileState.of_bytes(new, like)
    reliance = Reliance(
        log.relative_to(root).as_posix(), log.stat().st_size, log.stat().st_mtime_ns
    )
    relies_on = () if path.endswith(".log") else (reliance,)
    return FileChange(path, before, after, content, "a test wants it", relies_on)
