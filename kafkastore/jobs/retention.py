"""The segments that a broker would delete, and why it keeps the others."""
from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kafkastore.arguments import timestamp_ms
from kafkastore.clock import clock
from kafkastore.jobs.job import JobResults, PartitionJob, Row
from kafkastore.log.remote_log import RemoteStorage
from kafkastore.metadata.topic_configs import ConfigSource
from kafkastore.store.cluster_metadata import Metadata, find_cluster_or_warn
from kafkastore.store.log_store import AnyPartition, Paths, open_paths
from kafkastore.store.partition_path import Copies, open_copies
from kafkastore.use_cases.retention import PartitionRetention, SegmentRetention, retention_of
from kafkastore.versions import NEWEST_VERSION
from kafkastore.writing.log_config import LogConfig
from kafkastore.writing.topic_settings import TopicSettings, settings_of

if TYPE_CHECKING:
    import pyarrow as pa


_CONFIGS = ("cleanup.policy", "retention.ms", "retention.bytes", "segment.ms")
#: Those that matter with remote storage only.
_LOCAL_CONFIGS = ("remote.storage.enable", "local.retention.ms", "local.retention.bytes")


@dataclass(frozen=True)
class RetentionJob(PartitionJob[PartitionRetention]):
    """Check the segments of each partition; options as for `retention`."""

    settings: TopicSettings = field(default_factory=TopicSettings)
    now: int | None = None
    version: str = NEWEST_VERSION

    @staticmethod
    def columns() -> list[tuple[str, pa.DataType]]:
        """Return the columns of a segment."""
        import pyarrow as pa

        number, text = pa.int64(), pa.string()
        return [
            ("base_offset", number),
            ("end_offset", number),
            ("size", number),
            ("largest_timestamp", number),
            ("dated_by", text),
            ("record_timestamp", number),
            ("deleted_by", text),
            ("expires_at", number),
            ("blocked_by", number),
            ("doubt", text),
            ("meant_timestamp", number),
        ]

    def run(self, item: Copies) -> PartitionRetention:
        """Check one partition."""
        log = open_copies(item)
        setting = self.settings.of(log.topic)
        self.settings.apply_to(log)
        return retention_of(
            log,
            config=setting.options,
            sources=setting.sources,
            now=self.now,
            version=self.version,
        )

    def rows(self, result: PartitionRetention) -> Iterator[Row]:
        """Yield a row for each segment."""
        return map(segment_row, result.segments)


def place_row(found: PartitionRetention, path: Path) -> Row:
    """Return the columns that name a partition, and a path of it."""
    return {**found.topic_partition._asdict(), "path": str(path)}


def partition_row(found: PartitionRetention) -> Row:
    """Return the row of a partition: its configuration, and sums over its segments."""
    blocker, is_tiered = found.blocker, found.remote_storage is not RemoteStorage.OFF
    return {
        **place_row(found, found.path),
        "now": found.now,
        "cleanup_policy": sorted(found.config.cleanup_policy),
        "retention_ms": found.config.retention_ms,
        "retention_bytes": found.config.retention_bytes,
        "local_retention_ms": found.limits[0],
        "local_retention_bytes": found.limits[1],
        "remote_storage": found.remote_storage.value,
        "config_sources": {
            name: found.config_sources.get(name, ConfigSource.DEFAULT).value
            for name in (*_CONFIGS, *_LOCAL_CONFIGS * is_tiered)
        },
        "segments": len(found.segments),
        "size": sum(each.size for each in found.segments),
        "deleted_segments": len(found.going),
        "deleted_size": sum(each.size for each in found.going),
        "blocked_segments": len(found.blocked),
        "blocker": None if blocker is None else blocker.base_offset,
        "rolls": found.outcome.rolls,
        "rolls_after": found.rolls_after,
        "log_start_offset": found.log_start_offset,
        "new_log_start_offset": found.outcome.log_start_offset,
        "new_local_log_start_offset": found.outcome.local_log_start_offset,
    }


def segment_row(segment: SegmentRetention) -> dict[str, int | str | None]:
    """Return the columns of a segment."""
    return {
        "base_offset": segment.base_offset,
        "end_offset": segment.end_offset,
        "size": segment.size,
        "largest_timestamp": segment.largest_timestamp,
        "dated_by": segment.dated_by.value,
        "record_timestamp": segment.record_timestamp,
        "deleted_by": None if segment.deleted_by is None else segment.deleted_by.value,
        "expires_at": segment.expires_at,
        "blocked_by": segment.blocked_by,
        "doubt": None if segment.doubt is None else segment.doubt.value,
        "meant_timestamp": segment.meant_timestamp,
    }


def retention(
    path: Paths,
    *,
    partitions: Collection[AnyPartition] | None = None,
    config: Mapping[str, object] | LogConfig | None = None,
    now: int | datetime | None = None,
    version: str = NEWEST_VERSION,
    metadata: Metadata = None,
) -> JobResults[Copies, PartitionRetention]:
    """Find the segments that a broker's next retention check deletes.

    Parameters
    ----------
    path : path-like, LogStore or list of these
        Log directories or partition directories of one broker; they are not changed.
    partitions : collection, optional
        Check only these partitions, each as ``("orders", 3)`` or ``"orders-3"``.
    config : mapping, LogConfig or None
        The topics' configuration by Kafka's names, such as ``{"retention.ms": 3600000}``. Missing
        options are those of `metadata`, or Kafka's defaults: ``retention.ms`` is 7 days. With a
        mapping without ``cleanup.policy``, Kafka's own topics are still compacted.
    now : int or datetime, optional
        ms since 1970. Default: the clock.
    version : str
        The broker's version.
    metadata : Cluster, path-like, LogStore or list of these, optional
        The cluster, or where its metadata is. Default: the metadata log in `path`, if it has one;
        if that can't be read, an `UnreadMetadataWarning` says why.

    Returns
    -------
    iterator of PartitionRetention
        In the order of topic and partition.

    Raises
    ------
    InvalidConfigError
        If an option is not a topic configuration, or has a value that Kafka rejects.
    UnknownVersionError
        If `version` is not a known version.
    UnknownRemoteSegmentsError
        If a tiered partition's ``__remote_log_metadata`` is not here, and it decides.
    KafkaStoreError
        If a partition cannot be read.
    """
    store = open_paths(path)
    settings = settings_of(find_cluster_or_warn(store, metadata), store, config)
    job = RetentionJob(settings, clock() if now is None else timestamp_ms("now", now), version)
    return JobResults(job, partial(job.items, store, partitions))
