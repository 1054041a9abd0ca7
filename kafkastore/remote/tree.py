"""Remote stores as local directories of sparse files, in a temporary directory of the process.

``s3://bucket/kafka-logs`` becomes ``<temporary>/s3:/bucket/kafka-logs`` with all directories and
files below: names, sizes and modification times are those of one listing, the bytes come when they
are read. Opened again, it is listed again, and what did not change keeps the bytes that are here.
"""
from __future__ import annotations

import atexit
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Any

from kafkastore.errors import ChangeRefusedError, KafkaStoreError, RemoteStoreError
from kafkastore.remote import reads, sparse_files
from kafkastore.remote.sparse_files import SparseFile
from kafkastore.remote.stores import RemoteObject, RemoteStore, is_url, without_file_scheme

_PREFIX = "kafkastore-remote-"
_LOCK_FILE = ".in-use"
#: Where a path is in the directory of any process.
_IN_A_TREE = re.compile(rf"(?:/[^\s/]+)*/{_PREFIX}[^/]+/([a-z][a-z0-9+.-]*):/")
#: The same of a path by itself, which may have blanks.
_PATH_IN_A_TREE = re.compile(rf"/(?:[^/]+/)*{_PREFIX}[^/]+/([a-z][a-z0-9+.-]*):/")


class _Tree:
    """The directory of this process; made when the first store is opened."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.root: str | None = None
        self.files: dict[str, SparseFile] = {}
        #: Directories that were listed with all below, and those of which only what lies there was.
        self.listed: set[str] = set()
        self.listed_beside: set[str] = set()
        #: What was given with URLs.
        self.options: dict[str, Mapping[str, Any]] = {}
        self._lock_descriptor = -1

    def made(self) -> str:
        """Return the directory; what processes left behind that were killed is removed."""
        if self.root is None:
            sparse_files.disk_bytes()  # complains before anything is fetched
            _remove_left_behind(tempfile.gettempdir())
            root = os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX))
            # Who looks for what was left behind sees a lock only when it is held.
            self._lock_descriptor = _locked(root, _LOCK_FILE + "-soon")
            os.rename(os.path.join(root, _LOCK_FILE + "-soon"), os.path.join(root, _LOCK_FILE))
            self.root = root
            atexit.register(self.remove, os.getpid(), root)
            reads.watch(sparse_files.find)
        return self.root

    def remove(self, process: int, root: str) -> None:
        """Remove the directory at exit; a process forked off leaves it."""
        if os.getpid() == process:
            shutil.rmtree(root, ignore_errors=True)

    def forget(self) -> None:
        """Begin anew in a process that was forked off."""
        self.__init__()  # type: ignore[misc]


_tree = _Tree()
os.register_at_fork(after_in_child=_tree.forget)


def local_path(
    path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> Path:
    """Return where a path is found: itself, or a URL's local directory, listed just now.

    Parameters
    ----------
    path : path-like
        A local path, or a URL of a directory, or of one object. What was returned for one is as it
        was listed then: a command lists what it was given once.
    storage_options : mapping, optional
        For the store's library.

    Returns
    -------
    Path
        Nothing may be changed there.

    Raises
    ------
    NotALogDirectoryError
        If there is nothing at a URL.
    RemoteStoreError
        If it can't be listed.
    """
    url = _url_meant(path)
    if url is None:
        return Path(without_file_scheme(path) if isinstance(path, str) else path)
    if _is_ours(text := os.fspath(path)) and _is_listed(text, with_all_below=True):
        return Path(path)
    store = _store(url, storage_options or {})
    return _laid_out(store, store.list())


def known_here(path: Path, *, with_all_below: bool = True) -> Path:
    """Return where a directory is found that this process, or another one, has opened a store for.

    Parameters
    ----------
    path : Path
        Any path. What another process calls its directory of a remote store (the one that gave
        this one a part of its work), stands for the URL, which is listed now.
    with_all_below : bool
        Whether what is below its directories is listed, too.

    Returns
    -------
    Path
        Of a local path, itself.
    """
    text = os.fspath(path)
    if _PREFIX not in text or (url := _url_meant(text)) is None:
        return path
    if _is_ours(text) and _is_listed(text, with_all_below=with_all_below):
        return path
    store = _store(url, None)
    if with_all_below:
        return _laid_out(store, store.list())
    objects, directories = store.list_beside()
    return _laid_out(store, objects, directories)


def list_again(path: Path) -> None:
    """List a directory again if it is one of a remote store.

    Parameters
    ----------
    path : Path
    """
    text = os.fspath(path)
    if _PREFIX in text and _is_ours(text) and (url := _url_meant(text)) is not None:
        store = _store(url, None)
        _laid_out(store, store.list())


def object_at(path: Path) -> RemoteObject | None:
    """Return the object that a file here stands for; None for any other file.

    Parameters
    ----------
    path : Path
        As `local_path` or `known_here` returned it, or below.

    Returns
    -------
    RemoteObject or None
    """
    file = _tree.files.get(os.fspath(path))
    return None if file is None else file.source


def url_of(path: str | os.PathLike[str]) -> str:
    """Return the URL that a path here stands for; any other path as it is.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    str
    """
    return _PATH_IN_A_TREE.sub(r"\1://", os.fspath(path), count=1)


def shown(text: str) -> str:
    """Put URLs where a text names files of remote stores.

    Parameters
    ----------
    text : str

    Returns
    -------
    str
    """
    if _PREFIX not in text:
        return text
    if _tree.root is not None:  # there may be blanks in it
        text = text.replace(f"{_tree.root}/", f"/{_PREFIX}here/")
    return _IN_A_TREE.sub(r"\1://", text)


def put_urls(raised: Exception) -> None:
    """Let an error and its causes name URLs, not the files here that stand for them."""
    error: BaseException | None = raised
    seen: list[BaseException] = []
    while error is not None and all(error is not each for each in seen):  # it may cause itself
        seen.append(error)
        if isinstance(error, KafkaStoreError):
            error.args = with_urls(error.args)
            vars(error).update(with_urls(vars(error)))
        elif isinstance(error, OSError) and error.filename is not None:
            error.filename = with_urls(error.filename)
        error = error.__cause__


def with_urls(value: Any) -> Any:
    """Put URLs into a text, a path, or what is made up of such; see `shown`.

    Parameters
    ----------
    value : object
        A path that stands for a URL becomes a text.
    """
    if isinstance(value, str | os.PathLike):
        text = os.fspath(value)
        told = shown(text) if isinstance(text, str) else text
        return value if told == text else told
    if isinstance(value, Mapping):
        return {name: with_urls(each) for name, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(with_urls, value))
    return value


def refuse_remote(path: str | os.PathLike[str]) -> None:
    """Refuse a place to be changed that is not local.

    Parameters
    ----------
    path : path-like

    Raises
    ------
    ChangeRefusedError
        If it is a URL, or a path of a remote store's file.
    """
    url = path if isinstance(path, str) and is_url(path) else url_of(os.path.realpath(path))
    if is_url(url):
        raise ChangeRefusedError(
            f"{url} is not changed where it is: work on a copy on a local disk (--copy-to)"
        )


def _url_meant(path: str | os.PathLike[str]) -> str | None:
    """Return the URL that is given, or that a file here, or in another process, stands for."""
    text = url_of(path)
    return text if is_url(text) else None


def _is_ours(path: str) -> bool:
    return _tree.root is not None and path.startswith(_tree.root + "/")


def _is_listed(path: str, *, with_all_below: bool) -> bool:
    """Tell whether it is known what is in a directory here."""
    if not with_all_below and path in _tree.listed_beside:
        return True
    while path not in _tree.listed and path != _tree.root:
        path = os.path.dirname(path)
    return path in _tree.listed


def _store(url: str, options: Mapping[str, Any] | None) -> RemoteStore:
    """Open a store; without options with those that were given for a URL above."""
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
) -> Path:
    scheme, _, rest = store.url.partition("://")
    with _tree.lock:
        place = os.path.join(_tree.made(), scheme + ":", rest)
        try:
            _bring_up_to_date(place, objects, directories)
        except OSError as error:
            raise RemoteStoreError(
                store.url, f"its files can't be laid out in {_tree.root} ({error}); set TMPDIR"
            ) from error
    return Path(place)


def _bring_up_to_date(
    place: str, objects: Mapping[str, RemoteObject], directories: Collection[str] | None
) -> None:
    """Make the files of a listing; keep those that are as they were, remove the others.

    With `directories` only what lies directly there is listed: what is below them stays as it is.
    """
    wanted = {os.path.join(place, path) if path else place: each for path, each in objects.items()}
    below = {os.path.join(place, name) for name in directories or ()}
    for path in _files_below(place, below):
        file, source = _tree.files[path], wanted.get(path)
        if source is None or not _is_same(file.source, source):
            del _tree.files[path]
            file.remove()
        else:
            file.source = source  # its store may be reached in another way now
    parents = {os.path.dirname(path) for path in wanted}
    for directory, inner, _ in os.walk(place):
        inner[:] = [name for name in inner if os.path.join(directory, name) not in below]
        with suppress(OSError):  # there is something in it
            if directory not in parents:
                os.removedirs(directory)
    for directory in parents:
        os.makedirs(directory, exist_ok=True)
    for directory in below:
        os.makedirs(directory, exist_ok=True)
    for path, source in wanted.items():
        if path not in _tree.files:
            _tree.files[path] = SparseFile(path, source)
    (_tree.listed if directories is None else _tree.listed_beside).add(place)


def _files_below(place: str, but_for: Collection[str]) -> list[str]:
    """List our files at or below a path, and not below some directories."""
    found = [place] if place in _tree.files else []
    for directory, inner, names in os.walk(place):
        inner[:] = [name for name in inner if os.path.join(directory, name) not in but_for]
        found += [path for name in names if (path := os.path.join(directory, name)) in _tree.files]
    return found


def _is_same(one: RemoteObject, other: RemoteObject) -> bool:
    return one[3:] == other[3:]  # size, modification time, version


def _locked(root: str, name: str = _LOCK_FILE) -> int:
    """Hold a directory's lock as long as this process lives, and those forked off."""
    descriptor = os.open(os.path.join(root, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_left_behind(temporary: str) -> None:
    """Remove directories of processes that ended without doing so."""
    for name in os.listdir(temporary):
        root = os.path.join(temporary, name)
        if name.startswith(_PREFIX) and os.path.exists(os.path.join(root, _LOCK_FILE)):
            with suppress(OSError):
                descriptor = _locked(root)
                shutil.rmtree(root, ignore_errors=True)
                os.close(descriptor)
