"""Appended Arrow columns are read back unchanged."""

import datetime

import pyarrow as pa
import pytest

import kafkastore
from kafkastore.errors import InvalidColumnError
from kafkastore.formats.records.compression import Codec
from kafkastore.writing.log_dir_writer import LogDirWriter

from .written_logs import FIRST_TIMESTAMP, Clock, new_records

COLUMNS = ["key", "value", "timestamp", "headers"]


@pytest.fixture
def writer(tmp_path):
    with LogDirWriter(tmp_path / "logs", clock=Clock()) as log_dir:
        yield log_dir.writer("t", 0, {"segment.bytes": 5000})


def records(writer):
    (log,) = kafkastore.open(writer.path)
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in log.records()]


def as_arrow(writer):
    (log,) = kafkastore.open(writer.path)
    return log.to_arrow(include_headers=True)


def test_records_read_as_arrow_can_be_appended(writer):
    writer.append_records(new_records(100), batch_bytes=700)
    before = records(writer)
    table = as_arrow(writer).read_all()
    assert writer.append_columns(table, batch_bytes=900, codec=Codec.ZSTD)[:2] == (100, 199)
    assert [row[1:] for row in records(writer)[100:]] == [row[1:] for row in before]
    info = writer.append_columns(table.slice(33, 50).combine_chunks().to_batches()[0])
    assert info[:2] == (200, 249)
    assert [row[1:] for row in records(writer)[200:]] == [row[1:] for row in before[33:83]]


def test_a_reader_is_taken_batch_by_batch(writer):
    writer.append_records(new_records(40))
    reader = as_arrow(writer)
    assert writer.append_columns(reader, batch_bytes=300)[:2] == (40, 79)
    assert writer.append_columns(as_arrow(writer).read_all().slice(0, 0)) == (-1, -1, -1, False)


def test_columns_may_be_missing_null_or_of_other_types(writer):
    moment = datetime.datetime(2020, 9, 13, 12, 26, 40, 123999, tzinfo=datetime.UTC)
    value = pa.array(["a", None], pa.large_string())
    writer.append_columns(pa.table({"value": value}))
    writer.append_columns(pa.table({"value": value, "timestamp": pa.array([None, 7])}))
    stamps = pa.array([moment, None], pa.timestamp("us", "UTC"))
    full = {"key": value, "value": value, "timestamp": stamps, "other": stamps}
    writer.append_columns(pa.table(full))
    assert [row[1:4] for row in records(writer)] == [
        (-1, None, b"a"), (-1, None, None), (-1, None, b"a"), (7, None, None),
        (FIRST_TIMESTAMP + 123, b"a", b"a"), (-1, None, None),
    ]


@pytest.mark.parametrize(
    ("table", "column"),
    [
        (pa.table({"key": [b"k"]}), "value"),
        (pa.table({"value": [1.5]}), "value"),
        (pa.table({"value": [b"v"], "timestamp": ["now"]}), "timestamp"),
        (pa.table({"value": [b"v"], "headers": [5]}), "headers"),
    ],
)
def test_a_column_that_can_t_be_written_is_one_clear_error(writer, table, column):
    with pytest.raises(InvalidColumnError) as refused:
        writer.append_columns(table)
    assert refused.value.column == column
    assert not writer.has_failed


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize(
    "column",
    [
        {"timestamp": pa.array([2**62], pa.timestamp("s"))},
        {"timestamp": pa.array([2**63], pa.uint64())},
        {"headers": pa.array([[None]], HEADERS)},
    ],
)
def test_values_that_do_not_fit_a_record_are_refused_and_not_converted(writer, column):
    with pytest.raises(InvalidColumnError) as refused:
        writer.append_columns(pa.table({"value": [b"v"]} | column))
    assert [refused.value.column] == list(column)
    assert writer.log_end_offset == 0


def test_two_columns_of_a_name_are_refused(writer):
    table = pa.Table.from_arrays([pa.array([b"a"]), pa.array([b"b"])], ["value", "value"])
    with pytest.raises(InvalidColumnError) as refused:
        writer.append_columns(table)
    assert refused.value.column == "value"


def test_nulls_below_a_null_list_of_headers_do_not_count(writer):
    pairs = pa.array([None], HEADERS.value_type)
    headers = pa.ListArray.from_arrays(pa.array([0, 1]), pairs, mask=pa.array([True]))
    writer.append_columns(pa.table({"value": [b"v"], "headers": headers}))
    assert [row[3:] for row in records(writer)] == [(b"v", ())]


@pytest.mark.parametrize(
    "offsets",
    [
        None,
        pa.array([0.0, 1.0]),
        pa.array([0, None]),
        pa.array([0, 1], pa.timestamp("ms")),
        pa.array(["0", "1"]),
        pa.array([0, 2**63], pa.uint64()),
    ],
    ids=["missing", "floats", "nulls", "timestamps", "strings", "too large"],
)
def test_offsets_to_keep_are_integers_without_nulls(writer, offsets):
    columns = {"value": [b"a", b"b"]} | ({} if offsets is None else {"offset": offsets})
    with pytest.raises(InvalidColumnError) as refused:
        writer.append_columns(pa.table(columns), keep_offsets=True)
    assert refused.value.column == "offset"
    assert writer.log_end_offset == 0


def test_offsets_to_keep_may_be_smaller_integers(writer):
    table = pa.table({"value": [b"a", b"b"], "offset": pa.array([3, 5], pa.uint16())})
    writer.append_columns(table, keep_offsets=True)
    assert [row[0] for row in records(writer)] == [3, 5]
