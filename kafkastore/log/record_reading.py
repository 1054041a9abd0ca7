"""Read the records of a partition, one by one."""
from __future__ import annotations

from collections.abc import Iterator

from kafkastore.arguments import whole_number
from kafkastore.errors import CorruptionError
from kafkastore.formats.records.decompression import MAX_DECOMPRESSED_BYTES
from kafkastore.formats.records.record_batch import Record
from kafkastore.log.batch_reading import read_batches
from kafkastore.log.damage import CorruptionHandler, OnCorrupt, SkippedBytes
from kafkastore.log.isolation import Isolation, find_committed, reads_committed
from kafkastore.log.log_view import LogView
from kafkastore.segment.wrapped_offsets import wrong_offsets


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
) -> Iterator[Record]:
    """Read records one by one; see `PartitionLog.records`."""
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
    for segment, batch, smallest_offset in batches:
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
