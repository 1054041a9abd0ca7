"""``kafkastore restore`` into directories that do not exist."""
from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli.running import Run, assert_one_sentence
from models import metadata_directory as made
from models.log_directory import Log, Segment
from models.record_format import Batch, Row

import kafkastore
from kafkastore.changes.areas import find_journals


@pytest.fixture
def source(tmp_path: Path) -> Path:
    batches = tuple(Batch((Row(slot, 100, b"k", b"v"),)) for slot in range(4))
    return Log((Segment(0, batches).indexed(),)).write(tmp_path / "source")


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """A log directory that was formatted for KRaft."""
    new = tmp_path / "new"
    new.mkdir(mode=0o750)
    (new / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    return new


@pytest.fixture
def metadata(tmp_path: Path) -> Path:
    directory = tmp_path / "controller" / "__cluster_metadata-0"
    made.write_log(directory, [made.topic("t"), made.partition(0, replicas=(1,))])
    return directory.parent


def test_the_plan_shows_directories_and_is_undone(
    run: Run, source: Path, new: Path, metadata: Path
) -> None:
    arguments = ("restore", source, new, "--metadata", metadata)
    plan, directory, *changes = run(*arguments, "--dry-run", "--json").lines
    status = new.stat()
    assert plan["directories"] == 1
    assert directory == {
        "kind": "directory", "name": "t-0", "mode": 0o750,
        "user": status.st_uid, "group": status.st_gid,
    }
    assert {each["path"] for each in changes} > {"t-0/partition.metadata"}
    assert f"creates {new}/t-0" in run(*arguments, "--dry-run").out.splitlines()
    assert [each.name for each in new.iterdir()] == ["meta.properties"]
    assert run(*arguments, "--yes").code == 0
    assert len(list(kafkastore.open(new)["t", 0].records())) == 4
    (journal,) = find_journals(new)
    assert run("changes", "undo", journal.area).code == 0
    assert [each.name for each in new.iterdir()] == ["meta.properties"]


def test_the_change_of_a_directory_that_is_empty_again_is_listed(
    run: Run, source: Path, new: Path, metadata: Path
) -> None:
    (new / "meta.properties").unlink()
    assert run("restore", source, new, "--metadata", metadata, "--yes").code == 0
    (journal,) = find_journals(new)
    assert run("changes", "undo", journal.area).code == 0
    assert not list(new.iterdir())
    (listed,) = run("changes", "list", new, "--json").lines
    assert (listed["phase"], listed["undo_area"]) == ("undone", str(journal.area))


def test_without_the_topic_id_it_is_refused(run: Run, source: Path, new: Path) -> None:
    assert_one_sentence(run("restore", source, new, "--yes"))
    (new / "meta.properties").unlink()
    assert_one_sentence(run("restore", source, new, "--yes"))
    assert run("restore", source, new, "--yes", "--without-topic-ids").code == 0


def test_partitions_of_other_brokers_are_named(
    run: Run, tmp_path: Path, source: Path, new: Path
) -> None:
    shutil.copytree(source / "t-0", source / "t-1")
    made.write_log(tmp_path / "of" / "__cluster_metadata-0", [
        made.topic("t"), made.partition(0, replicas=(2,)), made.partition(1, replicas=(1,)),
    ])
    arguments = ("restore", source, new, "--metadata", tmp_path / "of", "--dry-run")
    *_, elsewhere = run(*arguments, "--json").lines
    assert elsewhere == {"kind": "elsewhere", "topic": "t", "partition": 0}
    assert "t-0 is not restored here" in run(*arguments).out
