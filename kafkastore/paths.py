"""Paths and URLs as users give them, made into path objects in one place.

The path object of a URL is a `kafkastore.remote.mount.RemotePath`: whatever prints it prints the
URL, and whatever opens it opens the local file that holds what was fetched. Nothing else has to
know which kind of path it has.
"""
from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from kafkastore.errors import ChangeRefusedError
from kafkastore.remote import tree
from kafkastore.remote.mount import RemotePath, url_of

_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_LOCAL = re.compile(r"^(?:file|local)://", re.IGNORECASE)


def is_url(path: object) -> TypeGuard[str]:
    """Tell whether a text is the URL of something that is not local."""
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
    """Return the path object of what is to be read; of a remote store it is listed.

    A URL is listed now, and what it led to is as it was listed then: a command lists what it was
    given once. A path object of a URL is listed if this process has not listed it; without
    `with_all_below` only what lies directly in it.

    Raises
    ------
    NotALogDirectoryError
        If there is nothing at a URL.
    RemoteStoreError
        If it can't be listed.
    """
    if is_url(path):
        return tree.list_url(path, storage_options)
    found = to_path(path)
    if isinstance(found, RemotePath):
        return tree.list_once(found, with_all_below=with_all_below)
    return found


def list_again(path: Path) -> None:
    """List a directory again if it is one of a remote store."""
    if isinstance(path, RemotePath):
        tree.list_again(path)


def refuse_remote(path: str | os.PathLike[str]) -> None:
    """Raise ChangeRefusedError for a place to be changed that is not local."""
    url = path if is_url(path) else url_of(os.path.realpath(path))
    if url is not None:
        raise ChangeRefusedError(
            f"{url} is not changed where it is: work on a copy on a local disk (--copy-to)"
        )


def name_url(error: BaseException) -> None:
    """Let an error of the operating system name the URL, not the local file; no other does."""
    if isinstance(error, OSError) and isinstance(error.filename, str):
        error.filename = str(to_path(error.filename))
