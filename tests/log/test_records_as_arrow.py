"""A partition's records as Arrow tables."""

import datetime
import gc
import tempfile
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from models.iteration import until_error
from models.log_directory import Log, Segment
from models.record_format import GZIP, ZSTD, Batch, Row, marker
from models.record_strategies import NEAR_TIMESTAMPS, bounded, logs
from models.refused import refused

import kafkastore
from kafkastore import CorruptBatchError
from kafkastore.errors import ArgumentTypeError
from kafkastore.log.records_as_arrow import schema

SPARK_COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
OUR_COLUMNS = ["leader_epoch", "producer_id", "producer_epoch", "is_transactional", "is_control"]
LARGEST_MILLISECONDS = (2**63 - 1) // 1000


@pytest.fixture
def opened(tmp_path):
    """A function that writes a model log and opens it."""

    def write_and_open(log):
        (found,) = kafkastore.open(log.write(tmp_path / "logs"))
        return found

    return write_and_open


def one_segment(*batches, **fields):
    return Log((Segment(0, tuple(batches), **fields),))


def numbered(count, **fields):
    return tuple(Batch((Row(number, number, b"k", b"v%d" % number),), **fields)
                 for number in range(count))


def rows_of(table):
    """The rows of a table: timestamps as microseconds, headers as pairs."""
    columns = {name: table[name].to_pylist() for name in table.column_names if name != "timestamp"}
    if "timestamp" in table.column_names:
        columns["timestamp"] = table["timestamp"].cast(pa.int64()).to_pylist()
    if "headers" in columns:
        columns["headers"] = [
            tuple((header["key"], header["value"]) for header in headers or ())
            for headers in columns["headers"]
        ]
    return [{name: values[row] for name, values in columns.items()} for row in range(len(table))]


def row_of(record):
    offset, timestamp, kind, key, value, headers, _ = record
    fits = abs(timestamp) <= LARGEST_MILLISECONDS
    return {
        "key": key, "value": value, "topic": "t", "partition": 0, "offset": offset,
        "timestamp": timestamp * 1000 if fits else None, "timestampType": kind, "headers": headers,
    }


BOUNDS = st.one_of(st.none(), st.integers(-1, 60))


@bounded(150)
@given(
    logs(has_headers=True), st.booleans(), BOUNDS, BOUNDS, st.integers(1, 20), st.booleans(),
    st.booleans(), st.one_of(st.none(), st.integers(0, 30)),
)
def test_tables_between_offsets_have_what_was_written(
    log, include_control, start, end, batch_rows, include_headers, binary_view, limit
):
    wanted = [
        row_of(record)
        for record in log.records(include_control=include_control)
        if (start is None or record[0] >= start) and (end is None or record[0] < end)
    ]
    wanted = wanted[:limit]
    if not include_headers:
        wanted = [{name: row[name] for name in SPARK_COLUMNS} for row in wanted]
    with tempfile.TemporaryDirectory() as directory:
        (found,) = kafkastore.open(log.write(Path(directory) / "logs"))
        reader = found.to_arrow(
            start_offset=start, end_offset=end, include_control=include_control,
            batch_rows=batch_rows, include_headers=include_headers, binary_view=binary_view,
            limit=limit,
        )
        assert reader.schema.field("value").type == (
            pa.binary_view() if binary_view else pa.binary()
        )
        batches = list(reader)
    for batch in batches:
        batch.validate(full=True)
        assert 0 < batch.num_rows <= batch_rows
    assert rows_of(pa.Table.from_batches(batches, reader.schema)) == wanted


#: A message without a timestamp in a wrapper with one before 1970.
UNTIMED_IN_WRAPPER = Batch((Row(0, -7),), magic=1, codec=1, inner_magic=0)


@bounded(120)
@example(one_segment(UNTIMED_IN_WRAPPER), -1, None, "check")
@given(
    logs(), st.one_of(st.none(), NEAR_TIMESTAMPS), st.one_of(st.none(), NEAR_TIMESTAMPS),
    st.sampled_from(["check", "trust"]),
)
def test_tables_between_times_have_the_records_of_these_times(log, start, end, indexes):
    wanted = [
        record[0]
        for record in log.records()
        if (start is None or record[1] >= start) and (end is None or record[1] < end)
    ]
    with tempfile.TemporaryDirectory() as directory:
        (found,) = kafkastore.open(log.write(Path(directory) / "logs"))
        table = found.to_arrow(
            ["offset"], start_timestamp=start, end_timestamp=end, indexes=indexes
        ).read_all()
    assert table["offset"].to_pylist() == wanted


def test_the_schema_is_that_of_spark_s_kafka_source():
    assert schema().names == SPARK_COLUMNS
    assert schema(include_headers=True).names == [*SPARK_COLUMNS, "headers"]
    assert [str(kind) for kind in schema(include_headers=True).types] == [
        "binary", "binary", "string", "int32", "int64", "timestamp[us, tz=UTC]", "int32",
        "list<item: struct<key: string, value: binary>>",
    ]


def test_columns_keep_their_order_for_any_selection(opened):
    found = opened(one_segment(*numbered(3)))
    table = found.to_arrow(["is_control", "offset", "key"]).read_all()
    assert table.column_names == ["key", "offset", "is_control"]


@pytest.mark.parametrize("column", [*SPARK_COLUMNS, "headers", *OUR_COLUMNS])
def test_every_column_alone_is_as_among_all(opened, column):
    headers = (("a", b"x"), ("b", None))
    batch = Batch((Row(0, 5, b"k", None, headers), Row(1, 6)), producer_id=9, producer_epoch=2,
                  is_transactional=True, leader_epoch=4)
    found = opened(one_segment(batch, marker(2, 7)))
    table = found.to_arrow([*SPARK_COLUMNS, "headers", *OUR_COLUMNS], include_control=True)
    alone = found.to_arrow([column], include_control=True).read_all()
    assert alone[column].to_pylist() == table.read_all()[column].to_pylist()


def test_no_columns_at_all_still_count_rows(opened):
    assert opened(one_segment(*numbered(7))).to_arrow([]).read_all().num_rows == 7


def test_our_own_columns_hold_the_fields_of_the_batch(opened):
    batch = Batch((Row(0, 5), Row(1, 6)), producer_id=2**40, producer_epoch=2, leader_epoch=4,
                  is_transactional=True)
    old = Batch((Row(2, 5),), magic=1)
    found = opened(one_segment(batch, old, marker(3, 7, producer_id=5)))
    rows = rows_of(found.to_arrow(OUR_COLUMNS, include_control=True).read_all())
    assert [tuple(row.values()) for row in rows] == [
        (4, 2**40, 2, True, False), (4, 2**40, 2, True, False), (-1, -1, -1, False, False),
        (0, 5, 0, True, True),
    ]


@pytest.mark.parametrize("columns", [["ofset"], ["offset", "Key"], ["offset", "x", "y"]])
def test_unknown_columns_are_an_error_that_names_them(opened, columns):
    with refused("columns"):
        opened(one_segment(*numbered(1))).to_arrow(columns)


@pytest.mark.parametrize(
    "options", [{"batch_rows": 0}, {"batch_bytes": -1}, {"limit": -1}], ids=str
)
def test_invalid_numbers_are_refused(opened, options):
    with refused(*options):
        opened(one_segment(*numbered(3))).to_arrow(**options)


def test_one_name_is_not_a_sequence_of_names():
    with refused("columns", ArgumentTypeError):
        schema("offset")


def test_timestamps_are_utc_with_milliseconds(opened):
    (value,) = opened(one_segment(Batch((Row(0, 1_500_000_000_123),)))).to_arrow(
        ["timestamp"]
    ).read_all()["timestamp"].to_pylist()
    assert value == datetime.datetime(2017, 7, 14, 2, 40, 0, 123_000, tzinfo=datetime.UTC)


def test_records_without_headers_have_null_and_not_an_empty_list(opened):
    found = opened(one_segment(Batch((Row(0, 5), Row(1, 6, headers=(("a", b""),))))))
    column = found.to_arrow(["headers"]).read_all()["headers"]
    assert column.to_pylist() == [None, [{"key": "a", "value": b""}]]


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 1000])
def test_batches_have_at_most_the_requested_rows(opened, batch_rows):
    ten = Batch(tuple(Row(number, 5) for number in range(10)))
    found = opened(one_segment(ten, *(batch.with_offset(10) for batch in numbered(1))))
    batches = list(found.to_arrow(["offset"], batch_rows=batch_rows))
    assert all(batch.num_rows <= batch_rows for batch in batches)
    assert [n for batch in batches for n in batch["offset"].to_pylist()] == list(range(11))


def test_nothing_is_read_before_it_is_requested(opened):
    found = opened(one_segment(*numbered(2), tail=b"\xff" * 60))
    reader = found.to_arrow(["offset"])
    with pytest.raises(CorruptBatchError):
        reader.read_all()


def test_a_broken_batch_is_an_error_after_all_rows_before_it(opened):
    broken = Batch((Row(50, 5), Row(51, 6)), stated_count=3)
    found = opened(one_segment(*numbered(50), broken, *numbered(60)[-1:]))
    batches, error = until_error(found.to_arrow(["offset", "key"], batch_rows=7))
    offsets = [offset for batch in batches for offset in batch["offset"].to_pylist()]
    assert offsets == list(range(50))
    assert isinstance(error, CorruptBatchError)
    assert error.path == found.segments[0].log_path
    assert error.position == sum(len(batch.data) for batch in numbered(50))


def test_a_corrupt_batch_outside_the_range_is_not_read(opened):
    broken = Batch((Row(5, 5),), stated_count=3)
    found = opened(one_segment(*numbered(5), broken))
    table = found.to_arrow(["offset"], end_offset=5).read_all()
    assert table["offset"].to_pylist() == [0, 1, 2, 3, 4]


def test_a_corrupt_batch_after_the_limit_is_not_read(opened):
    log = opened(one_segment(*numbered(3), Batch((Row(3, 3),), stated_count=5)))
    assert log.to_arrow(["offset"], limit=3).read_all()["offset"].to_pylist() == [0, 1, 2]


def test_segments_without_the_requested_times_are_not_read(opened):
    first = Segment(0, numbered(3)).indexed()
    second = Segment(3, tuple(batch.with_offset(3 + n) for n, batch in enumerate(
        Batch((Row(0, 1000 + number),)) for number in range(3)))).indexed()
    found = opened(Log((first, second)))
    path = found.segments[0].log_path
    size = path.stat().st_size
    table = found.to_arrow(["offset"], start_timestamp=500).read_all()
    assert table["offset"].to_pylist() == [3, 4, 5]
    # Corrupt bytes before the last batch: reading the segment is an error.
    data = bytearray(path.read_bytes())
    data[30] ^= 255
    path.write_bytes(data)
    assert path.stat().st_size == size
    (again,) = kafkastore.open(found.path.parent)
    trusting = again.to_arrow(["offset"], start_timestamp=500, indexes="trust")
    assert trusting.read_all().num_rows == 3
    with pytest.raises(CorruptBatchError):
        again.to_arrow(["offset"], start_timestamp=500).read_all()


@pytest.mark.parametrize("codec", [0, GZIP, ZSTD])
def test_memory_is_bounded_for_any_size_of_the_log(opened, codec):
    value = b"value" * 2000     # the same in all batches, so that the model is fast
    batches = tuple(
        Batch(tuple(Row(10 * number + row, 5, None, value) for row in range(10)), codec=codec)
        for number in range(400)
    )
    found = opened(one_segment(*batches))
    gc.collect()
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    rows = sum(batch.num_rows for batch in found.to_arrow(["value"], batch_rows=100))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rows == 4000
    assert peak + pa.total_allocated_bytes() - before < 24 * 1024 * 1024


def test_a_header_name_that_is_not_utf_8_is_shown_as_consumers_see_it(opened):
    found = opened(one_segment(Batch((Row(0, 5, headers=(("a\udcff", b"x"),)),))))
    (batch,) = found.to_arrow(["headers"])
    batch.validate(full=True)
    assert batch["headers"].to_pylist() == [[{"key": "a\ufffd", "value": b"x"}]]


def test_tables_outlive_the_reader(opened):
    found = opened(one_segment(*numbered(100)))
    reader = found.to_arrow(batch_rows=10)
    batches = [batch for batch in reader]  # noqa: C416
    del reader
    gc.collect()
    assert [b"v%d" % n for n in range(100)] == [
        value for batch in batches for value in batch["value"].to_pylist()
    ]
