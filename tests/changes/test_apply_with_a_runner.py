"""A plan applied by a runner: the same as by threads, and safe if driver or tasks are killed."""

import errno
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from types import SimpleNamespace

import pytest
from changes import jobs
from changes.faults import (
    CountingFileSystem,
    Crash,
    CrashingFileSystem,
    FailingFileSystem,
    count_calls,
)
from changes.power_loss import RecordedDisk, states_of
from changes.small_store import contents
from changes.trial import Trial
from kafkastore.migration import plan as plan_migration
from kafkastore.migration import survey
from models.refused import change_refused
from models.seed import SEED, some

from kafkastore.changes.apply import apply
from kafkastore.changes.areas import find_journals, remove
from kafkastore.changes.partition_changes import apply_partition
from kafkastore.changes.partition_journals import (
    close_partition_journals,
    open_partition_journals,
    partition_journal,
)
from kafkastore.changes.plan import Plan
from kafkastore.changes.resume import resume
from kafkastore.changes.undo import undo
from kafkastore.errors import (
    ChangeRefusedError,
    DirectoryInUseError,
    PlanRefusedError,
    RefusalReason,
)
from kafkastore.fs import FileSystem


def one_by_one(job, items, *, weigh):
    """Run tasks in this process."""
    return [job(item) for item in items]


def runner_on(fs):
    """Return a runner in this process that uses the test's file system."""

    def runner(job, items, *, weigh):
        return [job(item, fs) if job is apply_partition else job(item) for item in items]

    return runner


def by_tasks(plan, fs):
    """Apply a plan with the driver and its tasks on one file system."""
    return apply(plan, runner=runner_on(fs), fs=fs)


def resumed(plan):
    """Resume a plan by its journal; apply it if there is no journal yet."""
    for journal in find_journals(plan.root):
        return resume(journal, runner=one_by_one)
    return apply(plan)


def leftovers(area):
    return [path.name for path in area.iterdir() if path.name.startswith("parts-")]


def test_a_runner_makes_the_same_changes_as_threads(root, plan, planned):
    before = contents(root)
    seen = []
    journal = apply(plan, runner=one_by_one, progress=lambda *counts: seen.append(counts))
    assert (journal.phase, contents(root)) == ("applied", planned)
    assert journal.failures == ()
    assert seen == [(5, 10), (10, 10)]
    assert leftovers(journal.area) == []
    assert journal.changed == {change.path for change in plan.changes}
    assert find_journals(root) == (journal,)
    assert apply(plan, runner=one_by_one) == journal
    undo(journal)
    assert resume(journal, runner=one_by_one) == find_journals(root)[0]
    assert contents(root) == before
    # A file that was changed, restored and changed again counts as changed.
    again = apply(plan, runner=one_by_one)
    assert (again.phase, again.changed, contents(root)) == ("applied", journal.changed, planned)
    undo(again)
    remove(again)
    assert os.listdir(root.parent) == [root.name]


def test_a_plan_without_changes_creates_no_undo_area(root):
    journal = apply(Plan(str(root), "test", ()), runner=one_by_one)
    assert journal.phase == "applied"
    assert not journal.area.exists()


def test_tasks_in_other_processes_work_under_the_lock_of_the_driver(root, plan, planned):
    """The driver holds the `.lock` of the root; its children do not."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        journal = apply(plan, runner=lambda job, items, weigh: pool.map(job, items))
    assert journal.failures == ()
    assert (journal.phase, contents(root)) == ("applied", planned)


def test_nothing_is_changed_if_any_file_of_any_partition_does_not_match(root, plan):
    (root / "orders-1" / "00000000000000000000.log").write_bytes(b"more")
    before = contents(root)
    with pytest.raises(PlanRefusedError) as refusal:
        apply(plan, runner=one_by_one)
    assert {each.reason for each in refusal.value.refusals} == {RefusalReason.CHANGED}
    log = root / "orders-1" / "00000000000000000000.log"
    assert log in {each.path for each in refusal.value.refusals}
    assert len(refusal.value.refusals) == 4
    assert contents(root) == before
    assert os.listdir(root.parent) == [root.name]


def test_a_failed_partition_does_not_stop_the_others_and_is_resumed(root, plan, planned):
    before = contents(root)

    def runner(job, items, *, weigh):
        for item in items:
            if job is apply_partition and item.directory == "orders-0":
                yield job(item, FailingFileSystem(14, errno.EIO))
            else:
                yield job(item)

    journal = apply(plan, runner=runner)
    (failed,) = journal.failures
    assert (failed.directory, failed.error.errno) == ("orders-0", errno.EIO)
    assert (journal.phase, leftovers(journal.area)) == ("applying", [])
    assert 5 <= len(journal.changed) < 10
    assert {path for path in journal.changed if path.startswith("orders-1/")} == {
        each.path for each in plan.changes[5:]
    }
    now = contents(root)
    for path, state in planned.items():
        if path.startswith("orders-1/"):
            assert now[path] == state
    with change_refused("unfinished"):
        apply(Plan(plan.root, "another", plan.changes[:1]))
    seen = []

    def rest(job, items, *, weigh):
        seen.append([item.directory for item in items])
        return one_by_one(job, items, weigh=weigh)

    journal = resume(journal, runner=rest)
    assert (seen, journal.failures) == ([["orders-0", "orders-1"], ["orders-0"]], ())
    assert (journal.phase, contents(root)) == ("applied", planned)
    undo(journal)
    assert contents(root) == before


def test_a_task_that_runs_twice_in_parallel_makes_its_changes_once(root, plan, planned):
    counted = CountingFileSystem()

    def runner(job, items, *, weigh):
        if job is not apply_partition:
            return one_by_one(job, items, weigh=weigh)
        found = []
        for item in items:
            run = [
                threading.Thread(target=lambda item=item: found.append(job(item, counted)))
                for _ in range(3)
            ]
            for each in run:
                each.start()
            for each in run:
                each.join()
        assert set(found) == {None}
        return found[::3]

    journal = apply(plan, runner=runner)
    assert (journal.phase, contents(root)) == ("applied", planned)
    assert counted.calls.count("rename") == sum(each.after is not None for each in plan.changes)


def test_a_task_whose_driver_has_died_alters_nothing(root, plan):
    before = contents(root)
    orphaned = []

    def runner(job, items, *, weigh):
        if job is not apply_partition:
            return one_by_one(job, items, weigh=weigh)
        orphaned.extend(items)
        return [None for _ in items]

    journal = apply(plan, runner=runner)
    assert journal.phase == "applying"
    assert len(orphaned) == 2
    for item in orphaned:
        assert apply_partition(item).reason is RefusalReason.NOT_A_DIRECTORY
    # A killed driver leaves its folder, but no lease.
    with open_partition_journals(journal.area, FileSystem()) as folder:
        pass
    for item in orphaned:
        error = apply_partition(item._replace(folder=folder))
        assert error.reason is RefusalReason.UNFINISHED
    assert contents(root) == before
    assert undo(journal).phase == "undone"
    assert leftovers(journal.area) == []


def test_a_task_stops_when_its_driver_dies_and_the_next_job_waits_for_it(
    root, plan, planned, monkeypatch
):
    """The driver dies while a task changes its first file; the task finishes only that file."""
    begun, proceed = threading.Event(), threading.Event()

    class Slow(FileSystem):
        def rename(self, source, target, **where):
            begun.set()
            proceed.wait(800)
            super().rename(source, target, **where)

    found = []

    def runner(job, items, *, weigh):
        if job is not apply_partition:
            return one_by_one(job, items, weigh=weigh)
        thread = threading.Thread(target=lambda: found.append(job(items[0], Slow())))
        thread.start()
        begun.wait(800)
        raise Crash

    monkeypatch.setattr("kafkastore.changes.apply._SECONDS_AFTER_INTERRUPT", 0.1)
    with pytest.raises(Crash):
        apply(plan, runner=runner)
    (journal,) = find_journals(root)
    assert len(leftovers(journal.area)) == 1
    for go_further in (undo, resume, partial(apply, journal.plan)):
        monkeypatch.setattr(close_partition_journals, "__kwdefaults__", {"patience": 0.2})
        with change_refused("other-job"):
            go_further() if isinstance(go_further, partial) else go_further(journal)
    monkeypatch.setattr(close_partition_journals, "__kwdefaults__", {"patience": 800})

    def sleep(seconds):
        proceed.set()
        time.sleep(seconds)

    # The task goes on when the job waits for it, and not before.
    patched = SimpleNamespace(sleep=sleep, monotonic=time.monotonic)
    monkeypatch.setattr("kafkastore.changes.partition_journals.time", patched)
    try:
        finished = resume(journal)
        assert proceed.is_set()
    finally:
        proceed.set()
    assert (finished.phase, contents(root)) == ("applied", planned)
    while not found:
        time.sleep(0.01)
    assert isinstance(found[0], ChangeRefusedError)
    assert found[0].reason is RefusalReason.UNFINISHED


def test_a_task_stops_when_a_broker_starts(root, plan):
    (root / ".lock").unlink()
    before = contents(root)
    code = (
        "import sys; from kafkastore.fs import LockFile\n"
        "LockFile(sys.argv[1], create=True); print(flush=True); sys.stdin.read()"
    )
    brokers = []

    def runner(job, items, *, weigh):
        if job is apply_partition:
            brokers.append(
                subprocess.Popen(
                    [sys.executable, "-c", code, str(root / ".lock")],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                )
            )
            brokers[0].stdout.readline()
        return one_by_one(job, items, weigh=weigh)

    try:
        journal = apply(plan, runner=runner)
    finally:
        brokers[0].communicate()
    assert len(journal.failures) == 2
    for each in journal.failures:
        assert isinstance(each.error, DirectoryInUseError)
        assert each.error.holder == brokers[0].pid
    assert journal.phase == "applying"
    (root / ".lock").unlink()
    assert contents(root) == before


def test_two_drivers_do_not_work_on_one_area(root, plan, monkeypatch):
    """Where directories can't be locked, as on some network file systems, the lease decides."""
    journal = apply(plan, runner=one_by_one)
    with open_partition_journals(journal.area, FileSystem()):
        monkeypatch.setattr(close_partition_journals, "__kwdefaults__", {"patience": 0.1})
        with change_refused("other-job"):
            undo(journal)
    monkeypatch.undo()
    assert undo(journal).phase == "undone"


def test_two_drivers_that_start_at_the_same_time_do_not_both_begin(root, plan):
    """Each creates its folder before it checks for the other's."""
    journal = apply(plan, runner=one_by_one)
    with (
        open_partition_journals(journal.area, FileSystem()),
        change_refused("other-job"),
        open_partition_journals(journal.area, FileSystem()),
    ):
        raise AssertionError
    assert undo(journal).phase == "undone"
    assert leftovers(journal.area) == []


FORKING = """
import os, sys, time
from pathlib import Path
from kafkastore.changes.partition_journals import open_partition_journals
from kafkastore.changes.directory_lock import locked_directory
from kafkastore.fs import FileSystem
with locked_directory(Path(sys.argv[1])), open_partition_journals(Path(sys.argv[2]), FileSystem()):
    if os.fork():
        os.kill(os.getpid(), 9)
    print(os.getpid(), flush=True)  # of the child, which has released by now what it must
    time.sleep(600)
"""


def test_children_of_a_driver_do_not_hold_its_locks(root, plan):
    journal = apply(plan, runner=one_by_one)
    command = [sys.executable, "-c", FORKING, str(root), str(journal.area)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as driver:
        child = int(driver.stdout.readline())
        try:
            driver.wait(800)
            assert len(leftovers(journal.area)) == 1
            assert undo(journal).phase == "undone"
            assert leftovers(journal.area) == []
            os.kill(child, 0)  # it is alive
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_file_system_that_cannot_lock_files_is_refused(root, plan, monkeypatch):
    def no_locks(descriptor, kind):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    before = contents(root)
    monkeypatch.setattr("fcntl.flock", no_locks)
    with change_refused("unsupported"):
        apply(plan, runner=one_by_one)
    assert contents(root) == before


def test_a_journal_can_be_read_while_lines_of_partitions_are_added(root, plan):
    """`changes list` may read at any time."""
    seen = []

    class Reading(FileSystem):
        def fsync_directory(self, path, **where):
            super().fsync_directory(path, **where)
            seen.extend(len(each.changed) for each in find_journals(root))

    apply(plan, runner=runner_on(fs := Reading()), fs=fs)
    assert seen == sorted(seen)
    assert seen[-1] == len(plan.changes)


@pytest.mark.parametrize("torn", [False, True])
def test_after_a_crash_at_any_call_files_are_complete_and_a_rerun_finishes(
    root, plan, planned, check_each_old_or_new, torn
):
    before = contents(root)
    calls = count_calls(partial(by_tasks, plan))
    remove(undo(apply(plan)))
    assert calls > 100
    reruns = [apply, partial(apply, runner=one_by_one), resumed]
    for number, at in enumerate(some(range(calls), calls // 4)):
        with pytest.raises(Crash):
            by_tasks(plan, CrashingFileSystem(at, torn=torn))
        check_each_old_or_new()
        if number % 2:
            assert reruns[number // 2 % 3](plan).phase == "applied"
            assert contents(root) == planned
        for journal in find_journals(root):
            remove(undo(journal))
        assert contents(root) == before


@pytest.mark.parametrize(
    "name", ["migrate auto", "reindex", "repair skip", "restore into new directories"]
)
def test_power_loss_while_a_runner_applies_a_job(tmp_path, name):
    top = tmp_path / "disk"
    top.mkdir()
    trial = Trial(jobs.make(name, top))
    trial.start.write(top)
    disk = RecordedDisk(top)
    apply(trial.job.plan, runner=runner_on(disk), fs=disk)
    disk.note()
    states = states_of(disk, random.Random(SEED))
    trial.check(some(states, 20))


def test_a_partition_s_journal_contains_what_a_killed_task_wrote(tmp_path):
    area = tmp_path / "area"
    area.mkdir()
    with open_partition_journals(area, FileSystem()) as folder:
        path = area / folder / "000003.jsonl"
        path.write_bytes(b'{"event": "changed", "path": "a"}\n{"event": "chan')
        with partition_journal(area / folder, 3, FileSystem()) as (writer, changed, _):
            assert changed == {"a"}
            writer.step("changed", "b")
        with partition_journal(area / folder, 3, FileSystem()) as (_, changed, _):
            assert changed == {"a", "b"}


DRIVER = """
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from kafkastore import migration
from kafkastore.changes.apply import apply
if __name__ == "__main__":
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        plan = migration.plan(migration.survey(sys.argv[1]))
        apply(plan, runner=lambda job, items, weigh: pool.map(job, items))
"""


@pytest.mark.soak
@pytest.mark.parametrize("dies", some(["all", "driver"], 1, "who dies"))
def test_resume_and_undo_finish_what_killed_drivers_leave(
    golden, tmp_path, monkeypatch, dies
):
    """Workers that outlive their driver continue until they notice that it has died."""
    monkeypatch.undo()  # real flushes, which are slow
    choose = random.Random(f"{SEED} {dies}")
    source = golden("0.10.0.1", "upgrade", "answers").logs
    root = tmp_path / "disk" / "kafka-logs"
    shutil.copytree(source, root)
    for number in range(2, 40):
        shutil.copytree(source / f"up-{number % 2}", root / f"up-{number}")
    twin = shutil.copytree(root, tmp_path / "twin" / "kafka-logs")
    plan = plan_migration(survey(twin))
    apply(plan)
    before, planned = contents(root), contents(twin)
    (tmp_path / "driver.py").write_text(DRIVER)
    for number in range(12):
        wanted = choose.randrange(len(plan.changes))
        with subprocess.Popen(
            [sys.executable, str(tmp_path / "driver.py"), str(root)],
            start_new_session=True, stderr=subprocess.DEVNULL,
        ) as process:
            while process.poll() is None and jobs.changed_by_tasks(root) < wanted:
                time.sleep(0.001)
            if dies == "all":
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        for journal in find_journals(root):
            way = choose.choice([resume, undo])
            assert way(journal).is_finished
            assert contents(root) == (planned if way is resume else before), number
            undo(journal)
            remove(journal)
        assert contents(root) == before
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
