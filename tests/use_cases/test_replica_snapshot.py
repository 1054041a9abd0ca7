"""The metadata snapshot that best replicas are written with."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from changes.faults import Crash, CrashingFileSystem, FailingFileSystem, count_calls
from models import metadata_directory as made
from models.record_format import Batch, Row
from models.refused import os_error

import kafkastore
from kafkastore import ChangeRefusedError, RefusalReason
from kafkastore.metadata.cluster import NoMetadataError
from kafkastore.use_cases.replica_snapshot import check_snapshot_place, write_snapshot


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """The disk of broker 2: t-0, and metadata that has t-1 too."""
    disk = tmp_path / "disk"
    made.write_log(disk / "__cluster_metadata-0", [
        made.feature("metadata.version", 27), made.topic(), made.partition(0), made.partition(1),
    ])
    (disk / "meta.properties").write_text("version=1\ncluster.id=Cc\nnode.id=2\n")
    (disk / "t-0").mkdir()
    (disk / "t-0" / f"{0:020}.log").write_bytes(Batch((Row(0, 1, b"k", b"v"),)).data)
    return disk


def refusal(disk: Path, directory: Path) -> ChangeRefusedError:
    with pytest.raises(ChangeRefusedError) as caught:
        check_snapshot_place(kafkastore.cluster(disk), kafkastore.open(disk), directory)
    return caught.value


def test_places_that_can_not_be_written_are_refused(disk: Path, tmp_path: Path) -> None:
    cases = [
        (disk, RefusalReason.NOT_EMPTY),
        (disk / "new", RefusalReason.UNSUITABLE_PLACE),
        (tmp_path / "none" / "new", RefusalReason.NOT_A_DIRECTORY),
    ]
    for directory, reason in cases:
        assert refusal(disk, directory).reason == reason
    with pytest.raises(NoMetadataError):
        check_snapshot_place(None, kafkastore.open(disk), tmp_path / "new")


def test_the_snapshot_is_written_completely_or_not_at_all(disk: Path, tmp_path: Path) -> None:
    cluster, found = kafkastore.cluster(disk), list(kafkastore.best_replicas(disk))
    new = tmp_path / "new"
    written = write_snapshot(cluster, found, new)
    assert [str(each) for each in written.empty] == ["t-1"]
    assert written.path.stat().st_mode & 0o777 == 0o600
    assert kafkastore.cluster(written.path).topics["t"].partitions[0].isr == (2,)
    complete = {written.path.name: written.path.read_bytes()}
    shutil.rmtree(new)
    calls = count_calls(lambda fs: write_snapshot(cluster, found, new, fs))
    assert calls > 6
    for at in range(calls):
        shutil.rmtree(new, ignore_errors=True)
        with pytest.raises(Crash):
            write_snapshot(cluster, found, new, CrashingFileSystem(at, torn=True))
        for path in new.glob("*.checkpoint"):
            assert {path.name: path.read_bytes()} == complete
        shutil.rmtree(new, ignore_errors=True)
        with os_error(errno.EIO):
            write_snapshot(cluster, found, new, FailingFileSystem(at, errno.EIO))
        if new.exists():
            assert {path.name: path.read_bytes() for path in new.iterdir()} == complete
