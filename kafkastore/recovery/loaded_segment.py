"""A segment while its log is being loaded."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kafkastore.arguments import INT64_MAX, INT64_MIN
from kafkastore.errors import CorruptionError
from kafkastore.formats.state.file_names import LOG_SUFFIX, SWAP_SUFFIX
from kafkastore.recovery.segment_split import LogPart
from kafkastore.segment.log_file import LogFile
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.recovery import batch_runs


class CutKind(StrEnum):
    """Why a broker cuts bytes off a log."""

    INCOMPLETE_BATCH = "incomplete-batch"
    """The last batch is incomplete, or zeros or bytes that no batch begins with follow it."""
    CORRUPT_BATCH = "corrupt-batch"
    OUT_OF_ORDER_OFFSETS = "out-of-order-offsets"
    """The offsets of batches go back, so that the whole segment is emptied."""


@dataclass(slots=True)
class LoadedSegment:
    """A segment while it is loaded; see `recovery.log_recovery.RecoveredSegment`.

    A part of a split segment has the path of the old log, and its `start` position there.
    """

    base_offset: int
    log_name: str
    path: Path
    size: int
    valid_bytes: int
    next_offset: int | None = None
    is_recovered: bool = False
    cut_kind: CutKind | None = None
    reason: str | None = None
    start: int | None = None

    @property
    def cut_bytes(self) -> int:
        """The number of bytes cut off the log."""
        return self.size - self.valid_bytes

    def name(self, suffix: str) -> str:
        """Return the name of another of its files, with ``.swap`` if the log has it."""
        return self.log_name.replace(LOG_SUFFIX, suffix)

    def open_log(self) -> LogFile:
        """Open what remains of the log, or of the part of a log."""
        if self.start is None and self.valid_bytes == self.size:
            return LogFile(self.path)
        start = self.start or 0
        return LogPart(self.path, start, start + self.valid_bytes)

    def end(self) -> int:
        """Return the offset after the last batch; it wraps as in Java."""
        if self.next_offset is None:
            end = self._find_end()
            self.next_offset = end if end <= INT64_MAX else INT64_MIN
        return self.next_offset

    def _find_end(self) -> int:
        """Read the last batches, from the indexed position if it is valid."""
        end = self.base_offset
        if self.log_name == self.path.name and not self.log_name.endswith(SWAP_SUFFIX):
            with LogFile(self.path) as log, suppress(CorruptionError):  # the index may be wrong
                segment = LogSegment(self.path.parent, self.base_offset)
                for run in log.runs(segment.position_before(INT64_MAX, log)):
                    end = run.next_offset
                return end
            end = self.base_offset
        with LogFile(self.path) as log, suppress(CorruptionError):
            for run in batch_runs(log, frames_negative_magic=True):
                end = run.next_offset
        return end
