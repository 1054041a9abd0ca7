"""The command that goes on with a change, or back, as it is shown to the user."""
from __future__ import annotations

import os
import shlex
from pathlib import Path

from kafkastore.changes.undo_area import AREA_MARK


def changes_command(verb: str, area: Path, root: str | os.PathLike[str]) -> str:
    """Write out a command on an undo area.

    Parameters
    ----------
    verb : str
        ``undo`` or ``resume``.
    area : path
        The undo area.
    root : path-like
        What the plan is of: named in the command where the area does not lie next to it.
    """
    command = f"kafkastore changes {verb} {shlex.quote(str(area))}"
    name, _, _ = area.name.rpartition(AREA_MARK)
    home = Path(os.path.realpath(root))
    if Path(os.path.realpath(area.parent)) / name in (home, home.parent):
        return command
    return f"{command} --root {shlex.quote(os.fspath(root))}"
