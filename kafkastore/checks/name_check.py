"""Check the file names in a partition directory, and the topic id.

Source: Kafka 2.4.0 ``Log.loadSegmentFiles``; 3.9.0 ``LogLoader``, ``PartitionMetadataFile``.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Generator, Iterator
from pathlib import Path

from kafkastore.changes.undo_area import AREA_MARK
from kafkastore.checks.findings import Finding, Severity
from kafkastore.errors import CorruptCheckpointError
from kafkastore.formats.checkpoints import parse_partition_metadata
from kafkastore.formats.file_names import (
    LOG_SUFFIX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    parse_segment_file,
)
from kafkastore.log.partition_files import INDEX_SUFFIXES
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.salvage import stretches
from kafkastore.segment.small_file import read_if_there
from kafkastore.store.partition_log import PartitionLog

_LOADED = (LOG_SUFFIX, *INDEX_SUFFIXES, PRODUCER_SNAPSHOT_SUFFIX)
#: The temporary file of a job, see `changes.undo_area.temporary_beside`.
_HALF_MADE = re.compile(r"kafkastore-([0-9a-f]+)\..*\.new")

TOPIC_ID_REMEDY = (
    "copy the file of another partition of this topic; where there is none, write 'version: 0' and "
    "'topic_id: ID' (kafka-topics.sh --describe shows the id)"
)


def check_names(log: PartitionLog) -> Iterator[Finding]:
    """Report leftovers, indexes without a segment, and names that no broker writes."""
    for note in log.leftovers:
        yield Finding(
            Severity.STYLE,
            note.path,
            None,
            note.what,
            f"at a broker's next start: {note.at_next_start}",
            "leave it, or move it away; of an index, look for the lost .log first",
        )
    for name in sorted(os.listdir(log.path)):
        if match := _HALF_MADE.fullmatch(name):
            yield _half_made(log.path / name, match[1])
        elif name.endswith(_LOADED) and parse_segment_file(name) is None:
            yield Finding(
                Severity.WRONG_ANSWERS,
                log.path / name,
                None,
                "its name is not 20 digits and a suffix",
                "a broker does not start, or takes it for a segment of another name; its records "
                "are not seen here",
                "give it its right name, or move it away",
            )


def check_swaps(log: PartitionLog) -> Iterator[Finding]:
    """Report corrupt swap files: a broker puts even those in place of the original segments."""
    for note in log.leftovers:
        file = parse_segment_file(note.path.name)
        if file is None or (file.type_suffix, file.temporary) != (LOG_SUFFIX, SWAP_SUFFIX):
            continue
        if file.base_offset in log.files.swapped_offsets:
            continue  # checked as a segment
        with LogSegment(log.path, file.base_offset, None, SWAP_SUFFIX).open_as_broker() as swap:
            first = next(stretches(swap, file.base_offset, None), None)
            good = 0 if first is None or first.start else first.end
            size = swap.size
        if good < size:
            yield Finding(
                Severity.DATA_LOSS_RISK,
                note.path,
                good,
                f"the outcome of compaction or of a split is damaged behind its first {good:,} of "
                f"{size:,} bytes",
                "a broker cuts it there, and puts it in the place of the segments that it was made "
                "of",
                "move it away before a broker starts here",
            )


def _half_made(path: Path, plan_id: str) -> Finding:
    root = path.parent.parent.resolve()
    area = root.with_name(f"{root.name}{AREA_MARK}{plan_id}")
    if area.is_dir():
        remedy = f"kafkastore changes resume {shlex.quote(str(area))}"
    else:
        remedy = (
            f"find its undo area, {area.name}, for kafkastore changes resume; without one, remove "
            "the file"
        )
    return Finding(
        Severity.STYLE,
        path,
        None,
        "the unfinished file of a job that was killed",
        "nothing reads it; the job may have changed other files already",
        remedy,
    )


def check_topic_id(log: PartitionLog) -> Generator[Finding, None, str | None]:
    """Parse ``partition.metadata``, yield a finding if it is corrupt, and return the topic id.

    Returns None if the file is missing or corrupt.
    """
    path = log.path / PARTITION_METADATA
    try:
        data = read_if_there(path, CorruptCheckpointError)
        if data is not None:
            return parse_partition_metadata(data)
    except CorruptCheckpointError as error:
        yield Finding(
            Severity.WRONG_ANSWERS,
            path,
            error.position,
            error.reason,
            "a broker from 2.8 on gives up the log directory",
            TOPIC_ID_REMEDY,
        )
    return None
