"""A small log directory, a plan with every kind of change, and its expected result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from changes.small_store import MTIME_NS, Contents, change, contents, write

from kafkastore.changes.plan import Inline, Plan, Prefix


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a root with two partitions: files with a broker's names and arbitrary bytes."""
    root = tmp_path / "disk" / "kafka-logs-1"
    for number, partition in enumerate(("orders-0", "orders-1")):
        directory = root / partition
        write(directory / "00000000000000000000.log", b"log" * 100, MTIME_NS + number)
        write(directory / "00000000000000000000.index", b"old index" * 5, MTIME_NS + 10 + number)
        write(directory / "00000000000000000042.log", b"LOG" * 50, MTIME_NS + 20 + number)
        write(directory / "00000000000000000042.index", b"orphan", MTIME_NS + 30 + number)
    write(root / ".lock", b"", MTIME_NS)
    write(root / "meta.properties", b"version=0\nbroker.id=1\n", MTIME_NS)
    return root


@pytest.fixture
def plan(root: Path) -> Plan:
    """Return a plan that creates, replaces, truncates and removes files."""
    changes = []
    for partition in ("orders-0", "orders-1"):
        for path, content, new in (
            ("00000000000000000000.timeindex", Inline(b"time" * 9), b"time" * 9),
            ("00000000000000000042.timeindex", Inline(b""), b""),
            ("00000000000000000000.index", Inline(b"new index"), b"new index"),
            ("00000000000000000042.log", Prefix(100), (b"LOG" * 50)[:100]),
            ("00000000000000000042.index", None, None),
        ):
            changes.append(change(root, f"{partition}/{path}", content, new))
    return Plan(str(root), "test", tuple(changes))


@pytest.fixture
def planned(root: Path, plan: Plan) -> Contents:
    """Return the expected contents after the plan, computed change by change."""
    expected = contents(root)
    for each in plan.changes:
        if each.after is None:
            del expected[each.path]
        else:
            data = (
                each.content.data
                if isinstance(each.content, Inline)
                else expected[each.path][0][:100]
            )
            expected[each.path] = (data, each.after.mtime_ns, 0o100000 | each.after.mode)
    return expected


@pytest.fixture
def check_each_old_or_new(root: Path, plan: Plan, planned: Contents) -> Callable[[], None]:
    """Return a function that checks that every file is as before or as planned."""
    before = contents(root)
    names = {each.path for each in plan.changes}

    def check() -> None:
        now = contents(root)
        for path in before.keys() | planned.keys() | now.keys():
            if "kafkastore-" in path:
                assert not path.endswith((".log", ".index", ".timeindex", ".swap", ".deleted"))
            elif path in names:
                assert now.get(path) in (before.get(path), planned.get(path)), path
            else:
                assert now[path] == before[path], path

    return check
