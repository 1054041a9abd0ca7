"""Plans, as people and machines read them."""
from __future__ import annotations

from kafkastore.changes.plan import FileChange, Plan, change_to_json
from kafkastore.cli.json_lines import write_json
from kafkastore.cli.tables import counted, print_table, show_size


def print_plan(plan: Plan, *, as_json: bool) -> None:
    """Print a plan: all that would be altered.

    Parameters
    ----------
    plan : Plan
        The plan.
    as_json : bool
        As JSON: a line for the plan, and a line for each change as the plan itself keeps it.
    """
    if as_json:
        write_json(
            {
                "kind": "plan",
                "id": plan.id,
                "root": plan.root,
                "job": plan.job,
                "files": len(plan.changes),
                "new_bytes": plan.new_bytes,
            }
        )
        for change in plan.changes:
            write_json({"kind": "change", **change_to_json(change)})
        return
    if not plan.changes:
        print(f"{plan.job}: nothing to change")
        return
    print(
        f"{plan.job}: {counted(len(plan.changes), 'file')}, "
        f"{show_size(plan.new_bytes)} of new bytes"
    )
    print_table(
        ["change", "file", "bytes", "why"],
        ([action(each), each.path, _sizes(each), each.reason] for each in plan.changes),
        right="bytes",
        prose="why",
    )


def action(change: FileChange) -> str:
    """Say in a word what becomes of a file."""
    if change.before is None:
        return "create"
    return "remove" if change.after is None else "replace"


def _sizes(change: FileChange) -> str:
    sizes = [str(state.size) for state in (change.before, change.after) if state is not None]
    return " -> ".join(sizes)
