"""``kafkastore groups``: groups, their members and committed offsets."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.tables import format_count, format_value, print_table
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.jobs.groups import GroupsJob, group_row, member_row, offset_rows
from kafkastore.use_cases.groups import Assigned, Group


@store_command("metadata", "tz", "spark")
@click.option(
    "--group", "names", multiple=True, metavar="NAME",
    help="Only this group, with its committed offsets; may be repeated.",
)
def command(call: StoreCall, names: tuple[str, ...]) -> int:
    """Show groups: kind, state, members, assignments and committed offsets.

    PATH has partitions of __consumer_offsets. The state is the one that a coordinator has after it
    has loaded the group. With the cluster's metadata, topics have names instead of ids.
    """
    job = GroupsJob(names)
    topics = _topic_names(call)
    found = []
    with call.executor("reading groups", is_streamed=False) as runner:
        items = call.items(job)
        call.problems.expect(len(items) - len(call.selection.topic_partitions))  # only these
        for _, of_partition in call.readable(job, items, runner):
            found += of_partition
    found.sort(key=lambda group: group.group)
    there = {group.group for group in found}
    if missing := [name for name in names if name not in there]:
        raise click.UsageError(f"no group {', '.join(missing)} in the directories")
    if call.as_json:
        for group in found:
            _write_json(group, topics)
    else:
        _print(call, found, topics, with_offsets=bool(names))
    return call.problems.exit_code


def _topic_names(call: StoreCall) -> Mapping[str, str]:
    """Return the names of topics by their ids, as far as the metadata is here."""
    cluster = call.cluster
    if cluster is None:
        return {}
    return {topic_id: topic.name for topic_id, topic in cluster.topics_by_id.items()}


def _write_json(group: Group, topics: Mapping[str, str]) -> None:
    write_json({"kind": "group", **group_row(group)})
    for member in group.members:
        row = member_row(group, member)
        named = {
            name: [
                {**each, "topic": topics.get(each["topic"], each["topic"])} for each in row[name]
            ]
            for name in ("assigned", "target")
        }
        write_json({"kind": "member", **row, **named})
    for row in offset_rows(group):
        write_json({"kind": "offset", **row})


def _print(
    call: StoreCall, found: Sequence[Group], topics: Mapping[str, str], *, with_offsets: bool
) -> None:
    """Print groups, their members and, if requested, offsets as tables."""
    if found:
        print_table(
            ["group", "type", "state", "epoch", "protocol", "members", "offsets"],
            (
                [
                    row["group"], row["type"], row["state"].replace("-", " "),
                    format_value(row["epoch"]),
                    format_value(row["protocol"]), str(row["members"]), str(row["offsets"]),
                ]
                for row in map(group_row, found)
            ),
            right="epoch,members,offsets",
        )
    members = [(group, member) for group in found for member in group.members]
    if members:
        print("\nmembers")
        print_table(
            ["group", "member", "client", "host", "epoch", "assigned"],
            (
                [
                    group.group, member.instance_id or member.member_id, member.client_id,
                    member.client_host, format_value(member.epoch),
                    _assigned(member.assigned, topics),
                ]
                for group, member in members
            ),
            right="epoch", prose="assigned",
        )
    if with_offsets:
        print("\ncommitted offsets")
        print_table(
            ["group", "partition", "offset", "committed"],
            (
                [
                    row["group"], f"{row['topic']}-{row['partition']}", str(row["offset"]),
                    call.format_time(row["commit_timestamp"]),
                ]
                for group in found
                for row in offset_rows(group)
            ),
            right="offset",
        )
    print(format_count(len(found), "group"))


def _assigned(assigned: Sequence[Assigned], topics: Mapping[str, str]) -> str:
    """Return partitions as ``topic: 0, 1``."""
    return "; ".join(
        f"{each.kind + ' ' if each.kind else ''}{topics.get(each.topic, each.topic)}: "
        f"{', '.join(map(str, each.partitions))}"
        for each in assigned
    ) or "-"
