"""Files of modification times, for directories that were copied without them.

Such a file is a JSON object that maps paths, relative to the log directory, to ms since 1970::

    {"orders-3/00000000000000000042.log": 1500000000000}

or an object with such an object as ``mtimes_ms``. Other files may be listed, too; only ``.log``
files are used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from kafkastore.arguments import INT64_MAX, INT64_MIN
from kafkastore.errors import KafkaStoreError
from kafkastore.formats.state.file_names import LOG_SUFFIX, segment_file_name
from kafkastore.store.partition_log import PartitionLog


class InvalidMtimesError(KafkaStoreError, ValueError):
    """The file does not contain modification times in the expected format."""


def mtimes_of(logs: Iterable[PartitionLog]) -> dict[str, int]:
    """Return the modification times of logs, to save them before they are lost.

    Parameters
    ----------
    logs : iterable of PartitionLog
        For example a store.

    Returns
    -------
    dict of str to int
        ms since 1970 by path, such as ``orders-3/00000000000000000042.log``.
    """

    def of_log(log: PartitionLog) -> dict[str, int]:
        return {
            _path(log, segment.base_offset): segment.last_modified_ms for segment in log.segments
        }

    noted: dict[str, int] = {}
    for log in logs:
        noted |= log.retry_if_changed(partial(of_log, log))
    return noted


def pack_mtimes(mtimes: Mapping[str, int]) -> bytes:
    """Return the bytes of a file for `read_mtimes`.

    Parameters
    ----------
    mtimes : mapping of str to int
        ms since 1970 by path, as returned by `mtimes_of`.

    Returns
    -------
    bytes
        JSON, with a line for each path.

    Examples
    --------
    >>> print(pack_mtimes({"orders-3/00000000000000000042.log": 1500000000000}).decode(), end="")
    {
    "orders-3/00000000000000000042.log": 1500000000000
    }
    """
    return json.dumps(dict(mtimes), indent=0).encode() + b"\n"


def read_mtimes(path: str | PathLike[str]) -> dict[str, int]:
    """Read modification times from a file.

    Parameters
    ----------
    path : path-like
        The JSON file.

    Returns
    -------
    dict of str to int
        ms since 1970 by path, for the functions of `kafkastore.legacy`.

    Raises
    ------
    InvalidMtimesError
        If the file does not have this format.
    OSError
        If it can't be read.
    """
    try:
        read: Any = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidMtimesError(f"{path} is not JSON: {error}") from error
    if isinstance(read, dict) and isinstance(read.get("mtimes_ms"), dict):
        read = read["mtimes_ms"]
    if not isinstance(read, dict):
        raise InvalidMtimesError(f"{path} must be an object of paths and ms since 1970")
    for name, mtime in read.items():
        if type(mtime) is not int or not INT64_MIN <= mtime <= INT64_MAX:
            raise InvalidMtimesError(
                f"{path}: the time of {name} must be a number of ms, got {mtime!r}"
            )
    return read


def names_a_segment(mtimes: Mapping[str, int], log: PartitionLog) -> bool:
    """Return whether the modification times include a segment of a log."""
    paths = (_path(log, segment.base_offset) for segment in log.segments)
    return any(path in mtimes or path.rpartition("/")[2] in mtimes for path in paths)


def _path(log: PartitionLog, base_offset: int) -> str:
    return f"{log.topic_partition}/{segment_file_name(base_offset, LOG_SUFFIX)}"
