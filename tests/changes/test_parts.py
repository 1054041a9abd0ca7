"""A plan carried out part by part: as `apply` does it, and safe when driver or parts are killed."""

import errno
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial

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
from models.seed import SEED

from kafkastore.changes import part_journals
from kafkastore.changes.apply import apply
from kafkastore.changes.journal import find_journals, remove
from kafkastore.changes.part_journals import open_parts, part_journal
from kafkastore.changes.parts import apply_in_parts, apply_part, resume_in_parts
from kafkastore.changes.plan import Plan
from kafkastore.changes.undo import resume, undo
from kafkastore.errors import ChangeRefusedError
from kafkastore.fs import FileSystem


def one_by_one(work, parts):
    """Run parts in this process."""
    return [work(part) for part in parts]


def on(fs):
    """Run parts in this process, on a file system of the test's."""

    def spread(work, parts):
        return [work(part, fs) if work is apply_part else work(part) for part in parts]

    return spread


def in_parts(plan, fs):
    """Carry a plan out, driver and parts on one file system."""
    return apply_in_parts(plan, on(fs), fs=fs)


def resumed(plan):
    """Finish a plan by its journal; one that has not got as far as that, by itself."""
    for journal in find_journals(plan.root):
        return resume_in_parts(journal, one_by_one)[0]
    return apply(plan)


def leftovers(area):
    return [path.name for path in area.iterdir() if path.name.startswith("parts-")]


def test_a_plan_in_parts_comes_to_what_it_comes_to_as_one(root, plan, planned):
    before = contents(root)
    journal, done = apply_in_parts(plan, one_by_one)
    assert (journal.phase, contents(root)) == ("applied", planned)
    assert [each._replace(bytes=0) for each in done] == [
        ("orders-0", 5, 0, None), ("orders-1", 5, 0, None),
    ]
    assert sum(each.bytes for each in done) == plan.new_bytes
    assert leftovers(journal.area) == []
    assert journal.changed == {change.path for change in plan.changes}
    assert find_journals(root) == (journal,)
    assert apply_in_parts(plan, one_by_one) == (journal, ())
    undo(journal)
    assert resume_in_parts(journal, one_by_one) == (find_journals(root)[0], ())
    assert contents(root) == before
    # What was changed, restored and changed again counts as changed.
    again, _ = apply_in_parts(plan, one_by_one)
    assert (again.phase, again.changed, contents(root)) == ("applied", journal.changed, planned)
    undo(again)
    remove(again)
    assert os.listdir(root.parent) == [root.name]


def test_a_plan_without_changes_makes_no_area(root):
    journal, done = apply_in_parts(Plan(str(root), "test", ()), one_by_one)
    assert (journal.phase, done) == ("applied", ())
    assert not journal.area.exists()


def test_parts_in_other_processes_work_under_the_lock_of_the_driver(root, plan, planned):
    """The root has a `.lock`, which the driver holds, and which no child of it holds."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        journal, done = apply_in_parts(plan, pool.map)
    assert [each.error for each in done] == [None, None]
    assert (journal.phase, contents(root)) == ("applied", planned)


def test_nothing_is_touched_if_any_file_of_any_part_does_not_fit(root, plan):
    (root / "orders-1" / "00000000000000000000.log").write_bytes(b"more")
    before = contents(root)
    with pytest.raises(ChangeRefusedError, match=r"orders-1/0+\.log has changed .*; and 1 more$"):
        apply_in_parts(plan, one_by_one)
    assert contents(root) == before
    assert os.listdir(root.parent) == [root.name]


def test_a_part_that_fails_keeps_no_other_from_being_done_and_is_resumed(root, plan, planned):
    before = contents(root)

    def spread(work, parts):
        for part in parts:
            if work is apply_part and part.directory == "orders-0":
                yield work(part, FailingFileSystem(14, errno.EIO))
            else:
                yield work(part)

    journal, (failed, done) = apply_in_parts(plan, spread)
    assert "Input/output error" in str(failed.error)
    assert (done.error, done.files) == (None, 5)
    assert failed.files < 5
    assert (journal.phase, leftovers(journal.area)) == ("applying", [])
    assert len(journal.changed) == failed.files + 5
    now = contents(root)
    for path, state in planned.items():
        if path.startswith("orders-1/"):
            assert now[path] == state
    with pytest.raises(ChangeRefusedError, match="an earlier plan is unfinished"):
        apply(Plan(plan.root, "another", plan.changes[:1]))
    journal, (rest,) = resume_in_parts(journal, one_by_one)
    assert (rest.directory, rest.files, rest.error) == ("orders-0", 5, None)
    assert (journal.phase, contents(root)) == ("applied", planned)
    undo(journal)
    assert contents(root) == before


def test_a_part_that_runs_twice_at_once_is_done_once(root, plan, planned):
    counted = CountingFileSystem()

    def spread(work, parts):
        if work is not apply_part:
            return one_by_one(work, parts)
        found = []
        for part in parts:
            run = [
                threading.Thread(target=lambda part=part: found.append(work(part, counted)))
                for _ in range(3)
            ]
            for each in run:
                each.start()
            for each in run:
                each.join()
        assert {each.error for each in found} == {None}
        return found[::3]

    journal, _ = apply_in_parts(plan, spread)
    assert (journal.phase, contents(root)) == ("applied", planned)
    assert counted.calls.count("rename") == sum(each.after is not None for each in plan.changes)


def test_a_part_whose_driver_is_gone_alters_nothing(root, plan):
    before = contents(root)
    parts = []

    def spread(work, given):
        parts.extend(given)
        return [] if work is apply_part else one_by_one(work, given)

    journal, _ = apply_in_parts(plan, spread)
    assert journal.phase == "applying"
    orphans = [part for part in parts if part.folder]
    for part in orphans:
        assert "the job has ended, or this machine does not see" in str(apply_part(part).error)
    # A driver that is killed leaves its folder, and no lease.
    with open_parts(journal.area, FileSystem()) as folder:
        pass
    for part in orphans:
        assert "is gone" in str(apply_part(part._replace(folder=folder)).error)
    assert contents(root) == before
    assert undo(journal).phase == "undone"
    assert leftovers(journal.area) == []


def test_a_part_stops_when_its_driver_goes_and_whoever_is_next_waits_for_it(
    root, plan, planned, monkeypatch
):
    """The driver dies while a part is at its first file; that file is finished, and no other."""
    begun, go_on = threading.Event(), threading.Event()

    class Slow(FileSystem):
        def rename(self, source, target, **where):
            begun.set()
            go_on.wait(20)
            super().rename(source, target, **where)

    found = []

    def spread(work, parts):
        if work is not apply_part:
            return one_by_one(work, parts)
        thread = threading.Thread(target=lambda: found.append(work(parts[0], Slow())))
        thread.start()
        begun.wait(20)
        raise Crash

    monkeypatch.setattr("kafkastore.changes.parts._SECONDS_AFTER_INTERRUPT", 0.1)
    with pytest.raises(Crash):
        apply_in_parts(plan, spread)
    (journal,) = find_journals(root)
    assert len(leftovers(journal.area)) == 1
    for go_further in (undo, resume, partial(apply, journal.plan)):
        monkeypatch.setattr(part_journals.close_parts, "__kwdefaults__", {"patience": 0.2})
        with pytest.raises(ChangeRefusedError, match="still at work on its files; try again"):
            go_further() if isinstance(go_further, partial) else go_further(journal)
    monkeypatch.setattr(part_journals.close_parts, "__kwdefaults__", {"patience": 20})
    threading.Timer(0.3, go_on.set).start()
    began = time.monotonic()
    finished = resume(journal)
    assert time.monotonic() - began > 0.2
    assert (finished.phase, contents(root)) == ("applied", planned)
    while not found:
        time.sleep(0.01)
    assert found[0].files == 1
    assert "is gone" in str(found[0].error)


def test_a_part_stops_when_a_broker_comes(root, plan):
    (root / ".lock").unlink()
    before = contents(root)
    code = (
        "import sys; from kafkastore.fs import LockFile\n"
        "LockFile(sys.argv[1], create=True); print(flush=True); sys.stdin.read()"
    )
    brokers = []

    def spread(work, parts):
        if work is apply_part:
            brokers.append(
                subprocess.Popen(
                    [sys.executable, "-c", code, str(root / ".lock")],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                )
            )
            brokers[0].stdout.readline()
        return one_by_one(work, parts)

    try:
        journal, parts = apply_in_parts(plan, spread)
    finally:
        brokers[0].communicate()
    for part in parts:
        assert re.search(r"process \d+ holds .*\.lock: stop the broker", str(part.error))
    assert journal.phase == "applying"
    (root / ".lock").unlink()
    assert contents(root) == before


def test_two_drivers_do_not_work_on_one_area(root, plan, monkeypatch):
    """Where directories can't be locked, as on some network file systems, the lease tells."""
    journal, _ = apply_in_parts(plan, one_by_one)
    with open_parts(journal.area, FileSystem()):
        monkeypatch.setattr(part_journals.close_parts, "__kwdefaults__", {"patience": 0.1})
        with pytest.raises(ChangeRefusedError, match="another job is at work there"):
            undo(journal)
    monkeypatch.undo()
    assert undo(journal).phase == "undone"


def test_two_drivers_that_come_at_once_do_not_both_begin(root, plan):
    """Each has made a folder before it looks for the other's."""
    journal, _ = apply_in_parts(plan, one_by_one)
    with (
        open_parts(journal.area, FileSystem()),
        pytest.raises(ChangeRefusedError, match="is held: another job is at work there"),
        open_parts(journal.area, FileSystem()),
    ):
        raise AssertionError
    assert undo(journal).phase == "undone"
    assert leftovers(journal.area) == []


FORKING = """
import os, sys, time
from pathlib import Path
from kafkastore.changes.part_journals import open_parts
from kafkastore.changes.sole_user import sole_user
from kafkastore.fs import FileSystem
with sole_user(Path(sys.argv[1])), open_parts(Path(sys.argv[2]), FileSystem()):
    if os.fork():
        os.kill(os.getpid(), 9)
    print(os.getpid(), flush=True)  # of the child, which has given back by now what it should
    time.sleep(600)
"""


def test_children_of_a_driver_do_not_hold_what_it_held(root, plan):
    journal, _ = apply_in_parts(plan, one_by_one)
    command = [sys.executable, "-c", FORKING, str(root), str(journal.area)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as driver:
        child = int(driver.stdout.readline())
        try:
            driver.wait(20)
            assert len(leftovers(journal.area)) == 1
            assert undo(journal).phase == "undone"
            assert leftovers(journal.area) == []
            os.kill(child, 0)  # it lives
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_file_system_that_cannot_lock_files_is_refused(root, plan, monkeypatch):
    def no_locks(descriptor, kind):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    before = contents(root)
    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(ChangeRefusedError, match=r"can't be locked.*do it in one process"):
        apply_in_parts(plan, one_by_one)
    assert contents(root) == before


def test_a_part_may_be_read_while_its_lines_go_into_the_journal(root, plan):
    """`changes list` reads whenever it likes."""
    seen = []

    class Reading(FileSystem):
        def fsync_directory(self, path, **where):
            super().fsync_directory(path, **where)
            seen.extend(len(each.changed) for each in find_journals(root))

    apply_in_parts(plan, on(fs := Reading()), fs=fs)
    assert seen == sorted(seen)
    assert seen[-1] == len(plan.changes)


@pytest.mark.parametrize("torn", [False, True])
def test_a_crash_at_any_call_leaves_whole_files_and_a_rerun_finishes(
    root, plan, planned, check_each_old_or_new, torn
):
    before = contents(root)
    calls = count_calls(partial(in_parts, plan))
    remove(undo(apply(plan)))
    assert calls > 100
    reruns = [apply, lambda plan: apply_in_parts(plan, one_by_one)[0], resumed]
    for at in range(calls):
        with pytest.raises(Crash):
            in_parts(plan, CrashingFileSystem(at, torn=torn))
        check_each_old_or_new()
        if at % 2:
            assert reruns[at // 2 % 3](plan).phase == "applied"
            assert contents(root) == planned
        for journal in find_journals(root):
            remove(undo(journal))
        assert contents(root) == before


@pytest.mark.parametrize("name", ["migrate auto", "reindex", "repair keep"])
def test_power_loss_while_a_job_applies_in_parts(tmp_path, name):
    top = tmp_path / "disk"
    top.mkdir()
    trial = Trial(jobs.make(name, top))
    trial.start.write(top)
    disk = RecordedDisk(top)
    apply_in_parts(trial.job.plan, on(disk), fs=disk)
    disk.note()
    states = states_of(disk, random.Random(SEED))
    trial.check(random.Random(SEED).sample(states, min(len(states), 60)))


def test_part_journal_reads_what_a_killed_task_has_written(tmp_path):
    area = tmp_path / "area"
    area.mkdir()
    with open_parts(area, FileSystem()) as folder:
        path = area / folder / "000003.jsonl"
        path.write_bytes(b'{"event": "changed", "path": "a"}\n{"event": "chan')
        with part_journal(area / folder, 3, FileSystem()) as (writer, changed, _):
            assert changed == {"a"}
            writer.step("changed", "b")
        with part_journal(area / folder, 3, FileSystem()) as (_, changed, _):
            assert changed == {"a", "b"}


DRIVER = """
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from kafkastore import migration
from kafkastore.changes.parts import apply_in_parts
if __name__ == "__main__":
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        apply_in_parts(migration.plan(migration.survey(sys.argv[1])), pool.map)
"""


@pytest.mark.soak
@pytest.mark.parametrize("dies", ["all", "driver"])
def test_killed_drivers_leave_nothing_that_resume_and_undo_do_not_finish(
    golden, tmp_path, monkeypatch, dies
):
    """Workers that outlive their driver go on until they see that it is gone."""
    monkeypatch.undo()  # real flushes, which take their time
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
            while process.poll() is None and changed_in_parts(root) < wanted:
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


def changed_in_parts(root):
    """How many files the workers have changed so far."""
    found = 0
    for path in root.parent.glob("*undo*/parts-*/*.jsonl"):
        with suppress(FileNotFoundError):
            found += path.read_bytes().count(b"changed")
    return found
