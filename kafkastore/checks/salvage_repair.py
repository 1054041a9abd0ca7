"""Repair corrupt logs so that every readable batch is kept.

Batches after corrupt bytes become a new segment, named by their first offset. Only the
corrupt bytes are lost, and readers continue after a gap of offsets.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafkastore.changes.plan import ByteRange, Content, Prefix
from kafkastore.checks.partition_repair import PartitionRepair
from kafkastore.errors import KafkaStoreError, SegmentGoneError
from kafkastore.formats.state.file_names import INDEX_SUFFIXES, LOG_SUFFIX, segment_file_name
from kafkastore.recovery.segment_split import LogPart
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.salvage import Stretch, stretches
from kafkastore.segment.zero_tail import is_zero_from

_SKIPPED = "skipped; later batches are kept"


@dataclass(slots=True)
class RepairedSegment:
    """A segment after the repair: a range of bytes of an existing log.

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


def plan_salvage(repair: PartitionRepair) -> list[RepairedSegment]:
    """Plan to keep all valid batches; the first keep their segment's name.

    Returns the repaired log, without segments that can't be read at all, which are not changed. The
    changes of logs are added to `repair`; those of their indexes are not.
    """
    parts: list[RepairedSegment] = []
    for segment in repair.log.segments:
        try:
            parts += _split_segment(repair, segment)
        except SegmentGoneError:
            raise
        except (KafkaStoreError, OSError) as error:
            repair.record_failure(segment.log_path.name, error)
    changed = [part for part in parts if part.is_changed]
    # New files first: they are copied from logs that are truncated afterwards.
    for part in sorted(changed, key=lambda part: part.name == part.segment.log_path.name):
        log_path = part.segment.log_path
        content: Content
        if part.name == log_path.name and part.start == 0:
            content = Prefix(part.end)
            why = f"bytes after {part.end} are unreadable, or kept in another segment"
        else:
            content = ByteRange(log_path.name, part.start, part.end)
            why = f"readable batches from byte {part.start} of {log_path.name} on"
        repair.plan_log(part.name, log_path, content, why)
    for segment in {part.segment.base_offset: part.segment for part in changed}.values():
        if not repair.has_change(segment.log_path.name):
            for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
                name = segment_file_name(segment.base_offset, suffix + segment.temporary)
                repair.plan_removal(name, "its start is unreadable")
    return parts


def _split_segment(repair: PartitionRepair, segment: LogSegment) -> list[RepairedSegment]:
    """Divide a segment, and record the bytes between the new segments."""
    name = segment.log_path.name
    with segment.open_as_broker() as log:
        good = list(stretches(log, segment.base_offset, segment.next_base_offset))
        size = log.size
    # An empty segment keeps its base offset, so that no offset is assigned twice.
    good = good or [Stretch(0, 0, segment.base_offset, segment.base_offset)]
    parts, position, next_offset = [], 0, segment.base_offset
    for each in good:
        if each.start > position:
            repair.record_removed(
                name, position, each.start, next_offset, each.first_offset, _SKIPPED
            )
        base_offset = segment.base_offset if each.start == 0 else each.first_offset
        parts.append(RepairedSegment(base_offset, segment, each.start, each.end))
        position, next_offset = each.end, each.next_offset
    if position < size:
        is_usual = segment.is_active and not repair.log.is_clean  # else appends follow the zeros
        if is_usual and _is_preallocated(segment, position):
            parts[-1].end = size
        else:
            repair.record_removed(
                name, position, size, next_offset, segment.next_base_offset, "truncated"
            )
    return parts


def _is_preallocated(segment: LogSegment, position: int) -> bool:
    try:
        return is_zero_from(segment.log_path, position)
    except OSError:
        return False  # unreadable


def unchanged_segment(segment: LogSegment) -> RepairedSegment:
    """Return a segment that is not changed."""
    return RepairedSegment(segment.base_offset, segment, 0, segment.size)
