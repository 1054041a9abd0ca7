"""The paths that this process changes, and those that it reads, by audit events of Python."""
from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

#: Events with their arguments that are paths, and the one of each path's directory.
_CHANGING = {
    "os.chmod": ((0, 2),), "os.chown": ((0, 3),), "os.mkdir": ((0, 2),), "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),), "os.rename": ((0, 2), (1, 3)), "os.link": ((1, 3),),
    "os.symlink": ((1, 2),), "os.truncate": ((0, None),), "os.utime": ((0, 3),),
    "os.setxattr": ((0, None),), "os.removexattr": ((0, None),), "shutil.rmtree": ((0, None),),
}
_READING = ("open", "os.listdir", "os.scandir")
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Touched(NamedTuple):
    """A changing call, and the thread that made it."""

    path: str
    event: str
    thread: str


_listening: list[list[Touched]] = []
_reading: list[list[str]] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _READING and isinstance(arguments[0], str | os.PathLike):
        for heard in _reading:
            heard.append(os.fspath(arguments[0]))
    if not _listening:
        return
    if event == "open":
        path, mode, flags = arguments
        is_write = flags & _WRITE_FLAGS or (mode and set(mode) & set("wax+"))
        places: tuple[tuple[int, int | None], ...] = ((0, None),) if is_write else ()
    else:
        places = _CHANGING.get(event, ())
    for at, directory in places:
        path = arguments[at]
        if isinstance(path, int):
            if event == "open":    # a descriptor that was opened by another call
                continue
            path = os.readlink(f"/proc/self/fd/{path}")
        elif directory is not None and len(arguments) > directory and arguments[directory] >= 0:
            path = os.path.join(
                os.readlink(f"/proc/self/fd/{arguments[directory]}"), os.fsdecode(path)
            )
        touched = Touched(
            os.path.abspath(os.fsdecode(path)), event, threading.current_thread().name
        )
        for each in _listening:
            each.append(touched)


sys.addaudithook(_note)    # can't be removed again; it does nothing unless somebody listens


@contextmanager
def read_paths() -> Iterator[list[str]]:
    """Collect the files that all threads open, and the directories that they list."""
    heard: list[str] = []
    _reading.append(heard)
    try:
        yield heard
    finally:
        _reading[:] = [each for each in _reading if each is not heard]


@contextmanager
def touched_paths() -> Iterator[list[Touched]]:
    """Collect the changing calls of all threads while the block runs."""
    heard: list[Touched] = []
    _listening.append(heard)
    try:
        yield heard
    finally:
        _listening[:] = [each for each in _listening if each is not heard]  # equal ones stay
