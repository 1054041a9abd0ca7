"""The snapshots of a metadata log, ``<end offset>-<epoch>.checkpoint`` (KIP-630)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kafkastore.errors import CorruptBatchError
from kafkastore.formats.records.control_records import ControlRecordType
from kafkastore.formats.state.file_names import KRAFT_SNAPSHOT_SUFFIX, parse_segment_file
from kafkastore.metadata.metadata_log import ControlValue, read_controls
from kafkastore.segment.log_file import LogFile


class Snapshot(NamedTuple):
    """A snapshot: the state before `end_offset`; the last record had `epoch`."""

    end_offset: int
    epoch: int
    path: Path

    def read_controls(self) -> list[ControlValue]:
        """Read the control records, from the header to the footer.

        Raises `CorruptBatchError` if the snapshot does not begin with its header, or does not end
        with its footer, which brokers do not notice.
        """
        with LogFile(self.path) as file:
            controls = list(read_controls(file))
            size = file.size
        if not controls or controls[0].type != ControlRecordType.SNAPSHOT_HEADER:
            reason, position = "a snapshot must begin with its header", 0
        elif controls[-1].type != ControlRecordType.SNAPSHOT_FOOTER:
            reason, position = "the snapshot is cut off: it has no footer", size
        else:
            return controls
        raise CorruptBatchError(reason, path=self.path, position=position)

    def read_timestamp(self) -> int:
        """Return the time of the last append before the end offset, in ms since 1970."""
        return timestamp_in(self.read_controls())


def timestamp_in(controls: list[ControlValue]) -> int:
    """Return the time of the last append before a snapshot, which its header tells."""
    timestamp: int = controls[0].value["last_contained_log_timestamp"]
    return timestamp


def snapshot_name(end_offset: int, epoch: int) -> str:
    """Return the name of a snapshot before an offset, whose last record had an epoch."""
    return f"{end_offset:020d}-{epoch:010d}{KRAFT_SNAPSHOT_SUFFIX}"


def list_snapshots(directory: Path, names: Iterable[str] | None = None) -> list[Snapshot]:
    """List the complete snapshots in a directory, oldest first."""
    found = []
    for text in os.listdir(directory) if names is None else names:
        name = parse_segment_file(text)
        if name is not None and name.type_suffix == KRAFT_SNAPSHOT_SUFFIX and not name.temporary:
            found.append(Snapshot(name.base_offset, name.leader_epoch or 0, directory / text))
    return sorted(found)
