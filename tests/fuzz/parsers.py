"""Every parser of `kafkastore.formats`, as a function of bytes that reads all of the result.

The searches for times in files are among them.

What `test_damaged_bytes` and the fuzzer feed them ends in a value or a `KafkaStoreError` that says
where the bytes are corrupt. A parser is named after its module; one byte in front of some inputs
chooses a codec, a version or columns.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from fuzz.column_parsers import (
    read_foreign_headers,
    read_record_columns,
    read_usual_batches,
)
from fuzz.reading import (
    MAX_DECOMPRESSED_BYTES,
    MOST_HEADERS,
    check_position,
    each_batch,
    exactly,
    or_error,
    raise_first,
    records_from,
    scanned,
)
from fuzz.search_parser import read_timestamp_search

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.indexes import transaction_index
from kafkastore.formats.indexes.index_builder import IndexBuilder
from kafkastore.formats.indexes.index_format import offset_index, time_index
from kafkastore.formats.messages.record_tables import RecordTable
from kafkastore.formats.primitives.crc import crc32c
from kafkastore.formats.records import (
    append_sets,
    batch_header,
    control_records,
    decompression,
    latest_offsets,
    record_batch,
    record_builder,
    record_columns,
)
from kafkastore.formats.requests import apis, list_offsets
from kafkastore.formats.state import (
    aborted_batches,
    checkpoints,
    file_names,
    producer_snapshot,
    producer_state,
    quorum_state,
)
from kafkastore.formats.topics import (
    cluster_metadata,
    consumer_offsets,
    consumer_protocol,
    remote_log_metadata,
    share_group_state,
    transaction_state,
)

RECORD_BATCH_PROPERTIES = [
    name
    for name, attribute in vars(record_batch.RecordBatch).items()
    if inspect.isdatadescriptor(attribute)
]
assert "base_offset" in RECORD_BATCH_PROPERTIES
LONGEST_FILE_NAME = 255
NUMBERS = (-(2**63), -(2**31), -1, 0, 1, 1000, 2**31, 1_600_000_000_000, 2**63 - 1)


def read_batch_header(data):
    data = exactly(data)
    batch_header.parse(data, 0)
    headers = scanned(data, verify_crc=True)
    builder = IndexBuilder(0, 100)
    for run in (headers[:1], headers[1:]):
        or_error(builder.append, run)
    builder.finish()


def read_record_batch(data):
    """Read every attribute of every batch, decode its records, search them by time."""
    errors = []
    for position, batch in each_batch(exactly(data)):
        for look in (record_batch_values, records_from, record_batch.RecordBatch.verify):
            try:
                look(record_batch.RecordBatch(batch, position))
            except KafkaStoreError as error:
                errors.append(error)
        for target in (-(2**63), 1_600_000_000_000):
            or_error(
                record_batch.first_record_from,
                batch,
                position,
                target,
                0,
                max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
            )
    raise_first(errors)


def record_batch_values(batch):
    repr(batch)
    for name in RECORD_BATCH_PROPERTIES:
        or_error(getattr, batch, name)


def read_decompression(data):
    """Decompress; the first byte is codec and magic."""
    if not data:
        return
    codec, magic = data[0] & 7, data[0] >> 3 & 3
    records = decompression.decompress(
        codec, exactly(data[1:]), magic=magic, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES
    )
    assert len(records) <= MAX_DECOMPRESSED_BYTES


def read_index(index):
    """Return a reader that calls every method of an index."""

    def read(data):
        data = exactly(data)
        for base_offset in (0, 2**63 - 2):
            count = index.entry_count(data)
            assert index.used_entry_count(data, base_offset) <= count
            entries = index.parse(data, base_offset)
            assert len(entries) == count
            with contextlib.suppress(KafkaStoreError):
                assert index.pack(entries, base_offset) == bytes(data)[: count * index.ENTRY_SIZE]
            index.first_disorder(data, base_offset)
            index.last_entry(data, base_offset)
            if count:
                index.entry(data, base_offset, count - 1)
            for warm in (True, False):
                found = index.lookup_many(data, base_offset, 3 * NUMBERS, warm_section=warm)
                single = [index.lookup(data, base_offset, n, warm_section=warm) for n in NUMBERS]
                assert index.first_disorder(data, base_offset) >= 0 or (
                    [tuple(entry) for entry in single] == found[: len(NUMBERS)].tolist()
                )
                for number in NUMBERS:
                    kept = index.truncate_to(data, base_offset, number, warm_section=warm)
                    assert 0 <= kept <= count
        if index is offset_index:
            for size in (0, 1, 2**31 - 1):
                index.fetch_upper_bound(data, 0, size, 2**31 - 1)
        index.check(data, 0)

    return read


def read_transaction_index(data):
    entries = transaction_index.parse(exactly(data))
    transaction_index.first_disorder(entries)
    for lower, upper in itertools.pairwise(NUMBERS):
        transaction_index.collect_aborted_txns(entries, lower, upper)
        transaction_index.truncate_to(entries, lower)
    headers = np.zeros(len(entries), batch_header.BATCH_HEADER)
    headers["producer_id"], headers["base_offset"] = entries["producer_id"], entries["first_offset"]
    headers["magic"], headers["attributes"] = 2, 0x10
    assert len(aborted_batches.AbortedBatches(entries).of(headers)) == len(entries)
    assert transaction_index.pack(entries) == data[: len(entries) * transaction_index.ENTRY_SIZE]
    transaction_index.check(data, 0)


def read_transactions(data):
    """Replay the transactions of a log, and list which of its batches are aborted."""
    headers = scanned(data)
    is_control = (headers["magic"] == 2) & (headers["attributes"] & 0x20 != 0)
    controls = []
    for header in headers[is_control]:
        start = int(header["position"])
        batch = record_batch.RecordBatch(data[start : start + header["size"]], start)
        record = or_error(control_records.first_control_record, batch)
        controls.append(record)
    aborted = producer_state.ProducerState().replay(headers, controls)
    found = aborted_batches.AbortedBatches(aborted).of(headers)
    assert found.sum() >= 0 if len(aborted) else not found.any()


def read_control_records(data):
    for position, batch in each_batch(data):
        parsed = record_batch.RecordBatch(batch, position)
        for record in records_from(parsed):
            control_records.parse_control_record(record, position=position)
        if parsed.is_control:
            control_records.first_control_record(parsed)


def read_producer_snapshot(data):
    """Parse as it is, and with the right checksum, which random bytes would never have."""
    right = bytearray(data)
    if len(right) >= producer_snapshot.ENTRIES_AT:
        checksum = crc32c(bytes(right[producer_snapshot.COUNT_AT :]))
        right[producer_snapshot.CRC_AT : producer_snapshot.COUNT_AT] = checksum.to_bytes(4, "big")
    entries = or_error(producer_snapshot.parse, bytes(right))
    complete = producer_snapshot.whole_entries(bytes(right))
    if entries is not None:
        assert entries.tobytes() == complete.tobytes()
        assert right.startswith(producer_snapshot.pack(entries)[producer_snapshot.COUNT_AT :], 6)
        producer_state.ProducerState(entries).first_undecided_offset  # noqa: B018
    producer_snapshot.parse(data)


def read_file_names(data):
    """Parse names, a line each, as file systems give them."""
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        name = line[:LONGEST_FILE_NAME]
        file = file_names.parse_segment_file(name)
        assert file is None or file.base_offset >= 0
        file_names.kind_in_log_dir(name, is_directory=True)
        or_error(file_names.parse_partition_directory, name)


def read_list_offsets(data):
    """Parse a request and a response; the first byte is the version."""
    version, message = (data[0], data[1:]) if data else (0, b"")
    for parse in (list_offsets.parse_request, list_offsets.parse_response):
        or_error(parse, message, version % (list_offsets.NEWEST_VERSION + 1))


def read_exchange(data):
    """Parse a request of any kind, then its response, the number of its bytes in the first two."""
    size, frame = int.from_bytes(data[:2], "big"), data[2:]
    header, position = apis.parse_request_header(frame[:size])
    or_error(apis.parse_request, header, frame[:size], position)
    or_error(apis.parse_response, header, frame[size:])


def read_keyed(table: RecordTable) -> Callable[[bytes], object]:
    """Return a parser of a key's and a value's bytes, the key's size in the first byte."""
    def parse(data: bytes) -> object:
        end = 1 + data[0] if data else 0
        return table.parse_keyed(data[1:end], data[end:])

    return parse


def read_each(*parse: Callable[[bytes], object]) -> Callable[[bytes], None]:
    """Return a reader that gives the same bytes to several parsers."""

    def read(data):
        errors = []
        for each in parse:
            try:
                each(data)
            except KafkaStoreError as error:
                errors.append(error)
                check_position(error, len(data))
        if len(errors) == len(parse):
            raise errors[0]

    return read


def read_record_builder(data):
    """Rewrite the records that were read: they stay equal, as rows and as columns."""
    for position, batch in each_batch(data):
        source = record_batch.RecordBatch(batch, position)
        records = records_from(source)
        fields = fields_of(source)
        try:
            written = record_builder.build_batch(records, **fields)
        except (KafkaStoreError, ValueError):
            continue  # it does not write all that it reads: offsets that fall, ids below 0
        if source.magic == 2 or fields["codec"]:
            again = records_from(record_batch.RecordBatch(written))
            assert [record[:6] for record in again] == [record[:6] for record in records]
        columns = columns_of(batch, position)
        if columns is not None and source.timestamp_type == record_batch.TimestampType.CREATE_TIME:
            rows = len(records)
            assert record_builder.build_batch_from_columns(rows, columns, **fields) == written


def fields_of(batch):
    fields = {"magic": batch.magic, "codec": batch.codec}
    if batch.timestamp_type == record_batch.TimestampType.LOG_APPEND_TIME:
        fields["log_append_time"] = batch.max_timestamp
    if batch.magic == 2:
        for name in ("producer_id", "producer_epoch", "base_sequence", "is_control"):
            fields[name] = getattr(batch, name)
        fields["is_transactional"] = batch.is_transactional
    return fields


def columns_of(batch, position):
    """The columns of one batch, for the builder; None where a timestamp does not fit them."""
    columns = record_columns.RecordColumns(
        ("key", "value", "offset", "timestamp", "headers"),
        include_control=True,
        max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
    )
    columns.append(batch, scanned(batch, position=position))
    _, taken = columns.take()
    nulls, _, micros = taken["timestamp"]
    taken["timestamp"] = np.frombuffer(micros, np.int64) // 1000
    return None if nulls else taken


def read_record_rows(data):
    """Write columns whose offsets are any bytes: they are refused, or the batch can be read."""
    rows = data[0] % 4 if data else 0
    parts = np.frombuffer(data[1:].ljust(200, b"\0"), np.uint8)

    def binary(at, count):
        validity = None if parts[at] & 1 else exactly(parts[at + 1 : at + 3])
        offsets = exactly(parts[at + 3 : at + 3 + 4 * (count + 1)])
        return 0, validity, offsets, exactly(data[60:])

    columns = {
        "offset": np.arange(rows),
        "timestamp": exactly(parts[:32]).view(np.int64) if rows % 2 else None,
        "key": binary(32, rows),
        "value": binary(60, rows),
    }
    if parts[88] & 1:
        count = int(parts[89]) % 3
        offsets = exactly(parts[90 : 90 + 4 * (rows + 1)])
        named = binary(120, count), binary(150, count)
        columns["headers"] = (0, None, offsets, count, *named)
    try:
        written = record_builder.build_batch_from_columns(rows, columns)
    except ValueError:
        return
    assert len(records_from(record_batch.RecordBatch(written))) == rows


def read_latest_offsets(data):
    """Note the last offset of keys that are any bytes: they are refused, or found again."""
    rows = data[0] % 8 if data else 0
    parts = np.frombuffer(data[1:].ljust(80, b"\0"), np.uint8)
    validity = None if parts[0] & 1 else exactly(parts[1:2])
    keys = 0, validity, exactly(parts[2 : 2 + 4 * (rows + 1)]), exactly(data[40:])
    offsets = exactly(np.arange(rows).view(np.uint8))
    latest = latest_offsets.LatestOffsets(bytes(16))
    try:
        latest.add(rows, keys, offsets)
    except ValueError:
        return
    found = int.from_bytes(latest.find_latest(rows, keys, offsets), "little")
    assert found.bit_count() == latest.count


def read_append_sets(data):
    """Take a log's batches as a follower and as a leader does, also with right checksums."""
    right = bytearray(data)
    for header in scanned(data):
        if header["magic"] == 2:
            start = int(header["position"])
            crc = crc32c(bytes(right[start + 21 : start + int(header["size"])]))
            right[start + 17 : start + 21] = crc.to_bytes(4, "big")
    for log in (data, exactly(right)):
        or_error(append_sets.keep_offsets, log, 0)
        given = or_error(
            append_sets.assign_offsets,
            log,
            7,
            leader_epoch=3,
            now=0,
            max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
        )
        if given is not None:
            written, sets = given
            found = scanned(bytes(written), verify_crc=True)
            assert len(written) == len(log)
            assert (found["crc_valid"] == 1).all()
            assert len(found) == min(len(sets), MOST_HEADERS)
            assert found["base_offset"][:1].tolist() in ([], [7])
    append_sets.keep_offsets(data, 0)


class Parser(NamedTuple):
    """A parser and the kinds of its initial golden inputs, see `golden_inputs`.

    `position_is_known` is False where the caller alone knows it.
    """

    read: Callable[[bytes], object]
    inputs: tuple[str, ...]
    position_is_known: bool = True


PARSERS: dict[str, Parser] = {
    "batch_header": Parser(read_batch_header, ("log",)),
    "record_batch": Parser(read_record_batch, ("log",)),
    "record_columns": Parser(read_record_columns, ("chosen log",)),
    "usual_batches": Parser(read_usual_batches, ("chosen log",)),
    "append_sets": Parser(read_append_sets, ("log",)),
    "record_columns_headers": Parser(
        read_foreign_headers, ("headers and log",), position_is_known=False
    ),
    "record_builder": Parser(read_record_builder, ("log",)),
    "record_rows": Parser(read_record_rows, ("rows",)),
    "latest_offsets": Parser(read_latest_offsets, ("rows",)),
    "decompression": Parser(read_decompression, ("codec",), position_is_known=False),
    "offset_index": Parser(read_index(offset_index), (".index",)),
    "time_index": Parser(read_index(time_index), (".timeindex",)),
    "transaction_index": Parser(read_transaction_index, (".txnindex",)),
    "transactions": Parser(read_transactions, ("transactional log",)),
    "control_records": Parser(read_control_records, ("control batch",)),
    "producer_snapshot": Parser(read_producer_snapshot, (".snapshot",)),
    "checkpoints": Parser(
        read_each(
            checkpoints.parse_offset_checkpoint,
            checkpoints.parse_leader_epoch_checkpoint,
            checkpoints.parse_meta_properties,
            checkpoints.parse_partition_metadata,
            checkpoints.parse_clean_shutdown_marker,
            quorum_state.parse_quorum_state,
        ),
        ("text",),
    ),
    "file_names": Parser(read_file_names, ("names",)),
    "internal_topics": Parser(
        read_each(
            cluster_metadata.RECORDS.parse_framed,
            remote_log_metadata.RECORDS.parse_framed,
            read_keyed(consumer_offsets.RECORDS),
            read_keyed(share_group_state.RECORDS),
            read_keyed(transaction_state.RECORDS),
        ),
        ("record",),
    ),
    "consumer_protocol": Parser(
        read_each(consumer_protocol.parse_subscription, consumer_protocol.parse_assignment),
        ("group protocol",),
    ),
    "apis": Parser(read_exchange, ("exchanges",)),
    "list_offsets": Parser(read_list_offsets, ("list offsets",)),
    "timestamp_search": Parser(read_timestamp_search, ("log",)),
}


def feed(name: str, data: bytes) -> KafkaStoreError | None:
    """Give bytes to a parser; raise all that is neither a value nor an error with its position."""
    parser = PARSERS[name]
    try:
        parser.read(data)
    except KafkaStoreError as error:
        if parser.position_is_known:
            check_position(error, len(data))
        return error
    return None
