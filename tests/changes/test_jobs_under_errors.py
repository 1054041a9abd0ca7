"""Each job, with an error at every call, short writes and a full disk; and with two threads."""

import errno
import os
import random
import threading
from contextlib import suppress

import pytest
from changes import jobs
from changes.faults import (
    CALLS,
    Crash,
    CrashingFileSystem,
    FailingFileSystem,
    FullDisk,
    ShortWrites,
    count_calls,
)
from changes.small_store import contents, tree
from changes.trial import Trial
from models.refused import os_error
from models.seed import SEED, one_in, some

from kafkastore.changes.apply import apply
from kafkastore.changes.areas import find_journals
from kafkastore.changes.plan import Plan
from kafkastore.changes.resume import resume
from kafkastore.changes.undo import undo
from kafkastore.fs import FileSystem

ERRORS = [errno.EIO, errno.ENOSPC, errno.EINTR, errno.EDQUOT]
# One job of each kind of change: a split, a truncation, a removal, rebuilt indexes, a conversion.
FEW = ["repair skip from a later batch", "convert"]


@pytest.fixture
def top(tmp_path):
    top = tmp_path / "disk"
    top.mkdir()
    return top


def starts(trial):
    """Return what is run from which state: apply, resume in the middle, undo."""
    half = trial.applying.calls // 2
    trial.start.write(trial.job.top)
    with suppress(Crash):
        apply(trial.job.plan, threads=1, fs=CrashingFileSystem(half))
    middle = trial.state_now()
    return {
        "apply": (trial.start, lambda fs: apply(trial.job.plan, threads=1, fs=fs)),
        "resume": (middle, lambda fs: resume(trial.area, threads=1, fs=fs)),
        "undo half": (middle, lambda fs: undo(trial.area, threads=1, fs=fs)),
        "undo": (trial.done, lambda fs: undo(trial.area, threads=1, fs=fs)),
    }


def try_errors(trial, error, first, step):
    """Fail some of the calls, one a run; after each, rerun and undo must both work."""
    job = trial.job
    for start, run in starts(trial).values():
        start.write(job.top)
        calls = count_calls(run)
        assert calls > 10
        for at in range(first, calls, step):
            start.write(job.top)
            with suppress(OSError):  # a failed link is replaced by a copy, an EINTR is retried
                run(FailingFileSystem(at, error))
            trial.check(checked_state(trial, trial.state_now()))


def checked_state(trial, state):
    """Check the files of a state, and return it in a list."""
    trial.check_files()
    return [state]


@pytest.mark.parametrize("name", FEW)
def test_an_error_at_some_calls(top, name):
    step = one_in(9)
    try_errors(Trial(jobs.make(name, top)), errno.EIO, SEED % step, step)


@pytest.mark.soak
@pytest.mark.parametrize("name", some(list(jobs.JOBS), 3, "jobs under errors"))
def test_an_error_at_every_call(top, name):
    """The errors alternate; `test_apply_under_faults` tries each of them at each call."""
    trial = Trial(jobs.make(name, top))
    for number, error in enumerate(ERRORS):
        try_errors(trial, error, (number + SEED) % len(ERRORS), len(ERRORS))


@pytest.mark.parametrize("name", jobs.JOBS)
def test_short_writes_and_signals_do_not_change_the_result(top, name):
    trial = Trial(jobs.make(name, top))
    for start, run in starts(trial).values():
        start.write(top)
        run(ShortWrites())
        assert tree(trial.job.root) in (trial.planned, trial.job.before)
        trial.check(checked_state(trial, trial.state_now()))


@pytest.mark.parametrize("name", FEW)
def test_a_full_disk_at_any_byte(top, name):
    trial = Trial(jobs.make(name, top))
    choose = random.Random(SEED)
    for start, run in starts(trial).values():
        for free in choose.sample(range(4000), 12 // one_in(3)):
            start.write(top)
            with suppress(OSError):
                run(FullDisk(free))
            trial.check(checked_state(trial, trial.state_now()))


class BadPartition(FileSystem):
    """A disk on which one partition can't be written."""

    def __init__(self, name):
        self.name, self.done, self._lock = name, [], threading.Lock()

    def __getattribute__(self, name):
        real = super().__getattribute__(name)
        if name not in CALLS:
            return real

        def call(*arguments, **keywords):
            path = arguments[0]
            if isinstance(path, int):
                path = os.readlink(f"/dev/fd/{path}") if os.path.isdir("/dev/fd") else ""
            if name == "create" and self.name in str(path):
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            if name == "rename":
                with self._lock:
                    self.done.append(str(path))
            return real(*arguments, **keywords)

        return call


@pytest.fixture
def wide(top):
    """Return a job over four partitions."""
    plans = [jobs.JOBS[name](top / name) for name in ("reindex", "repair skip", "convert")]
    root = top / "kafka-logs"
    root.mkdir()
    for number, plan in enumerate(plans):
        (top / os.path.basename(plan.root) / "t-0").rename(root / f"t-{number}")
    return root


def plan_of(root):
    """Plan to rebuild the indexes of every partition of a directory."""
    return jobs.reindexed(root)


@pytest.mark.parametrize("bad", ["t-0", "t-1", "t-2"])
def test_an_error_in_one_partition_does_not_stop_the_others(top, wide, bad):
    plan = plan_of(wide)
    assert len({each.path.split("/")[0] for each in plan.changes}) == 3
    before = contents(wide)
    fs = BadPartition(f"/{bad}/")
    with os_error(errno.EIO):
        apply(plan, fs=fs, threads=2)
    assert not [path for path in contents(wide) if "kafkastore-" in path]
    (journal,) = find_journals(wide)
    assert journal.phase == "applying"
    for each in plan.changes:
        now, is_changed = contents(wide).get(each.path), each.path in journal.changed
        assert is_changed == (now != before.get(each.path))
        assert not (is_changed and each.path.startswith(bad + "/"))
    assert resume(journal, threads=2).phase == "applied"
    planned = contents(wide)
    assert undo(journal, threads=2).phase == "undone"
    assert contents(wide) == before
    with os_error(errno.EIO):
        apply(plan, fs=BadPartition(f"/{bad}/"), threads=2)
    undo(journal, threads=2)
    assert contents(wide) == before
    assert apply(plan, threads=2).phase == "applied"
    assert contents(wide) == planned


@pytest.mark.parametrize("threads", [2, 3])
def test_a_crash_at_any_call_of_threads(top, wide, threads):
    """The order differs from run to run; the invariants hold in each."""
    plan = Plan(str(wide), "test", plan_of(wide).changes)
    before = contents(wide)
    journal = apply(plan)
    planned = contents(wide)
    undo(journal)
    calls = count_calls(lambda fs: undo(apply(plan, threads=1, fs=fs), threads=1, fs=fs))
    for at in range(0, calls, 7):
        with suppress(Crash):
            fs = CrashingFileSystem(at, torn=True)
            undo(apply(plan, fs=fs, threads=threads), fs=fs, threads=threads)
        now = contents(wide)
        for path in before.keys() | planned.keys():
            assert now.get(path) in (before.get(path), planned.get(path))
        for journal in find_journals(wide):
            resume(journal, threads=threads)
        assert apply(plan, threads=threads).phase == "applied"
        assert contents(wide) == planned
        undo(journal, threads=threads)
        assert contents(wide) == before
