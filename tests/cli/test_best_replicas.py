"""``kafkastore cluster best-replicas``."""
from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli.running import Run, assert_one_sentence
from cli.test_documentation import check, documented


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


def test_a_disk_that_is_missing_is_one_sentence(run: Run, tmp_path: Path) -> None:
    assert_one_sentence(run("cluster", "best-replicas", tmp_path / "none"))
    assert_one_sentence(run("cluster", "best-replicas"))
