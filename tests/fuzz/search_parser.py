"""The searches for times in files of any bytes, as a parser of the registry."""

from __future__ import annotations

import tempfile
import zlib
from pathlib import Path

import numpy as np
from fuzz.reading import MAX_DECOMPRESSED_BYTES, or_error, raise_first, scanned

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.indexes.entries import TIMESTAMP_AND_OFFSET
from kafkastore.formats.indexes.index_builder import IndexBuilder
from kafkastore.formats.indexes.index_format import time_index
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.timestamp_search import SegmentSearch

TARGETS = np.array([-(2**63), 0, 1_500_000_000_000, 2**63 - 1])
STARTS = (0, 3)


def read_timestamp_search(data: bytes) -> None:
    """Search a log: by no index, by those of its batches, or by its own bytes as indexes."""
    builder = IndexBuilder(0, 50)
    or_error(builder.append, scanned(data))
    offset_entries, time_entries = builder.finish()
    raw = data[: len(data) // 24 * 24]
    ways = ((b"", b""), (time_entries, offset_entries), (raw, raw))
    times, offsets = ways[zlib.crc32(data) % 3]
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory, f"{0:020}.log")
        log.write_bytes(data)
        log.with_suffix(".timeindex").write_bytes(times)
        log.with_suffix(".index").write_bytes(offsets)
        segment = LogSegment(log.parent, 0)
        _glimpse(segment, times)
        errors = []
        for checked in (False, True):
            search = SegmentSearch(
                segment.open_log, 0, times, offsets,
                warm_section=len(data) % 2 == 0, checks_entries=checked, skip_control=checked,
                max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
            )
            errors += _search(search)
    raise_first(errors)


def _search(search: SegmentSearch) -> list[KafkaStoreError]:
    errors = []
    for start in STARTS:
        found = np.zeros(len(TARGETS), TIMESTAMP_AND_OFFSET)
        try:
            search.find_many(TARGETS, start, found)
        except KafkaStoreError as error:
            errors.append(error)
            continue
        for target, entry in zip(TARGETS.tolist(), found.tolist(), strict=True):
            one = search.find(target, start)
            if one is None:
                assert entry == (-1, -1, -1)
                continue
            assert one[:2] == entry[:2]
            assert one.timestamp >= target
            assert one.offset >= start
    return errors


def _glimpse(segment: LogSegment, times: bytes) -> None:
    largest = segment.largest_timestamp_by_index
    assert largest is None or largest >= 0
    used = times[: 12 * time_index.used_entry_count(times)]
    assert segment.last_time_entry() == time_index.last_entry(used, 0)
    assert segment.last_time_entry(with_padding=True) == time_index.last_entry(times, 0)
