"""Stores to query, and their records as a plain Polars frame, made one record after the other."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from models.log_directory import Log

from kafkastore import LogStore

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


def rows_of(store: LogStore) -> list[tuple[Any, ...]]:
    """The records of a store as rows, timestamps as microseconds."""
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
