"""Parquet files of one row group each become one file, as if one writer had written it."""

import io
import threading
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
from kafkastore.log.parallel.parallel_map import ParallelMap

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


def batches_of_rows():
    schema = records_as_arrow.schema()
    batches = []
    for first in range(0, 3000, 30):
        values = range(first, first + 30)
        rows = {"offset": values, "value": [b"%d" % each for each in values], "topic": ["t"] * 30}
        arrays = [pa.array(rows.get(field.name, [None] * 30), field.type) for field in schema]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return batches


def write_parquet(file, threads):
    writer = ColumnWriter(file, "parquet", headers=False, threads=threads)
    for batch in batches_of_rows():
        writer.write_batch(None, batch)
    writer.close()


@pytest.fixture
def small_row_groups(monkeypatch):
    monkeypatch.setattr(column_writer, "_ROW_GROUP_BYTES", 5000)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("footer_bytes", [2**20, -500])
@pytest.mark.parametrize("is_regular", [False, True])
def test_threads_write_the_same_file_whatever_their_number(
    tmp_path, monkeypatch, small_row_groups, threads, footer_bytes, is_regular
):
    """Also if row groups do not fit in the memory that was expected to be enough."""
    monkeypatch.setattr(column_writer, "_FOOTER_BYTES", footer_bytes)
    expected, path = io.BytesIO(), tmp_path / "x.parquet"
    write_parquet(expected, 1)
    with path.open("wb") if is_regular else io.BytesIO() as file:
        write_parquet(file, threads)
        file.flush()
        found = path.read_bytes() if is_regular else file.getvalue()
    assert found == expected.getvalue()
    assert parquet.ParquetFile(path if is_regular else io.BytesIO(found)).num_row_groups > 15
    assert parquet.read_table(io.BytesIO(found)).equals(pa.Table.from_batches(batches_of_rows()))


@pytest.mark.parametrize("is_regular", [False, True])
def test_a_row_group_waits_for_those_before_it_and_threads_write_only_to_regular_files(
    tmp_path, monkeypatch, small_row_groups, is_regular
):
    other_is_encoded, writers = threading.Event(), []
    encode, write = column_writer._RowGroups._encode, PartsWriter.write
    expected = io.BytesIO()
    write_parquet(expected, 1)

    def encode_first_late(groups, batches):
        encoded = encode(groups, batches)
        if batches[0]["offset"][0].as_py() == 0:
            assert other_is_encoded.wait(60)
        else:
            other_is_encoded.set()
        return encoded

    def noting(parts, part):
        writers.append(threading.current_thread())
        write(parts, part)

    monkeypatch.setattr(ParallelMap, "help", lambda *_, **__: False)
    monkeypatch.setattr(column_writer._RowGroups, "_encode", encode_first_late)
    monkeypatch.setattr(PartsWriter, "write", noting)
    with (tmp_path / "x.parquet").open("w+b") if is_regular else io.BytesIO() as file:
        write_parquet(file, 3)
        file.seek(0)
        assert file.read() == expected.getvalue()
    assert (writers[0] is threading.main_thread()) != is_regular


class DiskFullError(OSError):
    pass


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("is_regular", [False, True])
def test_an_error_of_the_disk_is_raised_once_in_the_owner(
    tmp_path, monkeypatch, small_row_groups, threads, is_regular
):
    written, write = [], PartsWriter.write

    def fail(parts, part):
        written.append(part)
        if len(written) == 5:
            raise DiskFullError
        write(parts, part)

    monkeypatch.setattr(PartsWriter, "write", fail)
    with (tmp_path / "x.parquet").open("wb") if is_regular else io.BytesIO() as file:
        writer = ColumnWriter(file, "parquet", headers=False, threads=threads)
        with pytest.raises(DiskFullError):
            for batch in batches_of_rows():
                writer.write_batch(None, batch)
        writer.close()
    assert len(written) == 5
