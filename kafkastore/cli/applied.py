"""Carrying out plans, finishing and undoing them: a bar meanwhile, a word at the end."""
from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kafkastore.changes.apply import apply
from kafkastore.changes.cut_areas import is_cut_area
from kafkastore.changes.journal import Journal, find_journals
from kafkastore.changes.parts import DonePart, Spread, apply_in_parts, resume_in_parts
from kafkastore.changes.plan import Plan
from kafkastore.changes.run import Progress
from kafkastore.changes.undo import resume, undo
from kafkastore.changes.undo_area import area_of
from kafkastore.cli.changes_command import changes_command
from kafkastore.cli.failures import left_behind_is_told, note
from kafkastore.cli.few_lines import few_lines
from kafkastore.cli.json_lines import write_json
from kafkastore.cli.progress import progress
from kafkastore.cli.tables import counted
from kafkastore.cli.visible import visible
from kafkastore.errors import KafkaStoreError


class NoJournalError(KafkaStoreError):
    """A directory that is no undo area."""


def apply_plan(
    plan: Plan, undo_dir: Path | None, *, as_json: bool, master: str | None = None
) -> None:
    """Carry out a plan and say what was done.

    Parameters
    ----------
    plan : Plan
        The plan; one without changes does nothing.
    undo_dir : path, optional
        Where the undo area is made.
    as_json : bool
        Say it as JSON.
    master : str, optional
        The Spark whose executors do it; else threads do.
    """
    threads = os.cpu_count() or 1
    area = area_of(plan, undo_dir)
    if master is None:
        journal = _run(
            "changing",
            plan,
            area,
            lambda progress: apply(plan, undo_dir, progress=progress, threads=threads),
        )
    else:
        journal = _run_on_spark(
            master, "changing", area, lambda spread: apply_in_parts(plan, spread, undo_dir)
        )
    _tell("applied", journal, as_json=as_json)


def finish(
    area: Path,
    *,
    as_json: bool,
    root: Path | None = None,
    trust_area: bool = False,
    master: str | None = None,
    verbose: bool = False,
) -> None:
    """Finish what was interrupted, applying or undoing, and say what was done.

    Parameters
    ----------
    area : path
        The undo area.
    as_json : bool
        Say it as JSON.
    root : path, optional
        The directory that was changed, if the area does not lie beside it.
    trust_area : bool
        Take an area that others may have written.
    master : str, optional
        The Spark whose executors finish what was being applied; else, and to finish an undoing,
        threads do.
    verbose : bool
        Name every file that was left alone.
    """
    journal = open_journal(area, root)
    if journal.is_finished:
        _tell_nothing_done(journal, as_json=as_json)
        return
    if master is None or journal.phase == "undoing":
        done = _run(
            "finishing",
            journal.plan,
            area,
            lambda progress: resume(
                journal, trust_area=trust_area, progress=progress, threads=os.cpu_count() or 1
            ),
        )
    else:
        done = _run_on_spark(
            master,
            "finishing",
            area,
            lambda spread: resume_in_parts(journal, spread, trust_area=trust_area),
        )
    _tell(done.phase, done, as_json=as_json, verbose=verbose)


def go_back(
    area: Path,
    *,
    leave_changed: bool,
    as_json: bool,
    root: Path | None = None,
    trust_area: bool = False,
    verbose: bool = False,
) -> int:
    """Undo a plan and say what was done.

    Parameters
    ----------
    area : path
        The undo area.
    leave_changed : bool
        Leave files that somebody changed since, rather than refuse.
    as_json : bool
        Say it as JSON.
    root, trust_area, verbose : path, bool, bool
        As of `finish`.

    Returns
    -------
    int
        The exit code: 1 if files were left.
    """
    journal = open_journal(area, root)
    if journal.phase == "undone" and not journal.left:
        _tell_nothing_done(journal, as_json=as_json)
        return 0
    done = _run(
        "undoing",
        journal.plan,
        area,
        lambda progress: undo(
            journal,
            trust_area=trust_area,
            leave_changed=leave_changed,
            progress=progress,
            threads=os.cpu_count() or 1,
        ),
    )
    _tell("undone", done, as_json=as_json, verbose=verbose)
    return 1 if done.left else 0


def open_journal(area: Path, root: Path | None = None) -> Journal:
    """Open the journal in an undo area, of the directory that was named.

    Raises
    ------
    NoJournalError
        If there is none.
    """
    if is_cut_area(area):
        raise NoJournalError(
            f"{area} holds what a recovery cut, and the log may have grown since: nothing is put "
            "back by itself; kafkastore changes remove deletes it"
        )
    try:
        return Journal.open(area, root)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NoJournalError(
            f"{area} is no undo area; kafkastore changes list LOG_DIR names those of a directory"
        ) from error


def unfinished(path: Path, undo_dir: Path | None) -> list[Journal]:
    """List the plans that were interrupted in a directory."""
    return [each for each in find_journals(path, undo_dir) if not each.is_finished]


def _run(
    what: str, plan: Plan, area: Path, work: Callable[[Progress], Journal]
) -> Journal:
    """Do some work on a plan's files; if it is cut short, say how to finish it."""
    with (
        progress(what, len(plan.changes)) as advance,
        left_behind_is_told(partial(_left_behind, area)),
    ):
        return work(lambda change: advance(1))


def _run_on_spark(
    master: str,
    what: str,
    area: Path,
    work: Callable[[Spread], tuple[Journal, tuple[DonePart, ...]]],
) -> Journal:
    """Do some work on a plan's parts by Spark; the first part that failed is what went wrong."""
    from kafkastore.cli.on_spark import executor
    from kafkastore.spark.jobs.changing import by_executors

    with executor(master, what) as run, left_behind_is_told(partial(_left_behind, area)):
        journal, parts = work(by_executors(run))
        for part in parts:
            if part.error is not None:
                raise part.error
        return journal


def _left_behind(area: Path) -> str | None:
    """Say how far a plan got, and how it goes on; None if it is finished, or was never begun."""
    try:
        journal = Journal.open(area)
    except (OSError, KafkaStoreError):
        return None
    if journal.is_finished:
        return None
    files = counted(len(journal.plan.changes), "file")
    resume, undo = (changes_command(verb, area, journal.plan.root) for verb in ("resume", "undo"))
    return (
        f"{len(journal.changed):,} of {files} are changed, each wholly or not at all; "
        f"{resume} finishes, {undo} goes back"
    )


def _tell_nothing_done(journal: Journal, *, as_json: bool) -> None:
    """Say that a change was applied or undone before, and nothing was left to do."""
    if as_json:
        _tell(journal.phase, journal, as_json=True)
    else:
        print(visible(f"already {journal.phase}, nothing to do: {journal.area}"))


def _tell(outcome: str, journal: Journal, *, as_json: bool, verbose: bool = False) -> None:
    """Say what was done, what not, and where the undo area lies."""
    files = len(journal.plan.changes)
    if as_json:
        write_json(
            {
                "kind": "result",
                "outcome": outcome,
                "root": str(journal.root) if files else journal.plan.root,
                "job": journal.plan.job,
                "files": files,
                "left": sorted(journal.left),
                "undo_area": str(journal.area) if files else None,
            }
        )
        return
    if not files:
        return
    if outcome == "applied":
        line = (
            f"done: {counted(files, 'file')} changed in {journal.root}\n"
            f"undo area: {journal.area}\n"
            f"to go back: {changes_command('undo', journal.area, journal.plan.root)}"
        )
    else:
        line = f"{outcome}: {counted(files - len(journal.left), 'file')} in {journal.root}"
    print(visible(line))
    reason = "was left alone: it, or what was kept of it, was changed since"
    left = ((None, f"{path} {reason}") for path in sorted(journal.left))
    for line in few_lines(left, verbose=verbose):
        note(line)
