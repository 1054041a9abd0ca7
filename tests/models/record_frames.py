"""Stores to query, and their records as a plain Polars frame, made one record after the other."""
from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from models.log_directory import Log

import kafkastore
from kafkastore import LogStore, PartitionLog

#: The timestamp of the first record of `write_numbered`.
START = 1_500_000_000_000
LARGEST_MILLISECONDS = (2**63 - 1) // 1000
SCHEMA = {
    "key": pl.Binary, "value": pl.Binary, "topic": pl.String, "partition": pl.Int32,
    "offset": pl.Int64, "timestamp": pl.Datetime("us", "UTC"), "timestampType": pl.Int32,
}


def write_logs(root: Path, logs: dict[str, Log]) -> Path:
    """Write a log directory of some partitions."""
    for name, log in logs.items():
        log.write(root, name)
        for checkpoint in root.glob("*-checkpoint"):  # those name another partition
            checkpoint.unlink()
    return root


def rows_of(store: Iterable[PartitionLog]) -> list[tuple[Any, ...]]:
    """The records of a store or of some logs as rows, timestamps as microseconds."""
    return [
        (
            record.key, record.value, log.topic, log.partition, record.offset,
            record.timestamp * 1000 if abs(record.timestamp) <= LARGEST_MILLISECONDS else None,
            int(record.timestamp_type),
        )
        for log in store
        for record in log.records()
    ]


def frame_of(store: LogStore) -> pl.DataFrame:
    """The records of a store as a frame in memory."""
    columns = {**SCHEMA, "timestamp": pl.Int64}
    frame = pl.DataFrame(rows_of(store), columns, orient="row")
    return frame.cast({"timestamp": SCHEMA["timestamp"]})


def write_numbered(root: Path, names: Iterable[str], count: int, value_bytes: int = 20) -> Path:
    """Write partitions of `count` records, one each second, in four segments."""
    with kafkastore.LogDirWriter(root) as log_dir:
        for name in names:
            topic, _, partition = name.rpartition("-")
            writer = log_dir.writer(topic, int(partition))
            for first in range(0, count, count // 4):
                for offset in range(first, first + count // 4, 2):
                    columns = {
                        "value": [b"v" * value_bytes] * 2,
                        "timestamp": [START + 1000 * offset, START + 1000 * (offset + 1)],
                    }
                    writer.append_columns(pa.table(columns))
                if first + count // 4 < count:
                    writer.roll()
    return root
