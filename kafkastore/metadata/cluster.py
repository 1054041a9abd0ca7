"""The cluster that a metadata log describes, at its end or at an earlier moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import KafkaStoreError
from kafkastore.formats.state.file_names import BOOTSTRAP_CHECKPOINT
from kafkastore.formats.topics.cluster_metadata import RECORDS
from kafkastore.log.log_view import LogView
from kafkastore.log.time_text import format_time
from kafkastore.metadata.metadata_log import MetadataRecord, read_log, read_snapshot
from kafkastore.metadata.quorum import Quorum, complete_quorum, read_quorum
from kafkastore.metadata.replay_error import ReplayError
from kafkastore.metadata.snapshots import Snapshot, list_snapshots, timestamp_in
from kafkastore.metadata.state import PARTITION_CHANGE, ClusterState

_BEGIN, _END, _ABORT = _OF_TRANSACTIONS = 23, 24, 25
NO_TIMESTAMP = -1


class NoMetadataError(KafkaStoreError, LookupError):
    """No metadata log or snapshot reaches the requested moment."""


class MetadataSource(StrEnum):
    """Where the description of a cluster comes from."""

    METADATA_LOG = "metadata-log"
    LOG_DIRECTORIES = "log-directories"


class AsOf(NamedTuple):
    """A moment: before `offset`, and before the first record after `timestamp`."""

    offset: int = INT64_MAX
    timestamp: int = INT64_MAX

    def __str__(self) -> str:
        if self.timestamp != INT64_MAX:
            return format_time(self.timestamp)
        return f"offset {self.offset}"


END = AsOf()


class Cluster(ClusterState):
    """A cluster as of `end_offset` of its metadata log.

    Attributes
    ----------
    source : MetadataSource
        `LOG_DIRECTORIES` if there is no metadata log: only what the directories of partitions
        show is known, and everything else is empty or negative.
    path : Path or None
        The directory of the metadata log, or the snapshot.
    cluster_id : str or None
        From ``meta.properties``.
    end_offset : int
        The metadata log was read up to this offset, exclusive.
    epoch, timestamp : int
        The controller epoch, and the time of the append in ms since 1970, of the last record
        before `end_offset`; -1 if there is none.
    snapshot : Snapshot or None
        Where the replay began.
    open_transaction : int or None
        The offset at which a metadata transaction begins that does not end before `end_offset`:
        its records do not count.
    quorum : Quorum
        The controllers that vote, and their leader.
    brokers : dict of int to BrokerRegistration
        By broker id.
    controllers : dict of int to ControllerRegistration
        By node id; empty before ``metadata.version`` 3.7.
    topics, topics_by_id : dict of str to Topic
        By name and by id.
    configs : dict of (int, str) to dict of str to str
        Dynamic configurations, by resource (type, name) and by name.
    features : dict of str to int
        Finalized levels, such as ``metadata.version``.
    client_quotas : dict of frozenset to dict of str to float
        By entity, a set of (type, name); a name of None is the default.
    acls : dict of str to dict
        By id.
    scram_credentials : dict of (int, str) to dict
        By mechanism and user. Salt and keys are secrets.
    delegation_tokens : dict of str to dict
        By token id.
    next_producer_id : int or None
        The first producer id that no broker has got.
    unknown_records : Counter of (int, int)
        How many records of an unknown (number, version) were left out.
    """

    def __init__(self, source: MetadataSource = MetadataSource.METADATA_LOG) -> None:
        super().__init__()
        self.source = source
        self.path: Path | None = None
        self.cluster_id: str | None = None
        self.end_offset = 0
        self.epoch, self.timestamp = -1, NO_TIMESTAMP
        self.snapshot: Snapshot | None = None
        self.open_transaction: int | None = None
        self.quorum = Quorum()
        self.unknown_records: Counter[tuple[int, int]] = Counter()

    @property
    def title(self) -> str:
        """Its id, and as of which offset it is known."""
        return f"cluster {self.cluster_id or 'of unknown id'} as of offset {self.end_offset}"

    def move_to(self, offset: int, timestamp: int, epoch: int) -> None:
        """Count a record of the log as read."""
        self.end_offset, self.timestamp, self.epoch = offset + 1, timestamp, epoch

    def replay_record(self, record: MetadataRecord) -> None:
        """Change the state by a record; an unknown one is counted."""
        offset, _, _, number, version, fields = record
        if isinstance(fields, bytes):
            self.unknown_records[number, version] += 1
            return
        try:
            self.replay(number, fields)
        except ReplayError as error:
            error.offset = offset
            raise


def read_cluster(log: LogView, as_of: AsOf = END) -> Cluster:
    """Replay the newest snapshot before a moment, and the log from there to it."""
    cluster = replay_snapshot_before(log, as_of)
    for _ in replay_log(cluster, log, as_of, is_watched=False):
        pass
    is_timed = as_of.timestamp != INT64_MAX
    end = as_of.offset if is_timed else cluster.end_offset
    next_offset = read_quorum(cluster.quorum, log, end, as_of.timestamp)
    cluster.end_offset = max(cluster.end_offset, next_offset)
    complete_quorum(cluster.quorum, log, cluster.epoch)
    return cluster


def replay_snapshot_before(log: LogView, as_of: AsOf) -> Cluster:
    """Return the cluster of the newest snapshot before a moment, or an empty one."""
    cluster = Cluster()
    cluster.path = log.path
    snapshot = _newest_snapshot(log, as_of)
    start = 0 if snapshot is None else snapshot.end_offset
    if log.log_start_offset > start if log.segments else snapshot is None:
        raise NoMetadataError(
            f"{log.path}: the metadata log begins at offset {log.log_start_offset}, and no "
            f"snapshot ends between there and {as_of}"
        )
    if snapshot is not None:
        _replay_snapshot(cluster, snapshot)
    return cluster


def read_snapshot_alone(path: Path) -> Cluster:
    """Return the cluster of one snapshot file, or of ``bootstrap.checkpoint``."""
    if path.name == BOOTSTRAP_CHECKPOINT:
        snapshot = Snapshot(0, 0, path)
    else:
        named = list_snapshots(path.parent, (path.name,))
        if not named:
            raise NoMetadataError(
                f"{path} is not named like a snapshot, <end offset>-<epoch>.checkpoint"
            )
        (snapshot,) = named
    cluster = Cluster()
    cluster.path = path
    _replay_snapshot(cluster, snapshot)
    return cluster


def _newest_snapshot(log: LogView, as_of: AsOf) -> Snapshot | None:
    """Return the newest snapshot that has nothing after a moment."""
    for snapshot in reversed(list_snapshots(log.path)):
        if snapshot.end_offset <= as_of.offset and (
            as_of.timestamp == INT64_MAX or snapshot.read_timestamp() <= as_of.timestamp
        ):
            return snapshot
    return None


def _replay_snapshot(cluster: Cluster, snapshot: Snapshot) -> None:
    """Replay the records of a snapshot into an empty cluster."""
    cluster.snapshot, cluster.end_offset = snapshot, snapshot.end_offset
    cluster.epoch = snapshot.epoch
    controls = snapshot.read_controls()
    if snapshot.end_offset:  # else there was no append, and the header has 0
        cluster.timestamp = timestamp_in(controls)
    for control in controls:
        cluster.quorum.apply(control)
    for run in read_snapshot(snapshot.path):
        while (record := run.read()) is not None:
            cluster.replay_record(record)


def replay_log(
    cluster: Cluster, log: LogView, as_of: AsOf, *, is_watched: bool = True
) -> Iterator[MetadataRecord]:
    """Replay the log from the cluster's end offset to a moment.

    Yields each record before it counts; those of a transaction count at its end. Without
    `is_watched`, most changes of partitions are not yielded, which takes half the time.
    Source: Kafka 4.3.1 ``MetadataBatchLoader``.
    """
    start = cluster.end_offset
    pending: list[MetadataRecord] | None = None
    for run in read_log(log, start, as_of.offset, as_of.timestamp):
        while True:
            can_apply = pending is None and not is_watched
            if can_apply and run.apply(PARTITION_CHANGE, cluster.change_partition):
                cluster.move_to(*run.place)
            record = run.read()
            if record is None:
                break
            cluster.move_to(*run.place)
            number = record.number
            if number not in _OF_TRANSACTIONS:
                if pending is None:
                    yield record
                    cluster.replay_record(record)
                else:
                    pending.append(record)
            elif number == _BEGIN:
                if pending is not None:
                    raise _misplaced(record, "a transaction is open")
                pending, cluster.open_transaction = [], record.offset
            else:
                if pending is None:
                    raise _misplaced(record, "no transaction is open")
                if number == _END:
                    for each in pending:
                        yield each
                        cluster.replay_record(each)
                pending = cluster.open_transaction = None
    if as_of.timestamp != INT64_MAX:
        return
    if cluster.end_offset < as_of.offset and log.segments:  # control records may follow
        cluster.end_offset = min(as_of.offset, max(start, log.log_end_offset))
    if as_of.offset != INT64_MAX and cluster.end_offset < as_of.offset:
        raise NoMetadataError(
            f"{log.path}: the metadata log ends at offset {cluster.end_offset}, before {as_of}"
        )


def _misplaced(record: MetadataRecord, problem: str) -> ReplayError:
    error = ReplayError(RECORDS.name(record.number) or "", problem)
    error.offset = record.offset
    return error
