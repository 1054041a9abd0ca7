"""Parquet files of one row group each become one file, as if one writer had written it."""

import io
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models.refused import refused
from models.seed import SEED, examples
from pyarrow import parquet

from kafkastore.cli.cat import column_writer
from kafkastore.cli.cat.column_writer import ColumnWriter
from kafkastore.cli.cat.parquet_footer import LARGEST_ORDINAL, JoinedFooter
from kafkastore.cli.cat.parquet_parts import PartsWriter
from kafkastore.errors import ArgumentValueError
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


def test_more_row_groups_than_their_numbers_allow_can_be_read():
    table, part, file = table_of([(b"v", 7, ["h"])]), io.BytesIO(), io.BytesIO()
    parquet.write_table(table, part)
    parts, count = PartsWriter(file), LARGEST_ORDINAL + 3
    for _ in range(count):
        parts.write(part.getbuffer())
    parts.close()
    found = parquet.ParquetFile(file)
    assert found.metadata.num_row_groups == found.metadata.num_rows == count
    assert found.read_row_group(count - 1).equals(table)


def test_bytes_that_are_no_footer_are_refused_wherever_they_are_cut_or_wrong():
    part = io.BytesIO()
    parquet.write_table(table_of([(b"v", 7, ["h"]), (None, -8, [])]), part)
    data = part.getvalue()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    JoinedFooter().add(footer, 5)
    for size in range(len(footer)):
        with refused("footer", ArgumentValueError):
            JoinedFooter().add(footer[:size], 5)
    random = Random(SEED)
    for _ in range(20_000):
        changed = bytearray(footer)
        for _ in range(random.randrange(1, 4)):
            changed[random.randrange(len(changed))] = random.randrange(256)
        joined = JoinedFooter()
        try:
            joined.add(bytes(changed), 5)
        except ArgumentValueError:
            continue
        assert joined.finish().endswith(b"\0")


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
