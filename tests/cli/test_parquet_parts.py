"""Parquet files of one row group each become one file, as if one writer had written it."""

import io

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models.seed import examples
from pyarrow import parquet

from kafkastore.cli.cat import column_writer, parquet_parts
from kafkastore.cli.cat.column_writer import ColumnWriter
from kafkastore.cli.cat.parquet_parts import PartsWriter
from kafkastore.log import records_as_arrow

TABLES = st.lists(
    st.lists(
        st.tuples(st.none() | st.binary(max_size=300), st.integers(-(2**63), 2**63 - 1),
                  st.none() | st.lists(st.text(max_size=3), max_size=3)),
        min_size=1, max_size=20,
    ),
    min_size=1, max_size=40,
)  # fmt: skip
SCHEMA = pa.schema([("value", pa.binary()), ("offset", pa.int64()), ("h", pa.list_(pa.string()))])


def table_of(rows):
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def joined(tables, **options):
    file = io.BytesIO()
    parts = PartsWriter(file)
    for table in tables:
        sink = io.BytesIO()
        parquet.write_table(table, sink, **options)
        parts.write(memoryview(sink.getvalue()))
    parts.close()
    file.seek(0)
    return file


@settings(max_examples=examples(60), deadline=None)
@given(TABLES, st.booleans(), st.sampled_from(["zstd", "none", "snappy"]), st.booleans())
def test_rows_and_statistics_are_those_of_the_parts(tables, has_index, compression, dictionary):
    tables = [table_of(rows) for rows in tables]
    options = {
        "write_page_index": has_index, "compression": compression, "use_dictionary": dictionary,
    }
    file = joined(tables, **options)
    found = parquet.ParquetFile(file)
    assert found.read().equals(pa.concat_tables(tables))
    assert found.schema_arrow.equals(SCHEMA)
    assert found.metadata.num_row_groups == len(tables)
    at = 4
    for number, table in enumerate(tables):
        group = found.metadata.row_group(number)
        assert group.num_rows == len(table)
        offsets = group.column(1)
        assert offsets.statistics.min == min(table["offset"].to_pylist())
        assert offsets.statistics.max == max(table["offset"].to_pylist())
        assert found.read_row_group(number).equals(table)
        first = group.column(0)
        position = first.dictionary_page_offset or first.data_page_offset
        assert position >= at
        at = position + 1


def test_more_row_groups_than_their_numbers_allow_have_none(monkeypatch):
    monkeypatch.setattr(parquet_parts, "_LARGEST_ORDINAL", 2)
    tables = [table_of([(b"v", number, None)]) for number in range(5)]
    found = parquet.ParquetFile(joined(tables))
    assert found.metadata.num_row_groups == 5
    assert found.read().equals(pa.concat_tables(tables))


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_file_without_rows_has_its_columns(threads):
    file = io.BytesIO()
    ColumnWriter(file, "parquet", headers=True, threads=threads).close()
    found = parquet.read_table(file)
    assert len(found) == 0
    assert found.schema.equals(records_as_arrow.schema(include_headers=True))


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("footer_bytes", [2**20, -500])
def test_threads_write_the_same_file_whatever_their_number(monkeypatch, threads, footer_bytes):
    """Also if row groups do not fit in the memory that was expected to be enough."""
    monkeypatch.setattr(column_writer, "_ROW_GROUP_BYTES", 5000)
    monkeypatch.setattr(column_writer, "_FOOTER_BYTES", footer_bytes)
    schema = records_as_arrow.schema()
    batches = []
    for first in range(0, 3000, 30):
        values = range(first, first + 30)
        rows = {"offset": values, "value": [b"%d" % each for each in values], "topic": ["t"] * 30}
        arrays = [pa.array(rows.get(field.name, [None] * 30), field.type) for field in schema]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))

    def written(number):
        file = io.BytesIO()
        writer = ColumnWriter(file, "parquet", headers=False, threads=number)
        for batch in batches:
            writer.write_batch(None, batch)
        writer.close()
        return file.getvalue()

    found = written(threads)
    assert found == written(1)
    assert parquet.ParquetFile(io.BytesIO(found)).metadata.num_row_groups > 15
    assert parquet.read_table(io.BytesIO(found)).equals(pa.Table.from_batches(batches))
