"""The segment files of a log that is being written, and its log end offset.

Source: Kafka 2.4.0 ``Log``; 3.9.0 ``LocalLog``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from kafkastore.formats.records.append_sets import AppendSets
from kafkastore.formats.state.file_names import DELETED_SUFFIX, LOG_SUFFIX, segment_file_name
from kafkastore.fs import FileSystem
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.segment_writer import SEGMENT_SUFFIXES, SegmentLimits, SegmentWriter
from kafkastore.versions import BrokerRules
from kafkastore.writing.log_config import LogConfig
from kafkastore.writing.retention import SegmentFacts


class LocalLog:
    """The segments of one partition; the last one, the active one, is appended to.

    There is at least one base offset; the last segment is created if missing. Times (`now`) are in
    ms since 1970. `recovery_point` is the first offset that may not be flushed.
    """

    def __init__(
        self,
        path: Path,
        base_offsets: Sequence[int],
        config: LogConfig,
        rules: BrokerRules,
        *,
        log_end_offset: int,
        recovery_point: int,
        now: int,
        fs: FileSystem,
    ) -> None:
        self.path, self._config, self._rules, self._fs = path, config, rules, fs
        self._bases = list(base_offsets)
        self.log_end_offset = log_end_offset
        self.recovery_point = min(recovery_point, log_end_offset)
        ends = [*self._bases[1:], log_end_offset + 1]
        self._unflushed = {
            base for base, end in zip(self._bases, ends, strict=True) if end > self.recovery_point
        }
        self._active = self._open_or_create_segment(self._bases[-1], now)

    @property
    def base_offsets(self) -> tuple[int, ...]:
        """Base offsets of the segments, ascending; the last is the active segment's."""
        return tuple(self._bases)

    @property
    def active(self) -> SegmentWriter:
        """The segment that is appended to."""
        return self._active

    def append(self, data: memoryview, sets: AppendSets, now: int) -> tuple[int, ...]:
        """Append sets of batches, to as many segments as needed.

        Return the base offsets of the segments that it starts.
        """
        first, is_new = 0, False
        begun: list[int] = []
        while True:
            active = self._active
            size = active.size
            end = active.append(data, sets, first, now=now, is_new=is_new)
            if end > first:
                self.log_end_offset = sets.last_offset(end - 1) + 1
            if end == sets.count:
                return tuple(begun)
            data = data[active.size - size :]
            begun += self.roll(sets.first_offset(end), now)
            first, is_new = end, True

    def roll(self, expected_next_offset: int, now: int) -> tuple[int, ...]:
        """Start a segment at `expected_next_offset` or the log end; flush the others.

        Return its base offset, or nothing if the active segment is empty and has this base offset.
        A broker flushes in another thread.
        Source: Kafka 3.9.0 ``LocalLog.roll``.
        """
        base_offset = max(expected_next_offset, self.log_end_offset)
        if base_offset == self._active.base_offset:
            # An index too small for an entry is full when it is created (KAFKA-6388): reset it, as
            # a new one.
            self._active.truncate_to(base_offset, now)
            return ()
        self._active.trim()
        # A crash must not lose the end of a segment and keep the next: the gap would go unnoticed.
        self.flush()
        self._active.close_files()
        self._active = self._create_segment(base_offset, now)
        self._bases.append(base_offset)
        return (base_offset,)

    def flush(self) -> None:
        """Flush all files, the oldest segment first."""
        for base_offset in sorted(self._unflushed - {self._active.base_offset}):
            for path in self._files_of(base_offset):
                descriptor = self._fs.open_write(path)
                try:
                    self._fs.fsync(descriptor)
                finally:
                    self._fs.close(descriptor)
        self._active.flush()
        self._fs.fsync_directory(self.path)
        self._unflushed = {self._active.base_offset}
        self.recovery_point = self.log_end_offset

    def truncate_to(self, offset: int, now: int) -> None:
        """Delete the batches with `offset` or later ones; the log then ends there.

        `offset` is at least the first base offset, and below the log end offset.
        """
        later_bases = [base for base in self._bases if base > offset]
        if later_bases:
            self._active.close_files()
            # The last segment first: an interruption leaves no gap.
            self.delete_segments(later_bases[::-1])
            self._active = self._open_or_create_segment(self._bases[-1], now)
        self._active.truncate_to(offset, now)
        self._unflushed.add(self._active.base_offset)
        self.log_end_offset = offset
        self.recovery_point = min(offset, self.recovery_point)

    def truncate_fully(self, offset: int, now: int) -> None:
        """Delete all segments; the log then starts and ends at `offset`."""
        self._active.close_files()
        self.delete_segments(self._bases[::-1])
        self._active = self._create_segment(offset, now)
        self._bases = [offset]
        self.log_end_offset = offset
        self.recovery_point = min(offset, self.recovery_point)

    def delete_segments(self, base_offsets: Iterable[int]) -> None:
        """Rename the files of segments, then remove them, in the given order.

        The active segment must not be among them, unless the caller creates another immediately.
        """
        renamed = []
        for base_offset in list(base_offsets):
            for path in self._files_of(base_offset):
                renamed.append(path.with_name(path.name + DELETED_SUFFIX))
                self._fs.rename(path, renamed[-1])
            self._bases.remove(base_offset)
            self._unflushed.discard(base_offset)
        for path in renamed:
            self._fs.unlink(path)

    def segment_facts(self) -> list[SegmentFacts]:
        """Return the facts that retention needs, by base offset."""
        facts = []
        ends = [*self._bases[1:], self.log_end_offset]
        for base_offset, end in zip(self._bases, ends, strict=True):
            segment = LogSegment(self.path, base_offset, end)
            if base_offset == self._active.base_offset:
                size, largest = self._active.size, self._active.largest_timestamp
            else:
                index = segment.time_index
                size, largest = segment.size, -1 if index is None else index.last_entry.timestamp
            if largest < 0:
                largest = segment.last_modified_ms
            facts.append(SegmentFacts(base_offset, end, size, largest))
        return facts

    def close(self) -> None:
        """Truncate all files to their used size, flush and close them."""
        self._active.trim()
        self.flush()
        self._active.close_files()

    def close_files(self) -> None:
        """Close the files without flushing them."""
        self._active.close_files()

    def _files_of(self, base_offset: int) -> list[Path]:
        """List the existing files of a segment."""
        paths = (self.path / segment_file_name(base_offset, each) for each in SEGMENT_SUFFIXES)
        return [path for path in paths if path.exists()]

    def _limits(self) -> SegmentLimits:
        """Return the limits of a segment, with a random part of ``segment.jitter.ms``."""
        config = self._config
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        return SegmentLimits(
            config.segment_bytes,
            config.segment_ms - (random.randrange(jitter) if jitter else 0),
            config.segment_index_bytes,
            config.index_interval_bytes,
            config.preallocate,
            self._rules.each_batch_is_indexed,
        )

    def _open_or_create_segment(self, base_offset: int, now: int) -> SegmentWriter:
        """Open a segment; in a new log it does not exist yet and is created."""
        if not (self.path / segment_file_name(base_offset, LOG_SUFFIX)).exists():
            return self._create_segment(base_offset, now)
        return SegmentWriter.open(self.path, base_offset, self._limits(), now=now, fs=self._fs)

    def _create_segment(self, base_offset: int, now: int) -> SegmentWriter:
        """Create a segment; files of that name that a crash left are removed first."""
        for path in self._files_of(base_offset):
            self._fs.unlink(path)
        self._unflushed.add(base_offset)
        return SegmentWriter.create(self.path, base_offset, self._limits(), now=now, fs=self._fs)
