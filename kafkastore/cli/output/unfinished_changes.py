"""Notes on interrupted changes, for commands that only read a directory."""
from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from kafkastore.changes import AREA_MARK, list_areas
from kafkastore.cli.output.failures import print_note


def print_unfinished_changes(paths: Collection[Path]) -> None:
    """Print how to resume or undo each unfinished change of some directories."""
    if not any(any(list_areas(Path(os.path.realpath(path)), None, AREA_MARK)) for path in paths):
        return
    # With what alters directories, which most commands need not.
    from kafkastore.changes.areas import find_unfinished
    from kafkastore.cli.output.changes_command import changes_command

    areas = {area: (phase, path) for path in paths for area, phase in find_unfinished(path)}
    for area, (phase, path) in areas.items():
        resume, undo = (changes_command(verb, area, path) for verb in ("resume", "undo"))
        print_note(
            f"a change of this log directory is unfinished (interrupted while {phase}, or still at "
            f"work): {resume} finishes it, {undo} undoes it"
        )
