"""Remote stores as local directories of sparse files.

Names, sizes and modification times are those of one listing; the bytes are fetched when they are
read. When a store is opened again, it is listed again, and unchanged files keep their local bytes.
"""
from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Any

from kafkastore.errors import RemoteStoreError
from kafkastore.remote import mount
from kafkastore.remote.mount import RemotePath, url_of
from kafkastore.remote.sparse_files import SparseFile
from kafkastore.remote.stores import RemoteObject, RemoteStore


class _Tree:
    """The listings of this process."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start without listings, as in a forked process."""
        self.lock = RLock()
        self.files: dict[str, SparseFile] = {}
        #: Directories that were listed recursively, and those that were listed alone.
        self.listed: set[str] = set()
        self.listed_directories: set[str] = set()
        #: The options given with each URL.
        self.options: dict[str, Mapping[str, Any]] = {}


_tree = _Tree()
os.register_at_fork(after_in_child=_tree.forget)


def list_now(
    url: str, options: Mapping[str, Any] | None, *, with_all_below: bool = True
) -> RemotePath:
    """List a directory URL, alone or recursively, or one object; return its path.

    Without `options`, those given with a parent URL apply. Raises NotALogDirectoryError if nothing
    exists there, RemoteStoreError if it cannot be listed.
    """
    store = _store(url, options)
    if with_all_below:
        return _laid_out(store, store.list())
    return _laid_out(store, *store.list_directory())


def list_once(path: RemotePath, *, with_all_below: bool) -> RemotePath:
    """List a directory unless this process has; return its local path."""
    if _is_listed(os.fspath(path), with_all_below=with_all_below):
        return path
    return list_now(str(path), None, with_all_below=with_all_below)


def forget_listings() -> None:
    """Make `list_once` list all directories again; unchanged files keep their bytes."""
    with _tree.lock:
        _tree.listed.clear()
        _tree.listed_directories.clear()


def object_at(path: Path) -> RemoteObject | None:
    """Return the object that a local file represents; None for any other file."""
    file = _tree.files.get(os.fspath(path))
    return None if file is None else file.source


def _is_listed(path: str, *, with_all_below: bool) -> bool:
    """Return whether the content of a local directory is known."""
    if not with_all_below and path in _tree.listed_directories:
        return True
    while path not in _tree.listed and url_of(path) is not None:
        path = os.path.dirname(path)
    return path in _tree.listed


def _store(url: str, options: Mapping[str, Any] | None) -> RemoteStore:
    """Open a store; without options, use those given with a parent URL."""
    if options is None:
        above = url
        while above not in _tree.options and "/" in above:
            above = above.rpartition("/")[0]
        options = _tree.options.get(above, {})
    store = RemoteStore(url, options)
    _tree.options[store.url] = options
    return store


def _laid_out(
    store: RemoteStore,
    objects: Mapping[str, RemoteObject],
    directories: Collection[str] | None = None,
) -> RemotePath:
    path = RemotePath.of(store.url)
    with _tree.lock:
        try:
            _bring_up_to_date(os.fspath(path), objects, directories)
        except OSError as error:
            raise RemoteStoreError(
                store.url,
                f"its files can't be created in {mount.directory()} ({error}); set TMPDIR",
            ) from error
    return path


def _bring_up_to_date(
    place: str, objects: Mapping[str, RemoteObject], directories: Collection[str] | None
) -> None:
    """Create the files of a listing; keep unchanged ones, and remove all others.

    With `directories`, the listing is not recursive: entries below these directories are kept.
    """
    wanted = {os.path.join(place, path) if path else place: each for path, each in objects.items()}
    below = {os.path.join(place, name) for name in directories or ()}
    for path in _files_below(place, below):
        file, source = _tree.files[path], wanted.get(path)
        if source is None or not _is_same(file.source, source):
            del _tree.files[path]
            file.remove()
        else:
            file.source = source  # its store may have other options now
    parents = {os.path.dirname(path) for path in wanted}
    for directory, inner, _ in os.walk(place):
        inner[:] = [name for name in inner if os.path.join(directory, name) not in below]
        with suppress(OSError):  # not empty
            if directory not in parents:
                os.removedirs(directory)
    for directory in parents:
        os.makedirs(directory, exist_ok=True)
    for directory in below:
        os.makedirs(directory, exist_ok=True)
    for path, source in wanted.items():
        if path not in _tree.files:
            _tree.files[path] = SparseFile(path, source)
    (_tree.listed if directories is None else _tree.listed_directories).add(place)


def _files_below(place: str, but_for: Collection[str]) -> list[str]:
    """List our files at or below a path, except those below some directories."""
    found = [place] if place in _tree.files else []
    for directory, inner, names in os.walk(place):
        inner[:] = [name for name in inner if os.path.join(directory, name) not in but_for]
        found += [path for name in names if (path := os.path.join(directory, name)) in _tree.files]
    return found


def _is_same(one: RemoteObject, other: RemoteObject) -> bool:
    return one[3:] == other[3:]  # size, modification time, version
