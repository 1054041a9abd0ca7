"""Recovery of a directory of segments by a broker, the slow and obvious way: bytes in, bytes out.

Only record batches, without producers, swaps and other leftovers. Made apart from the package's
code, from Kafka 2.4.0 ``Log.loadSegmentFiles``, ``recoverLog``, ``LogSegment.recover`` and 3.9.0
``LogLoader``.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from models.record_format import crc32c
from models.segment_indexes import pack_offset_entries, pack_time_entries


class Overflow(Exception):
    """An offset out of the segment's range."""


class Torn(Exception):
    """A segment that must be split is not a sequence of batches that a broker can read."""


class Disorder(Exception):
    """Offsets decrease at an index entry."""


class Loaded(NamedTuple):
    """Segments by base offset: bytes of the log, and of both indexes if they were made."""

    logs: dict
    indexes: dict
    epochs: list
    log_end_offset: int


class Sound(NamedTuple):
    position: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    epoch: int
    size: int


def sound_batches(log):
    """Batches up to the first that is torn or broken."""
    found, at = [], 0
    while at + 17 < len(log):
        base_offset, length, epoch, magic = struct.unpack_from(">qiib", log, at)
        if length < 49 or at + 12 + length > len(log) or magic < 2:
            return found
        batch = log[at : at + 12 + length]
        if crc32c(batch[21:]) != int.from_bytes(batch[17:21], "big"):
            return found
        (delta,) = struct.unpack_from(">i", batch, 23)
        (max_timestamp,) = struct.unpack_from(">q", batch, 35)
        found.append(
            Sound(at, base_offset, base_offset + delta, max_timestamp, epoch, len(batch))
        )
        at += len(batch)
    return found


def framed(log):
    """(bytes, magic, base offset, last offset, max timestamp) of batches, and where they end."""
    found, at = [], 0
    while at + 17 < len(log):
        base_offset, length, _, magic = struct.unpack_from(">qiib", log, at)
        if length < {0: 14, 1: 22}.get(magic, 49) or at + 12 + length > len(log):
            break
        last_offset = base_offset
        if magic >= 2:
            last_offset += struct.unpack_from(">i", log, at + 23)[0]
            (max_timestamp,) = struct.unpack_from(">q", log, at + 35)
        else:
            max_timestamp = -1 if magic == 0 else struct.unpack_from(">q", log, at + 18)[0]
        batch = log[at : at + 12 + length]
        found.append((batch, magic, base_offset, last_offset, max_timestamp))
        at += len(batch)
    return found, at


def split(log, old_base, version):
    """[(base offset, bytes, indexes, next offset)] of a log smaller than what is copied at once."""
    batches, end = framed(log)
    if not batches or batches[-1][3] - old_base < 2**31:
        raise Overflow
    parts = []
    for data, magic, base, last, timestamp in batches:
        # Copied from file to file, or in later versions read from memory as well.
        if magic < 0 or (magic > 2 and version >= (3, 9, 1) and version != (4, 0)):
            raise Torn
        if not parts or not 0 <= last - parts[-1][0] < 2**31:
            if magic < 2 and data[17] & 7:
                raise Torn  # nothing to decompress
            if not 0 <= last - base < 2**31 or base < (parts[-1][3] if parts else 0):
                raise Overflow
            parts.append([base, b"", [], base])
        parts[-1][1] += data
        parts[-1][2].append((timestamp, last))
        parts[-1][3] = last + 1
    if end < len(log):
        raise Torn
    made = []
    for base, data, times, next_offset in parts:
        largest = max(times, key=lambda each: each[0])
        indexes = b"", pack_time_entries([largest] if largest[0] > -1 else [], base)
        made.append((base, data, indexes, next_offset))
    return made


def recovered_segment(log, base_offset, interval, epochs, first_epoch):
    """(bytes that stay, offset index, time index, next offset); adds to `epochs`."""
    offset_entries, time_entries = [], []
    largest, offset_of_largest, last_entry_at, next_offset, end = -1, None, 0, base_offset, 0

    def maybe_add_time():
        if largest > (time_entries[-1][0] if time_entries else -1):
            if time_entries and offset_of_largest < time_entries[-1][1]:
                raise Disorder
            time_entries.append((largest, offset_of_largest))

    for batch in sound_batches(log):
        if not 0 <= batch.last_offset - base_offset < 2**31:
            raise Overflow
        if batch.max_timestamp > largest:
            largest, offset_of_largest = batch.max_timestamp, batch.last_offset
        if batch.position - last_entry_at > interval:
            if offset_entries and batch.last_offset <= offset_entries[-1][0]:
                raise Disorder
            offset_entries.append((batch.last_offset, batch.position))
            maybe_add_time()
            last_entry_at = batch.position
        latest = epochs[-1][0] if epochs else -1
        if batch.epoch >= first_epoch and batch.epoch > latest:
            assign(epochs, batch.epoch, batch.base_offset)
        next_offset, end = batch.last_offset + 1, batch.position + batch.size
    maybe_add_time()
    return (
        log[:end],
        pack_offset_entries(offset_entries, base_offset),
        pack_time_entries(time_entries, base_offset),
        next_offset,
    )


def assign(epochs, epoch, start_offset):
    """Add an epoch; remove those that contradict it."""
    epochs[:] = [each for each in epochs if each[0] < epoch and each[1] < start_offset]
    epochs.append((epoch, start_offset))


def loaded(logs, without_index, *, version, interval, recovery_point, log_start, epochs, read):
    """Load segments (base offset -> bytes), some of them without an offset index, uncleanly.

    `read` grows by what may be read for producers, before each recovery and at the end.
    """
    logs, indexes, ends = dict(logs), {}, {}
    epochs = list(epochs)
    first_epoch = 1 if (2, 2) <= version < (2, 7) else 0

    def put_parts(old_base):
        parts = split(logs.pop(old_base), old_base, version)
        indexes.pop(old_base, None)
        if any(base in logs for base, *_ in parts):
            raise Overflow
        for base, data, made, end in parts:
            logs[base], indexes[base], ends[base] = data, made, end

    def read_for_producers(end):
        read.extend(logs[base] for base in logs if base < end)

    for base in sorted(without_index):
        read_for_producers(base)
        known_epochs = epochs if version >= (3,) else list(epochs)
        try:
            logs[base], *made, ends[base] = recovered_segment(
                logs[base], base, interval, known_epochs, first_epoch
            )
        except Overflow:
            put_parts(base)
        else:
            indexes[base] = tuple(made)

    def from_the_recovery_point():
        flushed = [base for base in sorted(logs) if base <= recovery_point]
        return [base for base in sorted(logs) if not flushed or base >= flushed[-1]]

    unflushed = from_the_recovery_point()
    while unflushed:
        base = unflushed.pop(0)
        read_for_producers(base)
        size = len(logs[base])
        try:
            logs[base], *made, ends[base] = recovered_segment(
                logs[base], base, interval, epochs, first_epoch
            )
        except Disorder:
            logs[base], made, ends[base] = b"", (b"", b""), base
        except Overflow:
            put_parts(base)
            unflushed = from_the_recovery_point()
            continue
        indexes[base] = tuple(made)
        if len(logs[base]) < size:
            for later in unflushed:
                del logs[later]
                indexes.pop(later, None)
            break
    read_for_producers(max(logs) + 1)
    last = max(logs)
    end = ends[last]
    if end < log_start and version >= (2, 3):
        logs, indexes, end = {log_start: b""}, {log_start: (b"", b"")}, log_start
        if version >= (2, 8):
            epochs = []
    epochs = [each for each in epochs if each[1] < end]
    start = log_start if version >= (3,) else max(log_start, min(logs))
    below = [each for each in epochs if each[1] <= start]
    if below:
        epochs = [(below[-1][0], start)] + [each for each in epochs if each[1] > start]
    return Loaded(logs, indexes, epochs, end)
