"""`kafkastore.polars.scan`: rows as of a frame in memory, and few bytes read."""
from __future__ import annotations

import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from models.bytes_read import bytes_read
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.record_frames import START, frame_of, write_logs, write_numbered
from models.record_strategies import NEAR_TIMESTAMPS, bounded, logs
from models.refused import refused
from polars.testing import assert_frame_equal

import kafkastore
from kafkastore import CorruptBatchError, DuplicatePartitionError, LogStore, UnknownTopicError
from kafkastore.errors import ArgumentTypeError
from kafkastore.polars import _Source, scan

NAMES = ("t-0", "t-1", "u-0", "u.v-0")
OFFSET, TIME = pl.col("offset"), pl.col("timestamp")
TOPIC, PARTITION = pl.col("topic"), pl.col("partition")
OPERATORS = ("__eq__", "__ne__", "__gt__", "__ge__", "__lt__", "__le__", "eq_missing", "ne_missing")


def time(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


TIMES = st.one_of(NEAR_TIMESTAMPS.map(lambda ms: 1000 * ms), st.integers(-3000, 45_000)).map(time)
OFFSETS = st.one_of(st.integers(-2, 60), st.sampled_from([2**31, 2**63 - 1, -(2**63)]))
LITERALS = {
    "offset": OFFSETS,
    "timestamp": TIMES,
    "partition": st.integers(-1, 3),
    "topic": st.sampled_from(["t", "u", "u.v", "", "x"]),
}


@st.composite
def conditions(draw: Any, depth: int = 2) -> pl.Expr:
    """A filter on any columns, of the kinds that are pushed and others."""
    kind = draw(st.integers(0, 11))
    if depth and kind < 5:
        left, right = draw(conditions(depth - 1)), draw(conditions(depth - 1))
        return [left & right, left & right, left | right, left ^ right, ~left][kind]
    column = draw(st.sampled_from(sorted(LITERALS)))
    values = LITERALS[column]
    if kind == 5:
        wanted = draw(st.lists(values, max_size=3))
        return pl.col(column).is_in(pl.Series(wanted, dtype=frame_type(column)))
    if kind == 6:
        closed = draw(st.sampled_from(["both", "left", "right", "none"]))
        first, last = (pl.lit(draw(values), frame_type(column)) for _ in range(2))
        return pl.col(column).is_between(first, last, closed=closed)
    if kind == 7:
        return draw(st.sampled_from([
            pl.lit(True), pl.lit(False), TIME.is_null(), OFFSET.is_not_null(),
            pl.col("value").is_null(), pl.col("key") == b"", OFFSET % 2 == 0, OFFSET > 2.5,
            TOPIC.str.starts_with("u"), TOPIC.str.contains("^u$"), TIME.dt.millisecond() < 20,
            OFFSET > PARTITION, OFFSET + 1 > 7, PARTITION.cast(pl.Int64) == 1,
            pl.lit("1970-01-01T00:00:00.009Z").str.to_datetime("%+", time_unit="us") < TIME,
            pl.lit(time(7_000), pl.Datetime("ns", "UTC")) <= TIME, pl.lit(9, pl.UInt8) > OFFSET,
        ]))  # fmt: skip
    value = pl.lit(draw(st.one_of(values, values, values, st.none())), frame_type(column))
    operator = draw(st.sampled_from(OPERATORS))
    if draw(st.booleans()):
        return getattr(pl.col(column), operator)(value)
    return getattr(value, operator)(pl.col(column))


def frame_type(column: str) -> Any:
    return {"offset": pl.Int64, "timestamp": pl.Datetime("us", "UTC"), "partition": pl.Int32,
            "topic": pl.String}[column]


UNTIMED = Log((Segment(0, (Batch((Row(0, 2**62), Row(1, -(2**62)), Row(2, 5))),)),))


@bounded(240)
@example([UNTIMED], [TIME.is_null() | (time(9_000) > TIME)], None, None, None, "in-memory")
@example([UNTIMED], [TIME.eq_missing(pl.lit(None, pl.Datetime("us", "UTC")))], None,
         None, None, "in-memory")
@given(
    st.lists(logs(), min_size=1, max_size=3), st.lists(conditions(), max_size=3),
    st.one_of(st.none(), st.integers(0, 20)), st.one_of(st.none(), st.integers(0, 20)),
    st.one_of(st.none(), st.lists(st.sampled_from(["topic", "offset", "value", "timestamp"]),
                                  min_size=1, unique=True)),
    st.sampled_from(["in-memory", "streaming"]),
)
def test_queries_have_the_rows_of_a_frame_in_memory(
    written: list[Log], filters: list[pl.Expr], first: int | None, last: int | None,
    columns: list[str] | None, engine: Any,
) -> None:
    def query(frame: pl.LazyFrame) -> pl.LazyFrame:
        frame = frame if first is None else frame.head(first)
        for each in filters:
            frame = frame.filter(each)
        frame = frame if last is None else frame.head(last)
        return frame if columns is None else frame.select(columns)

    with tempfile.TemporaryDirectory() as directory:
        root = write_logs(Path(directory) / "logs", dict(zip(NAMES, written, strict=False)))
        store = kafkastore.open(root)
        wanted = query(frame_of(store).lazy()).collect()
        found = query(scan(root)).collect(engine=engine)
    assert_frame_equal(found, wanted)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LogStore:
    """Three partitions of 4000 records."""
    root = tmp_path_factory.mktemp("tables") / "logs"
    return kafkastore.open(write_numbered(root, ("a-0", "a-1", "b-0"), 4000, 2000))


def minute(number: int) -> pl.Expr:
    """A filter on the minute that begins so many minutes after the first record."""
    begins = datetime.fromtimestamp(START / 1000, UTC) + timedelta(minutes=number)
    return TIME.is_between(begins, begins + timedelta(minutes=1), closed="left")


#: The bytes of one record of `store`, and what finding the first one may read more of a partition.
RECORD_BYTES, SEARCH_BYTES = 2_080, 150_000


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="counts bytes as Linux does")
@pytest.mark.parametrize(
    ("query", "rows", "partitions", "records"),
    [
        (lambda frame: frame.filter(minute(65)), 180, 3, 300),
        (lambda frame: frame.filter(minute(65), TOPIC == "b"), 60, 1, 100),
        (lambda frame: frame.filter(TOPIC == "b", PARTITION == 0), 4000, 1, 4000),
        (lambda frame: frame.filter(TOPIC == "x"), 0, 0, 0),
        (lambda frame: frame.filter(OFFSET.is_between(2000, 2009)), 30, 3, 30),
        (lambda frame: frame.filter(OFFSET.is_in([2000, 2009]), PARTITION == 1), 2, 1, 10),
        (lambda frame: frame.filter(OFFSET < 5, OFFSET > 7), 0, 0, 0),
        (lambda frame: frame.head(10), 10, 1, 10),
    ],
)
def test_a_query_reads_only_what_can_match(
    store: LogStore, query: Any, rows: int, partitions: int, records: int
) -> None:
    """After a minute, any record may be older: the rest of the log is read, here 100 records."""
    frame = scan(store)
    query(scan(store, "b", end_offset=1)).collect()  # imports what Polars needs
    read, found = bytes_read(query(frame).collect)
    assert len(found) == rows
    assert read < records * RECORD_BYTES + partitions * SEARCH_BYTES + 4_096


def narrowed(store: LogStore, *filters: pl.Expr) -> tuple[Any, Any]:
    """The partitions and the bounds that filters give."""
    frame = scan(store)
    seen: list[Any] = []
    plain = _Source._narrowed

    def note(self: Any, predicate: Any) -> Any:
        seen.append(plain(self, predicate))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Source, "_narrowed", note)
        frame.filter(*filters).collect()
    ((partitions, limits),) = seen
    return partitions, limits


def test_filters_become_bounds(store: LogStore) -> None:
    partitions, limits = narrowed(store, minute(1), OFFSET > 5, OFFSET <= 100, PARTITION != 1)
    assert partitions == (("a", 0), ("b", 0))
    assert vars(limits) == {
        "start_offset": 6, "end_offset": 101,
        "start_timestamp": START + 60_000, "end_timestamp": START + 120_000,
    }


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_bounds_of_the_scan_and_of_filters_both_hold(store: LogStore, isolation: Any) -> None:
    frame = scan(
        store, "a", start_offset=10, end_offset=20, start_timestamp=START + 12_000,
        isolation=isolation,
    )
    assert frame.collect()["offset"].to_list() == [*range(12, 20)] * 2
    found = frame.filter(OFFSET < 15, OFFSET >= 3).collect()
    assert found["offset"].to_list() == [12, 13, 14] * 2


def test_columns_and_dictionaries_are_those_asked_for(store: LogStore) -> None:
    frame = scan(store, columns=["topic", "offset", "producer_id"], dictionary=True)
    assert dict(frame.collect_schema()) == {
        "topic": pl.Categorical, "offset": pl.Int64, "producer_id": pl.Int64,
    }
    found = frame.filter(TOPIC == "b", OFFSET < 2).collect()
    assert found.rows() == [("b", 0, -1), ("b", 1, -1)]
    assert scan(store).select(pl.len()).collect().item() == 12_000
    assert scan(store, include_headers=True).head(1).collect()["headers"].to_list() == [None]


def test_a_log_that_grows_is_read_anew_by_each_query(tmp_path: Path) -> None:
    with kafkastore.LogDirWriter(tmp_path / "logs") as log_dir:
        writer = log_dir.writer("t", 0)
        record = kafkastore.Record(
            0, START, kafkastore.TimestampType.CREATE_TIME, None, b"v", (), None
        )
        writer.append_records([record])
        frame = scan(tmp_path / "logs")
        assert len(frame.collect()) == 1
        writer.append_records([record])
        assert len(frame.collect()) == 2


def test_without_polars_the_error_names_the_extra() -> None:
    code = "import sys; sys.modules['polars'] = None; import kafkastore.polars"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 1
    assert "pip install 'kafkastore[polars]'" in ran.stderr


def test_errors_are_kafkastore_s_own(store: LogStore, tmp_path: Path) -> None:
    with pytest.raises(UnknownTopicError):
        scan(store, "c")
    with refused("columns"):
        scan(store, columns=["keys"])
    with refused("start_offset", ArgumentTypeError):
        scan(store, start_offset="3")  # type: ignore[arg-type]
    for name in ("limit", "filter", "topic"):
        with pytest.raises(TypeError, match="scan"):
            scan(store, **{name: 3})  # type: ignore[arg-type]
    root = write_numbered(tmp_path / "logs", ["a-0"], 40)
    path = next(root.rglob("00000000000000000020.log"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    for engine in ("in-memory", "streaming"):
        with pytest.raises(CorruptBatchError) as caught:
            scan(root).collect(engine=engine)  # type: ignore[call-overload]
        assert caught.value.path == path
    assert len(scan(root, on_corrupt="skip", skipped=[]).collect()) == 38
    write_numbered(tmp_path / "other", ["a-0"], 40)
    with pytest.raises(DuplicatePartitionError):
        scan([root, tmp_path / "other"])
