"""``kafkastore failover``: translate positions between clusters."""
from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import click

from kafkastore.cli.commands.lag import read_committed_offsets
from kafkastore.cli.options.durations import parse_duration
from kafkastore.cli.options.on_spark import describe_failure
from kafkastore.cli.options.positions import position_options, read_positions
from kafkastore.cli.options.selection import ANY_PATH
from kafkastore.cli.output.failures import FOUND_PROBLEMS, print_note, print_problem
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.reset_plan import (
    ResetPosition,
    check_one_format,
    csv_option,
    write_reset_plan,
)
from kafkastore.cli.output.tables import format_count, format_value, print_table
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.formats.topics.consumer_offsets import OffsetCommitKey
from kafkastore.jobs.failover import FailoverJob
from kafkastore.jobs.group_positions import GroupPosition, position_items
from kafkastore.jobs.latency import LatencyJob
from kafkastore.runner import Failed, Runner
from kafkastore.store.log_store import LogStore, open_store
from kafkastore.use_cases.failover import FailoverError, Method, PartitionFailover
from kafkastore.use_cases.failover_check import FailoverCheck
from kafkastore.use_cases.fingerprints import Match
from kafkastore.use_cases.lag import OffsetPlace
from kafkastore.use_cases.latency import Latency


@store_command("tz", "spark", has_paths=False)
@click.argument("cluster_1", metavar="CLUSTER1", type=ANY_PATH)
@click.argument("cluster_2", metavar="CLUSTER2", type=ANY_PATH)
@position_options
@click.option(
    "--by",
    type=click.Choice(["create-time", "log-append-time"]),
    default="create-time",
    show_default=True,
    help="create-time: the earliest unread record. log-append-time: the append time at the "
    "position, minus the largest latency.",
)
@click.option(
    "--largest-latency", "largest_latency_ms", callback=parse_duration, metavar="DURATION",
    help="For log-append-time: 90s, 5m, or a number of ms. Default: the largest latency in the "
    "partition itself.",
)
@click.option(
    "--latency-from", type=ANY_PATH, metavar="PATH",
    help="Use the largest latency of the same topic in the log directory PATH.",
)
@click.option(
    "--clock-skew", "clock_skew_ms", callback=parse_duration, default="0", metavar="DURATION",
    help="Maximum difference of clocks; it is subtracted too. Default: 0.",
)
@click.option(
    "--topic-prefix", default="", metavar="TEXT",
    help="The prefix of topic names in CLUSTER2, such as 'source.' with MirrorMaker 2.",
)
@click.option(
    "--check/--no-check", default=True, show_default=True,
    help="Compare the records of both clusters; count records lost and consumed twice.",
)
@click.option(
    "--match",
    type=click.Choice(["timestamp", "content"]),
    default="timestamp",
    show_default=True,
    help="How records are matched: by timestamp, key and value, or by key and value only.",
)
@csv_option("group (unless one --group is given), topic, partition and new offset")
def command(
    call: StoreCall,
    cluster_1: Path,
    cluster_2: Path,
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
    as_csv: bool,
) -> int:
    """Translate consumer positions of CLUSTER1 to CLUSTER2, without losing records.

    Both are log directories with the same topics, mirrored, or written to both clusters. Positions
    are the committed offsets of groups in CLUSTER1, or those given. The exit code is 1 if records
    would be lost, if a position can't be translated, or if a position is beyond the log end.
    """
    check_one_format(as_csv=as_csv, as_json=call.as_json)
    _check_latency_options(by, largest_latency_ms, latency_from)
    given = read_positions(offsets, offsets_file)
    call.paths = (cluster_1,)
    store, target = call.selection.store, open_store(cluster_2)
    committed = read_committed_offsets(call, groups, given)
    measured = None if latency_from is None else open_store(latency_from)
    items = position_items(
        committed, store, target, topic_prefix=topic_prefix, is_weighed=call.is_weighed
    )
    unmoved: list[str] = []
    with call.executor("translating", is_streamed=False) as runner:
        job = FailoverJob(
            by,
            largest_latency_ms,
            clock_skew_ms,
            topic_prefix,
            check,
            match,
            _largest(call, {key.topic for key in committed}, measured, runner),
        )
        found = list(_moved(call, job.outcomes(items, runner), unmoved))
    if call.as_json:
        for each in found:
            for row in job.rows(each):
                write_json(row)
    elif as_csv:
        write_reset_plan(
            (ResetPosition(each.group, each.target, each.offset) for each in found),
            with_groups=len(groups) != 1,
        )
    elif found:
        _print(call, found)
        _print_checks([each.check for each in found if each.check is not None])
    beyond = [_beyond_end(each) for each in found if each.place is OffsetPlace.BEYOND_END]
    for problem in (*beyond, *unmoved):
        print_problem(problem)
    checks = [each.check for each in found]
    is_lossy = any(check is not None and check.lost for check in checks)
    return call.problems.exit_code or (FOUND_PROBLEMS if is_lossy or beyond or unmoved else 0)


def _check_latency_options(
    by: Method, largest_latency_ms: int | None, latency_from: Path | None
) -> None:
    """Refuse latency options that do not apply to the chosen method."""
    if by == "create-time" and (largest_latency_ms is not None or latency_from is not None):
        raise click.UsageError(
            "a latency needs --by log-append-time"
        )
    if largest_latency_ms is not None and latency_from is not None:
        raise click.UsageError("--largest-latency and --latency-from cannot be combined")


def _moved(
    call: StoreCall,
    outcomes: Iterable[tuple[GroupPosition, PartitionFailover | Failed]],
    unmoved: list[str],
) -> Iterator[PartitionFailover]:
    """Translate positions one by one; report those that cannot be translated."""
    for item, moved in outcomes:
        if not isinstance(moved, Failed):
            yield moved
            continue
        key = item.key
        partition = f"{key.topic}-{key.partition}"
        if isinstance(moved.error, FailoverError):
            reason = describe_failure(moved.error)
            unmoved.append(f"{key.group or 'position'} at {partition}: {reason}")
        else:
            call.problems.add(partition, moved.error)


def _largest(
    call: StoreCall, topics: Collection[str], measured: LogStore | None, runner: Runner
) -> dict[str, int | Exception] | None:
    """Find the largest latency of each topic, or why it is unknown."""
    if measured is None:
        return None
    job = LatencyJob()
    chosen = (each for each in measured.partitions if each.topic in topics)
    items = job.items(measured, chosen, is_weighed=call.is_weighed)
    found: dict[str, list[Latency | Failed]] = {topic: [] for topic in topics}
    for item, each in job.outcomes(items, runner):
        found[item.topic].append(each)
    return {topic: _largest_of(topic, parts) for topic, parts in found.items()}


def _largest_of(topic: str, parts: Sequence[Latency | Failed]) -> int | Exception:
    """Return the largest latency of a topic, or why it is unknown."""
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
        f"{found.group or 'position'} at {found.source}: offset {found.position} is beyond the "
        f"log end of cluster 1, {found.log_end_offset}; records that it consumed are missing "
        f"there, and its unread records are unknown"
    )


def _print(call: StoreCall, found: Sequence[PartitionFailover]) -> None:
    print_table(
        ["group", "partition", "position", "new offset", "not earlier than", "lost", "duplicates",
         "by"],
        (
            [
                each.group or "-",
                str(each.target),
                str(each.position),
                str(each.offset),
                call.format_time(each.bound.timestamp),
                format_value(None if each.check is None else each.check.lost),
                format_value(None if each.check is None else each.check.duplicates),
                _basis(each),
            ]
            for each in found
        ),
        right="position,new offset,lost,duplicates",
        prose="by",
    )


def _basis(found: PartitionFailover) -> str:
    """Explain what an answer is based on, and what it does not cover."""
    if not found.bound.untimed_records:
        return found.bound.basis
    untimed = format_count(found.bound.untimed_records, "record")
    verb = "is" if found.bound.untimed_records == 1 else "are"
    return f"{found.bound.basis}; {untimed} without timestamp {verb} not covered"


def _print_checks(checks: Sequence[FailoverCheck]) -> None:
    """Print what the records of both clusters show."""
    if not checks:
        print_note("not checked against the records of both clusters")
        return
    unread, found = sum(each.unread for each in checks), sum(each.found for each in checks)
    lost, twice = (sum(getattr(each, name) for each in checks) for name in ("lost", "duplicates"))
    if unread and not found:
        print(
            f"none of {format_count(unread, 'unread record')} is in cluster 2: "
            "nothing could be checked"
        )
    else:
        print(
            f"cluster 2 has {found:,} of {format_count(unread, 'unread record')}: "
            f"{f'{lost:,} would be lost' if lost else 'none is lost'}; {twice:,} are consumed twice"
        )
    unmatched = sum(each.unmatched for each in checks)
    if unmatched:
        print_note(
            f"{format_count(unmatched, 'record')} before the offsets in cluster 2 are not in "
            "cluster 1: deleted there, or never arrived; --by log-append-time allows for those"
        )
    if unread and not found:
        print_note(
            "no record is in both clusters; where a mirror did not keep times, try --match content"
        )
