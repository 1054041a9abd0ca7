"""Apply, resume and undo plans; show a progress bar, then print a summary."""
from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from kafkastore.changes.apply import apply
from kafkastore.changes.areas import is_recovery_area
from kafkastore.changes.journal import Journal
from kafkastore.changes.plan import Plan
from kafkastore.changes.resume import resume
from kafkastore.changes.undo import undo
from kafkastore.changes.undo_area import area_of
from kafkastore.cli.copies import upload_copy
from kafkastore.cli.options.change_options import ChangeOptions, PlanT
from kafkastore.cli.options.confirm import confirm
from kafkastore.cli.options.on_spark import executor
from kafkastore.cli.output.changes_command import changes_command
from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.failures import print_note, report_unfinished
from kafkastore.cli.output.grouped_lines import group_lines
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.partition_errors import Problems
from kafkastore.cli.output.progress import progress, to_progress_callback
from kafkastore.cli.output.tables import format_count
from kafkastore.cli.store_command import StoreCall
from kafkastore.errors import ChangeRefusedError, KafkaStoreError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.store.unread_partition import count_segments

FoundT = TypeVar("FoundT")


class NoJournalError(KafkaStoreError):
    """A directory that is not an undo area."""


def plan_directories(
    call: StoreCall,
    options: ChangeOptions,
    make: Callable[..., PlanT],
    problems: Problems,
) -> Iterator[PlanT]:
    """Yield the plan of each directory, or of the copy of it that is changed instead."""
    for path in call.paths:
        # Raises before anything is read or copied.
        problems.expect(len(call.select(path).topic_partitions))
    for path in options.directories(call.paths, problems, as_json=call.as_json):
        yield options.rooted(plan_directory(call, path, make))


def plan_directory(
    call: StoreCall,
    path: Path,
    make: Callable[..., PlanT],
    *,
    by_segment: bool = True,
) -> PlanT:
    """Make the plan for a directory's selected partitions, and show the progress.

    `by_segment`: the plan counts its progress by segments.
    """
    selection = call.select(path)
    partitions = frozenset(selection.topic_partitions)
    count = len(partitions)
    if by_segment and call.master is None:
        count = count_segments(selection.store.logs_of(partitions))
    return read_directory(call, path, partitions, make, count)


def read_directory(
    call: StoreCall,
    path: Path,
    partitions: Collection[TopicPartition],
    make: Callable[..., FoundT],
    count: int,
) -> FoundT:
    """Make a plan, or a survey for one, in threads or on Spark; show the progress."""
    what = f"reading {path.name}"
    if call.master is not None:
        with executor(call.master, what) as run:
            return make(path, partitions=partitions, runner=run)
    with progress(what, count) as advance:
        show = to_progress_callback(advance)
        return make(path, partitions=partitions, threads=call.threads, progress=show)


def apply_plans(
    call: StoreCall,
    options: ChangeOptions,
    plans: Sequence[Plan],
    problems: Problems,
    *,
    mtimes_are_kept: bool = False,
) -> None:
    """Apply plans, or upload a changed copy; confirm first, or only print how."""
    paths, as_json = call.paths, call.as_json
    changes = sum(len(plan.changes) for plan in plans)
    if options.is_plan_only:
        if changes and not as_json:
            print(options.hint)
        return
    if isinstance(options.copy_to, str):
        upload_copy(
            paths[0],
            options.copy_to,
            plans[0],
            problems,
            as_json=as_json,
            master=call.master,
            mtimes_are_kept=mtimes_are_kept,
        )
        return
    _check_apart(plans)
    if changes and options.asks:
        names = ", ".join(map(str, paths))
        confirm(f"Change {format_count(changes, 'file')} in {names}?", "nothing was changed")
    for plan in plans if changes else ():
        _apply_plan(plan, options.undo_dir, call)


def _check_apart(plans: Sequence[Plan]) -> None:
    """Refuse a root together with a partition in it: they share files."""
    roots: dict[str, str] = {}
    for plan in plans:
        real = os.path.realpath(plan.root)
        for change in plan.changes:
            other = roots.setdefault(os.path.join(real, change.path), plan.root)
            if other != plan.root:
                raise ChangeRefusedError(
                    f"{other} and {plan.root} hold the same files: name one of them"
                )


def _apply_plan(plan: Plan, undo_dir: Path | None, call: StoreCall) -> None:
    """Apply a plan and print a summary."""
    work = partial(apply, plan, undo_dir, threads=call.threads)
    journal = _run("changing", plan, area_of(plan, undo_dir), call.master, work)
    _print_done("applied", journal, as_json=call.as_json)


def resume_plan(
    area: Path,
    *,
    as_json: bool,
    root: Path | None = None,
    trust_area: bool = False,
    threads: int | None = None,
    master: str | None = None,
    verbose: bool = False,
) -> None:
    """Resume an interrupted apply or undo, and print a summary.

    `master` is the Spark master whose executors resume applying; `threads` always resume undoing.
    """
    journal = open_journal(area, root)
    if journal.is_finished:
        _print_nothing_done(journal, as_json=as_json)
        return
    done = _run(
        "finishing",
        journal.plan,
        area,
        master if journal.phase == "applying" else None,
        partial(resume, journal, trust_area=trust_area, threads=threads),
    )
    _print_done(done.phase, done, as_json=as_json, verbose=verbose)


def undo_plan(
    area: Path,
    *,
    leave_changed: bool,
    as_json: bool,
    root: Path | None = None,
    trust_area: bool = False,
    threads: int | None = None,
    verbose: bool = False,
) -> int:
    """Undo a plan and print a summary; return 1 if files were skipped."""
    journal = open_journal(area, root)
    if journal.phase == "undone" and not journal.left:
        _print_nothing_done(journal, as_json=as_json)
        return 0
    done = _run(
        "undoing",
        journal.plan,
        area,
        None,
        partial(
            undo,
            journal,
            trust_area=trust_area,
            leave_changed=leave_changed,
            threads=threads,
        ),
    )
    _print_done("undone", done, as_json=as_json, verbose=verbose)
    return 1 if done.left else 0


def open_journal(area: Path, root: Path | None = None) -> Journal:
    """Open the journal in an undo area; `root` is the directory that the user named."""
    if is_recovery_area(area):
        raise NoJournalError(
            f"{area} contains bytes that a recovery truncated; they cannot be restored "
            "automatically, because the log may have grown; kafkastore changes remove deletes them"
        )
    try:
        return Journal.open(area, root)
    except (FileNotFoundError, NotADirectoryError) as error:
        here = shlex.quote(str(area)) if area.is_dir() else "LOG_DIR"
        raise NoJournalError(
            f"{area} is not an undo area; kafkastore changes list {here} lists undo areas"
        ) from error


def _run(
    what: str, plan: Plan, area: Path, master: str | None, work: Callable[..., Journal]
) -> Journal:
    """Run `work` on a plan's files; if it is interrupted, print how to resume it."""
    describe = partial(_describe_unfinished, area)
    if master is None:
        with progress(what, len(plan.changes)) as advance, report_unfinished(describe):
            return work(progress=to_progress_callback(advance))
    with executor(master, what) as runner, report_unfinished(describe):
        journal = work(runner=runner)
        for failure in journal.failures:
            raise failure.error
        return journal


def _describe_unfinished(area: Path) -> str | None:
    """Return how far an unfinished plan is and how to continue, or None."""
    try:
        journal = Journal.open(area)
    except (OSError, KafkaStoreError):
        return None
    if journal.is_finished:
        return None
    files = format_count(len(journal.plan.changes), "file")
    resume, undo = (changes_command(verb, area, journal.plan.root) for verb in ("resume", "undo"))
    return (
        f"{len(journal.changed):,} of {files} are changed; {resume} finishes the change, "
        f"{undo} undoes it; each file is entirely old or entirely new"
    )


def _print_nothing_done(journal: Journal, *, as_json: bool) -> None:
    """Print that the plan was already applied or undone."""
    if as_json:
        _print_done(journal.phase, journal, as_json=True)
    else:
        print_text(f"already {journal.phase}, nothing to do: {journal.area}")


def _print_done(outcome: str, journal: Journal, *, as_json: bool, verbose: bool = False) -> None:
    """Print what was done, the skipped files, and the undo area."""
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
        print_text(
            f"done: {format_count(files, 'file')} changed in {journal.root}",
            f"undo area: {journal.area}",
            f"to undo: {changes_command('undo', journal.area, journal.plan.root)}",
        )
    else:
        changed = format_count(files - len(journal.left), "file")
        print_text(f"{outcome}: {changed} in {journal.root}")
    reason = "was skipped: the file or its saved copy has changed since"
    left = ((None, f"{path} {reason}") for path in sorted(journal.left))
    for line in group_lines(left, verbose=verbose):
        print_note(line)
