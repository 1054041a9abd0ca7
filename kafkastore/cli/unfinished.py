"""A word on changes that were interrupted, for commands that only look at a directory."""
from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from kafkastore.changes.journal import find_unfinished
from kafkastore.cli.failures import note


def note_unfinished(paths: Iterable[Path]) -> None:
    """Say of each change beside some directories that is unfinished how it goes on."""
    areas = dict(each for path in paths for each in find_unfinished(path))
    for area, phase in areas.items():
        quoted = shlex.quote(str(area))
        note(
            f"a change of this log directory is unfinished (interrupted while {phase}, or still at "
            f"work): kafkastore changes resume {quoted} finishes it, kafkastore changes undo "
            f"{quoted} goes back"
        )
