"""Find the correct answer for a time among a corrupt log's readable records."""
from __future__ import annotations

import numpy as np

from kafkastore.formats.indexes.entries import NO_TIMESTAMP, TimestampAndOffset
from kafkastore.log.damage import OnCorrupt, SkippedBytes
from kafkastore.log.log_view import LogView
from kafkastore.log.record_reading import RecordOptions, read
from kafkastore.lookup.mtime_search import last_written_ms
from kafkastore.lookup.rules import LookupChoice


def find_past_damage(
    view: LogView,
    target_timestamp: int,
    choice: LookupChoice,
    on_corrupt: OnCorrupt,
    skipped: list[SkippedBytes] | None,
) -> TimestampAndOffset | None:
    """Find the first readable record at or after a time."""
    options = RecordOptions(
        columns=["offset", "timestamp", "leader_epoch"],
        start_timestamp=max(target_timestamp, 0),
        limit=1,
        isolation=choice.isolation,
        on_corrupt=on_corrupt,
        skipped=skipped,
    )
    found = [*read(view, options)]
    offset = int(found[0].numbers("offset")[0]) if found else None
    if choice.untimed is not None:
        first = _first_untimed(view, target_timestamp, offset, choice, on_corrupt)
        if first is not None:
            return TimestampAndOffset(NO_TIMESTAMP, first)
    if offset is None:
        return None
    timestamp, epoch = (int(found[0].numbers(name)[0]) for name in ("timestamp", "leader_epoch"))
    return TimestampAndOffset(timestamp, offset, None if epoch < 0 else epoch)


def _first_untimed(
    view: LogView,
    target_timestamp: int,
    end_offset: int | None,
    choice: LookupChoice,
    on_corrupt: OnCorrupt,
) -> int | None:
    """Find the first segment, before an offset, without readable timestamps."""
    options = RecordOptions(
        columns=["offset", "timestamp"],
        end_offset=None if end_offset is None else end_offset + 1,
        isolation=choice.isolation,
        on_corrupt=on_corrupt,
        skipped=[],
    )
    bases = np.array([segment.base_offset for segment in view.segments], np.int64)
    has_records, is_dated = np.zeros((2, len(bases)), bool)
    for batch in read(view, options):
        segments = np.searchsorted(bases, batch.numbers("offset"), side="right") - 1
        has_records[segments] = True
        is_dated[segments[batch.numbers("timestamp") >= 0]] = True
    for number in np.flatnonzero(has_records & ~is_dated).tolist():
        segment = view.segments[number]
        if last_written_ms(segment) >= max(target_timestamp, 0):
            return max(segment.base_offset, view.log_start_offset)
    return None
