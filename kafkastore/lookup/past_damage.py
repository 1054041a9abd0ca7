"""Find the correct answer for a time among a corrupt log's readable records."""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kafkastore.formats.indexes.entries import NO_TIMESTAMP, TimestampAndOffset
from kafkastore.log.batch_reading import read_records
from kafkastore.log.damage import OnCorrupt, SkippedBytes
from kafkastore.log.log_view import LogView
from kafkastore.lookup.mtime_search import last_written_ms
from kafkastore.lookup.rules import LookupChoice

if TYPE_CHECKING:
    import pyarrow as pa


def find_past_damage(
    view: LogView,
    target_timestamp: int,
    choice: LookupChoice,
    on_corrupt: OnCorrupt,
    skipped: list[SkippedBytes] | None,
) -> TimestampAndOffset | None:
    """Find the first readable record at or after a time."""
    # Importing pyarrow takes longer than a lookup.
    from kafkastore.log.records_as_arrow import ArrowOptions, read

    options = ArrowOptions(
        columns=["offset", "timestamp", "leader_epoch"],
        start_timestamp=max(target_timestamp, 0),
        limit=1,
        isolation=choice.isolation,
        on_corrupt=on_corrupt,
        skipped=skipped,
    )
    found = [*read(view, options)]
    offset = found[0].column("offset")[0].as_py() if found else None
    if choice.untimed is not None:
        first = _first_untimed(view, target_timestamp, offset, choice, on_corrupt)
        if first is not None:
            return TimestampAndOffset(NO_TIMESTAMP, first)
    if offset is None:
        return None
    epoch = found[0].column("leader_epoch")[0].as_py()
    return TimestampAndOffset(
        _timestamp_of(view, found[0], offset, on_corrupt), offset, None if epoch < 0 else epoch
    )


def _timestamp_of(view: LogView, found: pa.RecordBatch, offset: int, on_corrupt: OnCorrupt) -> int:
    """Return the time of the first record that was found."""
    micros = found.column("timestamp").cast("int64")[0].as_py()
    if micros is not None:
        return int(micros // 1000)
    # It does not fit 64 bits in microseconds.
    records = read_records(view, offset, offset + 1, on_corrupt=on_corrupt, skipped=[])
    return next((record.timestamp for record in records), NO_TIMESTAMP)


def _first_untimed(
    view: LogView,
    target_timestamp: int,
    end_offset: int | None,
    choice: LookupChoice,
    on_corrupt: OnCorrupt,
) -> int | None:
    """Find the first segment, before an offset, without readable timestamps."""
    from kafkastore.log.records_as_arrow import ArrowOptions, read

    options = ArrowOptions(
        columns=["offset", "timestamp"],
        end_offset=None if end_offset is None else end_offset + 1,
        isolation=choice.isolation,
        on_corrupt=on_corrupt,
        skipped=[],
    )
    bases = np.array([segment.base_offset for segment in view.segments], np.int64)
    has_records, is_dated = np.zeros((2, len(bases)), bool)
    for batch in read(view, options):
        segments = np.searchsorted(bases, batch.column("offset").to_numpy(), side="right") - 1
        has_records[segments] = True
        # A timestamp that does not fit 64 bits in microseconds is null: it is a timestamp.
        stamps = batch.column("timestamp").cast("int64").fill_null(0).to_numpy()
        is_dated[segments[stamps >= 0]] = True
    for number in np.flatnonzero(has_records & ~is_dated).tolist():
        segment = view.segments[number]
        if last_written_ms(segment) >= max(target_timestamp, 0):
            return max(segment.base_offset, view.log_start_offset)
    return None
