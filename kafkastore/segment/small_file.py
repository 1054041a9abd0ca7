"""Small files, read whole: checkpoints, snapshots, transaction indexes."""
from __future__ import annotations

import os
from io import FileIO
from os import PathLike

from kafkastore.errors import CorruptionError

READ_SIZE = 1 << 20


def read_if_there(path: str | PathLike[str], kind: type[CorruptionError]) -> bytes | None:
    """Read a file whole.

    Parameters
    ----------
    path : path-like
        The file.
    kind : type of CorruptionError
        What to raise where the device gives an error instead of bytes.

    Returns
    -------
    bytes or None
        None if there is no file.

    Raises
    ------
    CorruptionError
        Of that kind, with path and byte position.
    OSError
        If the file can't be opened.
    """
    try:
        file = FileIO(path)
    except FileNotFoundError:
        return None
    parts: list[bytes] = []
    position = 0
    with file:
        while True:
            try:
                part = os.pread(file.fileno(), READ_SIZE, position)
            except OSError as error:
                reason = f"the file can't be read ({error.strerror})"
                raise kind(reason, path=path, position=position) from error
            if not part:
                return b"".join(parts)
            parts.append(part)
            position += len(part)
