"""Rows of frames, compared with what brokers returned for the same records."""
from __future__ import annotations

import base64
import hashlib
from typing import Any

import pyarrow as pa

TIMESTAMP_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}
LARGEST_VALUE = 4096


def expected_rows(answers: dict[str, Any], *, headers: bool) -> list[tuple[Any, ...]]:
    """A consumer's records as rows of Spark's Kafka source, by topic, partition, offset."""
    rows = []
    for name, partition in answers["partitions"].items():
        topic, _, number = name.rpartition("-")
        for offset, timestamp, kind, key, value, pairs, _epoch in partition.get("records", ()):
            row = (
                decoded(key), decoded(value), topic, int(number), offset, timestamp * 1000,
                TIMESTAMP_TYPES[kind],
            )
            named = [(each, decoded(data)) for each, data in pairs] or None
            rows.append((*row, named) if headers else row)
    return sorted(rows, key=lambda row: row[2:5])


def decoded(text: str | None) -> str | bytes | None:
    """The bytes of a key or value; a long one is replaced by its digest."""
    if text is None or text.startswith("sha256:"):
        return text
    return base64.b64decode(text)


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a frame that was collected as Arrow, by topic, partition, offset."""
    columns = []
    for name in table.column_names:
        column = table[name]
        if pa.types.is_timestamp(column.type):
            assert column.type == pa.timestamp("us", tz="UTC")
            column = column.cast(pa.int64())
        values = column.to_pylist()
        if name == "headers":
            values = [
                None if pairs is None else [(each["key"], each["value"]) for each in pairs]
                for pairs in values
            ]
        columns.append([shortened(value) for value in values])
    rows = list(zip(*columns, strict=True))
    at = [table.column_names.index(name) for name in ("topic", "partition", "offset")]
    return sorted(rows, key=lambda row: tuple(row[each] for each in at))


def shortened(value: Any) -> Any:
    """A long value as answers files have it."""
    if isinstance(value, bytes) and len(value) > LARGEST_VALUE:
        return f"sha256:{hashlib.sha256(value).hexdigest()}:{len(value)}"
    return value
