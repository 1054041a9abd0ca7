"""Changes of directories, by plans that can be undone."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path

AREA_MARK = ".kafkastore-undo-"
REMOVED_MARK = ".kafkastore-removed-"


def list_areas(
    root: Path, undo_dir: str | os.PathLike[str] | None, mark: str
) -> Iterator[tuple[Path, Path]]:
    """Yield the areas with a mark of a directory or its parent."""
    for home in (root, root.parent):
        place = home.parent if undo_dir is None else Path(os.path.realpath(undo_dir))
        for path in sorted(place.glob(glob.escape(home.name) + mark + "*")):
            yield home, path
