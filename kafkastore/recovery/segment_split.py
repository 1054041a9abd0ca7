"""Split a segment that has offsets more than 31 bits above its base offset.

Before 2.0, compaction could produce such segments (KAFKA-6264); their indexes can't hold all of the
offsets. Since 2.0, a broker that recovers such a segment splits it.

Source: Kafka 2.4.0 ``Log.splitOverflowedSegment``, ``LogSegment.appendFromFile``; 3.9.0
``LocalLog.splitOverflowedSegment``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kafkastore.arguments import INT32_MAX
from kafkastore.errors import CorruptBatchError, OffsetOverflowError
from kafkastore.formats.indexes.index_format import offset_index, time_index
from kafkastore.segment.log_file import BatchRun, LogFile
from kafkastore.segment.recovery import batch_runs

LARGEST_RELATIVE_OFFSET = INT32_MAX

# The size of a broker's copy buffer; one append, and at most one index entry, covers a full buffer.
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CopiedRange:
    """A range of bytes of a ``.log`` that becomes a ``.log`` of its own.

    `end` is exclusive. `is_cut`: a recovery has cut the bytes after `end`, so the modification time
    is new.
    """

    source: str
    start: int
    end: int
    is_cut: bool = False


class LogPart(LogFile):
    """A range of complete batches of a ``.log``, read like a file; `end` is excluded."""

    def __init__(self, path: Path, start: int, end: int) -> None:
        super().__init__(path)
        self._start = start
        self.size = min(self.size, end) - start

    def _read_into(self, buffer: bytearray | memoryview, position: int) -> memoryview:
        """Fill a buffer from a position in the part; nothing beyond its end is read."""
        room = memoryview(buffer)[: max(self.size - position, 0)]
        whole_size, self.size = self.size, self._start + self.size
        try:
            return super()._read_into(room, self._start + position)
        finally:
            self.size = whole_size


@dataclass(slots=True)
class Part:
    """One of the segments that a segment is split into; see `parts_of`.

    `start` is the position of its first batch in the log that is split.
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
        """Return whether an offset fits in the 31 bits above the base offset."""
        return 0 <= offset - self.base_offset <= LARGEST_RELATIVE_OFFSET

    def append(self, size: int, last_offset: int, largest: tuple[int, int], interval: int) -> None:
        """Add a chunk: its size, last offset, and largest timestamp with its offset."""
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
        """Return the offset index and the time index of the complete part."""
        self._add_time_entry()
        return (
            offset_index.pack(self._offset_entries, self.base_offset),
            time_index.pack(self._time_entries, self.base_offset),
        )

    def _add_time_entry(self) -> None:
        if self._largest[0] > (self._time_entries[-1][0] if self._time_entries else -1):
            self._time_entries.append(self._largest)


def overflow_position(path: Path, size: int, base_offset: int) -> int:
    """Return the position of the first batch that does not fit `base_offset`.

    Its last offset is below, or more than 31 bits above. Without such a batch return `size`.
    """
    with LogPart(path, 0, size) as log:
        for position, _, _, last_offset, _ in _batches(batch_runs(log)):
            if not 0 <= last_offset - base_offset <= LARGEST_RELATIVE_OFFSET:
                return position
    return size


def parts_of(
    path: Path, size: int, index_interval_bytes: int, *, each_batch_is_indexed: bool
) -> list[Part]:
    """Return the parts into which a broker splits the first `size` bytes of a log.

    Checksums are not checked. A broker does not start where this raises: a `CorruptionError` at an
    incomplete last batch or an unknown magic, or `OffsetOverflowError` if a batch fits no part.
    """
    parts: list[Part] = []
    with LogPart(path, 0, size) as log:
        chunk = _Chunk()
        # To index each batch, a broker reads it from memory, where no magic above 2 is accepted.
        runs = log.runs() if each_batch_is_indexed else batch_runs(log)
        for position, batch_size, base_offset, last_offset, timestamp in _batches(runs):
            if parts and parts[-1].holds(last_offset):
                if not chunk.has_room(batch_size):
                    chunk.flush(parts[-1], index_interval_bytes)
            else:
                if parts:
                    chunk.flush(parts[-1], index_interval_bytes)
                parts.append(_begun(log, position, base_offset, last_offset, parts))
                chunk = _Chunk()
            chunk.add(batch_size, last_offset, timestamp)
            if each_batch_is_indexed:
                chunk.flush(parts[-1], index_interval_bytes)
        if parts:
            chunk.flush(parts[-1], index_interval_bytes)
    end = parts[-1].start + parts[-1].size if parts else 0
    if end < size:
        raise CorruptBatchError(
            "a segment to split must end with a complete batch",
            path=path,
            position=end,
        )
    return parts


def _batches(runs: Iterator[BatchRun]) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield (position, size, base and last offset, largest timestamp) of each batch."""
    fields = ["position", "size", "base_offset", "last_offset", "max_timestamp"]
    for run in runs:
        yield from run.headers[fields].tolist()


def _begun(
    log: LogFile, position: int, base_offset: int, last_offset: int, before: list[Part]
) -> Part:
    """Return a new part that starts with the batch at `position`."""
    first_offset = log.first_offset_at(position) if base_offset < 0 else base_offset
    if first_offset is None:
        raise CorruptBatchError(
            "the first offset of a batch is unknown", path=log.path, position=position
        )
    part = Part(first_offset, position)
    part.next_offset = first_offset
    least = before[-1].next_offset if before else 0
    if not part.holds(last_offset) or first_offset < least:
        raise OffsetOverflowError(
            f"{log.path}: no segment can begin with the batch at byte {position}, which has the "
            f"offsets {first_offset} to {last_offset}"
        )
    return part


class _Chunk:
    """Batches that a broker copies with one buffer."""

    def __init__(self) -> None:
        self._capacity = _CHUNK_BYTES
        self._size, self._last_offset, self._largest = 0, 0, (-1, 0)

    def has_room(self, size: int) -> bool:
        return not self._size or self._size + size < self._capacity

    def add(self, size: int, last_offset: int, timestamp: int) -> None:
        if timestamp > self._largest[0]:
            self._largest = (timestamp, last_offset)
        self._size, self._last_offset = self._size + size, last_offset
        # A batch larger than the buffer enlarges the buffer permanently.
        self._capacity = max(self._capacity, self._size)

    def flush(self, part: Part, index_interval_bytes: int) -> None:
        if self._size:
            part.append(self._size, self._last_offset, self._largest, index_interval_bytes)
        self._size, self._largest = 0, (-1, 0)
