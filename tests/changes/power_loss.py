"""A disk that records what was flushed, and every state that a loss of power can leave.

The model is what POSIX guarantees and no more; ext4, xfs and btrfs guarantee more:

- Any operation since the last fsync of that file or directory may be lost, each independently of
  the others: of two renames the second alone may survive, also in one directory, and a file's
  bytes may survive without its name.
- An fsync of a file keeps its bytes, size, mode and times, but not its name; an fsync of a
  directory keeps the names in it, but not the contents of the files.
- A write may be lost, reach the disk by half, or leave zeros in place of its bytes.
- A name points to what it pointed to at some moment since its directory was flushed: operations on
  one name keep their order. A rename within a directory is atomic.
- What existed before the first operation is safe.

A process that is killed while the kernel runs on is the outcome in which nothing is lost.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import shutil
import stat
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from changes.faults import CALLS, Crash

from kafkastore.fs import FileSystem

# The number of outcomes of twelve operations, each of which is kept or lost.
LARGEST_EXHAUSTED = 1 << 12
SAMPLE = 200
TOP = 0


class File(NamedTuple):
    """The data of a file; the modification time is unknown after a write."""

    data: bytes
    mode: int
    mtime_ns: int | None


class State(NamedTuple):
    """Files by number, and the number of each name in a directory; directory 0 is the top."""

    files: dict[int, File]
    entries: dict[int, dict[str, int]]

    def copy(self) -> State:
        return State(dict(self.files), {key: dict(each) for key, each in self.entries.items()})

    def paths(self) -> Iterator[tuple[str, int]]:
        """Yield every path that can be reached from the top, directories before their contents."""
        left = [("", TOP)]
        while left:
            above, directory = left.pop()
            for name, node in sorted(self.entries[directory].items()):
                yield f"{above}{name}", node
                if node in self.entries:
                    left.append((f"{above}{name}/", node))

    def seen(self) -> tuple[tuple[str, File | None, int], ...]:
        """Return what an observer can see: equal for states that are indistinguishable."""
        first: dict[int, int] = {}
        return tuple(
            (path, self.files.get(node), first.setdefault(node, len(first)))
            for path, node in self.paths()
        )

    def write(self, top: Path) -> None:
        """Write the state into a real directory, and remove what was there."""
        shutil.rmtree(top, ignore_errors=True)
        top.mkdir()
        made: dict[int, Path] = {}
        for name, node in self.paths():
            path = top / name
            if node in self.entries:
                path.mkdir()
            elif node in made:
                os.link(made[node], path)
            else:
                file = self.files[node]
                path.write_bytes(file.data)
                path.chmod(file.mode)
                if file.mtime_ns is not None:
                    os.utime(path, ns=(file.mtime_ns, file.mtime_ns))
                made[node] = path


class Names(NamedTuple):
    """A change of names in one directory, atomically."""

    directory: int
    nodes: dict[str, int | None]

    @property
    def flushed_with(self) -> int:
        return self.directory

    def outcomes(self) -> list[Any]:
        return [None, self]

    def happen(self, state: State) -> None:
        # The directory itself may have been lost, and its number is not used then.
        names = state.entries.setdefault(self.directory, {})
        for name, node in self.nodes.items():
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node


class Bytes(NamedTuple):
    """A write of bytes to a file, or of zeros in their place."""

    node: int
    position: int
    data: bytes

    @property
    def flushed_with(self) -> int:
        return self.node

    def outcomes(self) -> list[Any]:
        half = self._replace(data=self.data[: len(self.data) // 2])
        return [None, half, self._replace(data=bytes(len(self.data))), self]

    def happen(self, state: State) -> None:
        file = state.files[self.node]
        data = file.data.ljust(self.position, b"\0")
        data = data[: self.position] + self.data + data[self.position + len(self.data) :]
        state.files[self.node] = file._replace(data=data, mtime_ns=None)


class Field(NamedTuple):
    """A change of a file's size, mode or modification time."""

    node: int
    name: str
    value: int

    @property
    def flushed_with(self) -> int:
        return self.node

    def outcomes(self) -> list[Any]:
        return [None, self]

    def happen(self, state: State) -> None:
        file = state.files[self.node]
        if self.name == "size":
            data = file.data[: self.value].ljust(self.value, b"\0")
            state.files[self.node] = file._replace(data=data)
        else:
            state.files[self.node] = file._replace(**{self.name: self.value})


Event = Names | Bytes | Field


class Moment(NamedTuple):
    """The safe state at one moment, and the operations that may be lost."""

    safe: State
    pending: tuple[Event, ...]

    def outcomes(self, choose: random.Random) -> Iterator[State]:
        """Yield the states that a loss of power may leave: all, or a sample of very many."""
        options = [event.outcomes() for event in self.pending]
        if math.prod(map(len, options)) <= LARGEST_EXHAUSTED:
            chosen: Any = itertools.product(*options)
        else:
            chosen = ([choose.choice(each) for each in options] for _ in range(SAMPLE))
        for events in chosen:
            yield self._after(events)

    def outcome(self, choose: random.Random) -> State:
        """Return one of the states that a loss of power may leave."""
        return self._after([choose.choice(event.outcomes()) for event in self.pending])

    def _after(self, events: Iterable[Any]) -> State:
        state = self.safe.copy()
        for event in events:
            if event is not None:
                event.happen(state)
        return state


class RecordedDisk(FileSystem):
    """Works on a real directory and records, before each call and at the end, what is safe.

    Parameters
    ----------
    top : Path
        All altered files lie below this directory.
    """

    def __init__(self, top: Path) -> None:
        self._top, self._lock = top, threading.RLock()
        self._numbers = itertools.count(TOP + 1)
        self._by_inode: dict[int, int] = {}
        self.crash_at: int | None = None
        self.names: list[str] = []
        self.moments: list[Moment] = []
        safe = State({}, {TOP: {}})
        self._take(top, TOP, safe)
        self.live, self._safe = safe.copy(), safe
        self._pending: list[Event] = []

    def __getattribute__(self, name: str) -> Any:
        real = super().__getattribute__(name)
        if name not in CALLS:
            return real

        def call(*arguments: Any, **keywords: Any) -> Any:
            with self._lock:
                self.note()
                if self.crash_at is not None and self.calls >= self.crash_at:
                    if name == "close":
                        os.close(arguments[0])
                    raise Crash
                self.names.append(name)
                return real(*arguments, **keywords)

        return call

    @property
    def calls(self) -> int:
        """Return how many altering calls there were."""
        return len(self.names)

    def note(self) -> None:
        """Record what could be lost now."""
        moment = Moment(self._safe, tuple(self._pending))
        if not self.moments or self.moments[-1] != moment:
            self.moments.append(moment)

    def _take(self, directory: Path, number: int, state: State) -> None:
        """Read the existing files."""
        for path in sorted(directory.iterdir()):
            status = path.lstat()
            node = self._by_inode.setdefault(status.st_ino, next(self._numbers))
            state.entries[number][path.name] = node
            if path.is_dir():
                state.entries[node] = {}
                self._take(path, node, state)
            else:
                state.files[node] = File(
                    path.read_bytes(), stat.S_IMODE(status.st_mode), status.st_mtime_ns
                )

    def _node(self, path: Path) -> int:
        node = TOP
        for name in path.relative_to(self._top).parts:
            node = self.live.entries[node][name]
        return node

    def _node_of(self, descriptor: int) -> int:
        return self._by_inode[os.fstat(descriptor).st_ino]

    def _did(self, event: Event) -> None:
        event.happen(self.live)
        self._pending.append(event)

    def _flush(self, node: int) -> None:
        safe = self._safe.copy()
        for event in self._pending:
            if event.flushed_with == node:
                event.happen(safe)
        self._pending = [each for each in self._pending if each.flushed_with != node]
        self._safe = safe

    def _new_file(self, path: Path, descriptor: int) -> None:
        status = os.fstat(descriptor)
        node = self._by_inode[status.st_ino] = next(self._numbers)
        file = File(b"", stat.S_IMODE(status.st_mode), None)
        # A file without a name can't be observed.
        self._safe.files[node] = self.live.files[node] = file
        self._did(Names(self._node(path.parent), {path.name: node}))

    def create(self, path: Path, mode: int = 0o644, **where: Any) -> int:
        descriptor = super().create(path, mode, **where)
        self._new_file(path, descriptor)
        return descriptor

    def open_append(self, path: Path) -> int:
        is_new = not path.exists()
        descriptor = super().open_append(path)
        if is_new:
            self._new_file(path, descriptor)
        return descriptor

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        count = super().write(descriptor, data)
        end = os.lseek(descriptor, 0, os.SEEK_CUR)
        self._did(Bytes(self._node_of(descriptor), end - count, bytes(data)[:count]))
        return count

    def pwrite(self, descriptor: int, data: bytes | memoryview, position: int) -> int:
        count = super().pwrite(descriptor, data, position)
        self._did(Bytes(self._node_of(descriptor), position, bytes(data)[:count]))
        return count

    def truncate(self, descriptor: int, size: int) -> None:
        super().truncate(descriptor, size)
        self._did(Field(self._node_of(descriptor), "size", size))

    def clone(self, descriptor: int, source: int) -> None:
        super().clone(descriptor, source)
        data = os.pread(source, os.fstat(source).st_size, 0)
        self._did(Bytes(self._node_of(descriptor), 0, data))

    def copy_range(self, descriptor: int, source: int, position: int, size: int) -> int:
        count = super().copy_range(descriptor, source, position, size)
        data = os.pread(source, count, position)
        self._did(Bytes(self._node_of(descriptor), position, data))
        return count

    def fsync(self, descriptor: int) -> None:
        self._flush(self._node_of(descriptor))

    def fsync_directory(self, path: Path, **where: Any) -> None:
        self._flush(self._node(path))

    def mkdir(self, path: Path, mode: int = 0o777, **where: Any) -> None:
        super().mkdir(path, mode, **where)
        node = self._by_inode[path.stat().st_ino] = next(self._numbers)
        self._safe.entries[node], self.live.entries[node] = {}, {}
        self._did(Names(self._node(path.parent), {path.name: node}))

    def link(self, source: Path, target: Path, **where: Any) -> None:
        super().link(source, target, **where)
        self._did(Names(self._node(target.parent), {target.name: self._node(source)}))

    def rename(self, source: Path, target: Path, **where: Any) -> None:
        assert source.parent == target.parent, "the model knows no rename between directories"
        super().rename(source, target, **where)
        moved = {source.name: None, target.name: self._node(source)}
        self._did(Names(self._node(source.parent), moved))

    def unlink(self, path: Path, **where: Any) -> None:
        super().unlink(path, **where)
        self._did(Names(self._node(path.parent), {path.name: None}))

    def rmdir(self, path: Path, **where: Any) -> None:
        super().rmdir(path, **where)
        self._did(Names(self._node(path.parent), {path.name: None}))

    def chmod(self, path: Path | int, mode: int) -> None:
        super().chmod(path, mode)
        self._of_file(path, "mode", mode)

    def utime(self, path: Path | int, modified_ns: int) -> None:
        super().utime(path, modified_ns)
        self._of_file(path, "mtime_ns", modified_ns)

    def _of_file(self, path: Path | int, name: str, value: int) -> None:
        node = self._node_of(path) if isinstance(path, int) else self._node(path)
        if node in self.live.files:  # of directories only the names count
            self._did(Field(node, name, value))


def states_of(disk: RecordedDisk, choose: random.Random) -> list[State]:
    """Return every state that a loss of power during the record could leave, each once."""
    found: dict[Any, State] = {}
    for moment in disk.moments:
        for state in moment.outcomes(choose):
            found.setdefault(state.seen(), state)
    return list(found.values())
