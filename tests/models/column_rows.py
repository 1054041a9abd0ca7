"""The rows of columns, read back byte by byte from Arrow's buffers, and those of model batches."""

import numpy as np
from hypothesis import strategies as st
from models.record_strategies import batches, in_a_row

from kafkastore.formats.records.record_columns import (
    HEADERS_COLUMN,
    KAFKA_COLUMNS,
    OTHER_COLUMNS,
)

ALL_COLUMNS = (*KAFKA_COLUMNS, HEADERS_COLUMN, *OTHER_COLUMNS)


def is_present(validity, row):
    return validity is None or bool(bytes(validity)[row // 8] >> row % 8 & 1)


def binaries(parts, rows):
    """The values of a binary column; also checks what `nulls` says."""
    nulls, validity, offsets, values = parts
    offsets = np.frombuffer(offsets, np.int32)
    data = bytes(values)
    found = [
        data[offsets[row] : offsets[row + 1]] if is_present(validity, row) else None
        for row in range(rows)
    ]
    assert nulls in (-1, found.count(None))
    return found


def header_lists(parts, rows):
    nulls, validity, offsets, count, names, values = parts
    offsets = np.frombuffer(offsets, np.int32)
    pairs = list(zip(binaries(names, count), binaries(values, count), strict=True))
    found = [
        pairs[offsets[row] : offsets[row + 1]] if is_present(validity, row) else None
        for row in range(rows)
    ]
    assert nulls in (-1, found.count(None))
    return found


def numbers(buffer, kind, rows):
    return np.frombuffer(buffer, kind)[:rows].tolist()


def table(columns):
    """The rows taken, one dict each."""
    rows, taken = columns.take()
    readers = {
        "key": lambda parts: binaries(parts, rows),
        "value": lambda parts: binaries(parts, rows),
        "offset": lambda buffer: numbers(buffer, "i8", rows),
        "timestampType": lambda buffer: numbers(buffer, "i4", rows),
        "timestamp": lambda parts: [
            value if is_present(parts[1], row) else None
            for row, value in enumerate(numbers(parts[2], "i8", rows))
        ],
        HEADERS_COLUMN: lambda parts: header_lists(parts, rows),
        "leader_epoch": lambda buffer: numbers(buffer, "i4", rows),
        "producer_id": lambda buffer: numbers(buffer, "i8", rows),
        "producer_epoch": lambda buffer: numbers(buffer, "i4", rows),
        "is_transactional": lambda buffer: numbers(buffer, "?", rows),
        "is_control": lambda buffer: numbers(buffer, "?", rows),
    }
    decoded = {name: readers[name](parts) for name, parts in taken.items()}
    return [{name: decoded[name][row] for name in decoded} for row in range(rows)]


def micros(timestamp):
    """None if the microseconds do not fit Arrow's 64 bits."""
    return timestamp * 1000 if abs(timestamp) <= (2**63 - 1) // 1000 else None


def rows_of(written, *, include_control=False):
    """The expected columns for model batches."""
    return [
        {
            "key": key, "value": value, "offset": offset, "timestamp": micros(timestamp),
            "timestampType": kind,
            HEADERS_COLUMN: [(name.encode(), value) for name, value in headers] or None,
            "leader_epoch": batch.leader_epoch if batch.magic == 2 else -1,
            "producer_id": batch.producer_id, "producer_epoch": batch.producer_epoch,
            "is_transactional": batch.is_transactional, "is_control": batch.is_control,
        }
        for batch in written
        if include_control or not batch.is_control
        for offset, timestamp, kind, key, value, headers, _ in batch.records
    ]


LOGS = st.lists(batches(), min_size=1, max_size=6).map(in_a_row)
