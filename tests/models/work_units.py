"""The tests that stay together in one worker process, and their order."""
from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

#: Resources that files of tests share, and the text by which such a file is found.
_SHARED = {
    "a Spark session": re.compile(r"^ *def \w+\([^)]*\bspark\b", re.MULTILINE),
    "a sanitized build": re.compile(r"^from fuzz import .*\bsanitized_build\b", re.MULTILINE),
}


class WorkUnits(LoadFileScheduling):
    """A file's tests stay together, as do those of files that share more, which start first.

    Files of few tests follow: a long one among them must not be the last that runs. Those of
    hundreds are quick tests of golden data.
    """

    def _split_scope(self, nodeid: str) -> str:
        """Name the unit of a test."""
        file: str = super()._split_scope(nodeid)
        return _shared(self.config.rootpath / file) or file

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give a process the unit with the longest known duration."""
        units = self.workqueue
        first = min(units, key=lambda name: (name not in _SHARED, len(units[name])))
        units.move_to_end(first, last=False)
        super()._assign_work_unit(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test that a process died in, and give its remaining tests to others.

        xdist would give them all that it ever had, too, and wait for ever for what is done.
        """
        units = self.assigned_work.pop(node)
        left = (test for unit in units.values() for test, is_done in unit.items() if not is_done)
        died_in: str | None = next(left, None)
        for name, unit in units.items():
            if died_in in unit:
                unit[died_in] = True
            if not all(unit.values()):
                self.workqueue[name] = unit
        if died_in is not None:
            for other in self.assigned_work:
                self._reschedule(other)
        return died_in


@cache
def _shared(file: Path) -> str | None:
    """Name the resource that a file's tests share with those of others."""
    text = file.read_text()
    return next((name for name, sign in _SHARED.items() if sign.search(text)), None)
