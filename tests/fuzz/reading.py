"""Helpers of the registered parsers: bytes with an exact end, batches, errors."""

from __future__ import annotations

import contextlib

import numpy as np

from kafkastore.errors import CorruptionError, KafkaStoreError
from kafkastore.formats.records import batch_header

MOST_HEADERS = 64
MAX_DECOMPRESSED_BYTES = 1024 * 1024


def exactly(data):
    """Copy bytes to memory that ends with them: `bytes` are followed by a zero."""
    return np.frombuffer(data, np.uint8).copy()


def or_error(parse, *arguments, **options):
    """Call, and return an error of ours as a result, so that the parser continues."""
    with contextlib.suppress(KafkaStoreError):
        return parse(*arguments, **options)


def scanned(data, *, position=0, verify_crc=False):
    headers = np.zeros(MOST_HEADERS, batch_header.BATCH_HEADER)
    count, size, status, wanted = batch_header.scan(data, position, headers, verify_crc=verify_crc)
    assert 0 <= count <= MOST_HEADERS
    assert size == headers["size"][:count].sum() <= len(data)
    assert wanted >= 0
    if status == batch_header.ALL_SCANNED:
        assert size == len(data) or count == MOST_HEADERS
    return headers[:count]


def each_batch(data):
    """Split a log; return bytes that are not a batch as one piece."""
    headers = scanned(data)
    if not len(headers):
        yield 0, data
    for header in headers:
        position = int(header["position"])
        yield position, data[position : position + header["size"]]


def records_from(batch):
    return batch.records(max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)


def raise_first(errors):
    """Raise the first error; check the positions of the others too."""
    for error in errors:
        check_position(error)
    if errors:
        raise errors[0]


def check_position(error, size=2**63):
    """Check where an error says that bytes are corrupt."""
    if isinstance(error, CorruptionError):
        assert error.position is not None, f"{error!r} has no position"
        assert 0 <= error.position <= size, f"{error!r} is outside {size} bytes"
