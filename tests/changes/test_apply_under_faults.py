"""Altering calls fail in every way: files stay complete, a rerun finishes, undo restores.

Each run tests a third of the calls, chosen by its seed.
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
    """Return one partition of the plan: each kind of change once."""
    return Plan(plan.root, plan.job, plan.changes[:5])


@pytest.fixture
def short_planned(root, planned):
    before = contents(root)
    return {
        path: (before if path.startswith("orders-1/") else planned)[path]
        for path in before.keys() | planned.keys()
        if path in (before if path.startswith("orders-1/") else planned)
    }




@pytest.mark.parametrize("torn", [False, True])
def test_after_a_crash_at_any_call_of_apply_files_are_complete_and_a_rerun_finishes(
    root, short_plan, short_planned, check_each_old_or_new, torn
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
        assert contents(root) == short_planned
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


def test_after_a_crash_at_any_call_of_undo_files_are_complete_and_a_rerun_finishes(
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


def test_repeated_crashes_and_reruns_finish(root, short_plan, short_planned, check_each_old_or_new):
    before = contents(root)
    choose = random.Random(SEED)
    for _ in range(24 // one_in(3)):
        for _ in range(50):
            with suppress(Crash):
                apply(short_plan, threads=1, fs=CrashingFileSystem(choose.randrange(60), torn=True))
                break
            check_each_old_or_new()
        apply(short_plan)
        assert contents(root) == short_planned
        (journal,) = find_journals(root)
        for _ in range(50):
            with suppress(Crash):
                undo(journal, threads=1, fs=CrashingFileSystem(choose.randrange(60), torn=True))
                break
            check_each_old_or_new()
        undo(journal)
        assert contents(root) == before


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EINTR, errno.EDQUOT])
def test_after_an_error_at_any_call_files_are_complete_and_a_rerun_finishes(
    root, short_plan, short_planned, check_each_old_or_new, error
):
    before = contents(root)
    calls = count_calls(lambda fs: apply(short_plan, threads=1, fs=fs))
    remove(undo(apply(short_plan)))
    for at in some(range(calls), calls // 3):
        with suppress(OSError):  # a failed link is replaced by a copy, an EINTR is retried
            apply(short_plan, threads=1, fs=FailingFileSystem(at, error))
        check_each_old_or_new()
        assert apply(short_plan).phase == "applied"
        assert contents(root) == short_planned
        journal = apply(short_plan)
        with suppress(OSError):
            undo(journal, threads=1, fs=FailingFileSystem(at, error))
        check_each_old_or_new()
        remove(undo(journal))
        assert contents(root) == before


def test_a_failure_leaves_no_temporary_files_if_the_disk_still_works(root, short_plan):
    calls = count_calls(lambda fs: apply(short_plan, threads=1, fs=fs))
    remove(undo(apply(short_plan)))
    for at in some(range(calls), calls // 3):
        fs = FailingFileSystem(at, errno.EIO)
        with suppress(OSError):
            apply(short_plan, threads=1, fs=fs)
        if fs.calls[at] != "unlink":
            assert not list(root.glob("*/kafkastore-*")), fs.calls[at]
        remove(undo(apply(short_plan)))


def test_hard_links_that_are_not_allowed_are_replaced_by_copies_everywhere(
    root, short_plan, short_planned
):
    before = contents(root)

    class NoLinks(CountingFileSystem):
        def link(self, source, target, **where):
            raise PermissionError(errno.EPERM, "Operation not permitted")

        def clone(self, descriptor, source):
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    calls = count_calls(lambda _: apply(short_plan, threads=1, fs=NoLinks()))
    assert calls == 0
    assert contents(root) == short_planned
    remove(undo(apply(short_plan), threads=1, fs=NoLinks()))
    assert contents(root) == before


@pytest.mark.parametrize("free", some(range(0, 3000, 37), 27))
def test_after_a_full_disk_files_are_complete_and_a_rerun_finishes(
    root, short_plan, short_planned, check_each_old_or_new, free
):
    before = contents(root)
    with suppress(OSError):
        apply(short_plan, threads=1, fs=FullDisk(free))
    check_each_old_or_new()
    assert apply(short_plan).phase == "applied"
    assert contents(root) == short_planned
    undo(apply(short_plan))
    assert contents(root) == before


def test_short_writes_and_signals_do_not_change_the_result(root, plan, planned):
    before = contents(root)
    journal = apply(plan, threads=1, fs=ShortWrites())
    assert contents(root) == planned
    undo(journal, threads=1, fs=ShortWrites())
    assert contents(root) == before
