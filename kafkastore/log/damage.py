"""Corrupt bytes of a log: how a reader handles them, and which it skipped."""
from __future__ import annotations

import warnings
from collections.abc import Iterable
from copy import copy
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from kafkastore.arguments import check_choice
from kafkastore.errors import ArgumentTypeError, CorruptionError
from kafkastore.segment.log_file import LogFile
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.salvage import largest_offset, next_batch

#: ``raise``: raise an error. ``skip``: continue at the next valid batch. ``stop``: end the log
#: there.
OnCorrupt = Literal["raise", "skip", "stop"]
_CHOICES: tuple[OnCorrupt, ...] = get_args(OnCorrupt)


class SkippedBytes(NamedTuple):
    """Report corrupt bytes of a log that a reader skipped.

    Parameters
    ----------
    path : path
        The ``.log`` file.
    position, end_position : int
        Byte positions, inclusive and exclusive.
    start_offset : int
        The first offset that may have been skipped.
    end_offset : int or None
        The offset at which reading continued, exclusive; None if it did not continue (with
        ``stop``, or at the end of the log), or if the offset is unknown. Equal to `start_offset` if
        the valid batches before and after the bytes have successive offsets: then those of the
        skipped batch, which `reason` names, are out of order.
    reason : str
        What is wrong with the bytes.
    """

    path: Path
    position: int
    end_position: int
    start_offset: int
    end_offset: int | None
    reason: str

    def __str__(self) -> str:
        if self.end_offset is None:
            offsets = f"offsets from {self.start_offset} on"
        elif self.end_offset > self.start_offset:
            offsets = f"offsets {self.start_offset} to {self.end_offset - 1}"
        else:
            offsets = f"between offsets {self.start_offset - 1} and {self.end_offset}"
        return (
            f"skipped bytes {self.position} to {self.end_position - 1} of {self.path}, {offsets}: "
            f"{self.reason}"
        )


class SkippedBytesWarning(UserWarning):
    """Warn that corrupt bytes were skipped, if the caller passed no list for them.

    Parameters
    ----------
    skipped : SkippedBytes
        The skipped bytes.
    """

    def __init__(self, skipped: SkippedBytes) -> None:
        super().__init__(skipped)
        self.skipped = skipped

    def __str__(self) -> str:
        return str(self.skipped)


def check_on_corrupt(on_corrupt: str, skipped: object = None) -> OnCorrupt:
    """Return a known choice of `on_corrupt`; also refuse a `skipped` that can't grow.

    A tuple would otherwise fail at the first corrupt bytes only.
    """
    if skipped is not None and not callable(getattr(skipped, "append", None)):
        raise ArgumentTypeError("skipped", "a list", skipped)
    return check_choice("on_corrupt", on_corrupt, _CHOICES)


class CorruptionHandler:
    """Handle corrupt bytes during one read, as `on_corrupt` demands.

    Without `skipped`, a `SkippedBytesWarning` reports each skip. `has_skipped` is True after the
    first one, also of another read. `stopped_at` is a byte position in the segment.
    """

    def __init__(
        self, on_corrupt: OnCorrupt = "raise", skipped: list[SkippedBytes] | None = None
    ) -> None:
        self.on_corrupt = check_on_corrupt(on_corrupt, skipped)
        self.stopped_at: int | None = None
        self.has_skipped = False
        self._warns = skipped is None
        self._skipped = [] if skipped is None else skipped

    def of_another_read(self) -> CorruptionHandler:
        """Return a copy for another read of the log; bytes that both skip are noted once."""
        another = copy(self)
        another.stopped_at = None
        another.has_skipped = False
        return another

    @property
    def has_stopped(self) -> bool:
        """Whether reading has stopped at corrupt bytes."""
        return self.stopped_at is not None

    def skip_bytes(
        self, error: CorruptionError, segment: LogSegment, log: LogFile, next_offset: int
    ) -> int:
        """Return the position of the next valid batch after corrupt bytes; or raise.

        `next_offset` follows the last valid batch. The result is the size of the log if no valid
        batch follows, or if reading stops.
        """
        if self.on_corrupt == "raise":
            raise error if error.path else error.located(segment.log_path)
        start, end, first_offset = error.position or 0, log.size, None
        if self.on_corrupt == "skip":
            first_offset = segment.next_base_offset
            last = largest_offset(segment.base_offset, segment.next_base_offset)
            end = next_batch(log, start, next_offset, last)
            if end < log.size:
                first_offset = log.first_offset_at(end)
        self._note(SkippedBytes(log.path, start, end, next_offset, first_offset, error.reason))
        return end

    def end_of(self, segment: LogSegment) -> int:
        """Return the end of the log's last segment, checksums verified; or raise.

        With ``skip`` it is the end of the last readable batch: corrupt bytes before that batch are
        noted by who reads them.
        """
        end, error = segment.verified_end
        if error is None:
            return end
        if self.on_corrupt == "raise":
            raise error.again()
        position = end_position = error.position or 0
        if self.on_corrupt == "skip":
            end_position, end = segment.salvaged_end
        if position >= end_position:
            self._note(
                SkippedBytes(segment.log_path, position, segment.size, end, None, error.reason)
            )
        return end

    def end_segment(self, error: CorruptionError, segments: Iterable[LogSegment]) -> None:
        """Note that a broker treats the error's position as the end of its segment."""
        for segment in segments:
            if error.path == segment.log_path:
                self._note(
                    SkippedBytes(
                        segment.log_path,
                        error.position or 0,
                        segment.size,
                        segment.summary.next_offset,
                        segment.next_base_offset,
                        error.reason,
                    )
                )

    def skip_batch(self, error: CorruptionError, segment: LogSegment, header: Any) -> None:
        """Skip a batch with a valid checksum but unreadable records; or raise."""
        if self.on_corrupt == "raise":
            raise error if error.path else error.located(segment.log_path)
        position, last_offset = int(header["position"]), int(header["last_offset"])
        first_offset = int(header["base_offset"])
        self._note(
            SkippedBytes(
                segment.log_path,
                position,
                position + int(header["size"]),
                last_offset if first_offset < 0 else first_offset,
                None if self.on_corrupt == "stop" else last_offset + 1,
                error.reason,
            )
        )

    def _note(self, skipped: SkippedBytes) -> None:
        self.has_skipped = True
        if self.on_corrupt == "stop":
            self.stopped_at = skipped.position
        bytes_of = itemgetter(slice(3))  # the offsets depend on where a read began
        if bytes_of(skipped) in map(bytes_of, self._skipped):  # noted by another read
            return
        self._skipped.append(skipped)
        if self._warns:
            warnings.warn(SkippedBytesWarning(skipped), stacklevel=2)
