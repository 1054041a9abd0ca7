"""``kafkastore lag``: consumer lag in offsets, records and time."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from kafkastore.cli.options.durations import format_duration
from kafkastore.cli.options.positions import position_options, read_positions
from kafkastore.cli.options.selection import NotInStoreError
from kafkastore.cli.output.failures import FOUND_PROBLEMS
from kafkastore.cli.output.reset_plan import (
    ResetPosition,
    check_one_format,
    csv_option,
    note_left_out,
    write_reset_plan,
)
from kafkastore.cli.output.share_lags import format_unread, print_share_lags
from kafkastore.cli.output.tables import format_count, format_value, print_table
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.formats.topics.consumer_offsets import OffsetAndMetadata, OffsetCommitKey
from kafkastore.jobs.group_positions import committed_positions, position_items
from kafkastore.jobs.lag import LagJob
from kafkastore.jobs.share_lag import ShareLagJob, SharePosition, share_positions
from kafkastore.log.isolation import Isolation
from kafkastore.use_cases.committed_offsets import NoCommittedOffsetsError
from kafkastore.use_cases.lag import OffsetPlace, PartitionLag
from kafkastore.use_cases.share_lag import SharePartitionLag

Committed = Mapping[OffsetCommitKey, OffsetAndMetadata]


@store_command("relative-to", "tz", "on-corrupt", "spark")
@position_options
@click.option(
    "--now", "now", metavar="TIME",
    help="The end of the lag in time: now, ms since 1970, ISO 8601 or -2h. Default: the time "
    "of the newest unread record of the partition.",
)
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="read_committed ignores aborted records, and counts up to the last stable offset.",
)
@csv_option("group (unless one --group is given), topic, partition and committed offset")
def command(
    call: StoreCall,
    groups: tuple[str, ...],
    offsets: Sequence[tuple[OffsetCommitKey, int]],
    offsets_file: Path | None,
    now: str | None,
    isolation: Isolation,
    as_csv: bool,
) -> int:
    """Show consumer lag in offsets, records and time.

    Committed offsets are read from the __consumer_offsets partitions in PATH, or given; what share
    groups have read, from those of __share_group_state. The exit code is 1 if a committed offset is
    below the log start or beyond the log end, or if one was given for a missing partition.
    """
    check_one_format(as_csv=as_csv, as_json=call.as_json)
    moments = [] if now is None else [call.parse_moment(now)]
    given = read_positions(offsets, offsets_file)
    until = next(iter(call.resolve_times(moments)), None)
    shared = [] if given is not None else _share_positions(call, groups)
    committed = _other_groups(call, groups, given, shared)
    job = LagJob(until, isolation, call.problems.on_corrupt)
    items = position_items(committed, call.selection.store, is_weighed=call.is_weighed)
    lags = call.run(job, items, "reading") if items else []
    share_job = ShareLagJob(until, isolation, call.problems.on_corrupt)
    share_lags = call.run(share_job, shared, "reading") if shared else []
    if as_csv:
        _write_csv(lags, share_lags, with_groups=len(groups) != 1)
    elif not call.as_json:
        if items or not shared:
            _print(call, lags)
        if shared:
            print_share_lags(call, share_lags, is_first=not items)
    # A broker's own __consumer_offsets also have partitions of other brokers, so NO_PARTITION is a
    # problem only for offsets that the user gave.
    odd = {OffsetPlace.BELOW_START, OffsetPlace.BEYOND_END}
    if given:
        odd.add(OffsetPlace.NO_PARTITION)
    has_odd = any(each.place in odd for each in lags)
    has_odd |= any(each.lost_offsets for each in share_lags)
    return FOUND_PROBLEMS if has_odd else call.problems.exit_code


def _write_csv(
    lags: Sequence[PartitionLag], share_lags: Sequence[SharePartitionLag], *, with_groups: bool
) -> None:
    """Write the offsets at which groups would continue; note which are left out."""
    unknown = (OffsetPlace.NO_PARTITION, OffsetPlace.OTHER_TOPIC)
    known = [each for each in lags if each.place not in unknown]
    write_reset_plan(
        (ResetPosition(each.group, each.topic_partition, each.committed.offset) for each in known),
        with_groups=with_groups,
    )
    other = sum(each.place is OffsetPlace.OTHER_TOPIC for each in lags)
    missing = len(lags) - len(known) - other
    note_left_out(missing, "committed offset", "the partition is not in PATH")
    note_left_out(other, "committed offset", "of an earlier topic of the same name")
    note_left_out(len(share_lags), "position", "of share groups, for which Kafka has another tool")


def _share_positions(call: StoreCall, groups: Sequence[str]) -> list[SharePosition]:
    """Return what share groups have read of the selected partitions."""
    unreadable: dict[TopicPartition, Exception] = {}
    found = share_positions(
        call.selection.store,
        groups,
        partitions=call.selection.topic_partitions if call.is_narrowed else None,
        unreadable=unreadable,
        is_weighed=call.is_weighed,
    )
    for partition, each in unreadable.items():
        call.problems.add(partition, each)
    return found


def _other_groups(
    call: StoreCall,
    groups: Sequence[str],
    given: Mapping[OffsetCommitKey, int] | None,
    shared: Sequence[SharePosition],
) -> Committed:
    """Return the offsets of groups that commit; none if `shared` is enough."""
    sharing = {each.key.group for each in shared}
    others = [name for name in groups if name not in sharing]
    if groups and not others:
        return {}
    try:
        return read_committed_offsets(call, others, given)
    except (NoCommittedOffsetsError, NotInStoreError):
        if groups or not shared:
            raise
        return {}


def read_committed_offsets(
    call: StoreCall, groups: Sequence[str], given: Mapping[OffsetCommitKey, int] | None
) -> Committed:
    """Return the offsets to report: given, or of ``__consumer_offsets``.

    Raises NotInStoreError if none is left, NoCommittedOffsetsError if the store or group has none.
    """
    unreadable: dict[TopicPartition, Exception] = {}
    try:
        committed = committed_positions(
            call.selection.store, groups, offsets=given, unreadable=unreadable
        )
    except NoCommittedOffsetsError as error:
        raise NoCommittedOffsetsError(
            f"{error}; give offsets by --offsets or --offsets-file"
        ) from error
    finally:
        for partition, each in unreadable.items():
            call.problems.add(partition, each)
    chosen = set(call.selection.topic_partitions)
    kept = {
        key: each
        for key, each in committed.items()
        if not call.is_narrowed or (key.topic, key.partition) in chosen
    }
    if not kept:
        of = f" of group {', '.join(groups)}" if groups else ""
        raise NotInStoreError(
            f"no committed offset{of} for the selected partitions"
            if committed
            else f"no committed offset{of}"
        )
    return kept


def _print(call: StoreCall, found: Sequence[PartitionLag]) -> None:
    print_table(
        ["group", "partition", "committed", "log end", "lag (offsets)", "lag (records)",
         "lag (time)", "first unread", "note"],
        (
            [
                each.group or "-",
                str(each.topic_partition),
                str(each.committed.offset),
                format_value(each.log_end_offset),
                format_value(each.offsets),
                format_value(each.records),
                format_duration(each.lag_ms),
                call.format_time(None if each.unread is None else each.unread.first_timestamp),
                _note(each),
            ]
            for each in found
        ),
        right="committed,log end,lag (offsets),lag (records),lag (time)",
        prose="note",
    )
    groups = len({each.group for each in found})
    print(
        f"{format_count(groups, 'group')}, {format_count(len(found), 'committed offset')}: "
        f"{format_unread(found)}"
    )


def _note(found: PartitionLag) -> str:
    """Describe an unusual position of a group; empty for any other."""
    if found.place is OffsetPlace.NO_PARTITION:
        return "the partition is not in PATH"
    if found.place is OffsetPlace.OTHER_TOPIC:
        return "committed for an earlier topic of this name; consumers do not use it"
    notes = []
    if found.place is OffsetPlace.BELOW_START:
        notes.append(
            f"{format_count(found.lost_offsets, 'offset')} deleted unread, the log starts at "
            f"{found.log_start_offset}"
        )
    elif found.place is OffsetPlace.BEYOND_END:
        notes.append("beyond the log end")
    unread = found.unread
    if unread is not None and unread.untimed_records:
        notes.append(f"{format_count(unread.untimed_records, 'record')} without timestamp")
    return "; ".join(notes)
