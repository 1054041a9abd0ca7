"""Repair damaged logs so that every readable batch is kept.

Batches after corrupt bytes become a segment of their own, named by their first offset. Only the
corrupt bytes are lost, and readers continue after a gap of offsets.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from kafkastore.changes.plan import ByteRange, Content, Prefix
from kafkastore.checks.mending import Mending
from kafkastore.errors import KafkaStoreError, NotAFileError, SegmentGoneError
from kafkastore.formats.file_names import LOG_SUFFIX, segment_file_name
from kafkastore.log.directory_files import INDEX_SUFFIXES
from kafkastore.log.segment_split import LogPart
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.salvage import Stretch, stretches
from kafkastore.segment.zeros import is_zero_from

_LEFT_OUT = "left out; what follows is kept"


@dataclass(slots=True)
class Piece:
    """A segment as it will be: the bytes from `start` to `end` of an existing segment's log.

    `base_offset` is the new segment's; `end` is exclusive.
    """

    base_offset: int
    segment: LogSegment
    start: int
    end: int

    @property
    def name(self) -> str:
        """The name of its ``.log``."""
        return segment_file_name(self.base_offset, LOG_SUFFIX)

    @property
    def is_changed(self) -> bool:
        """Whether its log differs from that of the existing segment."""
        is_other = self.base_offset != self.segment.base_offset
        return is_other or (self.start, self.end) != (0, self.segment.size)

    def open(self) -> LogPart:
        """Open its bytes as a file."""
        return LogPart(self.segment.log_path, self.start, self.end)


def keep(mending: Mending) -> list[Piece]:
    """Keep each stretch of valid batches, the first of a segment under the old name.

    Returns the log as it will be, without segments that can't be read at all: those are left alone.
    The changes of logs are added to `mending`; their indexes are not.
    """
    pieces: list[Piece] = []
    for segment in mending.log.segments:
        try:
            pieces += _pieces(mending, segment)
        except SegmentGoneError as error:
            if not os.path.lexists(error.path):
                raise
            no_file = NotAFileError(error.path, "a link to nothing")
            mending.leave(segment.log_path.name, no_file)
        except (KafkaStoreError, OSError) as error:
            mending.leave(segment.log_path.name, error)
    changed = [piece for piece in pieces if piece.is_changed]
    # New files first: they are copied from logs that are truncated afterwards.
    for piece in sorted(changed, key=lambda piece: piece.name == piece.segment.log_path.name):
        log_path = piece.segment.log_path
        content: Content
        if piece.name == log_path.name and piece.start == 0:
            content = Prefix(piece.end)
            why = f"what lies behind byte {piece.end} can't be read, or is kept elsewhere"
        else:
            content = ByteRange(log_path.name, piece.start, piece.end)
            why = f"what can be read behind byte {piece.start} of {log_path.name}"
        mending.write(piece.name, log_path, content, why)
    for segment in {piece.segment.base_offset: piece.segment for piece in changed}.values():
        if not mending.has(segment.log_path.name):
            for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
                name = segment_file_name(segment.base_offset, suffix + segment.temporary)
                mending.remove(name, "nothing can be read at its start")
    return pieces


def _pieces(mending: Mending, segment: LogSegment) -> list[Piece]:
    """Divide a segment, and record the bytes between the pieces."""
    name = segment.log_path.name
    with segment.open_as_broker() as log:
        good = list(stretches(log, segment.base_offset, segment.next_base_offset))
        size = log.size
    # An empty segment keeps its base offset, so that no offset is assigned twice.
    good = good or [Stretch(0, 0, segment.base_offset, segment.base_offset)]
    pieces, position, next_offset = [], 0, segment.base_offset
    for each in good:
        if each.start > position:
            mending.tell(name, position, each.start, next_offset, each.first_offset, _LEFT_OUT)
        base_offset = segment.base_offset if each.start == 0 else each.first_offset
        pieces.append(Piece(base_offset, segment, each.start, each.end))
        position, next_offset = each.end, each.next_offset
    if position < size:
        is_usual = segment.is_active and not mending.log.is_clean  # else appends follow the zeros
        if is_usual and _is_preallocated(segment, position):
            pieces[-1].end = size
        else:
            end_offset = segment.next_base_offset or next_offset
            mending.tell(name, position, size, next_offset, end_offset, "cut off")
    return pieces


def _is_preallocated(segment: LogSegment, position: int) -> bool:
    try:
        return is_zero_from(segment.log_path, position)
    except OSError:
        return False  # unreadable


def whole(segment: LogSegment) -> Piece:
    """Return a segment that is not changed."""
    return Piece(segment.base_offset, segment, 0, segment.size)
