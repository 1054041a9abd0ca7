"""Each job, interrupted at every call, with every loss of unflushed data that POSIX allows.

`changes.power_loss` describes the model. Where there are too many states, a random sample is
tested; each failure names its seed.
"""

import os
import random
import re
from contextlib import suppress

import pytest
from changes import jobs
from changes.faults import Crash
from changes.power_loss import RecordedDisk, states_of
from changes.small_store import contents, tree
from changes.trial import Trial
from models.seed import SEED, some

from kafkastore.changes.apply import apply
from kafkastore.changes.areas import find_journals
from kafkastore.changes.copy_store import COPYING_SUFFIX, copy_store
from kafkastore.changes.resume import resume
from kafkastore.changes.undo import undo
from kafkastore.errors import KafkaStoreError


@pytest.fixture(autouse=True)
def _same_time_always(monkeypatch):
    """Make two runs that write the same leave the same state."""
    monkeypatch.setattr("time.time_ns", lambda: 1_600_000_000_000_000_000)


@pytest.fixture
def top(tmp_path):
    top = tmp_path / "disk"
    top.mkdir()
    return top


@pytest.fixture(params=jobs.JOBS)
def job(request, top):
    return jobs.make(request.param, top)


@pytest.fixture
def trial(job):
    return Trial(job)


def test_power_loss_while_a_job_applies(trial):
    trial.check(some(states_of(trial.applying, random.Random(SEED)), 12))


def test_power_loss_while_a_job_is_undone(trial):
    trial.check(some(states_of(trial.undone(), random.Random(SEED)), 8))


@pytest.mark.soak
def test_power_loss_while_a_job_applies_and_is_undone_in_many_states(trial):
    for disk in (trial.applying, trial.undone()):
        trial.check(some(states_of(disk, random.Random(SEED)), 30))


def test_completed_changes_are_never_lost(trial):
    """After a job has returned, no unflushed data is needed."""
    job = trial.job
    for disk, wanted in ((trial.applying, trial.planned), (trial.undone(), job.before)):
        disk.moments[:-1] = []
        for state in states_of(disk, random.Random(SEED)):
            state.write(job.top)
            assert tree(job.root) == wanted
            (journal,) = find_journals(job.root)
            assert journal.is_finished


def run_after_kill(trial, at, run_again):
    """Record a killed run and the next run, before the kernel has flushed the first."""
    trial.start.write(trial.job.top)
    disk = RecordedDisk(trial.job.top)
    disk.crash_at = at
    with suppress(Crash):
        apply(trial.job.plan, threads=1, fs=disk)
    disk.crash_at = None
    disk.moments.clear()
    for journal in find_journals(trial.job.root):
        run_again(journal, fs=disk)
    disk.note()
    return disk


def killed_states(trial, points, run_again):
    """Return the states that only a kill followed by a loss of power can leave."""
    known = {state.seen() for state in states_of(trial.applying, random.Random(SEED))}
    found = {}
    for at in points:
        disk = run_after_kill(trial, at, run_again)
        for state in states_of(disk, random.Random(SEED)):
            if state.seen() not in known:
                found.setdefault(state.seen(), state)
    return list(found.values())


@pytest.mark.parametrize("run_again", [resume, undo], ids=["resume", "undo"])
@pytest.mark.parametrize("name", ["repair skip", "reindex"])
def test_power_loss_in_the_run_after_a_kill(top, name, run_again):
    trial = Trial(jobs.make(name, top))
    points = some(range(trial.applying.calls), 4)
    trial.check(some(killed_states(trial, points, run_again), 12))


@pytest.mark.soak
@pytest.mark.parametrize("run_again", [resume, undo], ids=["resume", "undo"])
@pytest.mark.parametrize("name", some(["migrate auto", "repair truncate", "convert"], 1, "killed"))
def test_power_loss_in_the_run_after_a_kill_at_many_calls(top, name, run_again):
    trial = Trial(jobs.make(name, top))
    points = some(range(trial.applying.calls), 10)
    trial.check(some(killed_states(trial, points, run_again), 40))


class CarelessDisk(RecordedDisk):
    """A disk that skips every flush of one kind of file or directory."""

    def __init__(self, top, kind):
        super().__init__(top)
        self._kind = kind

    def _flush(self, node):
        path = {node: path for path, node in self.live.paths()}.get(node, "")
        if not re.fullmatch(self._kind, path):
            super()._flush(node)


UNDO_AREA = r"[^/]+kafkastore-undo-[^/]+"


@pytest.mark.parametrize(
    "kind",
    some([
        pytest.param(r".*\.log\.new", id="new logs"),
        pytest.param(r".*index\.new", id="new indexes"),
        pytest.param(r".*plan\.json\.new", id="the plan"),
        pytest.param("", id="the name of the undo area"),
        pytest.param(UNDO_AREA, id="names in the undo area"),
        pytest.param(UNDO_AREA + "/kept", id="names of directories of kept files"),
        pytest.param(UNDO_AREA + "/kept/.+", id="names of kept files"),
        pytest.param("kafka-logs/.+", id="names of logs"),
    ], 4),
)
def test_the_trial_finds_missing_flushes(top, kind):
    trial = Trial(jobs.make("repair skip", top))
    trial.start.write(top)
    disk = CarelessDisk(top, kind)
    apply(trial.job.plan, threads=1, fs=disk)
    disk.note()
    with pytest.raises((AssertionError, KafkaStoreError)):
        trial.check(states_of(disk, random.Random(SEED)))
    trial.start.write(top)
    disk = CarelessDisk(top, "nothing")
    apply(trial.job.plan, threads=1, fs=disk)
    assert disk.calls == trial.applying.calls


@pytest.fixture
def copying(top):
    """Return a recorded copy: source, destination, initial state and disk."""
    job = jobs.make("migrate auto", top)
    disk = RecordedDisk(top)
    start, destination = disk.live.copy(), top / "copy"
    copy_store(job.root, destination, fs=disk)
    disk.note()
    return job.root, destination, start, disk


def test_power_loss_while_a_store_is_copied(top, copying):
    root, destination, _, disk = copying
    before = contents(root)
    for state in some(states_of(disk, random.Random(SEED)), 20):
        check_copy(state, top, root, destination, before)
    disk.moments[:-1] = []
    for state in states_of(disk, random.Random(SEED)):
        state.write(top)
        assert contents(destination) == before


@pytest.mark.soak
def test_power_loss_in_the_copy_after_a_kill(top, copying):
    root, destination, start, complete = copying
    before, seen = contents(root), set()
    for at in some(range(complete.calls), 8):
        start.write(top)
        disk = RecordedDisk(top)
        disk.crash_at = at
        with suppress(Crash):
            copy_store(root, destination, fs=disk)
        disk.crash_at = None
        disk.moments.clear()
        if not destination.exists():
            copy_store(root, destination, fs=disk)
        disk.note()
        for state in some(states_of(disk, random.Random(SEED)), 40):
            if state.seen() not in seen:
                seen.add(state.seen())
                check_copy(state, top, root, destination, before)


def check_copy(state, top, root, destination, before):
    """Check that the original is unchanged, and the copy complete or complete after a rerun."""
    state.write(top)
    assert contents(root) == before
    assert set(os.listdir(top)) <= {root.name, "copy", "copy" + COPYING_SUFFIX}
    if not destination.exists():
        copy_store(root, destination)
    assert contents(destination) == before
    assert sorted(os.listdir(top)) == ["copy", root.name]
