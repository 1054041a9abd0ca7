"""Whether a partition is tiered, and what of it is in remote storage.

Nothing in a partition's own directory says that its topic has remote storage. The topic's
configuration does, which a caller may know; else the records about the partition in
``__remote_log_metadata``. A log start offset in the checkpoint below the first segment is a sign
only: a broker without remote storage writes none, but raises one that it finds, for example after
segments were removed by hand.

Source: Kafka 4.3.1 ``LogLoader.load``, ``UnifiedLog.isRemoteLogEnabled``,
``LogManager.checkpointLogStartOffsetsInDir``.
"""
from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from kafkastore.errors import CorruptionError
from kafkastore.formats.state.file_names import (
    CLUSTER_METADATA_TOPIC,
    REMOTE_LOG_METADATA_TOPIC,
    TopicPartition,
)
from kafkastore.log.log_dir import LogDir
from kafkastore.log.partition_files import read_topic_id
from kafkastore.log.remote_metadata import UnknownRemote, remote_metadata_of
from kafkastore.log.remote_segments import RemoteSegments

_NEVER_TIERED = frozenset({
    "__consumer_offsets",
    "__share_group_state",
    "__transaction_state",
    CLUSTER_METADATA_TOPIC,
    REMOTE_LOG_METADATA_TOPIC,
})


class RemoteStorage(StrEnum):
    """Whether a topic has remote storage.

    `COPY_DISABLED`: it has, and no more segments are copied (``remote.log.copy.disable``). A leader
    does not learn then what was copied before its start.
    """

    OFF = "off"
    ON = "on"
    COPY_DISABLED = "copy-disabled"


class RemoteSource(StrEnum):
    """Where it is known from whether a topic has remote storage.

    `NOTHING`: there is no sign of it.
    """

    CONFIGURATION = "configuration"
    REMOTE_LOG_METADATA = "remote-log-metadata"
    NOTHING = "nothing"


class RemoteLog(NamedTuple):
    """The part of a log that is in remote storage.

    Parameters
    ----------
    storage : RemoteStorage
        Whether the topic has remote storage.
    source : RemoteSource
        Where that is known from.
    segments : RemoteSegments or None
        The remote segments; None if they are unknown, or the topic has no remote storage.
    unknown : UnknownRemote or None
        Why the segments are unknown.
    error : CorruptionError or None
        The corrupt record of ``__remote_log_metadata``, if that is why.
    """

    storage: RemoteStorage
    source: RemoteSource
    segments: RemoteSegments | None = None
    unknown: UnknownRemote | None = None
    error: CorruptionError | None = None

    @property
    def is_tiered(self) -> bool:
        """Whether the topic has remote storage."""
        return self.storage is not RemoteStorage.OFF

    def check_is_known(self) -> None:
        """Raise `CorruptionError` if a corrupt record hides whether the topic is tiered."""
        if self.error is not None and not self.is_tiered:
            raise self.error.again()


def find_remote_log(
    path: Path,
    topic_partition: TopicPartition,
    log_dir: LogDir | None,
    configured: RemoteStorage | None,
    metadata_partitions: int | None = None,
) -> RemoteLog:
    """Find what of a partition is remote; the last two: what the caller knows."""
    if configured is RemoteStorage.OFF or topic_partition.topic in _NEVER_TIERED:
        return RemoteLog(RemoteStorage.OFF, RemoteSource.CONFIGURATION)
    if log_dir is None:
        if configured is None:
            return RemoteLog(RemoteStorage.OFF, RemoteSource.NOTHING)
        no_metadata = UnknownRemote.NO_METADATA
        return RemoteLog(configured, RemoteSource.CONFIGURATION, unknown=no_metadata)
    metadata = remote_metadata_of(log_dir)
    topic_id = read_topic_id(path) if metadata.paths else None
    found = metadata.content_of(topic_partition, topic_id, metadata_partitions)
    if configured is not None:
        segments = found.segments
        if found.unknown is None and segments is None:
            segments = RemoteSegments()
        source = RemoteSource.CONFIGURATION
        return RemoteLog(configured, source, segments, found.unknown, found.error)
    if found.segments is None:
        nothing = RemoteSource.NOTHING
        return RemoteLog(RemoteStorage.OFF, nothing, None, found.unknown, found.error)
    # Without a segment left, remote storage may have been turned off.
    unknown = None if found.segments.finished else UnknownRemote.NO_CONFIGURATION
    return RemoteLog(
        RemoteStorage.ON, RemoteSource.REMOTE_LOG_METADATA, found.segments, unknown
    )


def has_remote_log_metadata(log_dir: LogDir | None) -> bool:
    """Return whether a log directory has partitions of ``__remote_log_metadata``."""
    return log_dir is not None and bool(remote_metadata_of(log_dir).paths)
