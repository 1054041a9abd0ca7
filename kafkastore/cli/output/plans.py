"""Print plans, for people and as JSON."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from kafkastore.changes.plan import (
    Content,
    FileChange,
    Inline,
    Plan,
    change_to_json,
    directory_to_json,
)
from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.grouped_lines import ItemGroup, group_items, group_lines
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.tables import format_count, print_table
from kafkastore.shown_text import format_size


def print_plans(plans: Sequence[Plan], *, as_json: bool, verbose: bool) -> None:
    """Print what plans change: first a summary of each, then the files.

    As JSON: a line for the plan, and a line for each new directory and each change as in the plan's
    own JSON.
    """
    if as_json:
        for plan in plans:
            _write_plan(plan)
        return
    for plan in plans:
        print_plan_summary(plan, is_one_of_several=len(plans) > 1)
    for plan in plans:
        print_plan_details(plan, verbose=verbose, is_one_of_several=len(plans) > 1)


def _write_plan(plan: Plan) -> None:
    """Write a plan as JSON."""
    write_json(
        {
            "kind": "plan",
            "id": plan.id,
            "root": plan.root,
            "job": plan.job,
            "files": len(plan.changes),
            "directories": len(plan.directories),
            "new_bytes": plan.new_bytes,
        }
    )
    for directory in plan.directories:
        write_json({"kind": "directory", **directory_to_json(directory)})
    for change in plan.changes:
        write_json({"kind": "change", **change_to_json(change)})


def print_plan_summary(plan: Plan, *, is_one_of_several: bool = False) -> None:
    """Print in one line how many files a plan changes, and how."""
    where = f"{plan.root}: " if is_one_of_several else ""
    if not plan.changes:
        print_text(f"{where}{plan.job}: nothing to change")
        return
    counts = [format_count(len(plan.changes), "file")]
    actions = Counter(map(action, plan.changes))
    if len(actions) > 1:
        counts[0] += f" ({', '.join(f'{word} {count:,}' for word, count in actions.items())})"
    if plan.directories:
        counts.append(format_count(len(plan.directories), "new directory", "new directories"))
    print_text(
        f"{where}{plan.job}: {', '.join(counts)}, {format_size(plan.new_bytes)} of new bytes"
    )


def print_plan_details(plan: Plan, *, verbose: bool, is_one_of_several: bool = False) -> None:
    """Print the files that a plan changes: all if `verbose`, else a few of each kind."""
    if not plan.changes:
        return
    if is_one_of_several:
        print_text(f"{plan.root}:")
    creates = ((None, f"creates {plan.root}/{each.name}") for each in plan.directories)
    print_text(*group_lines(creates, verbose=verbose))
    groups = group_items(plan.changes, _kind, verbose=verbose)
    rows = _rows(plan, groups)
    print_table(["change", "file", "bytes", "why"], rows, right="bytes", prose="why")
    if any(group.more for group in groups):
        print("--verbose lists every file")


def _rows(plan: Plan, groups: Sequence[ItemGroup[FileChange]]) -> Iterator[list[str]]:
    """Yield a row for each file to show, then one for the others."""
    shown = {each.path for group in groups for each in group.shown}
    for each in plan.changes:
        if each.path in shown:
            yield [action(each), each.path, _sizes(each), each.reason]
    for group in groups:
        if group.more:
            first = group.shown[0]
            more = f"{group.more:,} more {_suffix(first)}"
            yield [action(first), more, "", f"such as: {first.reason}"]


def _kind(change: FileChange) -> tuple[str, str, type[Content | None], bool]:
    """Return what changes of one kind have in common."""
    is_empty = change.content == Inline(b"")
    return action(change), _suffix(change), type(change.content), is_empty


def _suffix(change: FileChange) -> str:
    path = PurePosixPath(change.path)
    return path.suffix or path.name


def action(change: FileChange) -> str:
    """Return in one word what a change does to its file."""
    if change.before is None:
        return "create"
    return "remove" if change.after is None else "replace"


def _sizes(change: FileChange) -> str:
    sizes = [str(state.size) for state in (change.before, change.after) if state is not None]
    return " -> ".join(sizes)
