"""Divide a log into pieces that threads read.

Each is from one batch's first byte to another's.

An offset index says where batches begin. Nothing here trusts it: the reader of a piece checks that
it ends where the next one begins.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.errors import CorruptIndexError, CorruptionError, KafkaStoreError
from kafkastore.log.range_scan import ScanStart
from kafkastore.segment.log_file import LogFile
from kafkastore.segment.log_segment import LogSegment

#: An interval of an index without entries is scanned for batches if it is this many pieces long.
_LONGEST_INTERVAL_PIECES = 2


class LogPiece(NamedTuple):
    """Successive batches of a segment from `start` on.

    They end before the byte `end_position`; None: at the end of the requested range or of the log.
    """

    start: ScanStart
    end_position: int | None

    @property
    def segment(self) -> LogSegment:
        """The segment that the piece is of."""
        return self.start.segment


def cut_log(
    segments: tuple[LogSegment, ...],
    start_offset: int,
    end_offset: int,
    piece_bytes: Callable[[], int],
    is_wanted: Callable[[LogSegment], bool] | None = None,
) -> Iterator[LogPiece]:
    """Divide segments into pieces of about `piece_bytes()` bytes, in order.

    `start_offset` is inclusive, `end_offset` exclusive. Of a segment that can't be opened the piece
    has no file, and is the last one.
    """
    for number, segment in enumerate(segments):
        unopened = ScanStart(segments[number:])
        try:
            file = segment.open_log()
            if is_wanted is not None and not is_wanted(segment):
                continue
            position = segment.position_before(start_offset, file)
            starts = batch_positions(segment, end_offset)
        except (KafkaStoreError, OSError):
            yield LogPiece(unopened, None)
            return
        while True:
            start = unopened._replace(file=file, position=position)
            end = _next_start(file, starts, position, piece_bytes(), end_offset)
            if end is None and number < len(segments) - 1:
                # The end of the file, if no bytes are corrupt.
                end = file.size
            yield LogPiece(start, end)
            if end is None or end >= file.size:
                break
            position = end


def batch_positions(segment: LogSegment, end_offset: int) -> NDArray[np.int64]:
    """Return where batches before an offset begin, ascending, if the index is right."""
    try:
        index = segment.offset_index
        if index is None:
            return np.empty(0, np.int64)
        entries = index.entries()
    except CorruptIndexError:
        return np.empty(0, np.int64)
    positions = entries["position"][entries["offset"] < end_offset].astype(np.int64)
    return positions if bool((np.diff(positions) > 0).all()) else np.empty(0, np.int64)


def _next_start(
    file: LogFile, starts: NDArray[np.int64], position: int, piece_bytes: int, end_offset: int
) -> int | None:
    """Return where a batch begins, `piece_bytes` after a position or later."""
    wanted = position + piece_bytes
    if wanted >= file.size:
        return None
    slot = int(np.searchsorted(starts, wanted))
    if slot < len(starts) and starts[slot] < min(
        position + _LONGEST_INTERVAL_PIECES * piece_bytes, file.size
    ):
        return int(starts[slot])
    try:
        for run in file.runs(position):
            slot = int(np.searchsorted(run.headers["position"], wanted))
            if slot < len(run.headers):
                return int(run.headers["position"][slot])
            if run.next_offset >= end_offset:
                return None
    except (CorruptionError, OSError):
        pass
    return None
