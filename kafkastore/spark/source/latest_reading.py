"""Reading of the last record of each key in a task, in two passes over logs."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

import pyarrow as pa

from kafkastore.log.damage import SkippedBytes
from kafkastore.log.records_as_arrow import ArrowOptions
from kafkastore.spark.source.options import ReadOptions
from kafkastore.spark.source.schema import NEWEST_TIMESTAMP
from kafkastore.spark.source.slice_reading import joined, scan_arguments, scan_checked
from kafkastore.spark.source.slices import LogSlice
from kafkastore.store.latest_records import LatestRecords
from kafkastore.store.partition_log import PartitionLog


def read_latest_slices(
    slices: Iterable[LogSlice], columns: Sequence[str], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the last record of each key of each topic or partition (`latest_of`).

    All slices of a topic are successive, by partition. Errors are those of `read_slices`.
    """
    names = ("topic", "partition") if options.latest_of == "partition" else ("topic",)
    batches = (
        batch
        for _, each in groupby(slices, key=attrgetter(*names))
        for batch in _read_latest(tuple(each), columns, options)
    )
    for batch in joined(batches):
        yield batch.select(list(columns))


def _read_latest(
    slices: Sequence[LogSlice], columns: Sequence[str], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the last record of each key in some slices together."""
    has_newest = NEWEST_TIMESTAMP in columns
    latest = LatestRecords(across_partitions=has_newest or len(slices) > 1)
    of_records = [name for name in columns if name != NEWEST_TIMESTAMP]
    needed = [*of_records, "key"] if has_newest else of_records
    added: list[LogSlice] = []

    def scanned(each: LogSlice, *, again: bool) -> Iterator[pa.RecordBatch]:
        def scan(log: PartitionLog, skipped: list[SkippedBytes]) -> Iterable[pa.RecordBatch]:
            # The first pass reports the corrupt bytes.
            asked = ArrowOptions(
                columns=needed,
                skipped=[] if again else skipped,
                **scan_arguments(each, options),
            )
            if again:
                return latest.read(log, asked, include_tombstones=options.include_tombstones)
            added.append(each)
            latest.add(log, asked)
            return ()

        return scan_checked(each, options, scan)

    for each in slices:
        for _ in scanned(each, again=False):
            pass
    for each in added:
        for batch in scanned(each, again=True):
            if has_newest:
                newest = latest.newest_timestamps(batch)
                yield batch.append_column(NEWEST_TIMESTAMP, newest)
            else:
                yield batch
