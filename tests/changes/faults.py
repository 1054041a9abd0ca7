"""File systems that fail at a chosen call; for loss of power see `power_loss`."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
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
    """The process has died: nothing after this alters the disk, not even in `finally`."""


class CountingFileSystem(FileSystem):
    """Numbers the altering calls, and calls `at_call` before each."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def at_call(self, number: int, name: str, arguments: tuple[Any, ...]) -> None:
        """Fail, or let the call proceed."""

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
            os.close(arguments[0])  # as the kernel does when a process ends
        raise Crash


class FailingFileSystem(CountingFileSystem):
    """Fails one call with an error; all others work."""

    def __init__(self, at: int, error: int) -> None:
        super().__init__()
        self._at, self._error = at, error

    def at_call(self, number: int, name: str, arguments: tuple[Any, ...]) -> None:
        if number == self._at:
            if name == "close":
                os.close(arguments[0])
            raise OSError(self._error, os.strerror(self._error))


class FullDisk(CountingFileSystem):
    """Accepts a number of bytes, in small writes, and then is full."""

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
    """Return how many altering calls a run makes if nothing fails."""
    fs = CountingFileSystem()
    run(fs)
    return len(fs.calls)
