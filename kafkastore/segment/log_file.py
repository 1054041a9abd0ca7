"""The ``.log`` file of a segment: read with pread, batch by batch, never mapped.

A mapping of a file that shrinks, or of a bad sector, kills the process. A read returns fewer bytes,
or an error that can be reported. Only `LogFile.runs` with ``mapped=True`` maps the file. This
module never writes.
"""
from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.arguments import INT32_MAX, LARGEST_OFFSET
from kafkastore.clock import clock
from kafkastore.errors import (
    CorruptBatchError,
    CorruptionError,
    KafkaStoreError,
    SegmentGoneError,
    UnsupportedFormatError,
)
from kafkastore.formats.indexes.entries import LogOffsetPosition
from kafkastore.formats.records import batch_header
from kafkastore.formats.records.batch_header import BATCH_HEADER
from kafkastore.formats.records.record_batch import RecordBatch
from kafkastore.formats.records.record_columns import RecordColumns
from kafkastore.formats.state.aborted_batches import AbortedBatches
from kafkastore.formats.state.file_names import LOG_SUFFIX, SWAP_SUFFIX, segment_file_name
from kafkastore.reads import check_fetched, fetch_bytes, is_remote, level2_cache_bytes
from kafkastore.segment.decoding.piece_decoder import PieceDecoder
from kafkastore.segment.decoding.usual_batches import read_usual
from kafkastore.segment.regular_file import open_regular
from kafkastore.segment.salvage import (
    can_begin_batch,
    has_false_length,
    largest_offset,
    next_batch,
)
from kafkastore.segment.timestamp_search import SegmentSearch
from kafkastore.segment.wrapped_offsets import WrongWrapper, find_wrong_wrappers
from kafkastore.segment.zero_tail import is_zero_from

#: As large as the core's second cache, in which the passes over the bytes find them. Smaller reads
#: only cost more calls, larger ones no less.
LARGEST_READ = min(max(level2_cache_bytes(), 512 * 1024), 1024 * 1024)
HEADERS_A_SCAN = 16_384
#: First read of a lookup: one index interval and a batch of usual size.
SMALLEST_READ = 32 * 1024
_BAD_BATCH = (batch_header.BAD_OFFSETS, batch_header.BAD_CRC)
# A broker may write a batch into preallocated space while it is read: then look again.
_WRITING_MS = 1000
_LOOKS, _SECONDS_BETWEEN_LOOKS = 6, 0.02


class BatchRun(NamedTuple):
    """Successive complete batches.

    `data` is valid until the next run is requested: it is a view of a reused buffer, unless the
    file is mapped. `position` is its byte position in the file, and `smallest_offset` the least
    offset that can follow the batches before.
    """

    data: memoryview
    headers: NDArray[Any]
    position: int
    smallest_offset: int

    @property
    def end_position(self) -> int:
        """Byte position after the last batch."""
        return self.position + len(self.data)

    @property
    def next_offset(self) -> int:
        """Offset after the last batch."""
        return int(self.headers["last_offset"][-1]) + 1

    def first(self, count: int) -> BatchRun:
        """Return the first batches of the run, at least one."""
        headers = self.headers[:count]
        size = int(headers["position"][-1]) + int(headers["size"][-1]) - self.position
        return self._replace(data=self.data[:size], headers=headers)

    def batch(self, index: int) -> memoryview:
        """Return the bytes of one batch."""
        at = int(self.headers["position"][index]) - self.position
        return self.data[at : at + int(self.headers["size"][index])]

    def wrong_wrappers(self, next_offset: int) -> Iterator[WrongWrapper]:
        """Yield the wrappers with a wrong offset; `next_offset` follows the batch before."""
        return find_wrong_wrappers(self.batch, self.headers, next_offset)


class DecodedRun(NamedTuple):
    """Successive batches whose records are in columns already.

    With `is_paused` the columns may be full, and the batches after it may be decoded as well.
    """

    end_position: int
    next_offset: int
    is_paused: bool


class SegmentBounds(NamedTuple):
    """The position of a segment in its log, which determines what its bytes may be."""

    base_offset: int
    next_base_offset: int | None  # None: the last segment, which may end incomplete

    @property
    def offsets(self) -> tuple[int, int]:
        """Smallest and largest offset of the segment, inclusive.

        A segment from before Kafka split such segments may have more than 31 bits of offsets.
        """
        following = self.next_base_offset
        return self.base_offset, LARGEST_OFFSET if following is None else following - 1


class LogFile:
    """One ``.log`` file, open for reading; its size is taken once, at opening.

    With `bounds`, scans raise at bytes that can't be right in such a segment. Without, the
    file is scanned as a broker does.

    Source: Kafka 2.4.0 ``FileRecords``, ``FileLogInputStream``.
    """

    #: Known to the class: when Python ends, modules are gone before the last objects.
    _close = staticmethod(os.close)

    def __init__(self, path: Path, bounds: SegmentBounds | None = None) -> None:
        self.path = path
        self.bounds = bounds
        self._end: int | None = None
        self._descriptor = -1
        self._descriptor = open_regular(path)
        self.size = os.fstat(self._descriptor).st_size

    def copy(self) -> LogFile:
        """Return the same file with a descriptor of its own."""
        descriptor = os.dup(self._descriptor)
        copy = LogFile.__new__(LogFile)
        vars(copy).update(vars(self), _descriptor=descriptor)
        return copy

    def up_to(self, end: int) -> LogFile:
        """Return the same file as if it ended at a byte, with a descriptor of its own."""
        part = self.copy()
        part.size = min(end, self.size)
        return part

    @property
    def descriptor(self) -> int:
        """The descriptor of the open file; -1 when it is closed."""
        return self._descriptor

    def close(self) -> None:
        """Close the file; safe to repeat."""
        if self._descriptor >= 0:
            self._close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> LogFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        # As Python's own files do: a file that is only read needs no flush and no lock.
        self.close()

    def runs(
        self,
        starting_position: int = 0,
        *,
        verify_crc: bool = False,
        decodes: bool = False,
        first_read: int = LARGEST_READ,
        largest_read: int | None = None,  # by default as the machine's caches have it
        mapped: bool = False,
        room: Callable[[int], memoryview] | None = None,
        next_offset: int | None = None,
    ) -> Iterator[BatchRun]:
        """Scan batch headers from a batch's byte position, at least one batch at a time.

        Raises a `CorruptionError` after all batches before it; truncating a `mapped` file kills the
        process; who `decodes` finds wrong wrappers; `next_offset` follows what was scanned before.
        """
        position, read_size = starting_position, first_read
        if mapped and is_remote(self._descriptor):
            mapped, room = False, _new_memory  # a mapping would show what is not here yet
        mapping = self._map() if mapped and self.size else None
        room = room or ReusedMemory().room
        headers = _headers_for(self.size if mapping else min(read_size, self.size - position))
        within = None if self.bounds is None else self.bounds.offsets
        if within is not None and next_offset is not None:
            within = next_offset, within[1]
        while position < self.size:
            if mapping is None:
                buffer = room(min(read_size, self.size - position))
                data = self._read_into(buffer, position)
            else:
                data = mapping[position : position + read_size]
            count, scanned, status, wanted = batch_header.scan(
                data, position, headers, verify_crc=verify_crc, within=within
            )
            wrong = None
            if within is not None and verify_crc and not decodes:
                run = BatchRun(data, headers[:count], position, within[0])
                wrong = next(run.wrong_wrappers(within[0]), None)
            if wrong is not None:
                count, scanned = wrong.slot, wrong.position - position
            smallest_offset = 0 if within is None else within[0]
            if within is not None and count:
                next_offset = int(headers["last_offset"][count - 1]) + 1
                following = data[scanned : scanned + 8]
                # Fast path: nearly always the next batch visibly begins after this one's offsets.
                is_seen = len(following) == 8
                if (
                    not is_seen or int.from_bytes(following, "big", signed=True) < next_offset
                ) and self._is_contradicted(headers[:count], within):
                    count, scanned = count - 1, scanned - int(headers["size"][count - 1])
                    next_offset = int(headers["last_offset"][count - 1]) + 1 if count else within[0]
                    status = batch_header.BAD_OFFSETS
                within = next_offset, within[1]
            if count:
                yield BatchRun(data[:scanned], headers[:count], position, smallest_offset)
                position += scanned
            if wrong is not None:
                raise wrong.error.located(self.path)
            if status in _BAD_BATCH:
                length = int.from_bytes(data[scanned + 8 : scanned + 12], "big")
                batch = bytes(data[scanned : scanned + batch_header.FRAME_OVERHEAD + length])
                if self._is_being_written(position, batch):
                    continue
                raise self._bad_batch(RecordBatch(batch, position), status, within)
            if status in (batch_header.BAD_LENGTH, batch_header.BAD_MAGIC):
                self.check_end(position, within and within[0])
                return
            if not count:
                # The next batch is incomplete in the file, or larger than the buffer.
                if wanted > self.size - position or len(data) == self.size - position:
                    self.check_end(position, within and within[0])
                    return
                if mapping is None and len(data) < len(buffer):
                    # The file shrank while it was read, or a read error follows, and this raises.
                    if not self.read(position + len(data), 1):
                        return
                    continue
                read_size = max(read_size, wanted)
            read_size = max(min(4 * read_size, largest_read or LARGEST_READ), wanted)
            next_read = min(read_size, self.size - position)
            if len(headers) < HEADERS_A_SCAN and len(data) < next_read:
                headers = _headers_for(next_read)

    def decode_usual(
        self,
        columns: RecordColumns,
        position: int,
        *,
        next_offset: int | None,
        end_position: int | None,
        end_offset: int,
        aborted: AbortedBatches | None,
        verify_crc: bool,
        decodes: bool,
        read_size: int,
    ) -> DecodedRun | None:
        """Decode usual batches up to a byte, or the first one that reaches an offset.

        None if the batch at `position` is not usual: `runs` says what it is. `aborted` batches give
        no rows; the rest is as for `runs`.
        """
        if self.bounds is None:
            return None
        smallest, largest = self.bounds.offsets
        end, _, following, is_paused = read_usual(
            columns,
            self._descriptor,
            position,
            self.size if end_position is None else min(end_position, self.size),
            self.size,
            smallest=smallest if next_offset is None else next_offset,
            largest=largest,
            end_offset=end_offset,
            aborted=aborted,
            verify_crc=verify_crc,
            check_all=verify_crc and not decodes,
            read_size=read_size,
        )
        return DecodedRun(end, following, is_paused) if end > position or is_paused else None

    def add_piece(
        self,
        decoder: PieceDecoder,
        position: int,
        *,
        end_position: int | None,
        offsets: tuple[int, int],
        end_offset: int,
        aborted: AbortedBatches | None,
        verify_crc: bool,
        decodes: bool,
        read_size: int,
    ) -> bool:
        """Add a piece of the file to what threads decode, as `decode_usual` does.

        `offsets` are those of the records: inclusive, exclusive. Returns whether to start a thread.
        """
        assert self.bounds is not None
        smallest, largest = self.bounds.offsets
        return decoder.add(
            self._descriptor,
            position,
            self.size if end_position is None else min(end_position, self.size),
            self.size,
            smallest=smallest,
            largest=largest,
            start_offset=offsets[0],
            end_offset=offsets[1],
            last_offset=end_offset,
            aborted=aborted,
            verify_crc=verify_crc,
            check_all=verify_crc and not decodes,
            read_size=read_size,
        )

    def _map(self) -> memoryview:
        """Map the file; the mapping lives as long as something refers to it."""
        return memoryview(mmap.mmap(self._descriptor, self.size, access=mmap.ACCESS_READ))

    def read(self, position: int, size: int) -> memoryview:
        """Return bytes from a position on; fewer at the end of the file."""
        return self._read_into(bytearray(size), position)

    def _read_into(self, buffer: bytearray | memoryview, position: int) -> memoryview:
        """Fill a buffer from a position on, as far as bytes can be read."""
        view = memoryview(buffer)[: max(self.size - position, 0)]
        done = 0
        fetch_bytes(self._descriptor, position, position + len(view))
        while done < len(view):
            try:
                got = os.preadv(self._descriptor, [view[done:]], position + done)
            except OSError as error:
                if done:
                    break  # the next read raises it, after the bytes that could be read
                raise self.unreadable(position, error.strerror) from error
            if got == 0:
                break
            done += got
        return view[:done]

    def check_end(self, position: int, next_offset: int | None = None) -> None:
        """Raise if the log can't end at `position`, after its last complete batch.

        With `bounds`, only an incomplete batch of the last segment, which begins as a batch from
        `next_offset` on, may remain; without, as in a broker. Raises `CorruptionError`.
        """
        if position == self._end or position >= self.size:
            return
        head = self._head_at(position)
        if (error := self._fault_at(position, head, next_offset)) is None:
            self._end = position
        # Not if a broker has truncated the log or appended to it in the meantime.
        elif os.fstat(self._descriptor).st_size >= self.size and head == self._head_at(position):
            raise error

    def _head_at(self, position: int) -> bytes:
        return bytes(self.read(position, batch_header.SMALLEST_FRAME))

    def _fault_at(
        self, position: int, head: bytes, next_offset: int | None
    ) -> CorruptionError | None:
        """Return why the log can't end at a position; None if it can."""
        frame_fault = self._frame_fault(head, position)
        if self.header_at(position) is not None or (self.bounds is None and frame_fault is None):
            return None  # a complete batch was written there meanwhile, or a broker stops there
        if is_zero_from(self._descriptor, position):
            is_last = self.bounds is None or self.bounds.next_base_offset is None
            return None if is_last else self._no_batch(position, "zeros, and records follow")
        if self.bounds is None or frame_fault is not None:
            return frame_fault
        if self.bounds.next_base_offset is not None:
            return self._no_batch(position, "not a complete batch, and records follow")
        if has_false_length(self, position):
            return self._no_batch(position, "a batch with a wrong length")
        smallest = self.bounds.base_offset
        largest = largest_offset(smallest, None)
        if next_batch(self, position, smallest, largest) < self.size:
            return self._no_batch(position, "not a complete batch, and a complete batch follows")
        first = smallest if next_offset is None else next_offset
        if not can_begin_batch(head, first, largest):
            return self._no_batch(position, "not the beginning of a batch")
        return None

    def check_length(self, position: int) -> None:
        """Raise `CorruptBatchError` for a length that no broker reads past.

        Zeros are such a length.

        Source: Kafka 2.4.0 ``FileLogInputStream.nextBatch``.
        """
        fault = self._frame_fault(self._head_at(position), position)
        if isinstance(fault, CorruptBatchError):
            raise fault

    def _frame_fault(self, head: bytes, position: int) -> CorruptionError | None:
        """Return the error for a frame; None for a frame that Kafka does not check.

        Kafka does not check a frame that ends at the end of the file, or the magic of a batch that
        extends past it.
        """
        left = self.size - position
        if left <= batch_header.SMALLEST_FRAME or len(head) < batch_header.SMALLEST_FRAME:
            return None
        length = int.from_bytes(head[8:12], "big", signed=True)
        if length >= batch_header.SMALLEST_LENGTH and length > left - batch_header.FRAME_OVERHEAD:
            return None
        if batch_header.parse(head.ljust(batch_header.LARGEST_HEADER, b"\0"), 0) is not None:
            return None
        if not 0 <= head[16] <= 2 and length >= batch_header.SMALLEST_LENGTH:
            reason = f"record batch has magic {head[16]}, not 0, 1 or 2"
            return UnsupportedFormatError(reason, path=self.path, position=position)
        reason = f"impossible batch length {length}"
        return CorruptBatchError(reason, path=self.path, position=position)

    def _no_batch(self, position: int, what: str) -> CorruptBatchError:
        return CorruptBatchError(
            f"{self.size - position} bytes are {what}", path=self.path, position=position
        )

    def _is_contradicted(self, headers: NDArray[Any], within: tuple[int, int]) -> bool:
        """Return whether the next bytes show that the last batch's offsets are wrong.

        They do if the next batch begins before those offsets end, but after those of the batch
        before.
        """
        last = headers[-1]
        last_offset = int(last["last_offset"])
        before = int(headers["last_offset"][-2]) + 1 if len(headers) > 1 else within[0]
        following = int(last["position"]) + int(last["size"])
        try:
            offset = self.read(following, 8) if following < self.size else b""
        except CorruptBatchError:  # the next read raises it, after this batch
            return False
        if len(offset) < 8:
            most = within[0] + INT32_MAX
            return within[1] == LARGEST_OFFSET and last_offset > most >= before
        if before <= int.from_bytes(offset, "big", signed=True) <= last_offset:
            return self.header_at(following) is not None
        return False

    def _is_being_written(self, position: int, batch: bytes) -> bool:
        """Return whether a broker was writing a batch into preallocated space."""
        for _ in range(_LOOKS):
            if batch != self.read(position, len(batch)):
                return True
            status, end = os.fstat(self._descriptor), position + len(batch)
            is_young = clock() - status.st_mtime_ns // 1_000_000 < _WRITING_MS
            if not is_young or end >= self.size or not is_zero_from(self._descriptor, end):
                return False
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        return False

    def _bad_batch(
        self, batch: RecordBatch, status: int, within: tuple[int, int] | None
    ) -> KafkaStoreError:
        """Return the error for a batch that is whole but corrupt."""
        if status == batch_header.BAD_CRC:
            try:
                batch.verify()
            except CorruptionError as error:
                return error.located(self.path)
        return self.out_of_order(batch.position, batch.last_offset, within[0] if within else 0)

    def out_of_order(self, position: int, last_offset: int, smallest: int) -> KafkaStoreError:
        """Return the error for a batch whose offsets do not fit its neighbours'."""
        merged = self._merged_segment()
        if merged is not None:
            return SegmentGoneError(merged)
        largest = LARGEST_OFFSET if self.bounds is None else self.bounds.offsets[1]
        bounds = "on" if largest == LARGEST_OFFSET else f"to {largest}"
        what = f"but offsets here increase from {smallest} {bounds}"
        if last_offset > LARGEST_OFFSET:
            what = f"above the largest offset, {LARGEST_OFFSET}"
        return CorruptBatchError(
            f"record batch ends with offset {last_offset}, {what}",
            path=self.path,
            position=position,
        )

    def _merged_segment(self) -> Path | None:
        """Return the next segment's log if compaction has merged it into this one."""
        following = None if self.bounds is None else self.bounds.next_base_offset
        if following is None:
            return None
        path = self.path.with_name(segment_file_name(following, LOG_SUFFIX))
        is_there = path.exists() or path.with_name(path.name + SWAP_SUFFIX).exists()
        return None if is_there else path

    def unreadable(self, position: int, reason: str | None) -> CorruptBatchError:
        """Return the error for bytes that the operating system can't read."""
        check_fetched()
        return CorruptBatchError(
            f"the log can't be read ({reason})", path=self.path, position=position
        )

    def header_at(self, position: int) -> Any | None:
        """Return the header of the batch at a byte position; None if it is incomplete."""
        data = self.read(position, batch_header.LARGEST_HEADER)
        header = batch_header.parse(data, position)
        if header is None or header["size"][0] > self.size - position:
            return None
        return header[0]

    def first_offset_at(self, position: int) -> int | None:
        """Return the first offset of the batch at a byte position.

        A wrapper is decompressed for it. Returns None if there is no complete batch, or a wrapper
        that can't be read.
        """
        header = self.header_at(position)
        if header is None:
            return None
        if header["base_offset"] >= 0:
            return int(header["base_offset"])
        data = self.read(position, int(header["size"]))
        try:
            return int(RecordBatch(data, position).base_offset)
        except CorruptionError:
            return None

    def batches(self, starting_position: int = 0) -> Iterator[RecordBatch]:
        """Yield batches one by one from a batch's byte position on; each owns its bytes."""
        for run in self.runs(starting_position):
            for index, position in enumerate(run.headers["position"].tolist()):
                yield RecordBatch(bytes(run.batch(index)), position)

    def search_for_offset(
        self, target_offset: int, starting_position: int = 0
    ) -> LogOffsetPosition | None:
        """Find the first batch whose last offset is at least `target_offset`.

        `starting_position` is the byte position of a batch, usually from the offset index. The
        result has the batch's last offset, position and size.

        Source: Kafka 2.4.0 ``FileRecords.searchForOffsetWithSize``.
        """
        for run in self.runs(starting_position, first_read=SMALLEST_READ):
            index = int(np.argmax(run.headers["last_offset"] >= target_offset))
            found = run.headers[index]
            if found["last_offset"] >= target_offset:
                return LogOffsetPosition(
                    int(found["last_offset"]), int(found["position"]), int(found["size"])
                )
        return None

    def search_for_timestamp(
        self,
        target_timestamp: int,
        starting_position: int = 0,
        starting_offset: int = 0,
    ) -> tuple[int, int, int] | None:
        """Find the first record with at least a timestamp (ms), at or after an offset.

        Returns (timestamp, offset, leader epoch or -1) or None. `starting_position` is the byte
        position of a batch. As in Kafka, transaction markers count, and checksums are not checked.

        Source: Kafka 2.4.0 ``FileRecords.searchForTimestamp``.
        """
        search = SegmentSearch(lambda: self, 0, b"", b"")
        found = search.find_from(starting_position, target_timestamp, starting_offset)
        if found is None:
            return None
        timestamp, offset, epoch = found
        return timestamp, offset, -1 if epoch is None else epoch


class ReusedMemory:
    """Memory that is reused for each read."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def room(self, size: int) -> memoryview:
        """Return memory of a size; it replaces what was returned before."""
        if len(self._bytes) < size:
            self._bytes = bytearray(size)
        return memoryview(self._bytes)[:size]


def _new_memory(size: int) -> memoryview:
    """Return new memory for one read."""
    return memoryview(bytearray(size))


def _headers_for(size: int) -> NDArray[Any]:
    """Allocate headers for a read of `size` bytes; a lookup needs only a few."""
    most = max(size, 0) // (batch_header.FRAME_OVERHEAD + batch_header.SMALLEST_LENGTH) + 1
    return np.empty(min(most, HEADERS_A_SCAN), BATCH_HEADER)
