"""DuckDB, Polars and pandas have the rows of `records()` for the logs of real brokers."""
from __future__ import annotations

from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from models.record_frames import rows_of

import kafkastore
from kafkastore import CorruptionError, LogStore
from kafkastore.duckdb import register
from kafkastore.polars import scan

pytestmark = pytest.mark.golden_cases(at_most=12)


def rows_in(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a table, timestamps as microseconds."""
    at = table.schema.get_field_index("timestamp")
    table = table.set_column(at, "timestamp", table["timestamp"].cast(pa.int64()))
    return [*zip(*(column.to_pylist() for column in table.columns), strict=True)]


@pytest.fixture
def readable(golden_case: Any) -> tuple[LogStore, list[str], list[tuple[Any, ...]]]:
    """The store, its partitions without corrupt bytes, and their rows by `records()`."""
    store = kafkastore.open(golden_case.logs)
    names, rows = [], []
    for log in store:
        try:
            rows += rows_of([log])
        except CorruptionError:
            continue
        names.append(str(log.topic_partition))
    return store, names, rows


def test_every_library_has_the_rows_of_records(
    readable: tuple[LogStore, list[str], list[tuple[Any, ...]]]
) -> None:
    store, names, rows = readable
    table = store.to_arrow(partitions=names)
    with duckdb.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        register(connection, store, partitions=names)
        assert rows_in(pa.table(connection.sql("FROM kafkastore"))) == rows
        connection.register("whole", table)
        assert rows_in(pa.table(connection.sql("FROM whole"))) == rows
    assert rows_in(scan(store, partitions=names).collect().to_arrow()) == rows
    assert rows_in(pl.DataFrame(table).to_arrow()) == rows
    assert rows_in(pl.from_arrow(table).struct.unnest().to_arrow()) == rows
    frame = table.to_pandas()
    known = frame.notna()
    frame["timestamp"] = frame["timestamp"].astype("int64")
    frame = frame.astype(object).where(known, None)
    assert [*frame.itertuples(index=False, name=None)] == rows
    assert rows_in(pa.table(table)) == rows


def test_a_log_by_itself_is_a_table_too(
    readable: tuple[LogStore, list[str], list[tuple[Any, ...]]]
) -> None:
    store, names, _ = readable
    for log in (store[name] for name in names):
        rows = rows_of([log])
        assert rows_in(pa.table(log)) == rows
        assert rows_in(pl.DataFrame(log).to_arrow()) == rows
        with duckdb.connect() as connection:
            connection.register("log", log)
            assert rows_in(pa.table(connection.sql("FROM log"))) == rows
