"""Columns of records, filled from any bytes, and compared with the same records one by one."""

from __future__ import annotations

import tempfile

import numpy as np
from fuzz.reading import (
    MAX_DECOMPRESSED_BYTES,
    MOST_HEADERS,
    exactly,
    raise_first,
    records_from,
    scanned,
)

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.indexes import transaction_index
from kafkastore.formats.records import batch_header, compression, record_batch, record_columns
from kafkastore.formats.state import aborted_batches
from kafkastore.segment.decoding import usual_batches

ALL_COLUMNS = (
    *record_columns.KAFKA_COLUMNS,
    record_columns.HEADERS_COLUMN,
    *record_columns.OTHER_COLUMNS,
)
LAST_OFFSET = 2**63 - 1
HEADER_SIZE = batch_header.BATCH_HEADER.itemsize


def read_record_columns(data):
    """Fill columns from a log; the first byte chooses how, and the container of the records."""
    options, log = (data[0], data[1:]) if data else (0, b"")
    if options & 0x30:
        log = compressed(log, (options >> 4) & 3)
    log = exactly(log)
    headers = scanned(log)
    columns = record_columns.RecordColumns(
        ALL_COLUMNS if options & 1 else ("value", "timestamp"),
        binary_view=bool(options & 2),
        include_control=not options & 4,
        max_rows=3 if options & 8 else record_columns.BATCH_ROWS,
        max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
        **({"start_offset": 5, "end_offset": 9, "end_timestamp": 2**40} if options & 64 else {}),
    )
    errors = []
    offsets = list(column_offsets(columns, log, headers, errors))
    if options & 1 and options & 0x44 == 0:
        expected, complete = offsets_of_records(log, headers)
        # Columns need not fail at a broken record outside the requested offsets.
        assert (offsets if complete else offsets[: len(expected)]) == expected
    raise_first(errors)


def read_usual_batches(data):
    """Decode the usual batches of a file; the others do it too, one step after the other."""
    options, log = (data[0], data[1:]) if data else (0, b"")
    if options & 0x30:
        log = compressed(log, (options >> 4) & 3)
    settings = {
        "max_rows": 3 if options & 8 else record_columns.BATCH_ROWS,
        "max_decompressed_bytes": MAX_DECOMPRESSED_BYTES,
    }
    names = ALL_COLUMNS if options & 1 else ("key", "offset", "timestamp")
    columns, offsets = record_columns.RecordColumns(names, **settings), []
    headers = scanned(log)
    aborted = every_transaction_aborted(headers) if options & 64 else None
    position, smallest, is_paused = 0, 0, True
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(log + LAST_OFFSET.to_bytes(8, "big"))  # what may follow any batch
        while is_paused:
            position, _, smallest, is_paused = usual_batches.read_usual(
                columns,
                file.fileno(),
                position,
                len(log),
                len(log) + 8,
                smallest=smallest,
                largest=LAST_OFFSET - 1,
                end_offset=LAST_OFFSET,
                aborted=aborted,
                verify_crc=bool(options & 2),
                check_all=bool(options & 128),
                read_size=70 if options & 4 else 100_000,
            )
            offsets += checked_offsets(*columns.take())
    headers = headers[headers["position"] + headers["size"] <= position]
    if len(headers) < MOST_HEADERS:
        if aborted is not None:
            headers = headers[~aborted.of(headers)]
        expected = record_columns.RecordColumns(names, **settings)
        assert offsets == list(column_offsets(expected, log, headers, errors := []))
        assert errors == []


def every_transaction_aborted(headers):
    producers = np.unique(headers["producer_id"])
    aborted_txns = np.zeros(len(producers), transaction_index.ABORTED_TXN)
    aborted_txns["producer_id"], aborted_txns["last_offset"] = producers, LAST_OFFSET
    return aborted_batches.AbortedBatches(aborted_txns)


def column_offsets(columns, log, headers, errors):
    """Fill, take and check until the headers or the log end; yield the offsets."""
    done = 0
    while True:
        try:
            done = columns.append(log, headers, done)
        except KafkaStoreError as error:
            errors.append(error)
        yield from checked_offsets(*columns.take())
        if errors or done == len(headers):
            return


def checked_offsets(rows, taken):
    """Check that buffers are consistent, and return the offsets."""
    for name in taken.keys() & {"key", "value"}:
        check_binary(rows, taken[name])
    if "headers" in taken:
        nulls, validity, places, count, names, values = taken["headers"]
        check_nulls(rows, nulls, validity)
        check_places(rows, places, count)
        check_binary(count, names)
        check_binary(count, values)
    for name in taken.keys() - {"key", "value", "headers", "timestamp"}:
        assert len(bytes(taken[name])) >= rows
    nulls, validity, values = taken["timestamp"]
    check_nulls(rows, nulls, validity)
    assert len(bytes(values)) >= 8 * rows
    return np.frombuffer(taken.get("offset", b""), np.int64)[:rows].tolist()


def check_nulls(rows, nulls, validity):
    if validity is None:
        assert nulls == 0
        return
    bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
    assert nulls == rows - bits[:rows].sum()


def check_places(rows, places, size):
    ends = np.frombuffer(places, np.int32)[: rows + 1]
    assert len(ends) == rows + 1
    assert ends[0] == 0
    assert (np.diff(ends) >= 0).all()
    assert ends[-1] == size


def check_binary(rows, parts):
    nulls, validity, places, content = parts
    check_nulls(rows, nulls, validity)
    if not isinstance(content, list):
        check_places(rows, places, len(bytes(content)))
        return
    view = np.dtype([("size", "i4"), ("prefix", "S4"), ("buffer", "i4"), ("place", "i4")])
    sizes = [memoryview(buffer).nbytes for buffer in content]
    for size, _, buffer, place in np.frombuffer(places, view)[:rows].tolist():
        assert size >= 0
        if size > 12:
            assert place >= 0
            assert place + size <= sizes[buffer]


def offsets_of_records(log, headers):
    """The offsets from 0 on that the same batches hold one by one, and whether no record is broken.

    They end before the first that is.
    """
    offsets = []
    complete = True
    for header in headers:
        if 0 <= header["last_offset"] >= header["base_offset"] >= LAST_OFFSET:
            continue  # not requested; columns do not parse it
        start = int(header["position"])
        batch = record_batch.RecordBatch(log[start : start + header["size"]], start)
        try:
            offsets += [record.offset for record in records_from(batch)]
        except KafkaStoreError:
            complete = False
            break
    return [offset for offset in offsets if 0 <= offset < LAST_OFFSET], complete


def compressed(records, codec):
    """Put any bytes into a batch as its records, so that the decoders get them after a codec."""
    if not records:
        return b""
    kind, records = records[0], records[1:]
    magic = 1 if kind & 1 else 2
    payload = compression.compress(codec, records, magic=magic)
    if magic == 1:
        body = bytes([1, codec]) + bytes(8) + b"\xff\xff\xff\xff"
        body += len(payload).to_bytes(4, "big") + payload
        return (kind >> 1).to_bytes(8, "big") + (len(body) + 4).to_bytes(4, "big") + bytes(4) + body
    count = records[0] if records else 0
    header = bytearray(batch_header.LARGEST_HEADER)
    header[8:12] = (len(header) - 12 + len(payload)).to_bytes(4, "big")
    header[16], header[22], header[60] = 2, codec, count
    return bytes(header) + payload


def read_foreign_headers(data):
    """Fill columns by headers that are not those of the log: the bytes are not trusted."""
    count = min(data[0] % 4 + 1 if data else 0, (len(data) - 1) // HEADER_SIZE)
    first = data[0] >> 6 if data else 0
    end = 1 + max(count, 0) * HEADER_SIZE
    headers = np.frombuffer(data[1:end], batch_header.BATCH_HEADER).copy()
    log = exactly(data[end:])
    columns = record_columns.RecordColumns(
        ALL_COLUMNS,
        binary_view=bool(data and data[0] & 4),
        max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
    )
    try:
        columns.append(log, headers, first, position=None if data and data[0] & 8 else 0)
    finally:
        checked_offsets(*columns.take())
