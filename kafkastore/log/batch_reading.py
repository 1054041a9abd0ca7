"""Read the batches of a partition, or their records, one by one."""
from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from kafkastore.arguments import INT64_MAX, whole_number
from kafkastore.errors import CorruptionError
from kafkastore.formats.records.decompression import MAX_DECOMPRESSED_BYTES
from kafkastore.formats.records.record_batch import Record, RecordBatch, TimestampType
from kafkastore.log.damage import CorruptionHandler, OnCorrupt, SkippedBytes
from kafkastore.log.isolation import Isolation, find_committed, reads_committed
from kafkastore.log.log_view import LogView
from kafkastore.log.range_scan import RangeScan
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.wrapped_offsets import wrong_offsets


def read_batches(
    log: LogView,
    start_offset: int | None,
    end_offset: int | None,
    *,
    verify: bool = False,
    decodes: bool = False,
    damage: CorruptionHandler | None = None,
    copied: bool = False,
) -> Iterator[tuple[LogSegment, RecordBatch, int]]:
    """Read batches, each with its segment and smallest offset; see `batches`.

    The smallest offset follows the batches before, and `decodes` is as for `LogFile.runs`. A batch
    is valid until the next one is read, unless it is `copied`.
    """
    start, end = log.bounds(start_offset, end_offset)
    scan = RangeScan(log, start, end, damage)
    is_few = end_offset is not None
    for segment, run, headers, _ in scan.runs(verify_crc=verify, decodes=decodes, few=is_few):
        for index in np.flatnonzero(headers["last_offset"] >= scan.first_offset).tolist():
            smallest = int(headers["last_offset"][index - 1]) + 1 if index else run.smallest_offset
            if smallest >= end:
                return
            data = run.batch(index)
            batch = RecordBatch(bytes(data) if copied else data, int(headers["position"][index]))
            if headers["last_offset"][index] >= end and not _may_begin_before(end, batch):
                return
            yield segment, batch, smallest


def read_records(
    view: LogView,
    start_offset: int | None = None,
    end_offset: int | None = None,
    *,
    include_control: bool = False,
    isolation: Isolation = "read_uncommitted",
    verify: bool = True,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    on_corrupt: OnCorrupt = "raise",
    skipped: list[SkippedBytes] | None = None,
    most_batches: int | None = None,
) -> Iterator[Record]:
    """Read records one by one, of so many batches; see `PartitionLog.records`."""
    start, end = view.bounds(start_offset, end_offset)
    most_bytes = whole_number("max_decompressed_bytes", max_decompressed_bytes, 0)
    damage = CorruptionHandler(on_corrupt, skipped)
    aborted = broken = None
    if reads_committed(isolation):
        last_stable_offset, aborted, broken = view.retry_if_changed(
            lambda: find_committed(
                view, start, end, verify=verify, until_broken=True, damage=damage
            )
        )
        end, broken = min(end, last_stable_offset), broken if end > last_stable_offset else None
    decodes = on_corrupt == "raise"
    batches = read_batches(view, start, end, verify=verify, decodes=decodes, damage=damage)
    for segment, batch, smallest_offset in islice(batches, most_batches):
        if batch.is_control and not include_control:
            continue
        if aborted is not None and aborted.of(batch.header)[0]:
            continue
        try:
            records = batch.records(max_decompressed_bytes=most_bytes)
            if batch.magic < 2 and records:
                offsets = records[0].offset, records[-1].offset, batch.last_offset
                if error := wrong_offsets(*offsets, smallest_offset, batch.position):
                    raise error
        except CorruptionError as error:
            damage.skip_batch(error, segment, batch.header[0])
            if damage.has_stopped:
                return
            continue
        records = [record for record in records if start <= record.offset < end]
        yield from records
        del records  # up to 200 MB: free them before decompressing the next batch
    if broken is not None:
        raise broken


def first_timestamp(
    log: LogView, start_offset: int, end_offset: int | None = None
) -> int | None:
    """Return the first timestamp of the first batch from an offset on, by its header.

    `end_offset` is exclusive. The result is in ms since 1970; for a compressed batch before magic 2
    it is the largest timestamp. None without a batch, or without a timestamp.
    """
    # Always pass an end: the scan then begins with a small read.
    end_offset = INT64_MAX if end_offset is None else end_offset
    for _, batch, _ in read_batches(log, start_offset, end_offset, verify=True):
        timestamp = _first_timestamp_of(batch)
        return timestamp if timestamp >= 0 else None
    return None


def _may_begin_before(offset: int, batch: RecordBatch) -> bool:
    """Return whether a batch has smaller offsets; a wrapper is decompressed to know."""
    try:
        return batch.base_offset < offset
    except CorruptionError:  # who decodes the batch reports it
        return True


def _first_timestamp_of(batch: RecordBatch) -> int:
    """Return the timestamp of a batch's first record, as far as the header has it."""
    by_broker = batch.timestamp_type == TimestampType.LOG_APPEND_TIME
    if by_broker or batch.delete_horizon_ms is not None:
        return batch.max_timestamp
    return batch.base_timestamp
