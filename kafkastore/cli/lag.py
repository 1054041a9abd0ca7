"""``kafkastore lag``: consumer lag in records and in time."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from pathlib import Path

import click

from kafkastore.cli.durations import show_duration
from kafkastore.cli.failures import FOUND_PROBLEMS
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.on_spark import executor, spark_option
from kafkastore.cli.positions import position_options, read_positions
from kafkastore.cli.problems import Problems, on_corrupt_option
from kafkastore.cli.selection import NotInStoreError, Selection, select, selection_options
from kafkastore.cli.tables import counted, print_table
from kafkastore.cli.times import parse_moment, resolve, show_time, zone_option
from kafkastore.errors import CorruptionError
from kafkastore.formats.file_names import TopicPartition
from kafkastore.formats.group_metadata import OffsetAndMetadata, OffsetCommitKey
from kafkastore.jobs.group_positions import committed_positions, position_items
from kafkastore.jobs.lag import LagJob
from kafkastore.jobs.runner import Failed
from kafkastore.kip_33.committed_offsets import NoCommittedOffsetsError
from kafkastore.kip_33.lag import OffsetPlace, PartitionLag
from kafkastore.log.damage import OnCorrupt
from kafkastore.log.isolation import Isolation

Committed = Mapping[OffsetCommitKey, OffsetAndMetadata]


@click.command()
@selection_options
@position_options
@click.option(
    "--now", "now", metavar="TIME",
    help="Until when lag in time counts: now, ms since 1970, ISO 8601 or -2h. Default: the newest "
    "record of the partition that was not read.",
)
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="read_committed counts no aborted records, and up to the last stable offset.",
)
@zone_option
@on_corrupt_option
@spark_option
@json_option
def command(
    paths: tuple[Path, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    groups: tuple[str, ...],
    offsets: Sequence[tuple[OffsetCommitKey, int]],
    offsets_file: Path | None,
    now: str | None,
    isolation: Isolation,
    zone: tzinfo | None,
    master: str | None,
    as_json: bool,
    on_corrupt: OnCorrupt,
) -> int:
    """Tell how far consumer groups are behind: offsets, records, and time.

    Committed offsets are those of the __consumer_offsets partitions in PATH, or given. The exit
    code is 1 where a committed offset lies below the log start or beyond the log end, and where one
    was given of a partition that is not here.
    """
    moments = [] if now is None else [parse_moment(now, zone)]
    given = read_positions(offsets, offsets_file)
    selection = select(paths, topics, partitions)
    until = next(iter(resolve(moments, selection, "now")), None)
    problems = Problems(len(selection.topic_partitions), on_corrupt)
    committed = committed_of(
        selection, groups, given, problems, narrowed=bool(topics or partitions)
    )
    shown: list[PartitionLag] = []
    places = set()
    job = LagJob(until, isolation, on_corrupt)
    items = position_items(committed, selection.store, is_weighed=master is not None)
    with executor(master, "reading", while_printing=as_json) as runner:
        for item, found in job.outcomes(items, runner):
            if isinstance(found, Failed):
                problems.add(f"{item.key.topic}-{item.key.partition}", found.error)
                continue
            problems.add_skipped(found.topic_partition, found.skipped)
            places.add(found.place)
            if as_json:
                for row in job.rows(found):
                    write_json(row)
            else:
                shown.append(found)
    if not as_json:
        _print(shown, zone)
    # A broker's own __consumer_offsets also have partitions of other brokers, so NO_PARTITION is a
    # problem only for offsets that the user gave.
    odd = {OffsetPlace.BELOW_START, OffsetPlace.BEYOND_END}
    if given:
        odd.add(OffsetPlace.NO_PARTITION)
    return FOUND_PROBLEMS if places & odd else problems.exit_code


def committed_of(
    selection: Selection,
    groups: Sequence[str],
    given: Mapping[OffsetCommitKey, int] | None,
    problems: Problems,
    *,
    narrowed: bool,
) -> Committed:
    """Return the committed offsets to report.

    `given` replaces ``__consumer_offsets``; `narrowed` drops partitions that are not selected.
    Raises NotInStoreError if none is left, NoCommittedOffsetsError if the store or group has none.
    """
    unreadable: dict[TopicPartition, CorruptionError] = {}
    try:
        committed = committed_positions(
            selection.store, groups, offsets=given, unreadable=unreadable
        )
    except NoCommittedOffsetsError as error:
        raise NoCommittedOffsetsError(
            f"{error}; give offsets by --offsets or --offsets-file"
        ) from error
    finally:
        for partition, each in unreadable.items():
            problems.add(partition, each)
    chosen = set(selection.topic_partitions)
    kept = {
        key: each
        for key, each in committed.items()
        if not narrowed or (key.topic, key.partition) in chosen
    }
    if not kept:
        of = f" of group {', '.join(groups)}" if groups else ""
        raise NotInStoreError(
            f"there is no committed offset{of} for the partitions chosen"
            if committed
            else f"there is no committed offset{of}"
        )
    return kept


def _print(found: Sequence[PartitionLag], zone: tzinfo | None) -> None:
    print_table(
        ["group", "partition", "committed", "log end", "offsets", "records", "lag",
         "first not read", "note"],
        (
            [
                each.group or "-",
                str(each.topic_partition),
                str(each.committed.offset),
                _number(each.log_end_offset),
                _number(each.offsets),
                _number(each.records),
                show_duration(each.lag_ms),
                show_time(None if each.unread is None else each.unread.first_timestamp, zone),
                _note(each),
            ]
            for each in found
        ),
        right="committed,log end,offsets,records,lag",
        prose="note",
    )
    groups = len({each.group for each in found})
    records = sum(each.records or 0 for each in found)
    print(
        f"{counted(groups, 'group')}, {counted(len(found), 'committed offset')}: "
        f"{counted(records, 'record')} not read"
    )


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _note(found: PartitionLag) -> str:
    """Describe an unusual position of a group; empty for any other."""
    if found.place is OffsetPlace.NO_PARTITION:
        return found.place.value
    notes = []
    if found.place is OffsetPlace.BELOW_START:
        notes.append(
            f"{counted(found.lost_offsets, 'offset')} deleted unread, the log starts at "
            f"{found.log_start_offset}"
        )
    elif found.place is OffsetPlace.BEYOND_END:
        notes.append(found.place.value)
    unread = found.unread
    if unread is not None and unread.untimed_records:
        notes.append(f"{counted(unread.untimed_records, 'record')} without timestamp")
    return "; ".join(notes)
