"""``kafkastore failover``: translate consumer positions from one cluster to another."""
from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import tzinfo
from pathlib import Path

import click

from kafkastore.changes.runner import Runner
from kafkastore.cli.durations import parse_duration
from kafkastore.cli.failures import FOUND_PROBLEMS, note, tell
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.lag import committed_of
from kafkastore.cli.on_spark import executor, expected, spark_option
from kafkastore.cli.positions import position_options, read_positions
from kafkastore.cli.problems import Problems
from kafkastore.cli.selection import ANY_PATH, select, topic_options
from kafkastore.cli.tables import counted, print_table
from kafkastore.cli.times import show_time, zone_option
from kafkastore.formats.group_metadata import OffsetCommitKey
from kafkastore.jobs.failover import FailoverJob
from kafkastore.jobs.group_positions import GroupPosition, position_items
from kafkastore.jobs.latency import LatencyJob
from kafkastore.jobs.runner import Failed
from kafkastore.kip_33.failover import FailoverError, Method, PartitionFailover
from kafkastore.kip_33.failover_check import FailoverCheck
from kafkastore.kip_33.fingerprints import Match
from kafkastore.kip_33.lag import OffsetPlace
from kafkastore.kip_33.latency import Latency
from kafkastore.store.log_store import LogStore, open_store


@click.command()
@click.argument("cluster_1", metavar="CLUSTER1", type=ANY_PATH)
@click.argument("cluster_2", metavar="CLUSTER2", type=ANY_PATH)
@topic_options
@position_options
@click.option(
    "--by",
    type=click.Choice(["create-time", "log-append-time"]),
    default="create-time",
    show_default=True,
    help="By the earliest record that was not consumed, or by the append time at the position, "
    "less the largest latency.",
)
@click.option(
    "--largest-latency", "largest_latency_ms", callback=parse_duration, metavar="DURATION",
    help="For log-append-time: 90s, 5m. Default: the largest that the partition itself shows.",
)
@click.option(
    "--latency-from", type=ANY_PATH, metavar="PATH",
    help="Take the largest latency of the same topic in these directories.",
)
@click.option(
    "--clock-skew", "clock_skew_ms", callback=parse_duration, default="0", metavar="DURATION",
    help="How far clocks may differ; taken off too. Default: 0.",
)
@click.option(
    "--prefix", "topic_prefix", default="", metavar="TEXT",
    help="What CLUSTER2 has before a topic's name, such as MirrorMaker 2's source.",
)
@click.option(
    "--check/--no-check", default=True, show_default=True,
    help="Compare the records of both clusters: what is lost, what is consumed twice.",
)
@click.option(
    "--match",
    type=click.Choice(["timestamp", "content"]),
    default="timestamp",
    show_default=True,
    help="By what records are the same: time, key and value, or key and value alone.",
)
@zone_option
@spark_option
@json_option
def command(
    cluster_1: Path,
    cluster_2: Path,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    groups: tuple[str, ...],
    offsets: Sequence[tuple[OffsetCommitKey, int]],
    offsets_file: Path | None,
    by: Method,
    largest_latency_ms: int | None,
    latency_from: Path | None,
    clock_skew_ms: int,
    topic_prefix: str,
    check: bool,
    match: Match,
    zone: tzinfo | None,
    master: str | None,
    as_json: bool,
) -> int:
    """Find where consumers of CLUSTER1 go on in CLUSTER2, so that nothing is lost.

    Both are log directories with the same topics, mirrored or written twice. Positions are what
    groups have committed in CLUSTER1, or given. The exit code is 1 if the records show that some
    would be lost, if a position can't be carried over, or if it lies beyond the log end.
    """
    _check_latency_options(by, largest_latency_ms, latency_from)
    given = read_positions(offsets, offsets_file)
    selection = select([cluster_1], topics, partitions)
    target = open_store(cluster_2)
    problems = Problems(len(selection.topic_partitions))
    committed = committed_of(
        selection, groups, given, problems, narrowed=bool(topics or partitions)
    )
    measured = None if latency_from is None else open_store(latency_from)
    weighed = master is not None
    items = position_items(
        committed, selection.store, target, topic_prefix=topic_prefix, is_weighed=weighed
    )
    unmoved: list[str] = []
    with executor(master, "moving") as runner:
        job = FailoverJob(
            by,
            largest_latency_ms,
            clock_skew_ms,
            topic_prefix,
            check,
            match,
            _largest({key.topic for key in committed}, measured, runner, is_weighed=weighed),
        )
        found = list(_moved(job, items, runner, problems, unmoved))
    if as_json:
        for each in found:
            for row in job.rows(each):
                write_json(row)
    elif found:
        _print(found, zone)
        _tell_of_checks([each.check for each in found if each.check is not None])
    beyond = [_beyond_end(each) for each in found if each.place is OffsetPlace.BEYOND_END]
    for problem in (*beyond, *unmoved):
        tell(problem)
    checks = [each.check for each in found]
    is_lossy = any(check is not None and check.lost for check in checks)
    return problems.exit_code or (FOUND_PROBLEMS if is_lossy or beyond or unmoved else 0)


def _check_latency_options(
    by: Method, largest_latency_ms: int | None, latency_from: Path | None
) -> None:
    """Refuse latency options that do not apply to the chosen method."""
    if by == "create-time" and (largest_latency_ms is not None or latency_from is not None):
        raise click.UsageError(
            "a latency is only taken off with --by log-append-time; name that too"
        )
    if largest_latency_ms is not None and latency_from is not None:
        raise click.UsageError("--largest-latency and --latency-from contradict each other")


def _moved(
    job: FailoverJob,
    items: Sequence[GroupPosition],
    runner: Runner,
    problems: Problems,
    unmoved: list[str],
) -> Iterator[PartitionFailover]:
    """Translate positions one by one; report those that cannot be translated."""
    for item, moved in job.outcomes(items, runner):
        if not isinstance(moved, Failed):
            yield moved
            continue
        key = item.key
        partition = f"{key.topic}-{key.partition}"
        if isinstance(moved.error, FailoverError):
            unmoved.append(f"{key.group or 'position'} at {partition}: {expected(moved.error)}")
        else:
            problems.add(partition, moved.error)


def _largest(
    topics: Collection[str], measured: LogStore | None, runner: Runner, *, is_weighed: bool
) -> dict[str, int | Exception] | None:
    """Find the largest latency of each topic in `measured`, or the reason why it is unknown."""
    if measured is None:
        return None
    job = LatencyJob()
    chosen = (each for each in measured.partitions if each.topic in topics)
    items = job.items(measured, chosen, is_weighed=is_weighed)
    found: dict[str, list[Latency | Failed]] = {topic: [] for topic in topics}
    for item, each in job.outcomes(items, runner):
        found[item.topic].append(each)
    return {topic: _largest_of(topic, parts) for topic, parts in found.items()}


def _largest_of(topic: str, parts: Sequence[Latency | Failed]) -> int | Exception:
    """Return the largest latency of a topic's partitions, or the reason why it is unknown."""
    for part in parts:
        if isinstance(part, Failed):
            return part.error
    known = [part.largest for part in parts if isinstance(part, Latency)]
    return max(
        (each for each in known if each is not None),
        default=FailoverError(
            f"the directories of --latency-from show no latency of topic {topic}"
        ),
    )


def _beyond_end(found: PartitionFailover) -> str:
    """Explain what a position beyond the log end means."""
    return (
        f"{found.group or 'position'} at {found.source}: offset {found.position} lies beyond the "
        f"log end of cluster 1, {found.log_end_offset}; records that it consumed are missing "
        f"there, and what it did not consume is not known"
    )


def _print(found: Sequence[PartitionFailover], zone: tzinfo | None) -> None:
    print_table(
        ["group", "partition", "position", "go on at", "not earlier than", "lost", "duplicates",
         "by"],
        (
            [
                each.group or "-",
                str(each.target),
                str(each.position),
                str(each.offset),
                show_time(each.bound.timestamp, zone),
                _number(None if each.check is None else each.check.lost),
                _number(None if each.check is None else each.check.duplicates),
                _basis(each),
            ]
            for each in found
        ),
        right="position,go on at,lost,duplicates",
        prose="by",
    )


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _basis(found: PartitionFailover) -> str:
    """Explain what an answer is based on, and what it does not cover."""
    if not found.bound.untimed_records:
        return found.bound.basis
    untimed = counted(found.bound.untimed_records, "record")
    return f"{found.bound.basis}; nothing is said of {untimed} without timestamp"


def _tell_of_checks(checks: Sequence[FailoverCheck]) -> None:
    """Print what the records of both clusters show."""
    if not checks:
        note("not checked against the records of both clusters")
        return
    unread, found = sum(each.unread for each in checks), sum(each.found for each in checks)
    lost = sum(each.lost for each in checks)
    print(
        f"of {counted(unread, 'record')} that were not consumed cluster 2 has {found:,}: "
        f"{f'{lost:,} would be lost' if lost else 'none is lost'}; "
        f"{sum(each.duplicates for each in checks):,} are consumed twice"
    )
    strangers = sum(each.strangers for each in checks)
    if strangers:
        note(
            f"{counted(strangers, 'record')} before the offsets in cluster 2 are not in cluster 1: "
            f"deleted there, or never arrived; --by log-append-time allows for what never arrived"
        )
    if unread and not found:
        note(
            "no record is in both clusters; where a mirror did not keep times, try --match content"
        )
