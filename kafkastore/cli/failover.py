"""``kafkastore failover``: where consumers of one cluster go on in another."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Any, NamedTuple

import click

from kafkastore.cli.durations import parse_duration
from kafkastore.cli.failures import FOUND_PROBLEMS, UNREADABLE, note, sentence, tell
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.lag import committed_of
from kafkastore.cli.positions import position_options, read_positions
from kafkastore.cli.progress import progress
from kafkastore.cli.selection import ANY_PATH, select, topic_options
from kafkastore.cli.tables import counted, print_table
from kafkastore.cli.times import show_time, zone_option
from kafkastore.errors import KafkaStoreError
from kafkastore.formats.group_metadata import OffsetCommitKey
from kafkastore.kip_33.failover import (
    FailoverError,
    Method,
    PartitionFailover,
    failover_of,
)
from kafkastore.kip_33.failover_check import FailoverCheck
from kafkastore.kip_33.fingerprints import Match
from kafkastore.kip_33.lag import Place
from kafkastore.kip_33.latency import latency
from kafkastore.log.log_store import LogStore, open_store


class _Move(NamedTuple):
    """What there is to do for all positions."""

    source: LogStore
    target: LogStore
    options: dict[str, Any]


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
    committed = committed_of(selection, groups, given, narrowed=bool(topics or partitions))
    options = {
        "by": by,
        "largest_latency_ms": largest_latency_ms,
        "clock_skew_ms": clock_skew_ms,
        "topic_prefix": topic_prefix,
        "check": check,
        "match": match,
    }
    move = _Move(selection.store, target, options)
    measured = None if latency_from is None else open_store(latency_from)
    positions = {key: each.offset for key, each in committed.items()}
    failures: list[str] = []
    unmoved: list[str] = []
    found = list(_moved(move, positions, measured, failures, unmoved))
    if as_json:
        for each in found:
            write_json(_as_json(each, _place(selection.store, each)))
    elif found:
        _print(found, zone)
        _tell_of_checks([each.check for each in found if each.check is not None])
    beyond = [_beyond_end(selection.store, each) for each in found
              if _place(selection.store, each) is Place.BEYOND_END]
    for problem in (*beyond, *unmoved, *failures):
        tell(problem)
    if failures:
        return UNREADABLE
    is_lossy = any(each.check is not None and each.check.lost for each in found)
    return FOUND_PROBLEMS if is_lossy or beyond or unmoved else 0


def _check_latency_options(
    by: Method, largest_latency_ms: int | None, latency_from: Path | None
) -> None:
    """Refuse options that say nothing together."""
    if by == "create-time" and (largest_latency_ms is not None or latency_from is not None):
        raise click.UsageError(
            "a latency is only taken off with --by log-append-time; name that too"
        )
    if largest_latency_ms is not None and latency_from is not None:
        raise click.UsageError("--largest-latency and --latency-from contradict each other")


def _moved(
    move: _Move,
    positions: dict[OffsetCommitKey, int],
    measured: LogStore | None,
    failures: list[str],
    unmoved: list[str],
) -> Iterator[PartitionFailover]:
    """Carry positions over one by one; what can't be is told."""
    by_topic: dict[str, int | None] = {}
    with progress("moving", len(positions)) as advance:
        for key, position in positions.items():
            what = f"{key.group or 'position'} at {key.topic}-{key.partition}"
            try:
                options = move.options
                if measured is not None:
                    options = options | {
                        "largest_latency_ms": _largest(key.topic, measured, by_topic)
                    }
                yield failover_of(move.source, move.target, key, position, **options)
            except FailoverError as error:
                unmoved.append(f"{what}: {sentence(error)}")
            except (KafkaStoreError, OSError) as error:
                failures.append(f"{what}: {sentence(error)}")
            advance(1)


def _largest(topic: str, measured: LogStore, by_topic: dict[str, int | None]) -> int:
    """Return the largest latency of a topic elsewhere, measured once."""
    if topic not in by_topic:
        by_topic[topic] = next((each.largest for each in latency(measured, [topic])), None)
    largest = by_topic[topic]
    if largest is None:
        raise FailoverError(f"the directories of --latency-from show no latency of topic {topic}")
    return largest


def _place(source: LogStore, found: PartitionFailover) -> Place:
    """Tell where a position lies in cluster 1."""
    log = source.partitions[found.source]
    if found.position > log.log_end_offset:
        return Place.BEYOND_END
    return Place.BELOW_START if found.position < log.log_start_offset else Place.IN_LOG


def _beyond_end(source: LogStore, found: PartitionFailover) -> str:
    """Say what a position beyond the log end means."""
    end = source.partitions[found.source].log_end_offset
    return (
        f"{found.group or 'position'} at {found.source}: offset {found.position} lies beyond the "
        f"log end of cluster 1, {end}; records that it consumed are missing there, and what it "
        f"did not consume is not known"
    )


def _as_json(found: PartitionFailover, place: Place) -> dict[str, Any]:
    check = found.check
    return {
        "group": found.group,
        "topic": found.target.topic,
        "partition": found.target.partition,
        "offset": found.offset,
        "timestamp": None if found.record is None else found.record.timestamp,
        "source_topic": found.source.topic,
        "source_offset": found.position,
        "place": place.value,
        "bound_timestamp": found.bound.timestamp,
        "basis": found.bound.basis,
        "untimed_records": found.bound.untimed_records,
        "unread_records": None if check is None else check.unread,
        "found_records": None if check is None else check.found,
        "lost_records": None if check is None else check.lost,
        "duplicate_records": None if check is None else check.duplicates,
        "stranger_records": None if check is None else check.strangers,
    }


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
    """Say what an answer rests on, and of what it says nothing."""
    if not found.bound.untimed_records:
        return found.bound.basis
    untimed = counted(found.bound.untimed_records, "record")
    return f"{found.bound.basis}; nothing is said of {untimed} without timestamp"


def _tell_of_checks(checks: Sequence[FailoverCheck]) -> None:
    """Say what the records of both clusters show."""
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
