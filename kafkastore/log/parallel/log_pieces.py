"""Divide a log into pieces that threads read.

Each is from one batch's first byte to another's.

An offset index says where batches begin. Nothing here trusts it: the reader of a piece checks that
it ends where the next one begins.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from kafkastore.arguments import INT32_MAX
from kafkastore.errors import CorruptionError, KafkaStoreError
from kafkastore.formats.indexes.entries import OffsetPosition
from kafkastore.log.range_scan import ScanStart
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
        except (KafkaStoreError, OSError):
            yield LogPiece(unopened, None)
            return
        while True:
            start = unopened._replace(file=file, position=position)
            end = _next_start(start, piece_bytes(), end_offset)
            if end is None and number < len(segments) - 1:
                # The end of the file, if no bytes are corrupt.
                end = file.size
            yield LogPiece(start, end)
            if end is None or end >= file.size:
                break
            position = end


def indexed_batch(segment: LogSegment, position: int, limit: int) -> OffsetPosition | None:
    """Return a batch from a position to a limit, exclusive, if the index has one."""
    if position > INT32_MAX:
        return None
    try:
        index = segment.offset_index
        found = None if index is None else index.fetch_upper_bound(position, 0)
    except (KafkaStoreError, OSError):
        return None
    return found if found is not None and position <= found.position < limit else None


def _next_start(start: ScanStart, piece_bytes: int, end_offset: int) -> int | None:
    """Return where a batch begins, `piece_bytes` after a start or later."""
    file, position = start.file, start.position
    assert file is not None
    wanted = position + piece_bytes
    if wanted >= file.size:
        return None
    limit = min(position + _LONGEST_INTERVAL_PIECES * piece_bytes, file.size)
    found = indexed_batch(start.segment, wanted, limit)
    if found is not None:
        return found.position if found.offset < end_offset else None
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
