"""Altering calls fail, in every way: files stay whole, a rerun finishes, undo goes back.

A third of the calls in each run, by its seed.
"""

import errno
import random
from contextlib import suppress

import pytest
from changes.faults import (
    CountingFileSystem,
    Crash,
    CrashingFileSystem,
    FailingFileSystem,
    FullDisk,
    ShortWrites,
    count_calls,
)
from changes.small_store import contents
from models.seed import SEED, one_in, some

from kafkastore.changes.apply import apply
from kafkastore.changes.areas import find_journals, remove
from kafkastore.changes.plan import Plan
from kafkastore.changes.undo import undo


@pytest.fixture
def short_plan(plan):
    """One partition of the plan: each kind of change once."""
    return Plan(plan.root, plan.job, plan.changes[:5])


@pytest.fixture
def half_planned(root, planned):
    before = contents(root)
    return {
        path: (before if path.startswith("orders-1/") else planned)[path]
        for path in before.keys() | planned.keys()
        if path in (before if path.startswith("orders-1/") else planned)
    }




@pytest.mark.parametrize("torn", [False, True])
def test_a_crash_at_any_call_of_apply_leaves_whole_files_and_a_rerun_finishes(
    root, short_plan, half_planned, check_each_old_or_new, torn
):
    before = contents(root)
    calls = count_calls(lambda fs: apply(short_plan, threads=1, fs=fs))
    remove(undo(apply(short_plan)))
    assert calls > 40
    for at in some(range(calls), calls // 3):
        with pytest.raises(Crash):
            apply(short_plan, threads=1, fs=CrashingFileSystem(at, torn=torn))
        check_each_old_or_new()
        assert apply(short_plan).phase == "applied"
        assert contents(root) == half_planned
        remove(undo(apply(short_plan)))
        assert contents(root) == before


def test_a_crash_at_any_call_of_apply_can_be_undone(root, short_plan, check_each_old_or_new):
    before = contents(root)
    calls = count_calls(lambda fs: apply(short_plan, threads=1, fs=fs))
    remove(undo(apply(short_plan)))
    for at in some(range(calls), calls // 3):
        with pytest.raises(Crash):
            apply(short_plan, threads=1, fs=CrashingFileSystem(at))
        for journal in find_journals(root):
            remove(undo(journal))
        assert contents(root) == before


def test_a_crash_at_any_call_of_undo_leaves_whole_files_and_a_rerun_finishes(
    root, short_plan, check_each_old_or_new
):
    before = contents(root)
    journal = apply(short_plan)
    calls = count_calls(lambda fs: undo(journal, threads=1, fs=fs))
    remove(journal.area)
    assert calls > 30
    for at in some(range(calls), calls // 3):
        journal = apply(short_plan)
        with pytest.raises(Crash):
            undo(journal, threads=1, fs=CrashingFileSystem(at))
        check_each_old_or_new()
        undo(journal)
        assert contents(root) == before
        remove(journal)


def test_crash_after_crash_comes_to_an_end(root, short_plan, half_planned, check_each_old_or_new):
    before = contents(root)
    choose = random.Random(SEED)
    for _ in range(24 // one_in(3)):
        for _ in range(50):
            with suppress(Crash):
                apply(short_plan, threads=1, fs=CrashingFileSystem(choose.randrange(60), torn=True))
                break
            check_each_old_or_new()
        apply(short_plan)
        assert contents(root) == half_planned
        (journal,) = find_journals(root)
        for _ in range(50):
            with suppress(Crash):
                undo(journal, threads=1, fs=CrashingFileSystem(choose.randrange(60), torn=True))
                break
            check_each_old_or_new()
        undo(journal)
        assert contents(root) == before


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EINTR, errno.EDQUOT])
def test_an_error_at_any_call_leaves_whole_files_and_a_rerun_finishes(
    root, short_plan, half_planned, check_each_old_or_new, error
):
    before = contents(root)
    calls = count_calls(lambda fs: apply(short_plan, threads=1, fs=fs))
    remove(undo(apply(short_plan)))
    for at in some(range(calls), calls // 3):
        with suppress(OSError):  # a link that fails is replaced by a copy, a signal by a retry
            apply(short_plan, threads=1, fs=FailingFileSystem(at, error))
        check_each_old_or_new()
        assert apply(short_plan).phase == "applied"
        assert contents(root) == half_planned
        journal = apply(short_plan)
        with suppress(OSError):
            undo(journal, threads=1, fs=FailingFileSystem(at, error))
        check_each_old_or_new()
        remove(undo(journal))
        assert contents(root) == before


def test_a_failure_leaves_no_temporary_behind_if_the_disk_still_works(root, short_plan):
    calls = count_calls(lambda fs: apply(short_plan, threads=1, fs=fs))
    remove(undo(apply(short_plan)))
    for at in some(range(calls), calls // 3):
        fs = FailingFileSystem(at, errno.EIO)
        with suppress(OSError):
            apply(short_plan, threads=1, fs=fs)
        if fs.calls[at] != "unlink":
            assert not list(root.glob("*/kafkastore-*")), fs.calls[at]
        remove(undo(apply(short_plan)))


def test_links_that_are_not_allowed_are_replaced_by_copies_at_every_place(
    root, short_plan, half_planned
):
    before = contents(root)

    class NoLinks(CountingFileSystem):
        def link(self, source, target, **where):
            raise PermissionError(errno.EPERM, "Operation not permitted")

        def clone(self, descriptor, source):
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    calls = count_calls(lambda _: apply(short_plan, threads=1, fs=NoLinks()))
    assert calls == 0
    assert contents(root) == half_planned
    remove(undo(apply(short_plan), threads=1, fs=NoLinks()))
    assert contents(root) == before


@pytest.mark.parametrize("free", some(range(0, 3000, 37), 27))
def test_a_full_disk_leaves_whole_files_and_a_rerun_finishes(
    root, short_plan, half_planned, check_each_old_or_new, free
):
    before = contents(root)
    with suppress(OSError):
        apply(short_plan, threads=1, fs=FullDisk(free))
    check_each_old_or_new()
    assert apply(short_plan).phase == "applied"
    assert contents(root) == half_planned
    undo(apply(short_plan))
    assert contents(root) == before


def test_short_writes_and_signals_change_nothing(root, plan, planned):
    before = contents(root)
    journal = apply(plan, threads=1, fs=ShortWrites())
    assert contents(root) == planned
    undo(journal, threads=1, fs=ShortWrites())
    assert contents(root) == before
