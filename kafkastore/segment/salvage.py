"""The readable parts of a corrupt log: stretches of complete batches.

A broker that recovers a segment truncates it at the first corrupt batch. Most later batches are
intact: after a wrong checksum the next batch begins where the frame says, and after a corrupt
frame, or bytes that the device can't read, the next batch is searched for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kafkastore.arguments import INT32_MAX, INT64_MAX, LARGEST_OFFSET
from kafkastore.errors import CorruptionError
from kafkastore.formats.records import batch_header
from kafkastore.reads import fetch_bytes
from kafkastore.segment.readable_log import ReadableLog
from kafkastore.segment.zero_tail import is_zero_from, next_extent

_WINDOW_BYTES = 1 << 22
#: Smallest unit in which a device fails to read.
SECTOR_BYTES = 4096
# Longer incomplete bytes are not tried as one batch: brokers are not configured for such batches.
_LARGEST_GUESS = 1 << 26
_BASE_OFFSET = slice(0, 8)
_LENGTH = slice(
    batch_header.RECORD_BATCH_FIELDS["length"], batch_header.RECORD_BATCH_FIELDS["length"] + 4
)
_MAGIC = batch_header.RECORD_BATCH_FIELDS["magic"]


class Stretch(NamedTuple):
    """Successive complete batches with right checksums, by byte positions.

    `end` is exclusive. `first_offset` is the offset of the first record, for a wrapper that of its
    first message; `next_offset` is the offset after the last batch.
    """

    start: int
    end: int
    first_offset: int
    next_offset: int


def largest_offset(base_offset: int, next_base_offset: int | None) -> int:
    """Return the largest offset that a segment can hold.

    `next_base_offset` is None for the last segment.
    """
    if next_base_offset is not None:
        return next_base_offset - 1
    return min(base_offset + INT32_MAX, LARGEST_OFFSET)


def stretches(log: ReadableLog, base_offset: int, end_offset: int | None) -> Iterator[Stretch]:
    """Yield all stretches of complete batches of a log, in order.

    Bytes between them are skipped. `end_offset` is exclusive: the base offset of the next segment,
    None for the last one. A batch whose offsets go back, or leave the segment, ends a stretch.
    """
    last_offset = largest_offset(base_offset, end_offset)
    position, next_offset = 0, base_offset
    while position < log.size:
        found = _stretch(log, position, next_offset, last_offset)
        if found is not None:
            yield found
            position, next_offset = found.end, found.next_offset
        position = next_batch(log, position, next_offset, last_offset)


def _stretch(log: ReadableLog, position: int, min_offset: int, max_offset: int) -> Stretch | None:
    """Scan batches from a position on, as long as they are valid."""
    end, next_offset, first_offset = position, min_offset, -1
    try:
        for run in log.runs(position, verify_crc=True):
            headers = run.headers
            last = headers["last_offset"]
            before = np.concatenate(([next_offset - 1], last[:-1]))
            first = np.where(headers["base_offset"] >= 0, headers["base_offset"], last)
            bad = (headers["crc_valid"] == 0) | (first <= before) | (last < first)
            bad |= last > max_offset
            for wrong in run.wrong_wrappers(next_offset):
                bad[wrong.slot] = True
            # The checksum does not cover offsets: an offset that jumps is wrong if the batches
            # after it continue without the jump.
            following = np.append(first[1:], _first_offset(log, _end_of(headers[-1])))
            bad |= (last >= following) & (following > before)
            count = int(np.argmax(bad)) if bad.any() else len(headers)
            if count:
                end = _end_of(headers[count - 1])
                next_offset = int(last[count - 1]) + 1
            if first_offset < 0 and count:
                first_offset = log.first_offset_at(position) or 0
            if count < len(headers):
                break
    except CorruptionError:
        pass
    if first_offset < 0:
        return None
    return Stretch(position, end, first_offset, next_offset)


def _end_of(header: Any) -> int:
    """Return the byte position after a batch."""
    return int(header["position"] + header["size"])


def _first_offset(log: ReadableLog, position: int) -> int:
    """Return the first offset of the batch at a position; INT64_MAX without a batch."""
    header = _header(log, position)
    return INT64_MAX if header is None else _first_of(header)


def _header(log: ReadableLog, position: int) -> Any | None:
    """Read the header at a position; None if no complete batch can be read."""
    try:
        return log.header_at(position)
    except CorruptionError:
        return None


def next_batch(log: ReadableLog, position: int, min_offset: int, max_offset: int) -> int:
    """Return the byte position of the next valid batch after a corrupt one.

    Returns the log's size if there is none. `position` is where the corrupt batch begins. The valid
    batch's offsets must lie from `min_offset` to `max_offset`, inclusive.
    """
    # First where the frame says: bytes that look like a batch in a corrupt one may be a value.
    header, at = _header(log, position), position + 1
    while header is not None and _is_good(log, position + int(header["size"])):
        position += int(header["size"])
        header = _header(log, position)
        if header is not None:
            if _is_between(header, min_offset, max_offset):
                return position
            at = position + int(header["size"])
    while (stored := next_extent(log.descriptor, at, log.size)) is not None:
        # The first bytes of a batch, which may be zeros, may lie in a hole.
        at = max(at, stored[0] - batch_header.FRAME_OVERHEAD)
        rest = stored[1] + batch_header.LARGEST_HEADER - at
        data = _read(log, at, min(rest, _WINDOW_BYTES))
        if data is None:
            at += SECTOR_BYTES - at % SECTOR_BYTES
            continue
        is_end = at + len(data) >= log.size
        if not data or (is_end and not any(data)):
            break
        # Padding, so that a small message at the end of the log is found too.
        padded = data + bytes(batch_header.LARGEST_HEADER) if is_end else data
        index = batch_header.find(padded, min_offset, max_offset)
        if index >= len(data):
            break
        at += index
        if len(padded) - index < batch_header.LARGEST_HEADER:
            if not is_end and index == 0:
                at += len(data)  # too few bytes before an unreadable sector
            continue  # read again from here: the rest of the window, and more
        if _is_good(log, at):
            return at
        at += 1
    return log.size


def begins_batch(log: ReadableLog, position: int, base_offset: int) -> bool:
    """Return whether a complete batch with an offset of the segment is at a position."""
    try:
        first_offset = log.first_offset_at(position)
    except CorruptionError:
        return False
    return first_offset is not None and (
        base_offset <= first_offset <= largest_offset(base_offset, None)
    )


def can_begin_batch(head: bytes, min_offset: int, max_offset: int) -> bool:
    """Return whether a batch with offsets in a range (inclusive) can begin so.

    Base offset, length and magic are judged as far as `head` holds them.
    """
    least_offset, most_offset = _possible_values(head, _BASE_OFFSET)
    _, most_length = _possible_values(head, _LENGTH)
    return (
        least_offset <= max_offset and min_offset <= most_offset
        and most_length >= batch_header.SMALLEST_LENGTH
        and (len(head) <= _MAGIC or head[_MAGIC] <= 2)
    )


def _possible_values(head: bytes, field: slice) -> tuple[int, int]:
    """Return the least and the most that an integer cut off at its end can be."""
    width, known = field.stop - field.start, head[field]
    least = int.from_bytes(known.ljust(width, b"\0"), "big", signed=bool(known))
    most = int.from_bytes(known.ljust(width, b"\xff"), "big", signed=bool(known))
    return least, most


def is_torn_batch(log: ReadableLog, position: int, min_offset: int, max_offset: int) -> bool:
    """Return whether only an incomplete batch, or zeros, follow the last batch.

    A valid batch after `position`, with offsets from `min_offset` to `max_offset` (inclusive),
    means corruption; so do bytes that no such batch begins with.
    """
    try:
        if position >= log.size or next(log.runs(position), None) is not None:
            return False
    except CorruptionError:
        return False
    if is_zero_from(log.descriptor, position):
        return True
    head = _read(log, position, min(batch_header.SMALLEST_FRAME, log.size - position))
    if head is None or not can_begin_batch(head, min_offset, max_offset):
        return False
    is_last = next_batch(log, position, min_offset, max_offset) >= log.size
    return is_last and not has_false_length(log, position)


def has_false_length(log: ReadableLog, position: int) -> bool:
    """Return whether the last batch looks incomplete only by its wrong length.

    It is if the checksum is right for a batch that ends at the end of the file.
    """
    length = log.size - position - batch_header.FRAME_OVERHEAD
    if not batch_header.SMALLEST_LENGTH <= length <= _LARGEST_GUESS:
        return False
    data = bytearray(_read(log, position, log.size - position) or b"")
    if len(data) < log.size - position:
        return False
    data[_LENGTH] = length.to_bytes(4, "big")
    return _is_whole(data, position)


def _is_between(header: Any, min_offset: int, max_offset: int) -> bool:
    """Return whether a batch's offsets lie in a range, inclusive."""
    last = int(header["last_offset"])
    return min_offset <= _first_of(header) <= last <= max_offset


def _first_of(header: Any) -> int:
    """Return the first offset of a batch, or the last if the header lacks it."""
    return int(header["base_offset"] if header["base_offset"] >= 0 else header["last_offset"])


def _is_good(log: ReadableLog, position: int) -> bool:
    """Return whether a complete batch with a right checksum begins at a position."""
    header = _header(log, position)
    data = None if header is None else _read(log, position, int(header["size"]))
    if data is None:
        return False
    return _is_whole(data, position)


def _is_whole(data: bytes | bytearray, position: int) -> bool:
    """Return whether bytes begin with a complete batch that has a right checksum."""
    headers = np.empty(1, batch_header.BATCH_HEADER)
    count, *_ = batch_header.scan(data, position, headers, verify_crc=True)
    return count == 1 and bool(headers["crc_valid"][0] == 1)


def _read(log: ReadableLog, position: int, size: int) -> bytes | None:
    """Read bytes; None if the device can't read them."""
    fetch_bytes(log.descriptor, position, position + size)
    try:
        return os.pread(log.descriptor, min(size, log.size - position), position)
    except OSError:
        return None
