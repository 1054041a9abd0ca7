"""A segment whose offsets reach more than 31 bits above its base offset, and how it is split.

Brokers before 2.0 could make such segments by compaction (KAFKA-6264); their indexes can't name all
of the offsets. Since 2.0 a broker that recovers one puts others in its place.

Source: Kafka 2.4.0 ``Log.splitOverflowedSegment``, ``LogSegment.appendFromFile``; 3.9.0
``LocalLog.splitOverflowedSegment``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kafkastore.arguments import INT32_MAX
from kafkastore.errors import CorruptBatchError, OffsetOverflowError
from kafkastore.formats.indexes import offset_index, time_index
from kafkastore.segment.log_file import LogFile

LARGEST_RELATIVE_OFFSET = INT32_MAX

# What a broker copies at once; an index entry stands for all of it.
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CopiedRange:
    """Bytes of a ``.log`` that become a ``.log`` of their own.

    Parameters
    ----------
    source : str
        Name of the file that has them.
    start, end : int
        Byte positions in it, inclusive and exclusive.
    is_cut : bool
        Whether a recovery has cut off what was behind `end`: the modification time is then new.
    """

    source: str
    start: int
    end: int
    is_cut: bool = False


class LogPart(LogFile):
    """Some bytes of a ``.log``, read as if they were a file.

    Parameters
    ----------
    path : Path
        The file.
    start, end : int
        Byte positions of batches, inclusive and exclusive.
    """

    def __init__(self, path: Path, start: int, end: int) -> None:
        super().__init__(path)
        self._start = start
        self.size = min(self.size, end) - start

    def _read_into(self, buffer: bytearray | memoryview, position: int) -> memoryview:
        """Fill a buffer from a position in the part, and from nothing behind it."""
        room = memoryview(buffer)[: max(self.size - position, 0)]
        whole_size, self.size = self.size, self._start + self.size
        try:
            return super()._read_into(room, self._start + position)
        finally:
            self.size = whole_size


@dataclass(slots=True)
class Part:
    """One of the segments that a segment is split into; see `parts_of`.

    Parameters
    ----------
    base_offset, start : int
        Of its first batch, and where that begins in the log that is split.
    """

    base_offset: int
    start: int
    size: int = 0
    next_offset: int = 0
    _largest: tuple[int, int] = (-1, 0)
    _bytes_since_entry: int = 0
    _offset_entries: list[tuple[int, int]] = field(default_factory=list)
    _time_entries: list[tuple[int, int]] = field(default_factory=list)

    def holds(self, offset: int) -> bool:
        """Tell whether an offset fits the 31 bits above the base offset."""
        return 0 <= offset - self.base_offset <= LARGEST_RELATIVE_OFFSET

    def append(self, size: int, last_offset: int, largest: tuple[int, int], interval: int) -> None:
        """Go on with what is copied at once: its bytes, last offset, and largest timestamp."""
        if largest[0] > self._largest[0]:
            self._largest = largest
        if self._bytes_since_entry > interval:
            self._offset_entries.append((last_offset, self.size))
            self._add_time_entry()
            self._bytes_since_entry = 0
        self._bytes_since_entry += size
        self.size += size
        self.next_offset = last_offset + 1

    def indexes(self) -> tuple[bytes, bytes]:
        """Return both indexes, as they are when the part is whole."""
        self._add_time_entry()
        return (
            offset_index.pack(self._offset_entries, self.base_offset),
            time_index.pack(self._time_entries, self.base_offset),
        )

    def _add_time_entry(self) -> None:
        if self._largest[0] > (self._time_entries[-1][0] if self._time_entries else -1):
            self._time_entries.append(self._largest)


def overflow_position(path: Path, size: int, base_offset: int) -> int:
    """Find the first batch whose last offset does not fit the 31 bits above a base offset.

    Parameters
    ----------
    path : Path
        The ``.log`` file.
    size : int
        Bytes of it that count; without such a batch what is returned.
    base_offset : int
        Of the segment.

    Returns
    -------
    int
        Its byte position.
    """
    with LogPart(path, 0, size) as log:
        for position, _, last_offset, _ in _batches(log):
            if last_offset - base_offset > LARGEST_RELATIVE_OFFSET:
                return position
    return size


def parts_of(
    path: Path, size: int, index_interval_bytes: int, *, each_batch_is_indexed: bool
) -> list[Part]:
    """Find out into which segments a broker splits one.

    A new one begins with the first batch, and with each whose last offset does not fit the 31 bits
    above the base offset of the one before. Checksums are not looked at.

    Parameters
    ----------
    path : Path
        The ``.log`` file.
    size : int
        Bytes of it that count.
    index_interval_bytes : int
        The topic's ``index.interval.bytes``.
    each_batch_is_indexed : bool
        As in `BrokerRules`; else an index entry stands for what is copied at once.

    Returns
    -------
    list of Part
        By base offset.

    Raises
    ------
    CorruptBatchError
        If the log does not end behind a whole batch: a broker does not start then.
    OffsetOverflowError
        If a batch by itself has offsets too far apart, or a part would not begin behind the one
        before.
    """
    parts: list[Part] = []
    with LogPart(path, 0, size) as log:
        chunk = _Chunk()
        for position, batch_size, last_offset, timestamp in _batches(log):
            if parts and parts[-1].holds(last_offset):
                if not chunk.has_room(batch_size):
                    chunk.flush(parts[-1], index_interval_bytes)
            else:
                if parts:
                    chunk.flush(parts[-1], index_interval_bytes)
                parts.append(_begun(log, position, last_offset, parts))
                chunk = _Chunk()
            chunk.add(batch_size, last_offset, timestamp)
            if each_batch_is_indexed:
                chunk.flush(parts[-1], index_interval_bytes)
        if parts:
            chunk.flush(parts[-1], index_interval_bytes)
    end = parts[-1].start + parts[-1].size if parts else 0
    if end < size:
        raise CorruptBatchError(
            "a segment that has to be split does not end behind a whole batch",
            path=path,
            position=end,
        )
    return parts


def _batches(log: LogFile) -> Iterator[tuple[int, int, int, int]]:
    """Read of each batch (position, bytes, last offset, largest timestamp)."""
    fields = ["position", "size", "last_offset", "max_timestamp"]
    for run in log.runs():
        yield from run.headers[fields].tolist()


def _begun(log: LogFile, position: int, last_offset: int, before: list[Part]) -> Part:
    """Begin a part with a batch."""
    base_offset = log.first_offset_at(position)
    if base_offset is None:
        raise CorruptBatchError(
            "the first offset of a batch can't be told", path=log.path, position=position
        )
    part = Part(base_offset, position)
    part.next_offset = base_offset
    least = before[-1].next_offset if before else 0
    if not part.holds(last_offset) or base_offset < least:
        raise OffsetOverflowError(
            f"{log.path}: no segment can begin with the batch at byte {position}, which has the "
            f"offsets {base_offset} to {last_offset}"
        )
    return part


class _Chunk:
    """Batches that a broker copies at once."""

    def __init__(self) -> None:
        self._capacity = _CHUNK_BYTES
        self._size, self._last_offset, self._largest = 0, 0, (-1, 0)

    def has_room(self, size: int) -> bool:
        return not self._size or self._size + size < self._capacity

    def add(self, size: int, last_offset: int, timestamp: int) -> None:
        if timestamp > self._largest[0]:
            self._largest = (timestamp, last_offset)
        self._size, self._last_offset = self._size + size, last_offset
        # A batch larger than the buffer makes that larger for good.
        self._capacity = max(self._capacity, self._size)

    def flush(self, part: Part, index_interval_bytes: int) -> None:
        if self._size:
            part.append(self._size, self._last_offset, self._largest, index_interval_bytes)
        self._size, self._largest = 0, (-1, 0)
