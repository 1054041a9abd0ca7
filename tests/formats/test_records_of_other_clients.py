"""kafka-python and aiokafka read what the package writes, and it reads what they write.

Two clients that were made apart from it and from each other, in all magics and codecs they have.
"""

import warnings

import aiokafka.record.default_records
import aiokafka.record.legacy_records
import aiokafka.record.memory_records
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.record_format import CODECS_OF, LZ4, NONE, Batch, Row, with_right_crc
from models.record_strategies import BYTES, HEADERS, bounded

from kafkastore import RecordBatch
from kafkastore.formats.records.compression import Codec
from kafkastore.formats.records.record_builder import build_batch, build_end_transaction_marker

with warnings.catch_warnings():
    # It reads its package's files by a deprecated way of Python 3.11.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.record.default_records
    import kafka.record.legacy_records
    import kafka.record.memory_records

CLIENTS = {"kafka-python": kafka.record, "aiokafka": aiokafka.record}
FORMATS = {
    f"{name}-v{magic}-{Codec(codec).name.lower()}": (client, magic, Codec(codec))
    for name, client in CLIENTS.items()
    for magic, codecs in CODECS_OF.items()
    for codec in codecs
    if (name, magic, codec) != ("aiokafka", 0, LZ4)  # it has no lz4 for brokers of that time
}

every_client = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
every_format = pytest.mark.parametrize(
    ("client", "magic", "codec"), FORMATS.values(), ids=FORMATS
)
NOW = 1_500_000_000_000


@st.composite
def records(draw, *, most=5):
    """Records from offset 0 on without gaps, as producers make them."""
    count = draw(st.integers(1, most))
    times = st.one_of(st.integers(0, 30), st.integers(NOW, NOW + 1000), st.just(2**41))
    return [Row(at, draw(times), draw(BYTES), draw(BYTES), draw(HEADERS)) for at in range(count)]


#: Compressible and not, larger than a block of any codec.
LARGE = [
    Row(0, NOW, b"k" * 70_000, b"v" * 200_000),
    Row(1, NOW + 5, None, bytes(i * i * 0x9E3779B1 >> 16 & 255 for i in range(150_000))),
]


def for_magic(rows, magic):
    """The fields that a format supports."""
    if magic == 2:
        return rows
    return [row._replace(headers=(), timestamp=row.timestamp if magic else -1) for row in rows]


def as_seen_by(client, data):
    """Every record that a client reads, as a row; its checksums are right."""
    found, log = [], client.memory_records.MemoryRecords(bytes(data))
    while log.has_next():
        batch = log.next_batch()
        assert batch.validate_crc()
        for record in batch:
            assert record.validate_crc() if hasattr(record, "validate_crc") else True
            timestamp = -1 if record.timestamp is None else record.timestamp
            headers = tuple((name, value) for name, value in record.headers or ())
            found.append(Row(record.offset, timestamp, record.key, record.value, headers))
    return found


def as_seen_here(data):
    """The same of the package."""
    found, at = [], 0
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        batch = RecordBatch(bytes(data[at:end]))
        batch.verify()
        found += [Row(*record[:2], *record[3:6]) for record in batch.records()]
        at = end
    return found


def written_by(client, rows, magic, codec):
    """The bytes that a client's producer writes."""
    if magic == 2:
        builder = client.default_records.DefaultRecordBatchBuilder(
            magic=2, compression_type=int(codec), is_transactional=False, producer_id=-1,
            producer_epoch=-1, base_sequence=-1, batch_size=1 << 30,
        )
    else:
        builder = client.legacy_records.LegacyRecordBatchBuilder(
            magic=magic, compression_type=int(codec), batch_size=1 << 30
        )
    for row in rows:
        timestamp = row.timestamp if magic else None
        headers = {"headers": list(row.headers)} if magic == 2 else {}
        assert builder.append(row.offset, timestamp, row.key, row.value, **headers) is not None
    return bytes(builder.build())


def with_leader_s_offset(data, magic, codec, last_offset):
    """A producer's bytes after a broker has set the offset of a wrapper."""
    if magic == 2 or codec == NONE:
        return data
    return with_right_crc(last_offset.to_bytes(8, "big") + data[8:])


@every_format
@bounded(15)
@given(rows=records())
def test_other_clients_read_what_is_built(client, magic, codec, rows):
    rows = for_magic(rows, magic)
    assert as_seen_by(client, build_batch(rows, magic=magic, codec=codec)) == rows


@every_format
@bounded(15)
@given(rows=records())
def test_batches_of_other_clients_are_read(client, magic, codec, rows):
    rows = for_magic(rows, magic)
    data = written_by(client, rows, magic, codec)
    assert as_seen_here(with_leader_s_offset(data, magic, codec, len(rows) - 1)) == rows


@every_format
def test_large_records_are_read_in_both_directions(client, magic, codec):
    rows = for_magic(LARGE, magic)
    assert as_seen_by(client, build_batch(rows, magic=magic, codec=codec)) == rows
    data = written_by(client, rows, magic, codec)
    assert as_seen_here(with_leader_s_offset(data, magic, codec, 1)) == rows


@every_client
@pytest.mark.parametrize("magic", [0, 1, 2])
@bounded(15)
@given(rows=records())
def test_uncompressed_bytes_are_the_same(client, magic, rows):
    """But for the leader's epoch: producers write 0 or -1, and the broker its own."""
    rows = for_magic(rows, magic)
    theirs = written_by(client, rows, magic, Codec.NONE)
    epoch = {}
    if magic == 2:
        epoch["leader_epoch"] = int.from_bytes(theirs[12:16], "big", signed=True)
    assert build_batch(rows, magic=magic, **epoch) == theirs


@every_format
def test_other_clients_read_offsets_with_gaps_and_append_times(client, magic, codec):
    rows = for_magic([Row(100, NOW, b"a"), Row(103, NOW + 9, b"b"), Row(104, NOW + 1)], magic)
    append_time = NOW + 77 if magic else None
    data = build_batch(rows, magic=magic, codec=codec, log_append_time=append_time)
    expected = [row._replace(timestamp=append_time if magic else -1) for row in rows]
    assert as_seen_by(client, data) == expected


@every_client
@pytest.mark.parametrize("is_commit", [True, False])
def test_other_clients_know_a_transaction_marker(client, is_commit):
    data = build_end_transaction_marker(
        9, NOW, 7, 1, is_commit=is_commit, coordinator_epoch=3, leader_epoch=2
    )
    batch = client.memory_records.MemoryRecords(data).next_batch()
    assert (batch.is_control_batch, batch.is_transactional, batch.producer_id) == (True, True, 7)
    assert batch.validate_crc()
    (record,) = batch
    assert (record.offset, record.key) == (9, bytes([0, 0, 0, is_commit]))


@every_client
def test_other_clients_see_a_producer_s_fields(client):
    data = build_batch(
        [Row(5, NOW)], producer_id=2**40, producer_epoch=3, base_sequence=2**31 - 1,
        is_transactional=True, leader_epoch=9,
    )
    batch = client.memory_records.MemoryRecords(data).next_batch()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (2**40, 3, 2**31 - 1)
    assert batch.is_transactional
    assert not batch.is_control_batch


@every_client
def test_the_slow_writer_of_these_tests_agrees_with_other_clients(client):
    rows = [Row(0, NOW, b"k", b"v", (("a", None),)), Row(1, NOW - 4)]
    assert as_seen_by(client, Batch(tuple(rows)).data) == rows
