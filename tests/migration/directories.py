"""Helpers to change and read directories in the tests of migration."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from kafkastore.migration import plan, survey

from kafkastore.changes.apply import apply
from kafkastore.changes.journal import Journal

Contents = dict[str, tuple[bytes, int, int]]


def contents(root: Path, pattern: str = "*") -> Contents:
    """Return the bytes, modification time and mode of every file below a root."""
    return {
        path.relative_to(root).as_posix(): (
            path.read_bytes(),
            path.stat().st_mtime_ns,
            path.stat().st_mode,
        )
        for path in sorted(root.rglob(pattern))
        if path.is_file()
    }


def data(root: Path, pattern: str) -> dict[str, bytes]:
    """Return the bytes of every file whose name matches."""
    return {path: each for path, (each, _, _) in contents(root, pattern).items()}


def entries(root: Path, path: str) -> list[tuple[int, int]]:
    """Return the entries of one time index: timestamp and relative offset."""
    return list(struct.iter_unpack(">qi", (root / path).read_bytes()))


def remove(root: Path, pattern: str) -> None:
    """Remove every file whose name matches."""
    for path in root.rglob(pattern):
        path.unlink()


def migrate(
    root: Path, mode: str = "auto", entry_offset: str = "next", **of_survey: Any
) -> Journal:
    """Survey, plan and apply."""
    return apply(plan(survey(root, **of_survey), mode, entry_offset=entry_offset))
