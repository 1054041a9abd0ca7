"""No test of the server changes a served directory, except where the test itself does."""
from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from models.touched_paths import touched_paths
from use_cases.stores import commit, record, written

import kafkastore
from kafkastore.server import serving
from kafkastore.server.catalog import Catalog, Node
from kafkastore.server.groups.coordinator import GroupCoordinator

#: Parts of the names of a server's threads: its own, those of its event loop and of its metrics.
SERVER_THREADS = ("kafkastore-", "asyncio_", "process_request_thread")


def tree_of(root: Path) -> dict[Path, tuple[object, ...]]:
    """Return name, kind, size, time and content of everything at and below a path."""
    found: dict[Path, tuple[object, ...]] = {}
    for path in (root, *root.rglob("*")):
        try:
            stat = path.lstat()
            content = hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b""
        except OSError:    # deleted by the test
            continue
        found[path] = (stat.st_mode, stat.st_size, stat.st_mtime_ns, content)
    return found


def is_near(path: str, others: set[str]) -> bool:
    """Whether a path is one of others, above or below it."""
    return any(
        os.path.commonpath((path, other)) in (path, other) for other in others
    )


@pytest.fixture(autouse=True)
def _served_directories_stay_as_they_are(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare each served tree before and after, and watch what the server's threads open."""
    start = serving.serve_catalog

    @contextmanager
    def watched(catalog: Catalog, **options: Any) -> Iterator[serving.ServedCluster]:
        roots = [Path(os.path.realpath(path)) for path in catalog.store.paths]
        before = {root: tree_of(root) for root in roots}
        with touched_paths() as touched:
            with start(catalog, **options) as served:
                yield served
            found = {root: tree_of(root) for root in roots}
        below = [each for each in touched if is_near(each.path, set(map(str, roots)))]
        by_server = [
            each for each in below if any(part in each.thread for part in SERVER_THREADS)
        ]
        assert by_server == []
        by_test = {each.path for each in below}
        for root in roots if not getattr(request.module, "IS_WRITTEN_BY_BROKER", False) else ():
            changed = {path for path, _ in before[root].items() ^ found[root].items()}
            assert {path for path in changed if not is_near(str(path), by_test)} == set()

    monkeypatch.setattr(serving, "serve_catalog", watched)


@pytest.fixture
def grouped_logs(tmp_path):
    """A directory with the topic t and what groups committed."""
    with written(tmp_path / "logs") as partition:
        for number in range(3):
            partition("t", number).add(*[record(each) for each in range(10)])
        partition("__consumer_offsets").add(
            commit("stored", "t", 0, 4), commit("stored", "t", 1, 6),
            commit("stored", "gone", 0, 2),
        )
    return tmp_path / "logs"


@pytest.fixture
def grouped_catalog(grouped_logs):
    """What is served of the directory."""
    def list_partitions():
        store = kafkastore.open(grouped_logs)
        return store, store.chosen(None)

    return Catalog(list_partitions)


@pytest.fixture
def coordinator(grouped_catalog):
    """The coordinator of a node that serves the directory."""
    return GroupCoordinator(grouped_catalog, Node(1, "localhost", 9092))
