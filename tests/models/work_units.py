"""The tests that stay together in one worker process, and their order."""
from __future__ import annotations

import re
from functools import cache, cached_property
from pathlib import Path

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

#: Resources that files of tests share, and the text by which such a file is found.
_SHARED = {
    "a Spark session": re.compile(
        r'^ *def \w+\([^)]*\bspark\b|^@pytest.mark.usefixtures\("spark"', re.MULTILINE
    ),
    "a sanitized build": re.compile(r"^from fuzz import .*\bsanitized_build\b", re.MULTILINE),
}
#: The text of a file whose setup asks Spark for the results of all its tests.
_LONG_SETUP = re.compile(r"\bask_both\(")


class WorkUnits(LoadFileScheduling):
    """A file's tests stay together, as do those of files that share more, which start first.

    Files of one long setup follow, and those of few tests: a long one must not be the last that
    runs. Files of hundreds are quick tests of golden data.
    """

    def _split_scope(self, nodeid: str) -> str:
        """Name the unit of a test."""
        file: str = super()._split_scope(nodeid)
        return _shared(self.config.rootpath, file) or file

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give a process the unit with the longest known duration."""
        units = self.workqueue
        first = min(units, key=lambda name: (_turn(self.config.rootpath, name), len(units[name])))
        unit = self.assigned_work[node][first] = units.pop(first)
        node.send_runtest_some([self._positions[test] for test in unit])

    @cached_property
    def _positions(self) -> dict[str, int]:
        """The position of each test in the collection of every process."""
        return {test: position for position, test in enumerate(self.collection or ())}

    def mark_test_complete(
        self, node: WorkerController, item_index: int, duration: float = 0
    ) -> None:
        """Drop a test from its unit; xdist would keep it, and count those left after each test."""
        test = self.registered_collections[node][item_index]
        units, name = self.assigned_work[node], self._split_scope(test)
        del units[name][test]
        if not units[name]:
            del units[name]
        self._reschedule(node)

    def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
        """Count the tests that a process has still to run."""
        return sum(map(len, workload.values()))

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test that a process died in, and give its remaining tests to others."""
        units = self.assigned_work.pop(node)
        died_in = next((test for unit in units.values() for test in unit), None)
        for name, unit in units.items():
            unit.pop(died_in, None)
            if unit:
                self.workqueue[name] = unit
        if died_in is not None:
            for other in self.assigned_work:
                self._reschedule(other)
        return died_in


@cache
def _shared(root: Path, file: str) -> str | None:
    """Name the resource that a file's tests share with those of others."""
    text = (root / file).read_text()
    return next((name for name, sign in _SHARED.items() if sign.search(text)), None)


@cache
def _turn(root: Path, name: str) -> int:
    """Return 0 for the units that start first, 1 for the next, 2 for all others."""
    if name in _SHARED:
        return 0
    return 1 if _LONG_SETUP.search((root / name).read_text()) else 2
