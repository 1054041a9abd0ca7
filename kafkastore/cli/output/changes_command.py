"""Build the ``kafkastore changes`` command that resumes or undoes a change."""
from __future__ import annotations

import os
import shlex
from pathlib import Path

from kafkastore.changes import AREA_MARK


def changes_command(verb: str, area: Path, root: str | os.PathLike[str]) -> str:
    """Return the ``kafkastore changes`` command that resumes or undoes an undo area.

    It includes `root`, the changed directory, if the area is not next to it.
    """
    command = f"kafkastore changes {verb} {shlex.quote(str(area))}"
    name, _, _ = area.name.rpartition(AREA_MARK)
    home = Path(os.path.realpath(root))
    if Path(os.path.realpath(area.parent)) / name in (home, home.parent):
        return command
    return f"{command} --root {shlex.quote(os.fspath(root))}"
