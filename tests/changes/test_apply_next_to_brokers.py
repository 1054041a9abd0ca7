"""Plans are applied and undone only while no broker and no other job uses the directory."""
import pytest
from changes.held_locks import can_lock, hold
from changes.small_store import MTIME_NS, change, contents, write
from models.refused import change_refused

from kafkastore.changes.apply import apply
from kafkastore.changes.areas import find_journals
from kafkastore.changes.plan import Inline, Plan
from kafkastore.changes.resume import resume
from kafkastore.changes.undo import undo
from kafkastore.errors import DirectoryInUseError


def test_apply_and_undo_refuse_while_a_broker_holds_the_lock(root, plan, planned, tmp_path):
    before = contents(root)
    with hold(root / ".lock") as process:
        with pytest.raises(DirectoryInUseError) as refusal:
            apply(plan)
        assert refusal.value.holder == process.pid
        assert contents(root) == before
        assert not find_journals(root)
        process.communicate()
    journal = apply(plan)
    with hold(root / ".lock") as process:
        with pytest.raises(DirectoryInUseError) as refusal:
            undo(journal)
        assert refusal.value.holder == process.pid
        process.communicate()
    assert contents(root) == planned
    undo(journal)
    assert contents(root) == before


def test_a_free_lock_file_is_no_obstacle_and_a_missing_one_is_not_created(root, plan):
    (root / ".lock").unlink()
    apply(plan)
    assert not (root / ".lock").exists()


def test_a_broker_cannot_start_while_a_plan_is_applied(root, plan):
    results = []

    def start_broker(*_: int) -> None:
        results.append(can_lock(root / ".lock"))

    plan = Plan(plan.root, plan.job, plan.changes[:2])
    apply(plan, threads=1, progress=start_broker)
    assert results == [False, False]
    start_broker()
    assert results[-1]


def test_a_broker_that_creates_its_lock_meanwhile_stops_the_run(root, plan):
    (root / ".lock").unlink()
    started = []

    def start_broker(*_: int) -> None:
        if not started:
            started.append(hold(root / ".lock"))

    try:
        with change_refused("in-use", root / ".lock"):
            apply(plan, threads=1, progress=start_broker)
    finally:
        started[0].communicate()
    (journal,) = find_journals(root)
    assert (journal.phase, len(journal.changed)) == ("applying", 1)
    assert resume(journal).phase == "applied"


def test_two_jobs_do_not_work_on_one_directory(root, plan):
    refusals = []

    def second(*_: int) -> None:
        with change_refused("other-job", root) as refusal:
            apply(plan)
        refusals.append(refusal.value)

    apply(plan, progress=second)
    assert len(refusals) == len(plan.changes)


def test_a_lock_next_to_a_log_dirs_root_is_ignored(root, plan, planned):
    write(root.parent / ".lock", b"", MTIME_NS)
    with hold(root.parent / ".lock") as process:
        apply(plan)
        process.communicate()
    assert contents(root) == planned


def test_the_lock_above_a_partition_directory_also_counts_through_a_symbolic_link(root, tmp_path):
    lone = change(root / "orders-0", "00000000000000000000.timeindex", Inline(b"new"), b"new")
    link = tmp_path / "orders-0"
    link.symlink_to(root / "orders-0")
    with hold(root / ".lock") as process:
        for path in (root / "orders-0", link):
            with change_refused("in-use", root / ".lock"):
                apply(Plan(str(path), "test", (lone,)))
        process.communicate()
