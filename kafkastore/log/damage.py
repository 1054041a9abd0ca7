"""What a reader does at corrupt bytes of a log, and what it skipped."""
from __future__ import annotations

import warnings
from collections.abc import Iterable
from copy import copy
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

from kafkastore.arguments import INT32_MAX
from kafkastore.errors import CorruptionError
from kafkastore.segment.log_file import LogFile
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.salvage import next_batch

#: ``raise``: an error. ``skip``: go on at the next whole batch. ``stop``: the log ends there.
OnCorrupt = Literal["raise", "skip", "stop"]


class SkippedBytes(NamedTuple):
    """Corrupt bytes of a log that a reader skipped.

    Parameters
    ----------
    path : path
        The ``.log`` file.
    position, end_position : int
        Byte positions, inclusive and exclusive.
    start_offset : int
        The first offset that may have been skipped.
    end_offset : int or None
        The offset at which reading went on, exclusive; None where it did not go on in this segment,
        or nothing tells.
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
        offsets = f"offsets from {self.start_offset} on"
        if self.end_offset is not None:
            offsets = f"offsets {self.start_offset} to {self.end_offset - 1}"
        return (
            f"skipped bytes {self.position} to {self.end_position - 1} of {self.path}, {offsets}: "
            f"{self.reason}"
        )


class SkippedBytesWarning(UserWarning):
    """Corrupt bytes were skipped, and the caller gave no list for them.

    Parameters
    ----------
    skipped : SkippedBytes
        Which.
    """

    def __init__(self, skipped: SkippedBytes) -> None:
        super().__init__(skipped)
        self.skipped = skipped

    def __str__(self) -> str:
        return str(self.skipped)


def known_on_corrupt(on_corrupt: str) -> OnCorrupt:
    """Return what to do at corrupt bytes, if there is such a choice.

    Raises
    ------
    ValueError
        If there is none.
    """
    if on_corrupt not in get_args(OnCorrupt):
        raise ValueError(f"on_corrupt must be 'raise', 'skip' or 'stop', got {on_corrupt!r}")
    return cast(OnCorrupt, on_corrupt)


class Damage:
    """What one read does at corrupt bytes.

    Parameters
    ----------
    on_corrupt : str
        See `OnCorrupt`.
    skipped : list of SkippedBytes, optional
        Gets what is skipped. Default: a `SkippedBytesWarning` each.

    Attributes
    ----------
    stopped_at : int or None
        Byte position in the segment at which the log ends for this read; None: not yet.

    Raises
    ------
    ValueError
        If there is no such choice.
    """

    def __init__(
        self, on_corrupt: OnCorrupt = "raise", skipped: list[SkippedBytes] | None = None
    ) -> None:
        self.on_corrupt = known_on_corrupt(on_corrupt)
        self.stopped_at: int | None = None
        self._warns = skipped is None
        self._skipped = [] if skipped is None else skipped

    def of_another_read(self) -> Damage:
        """Return the same for one more read of the log; bytes that both skip are noted once."""
        another = copy(self)
        another.stopped_at = None
        return another

    @property
    def has_stopped(self) -> bool:
        """Whether the log ends here for this read."""
        return self.stopped_at is not None

    def skip_bytes(
        self, error: CorruptionError, segment: LogSegment, log: LogFile, next_offset: int
    ) -> int:
        """Return where reading goes on after bytes that are no whole, right batch; or raise.

        Parameters
        ----------
        error : CorruptionError
            Which has the position.
        segment : LogSegment
            Which.
        log : LogFile
            Its log.
        next_offset : int
            After the batches before.

        Returns
        -------
        int
            Byte position of a whole batch with a right checksum; the size of the log if none
            follows, or reading stops.
        """
        if self.on_corrupt == "raise":
            raise error if error.path else error.located(segment.log_path)
        start, end, first_offset = error.position or 0, log.size, segment.next_base_offset
        if self.on_corrupt == "skip":
            following = segment.next_base_offset
            last = segment.base_offset + INT32_MAX if following is None else following - 1
            end = next_batch(log, start, next_offset, last)
            if end < log.size:
                first_offset = log.first_offset_at(end)
        self._note(SkippedBytes(log.path, start, end, next_offset, first_offset, error.reason))
        return end

    def end_segment(self, error: CorruptionError, segments: Iterable[LogSegment]) -> None:
        """Note that a broker takes the segment of an error for ending there."""
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
        """Skip a batch whose checksum is right but whose records cannot be read; or raise.

        Parameters
        ----------
        error : CorruptionError
            Why not.
        segment : LogSegment
            Which.
        header : numpy.void of BATCH_HEADER
            Of the batch.
        """
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
                last_offset + 1,
                error.reason,
            )
        )

    def _note(self, skipped: SkippedBytes) -> None:
        if self.on_corrupt == "stop":
            self.stopped_at = skipped.position
        bytes_of = itemgetter(slice(3))  # the offsets depend on where a read began
        if bytes_of(skipped) in map(bytes_of, self._skipped):  # by another read
            return
        self._skipped.append(skipped)
        if self._warns:
            warnings.warn(SkippedBytesWarning(skipped), stacklevel=2)
