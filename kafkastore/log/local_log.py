"""The segments of a log that is written, as files: which there are, and where the log ends.

Source: Kafka 2.4.0 ``Log``; 3.9.0 ``LocalLog``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from kafkastore.formats.append_sets import AppendSets
from kafkastore.formats.file_names import DELETED_SUFFIX, LOG_SUFFIX, segment_file_name
from kafkastore.fs import FileSystem
from kafkastore.log.log_config import LogConfig
from kafkastore.log.retention import SegmentFacts
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.segment_writer import SEGMENT_SUFFIXES, SegmentLimits, SegmentWriter
from kafkastore.versions import BrokerRules


class LocalLog:
    """The segments of one partition; the last of them, the active one, is appended to.

    Parameters
    ----------
    path : Path
        The partition directory.
    base_offsets : sequence of int
        Of its segments, at least one. The last is made if it is not there.
    config : LogConfig
        The topic's.
    rules : BrokerRules
        What brokers of the version do.
    log_end_offset, recovery_point : int
        Exclusive: where the log ends, and up to where it is flushed.
    now : int
        The wall clock, ms since 1970.
    fs : FileSystem
        What alters files.

    Attributes
    ----------
    log_end_offset : int
        Offset the next record will get.
    recovery_point : int
        First offset not known to be flushed.
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
        """Of the segments; the last is the active one's."""
        return tuple(self._bases)

    @property
    def active(self) -> SegmentWriter:
        """The segment that is appended to."""
        return self._active

    def append(self, data: memoryview, sets: AppendSets, now: int) -> tuple[int, ...]:
        """Append sets of batches, into as many segments as it takes.

        Parameters
        ----------
        data : memoryview
            The batches.
        sets : AppendSets
            What they are.
        now : int
            The wall clock, ms since 1970.

        Returns
        -------
        tuple of int
            Base offsets of the segments that were begun for it.
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
        """Begin a new segment.

        Parameters
        ----------
        expected_next_offset : int
            Of the next record; its base offset, if that is not below the log end offset.
        now : int
            The wall clock, ms since 1970.

        Returns
        -------
        tuple of int
            Its base offset; none where the active segment is empty and has this base offset.

        Notes
        -----
        Everything before it is durable then; a broker leaves that to another thread.

        Source: Kafka 3.9.0 ``LocalLog.roll``.
        """
        base_offset = max(expected_next_offset, self.log_end_offset)
        if base_offset == self._active.base_offset:
            # An index too small for an entry is full from the start (KAFKA-6388): as made anew.
            self._active.truncate_to(base_offset, now)
            return ()
        self._active.trim()
        # A crash must not take the end of a segment and leave the next: nobody would see the gap.
        self.flush()
        self._active.close_files()
        self._active = self._create_segment(base_offset, now)
        self._bases.append(base_offset)
        return (base_offset,)

    def flush(self) -> None:
        """Make everything durable, the oldest segment first."""
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
        """Drop the batches that hold an offset or a later one; the log ends there.

        Parameters
        ----------
        offset : int
            At least the first base offset, less than the log end offset.
        now : int
            The wall clock, ms since 1970.
        """
        doomed = [base for base in self._bases if base > offset]
        if doomed:
            self._active.close_files()
            # The last first: no hole in between if this is interrupted.
            self.delete_segments(doomed[::-1])
            self._active = self._open_or_create_segment(self._bases[-1], now)
        self._active.truncate_to(offset, now)
        self._unflushed.add(self._active.base_offset)
        self.log_end_offset = offset
        self.recovery_point = min(offset, self.recovery_point)

    def truncate_fully(self, offset: int, now: int) -> None:
        """Drop everything; the log begins and ends at an offset.

        Parameters
        ----------
        offset : int
            Any.
        now : int
            The wall clock, ms since 1970.
        """
        self._active.close_files()
        self.delete_segments(self._bases[::-1])
        self._active = self._create_segment(offset, now)
        self._bases = [offset]
        self.log_end_offset = offset
        self.recovery_point = min(offset, self.recovery_point)

    def delete_segments(self, base_offsets: Iterable[int]) -> None:
        """Rename the files of segments, then remove them, in the order given.

        Parameters
        ----------
        base_offsets : iterable of int
            Not the active one's, unless another is made at once.
        """
        doomed = []
        for base_offset in list(base_offsets):
            for path in self._files_of(base_offset):
                doomed.append(path.with_name(path.name + DELETED_SUFFIX))
                self._fs.rename(path, doomed[-1])
            self._bases.remove(base_offset)
            self._unflushed.discard(base_offset)
        for path in doomed:
            self._fs.unlink(path)

    def segment_facts(self) -> list[SegmentFacts]:
        """Return what retention asks of the segments.

        Returns
        -------
        list of SegmentFacts
            By base offset.
        """
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
        """Cut all files to what is used, make them durable, and close them."""
        self._active.trim()
        self.flush()
        self._active.close_files()

    def close_files(self) -> None:
        """Close the files as they are."""
        self._active.close_files()

    def _files_of(self, base_offset: int) -> list[Path]:
        """List the files of a segment that are there."""
        paths = (self.path / segment_file_name(base_offset, each) for each in SEGMENT_SUFFIXES)
        return [path for path in paths if path.exists()]

    def _limits(self) -> SegmentLimits:
        """Draw a segment's limits."""
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
        """Open a segment; that of a new log is not there yet."""
        if not (self.path / segment_file_name(base_offset, LOG_SUFFIX)).exists():
            return self._create_segment(base_offset, now)
        return SegmentWriter.open(self.path, base_offset, self._limits(), now=now, fs=self._fs)

    def _create_segment(self, base_offset: int, now: int) -> SegmentWriter:
        """Make a segment; what a crash may have left of its name goes first."""
        for path in self._files_of(base_offset):
            self._fs.unlink(path)
        self._unflushed.add(base_offset)
        return SegmentWriter.create(self.path, base_offset, self._limits(), now=now, fs=self._fs)
