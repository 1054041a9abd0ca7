"""Check the file names in a partition directory, and the topic id.

Source: Kafka 2.4.0 ``Log.loadSegmentFiles``; 3.9.0 ``LogLoader``, ``PartitionMetadataFile``.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Generator, Iterator
from pathlib import Path

from kafkastore.changes import AREA_MARK
from kafkastore.checks.findings import Finding, FindingKind
from kafkastore.errors import CorruptCheckpointError
from kafkastore.formats.state.checkpoints import parse_partition_metadata
from kafkastore.formats.state.file_names import (
    LOG_SUFFIX,
    PARTITION_METADATA,
    SWAP_SUFFIX,
    parse_segment_file,
)
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.salvage import stretches
from kafkastore.segment.small_file import read_if_there
from kafkastore.store.partition_log import PartitionLog

#: The temporary file of a job, see `changes.undo_area.temporary_file`.
_UNFINISHED_FILE = re.compile(r"kafkastore-([0-9a-f]+)\..*\.new")
#: Leftovers by their temporary suffix, with the remedy; others are temporary files.
_LEFTOVERS = {
    "": (FindingKind.INDEX_WITHOUT_LOG, "look for the lost .log before a broker starts here"),
    SWAP_SUFFIX: (FindingKind.SWAP_FILE, "none needed; keep it: it may have the only copy"),
}
_TEMPORARY = (FindingKind.TEMPORARY_FILE, "none needed")

TOPIC_ID_REMEDY = (
    "copy the file of another partition of this topic; if none has it, write 'version: 0' and "
    "'topic_id: ID' (kafka-topics.sh --describe shows the id)"
)


def check_names(log: PartitionLog) -> Iterator[Finding]:
    """Report leftovers, indexes without a segment, and names that no broker writes."""
    for note in log.leftovers:
        file = parse_segment_file(note.path.name)
        if file is None:
            kind, remedy = FindingKind.INVALID_FILE_NAME, "rename it, or move it away"
            yield Finding(kind, note.path, None, note.what, remedy)
            continue
        kind, remedy = _LEFTOVERS.get(file.temporary, _TEMPORARY)
        what = note.what
        if kind is FindingKind.SWAP_FILE:
            what += f": {note.at_next_start}"
        yield Finding(kind, note.path, None, what, remedy)
    for name in sorted(os.listdir(log.path)):
        if match := _UNFINISHED_FILE.fullmatch(name):
            yield _unfinished_file(log.path / name, match[1])


def check_swaps(log: PartitionLog) -> Iterator[Finding]:
    """Report corrupt swap files; a broker replaces segments even by those."""
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
                FindingKind.CORRUPT_SWAP_FILE, note.path, good,
                f"the result of a compaction or split is corrupt from byte {good:,} of {size:,} on",
                "move it away before a broker starts here",
            )


def _unfinished_file(path: Path, plan_id: str) -> Finding:
    root = path.parent.parent.resolve()
    area = root.with_name(f"{root.name}{AREA_MARK}{plan_id}")
    if area.is_dir():
        remedy = f"kafkastore changes resume {shlex.quote(str(area))}"
    else:
        remedy = (
            f"look for its undo area {area.name}, for kafkastore changes resume; if it is lost, "
            "remove the file"
        )
    what = "an unfinished file of a job that was killed"
    return Finding(FindingKind.UNFINISHED_JOB_FILE, path, None, what, remedy)


def check_topic_id(log: PartitionLog) -> Generator[Finding, None, str | None]:
    """Parse ``partition.metadata``, report corruption, return the topic id.

    Returns None if the file is missing or corrupt.
    """
    path = log.path / PARTITION_METADATA
    try:
        data = read_if_there(path, CorruptCheckpointError)
        if data is not None:
            return parse_partition_metadata(data)
    except CorruptCheckpointError as error:
        kind = FindingKind.CORRUPT_PARTITION_METADATA
        yield Finding(kind, path, error.position, error.reason, TOPIC_ID_REMEDY)
    return None
