"""Batches as the package writes them, against a slow writer, a slow reader and brokers' own."""

import gzip
import struct
from dataclasses import replace
from itertools import pairwise
from mmap import mmap

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from models import record_reader
from models.record_format import CODECS_OF, NONE, Batch, Row, emptied, marker
from models.record_strategies import HEADERS, batches, bounded, in_a_row, rows
from models.refused import refused

from kafkastore import KafkaStoreError, OffsetOverflowError, OutOfOrderAppendError, RecordBatch
from kafkastore.errors import ArgumentValueError, RecordValueError
from kafkastore.formats.records import batch_header
from kafkastore.formats.records.batch_builder import BatchBuilder
from kafkastore.formats.records.compression import Codec
from kafkastore.formats.records.decompression import decompress
from kafkastore.formats.records.record_builder import (
    build_batch,
    build_batch_from_columns,
    build_batches_from_columns,
    build_end_transaction_marker,
)
from kafkastore.formats.records.record_columns import RecordColumns

RECORDS_AT = 61
MESSAGE_VALUE_AT = {0: 26, 1: 34}
NOW = 1_500_000_000_000


def as_builders_write(written):
    """A model batch as brokers' builders make it; models can be of other kinds."""
    if written.magic == 0:
        written = replace(written, rows=tuple(row._replace(timestamp=-1) for row in written.rows))
    if not written.rows:
        return replace(written, codec=NONE)
    times = [row.timestamp for row in written.rows]
    # An uncompressed message keeps its own timestamp.
    stated = max(-1, *times) if written.magic == 2 or written.codec != NONE else None
    return replace(written, inner_magic=None, is_raw_snappy=False, stated_max_timestamp=stated)


BATCHES = batches().map(as_builders_write)


def fields_of(written):
    """The same batch as arguments."""
    fields = {
        "magic": written.magic, "codec": Codec(written.codec),
        "log_append_time": written.append_time if written.magic else None,
    }
    if written.magic == 2:
        fields |= {
            "leader_epoch": written.leader_epoch, "producer_id": written.producer_id,
            "producer_epoch": written.producer_epoch, "base_sequence": written.base_sequence,
            "is_transactional": written.is_transactional, "is_control": written.is_control,
            "delete_horizon_ms": written.delete_horizon,
        }
    return fields


def bounds_of(written):
    return {"base_offset": written.first_offset, "last_offset": written.last_offset_kept}


def built(written):
    kept = {} if written.rows else {"max_timestamp": written.stated_max_timestamp}
    return build_batch(written.rows, **fields_of(written), **bounds_of(written), **kept)


def binary(values):
    """A binary column: (nulls, validity, offsets, bytes)."""
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value or b""))
    validity = sum((value is not None) << row for row, value in enumerate(values))
    return (
        values.count(None), validity.to_bytes(len(values) // 8 + 1, "little"),
        struct.pack(f"={len(ends)}i", *ends), b"".join(value or b"" for value in values),
    )


def columns_of(records):
    """Records as columns, value by value."""
    headers = [header for record in records for header in record.headers]
    ends = [0]
    for record in records:
        ends.append(ends[-1] + len(record.headers))
    _, validity, *_ = binary([b"" if record.headers else None for record in records])
    return {
        "offset": struct.pack(f"={len(records)}q", *[record.offset for record in records]),
        "timestamp": struct.pack(f"={len(records)}q", *[record.timestamp for record in records]),
        "key": binary([record.key for record in records]),
        "value": binary([record.value for record in records]),
        "headers": (
            -1, validity, struct.pack(f"={len(ends)}i", *ends), len(headers),
            binary([name.encode("utf-8", "surrogateescape") for name, _ in headers]),
            binary([value for _, value in headers]),
        ),
    }


@bounded(200)
@given(BATCHES)
@example(as_builders_write(Batch((Row(0, -2),), magic=1)))
def test_a_built_batch_reads_back(written):
    data = built(written)
    assert record_reader.read_records(data) == written.records
    batch = RecordBatch(data)
    assert [tuple(record) for record in batch.records()] == written.records
    assert batch.is_valid()
    assert (batch.base_offset, batch.last_offset) == (written.base_offset, written.last_offset)
    assert (batch.max_timestamp, batch.codec) == (written.max_timestamp, written.codec)
    if written.magic == 2:
        assert batch.count == len(written.rows)
        assert batch.leader_epoch == (None if written.leader_epoch < 0 else written.leader_epoch)
        assert batch.producer_id == written.producer_id
        assert batch.producer_epoch == written.producer_epoch
        assert batch.base_sequence == written.base_sequence
        assert batch.is_transactional == written.is_transactional
        assert batch.is_control == written.is_control
        assert batch.delete_horizon_ms == written.delete_horizon


@bounded(200)
@given(BATCHES)
def test_without_a_codec_every_byte_is_that_of_the_slow_writer(written):
    written = replace(written, codec=NONE, rows=written.rows[: 1 if written.magic < 2 else None])
    assert built(written) == written.data


@bounded(100)
@given(BATCHES)
def test_compressed_records_are_those_of_the_slow_writer(written):
    """Inner messages of an append time differ: brokers' builders write it into each."""
    if written.codec == NONE or (written.magic == 1 and written.append_time is not None):
        return
    start = MESSAGE_VALUE_AT.get(written.magic, RECORDS_AT)
    ours, theirs = (
        decompress(written.codec, data[start:], magic=written.magic)
        for data in (built(written), written.data)
    )
    assert ours == theirs


@bounded(100)
@given(st.integers(0, 1), rows(count=3, has_headers=False, timestamps=st.just(-1)))
def test_messages_without_a_codec_have_no_wrapper(magic, records):
    alone = b"".join(Batch((row,), magic=magic).data for row in records)
    assert build_batch(records, magic=magic) == alone


@bounded(200)
@given(BATCHES)
def test_columns_make_the_same_bytes_as_records(written):
    if written.rows:
        columns = columns_of(written.rows)
        if not any(row.headers for row in written.rows):
            del columns["headers"]
        assert built(written) == build_batch_from_columns(
            len(written.rows), columns, **fields_of(written), **bounds_of(written)
        )


@bounded(60)
@given(st.lists(batches(timestamps=st.integers(-1, 40)), min_size=1, max_size=4).map(in_a_row))
def test_columns_taken_from_a_log_are_written_again(written):
    data = b"".join(batch.data for batch in written)
    headers = np.zeros(100, batch_header.BATCH_HEADER)
    count, *_ = batch_header.scan(data, 0, headers, verify_crc=True)
    log = RecordColumns(["offset", "timestamp", "key", "value", "headers"], include_control=True)
    log.append(data, headers[:count])
    taken, columns = log.take()
    micros = np.frombuffer(columns["timestamp"][2], "i8")
    columns["timestamp"] = micros // 1000
    records = [record for batch in written for record in batch.records]
    if not records:
        return
    again = RecordBatch(build_batch_from_columns(taken, columns, codec=Codec.LZ4)).records()
    assert [(record.offset, record.timestamp, *record[3:6]) for record in again] == [
        (offset, timestamp, key, value, headers)
        for offset, timestamp, _, key, value, headers, _ in records
    ]


def golden_batches(case):
    for path in sorted(case.logs.glob("*/*.log")):
        for _, batch in record_reader.split(path.read_bytes())[0]:
            yield batch


def fields_of_batch(batch):
    """The header fields of a batch, as arguments."""
    append_time = batch.max_timestamp if batch.timestamp_type == 1 else None
    fields = {"magic": batch.magic, "codec": batch.codec, "log_append_time": append_time}
    if batch.magic < 2:
        return fields
    epoch = -1 if batch.leader_epoch is None else batch.leader_epoch
    return fields | {
        "base_offset": batch.base_offset, "last_offset": batch.last_offset,
        "leader_epoch": epoch, "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch, "base_sequence": batch.base_sequence,
        "is_transactional": batch.is_transactional, "is_control": batch.is_control,
        "delete_horizon_ms": batch.delete_horizon_ms,
        "max_timestamp": None if batch.count else batch.max_timestamp,
    }


@pytest.mark.golden_cases(
    names=["codecs", "old-formats", "transactions", "headers-and-nulls", "compacted", "log-*"]
)
def test_batches_of_brokers_are_built_again(golden_case):
    seen = 0
    for data in golden_batches(golden_case):
        batch = RecordBatch(data)
        records = batch.records()
        again = build_batch(records, **fields_of_batch(batch))
        assert RecordBatch(again).records() == records
        # With LogAppendTime the producer's times, which the deltas hold, are not returned.
        if batch.codec == NONE and (batch.magic < 2 or batch.timestamp_type == 0):
            assert again == data
            seen += 1
    assert seen or "log-append-time" in golden_case.name


@pytest.mark.golden_cases(names="transactions")
def test_transaction_markers_are_those_of_brokers(golden_case):
    kinds = set()
    for data in golden_batches(golden_case):
        batch = RecordBatch(data)
        if not batch.is_control:
            continue
        (record,) = batch.records()
        is_commit = record.key == bytes([0, 0, 0, 1])
        kinds.add(is_commit)
        assert data == build_end_transaction_marker(
            record.offset, record.timestamp, batch.producer_id, batch.producer_epoch,
            is_commit=is_commit, coordinator_epoch=int.from_bytes(record.value[2:], "big"),
            leader_epoch=batch.leader_epoch,
        )
    assert kinds == {True, False}


def test_a_marker_has_version_kind_and_coordinator():
    (record,) = RecordBatch(
        build_end_transaction_marker(7, NOW, 5, 1, is_commit=False, coordinator_epoch=3)
    ).records()
    assert (record.key.hex(), record.value.hex()) == ("00000000", "000000000003")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("leader_epoch", 2**31), ("producer_id", 2**63), ("producer_epoch", -(2**15) - 1),
        ("base_sequence", 2**31), ("log_append_time", 2**63), ("delete_horizon_ms", -(2**63) - 1),
    ],
)
def test_a_field_that_does_not_fit_is_refused_by_its_name(field, value):
    with pytest.raises(ArgumentValueError) as refusal:
        build_batch([Row(0, NOW)], **{field: value})
    assert refusal.value.argument == field


def test_a_marker_s_coordinator_epoch_that_does_not_fit_is_refused_by_its_name():
    with pytest.raises(ArgumentValueError) as refusal:
        build_end_transaction_marker(7, NOW, 5, 1, is_commit=False, coordinator_epoch=2**31)
    assert refusal.value.argument == "coordinator_epoch"


@pytest.mark.parametrize("row", [Row(2**63, NOW), Row(1, 2**63), Row(1, -(2**63) - 1)])
def test_a_record_whose_offset_or_timestamp_does_not_fit_is_refused(row):
    with pytest.raises(RecordValueError) as refusal:
        build_batch([Row(0, NOW), row])
    assert refusal.value.offset == row.offset


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_that_compaction_emptied_keeps_its_header_and_has_no_codec(codec):
    data = build_batch((), codec=codec, base_offset=10, last_offset=15, max_timestamp=999)
    assert data == emptied(10, 15, 999, leader_epoch=-1).data


def test_the_two_types_of_time():
    record = Row(4, 5, b"k", b"v")
    create, append = (RecordBatch(build_batch([record], log_append_time=t)) for t in (None, 77))
    assert (create.max_timestamp, create.timestamp_type.name) == (5, "CREATE_TIME")
    assert (append.max_timestamp, append.timestamp_type.name) == (77, "LOG_APPEND_TIME")
    assert append.base_timestamp == 5


@pytest.mark.parametrize(("append_time", "attributes", "time"), [(None, 0, 5), (77, 8, 77)])
def test_messages_in_a_wrapper_have_relative_offsets_and_the_times_of_a_broker(
    append_time, attributes, time
):
    data = build_batch(
        [Row(100, 5), Row(103, 2)], magic=1, codec=Codec.GZIP, log_append_time=append_time
    )
    inner = decompress(Codec.GZIP, data[34:], magic=1)
    assert [inner[at : at + 8].hex() for at in (0, 34)] == ["00" * 8, "00" * 7 + "03"]
    assert (data[17], inner[17], inner[34 + 17]) == (1 | attributes, attributes, attributes)
    assert int.from_bytes(inner[18:26], "big") == time
    assert int.from_bytes(data[:8], "big") == 103
    assert int.from_bytes(data[18:26], "big") == time


def test_messages_in_a_wrapper_of_magic_0_have_absolute_offsets():
    inner = decompress(
        Codec.GZIP, build_batch([Row(100, -1)], magic=0, codec=Codec.GZIP)[26:], magic=0
    )
    assert int.from_bytes(inner[:8], "big") == 100


@bounded(100)
@given(
    rows(count=12, has_headers=True, timestamps=st.integers(0, 40)),
    st.integers(60, 700), st.sampled_from([-1, 0, 2**31 - 3]),
)
def test_columns_are_split_where_one_record_more_would_be_too_large(records, limit, sequence):
    producer = (
        {"producer_id": 1, "producer_epoch": 0, "base_sequence": sequence} if sequence >= 0 else {}
    )
    made = list(
        build_batches_from_columns(len(records), columns_of(records), limit, **producer)
    )
    parts = [RecordBatch(data) for data in made]
    found = [record for part in parts for record in part.records()]
    assert [(record.offset, *record[3:6]) for record in found] == [
        (row.offset, row.key, row.value, row.headers) for row in records
    ]
    assert all(part.size <= limit or part.count == 1 for part in parts)
    for part, following in pairwise(parts):
        larger = build_batch([*part.records(), following.records()[0]])
        assert len(larger) > limit
        if producer:
            assert following.base_sequence == (part.base_sequence + part.count) % 2**31


def test_records_too_far_from_each_other_are_split():
    columns = columns_of([Row(0, 1), Row(2**31 - 1, 1), Row(2**31, 1)])
    made = build_batches_from_columns(3, columns, 1_000_000)
    assert [RecordBatch(data).base_offset for data in made] == [0, 2**31]


@pytest.mark.parametrize(("magic", "size"), [(0, 26 + 66), (1, 34 + 66)])
def test_messages_are_split_too(magic, size):
    records = [Row(offset, -1, None, b"x" * 66) for offset in range(10)]
    made = list(build_batches_from_columns(10, columns_of(records), 400, magic=magic))
    assert [len(data) // size for data in made] == [4, 4, 2]
    assert b"".join(made) == build_batch(records, magic=magic)


def test_no_rows_give_no_batches():
    assert list(build_batches_from_columns(0, columns_of([]), 100)) == []


def test_a_builder_reports_a_full_batch_and_continues_with_the_next():
    builder = BatchBuilder(max_batch_bytes=100)
    records = [Row(offset, 5, b"k", b"v" * 20) for offset in range(2)]
    assert builder.append(records[0])
    assert not builder.append(records[1])
    assert builder.finish() == build_batch(records[:1])
    assert builder.append(records[1])
    assert builder.finish() == build_batch(records[1:])


def test_a_first_record_too_far_from_the_base_offset_does_not_fit_any_batch():
    builder = BatchBuilder(max_batch_bytes=100)
    builder.start(0)
    with pytest.raises(OffsetOverflowError):
        builder.append(Row(2**31, 1))


def test_a_record_of_2_gib_is_refused_before_it_is_copied():
    size = 2**31 - 1
    with mmap(-1, size) as memory:  # only addresses: no page is touched
        columns = columns_of([Row(7, 1)]) | {
            "value": (0, None, struct.pack("=2i", 0, size), memory)
        }
        with pytest.raises(RecordValueError) as refusal:
            build_batch_from_columns(1, columns)
        assert refusal.value.offset == 7
        del columns


def test_a_builder_is_as_before_after_a_refused_record():
    builder = BatchBuilder()
    builder.append(Row(5, 1))
    with pytest.raises(OutOfOrderAppendError):
        builder.append(Row(5, 1))
    builder.append(Row(6, 1))
    assert builder.finish() == build_batch([Row(5, 1), Row(6, 1)])


def test_a_builder_forgets_what_is_not_finished_when_it_starts_again():
    builder = BatchBuilder()
    builder.append(Row(5, 1))
    builder.start(3)
    builder.append(Row(4, 1))
    assert builder.finish() == build_batch([Row(4, 1)], base_offset=3)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_keys_values_and_headers_may_be_any_bytes(kind):
    record = Row(1, 2, kind(b"k"), kind(b"v"), [("a", kind(b"b")), (kind(b"\xff"), None)])
    (read,) = RecordBatch(build_batch([record])).records()
    assert (read.key, read.value) == (b"k", b"v")
    assert read.headers == (("a", b"b"), ("\udcff", None))


@pytest.mark.parametrize(
    "record", [Row(1, 2, "k"), Row(1, 2, 7), Row(1, 2, None, [1]), Row(1, 2, headers=[("a", "b")])]
)
def test_values_that_are_not_bytes_are_refused(record):
    with pytest.raises(TypeError):
        build_batch([record])


def test_names_of_headers_that_are_not_utf_8_are_kept():
    headers = (("\udcff\udc80", b""),)
    (read,) = RecordBatch(build_batch([Row(1, 2, headers=headers)])).records()
    assert read.headers == headers


@pytest.mark.parametrize("timestamps", [(2**63 - 1, -(2**63), 0), (-(2**63), 2**63 - 1), (-2,)])
def test_differences_of_timestamps_wrap_as_java_s_do(timestamps):
    records = [Row(offset, timestamp) for offset, timestamp in enumerate(timestamps)]
    batch = RecordBatch(build_batch(records))
    assert tuple(record.timestamp for record in batch.records()) == timestamps
    assert batch.max_timestamp == max(-1, *timestamps)


@pytest.mark.parametrize("size", [0, 1, 50, 51, 8180, 8190, 2**20, 2**21 + 5])
def test_lengths_of_every_size_are_written(size):
    row = Row(2**31 - 1, 2**40, b"k" * size, b"v" * (size // 2), (("n" * (size % 300), b"x"),))
    assert build_batch([row], base_offset=0) == Batch((row,), first_offset=0, leader_epoch=-1).data


REFUSED = {
    "an offset that goes back": ([Row(5, 1), Row(4, 1)], {}, OutOfOrderAppendError, None),
    "an offset twice": ([Row(5, 1), Row(5, 1)], {}, OutOfOrderAppendError, None),
    "a negative offset": ([Row(-1, 1)], {}, OutOfOrderAppendError, None),
    "an offset before the base": (
        [Row(5, 1)], {"base_offset": 6}, OutOfOrderAppendError, None),
    "an offset too far": ([Row(0, 1), Row(2**31, 1)], {}, OffsetOverflowError, None),
    "a last offset before the last record": (
        [Row(5, 1)], {"last_offset": 4}, OutOfOrderAppendError, None),
    "a last offset too far": (
        [Row(5, 1)], {"last_offset": 2**31 + 5}, OffsetOverflowError, None),
    "a negative base offset": (
        [Row(5, 1)], {"base_offset": -1}, ArgumentValueError, "base_offset"),
    "no records": ([], {}, ArgumentValueError, "base_offset"),
    "no messages": ([], {"magic": 1}, ArgumentValueError, "magic"),
    "a maximum next to records": (
        [Row(5, 1)], {"max_timestamp": 9}, ArgumentValueError, "max_timestamp"),
    "an unknown magic": ([Row(5, 1)], {"magic": 3}, ArgumentValueError, "magic"),
    "zstd in messages": (
        [Row(5, 1)], {"magic": 1, "codec": Codec.ZSTD}, ArgumentValueError, "codec"),
    "headers in messages": (
        [Row(5, 1, headers=(("a", b""),))], {"magic": 1}, RecordValueError, None),
    "a timestamp in magic 0": ([Row(5, 1)], {"magic": 0}, RecordValueError, None),
    "an append time in magic 0": (
        [Row(5, -1)], {"magic": 0, "log_append_time": 9}, ArgumentValueError, "log_append_time"),
    "a base offset of messages": (
        [Row(5, 1)], {"magic": 1, "base_offset": 5}, ArgumentValueError, "base_offset"),
    "a last offset of messages": (
        [Row(5, 1)], {"magic": 1, "last_offset": 5}, ArgumentValueError, "last_offset"),
    "a leader epoch of messages": (
        [Row(5, 1)], {"magic": 1, "leader_epoch": 0}, ArgumentValueError, "magic"),
    "a transaction of messages": (
        [Row(5, 1)], {"magic": 1, "is_transactional": True}, ArgumentValueError, "magic"),
    "a delete horizon of messages": (
        [Row(5, 1)], {"magic": 1, "delete_horizon_ms": 0}, ArgumentValueError, "magic"),
    "a transaction without a producer": (
        [Row(5, 1)], {"is_transactional": True}, ArgumentValueError, "producer_id"),
    "a producer without epoch": (
        [Row(5, 1)], {"producer_id": 1, "base_sequence": 0}, ArgumentValueError, "producer_epoch"),
    "a producer without sequence": (
        [Row(5, 1)], {"producer_id": 1, "producer_epoch": 0}, ArgumentValueError, "base_sequence"),
    "a header without name": (
        [Row(5, 1, headers=((None, b""),))], {}, ArgumentValueError, "headers"),
}


@pytest.mark.parametrize(("records", "fields", "error", "argument"), REFUSED.values(), ids=REFUSED)
def test_records_that_can_not_be_written_are_refused(records, fields, error, argument):
    with pytest.raises(error) as refusal:
        build_batch(records, **fields)
    assert getattr(refusal.value, "argument", None) == argument
    assert error is not RecordValueError or refusal.value.offset == 5


@pytest.mark.parametrize("limit", [0, -1, 2**31])
def test_a_limit_that_no_batch_can_have_is_refused(limit):
    with refused("max_batch_bytes"):
        list(build_batches_from_columns(0, columns_of([]), limit))


THREE = columns_of([Row(0, 1, b"k", b"v", (("a", b"b"),)), Row(1, 2), Row(2, 3, b"", b"w")])
DAMAGED = {
    "no value": ({"value": None}, "columns"),
    "short offsets of records": ({"offset": bytes(23)}, "offset"),
    "short timestamps": ({"timestamp": bytes(16)}, "timestamp"),
    "short offsets of keys": ({"key": (0, b"\7", bytes(12), b"")}, "key"),
    "a short validity": ({"key": (0, b"", bytes(16), b"")}, "key"),
    "keys past the end": (
        {"key": (0, b"\7", struct.pack("=4i", 0, 1, 1, 2), b"k")}, 2),
    "keys that go back": (
        {"key": (0, b"\7", struct.pack("=4i", 0, 1, 0, 0), b"k")}, 1),
    "keys before the start": (
        {"key": (0, b"\7", struct.pack("=4i", -1, 0, 0, 0), b"k")}, 0),
    "headers that are not there": (
        {"headers": (0, None, struct.pack("=4i", 0, 0, 0, 9), 0, binary([]), binary([]))},
        2),
    "a header without name": (
        {"headers": (0, None, struct.pack("=4i", 0, 1, 1, 1), 1, binary([None]), binary([b""]))},
        0),
    "a negative count of headers": (
        {"headers": (0, None, bytes(16), -1, binary([]), binary([]))}, "headers"),
}


@pytest.mark.parametrize(("damage", "where"), DAMAGED.values(), ids=DAMAGED)
def test_inconsistent_columns_are_refused(damage, where):
    """`where`: the argument, or the offset of the record."""
    columns = {name: part for name, part in (THREE | damage).items() if part is not None}
    with pytest.raises((ArgumentValueError, RecordValueError)) as refusal:
        build_batch_from_columns(3, columns)
    assert getattr(refusal.value, "argument", getattr(refusal.value, "offset", None)) == where


@pytest.mark.parametrize("rows", [-1, 4, 2**31, 2**62])
def test_more_rows_than_the_columns_have_are_refused(rows):
    with refused("offset" if rows == 4 else "rows"):  # 4 are more than a buffer has
        build_batch_from_columns(rows, THREE)


def test_a_validity_of_none_means_that_nothing_is_null():
    columns = {
        "offset": np.arange(3), "timestamp": None, "key": (0, None, np.zeros(4, "i4"), None),
        "value": (0, None, np.array([0, 1, 2, 3], "i4"), b"abc"),
    }
    records = RecordBatch(build_batch_from_columns(3, columns)).records()
    assert [record[:5] for record in records] == [
        (row, -1, 0, b"", value) for row, value in enumerate((b"a", b"b", b"c"))
    ]


@bounded(150)
@given(st.data())
def test_columns_of_random_numbers_are_written_or_refused(data):
    count = data.draw(st.integers(0, 6))
    bounds = st.lists(st.integers(-1, 12), min_size=count + 1, max_size=count + 1)

    def column():
        offsets = struct.pack(f"={count + 1}i", *data.draw(bounds))
        return 0, data.draw(st.binary(min_size=1, max_size=1)), offsets, b"0123456789"

    columns = {
        "offset": struct.pack(f"={count}q", *range(count)), "timestamp": bytes(8 * count),
        "key": column(), "value": column(),
        "headers": (*column()[:3], count, column(), column()),
    }
    try:
        built = build_batch_from_columns(count, columns)
    except (KafkaStoreError, ValueError):
        return
    assert len(RecordBatch(built).records()) == count


def incompressible(size):
    return b"".join(struct.pack(">Q", i * 0x9E3779B97F4A7C15 % 2**64) for i in range(size // 8))


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", list(Codec)[1:], ids=lambda codec: codec.name)
@pytest.mark.parametrize("value", [b"", b"x" * 200_000, incompressible(200_000)], ids=len)
def test_large_and_small_records_of_every_codec_read_back(magic, codec, value):
    if codec not in CODECS_OF[magic]:
        return
    record = Row(3, -1, b"k", value)
    (read,) = RecordBatch(build_batch([record], magic=magic, codec=codec)).records()
    assert (read.offset, read.key, read.value) == (3, b"k", value)


@bounded(50)
@given(st.lists(HEADERS, min_size=1, max_size=9))
def test_headers_in_columns_are_those_of_their_rows(lists):
    records = [Row(offset, 0, headers=headers) for offset, headers in enumerate(lists)]
    batch = RecordBatch(build_batch_from_columns(len(records), columns_of(records)))
    assert [record.headers for record in batch.records()] == lists


def test_a_control_batch_is_that_of_the_slow_writer():
    written = marker(4, NOW, is_commit=False, producer_id=9)
    assert build_end_transaction_marker(
        4, NOW, 9, 0, is_commit=False, coordinator_epoch=0, leader_epoch=0
    ) == written.data


def test_gzip_of_the_same_records_is_always_the_same():
    data = build_batch([Row(0, 1, None, b"x" * 1000)], codec=Codec.GZIP)
    assert data == build_batch([Row(0, 1, None, b"x" * 1000)], codec=Codec.GZIP)
    assert gzip.decompress(data[RECORDS_AT:]).endswith(b"x" * 1000 + b"\0")
