import errno
import itertools
import json
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from changes.faults import Crash, CrashingFileSystem
from changes.small_store import MTIME_NS, change, contents, write
from models.refused import change_refused, os_error

from kafkastore.changes.apply import apply
from kafkastore.changes.areas import find_half_removed, find_journals, remove
from kafkastore.changes.directory_lock import locked_directory
from kafkastore.changes.journal import Journal
from kafkastore.changes.plan import Inline, InvalidPlanError, Plan
from kafkastore.changes.resume import resume
from kafkastore.changes.undo import undo
from kafkastore.errors import (
    ChangeRefusedError,
    NoSpaceError,
    NoUndoPlaceError,
)
from kafkastore.fs import FileSystem


def test_apply_makes_exactly_the_planned_changes(root, plan, planned):
    journal = apply(plan)
    assert contents(root) == planned
    assert journal.phase == "applied"
    assert journal.changed == {each.path for each in plan.changes}


def test_apply_leaves_no_other_files_in_the_root(root, plan, planned):
    apply(plan)
    assert {path.name for path in root.iterdir()} == {
        "orders-0",
        "orders-1",
        ".lock",
        "meta.properties",
    }


def test_undo_restores_bytes_times_and_modes_and_removes_new_files(root, plan):
    before = contents(root)
    journal = undo(apply(plan))
    assert contents(root) == before
    assert (journal.phase, journal.changed, journal.left) == ("undone", frozenset(), frozenset())


def test_undo_restores_the_same_inodes(root, plan):
    path = root / "orders-0" / "00000000000000000000.index"
    inode = path.stat().st_ino
    undo(apply(plan))
    assert path.stat().st_ino == inode


def test_undo_restores_from_copies_where_hard_links_are_impossible(root, plan, monkeypatch):
    before = contents(root)

    def no_links(source, target, **_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", no_links)
    undo(apply(plan))
    assert contents(root) == before


def test_applying_twice_is_the_same_as_once(root, plan, planned):
    first = apply(plan)
    seen = (first.area / "journal.jsonl").read_bytes()
    assert apply(plan) == first
    assert contents(root) == planned
    assert (first.area / "journal.jsonl").read_bytes() == seen


def test_undoing_twice_is_the_same_as_once(root, plan):
    before = contents(root)
    once = undo(apply(plan))
    assert undo(once) == once
    assert contents(root) == before


def test_a_plan_can_be_applied_again_after_its_undo(root, plan, planned):
    before = contents(root)
    undo(apply(plan))
    journal = apply(plan)
    assert (contents(root), journal.phase) == (planned, "applied")
    undo(journal)
    assert contents(root) == before


def test_apply_repeats_changes_that_a_restored_backup_reverted(root, plan, planned):
    path = root / "orders-0" / "00000000000000000000.index"
    old = path.read_bytes(), path.stat().st_mtime_ns
    apply(plan)
    write(path, *old)
    apply(plan)
    assert contents(root) == planned


def test_threads_make_the_same_changes(root, plan, planned):
    before = contents(root)
    seen = []
    journal = apply(plan, threads=4, progress=lambda done, total: seen.append((done, total)))
    assert contents(root) == planned
    assert seen == [(done, 10) for done in range(1, 11)]
    undo(journal, threads=4)
    assert contents(root) == before


def test_progress_counts_each_change(plan):
    seen = []
    journal = apply(plan, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 10) for done in range(1, 11)]
    undo(journal, progress=lambda done, total: seen.append((done, total)))
    assert seen[10:] == seen[:10]


def test_progress_of_a_resumed_run_counts_changes_made_before(plan):
    seen = []
    resume(interrupted(plan), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 10) for done in range(4, 11)]


def test_an_empty_plan_touches_nothing(root, tmp_path):
    journal = apply(Plan(str(root), "test", ()))
    assert journal.is_finished
    assert [path.name for path in (tmp_path / "disk").iterdir()] == [root.name]
    assert undo(journal) == resume(journal) == journal


def test_resume_and_undo_accept_the_path_of_the_undo_area(root, plan, planned):
    before = contents(root)
    area = apply(plan).area
    assert resume(str(area)).phase == "applied"
    assert undo(str(area)).phase == "undone"
    assert contents(root) == before


@pytest.mark.parametrize("damage", ["bytes", "time", "absence", "log", "log time"])
def test_apply_refuses_when_a_file_changed_since_the_plan_and_touches_nothing(
    root, plan, damage, tmp_path
):
    index = root / "orders-1" / "00000000000000000000.index"
    log = root / "orders-1" / "00000000000000000000.log"
    match damage:
        case "bytes":
            write(
                index, b"new bytes of the same size and time, forged."[:45].ljust(45), MTIME_NS + 11
            )
        case "time":
            os.utime(index, ns=(1, MTIME_NS + 12))
        case "absence":
            index.unlink()
        case "log":
            write(log, b"longer" * 100, MTIME_NS + 1)
        case "log time":
            os.utime(log, ns=(1, 1))
    before = contents(tmp_path)
    with change_refused("changed"):
        apply(plan)
    assert contents(tmp_path) == before


def test_apply_refuses_to_create_a_file_that_exists_by_now(root, plan):
    write(root / "orders-1" / "00000000000000000042.timeindex", b"", MTIME_NS)
    with change_refused("changed", root / "orders-1" / "00000000000000000042.timeindex"):
        apply(plan)


def test_apply_refuses_content_with_another_digest_than_planned(root):
    honest = change(root, "orders-0/00000000000000000000.timeindex", Inline(b"one"), b"one")
    before = contents(root)
    with change_refused("changed", root / honest.path):
        apply(Plan(str(root), "test", (replace(honest, content=Inline(b"two")),)))
    assert contents(root) == before


@pytest.mark.parametrize("kind", ["link", "directory", "fifo"])
def test_apply_refuses_files_that_are_not_regular(root, plan, kind):
    path = root / "orders-0" / "00000000000000000042.timeindex"
    match kind:
        case "link":
            path.symlink_to(root / "meta.properties")
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
    with change_refused("not-a-file"):
        apply(plan)


def test_apply_refuses_more_than_the_disk_holds(root):
    huge = change(root, "orders-0/00000000000000000000.timeindex", Inline(b""), b"")
    assert huge.after is not None
    huge = replace(huge, after=replace(huge.after, size=1 << 60))
    with change_refused("no-space", root):
        apply(Plan(str(root), "test", (huge,)))


def interrupted(plan: Plan) -> Journal:
    """Apply a plan and stop after the third file."""

    def stop(done: int, _: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply(plan, threads=1, progress=stop)
    (journal,) = find_journals(plan.root)
    assert (journal.phase, len(journal.changed)) == ("applying", 3)
    return journal


def test_an_interrupted_plan_is_finished_by_applying_it_again(root, plan, planned):
    interrupted(plan)
    assert apply(plan).phase == "applied"
    assert contents(root) == planned


def test_an_interrupted_plan_is_finished_by_resume(root, plan, planned):
    assert resume(interrupted(plan)).phase == "applied"
    assert contents(root) == planned


def test_an_interrupted_plan_can_be_undone(root, plan):
    before = contents(root)
    assert undo(interrupted(plan)).phase == "undone"
    assert contents(root) == before


def test_another_plan_is_refused_until_the_interrupted_one_is_finished(root, plan):
    journal = interrupted(plan)
    other = Plan(str(root), "another", plan.changes[-1:])
    with change_refused("unfinished", journal.area):
        apply(other)
    undo(journal)
    assert apply(other).phase == "applied"


def test_resume_does_not_touch_a_file_that_a_broker_changed_since(root, plan, planned):
    journal = interrupted(plan)
    (path,) = [path for path in journal.changed if path.endswith("00.timeindex")]
    write(root / path, b"the broker's", MTIME_NS)
    resume(journal)
    expected = planned | {path: (b"the broker's", MTIME_NS, planned[path][2])}
    assert contents(root) == expected


def test_undo_refuses_files_that_changed_since_and_names_them(root, plan):
    journal = apply(plan)
    path = root / "orders-1" / "00000000000000000042.timeindex"
    write(path, b"entries of a broker", MTIME_NS)
    before = contents(root)
    with change_refused("changed", path):
        undo(journal)
    assert contents(root) == before


def test_undo_can_skip_changed_files_and_names_them(root, plan):
    before = contents(root)
    journal = apply(plan)
    left = "orders-1/00000000000000000042.timeindex"
    write(root / left, b"entries of a broker", MTIME_NS)
    journal = undo(journal, leave_changed=True)
    assert (journal.phase, journal.left) == ("undone", {left})
    expected = before | {left: (b"entries of a broker", MTIME_NS, contents(root)[left][2])}
    assert contents(root) == expected


def test_a_later_undo_restores_skipped_files_once_they_match_again(root, plan):
    before = contents(root)
    journal = apply(plan)
    (root / "orders-1").rename(root / "away-1")
    journal = undo(journal, leave_changed=True)
    assert journal.left
    (root / "away-1").rename(root / "orders-1")
    journal = undo(journal)
    assert (journal.phase, journal.left) == ("undone", frozenset())
    assert contents(root) == before


def test_undo_can_skip_a_file_whose_kept_copy_is_missing(root, plan):
    before = contents(root)
    journal = apply(plan)
    after = contents(root)
    lost = next(each.path for each in plan.changes if each.before and each.after)
    (journal.area / "kept" / lost).unlink()
    with change_refused("kept-file-lost", journal.area / "kept" / lost):
        undo(journal)
    assert contents(root) == after
    assert undo(journal, leave_changed=True).left == {lost}
    assert contents(root) == before | {lost: after[lost]}


@pytest.mark.parametrize("text", [b"\xff\xfe", b'{"kafkastore_plan": 1'])
def test_an_unreadable_plan_is_reported_with_its_path(root, plan, text):
    area = apply(plan).area
    (area / "plan.json").write_bytes(text)
    with pytest.raises(InvalidPlanError) as refusal:
        undo(area)
    assert refusal.value.path == area / "plan.json"


def test_an_undo_area_whose_plan_can_t_be_written_is_removed(root, plan):
    class Full(FileSystem):
        def write_all(self, descriptor, data):
            raise OSError(errno.ENOSPC, "full")

    before = sorted(root.parent.iterdir())
    with os_error(errno.ENOSPC):
        apply(plan, threads=1, fs=Full())
    assert sorted(root.parent.iterdir()) == before


def test_a_job_on_a_partition_locks_out_a_job_on_the_root_but_not_on_other_partitions(root):
    (root / ".lock").unlink()  # otherwise that alone would lock
    one, other = [each for each in sorted(root.iterdir()) if each.is_dir()][:2]
    with locked_directory(one), locked_directory(other), change_refused("other-job", root):
        locked_directory(root).__enter__()
    with locked_directory(root), change_refused("other-job", root):
        locked_directory(one).__enter__()


def test_undo_accepts_a_touched_file_with_the_planned_bytes(root, plan):
    before = contents(root)
    journal = apply(plan)
    # Brokers before 1.0 touch every index at shutdown.
    for path in root.glob("*/*index"):
        os.utime(path)
    undo(journal)
    assert contents(root) == before


def test_undo_refuses_when_a_kept_file_is_damaged(root, plan, planned):
    journal = apply(plan)
    kept = journal.area / "kept" / "orders-0" / "00000000000000000042.log"
    kept.write_bytes(b"damaged")
    with change_refused("kept-file-lost", kept):
        undo(journal)
    assert contents(root) == planned


def test_an_incomplete_last_line_of_the_journal_is_ignored(root, plan, planned):
    before = contents(root)
    journal = apply(plan)
    path = journal.area / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:4]) + lines[4][:9])
    assert Journal.open(journal.area).phase == "applying"
    assert resume(journal).phase == "applied"
    assert contents(root) == planned
    for line in path.read_bytes().splitlines():
        if line != lines[4][:9]:
            json.loads(line)
    undo(journal)
    assert contents(root) == before


def test_the_undo_area_is_created_in_undo_dir(root, plan, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    before = contents(root)
    journal = apply(plan, elsewhere)
    assert journal.area.parent == elsewhere
    assert find_journals(root) == ()
    assert find_journals(root, elsewhere) == (journal,)
    undo(journal)
    assert contents(root) == before


@pytest.mark.parametrize("place", [".", "orders-0", "missing"])
def test_the_undo_area_is_never_in_the_root_or_a_missing_directory(root, plan, place):
    before = contents(root)
    with pytest.raises(ChangeRefusedError):
        apply(plan, root / place)
    assert contents(root) == before


def test_the_undo_area_is_never_in_another_log_dirs_root(root, plan, tmp_path):
    other = tmp_path / "kafka-logs-2"
    write(other / "meta.properties", b"", MTIME_NS)
    with change_refused("unsuitable-place", other):
        apply(plan, other)


def test_the_undo_area_of_a_single_partition_is_outside_its_parent_directory(root):
    partition = root / "orders-0"
    lone = change(partition, "00000000000000000000.timeindex", Inline(b"new"), b"new")
    before = contents(root)
    journal = apply(Plan(str(partition), "test", (lone,)))
    assert journal.area.parent == root.parent
    assert find_journals(partition) == find_journals(root) == (journal,)
    undo(journal)
    assert contents(root) == before


def test_a_root_that_is_a_mount_point_needs_undo_dir(plan, root, monkeypatch):
    real = os.stat

    def other_device(path, *arguments, **keywords):
        status = real(path, *arguments, **keywords)
        if Path(path) == root:
            fields = list(status)
            fields[2] += 1
            return os.stat_result(fields)
        return status

    monkeypatch.setattr(os, "stat", other_device)
    with pytest.raises(NoUndoPlaceError):
        apply(plan)


def test_remove_deletes_only_a_finished_undo_area(root, plan, planned, tmp_path):
    journal = interrupted(plan)
    with change_refused("unfinished", journal.area):
        remove(journal)
    remove(resume(journal))
    assert contents(root) == planned
    assert [path.name for path in (tmp_path / "disk").iterdir()] == [root.name]


def test_a_killed_removal_is_listed_and_can_be_finished(root, plan):
    before = contents(root)
    for at in itertools.count(1):  # at 0 nothing is removed yet
        path = root / "orders-0" / f"{at}.deleted"
        write(path, b"x", MTIME_NS)
        removal = change(root, f"orders-0/{path.name}", None, None)
        journal = apply(Plan(str(root), "test", (removal,)))
        try:
            remove(journal, fs=CrashingFileSystem(at))
        except Crash:
            for left in (*find_half_removed(root), *find_half_removed(root / "orders-0")):
                if left.exists():
                    remove(left)
            assert not find_half_removed(root)
            assert not find_journals(root)
            assert [path.name for path in root.parent.iterdir()] == [root.name]
        else:
            break
    assert at > 6
    assert contents(root) == before


def test_a_removed_undo_area_is_not_found(root, plan):
    journal = apply(plan)
    remove(journal)
    with pytest.raises(FileNotFoundError):
        remove(journal)


def test_free_space_is_needed_for_copies_where_hard_links_are_impossible(root, plan, monkeypatch):
    before = contents(root)
    needed = plan.new_bytes + sum(each.before.size for each in plan.changes if each.before)

    def disk_with(free):
        status = os.statvfs(root)
        fields = [1, 1, *status[2:4], free, *status[5:]]
        monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(fields))

    class NoLinks(FileSystem):
        def link(self, source, target, **where):
            raise PermissionError(errno.EPERM, "Operation not permitted")

    disk_with(needed - 1)
    with pytest.raises(NoSpaceError) as refusal:
        apply(plan, threads=1, fs=NoLinks())
    assert (refusal.value.free, refusal.value.needed) == (needed - 1, needed)
    assert not find_journals(root)
    assert contents(root) == before
    disk_with(needed)
    undo(apply(plan, threads=1, fs=NoLinks()))
    disk_with(plan.new_bytes)
    undo(apply(plan))
    disk_with(plan.new_bytes - 1)
    with pytest.raises(NoSpaceError) as refusal:
        apply(plan)
    assert refusal.value.needed == plan.new_bytes


def test_undo_restores_times_and_modes_that_a_copy_of_the_undo_area_lost(root, plan):
    before = contents(root)
    journal = apply(plan)
    for path in (journal.area / "kept").rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            os.utime(path)
    undo(journal)
    assert contents(root) == before


def test_a_journal_knows_when_its_phase_began(plan):
    earliest = time.time_ns() // 1_000_000
    journal = apply(plan)
    undone = undo(journal)
    assert earliest <= journal.at_ms <= undone.at_ms <= time.time_ns() // 1_000_000


def test_apply_works_on_a_directory_reached_through_a_symbolic_link(root, plan, planned, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(root)
    journal = apply(replace(plan, root=str(link)))
    assert contents(root) == planned
    assert journal.area.parent == root.parent


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owners_are_kept_and_new_files_get_those_of_the_log(root):
    for path in root.rglob("*"):
        os.chown(path, 12345, 54321)
    changes = (
        change(root, "orders-0/00000000000000000000.timeindex", Inline(b"new"), b"new"),
        change(root, "orders-0/00000000000000000000.index", Inline(b"new"), b"new"),
    )
    apply(Plan(str(root), "test", changes))
    for each in changes:
        status = (root / each.path).stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (12345, 54321, 0o640)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owners_that_cannot_be_set_are_refused_before_any_change(root, monkeypatch):
    for path in (root / "orders-1").iterdir():
        os.chown(path, 12345, 54321)
    changes = tuple(
        change(root, f"orders-{number}/00000000000000000000.timeindex", Inline(b"new"), b"new")
        for number in (0, 1)
    )
    before = contents(root)
    with monkeypatch.context() as patch:
        patch.setattr("kafkastore.changes.inspection.can_change_owners", lambda: False)
        with change_refused("file-access", root / "orders-1"):
            apply(Plan(str(root), "test", changes))
    assert contents(root) == before
    assert not find_journals(root)
    assert apply(Plan(str(root), "test", changes)).phase == "applied"


@pytest.mark.parametrize("seed", range(3))
def test_after_sigkill_at_any_moment_files_are_complete_and_a_rerun_finishes(
    root, plan, planned, check_each_old_or_new, seed, tmp_path
):
    choose = random.Random(seed)
    before = contents(root)
    text = tmp_path / "plan.json"
    text.write_text(plan.to_json())
    code = (
        "import sys; from pathlib import Path\n"
        "from kafkastore.changes.plan import Plan; from kafkastore.changes.apply import apply\n"
        "from kafkastore.changes.undo import undo\n"
        "plan = Plan.from_json(Path(sys.argv[1]).read_text()); print('ready', flush=True)\n"
        "for _ in range(1000): undo(apply(plan))\n"
    )
    for _ in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", code, str(text)], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(choose.uniform(0, 0.15))
            process.kill()
        check_each_old_or_new()
        for journal in find_journals(root):
            resume(journal)
        assert apply(plan).phase == "applied"
        assert contents(root) == planned
        undo(apply(plan))
        assert contents(root) == before


def test_an_unwritable_directory_is_refused_in_one_sentence(root, plan, monkeypatch):
    before = contents(root)

    def read_only(path, *_, **where):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(os, "mkdir", read_only)
    with pytest.raises(NoUndoPlaceError):
        apply(plan)
    assert contents(root) == before


def test_a_missing_root_is_refused_in_one_sentence(root, plan):
    journal = apply(plan)
    root.rename(root.with_name("mounted elsewhere"))
    for run in (lambda: apply(plan), lambda: undo(journal)):
        with change_refused("not-a-directory"):
            run()
