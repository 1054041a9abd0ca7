"""``kafkastore lag``: how far consumer groups are behind, in records and in time."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import Any

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
from kafkastore.kip_33.committed_offsets import NoCommittedOffsetsError, committed_offsets
from kafkastore.kip_33.lag import PartitionLag, Place
from kafkastore.log.damage import OnCorrupt
from kafkastore.log.isolation import Isolation
from kafkastore.spark.jobs.positions import lag_row, measure_lag, to_follow, weigh
from kafkastore.spark.spread import Failed, Run, attempt

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
    with executor(master, "reading", while_printing=as_json) as run:
        found = _measured(
            run, selection, committed, until, isolation, problems, is_weighed=master is not None
        )
        for each in found:
            places.add(each.place)
            if as_json:
                write_json(_as_json(each))
            else:
                shown.append(each)
    if not as_json:
        _print(shown, zone)
    # A broker's own __consumer_offsets are about partitions of all brokers; what was given is not.
    odd = {Place.BELOW_START, Place.BEYOND_END} | ({Place.NO_PARTITION} if given else set())
    return FOUND_PROBLEMS if places & odd else problems.exit_code


def committed_of(
    selection: Selection,
    groups: Sequence[str],
    given: Mapping[OffsetCommitKey, int] | None,
    problems: Problems,
    *,
    narrowed: bool,
) -> Committed:
    """Return the committed offsets that a command is about.

    Parameters
    ----------
    selection : Selection
        The partitions chosen.
    groups : sequence of str
        Only these; none: all.
    given : mapping or None
        What counts instead of ``__consumer_offsets``.
    problems : Problems
        Gets the partitions of that which are corrupt.
    narrowed : bool
        Whether partitions were chosen by name; else offsets of others are kept too.

    Raises
    ------
    NotInStoreError
        If nothing is left.
    NoCommittedOffsetsError
        If nothing is given and the store has none, or none of a group.
    """
    if given is None:
        unreadable: dict[TopicPartition, CorruptionError] = {}
        try:
            committed: Committed = committed_offsets(
                selection.store, groups, unreadable=unreadable
            )
        except NoCommittedOffsetsError as error:
            raise NoCommittedOffsetsError(
                f"{error}; give offsets by --offsets or --offsets-file"
            ) from error
        finally:
            for partition, each in unreadable.items():
                problems.add(partition, each)
    else:
        committed = {
            key: OffsetAndMetadata(offset, "", -1)
            for key, offset in sorted(given.items())
            if not groups or key.group in groups
        }
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


def _measured(
    run: Run,
    selection: Selection,
    committed: Committed,
    now: int | None,
    isolation: Isolation,
    problems: Problems,
    *,
    is_weighed: bool,
) -> Iterator[PartitionLag]:
    """Measure partition by partition; what can't be read is told."""
    items = [
        to_follow(key, each, selection.store, is_weighed=is_weighed)
        for key, each in committed.items()
    ]
    measure = partial(
        measure_lag, now=now, isolation=isolation, on_corrupt=problems.on_corrupt
    )
    job = partial(attempt, measure)
    for key, found in zip(committed, run(job, items, weigh=weigh), strict=True):
        if isinstance(found, Failed):
            problems.add(f"{key.topic}-{key.partition}", found.error)
        else:
            problems.add_skipped(found.topic_partition, found.skipped)
            yield found


def _as_json(found: PartitionLag) -> dict[str, Any]:
    row = lag_row(found)
    return {"group": row.pop("group"), **found.topic_partition._asdict(), **row}


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
    """Say what is special about a group's position."""
    if found.place is Place.NO_PARTITION:
        return found.place.value
    notes = []
    if found.place is Place.BELOW_START:
        notes.append(
            f"{counted(found.lost_offsets, 'offset')} deleted unread, the log starts at "
            f"{found.log_start_offset}"
        )
    elif found.place is Place.BEYOND_END:
        notes.append(found.place.value)
    unread = found.unread
    if unread is not None and unread.untimed_records:
        notes.append(f"{counted(unread.untimed_records, 'record')} without timestamp")
    return "; ".join(notes)
