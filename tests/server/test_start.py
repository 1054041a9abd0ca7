"""What a server reads at its start: names, and one small file of each partition."""
from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest
from models.log_directory import Log, Segment
from models.protocol_client import ProtocolClient
from models.record_format import Batch, Row
from models.touched_paths import read_paths

import kafkastore
from kafkastore.server import serve

PARTITIONS, SEGMENTS, READABLE = 300, 20, 7


def batch(first: int) -> Batch:
    return Batch(tuple(Row(first + number, first + number, b"k", b"v") for number in range(5)))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Partitions whose files are dangling links that must not be read, but for two of them."""
    segments = tuple(
        Segment(5 * number, (batch(5 * number),)).indexed() for number in range(SEGMENTS)
    )
    root: Path = Log(segments).write(tmp_path_factory.mktemp("many") / "logs")
    source = root / "t-0"
    for number in range(1, PARTITIONS):
        target = root / f"t-{number}"
        target.mkdir()
        for name in os.listdir(source):
            if number == READABLE:
                os.link(source / name, target / name)
            elif name.endswith(".log"):
                os.symlink("/nowhere", target / name)
    return root


def test_the_start_and_the_metadata_read_one_file_of_a_partition(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()    # what compares the files before and after reads them all
    with read_paths() as read, serve(many) as served:
        at_start = [path for path in read if path.startswith(str(many))]
        with ProtocolClient(served.bootstrap_servers) as client:
            assert len(client.topic_ids()) == 1
            of_metadata = [path for path in read if path.startswith(str(many))][len(at_start):]
            read.clear()
            assert len(client.topic_ids()) == 1
            again = [path for path in read if path.startswith(str(many))]
            read.clear()
            assert client.fetch(11, {("t", READABLE): 0})["t", READABLE]["records"]
            of_fetch = {Path(path).parent.name for path in read if "/t-" in path}
    # Where the directories have no id of a topic, that of each of its partitions is looked for.
    assert len(at_start) < PARTITIONS + 20
    assert len(of_metadata) < 2 * PARTITIONS + 20
    names = Counter(Path(path).name for path in at_start + of_metadata)
    assert not [name for name in names if name.endswith((".log", ".index", ".timeindex"))]
    assert again == []
    assert of_fetch <= {"logs", f"t-{READABLE}"}


def test_a_few_partitions_answer_at_once(tmp_path: Path) -> None:
    """Some milliseconds on an idle machine; here it may have other work."""
    with kafkastore.LogDirWriter(tmp_path / "logs") as log_dir:
        log_dir.writer("t", 0)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        with serve(tmp_path / "logs") as served, ProtocolClient(served.bootstrap_servers) as client:
            assert client.topic_ids()
            times.append(time.perf_counter() - start)
    assert min(times) < 1
