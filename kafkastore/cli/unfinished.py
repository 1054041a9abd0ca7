"""Notes on interrupted changes, for commands that only read a directory."""
from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kafkastore.changes.journal import find_unfinished
from kafkastore.cli.changes_command import changes_command
from kafkastore.cli.failures import note


def note_unfinished(paths: Iterable[Path]) -> None:
    """Print how to resume or undo each unfinished change of some directories."""
    areas = {area: (phase, path) for path in paths for area, phase in find_unfinished(path)}
    for area, (phase, path) in areas.items():
        resume, undo = (changes_command(verb, area, path) for verb in ("resume", "undo"))
        note(
            f"a change of this log directory is unfinished (interrupted while {phase}, or still at "
            f"work): {resume} finishes it, {undo} goes back"
        )
