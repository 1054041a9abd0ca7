"""Which tests stay together in one of the processes that run them, and in what order."""
from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_TAKES_SESSION = re.compile(r"^ *def \w+\([^)]*\bspark\b", re.MULTILINE)
_SPARK = "tests that share a Spark session"


class WorkUnits(LoadFileScheduling):
    """A file's tests stay together, as do all tests of the Spark session, which start first.

    Files of few tests follow: a long one among them must not be the last that runs. Those of
    hundreds are quick tests of golden data.
    """

    def _split_scope(self, nodeid: str) -> str:
        """Name the unit of a test."""
        file: str = super()._split_scope(nodeid)
        return _SPARK if _takes_session(self.config.rootpath / file) else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give a process the unit that takes longest, as far as that is known."""
        units = self.workqueue
        first = min(units, key=lambda name: (name != _SPARK, len(units[name])))
        units.move_to_end(first, last=False)
        super()._assign_work_unit(node)


@cache
def _takes_session(file: Path) -> bool:
    """Say whether a file's tests or fixtures take the session."""
    return _TAKES_SESSION.search(file.read_text()) is not None
