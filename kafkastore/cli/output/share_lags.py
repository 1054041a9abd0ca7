"""The table of share groups' lag."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkastore.cli.options.durations import format_duration
from kafkastore.cli.output.tables import format_count, format_value, print_table

if TYPE_CHECKING:
    from kafkastore.cli.store_command import StoreCall
    from kafkastore.use_cases.lag import PartitionLag
    from kafkastore.use_cases.share_lag import SharePartitionLag


def print_share_lags(
    call: StoreCall, found: Sequence[SharePartitionLag], *, is_first: bool
) -> None:
    """Print the lag of share groups, after that of other groups unless `is_first`."""
    if not is_first:
        print()
    print_table(
        ["share group", "partition", "start", "log end", "lag (offsets)", "lag (records)",
         "lag (time)", "acknowledged", "archived", "released", "first unread", "note"],
        (
            [
                each.group,
                str(each.topic_partition or f"{each.topic_id}-{each.partition}"),
                format_value(each.state.start_offset),
                format_value(each.log_end_offset),
                format_value(each.offsets),
                format_value(each.records),
                format_duration(each.lag_ms),
                str(each.acknowledged),
                str(each.archived),
                str(each.released),
                call.format_time(None if each.unread is None else each.unread.first_timestamp),
                _note(each),
            ]
            for each in found
        ),
        right="start,log end,lag (offsets),lag (records),lag (time),acknowledged,archived,released",
        prose="note",
    )
    groups = len({each.group for each in found})
    print(
        f"{format_count(groups, 'share group')}, {format_count(len(found), 'partition')}: "
        f"{format_unread(found)}"
    )


def format_unread(found: Sequence[PartitionLag] | Sequence[SharePartitionLag]) -> str:
    """Return the number of all unread records, and for how many lags it is unknown."""
    known = [each.records for each in found if each.records is not None]
    unknown = f", unknown for {len(found) - len(known):,}" if len(known) < len(found) else ""
    return f"{format_count(sum(known), 'unread record')}{unknown}"


def _note(found: SharePartitionLag) -> str:
    """Describe an unusual position of a group; empty for any other."""
    if found.topic_partition is None:
        return "no topic with this id is in PATH"
    if found.log_end_offset is None:
        return "the partition is not in PATH"
    if found.state.start_offset is None:
        return "not read yet"
    if found.lost_offsets:
        return (
            f"{format_count(found.lost_offsets, 'offset')} deleted unread, the log starts at "
            f"{found.log_start_offset}"
        )
    return ""
