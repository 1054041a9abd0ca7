"""The temporary directory for this process's files of remote stores.

``s3://bucket/kafka-logs`` is ``<directory>/s3:/bucket/kafka-logs`` here.
"""
from __future__ import annotations

import atexit
import fcntl
import os
from contextlib import suppress
from pathlib import Path, PosixPath
from threading import RLock
from typing import TYPE_CHECKING, Any

from kafkastore.reads import watch

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Self

_PREFIX = "kafkastore-remote-"
_LOCK_FILE = ".in-use"


class RemotePath(PosixPath):
    """The path of a file or directory in a remote store; its text is the URL.

    ``os.fspath``, and so every system call, gets the local file instead. In another process the
    path represents the same URL, with another local file.
    """

    __slots__ = ()

    @classmethod
    def of(cls, url: str) -> Self:
        """Return the path of a URL; nothing is listed."""
        scheme, _, rest = url.partition("://")
        return cls(directory(), f"{scheme.lower()}:", rest)

    def __str__(self) -> str:
        return url_of(os.fspath(self)) or os.fspath(self)

    def __fspath__(self) -> str:
        return super().__str__()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).of, (str(self),)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Do ``os.stat``, but not while the file is being written."""
        from kafkastore.remote import sparse_files

        return sparse_files.status_of(self, follow_symlinks=follow_symlinks)

    def iterdir(self) -> Generator[Self, None, None]:
        """Yield the content of the directory."""
        return (self / name for name in os.listdir(self))

    # Newer versions of Python would use the path's text, a URL, as a file name in these methods.

    def glob(self, pattern: str, **options: Any) -> Generator[Self, None, None]:
        """Yield the paths below the directory that match a pattern."""
        return (type(self)(each) for each in Path(os.fspath(self)).glob(pattern, **options))

    def rglob(self, pattern: str, **options: Any) -> Generator[Self, None, None]:
        """Yield the paths at any depth below the directory that match a pattern."""
        return (type(self)(each) for each in Path(os.fspath(self)).rglob(pattern, **options))

    def walk(self, *options: Any, **named: Any) -> Iterator[tuple[Self, list[str], list[str]]]:
        """Yield each directory, and the names of the directories and files in it."""
        for place, directories, files in os.walk(self, *options, **named):
            yield type(self)(place), directories, files

    def as_uri(self) -> str:
        """Return the URL."""
        return str(self)


class _Mount:
    """The directory of this process, and those of the processes it was forked from."""

    def __init__(self) -> None:
        self.directories: list[str] = []
        self.forget()

    def forget(self) -> None:
        """Make a forked process create its own directory."""
        self.lock = RLock()
        self.here: str | None = None
        self.lock_descriptor = -1

    def make(self) -> str:
        """Create the directory; remove those of killed processes."""
        import tempfile  # these take longer to import than many commands run

        from kafkastore.remote import sparse_files

        sparse_files.disk_bytes()  # raises before anything is fetched
        _remove_leftovers(tempfile.gettempdir())
        made = os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX))
        # Other processes remove a directory whose lock is free: lock first, then rename.
        self.lock_descriptor = _locked(made, _LOCK_FILE + "-soon")
        os.rename(os.path.join(made, _LOCK_FILE + "-soon"), os.path.join(made, _LOCK_FILE))
        atexit.register(_remove, os.getpid(), made)
        watch(sparse_files.find)
        self.directories.append(made)
        return made


_mount = _Mount()
os.register_at_fork(after_in_child=_mount.forget)


def directory() -> str:
    """Return this process's directory, which the first call creates."""
    with _mount.lock:
        if _mount.here is None:
            _mount.here = _mount.make()
        return _mount.here


def url_of(path: str) -> str | None:
    """Return the URL of a local path; None if it is not of a remote store."""
    for each in _mount.directories:
        if path.startswith(f"{each}/"):
            scheme, _, rest = path[len(each) + 1 :].partition(":/")
            return f"{scheme}://{rest}"
    return None


def _remove(process: int, made: str) -> None:
    """Remove the directory at exit, but not in a forked process."""
    if os.getpid() == process:
        import shutil

        shutil.rmtree(made, ignore_errors=True)


def _locked(place: str, name: str = _LOCK_FILE) -> int:
    """Hold a directory's lock while this process and its forked processes live."""
    descriptor = os.open(os.path.join(place, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_leftovers(temporary: str) -> None:
    """Remove the directories of processes that were killed."""
    import shutil

    for name in os.listdir(temporary):
        place = os.path.join(temporary, name)
        if name.startswith(_PREFIX) and os.path.exists(os.path.join(place, _LOCK_FILE)):
            with suppress(OSError):
                descriptor = _locked(place)
                shutil.rmtree(place, ignore_errors=True)
                os.close(descriptor)
