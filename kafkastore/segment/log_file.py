"""The ``.log`` file of a segment: read by ``pread``, batch by batch, never mapped, never written.

A mapping of a file that shrinks, or of a bad sector, kills the process; a read gives fewer bytes or
an error that can be told.
"""
from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.errors import CorruptBatchError, CorruptionError, UnsupportedFormatError
from kafkastore.formats import batch_header
from kafkastore.formats.batch_header import BATCH_HEADER
from kafkastore.formats.decompression import MAX_DECOMPRESSED_BYTES
from kafkastore.formats.entries import LogOffsetPosition
from kafkastore.formats.record_batch import RecordBatch
from kafkastore.remote import reads
from kafkastore.segment.regular_file import open_regular
from kafkastore.segment.timestamp_search import SegmentSearch
from kafkastore.segment.zeros import is_zero_from

LARGEST_READ = 512 * 1024
HEADERS_A_SCAN = 16_384
#: What a lookup reads first: one index interval and what a batch of usual size needs.
SMALLEST_READ = 32 * 1024


class BatchRun(NamedTuple):
    """Successive whole batches.

    `data` is valid until the next run is asked for: it is a view of a buffer that is used again,
    unless the file was mapped.
    """

    data: memoryview
    headers: NDArray[Any]

    @property
    def position(self) -> int:
        """Byte position of `data` in the file."""
        return int(self.headers["position"][0])

    def batch(self, index: int) -> memoryview:
        """Return the bytes of one batch."""
        at = int(self.headers["position"][index]) - self.position
        return self.data[at : at + int(self.headers["size"][index])]


class LogFile:
    """One ``.log`` file, opened for reading.

    Parameters
    ----------
    path : path-like
        The file. Its size is taken once, at opening: a live file may grow behind it.

    Notes
    -----
    Source: Kafka 2.4.0 ``FileRecords``, ``FileLogInputStream``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        self._descriptor = open_regular(path)
        self.size = os.fstat(self._descriptor).st_size

    @property
    def descriptor(self) -> int:
        """Of the open file; -1 when it is closed."""
        return self._descriptor

    def close(self) -> None:
        """Close the file; safe to repeat."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> LogFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def runs(
        self,
        starting_position: int = 0,
        *,
        verify_crc: bool = False,
        first_read: int = LARGEST_READ,
        mapped: bool = False,
        room: Callable[[int], memoryview] | None = None,
    ) -> Iterator[BatchRun]:
        """Scan batch headers forward, a run of batches at a time.

        Parameters
        ----------
        starting_position : int
            Byte position at which a batch begins.
        verify_crc : bool
            Compute checksums; see ``crc_valid`` of `BATCH_HEADER`.
        first_read : int
            Bytes of the first read; later ones are four times the one before, up to
            `LARGEST_READ`.
        mapped : bool
            Give views of the mapped file, which stay valid as long as they are kept, and as long as
            nobody cuts the file: touching a page that is gone ends the process.
        room : callable, optional
            Asked before each read for so many bytes of memory to read into. Default: a buffer of
            its own.

        Yields
        ------
        BatchRun
            At least one batch.

        Raises
        ------
        CorruptBatchError
            At a length no batch can have, unless only zeros follow (preallocated space is the end);
            at a byte that the device can't read, behind all whole batches before it.
        UnsupportedFormatError
            At a magic above 2.

        Notes
        -----
        A torn last batch is the end of the log, without an error: `valid_bytes` tells where it
        begins.
        """
        position, read_size = starting_position, first_read
        if mapped and reads.is_remote(self._descriptor):
            mapped, room = False, _new_memory  # a mapping would show what is not here yet
        mapping = self._map() if mapped and self.size else None
        room = room or _Buffer().room
        headers = _headers_for(self.size if mapping else min(read_size, self.size - position))
        while position < self.size:
            if mapping is None:
                buffer = room(min(read_size, self.size - position))
                data = self._read_into(buffer, position)
            else:
                data = mapping[position : position + read_size]
            count, scanned, status, wanted = batch_header.scan(
                data, position, headers, verify_crc=verify_crc
            )
            if count:
                yield BatchRun(data[:scanned], headers[:count])
                position += scanned
            if status in (batch_header.BAD_LENGTH, batch_header.BAD_MAGIC):
                head = bytes(data[scanned : scanned + batch_header.SMALLEST_FRAME])
                if self._is_end(head, position):
                    return
                raise self._broken(head, position, status)
            if not count:
                # The next batch is not whole in the buffer: torn, or larger than the buffer.
                if wanted > self.size - position or len(data) == self.size - position:
                    return
                if mapping is None and len(data) < len(buffer):
                    # The file shrank while it was read, or a read error follows: then this raises.
                    if not self._read_into(bytearray(1), position + len(data)):
                        return
                    continue
                read_size = max(read_size, wanted)
            read_size = max(min(4 * read_size, LARGEST_READ), wanted)
            next_read = min(read_size, self.size - position)
            if len(headers) < HEADERS_A_SCAN and len(data) < next_read:
                headers = _headers_for(next_read)

    def _map(self) -> memoryview:
        """Map the file; the mapping lives as long as what refers to it."""
        return memoryview(mmap.mmap(self._descriptor, self.size, access=mmap.ACCESS_READ))

    def _read_into(self, buffer: bytearray | memoryview, position: int) -> memoryview:
        """Fill a buffer from a position, as far as there are bytes that can be read."""
        view = memoryview(buffer)[: max(self.size - position, 0)]
        done = 0
        reads.need(self._descriptor, position, position + len(view))
        while done < len(view):
            try:
                got = os.preadv(self._descriptor, [view[done:]], position + done)
            except OSError as error:
                if done:
                    break  # told by the next read, behind what could be read
                raise self.unreadable(position, error.strerror) from error
            if got == 0:
                break
            done += got
        return view[:done]

    def _is_end(self, head: bytes, position: int) -> bool:
        """Tell whether a frame that can't be one is where the log just ends.

        Kafka does not look at a frame that ends where the file ends, nor at the magic of a batch
        that runs past it. Zeros up to the end are space that ``log.preallocate``, or a crash, left.
        """
        left = self.size - position
        length = int.from_bytes(head[8:12], "big", signed=True)
        if left <= batch_header.SMALLEST_FRAME:
            return True
        if length >= batch_header.SMALLEST_LENGTH and length > left - batch_header.FRAME_OVERHEAD:
            return True
        if any(head):
            return False
        buffer = bytearray(min(LARGEST_READ, left))
        for at in range(position, self.size, len(buffer)):
            if (chunk := self._read_into(buffer, at).tobytes()) != bytes(len(chunk)):
                # Unless a broker has written there since `head` was read.
                return bool(any(self._read_into(bytearray(len(head)), position)))
        return True

    def check_end(self, position: int, status: int) -> None:
        """Raise at a frame that can't be one, unless the log just ends there.

        Parameters
        ----------
        position : int
            Byte position of the frame.
        status : int
            `batch_header.BAD_LENGTH` or `batch_header.BAD_MAGIC`.

        Raises
        ------
        CorruptBatchError, UnsupportedFormatError
            As from `runs`.
        """
        head = bytes(self._read_into(bytearray(batch_header.SMALLEST_FRAME), position))
        # Where a running broker has cut or written meanwhile, there is nothing to tell.
        if len(head) == batch_header.SMALLEST_FRAME and not self._is_end(head, position):
            raise self._broken(head, position, status)

    def check_nothing_behind(self, position: int) -> None:
        """Raise where something but zeros follows the last whole batch.

        Parameters
        ----------
        position : int
            Byte position behind it.

        Raises
        ------
        CorruptBatchError
            If what follows is no batch.
        """
        # Behind whole batches a read stops for what is torn, or has a length that leads too far.
        if position < self.size and not is_zero_from(self._descriptor, position):
            raise CorruptBatchError(
                f"{self.size - position} bytes are no whole batch, although records follow them",
                path=self.path,
                position=position,
            )

    def unreadable(self, position: int, reason: str | None) -> CorruptBatchError:
        """Return the error for bytes that the system does not give."""
        reads.check()
        return CorruptBatchError(
            f"the log can't be read ({reason})", path=self.path, position=position
        )

    def _broken(self, head: bytes, position: int, status: int) -> CorruptionError:
        """Return the error for a frame that can't be one."""
        if status == batch_header.BAD_MAGIC:
            reason = f"record batch has magic {head[16]}, not 0, 1 or 2"
            return UnsupportedFormatError(reason, path=self.path, position=position)
        length = int.from_bytes(head[8:12], "big", signed=True)
        reason = f"record batch has length {length}, which no batch can have"
        return CorruptBatchError(reason, path=self.path, position=position)

    def header_at(self, position: int) -> Any | None:
        """Read the header of the batch at a position.

        Parameters
        ----------
        position : int
            Bytes.

        Returns
        -------
        numpy.void of BATCH_HEADER, or None
            None where no whole batch begins there.
        """
        data = self._read_into(bytearray(batch_header.LARGEST_HEADER), position)
        header = batch_header.parse(data, position)
        if header is None or header["size"][0] > self.size - position:
            return None
        return header[0]

    def first_offset_at(self, position: int) -> int | None:
        """Read the first offset of the batch at a position; for a wrapper this decompresses it.

        Parameters
        ----------
        position : int
            Bytes.

        Returns
        -------
        int or None
            None where no whole batch begins there, or a wrapper that can't be read.
        """
        header = self.header_at(position)
        if header is None:
            return None
        if header["base_offset"] >= 0:
            return int(header["base_offset"])
        data = self._read_into(bytearray(int(header["size"])), position)
        try:
            return int(RecordBatch(data, position).base_offset)
        except CorruptionError:
            return None

    def batches(
        self, starting_position: int = 0, *, first_read: int = LARGEST_READ
    ) -> Iterator[RecordBatch]:
        """Read batches one by one; each owns its bytes.

        Parameters
        ----------
        starting_position : int
            Byte position at which a batch begins.
        first_read : int
            Bytes of the first read.

        Yields
        ------
        RecordBatch
            With its position in the file.
        """
        for run in self.runs(starting_position, first_read=first_read):
            for index, position in enumerate(run.headers["position"].tolist()):
                yield RecordBatch(bytes(run.batch(index)), position)

    def search_for_offset(
        self, target_offset: int, starting_position: int = 0
    ) -> LogOffsetPosition | None:
        """Find the first batch whose last offset is at least an offset.

        Parameters
        ----------
        target_offset : int
            Inclusive.
        starting_position : int
            Byte position at which a batch begins, usually from the offset index.

        Returns
        -------
        LogOffsetPosition or None
            Of the batch: its last offset, position, size.

        Notes
        -----
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
        *,
        skip_control: bool = False,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    ) -> tuple[int, int, int] | None:
        """Find the first record with at least a timestamp, at or after an offset.

        Parameters
        ----------
        target_timestamp : int
            ms since 1970, inclusive.
        starting_position : int
            Byte position at which a batch begins.
        starting_offset : int
            Inclusive.
        skip_control : bool
            Pass over transaction markers, which brokers do not.
        max_decompressed_bytes : int
            What a compressed batch may grow to.

        Returns
        -------
        (timestamp, offset, leader_epoch) or None
            `leader_epoch` is -1 where the batch has none.

        Notes
        -----
        Source: Kafka 2.4.0 ``FileRecords.searchForTimestamp``. Checksums are not looked at, as
        there.
        """
        found = SegmentSearch(
            lambda: self, 0, b"", b"",
            skip_control=skip_control, max_decompressed_bytes=max_decompressed_bytes,
        ).find_from(starting_position, target_timestamp, starting_offset)
        if found is None:
            return None
        timestamp, offset, epoch = found
        return timestamp, offset, -1 if epoch is None else epoch


class _Buffer:
    """Memory that is used again for each read."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def room(self, size: int) -> memoryview:
        if len(self._bytes) < size:
            self._bytes = bytearray(size)
        return memoryview(self._bytes)[:size]


def _new_memory(size: int) -> memoryview:
    """Make room that is not used again."""
    return memoryview(bytearray(size))


def _headers_for(size: int) -> NDArray[Any]:
    """Make room for the headers of so many bytes: a lookup's read needs no megabyte of it."""
    most = max(size, 0) // (batch_header.FRAME_OVERHEAD + batch_header.SMALLEST_LENGTH) + 1
    return np.empty(min(most, HEADERS_A_SCAN), BATCH_HEADER)
