"""What `kafkastore changes` says of undo areas, also of those that something went wrong with."""
from __future__ import annotations

import errno
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from changes.faults import Crash, CrashingFileSystem
from cli.running import Run, assert_one_sentence

from kafkastore.changes.apply import apply
from kafkastore.changes.journal import find_journals, remove
from kafkastore.errors import ChangeRefusedError
from kafkastore.fs import FileSystem


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flushes matter when power is lost, which the tests of changes model."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def test_list_says_since_when(run: Run, sample_copy: Path) -> None:
    run("migrate", sample_copy, "--in-place", "--yes")
    (row,) = run("changes", "list", sample_copy, "--json").lines
    (journal,) = find_journals(sample_copy)
    assert row["at_ms"] == journal.at_ms
    since = datetime.fromtimestamp(row["at_ms"] / 1000, UTC)
    assert since.isoformat(timespec="milliseconds")[:23] in run("changes", "list", sample_copy).out


def test_a_removal_that_was_interrupted_is_told_and_finished(run: Run, sample_copy: Path) -> None:
    run("migrate", sample_copy, "--in-place", "--yes")
    (journal,) = find_journals(sample_copy)
    with pytest.raises(Crash):
        remove(journal, fs=CrashingFileSystem(3))
    listed = run("changes", "list", sample_copy)
    (left,) = [path for path in sample_copy.parent.iterdir() if path != sample_copy]
    assert f"kafkastore changes remove {left} finishes it" in listed.err
    assert run("changes", "remove", left).out == f"removed {left}\n"
    assert not left.exists()
    assert run("changes", "list", sample_copy).err == ""
    assert_one_sentence(run("changes", "remove", left), "is no undo area")


class FullAtTheFourth(FileSystem):
    """Has room for three new files."""

    def __init__(self) -> None:
        self.room = 4  # the plan is the first

    def create(self, path: Path, mode: int = 0o644, **where: Any) -> int:
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        self.room -= 1
        return super().create(path, mode, **where)


class TakenAtTheFourth(FullAtTheFourth):
    """Another process comes after three files."""

    def create(self, path: Path, mode: int = 0o644, **where: Any) -> int:
        if self.room == 0:
            raise ChangeRefusedError("process 12345 holds .lock")
        return super().create(path, mode, **where)


@pytest.mark.parametrize("fs", [FullAtTheFourth(), TakenAtTheFourth()], ids=["full", "taken"])
def test_a_job_that_stops_says_how_far_it_came_and_how_it_goes_on(
    run: Run, sample_copy: Path, fs: FileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    with monkeypatch.context() as patch:
        patch.setattr(
            "kafkastore.cli.applied.apply",
            lambda *arguments, **options: apply(*arguments, fs=fs, **options),
        )
        ran = run("migrate", sample_copy, "--in-place", "--yes")
    (journal,) = find_journals(sample_copy)
    assert len(journal.changed) == 3
    assert_one_sentence(
        ran,
        "3 of 11 files are changed, each wholly or not at all",
        f"kafkastore changes resume {journal.area} finishes",
        f"kafkastore changes undo {journal.area} goes back",
    )
    (row,) = run("changes", "list", sample_copy, "--json").lines
    assert (row["phase"], row["changed"], row["files"]) == ("applying", 3, 11)
    assert run("changes", "resume", journal.area).code == 0


def test_a_job_that_is_refused_before_it_begins_says_just_that(run: Run, sample_copy: Path) -> None:
    run("migrate", sample_copy, "--in-place", "--yes")
    (journal,) = find_journals(sample_copy)
    path = next(sample_copy.rglob("*.timeindex"))
    path.write_bytes(b"a broker's")
    ran = run("changes", "undo", journal.area)
    assert_one_sentence(ran, "was changed after the plan was applied")
    assert "resume" not in ran.err


def test_a_directory_in_the_place_of_a_command_gets_the_command_that_is_meant(
    run: Run, sample_copy: Path
) -> None:
    ran = run("changes", sample_copy)
    assert_one_sentence(ran, f"did you mean kafkastore changes list {sample_copy}?")
    run("migrate", sample_copy, "--in-place", "--yes")
    (journal,) = find_journals(sample_copy)
    ran = run("changes", journal.area)
    assert_one_sentence(ran, f"did you mean kafkastore changes undo {journal.area}?")
    assert_one_sentence(run("changes", "lst"), "No such command 'lst'")
