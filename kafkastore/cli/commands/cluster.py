"""``kafkastore cluster``: show the cluster that a metadata log describes."""
from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import tzinfo
from pathlib import Path
from typing import Any

import click

from kafkastore.cli.commands.best_replicas import command as best_replicas_command
from kafkastore.cli.options.secrets import show_secrets_option
from kafkastore.cli.options.selection import hint_at, paths_argument, topic_option
from kafkastore.cli.options.times import parse_moment, zone_option
from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.failures import print_note
from kafkastore.cli.output.json_lines import json_option, write_json
from kafkastore.cli.output.tables import format_count, format_value, print_table
from kafkastore.clock import clock
from kafkastore.jobs.cluster import cluster_changes
from kafkastore.log.time_text import format_time
from kafkastore.metadata.cluster import END, AsOf, Cluster, MetadataSource
from kafkastore.metadata.cluster_rows import Row, rows_of
from kafkastore.metadata.metadata_diff import MetadataChange
from kafkastore.metadata.recreate import recreate_document, recreate_script
from kafkastore.metadata.registrations import ResourceType
from kafkastore.store.cluster_metadata import cluster_as_of
from kafkastore.store.topic_logs import is_pattern, match_topics

_OFFSET = re.compile(r"[0-9]{1,18}")
_UNKNOWN = "-"
#: The command that takes this name before its paths.
BEST_REPLICAS = "best-replicas"


class _Cluster(click.Command):
    """The command, with another one if its first argument is the other's name."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the arguments, or let the other command do it."""
        if args[:1] == [BEST_REPLICAS]:
            name = f"{info_name} {BEST_REPLICAS}"
            return best_replicas_command.make_context(name, args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(cls=_Cluster)
@paths_argument()
@click.option(
    "--as-of", metavar="OFFSET|TIME",
    help="The state before this offset of the metadata log, or at this time. Default: its end.",
)
@click.option(
    "--diff", metavar="FROM..TO",
    help="Show what changed between two offsets or times, and by which record.",
)
@click.option(
    "--recreate", is_flag=True,
    help="Print a script of Kafka's tools that makes the same topics and configurations in another "
    "cluster; with --json an object that has the topic ids too.",
)
@topic_option("Only this topic, or topics that match a pattern such as 'ord*'; may be repeated.")
@show_secrets_option
@zone_option
@json_option
def command(
    paths: tuple[Path, ...],
    as_of: str | None,
    diff: str | None,
    recreate: bool,
    topics: tuple[str, ...],
    show_secrets: bool,
    zone: tzinfo | None,
    as_json: bool,
) -> int:
    """Show brokers, topics, partitions, configurations and features of a cluster.

    PATH is a log directory with __cluster_metadata-0, as KRaft's controllers and brokers have it,
    that partition's directory, or a snapshot in it. Of several copies, the newest is read. Without
    one, as with ZooKeeper, the output is what directories of partitions show.

    kafkastore cluster best-replicas DISK... finds the disk to restore each partition from.
    """
    if diff is not None and (as_of is not None or recreate):
        raise click.UsageError("--diff cannot be combined with --as-of or --recreate")
    if diff is not None:
        start, end = _parse_diff(diff, zone)
        changes = cluster_changes(list(paths), start, end, show_secrets=show_secrets)
        _print_changes(changes, topics, zone, as_json=as_json)
        return 0
    found = cluster_as_of(list(paths), _parse_as_of(as_of, zone))
    if topics:
        _select(found, topics)
    if recreate:
        _print_recreate(found, as_json=as_json)
    elif as_json:
        for row in rows_of(found, show_secrets=show_secrets):
            write_json(row)
    else:
        _print(found, zone, show_secrets=show_secrets)
    return 0


def _parse_as_of(text: str | None, zone: tzinfo | None) -> AsOf:
    """Parse an offset (only digits) or a time."""
    if text is None:
        return END
    if _OFFSET.fullmatch(text.strip()):
        return AsOf(offset=int(text))
    moment = parse_moment(text, zone)
    return AsOf(timestamp=moment.timestamp + (clock() if moment.is_relative else 0))


def _parse_diff(text: str, zone: tzinfo | None) -> tuple[AsOf, AsOf]:
    start, dots, end = text.partition("..")
    if not dots:
        raise click.UsageError(f"--diff must be FROM..TO, such as 100..200, got {text!r}")
    first = _parse_as_of(start, zone) if start else AsOf(offset=0)
    last = _parse_as_of(end, zone) if end else END
    if (first.timestamp == last.timestamp and first.offset > last.offset) or (
        first.offset == last.offset and first.timestamp > last.timestamp
    ):
        raise click.UsageError(f"--diff must be FROM..TO, and {start} is after {end}")
    return first, last


def _select(found: Cluster, names: tuple[str, ...]) -> None:
    """Keep some topics, and their configurations."""
    names = tuple(_matching(names, found.topics))
    found.topics = {name: found.topics[name] for name in names}
    found.configs = {
        (kind, name): values for (kind, name), values in found.configs.items()
        if kind == ResourceType.TOPIC and name in names
    }
    found.client_quotas, found.acls = {}, {}
    found.scram_credentials, found.delegation_tokens = {}, {}


def _matching(patterns: Iterable[str], topics: Iterable[str]) -> list[str]:
    """Return the topics that match; raise click.UsageError if a pattern has none."""
    topics, found = sorted(topics), dict[str, None]()
    for each in patterns:
        if not (matching := match_topics(each, topics)):
            what = f"topic that matches {each}" if is_pattern(each) else f"topic {each}"
            hint = hint_at(each, topics) or "it has no topics"
            raise click.UsageError(f"the cluster has no {what}; {hint}")
        found |= dict.fromkeys(matching)
    return list(found)


def _print_recreate(found: Cluster, *, as_json: bool) -> None:
    if as_json:
        write_json(recreate_document(found))
    else:
        for line in recreate_script(found):
            print(line)
    if found.source is MetadataSource.LOG_DIRECTORIES:
        print_note(
            "there is no metadata log: partition counts are those of the directories here, and "
            "configurations are not known"
        )


def _print(found: Cluster, zone: tzinfo | None, *, show_secrets: bool) -> None:
    """Print a cluster as tables."""
    rows: dict[str, list[Row]] = {}
    for row in rows_of(found, show_secrets=show_secrets):
        rows.setdefault(row["kind"], []).append(row)
    (whole,) = rows["cluster"]
    _print_head(found, whole, rows.get("feature", ()), zone)
    configs: dict[tuple[str, str | None], list[str]] = {}
    for row in rows.get("config", ()):
        setting = f"{row['name']}={row['value']}"
        configs.setdefault((row["resource_type"], row["resource_name"]), []).append(setting)
    _print_section(
        "brokers", ("broker", "state", "rack", "endpoints", "log directories"),
        (_broker_cells(row) for row in rows.get("broker", ())), right="broker",
    )
    _print_section(
        "topics", ("topic", "topic id", "partitions", "replication", "configurations"),
        ([row["topic"], format_value(row["topic_id"]), str(row["partitions"]),
          format_value(row["replication_factor"]),
          " ".join(configs.pop(("topic", row["topic"]), ()))]
         for row in rows.get("topic", ())),
        right="partitions,replication", prose="configurations",
    )
    _print_section(
        "partitions",
        ("topic", "partition", "leader", "leader epoch", "replicas", "isr", "elr", "notes"),
        (_partition_cells(row) for row in rows.get("partition", ())),
        right="partition,leader,leader epoch", prose="notes",
    )
    _print_section(
        "other configurations", ("of", "name", "configurations"),
        ([kind, "(default)" if name is None else name, " ".join(settings)]
         for (kind, name), settings in configs.items()),
        prose="configurations",
    )
    _print_section(
        "client quotas", ("entity", "quota", "value"),
        ([" ".join(f"{kind}={'(default)' if name is None else name}"
                   for kind, name in row["entity"].items()), row["name"], f"{row['value']:g}"]
         for row in rows.get("client_quota", ())),
        right="value",
    )
    _print_section(
        "SCRAM users", ("user", "mechanism", "iterations"),
        ([row["user"], row["mechanism"], str(row["iterations"])]
         for row in rows.get("scram_credential", ())),
        right="iterations",
    )
    others = {"acl": "ACL", "delegation_token": "delegation token"}
    counts = [format_count(len(rows[kind]), what) for kind, what in others.items() if kind in rows]
    if counts:
        print()
        print_text(f"{', '.join(counts)}: --json shows them")


def _print_head(
    found: Cluster, whole: Row, features: Iterable[Row], zone: tzinfo | None
) -> None:
    """Print what is known of the cluster as a whole."""
    name = f"cluster {format_value(whole['cluster_id'])}"
    if found.source is MetadataSource.LOG_DIRECTORIES:
        print_text(f"{name}, from the directories of partitions: there is no metadata log")
        return
    print_text(f"{name}, as of offset {found.end_offset} ({format_time(found.timestamp, zone)})")
    print_text(f"  metadata   {whole['path']}")
    if found.snapshot is not None:
        print_text(f"  snapshot   {found.snapshot.path.name}")
    voters = ", ".join(map(str, whole["voters"])) or _UNKNOWN
    print_text(
        f"  quorum     leader {format_value(whole['leader_id'])} of epoch "
        f"{format_value(whole['leader_epoch'])}, voters {voters}"
    )
    levels = [
        f"{row['name']} {row['level']}" + (f" ({row['release']})" if row["release"] else "")
        for row in features
    ]
    print_text(f"  features   {', '.join(levels) or _UNKNOWN}")
    if found.open_transaction is not None:
        print_note(
            f"a metadata transaction is open from offset {found.open_transaction} on: its records "
            "do not count"
        )
    for (number, version), count in sorted(found.unknown_records.items()):
        print_note(
            f"{format_count(count, 'record')} of unknown type {number}, version {version}, did not "
            "count"
        )


def _print_section(
    title: str, columns: tuple[str, ...], rows: Iterable[list[str]], *, right: str = "",
    prose: str = "",
) -> None:
    cells = list(rows)
    if cells:
        print(f"\n{title}")
        print_table(columns, cells, right=right, prose=prose)


def _broker_cells(row: Row) -> list[str]:
    state = "fenced" if row["is_fenced"] else "active"
    if row["epoch"] is None:
        state = _UNKNOWN
    elif row["is_in_controlled_shutdown"]:
        state += ", shutting down"
    endpoints = (
        f"{each['name']}://{each['host']}:{each['port']}"
        + (f" ({each['security_protocol']})" if each["security_protocol"] != each["name"] else "")
        for each in row["endpoints"]
    )
    return [
        str(row["broker_id"]), state, format_value(row["rack"]), " ".join(endpoints) or _UNKNOWN,
        " ".join(row["log_dirs"]) or _UNKNOWN,
    ]


def _partition_cells(row: Row) -> list[str]:
    notes = [
        f"{what} {_ids(row[name])}"
        for what, name in (
            ("adding", "adding_replicas"), ("removing", "removing_replicas"),
            ("last known elr", "last_known_elr"),
        )
        if row[name]
    ]
    notes += ["recovering from an unclean election"] if row["is_recovering"] else []
    return [
        row["topic"], str(row["partition"]),
        format_value(row["leader"]), format_value(row["leader_epoch"]),
        _ids(row["replicas"]), _ids(row["isr"]), _ids(row["elr"]), "; ".join(notes),
    ]


def _ids(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers)) or _UNKNOWN


def _print_changes(
    changes: Iterator[MetadataChange], topics: tuple[str, ...], zone: tzinfo | None, *,
    as_json: bool,
) -> None:
    """Print each change in two lines, or as JSON."""
    nothing = True
    for change in changes:
        topic = _topic_of(change)
        if topics and (topic is None or not any(match_topics(each, [topic]) for each in topics)):
            continue
        nothing = False
        if as_json:
            write_json({**change._asdict(), "kind": "change"})
            continue
        subject = " ".join(
            "(default)" if (key, value) == ("resource_name", None) else format_value(value)
            for key, value in change.subject.items()
        )
        print_text(
            f"{change.offset}  {format_time(change.timestamp, zone)}  {change.record}  {subject}"
        )
        print_text(f"    {_described(change)}")
    if nothing:
        print_note("nothing changed" + (f" of topic {', '.join(topics)}" if topics else ""))


def _topic_of(change: MetadataChange) -> str | None:
    """Return the topic that a change is about, if it is about one."""
    subject = change.subject
    is_config = subject["kind"] == "config"
    if is_config and subject["resource_type"] != "topic":
        return None
    name: str | None = subject.get("resource_name" if is_config else "topic")
    return name


def _described(change: MetadataChange) -> str:
    """Say what changed: field by field."""
    before, after = change.before, change.after
    if after is None:
        return "removed" if before is not None else "nothing changed"
    if before is None:
        return "new: " + ", ".join(f"{name} {_value(each)}" for name, each in after.items())
    return ", ".join(
        f"{name} {_value(before.get(name))} → {_value(each)}" for name, each in after.items()
    ) or "nothing changed"


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
