"""The cluster that a metadata log describes, at its end or at an earlier moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import KafkaStoreError
from kafkastore.formats.state.file_names import KRAFT_SNAPSHOT_SUFFIX, parse_segment_file
from kafkastore.log.log_view import LogView
from kafkastore.metadata.metadata_log import MetadataRecord, read_log, read_snapshot
from kafkastore.metadata.state import ClusterState

_BEGIN, _END, _ABORT = 23, 24, 25


class NoMetadataError(KafkaStoreError, LookupError):
    """No metadata log or snapshot reaches the requested moment."""


class Snapshot(NamedTuple):
    """A snapshot file: the state before `end_offset`."""

    end_offset: int
    epoch: int
    path: Path


class Cluster(ClusterState):
    """A cluster as of `end_offset` (exclusive) of its metadata log.

    `epoch` and `timestamp` are those of the last record counted. `open_transaction` is the offset
    of a metadata transaction that had not ended: its records do not count.
    """

    def __init__(self) -> None:
        super().__init__()
        self.end_offset = 0
        self.epoch = -1
        self.timestamp = -1
        self.snapshot: Snapshot | None = None
        self.open_transaction: int | None = None


def snapshots(directory: Path) -> list[Snapshot]:
    """List the complete snapshots of a metadata partition, oldest first."""
    found = []
    for path in directory.iterdir():
        name = parse_segment_file(path.name)
        if name is not None and name.type_suffix == KRAFT_SNAPSHOT_SUFFIX and not name.temporary:
            found.append(Snapshot(name.base_offset, name.leader_epoch or 0, path))
    return sorted(found)


def read_cluster(log: LogView, *, as_of_offset: int = INT64_MAX) -> Cluster:
    """Replay the newest snapshot before an offset, and the log from there to it."""
    cluster = Cluster()
    chosen = [each for each in snapshots(log.path) if each.end_offset <= as_of_offset]
    start, end = 0, min(as_of_offset, log.log_end_offset)
    if chosen:
        cluster.snapshot = chosen[-1]
        start = cluster.end_offset = cluster.snapshot.end_offset
        for record in read_snapshot(cluster.snapshot.path):
            cluster.replay(record.number, record.fields)
    if log.log_start_offset > start:
        raise NoMetadataError(
            f"{log.path}: the metadata log begins at offset {log.log_start_offset}, and no "
            f"snapshot ends between it and offset {as_of_offset}"
        )
    _replay_log(cluster, read_log(log, start, end))
    cluster.end_offset = max(end, start)
    return cluster


def _replay_log(cluster: Cluster, records: Iterator[MetadataRecord]) -> None:
    """Replay the records of a log; those of a transaction at its end."""
    pending: list[MetadataRecord] | None = None
    for record in records:
        cluster.epoch, cluster.timestamp = record.epoch, record.timestamp
        if record.number == _BEGIN:
            pending, cluster.open_transaction = [], record.offset
        elif record.number in (_END, _ABORT):
            if record.number == _END:
                for each in pending or ():
                    cluster.replay(each.number, each.fields)
            pending = cluster.open_transaction = None
        elif pending is not None:
            pending.append(record)
        else:
            cluster.replay(record.number, record.fields)
