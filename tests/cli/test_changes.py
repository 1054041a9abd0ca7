"""What `kafkastore changes` reports of undo areas, also of incomplete and damaged ones."""
from __future__ import annotations

import errno
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from changes.faults import Crash, CrashingFileSystem
from cli.running import Run, assert_one_sentence

from kafkastore import LogDirWriter, migration
from kafkastore.changes.apply import apply
from kafkastore.changes.areas import find_journals, remove
from kafkastore.errors import ChangeRefusedError
from kafkastore.formats.records.record_batch import Record, TimestampType
from kafkastore.fs import FileSystem


def test_list_shows_since_when_changes_are_applied(run: Run, sample_copy: Path) -> None:
    run("migrate", sample_copy, "--in-place", "--yes")
    (row,) = run("changes", "list", sample_copy, "--json").lines
    (journal,) = find_journals(sample_copy)
    assert row["at_ms"] == journal.at_ms
    since = datetime.fromtimestamp(row["at_ms"] / 1000, UTC)
    assert since.isoformat(timespec="milliseconds")[:23] in run("changes", "list", sample_copy).out


def test_an_interrupted_removal_is_reported_and_finished(run: Run, sample_copy: Path) -> None:
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
    assert_one_sentence(run("changes", "remove", left), f"{left} is not an undo area")


def test_an_unreadable_undo_area_is_reported_and_the_others_are_listed(
    run: Run, sample_copy: Path
) -> None:
    run("migrate", sample_copy, "--in-place", "--yes")
    (journal,) = find_journals(sample_copy)
    unreadable = journal.area.with_name(f"{journal.area.name}-0")
    unreadable.mkdir()
    (unreadable / "plan.json").write_text("[")
    listed = run("changes", "list", sample_copy, "--json")
    assert [row["undo_area"] for row in listed.lines] == [str(journal.area)]
    assert listed.code == 1
    assert str(unreadable / "plan.json") in listed.err


class FullDisk(FileSystem):
    """A disk with room for three new files."""

    def __init__(self) -> None:
        self.room = 4  # the plan is the first

    def create(self, path: Path, mode: int = 0o644, **where: Any) -> int:
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        self.room -= 1
        return super().create(path, mode, **where)


class LockedDisk(FullDisk):
    """A disk on which another process takes the lock after three files."""

    def create(self, path: Path, mode: int = 0o644, **where: Any) -> int:
        if self.room == 0:
            raise ChangeRefusedError("process 12345 holds .lock")
        return super().create(path, mode, **where)


@pytest.mark.parametrize("fs", [FullDisk(), LockedDisk()], ids=["full", "taken"])
def test_a_job_that_fails_reports_its_progress_and_how_to_continue(
    run: Run, sample_copy: Path, fs: FileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            "kafkastore.cli.apply_plans.apply",
            lambda *arguments, **options: apply(*arguments, fs=fs, **options),
        )
        ran = run("migrate", sample_copy, "--in-place", "--yes", "--threads", "1")
    (journal,) = find_journals(sample_copy)
    assert len(journal.changed) == 3
    assert_one_sentence(
        ran,
        "3 of 11 files are changed; ",
        f"kafkastore changes resume {journal.area} finishes",
        f"kafkastore changes undo {journal.area} undoes it",
    )
    (row,) = run("changes", "list", sample_copy, "--json").lines
    assert (row["phase"], row["changed"], row["files"]) == ("applying", 3, 11)
    assert run("changes", "resume", journal.area).code == 0


def test_a_job_that_is_refused_before_it_begins_reports_only_that(
    run: Run, sample_copy: Path
) -> None:
    run("migrate", sample_copy, "--in-place", "--yes")
    (journal,) = find_journals(sample_copy)
    path = next(sample_copy.rglob("*.timeindex"))
    path.write_bytes(b"a broker's")
    ran = run("changes", "undo", journal.area)
    assert_one_sentence(ran, "was changed after the plan was applied")
    assert "resume" not in ran.err


def test_a_directory_in_place_of_a_subcommand_gets_a_suggestion(
    run: Run, sample_copy: Path
) -> None:
    ran = run("changes", sample_copy)
    assert_one_sentence(ran, f"did you mean kafkastore changes list {sample_copy}?")
    run("migrate", sample_copy, "--in-place", "--yes")
    (journal,) = find_journals(sample_copy)
    ran = run("changes", journal.area)
    assert_one_sentence(ran, f"did you mean kafkastore changes undo {journal.area}?")
    assert_one_sentence(run("changes", "lst"), "No such command 'lst'")


def test_repeated_undo_or_resume_does_nothing_and_says_so(
    run: Run, sample_copy: Path
) -> None:
    run("migrate", sample_copy, "--in-place", "--yes")
    (journal,) = find_journals(sample_copy)
    assert run("changes", "resume", journal.area).out == (
        f"already applied, nothing to do: {journal.area}\n"
    )
    assert run("changes", "undo", journal.area).out == f"undone: 11 files in {sample_copy}\n"
    (undone,) = find_journals(sample_copy)
    again = run("changes", "undo", journal.area)
    assert (again.code, again.out) == (0, f"already undone, nothing to do: {journal.area}\n")
    (row,) = run("changes", "undo", journal.area, "--json").lines
    assert row["outcome"] == "undone"
    assert find_journals(sample_copy) == (undone,)


def test_several_areas_can_be_undone_and_removed_with_one_command(
    run: Run, sample_copy: Path
) -> None:
    other = sample_copy.with_name("other")
    shutil.copytree(sample_copy, other)
    for path in (sample_copy, other):
        run("migrate", path, "--in-place", "--yes")
    areas = [journal.area for path in (sample_copy, other) for journal in find_journals(path)]
    assert run("changes", "undo", *areas).out.count("undone: 11 files") == 2
    assert run("changes", "remove", *areas, "--yes").out.count("removed") == 2
    assert not any(area.exists() for area in areas)


def test_an_area_elsewhere_is_undone_if_the_root_is_named(
    run: Run, sample_copy: Path, tmp_path: Path
) -> None:
    undo_dir = tmp_path / "undo"
    undo_dir.mkdir()
    run("migrate", sample_copy, "--in-place", "--yes", "--undo-dir", undo_dir)
    (area,) = undo_dir.iterdir()
    assert_one_sentence(run("changes", "undo", area), "(--root)")
    assert run("changes", "undo", area, "--root", sample_copy).code == 0


def test_an_area_that_others_may_write_needs_an_option(
    run: Run, sample_copy: Path
) -> None:
    run("migrate", sample_copy, "--in-place", "--yes")
    (journal,) = find_journals(sample_copy)
    (journal.area / "plan.json").chmod(0o666)
    for verb, options in (("undo", ()), ("remove", ("--yes",))):
        refused = run("changes", verb, journal.area, *options)
        assert_one_sentence(refused, "is writable for others", "--trust-area")
        assert run("changes", verb, journal.area, "--trust-area", *options).code == 0
    assert not journal.area.exists()


def test_a_plan_nested_too_deeply_is_one_sentence(run: Run, sample_copy: Path) -> None:
    run("migrate", sample_copy, "--in-place", "--yes")
    (journal,) = find_journals(sample_copy)
    (journal.area / "plan.json").write_text("[" * 200_000)
    for verb in ("undo", "resume", "remove"):
        assert_one_sentence(run("changes", verb, journal.area), "nested deeper")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1", "not JSON: Expecting ',' delimiter at character 2"),
        ("{}", "not a plan: it has no 'kafkastore_plan'"),
        ("[]", "not a plan: a value has the wrong kind"),
        ('{"kafkastore_plan": ' + "9" * 5000 + "}", "too many digits"),
        (None, "is a directory and not a regular file"),
    ],
)
def test_an_invalid_plan_is_one_sentence(
    run: Run, sample_copy: Path, text: str | None, message: str
) -> None:
    run("migrate", sample_copy, "--in-place", "--yes")
    (journal,) = find_journals(sample_copy)
    plan = journal.area / "plan.json"
    plan.unlink()
    if text is None:
        plan.mkdir(mode=0o755)
    else:
        plan.write_text(text)
    for verb in ("undo", "resume"):
        refused = run("changes", verb, journal.area)
        assert_one_sentence(refused, message)
        assert refused.err.count(str(plan)) == 1


def test_a_journal_that_is_not_a_file_is_reported(run: Run, sample_copy: Path) -> None:
    run("migrate", sample_copy, "--in-place", "--yes")
    (journal,) = find_journals(sample_copy)
    lines = journal.area / "journal.jsonl"
    lines.unlink()
    lines.symlink_to("plan.json")
    assert_one_sentence(run("changes", "undo", journal.area), f"{lines} is a symbolic link")


@pytest.mark.parametrize("command", ["ls", "predict", "verify"])
def test_read_only_commands_report_an_unfinished_change(
    run: Run, sample_copy: Path, command: str
) -> None:
    assert "unfinished" not in run(command, sample_copy).err
    plan = migration.plan(migration.survey(sample_copy))
    with pytest.raises(Crash):
        apply(plan, threads=1, fs=CrashingFileSystem(40))
    (journal,) = find_journals(sample_copy)
    shown = run(command, sample_copy)
    assert f"kafkastore changes resume {journal.area} finishes it" in shown.err
    assert f"kafkastore changes undo {journal.area} undoes it" in shown.err
    run("changes", "resume", journal.area)
    assert "unfinished" not in run(command, sample_copy).err


def test_bytes_that_a_writer_s_recovery_truncated_are_listed_and_removed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "logs"
    record = Record(0, 1, TimestampType.CREATE_TIME, b"k", b"v", (), None)
    with LogDirWriter(root) as log_dir:
        log_dir.writer("t", 0).append_records([record])
    log = root / "t-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes() + b"torn")
    with LogDirWriter(root, clock=lambda: 1_700_000_000_000) as log_dir:
        log_dir.writer("t", 0, recover=True)
    (row,) = run("changes", "list", root, "--json").lines
    area = Path(row["undo_area"])
    assert area.parent == root.parent
    assert (row["job"], row["files"], row["kept_bytes"]) == ("recovery (LogDirWriter)", 1, 4)
    assert row["at_ms"] == 1_700_000_000_000
    listed = run("changes", "list", root).out
    assert str(area) in listed
    assert_one_sentence(run("changes", "undo", area), "cannot be restored automatically")
    monkeypatch.chdir(root)
    assert run("changes", "remove", Path("..", area.name), "--yes").code == 0
    assert not area.exists()
    assert not run("changes", "list", root, "--json").lines
