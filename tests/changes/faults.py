"""File systems that fail: at a chosen call, or by losing what was never flushed."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafkastore.fs import FileSystem

CALLS = (
    "create",
    "open_append",
    "open_write",
    "write",
    "pwrite",
    "truncate",
    "clone",
    "copy_range",
    "fsync",
    "close",
    "fsync_directory",
    "mkdir",
    "link",
    "rename",
    "unlink",
    "rmdir",
    "chmod",
    "chown",
    "utime",
)


class Crash(BaseException):
    """The process is gone: nothing after this alters the disk, `finally` or not."""


class CountingFileSystem(FileSystem):
    """Numbers the altering calls and asks `at_call` before each."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def at_call(self, number: int, name: str, arguments: tuple[Any, ...]) -> None:
        """Fail, or let the call happen."""

    def __getattribute__(self, name: str) -> Any:
        real = super().__getattribute__(name)
        if name not in CALLS:
            return real

        def call(*arguments: Any, **keywords: Any) -> Any:
            self.calls.append(name)
            self.at_call(len(self.calls) - 1, name, arguments)
            return real(*arguments, **keywords)

        return call


class CrashingFileSystem(CountingFileSystem):
    """Crashes before a call, and stays crashed; `torn` writes half of that call's bytes first."""

    def __init__(self, at: int, *, torn: bool = False) -> None:
        super().__init__()
        self._at, self._torn = at, torn

    def at_call(self, number: int, name: str, arguments: tuple[Any, ...]) -> None:
        if number < self._at:
            return
        if number == self._at and self._torn and name == "write":
            descriptor, data = arguments
            os.write(descriptor, bytes(data)[: len(data) // 2])
        if name == "close":
            os.close(arguments[0])  # the kernel does when a process ends
        raise Crash


class PowerLoss(CrashingFileSystem):
    """Crashes, and then loses an arbitrary part of what was never flushed.

    Bytes written since the file's last fsync may be gone, and so may the entries of a directory
    since its last fsync: of one directory the first few survive, whatever happens in another.
    """

    def __init__(self, at: int, shadows: Path) -> None:
        super().__init__(at)
        shadows.mkdir()
        self._shadows, self._count = shadows, 0
        self._entries: dict[Path, list[Callable[[], None]]] = {}
        self._unflushed: dict[int, tuple[int, int]] = {}  # inode -> our descriptor, flushed bytes

    def lose(self, choose: random.Random) -> None:
        """Take the power away."""
        for ours, flushed in self._unflushed.values():
            size = os.fstat(ours).st_size
            if size > flushed:
                os.ftruncate(ours, choose.randint(flushed, size))
        for undos in self._entries.values():
            for undo in reversed(undos[choose.randint(0, len(undos)) :]):
                undo()
        self.close_all()

    def close_all(self) -> None:
        """Close the descriptors this object keeps."""
        for ours, _ in self._unflushed.values():
            os.close(ours)
        self._unflushed.clear()

    def _pending(self, path: Path, undo: Callable[[], None]) -> None:
        self._entries.setdefault(path.parent, []).append(undo)

    def _shadow(self, path: Path) -> Path | None:
        """Keep what a name stands for."""
        if not path.is_file():
            return None
        self._count += 1
        shadow = self._shadows / str(self._count)
        os.link(path, shadow)
        return shadow

    def _written(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if status.st_ino not in self._unflushed:
            ours = os.open(f"/dev/fd/{descriptor}", os.O_WRONLY)
            self._unflushed[status.st_ino] = ours, status.st_size

    def create(self, path: Path, mode: int = 0o644) -> int:
        descriptor = super().create(path, mode)
        self._pending(path, lambda: path.unlink(missing_ok=True))
        return descriptor

    def open_append(self, path: Path) -> int:
        if path.exists():
            return super().open_append(path)
        descriptor = super().open_append(path)
        self._pending(path, lambda: path.unlink(missing_ok=True))
        return descriptor

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        self._written(descriptor)
        return super().write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        inode = os.fstat(descriptor).st_ino
        if inode in self._unflushed:
            os.close(self._unflushed.pop(inode)[0])
        super().fsync(descriptor)

    def fsync_directory(self, path: Path) -> None:
        self._entries.pop(path, None)
        super().fsync_directory(path)

    def mkdir(self, path: Path) -> None:
        super().mkdir(path)
        self._pending(path, lambda: shutil.rmtree(path, ignore_errors=True))

    def link(self, source: Path, target: Path) -> None:
        super().link(source, target)
        self._pending(target, lambda: target.unlink(missing_ok=True))

    def rename(self, source: Path, target: Path) -> None:
        old, new = self._shadow(target), self._shadow(source)

        def undo() -> None:
            target.unlink(missing_ok=True)
            if target.parent.is_dir():
                if old is not None:
                    os.link(old, target)
                if new is not None:
                    os.link(new, source)

        super().rename(source, target)
        self._pending(target, undo)

    def unlink(self, path: Path) -> None:
        old = self._shadow(path)

        def undo() -> None:
            if old is not None and path.parent.is_dir():
                path.unlink(missing_ok=True)
                os.link(old, path)

        super().unlink(path)
        self._pending(path, undo)


class FailingFileSystem(CountingFileSystem):
    """Answers one call with an error; the rest works."""

    def __init__(self, at: int, error: int) -> None:
        super().__init__()
        self._at, self._error = at, error

    def at_call(self, number: int, name: str, arguments: tuple[Any, ...]) -> None:
        if number == self._at:
            if name == "close":
                os.close(arguments[0])
            raise OSError(self._error, os.strerror(self._error))


class FullDisk(CountingFileSystem):
    """Takes a number of bytes, in small writes, and then no more."""

    def __init__(self, free: int) -> None:
        super().__init__()
        self.free = free

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        count = min(len(data), self.free, 7)
        if count == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.free -= count
        return super().write(descriptor, bytes(data)[:count])


class ShortWrites(FileSystem):
    """Writes one byte a call, every other call interrupted by a signal."""

    def __init__(self) -> None:
        self._interrupt = False

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        self._interrupt = not self._interrupt
        if self._interrupt:
            raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))
        return super().write(descriptor, bytes(data)[:1])


def count_calls(run: Callable[[FileSystem], object]) -> int:
    """Return how many altering calls something makes when nothing fails."""
    fs = CountingFileSystem()
    run(fs)
    return len(fs.calls)
