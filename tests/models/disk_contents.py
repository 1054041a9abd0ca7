"""All files of a disk, and bytes of one that are changed without a trace."""
from __future__ import annotations

import os
from pathlib import Path


def overwrite(path: Path, *pieces: tuple[int, bytes]) -> None:
    """Change bytes of a file, not its times."""
    times = path.stat()
    data = bytearray(path.read_bytes())
    for position, piece in pieces:
        data[position : position + len(piece)] = piece
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def everything_in(root: Path) -> dict[Path, tuple[bytes, int, int]]:
    """Every file of a disk, with its time and mode."""
    return {
        path.relative_to(root): (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode)
        for path in root.rglob("*") if path.is_file()
    }
