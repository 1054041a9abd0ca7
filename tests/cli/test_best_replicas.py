"""``kafkastore cluster best-replicas``."""
from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli.running import Run, assert_one_sentence
from cli.test_documentation import check, documented
from models import metadata_directory as made
from models.record_format import Batch, Row

import kafkastore


@pytest.fixture
def disks(sample_root: Path, tmp_path: Path) -> list[Path]:
    """Return copies of a log directory, the second of which lacks a segment's end."""
    disks = [Path(shutil.copytree(sample_root, tmp_path / name)) for name in ("a", "b", "c")]
    first = sorted(disks[1].glob("*-*/*.log"))[-1]
    first.write_bytes(first.read_bytes()[:-40])
    return disks


def test_each_partition_has_its_best_disk(run: Run, disks: list[Path]) -> None:
    ran = run("cluster", "best-replicas", *disks, "--json")
    assert ran.code == 0, ran
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert [(row["topic"], row["partition"]) for row in rows] == sorted(
        (row["topic"], row["partition"]) for row in rows
    )
    for row in rows:
        replicas = [row["best"], *row["others"]]
        assert {Path(each["path"]).parent for each in replicas} == set(disks)
        assert row["best"]["log_end_offset"] == max(each["log_end_offset"] for each in replicas)
        assert not any(each["lacking"] for each in row["others"])
    check(rows, documented("cluster best-replicas"))


def test_what_others_have_is_shown(run: Run, disks: list[Path]) -> None:
    ran = run("cluster", "best-replicas", disks[1], "--verbose")
    whole = run("cluster", "best-replicas", *disks)
    assert (ran.code, whole.code) == (0, 0)
    assert whole.out != ran.out


def test_a_replica_that_can_not_be_read_is_a_problem(run: Run, disks: list[Path]) -> None:
    log = sorted(disks[0].glob("*-*/*.log"))[0]
    log.unlink()
    log.mkdir()
    ran = run("cluster", "best-replicas", *disks[:2])
    assert ran.code == 1, ran
    assert str(log) in ran.err


NEW, OLD = made.TOPIC_ID, made.DIRECTORY


def topic_disk(root: Path, broker_id: int, topic_id: str, records: int) -> Path:
    """Write a log directory with the partition t-0 of a topic."""
    (root / "t-0").mkdir(parents=True)
    (root / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    batches = [Batch((Row(each, 1, b"k", b"v"),)).data for each in range(records)]
    (root / "t-0" / f"{0:020}.log").write_bytes(b"".join(batches))
    (root / "meta.properties").write_text(f"version=1\ncluster.id=Cc\nnode.id={broker_id}\n")
    return root


def test_a_deleted_topic_of_the_same_name_has_no_replica(run: Run, tmp_path: Path) -> None:
    metadata = tmp_path / "m" / "__cluster_metadata-0"
    made.write_log(metadata, [
        made.feature("metadata.version", 27), made.topic(topic_id=NEW), made.partition(0, NEW),
    ])
    new = topic_disk(tmp_path / "new", 1, NEW, 2)
    old = topic_disk(tmp_path / "old", 2, OLD, 9)  # in sync by its broker's id, and longer
    with_metadata = ("--metadata", metadata, "--json")
    (row,) = run("cluster", "best-replicas", old, new, *with_metadata).lines
    assert row["best"]["path"] == str(new / "t-0")
    (other,) = row["others"]
    assert (other["role"], other["lacking"]) == ("other-topic", [])
    assert_one_sentence(run("cluster", "best-replicas", old, *with_metadata), OLD, NEW)
    assert_one_sentence(run("cluster", "best-replicas", old, new), OLD, NEW)
    (row,) = run("cluster", "best-replicas", old, "--json").lines
    assert row["best"]["log_end_offset"] == 9


def test_a_disk_that_is_missing_is_one_sentence(run: Run, tmp_path: Path) -> None:
    assert_one_sentence(run("cluster", "best-replicas", tmp_path / "none"))
    assert_one_sentence(run("cluster", "best-replicas"))


def test_the_snapshot_is_a_new_metadata_log(run: Run, tmp_path: Path) -> None:
    for number in (1, 2):
        made.write_log(tmp_path / str(number) / "__cluster_metadata-0", [
            made.feature("metadata.version", 27), made.topic(), made.partition(0),
            made.partition(1),
        ])
        batches = [Batch((Row(each, 1, b"k", b"v"),)).data for each in range(3 * number)]
        (tmp_path / str(number) / "t-0").mkdir()
        (tmp_path / str(number) / "t-0" / f"{0:020}.log").write_bytes(b"".join(batches))
        (tmp_path / str(number) / "meta.properties").write_text(
            f"version=1\ncluster.id=Cc\nnode.id={number}\n"
        )
    disks = [tmp_path / "1", tmp_path / "2"]
    new = tmp_path / "metadata"
    ran = run("cluster", "best-replicas", *disks, "--snapshot", new)
    assert ran.code == 0, ran
    assert ran.err.startswith("note: ")
    (path,) = new.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    partitions = kafkastore.cluster(path).topics["t"].partitions
    assert (partitions[0].leader, partitions[0].isr) == (-1, (2,))  # a controller elects it
    assert partitions[1].isr == (1, 2, 3)
    assert_one_sentence(run("cluster", "best-replicas", *disks, "--snapshot", new))
    assert_one_sentence(run("cluster", "best-replicas", *disks, "--snapshot", disks[0] / "new"))
    assert_one_sentence(
        run("cluster", "best-replicas", *disks, "--topic", "t", "--snapshot", tmp_path / "other")
    )
    assert not (tmp_path / "other").exists()


def test_a_snapshot_needs_a_metadata_log(run: Run, disks: list[Path], tmp_path: Path) -> None:
    assert_one_sentence(run("cluster", "best-replicas", *disks, "--snapshot", tmp_path / "new"))
