"""Paths and URLs as users give them, made into path objects in one place.

The path object of a URL is a `kafkastore.remote.mount.RemotePath`. Its text is the URL; opening it
opens the local file with the fetched bytes. Other code need not know which kind of path it has.
"""
from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from kafkastore.errors import ChangeRefusedError, RefusalReason
from kafkastore.remote.mount import RemotePath, url_of

_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_LOCAL = re.compile(r"^(?:file|local)://", re.IGNORECASE)


def is_url(path: object) -> TypeGuard[str]:
    """Return whether a text is a URL of something that is not local."""
    return (
        isinstance(path, str) and _URL.match(path) is not None and _LOCAL.match(path) is None
    )


def to_path(path: str | os.PathLike[str]) -> Path:
    """Return the path object of a path or URL; nothing is listed.

    The local file of a remote store becomes the path of its URL again.
    """
    if isinstance(path, Path):
        return path
    text = os.fspath(path)
    if is_url(text):
        return RemotePath.of(text)
    return Path(_LOCAL.sub("", text)) if url_of(text) is None else RemotePath(text)


def open_path(
    path: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    with_all_below: bool = True,
) -> Path:
    """Return the path object to read; a remote store is listed.

    A URL as text is listed now, the path object of a URL once per process. Without
    `with_all_below`, only its direct entries are listed.
    """
    if is_url(path):
        from kafkastore.remote import tree  # with what few commands need

        return tree.list_now(path, storage_options or {}, with_all_below=with_all_below)
    found = to_path(path)
    if isinstance(found, RemotePath):
        from kafkastore.remote import tree

        return tree.list_once(found, with_all_below=with_all_below)
    return found


def list_again(path: Path) -> None:
    """List a directory again if it is one of a remote store."""
    if isinstance(path, RemotePath):
        from kafkastore.remote import tree

        tree.list_now(str(path), None)


def forget_listings() -> None:
    """Let every remote store be listed again when it is opened next.

    A process that works for others does so when it begins a task: what it listed for an earlier
    one may be old.
    """
    from kafkastore.remote import tree

    tree.forget_listings()


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a URL, or the local directory that represents one."""
    return is_url(path) or url_of(os.path.realpath(path)) is not None


def refuse_remote(path: str | os.PathLike[str]) -> None:
    """Raise ChangeRefusedError for a place to be changed that is not local."""
    url = path if is_url(path) else url_of(os.path.realpath(path))
    if url is not None:
        raise ChangeRefusedError(
            f"{url} can't be changed in place; change a copy on a local disk (--copy-to)",
            RefusalReason.UNSUPPORTED,
            url,
        )


def describe_error(error: BaseException) -> str:
    """Return the text of an error; of an OSError, file or URL and reason.

    >>> describe_error(FileNotFoundError(2, "No such file or directory", "/d/t-0"))
    '/d/t-0: no such file or directory'
    """
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    name_url(error)
    what = error.strerror.lower()
    return what if error.filename is None else f"{os.fsdecode(error.filename)}: {what}"


def name_url(error: BaseException) -> None:
    """Let an error of the operating system name the URL, not the local file."""
    if isinstance(error, OSError) and isinstance(error.filename, str):
        error.filename = str(to_path(error.filename))
