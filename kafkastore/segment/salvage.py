"""What of a damaged log can still be read: stretches of whole batches, and the bytes between them.

A broker that recovers a segment stops at the first broken batch and drops all behind it.  Most of
that is as good as before: behind a wrong checksum the next batch begins where the frame says, and
behind a broken frame it is searched for. So it is behind bytes that the device can't read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kafkastore.arguments import INT32_MAX, INT64_MAX
from kafkastore.errors import CorruptionError
from kafkastore.formats import batch_header
from kafkastore.reads import fetch_bytes

if TYPE_CHECKING:
    from kafkastore.segment.log_file import LogFile

_WINDOW_BYTES = 1 << 22
#: What a device that can't read gives up at least.
SECTOR_BYTES = 4096
# Torn bytes are not taken for one batch where they are more than brokers are set up for.
_LARGEST_GUESS = 1 << 26
_LENGTH = slice(
    batch_header.RECORD_BATCH_FIELDS["length"], batch_header.RECORD_BATCH_FIELDS["length"] + 4
)


class Stretch(NamedTuple):
    """Successive batches that are whole and have right checksums.

    Parameters
    ----------
    start, end : int
        Byte positions, inclusive and exclusive.
    first_offset, next_offset : int
        Of its first record, and behind its last batch. The first is that of the first *message*
        where that is compressed.
    """

    start: int
    end: int
    first_offset: int
    next_offset: int


def stretches(log: LogFile, base_offset: int, end_offset: int | None) -> Iterator[Stretch]:
    """Find all whole batches of a log, whatever lies between them.

    Parameters
    ----------
    log : LogFile
        Open.
    base_offset : int
        Of the segment.
    end_offset : int or None
        Exclusive: the base offset of the next segment; None for the last one.

    Yields
    ------
    Stretch
        In the order of the log; a batch whose offsets go back, or leave the segment, ends one. One
        in a row with the one before is told apart from it only by what lies between them.
    """
    last_offset = base_offset + INT32_MAX if end_offset is None else end_offset - 1
    position, next_offset = 0, base_offset
    while position < log.size:
        found = _stretch(log, position, next_offset, last_offset)
        if found is not None:
            yield found
            position, next_offset = found.end, found.next_offset
        position = next_batch(log, position, next_offset, last_offset)


def _stretch(log: LogFile, position: int, min_offset: int, max_offset: int) -> Stretch | None:
    """Go over batches from a position on, as long as they are good."""
    end, next_offset, first_offset = position, min_offset, -1
    try:
        for run in log.runs(position, verify_crc=True):
            headers = run.headers
            last = headers["last_offset"]
            before = np.concatenate(([next_offset - 1], last[:-1]))
            first = np.where(headers["base_offset"] >= 0, headers["base_offset"], last)
            bad = (headers["crc_valid"] == 0) | (first <= before) | (last < first)
            bad |= last > max_offset
            # Offsets lie outside the checksum: one that jumps, with all behind it as if it had not,
            # is the one that is wrong.
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
    """Return the position behind a batch."""
    return int(header["position"] + header["size"])


def _first_offset(log: LogFile, position: int) -> int:
    """Return the first offset of the batch at a position; the last one there can be without any."""
    header = _header(log, position)
    if header is None:
        return INT64_MAX
    return int(header["base_offset"] if header["base_offset"] >= 0 else header["last_offset"])


def _header(log: LogFile, position: int) -> Any | None:
    """Read the header of the batch at a position; None where it is not whole or can't be read."""
    try:
        return log.header_at(position)
    except CorruptionError:
        return None


def next_batch(log: LogFile, position: int, min_offset: int, max_offset: int) -> int:
    """Find where the next good batch begins behind one that is broken or can't be read.

    Parameters
    ----------
    log : LogFile
        Open.
    position : int
        Where the broken one begins.
    min_offset, max_offset : int
        Inclusive: within which the good one's offsets lie.

    Returns
    -------
    int
        Its byte position; the log's size where there is none.
    """
    # Where the frame says, first: what looks like a batch inside a broken one may be a value.
    header = _header(log, position)
    if header is not None and _is_good(log, position + int(header["size"])):
        return position + int(header["size"])
    at = position + 1
    while at < log.size:
        data = _read(log, at, _WINDOW_BYTES)
        if data is None:
            at += SECTOR_BYTES - at % SECTOR_BYTES
            continue
        is_end = at + len(data) >= log.size
        if not data or (is_end and not any(data)):
            break
        # So that a small message at the very end is looked at, too.
        padded = data + bytes(batch_header.LARGEST_HEADER) if is_end else data
        index = batch_header.find(padded, min_offset, max_offset)
        if index >= len(data):
            break
        at += index
        if len(padded) - index < batch_header.LARGEST_HEADER:
            if not is_end and index == 0:
                at += len(data)  # too little before a sector that can't be read
            continue  # the rest of the window, and what follows
        if _is_good(log, at):
            return at
        at += 1
    return log.size


def begins_batch(log: LogFile, position: int, base_offset: int) -> bool:
    """Tell whether a whole batch with an offset of the segment begins at a position."""
    try:
        first_offset = log.first_offset_at(position)
    except CorruptionError:
        return False
    return first_offset is not None and base_offset <= first_offset <= base_offset + INT32_MAX


def is_torn_batch(log: LogFile, position: int, min_offset: int, max_offset: int) -> bool:
    """Tell whether the bytes from a position on are a last batch that was cut short.

    Parameters
    ----------
    log : LogFile
        Open.
    position : int
        Behind the last whole batch.
    min_offset, max_offset : int
        Inclusive: within which the offsets of a good batch behind them would lie.

    Returns
    -------
    bool
        True if nothing of them can be read; False where a batch is damaged, and not only cut.
    """
    try:
        if position >= log.size or next(log.runs(position), None) is not None:
            return False
    except CorruptionError:
        return False
    is_last = next_batch(log, position, min_offset, max_offset) >= log.size
    return is_last and not has_false_length(log, position)


def has_false_length(log: LogFile, position: int) -> bool:
    """Tell whether the last batch seems torn just because its length is wrong.

    Parameters
    ----------
    log : LogFile
        Open.
    position : int
        Where the batch begins.

    Returns
    -------
    bool
        Whether its checksum is right if it ends where the file does.
    """
    length = log.size - position - batch_header.FRAME_OVERHEAD
    if not batch_header.SMALLEST_LENGTH <= length <= _LARGEST_GUESS:
        return False
    data = bytearray(_read(log, position, log.size - position) or b"")
    if len(data) < log.size - position:
        return False
    data[_LENGTH] = length.to_bytes(4, "big")
    return _is_whole(data, position)


def _is_good(log: LogFile, position: int) -> bool:
    """Tell whether a whole batch with a right checksum begins at a position."""
    header = _header(log, position)
    data = None if header is None else _read(log, position, int(header["size"]))
    if data is None:
        return False
    return _is_whole(data, position)


def _is_whole(data: bytes | bytearray, position: int) -> bool:
    """Tell whether bytes begin with a whole batch that has a right checksum."""
    headers = np.empty(1, batch_header.BATCH_HEADER)
    count, *_ = batch_header.scan(data, position, headers, verify_crc=True)
    return count == 1 and bool(headers["crc_valid"][0] == 1)


def _read(log: LogFile, position: int, size: int) -> bytes | None:
    """Read bytes; None where the device gives none."""
    fetch_bytes(log.descriptor, position, position + size)
    try:
        return os.pread(log.descriptor, min(size, log.size - position), position)
    except OSError:
        return None
