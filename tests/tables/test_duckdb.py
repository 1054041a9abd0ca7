"""`kafkastore.duckdb.register`: rows as of a table in memory, and few bytes read."""
from __future__ import annotations

import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from models.bytes_read import bytes_read
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.record_frames import START, frame_of, write_logs, write_numbered
from models.record_strategies import bounded, logs
from models.refused import refused

import kafkastore
from kafkastore import LogStore, UnknownTopicError
from kafkastore.duckdb import _View, register
from kafkastore.errors import ArgumentTypeError
from kafkastore.store.record_limits import RecordLimits

NAMES = ("t-0", "t-1", "u-0")
UNTIMED = Log((Segment(0, (Batch((Row(0, 2**62), Row(1, -(2**62)), Row(2, 5))),)),))


def connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET timezone = 'UTC'")
    return connection


def time(milliseconds: int) -> str:
    return f"make_timestamptz({1000 * milliseconds})"


LITERALS = {
    '"offset"': st.integers(-2, 60).map(str),
    '"timestamp"': st.one_of(st.integers(-8, 45), st.just(10**6)).map(time),
    "partition": st.integers(-1, 2).map(str),
    "topic": st.sampled_from(["'t'", "'u'", "''", "'x'"]),
}


@st.composite
def conditions(draw: Any, depth: int = 2) -> str:
    """A condition in SQL on any columns, of the kinds that are pushed and others."""
    kind = draw(st.integers(0, 9))
    if depth and kind < 4:
        left, right = draw(conditions(depth - 1)), draw(conditions(depth - 1))
        return [f"({left} AND {right})", f"({left} AND {right})", f"({left} OR {right})",
                f"(NOT {left})"][kind]
    column = draw(st.sampled_from(sorted(LITERALS)))
    values = LITERALS[column]
    if kind == 4:
        return f"{column} IN ({', '.join(draw(st.lists(values, min_size=1, max_size=3)))})"
    if kind == 5:
        return f"{column} BETWEEN {draw(values)} AND {draw(values)}"
    if kind == 6:
        return draw(st.sampled_from([
            '"timestamp" IS NULL', "value IS NULL", "key = ''::BLOB", '"offset" % 2 = 0',
            '"offset" > 2.5', "topic LIKE 'u%'", '"offset" > partition', "topic <> 't'", "true",
            "topic IS DISTINCT FROM 't'", f'"timestamp" IS NOT DISTINCT FROM {time(9)}', "false",
        ]))  # fmt: skip
    operator = draw(st.sampled_from(["=", "<>", ">", ">=", "<", "<="]))
    value = draw(st.one_of(values, values, values, st.just("NULL")))
    return draw(st.sampled_from([f"{column} {operator} {value}", f"{value} {operator} {column}"]))


@bounded(240)
@example([UNTIMED], [f'"timestamp" IS NULL OR "timestamp" < {time(9)}'], '*')
@example([UNTIMED], ['"timestamp" IS NULL'], "topic")
@given(
    st.lists(logs(), min_size=1, max_size=3), st.lists(conditions(), max_size=3),
    st.sampled_from(["*", "value, topic", '"offset"', "count(*)"]),
)
def test_queries_have_the_rows_of_a_table_in_memory(
    written: list[Log], filters: list[str], columns: str
) -> None:
    query = f"SELECT {columns} FROM {{}} WHERE {' AND '.join(filters or ['true'])}"
    with tempfile.TemporaryDirectory() as directory:
        root = write_logs(Path(directory) / "logs", dict(zip(NAMES, written, strict=False)))
        with connect() as connection:
            register(connection, root)
            connection.register("in_memory", frame_of(kafkastore.open(root)).to_arrow())
            wanted = arrow_rows(connection, query.format("in_memory"))
            assert arrow_rows(connection, query.format("kafkastore")) == wanted


def arrow_rows(connection: duckdb.DuckDBPyConnection, query: str) -> list[Any]:
    """The rows of a query, timestamps as numbers: Python's can't hold all."""
    table = pa.table(connection.sql(query))
    for number, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(number, field.name, table[number].cast(pa.int64()))
    return table.to_pylist()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LogStore:
    """Three partitions of 4000 records, one each second."""
    root = tmp_path_factory.mktemp("tables") / "logs"
    return kafkastore.open(write_numbered(root, ("a-0", "a-1", "b-0"), 4000, 2000))


MINUTE = (time(START + 65 * 60_000), time(START + 66 * 60_000))
#: The bytes of one record of `store`, and what finding the first one may read more of a partition.
RECORD_BYTES, SEARCH_BYTES = 2_080, 150_000


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="counts bytes as Linux does")
@pytest.mark.parametrize(
    ("query", "found", "partitions", "records"),
    [
        ('FROM kafkastore WHERE "timestamp" >= {} AND "timestamp" < {}', 180, 3, 300),
        ('FROM b WHERE "timestamp" >= {} AND "timestamp" < {}', 60, 1, 100),
        ("FROM kafkastore(start_timestamp := {}, end_timestamp := {})", 180, 3, 300),
        ("FROM kafkastore(topic_name := 'b', start_timestamp := {})", 100, 1, 100),
        ("FROM kafkastore(start_offset := 2000, end_offset := 2010)", 30, 3, 30),
        ("FROM kafkastore WHERE topic = 'b' AND partition = 0", 4000, 1, 4000),
        ('FROM b WHERE "offset" IN (2000, 2009)', 2, 1, 10),
        ("FROM kafkastore WHERE topic IN ('x', 'y')", 0, 0, 0),
        ('FROM b WHERE "offset" > 7 AND "offset" < 5', 0, 0, 0),
    ],
)
def test_a_query_reads_only_what_can_match(
    store: LogStore, query: str, found: int, partitions: int, records: int
) -> None:
    """After a minute, any record may be older: the rest of the log is read, here 100 records."""
    with connect() as connection:
        register(connection, store)
        asked = "SELECT count(value) " + query.format(*MINUTE)
        connection.sql('SELECT count(value) FROM b WHERE "offset" < 1').fetchall()
        read, rows = bytes_read(connection.sql(asked).fetchall)
    assert rows == [(found,)]
    assert read < records * RECORD_BYTES + partitions * SEARCH_BYTES + 16_384


@pytest.mark.parametrize(
    ("condition", "start", "end"),
    [
        ('"offset" < 5', None, 5), ('"offset" <= 5', None, 6), ('"offset" > 5', 5, None),
        ('"offset" >= 5', 5, None), ('"offset" = 7', 7, 8), ('7 = "offset"', 7, 8),
        ('"offset" BETWEEN 3 AND 5', 3, 6), ('"offset" IN (9, 4, 6)', 4, 10),
        ('"offset" = 3 OR "offset" = 8', 3, 9), ('"offset" % 7 < 5', None, None),
        ('"offset" <> 5', None, None), ("value IS NULL", None, None),
    ],
)  # fmt: skip
def test_filters_become_bounds(
    store: LogStore, monkeypatch: pytest.MonkeyPatch, condition: str, start: int, end: int
) -> None:
    seen: list[RecordLimits] = []
    plain = _View._table

    def note(self: Any, partitions: Any, columns: Any, limits: RecordLimits) -> Any:
        seen.append(limits)
        return plain(self, partitions, columns, limits)

    with connect() as connection:
        register(connection, store, "a")
        monkeypatch.setattr(_View, "_table", note)
        connection.sql(f"SELECT count(partition) FROM a WHERE {condition}").fetchall()
    assert (seen[0].start_offset, seen[0].end_offset) == (start, end)
    assert (seen[0].start_timestamp, seen[0].end_timestamp) == (None, None)


def test_times_become_bounds(store: LogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    plain = _View._narrowed
    monkeypatch.setattr(
        _View, "_narrowed", lambda self, asked: seen.append(plain(self, asked)) or seen[-1]
    )
    begin, end = MINUTE
    with connect() as connection:
        register(connection, store)
        query = "SELECT count(*) FROM kafkastore(topic_name := 'a', start_timestamp := {}, "
        query += "end_timestamp := {})"
        assert connection.sql(query.format(begin, end)).fetchall() == [(120,)]
    ((partitions, limits),) = seen
    assert partitions == (("a", 0), ("a", 1))
    assert limits.start_timestamp == START + 65 * 60_000
    assert limits.end_timestamp == START + 66 * 60_000


def test_a_query_that_ends_early_stops_reading(store: LogStore) -> None:
    with connect() as connection:
        register(connection, store, threads=1)
        read, rows = bytes_read(lambda: connection.sql("FROM kafkastore LIMIT 3").fetchall())
    assert len(rows) == 3
    assert read < 8_000_000  # of 24 million


HOSTILE = ["a.b", "A-b_c", "select", "__consumer_offsets", "x\"y", "it's", "a b; DROP TABLE t", "ü"]


def test_topics_of_any_name_are_views(tmp_path: Path) -> None:
    log = Log((Segment(0, (Batch((Row(0, 5, b"k", b"v"),)),)),))
    root = write_logs(tmp_path / "logs", {f"{name}-0": log for name in HOSTILE})
    with connect() as connection:
        connection.execute("CREATE TABLE t (n INTEGER)")
        register(connection, root, name='all "records"')
        views = {name for (name,) in connection.sql("SHOW TABLES").fetchall()}
        assert views == {*HOSTILE, 'all "records"', "t"}
        for name in HOSTILE:
            quoted = name.replace('"', '""')
            assert connection.sql(f'SELECT topic FROM "{quoted}"').fetchall() == [(name,)]
        found = connection.sql('SELECT topic FROM "all ""records"""(start_offset := 0)')
        assert {name for (name,) in found.fetchall()} == {*HOSTILE}


def test_names_that_are_one_to_duckdb_are_refused(tmp_path: Path) -> None:
    log = Log((Segment(0, (Batch((Row(0, 5, b"k", b"v"),)),)),))
    root = write_logs(tmp_path / "logs", {"orders-0": log, "Orders-0": log, "kafkastore-0": log})
    with connect() as connection:
        with refused("topics"):
            register(connection, root, ["orders", "Orders"])
        with refused("name"):
            register(connection, root, "kafkastore")
        assert connection.sql("SHOW TABLES").fetchall() == []
        register(connection, root, ["kafkastore", "orders"], name="every")
        assert connection.sql("SELECT count(*) FROM every").fetchall() == [(2,)]


def test_no_connection_and_no_columns_are_refused_by_their_names(store: LogStore) -> None:
    for wrong in (None, 5, "logs", store):
        with refused("connection", ArgumentTypeError):
            register(wrong, store)
    with connect() as connection, refused("columns"):
        register(connection, store, columns=[])


def test_columns_partitions_and_bounds_are_those_asked_for(store: LogStore) -> None:
    with connect() as connection:
        register(
            connection, store, columns=["partition", "producer_id"], partitions=["a-1"],
            end_offset=2,
        )
        assert connection.sql("FROM kafkastore").fetchall() == [(1, -1)] * 2
        assert connection.sql("FROM a WHERE partition = 0").fetchall() == []
        with pytest.raises(duckdb.Error):  # there is no macro without its columns
            connection.sql("FROM kafkastore()")
        with pytest.raises(UnknownTopicError):
            register(connection, store, "c")


@pytest.mark.parametrize("arguments", [{"limit": 3}, {"topic": "a"}, {"name": ""}, {"name": 5}])
def test_wrong_arguments_make_no_view(store: LogStore, arguments: Any) -> None:
    with connect() as connection:
        with pytest.raises(TypeError):
            register(connection, store, **arguments)
        assert connection.sql("SHOW ALL TABLES").fetchall() == []


def test_corrupt_bytes_are_errors_that_name_them(tmp_path: Path) -> None:
    root = write_numbered(tmp_path / "logs", ["a-0"], 40)
    path = next(root.rglob("00000000000000000020.log"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with connect() as connection:
        register(connection, root)
        with pytest.raises(duckdb.Error) as caught:
            connection.sql("SELECT count(value) FROM a").fetchall()
        assert str(path) in str(caught.value)
        assert "Traceback" not in str(caught.value)
        register(connection, root, on_corrupt="skip", skipped=[])
        assert connection.sql("SELECT count(value) FROM a").fetchall() == [(38,)]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("ordres", "no topic 'ordres' in {}; did you mean orders?"),
        ("ORDERS", "no topic 'ORDERS' in {}; did you mean orders?"),
        ("zzz", "no topic 'zzz' in {}; among its topics are it's, orders"),
        ("", "no topic '' in {}; among its topics are it's, orders"),
    ],
)
@pytest.mark.parametrize("query", ["FROM {}", "FROM {} LIMIT 1", "SELECT count(*) FROM {}"])
@pytest.mark.parametrize("bounds", ["", ", start_offset := 1000", ", end_timestamp := 0"])
def test_the_macro_names_a_topic_that_does_not_exist(
    tmp_path: Path, name: str, sentence: str, query: str, bounds: str
) -> None:
    log = Log((Segment(0, (Batch((Row(0, 5, b"k", b"v"),)),)),))
    root = write_logs(tmp_path / "it's {logs}", {"it's-0": log, "orders-0": log})
    with connect() as connection:
        register(connection, root)
        for argument, values in ((f"'{name}'", []), ("?", [name])):
            asked = query.format(f"kafkastore(topic_name := {argument}{bounds})")
            with pytest.raises(duckdb.Error) as caught:
                connection.execute(asked, values).fetchall()
            assert str(caught.value).endswith(sentence.format(root)), asked


def test_the_macro_of_no_topics_names_one_too(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/meta.properties").write_text("version=0\nbroker.id=0\n")
    with connect() as connection:
        register(connection, tmp_path / "logs")
        assert connection.sql("FROM kafkastore()").fetchall() == []
        with pytest.raises(duckdb.Error, match=r"none$"):
            connection.sql("FROM kafkastore(topic_name := 't')").fetchall()


@pytest.mark.parametrize(
    "moment",
    [
        START + 65 * 60_000, str(START + 65 * 60_000),
        datetime.fromtimestamp(START // 1000 + 65 * 60, UTC),
        datetime.fromtimestamp(START // 1000 + 65 * 60, UTC).replace(tzinfo=None),
        datetime.fromtimestamp(START // 1000 + 65 * 60, UTC).isoformat(),
        np.datetime64(START + 65 * 60_000, "ms"),
    ],
    ids=repr,
)  # fmt: skip
def test_the_macro_takes_times_as_ms_and_as_any_type_of_time(store: LogStore, moment: Any) -> None:
    with connect() as connection:
        register(connection, store)
        query = "SELECT count(value) FROM kafkastore(topic_name := 'b', {} := ?)"
        read, rows = bytes_read(
            lambda: connection.execute(query.format("start_timestamp"), [moment]).fetchall()
        )
        assert rows == [(100,)]
        assert read < 100 * RECORD_BYTES + SEARCH_BYTES + 16_384
        assert connection.execute(query.format("end_timestamp"), [moment]).fetchall() == [(3900,)]


@pytest.mark.parametrize("query", ["FROM a", "FROM kafkastore WHERE topic = 'a'"])
def test_a_directory_that_was_deleted_meanwhile_is_an_error_without_a_traceback(
    tmp_path: Path, query: str
) -> None:
    root = write_numbered(tmp_path / "logs", ["a-0"], 40)
    with connect() as connection:
        register(connection, root)
        shutil.rmtree(root)
        with pytest.raises(duckdb.Error) as caught:
            connection.sql(query).fetchall()
    assert str(root / "a-0") in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert len(str(caught.value).strip().splitlines()) == 1
