"""Prediction of what a broker's next start does to log directories, by partition."""
from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkastore.checks.predict import (
    Outcome,
    Prediction,
    logs_to_predict,
    predict_log,
    predict_obstacles,
)
from kafkastore.jobs.job import Job, JobResults, Row, columns_of
from kafkastore.metadata.cluster import Cluster
from kafkastore.metadata.strays import Assignments
from kafkastore.recovery.log_recovery import RecoveredSegment
from kafkastore.store.cluster_metadata import Metadata, find_cluster_or_warn
from kafkastore.store.log_store import AnyPartition, LogStore, Paths, open_paths
from kafkastore.store.partition_path import (
    PartitionPath,
    open_partition,
    store_around,
    to_partition_path,
    weight,
)
from kafkastore.versions import NEWEST_VERSION, rules_of
from kafkastore.writing.topic_settings import TopicSettings, settings_of

if TYPE_CHECKING:
    import pyarrow as pa


class KnownPrediction(NamedTuple):
    """The prediction for a directory entry that is not a partition."""

    store: str | None
    prediction: Prediction


@dataclass(frozen=True)
class PredictJob(Job[PartitionPath | KnownPrediction, Prediction]):
    """Predict what a start does to each directory; see `predict_start`.

    The result only has the bytes that files would get if `with_content`.
    """

    version: str = NEWEST_VERSION
    settings: TopicSettings = field(default_factory=TopicSettings)
    assignments: Assignments | None = None
    with_content: bool = False

    def __post_init__(self) -> None:
        rules_of(self.version)

    def items(
        self,
        store: LogStore,
        partitions: Collection[AnyPartition] | None = None,
        *,
        is_weighed: bool = True,
    ) -> list[PartitionPath | KnownPrediction]:
        """Return all entries that are not partitions, then the chosen partitions."""
        logs = logs_to_predict(store, partitions)
        known = [
            KnownPrediction(store_around(each.path, store), each)
            for each in predict_obstacles(store, self.version)
        ]
        paths = (to_partition_path(each, store, is_weighed=is_weighed) for each in logs)
        return [*known, *paths]

    @staticmethod
    def columns() -> list[tuple[str, pa.DataType]]:
        """Return the columns of a directory's prediction."""
        import pyarrow as pa

        text = pa.string()
        cut = pa.struct([("valid_bytes", pa.int64()), ("kind", text), ("reason", text)])
        return [
            ("outcome", pa.string()),
            ("why", pa.string()),
            ("stray", pa.string()),
            ("lost_bytes", pa.int64()),
            ("lost_offsets", pa.int64()),
            ("recovered_from", pa.int64()),
            ("log_start_offset", pa.int64()),
            ("log_end_offset", pa.int64()),
            ("recovered_segments", pa.list_(pa.int64())),
            ("cut", pa.map_(pa.string(), cut)),
            ("deleted", pa.map_(pa.string(), pa.string())),
            ("renamed", pa.map_(pa.string(), pa.string())),
            ("written", pa.map_(pa.string(), pa.int64())),
        ]

    def run(self, item: PartitionPath | KnownPrediction) -> Prediction:
        """Predict for one directory."""
        if isinstance(item, KnownPrediction):
            return item.prediction
        log = open_partition(item)
        config = self.settings.config(log.topic)
        self.settings.apply_to(log)
        found = predict_log(log, self.version, config.index_interval_bytes, self.assignments)
        if found.recovered is None or self.with_content:
            return found
        return replace(found, recovered=replace(found.recovered, written={}))

    def rows(self, result: Prediction) -> Iterator[Row]:
        """Yield the row of a directory."""
        row: dict[str, Any] = {
            "outcome": result.outcome.value,
            "why": result.why,
            "stray": None if result.stray is None else result.stray.value,
            "lost_bytes": result.lost_bytes,
            "lost_offsets": result.lost_offsets,
            "recovered_from": result.recovered_from,
        }
        if (recovered := result.recovered) is not None:
            segments = {f"{each.base_offset:020}.log": each for each in recovered.segments}
            row |= {
                "log_start_offset": recovered.log_start_offset,
                "log_end_offset": recovered.log_end_offset,
                "recovered_segments": [
                    each.base_offset for each in recovered.segments if each.is_recovered
                ],
                "cut": {
                    name: _cut(size, segments.get(name)) for name, size in recovered.cut.items()
                },
                "deleted": {name: each.reason for name, each in recovered.deleted.items()},
                "renamed": dict(recovered.renamed),
                "written": dict(result.made_bytes),
            }
        yield row

    def place(self, item: PartitionPath | KnownPrediction) -> Row:
        """Return the directory's columns; topic and partition if it is a partition."""
        if isinstance(item, PartitionPath):
            return columns_of([item])
        named = item.prediction.topic_partition
        return {
            "store": item.store,
            "topic": None if named is None else named.topic,
            "partition": None if named is None else named.partition,
            "path": str(item.prediction.path),
        }

    def weigh(self, item: PartitionPath | KnownPrediction) -> int:
        """Return the size of a partition's logs."""
        return weight([item]) if isinstance(item, PartitionPath) else 0


def _cut(valid_bytes: int, segment: RecoveredSegment | None) -> Row:
    """Describe a log that is cut, by its segment; a log with another name has none."""
    kind = None if segment is None or segment.cut_kind is None else segment.cut_kind.value
    reason = None if segment is None else segment.reason
    return {"valid_bytes": valid_bytes, "kind": kind, "reason": reason}


@dataclass
class PredictionSummary:
    """The predictions for all directories together."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    lost_bytes: int = 0

    def add(self, found: Prediction) -> None:
        """Count one directory."""
        self.outcomes[found.outcome] += 1
        self.lost_bytes += found.lost_bytes


def predict_start(
    path: Paths,
    version: str = NEWEST_VERSION,
    *,
    index_interval_bytes: int | None = None,
    partitions: Collection[AnyPartition] | None = None,
    metadata: Metadata = None,
) -> JobResults[PartitionPath | KnownPrediction, Prediction]:
    """Predict what a broker's next start does to log directories; change nothing.

    Parameters
    ----------
    path : path-like, LogStore or list of these
        Log directories or partition directories. A partition directory outside a log directory has
        no clean shutdown marker and no checkpoints: all of it is recovered.
    version : str
        The broker's version, for example ``2.4``.
    index_interval_bytes : int, optional
        The topics' ``index.interval.bytes``. Default: that of the metadata, or 4096.
    partitions : collection, optional
        Predict only for these partitions, each as ``("orders", 3)`` or ``"orders-3"``; entries that
        are not partitions are always reported. Default: all.
    metadata : Cluster, path-like, LogStore or list of these, optional
        The cluster, or where its metadata is: logs that it does not assign to the broker become
        stray. Default: the metadata log in `path`, if it has one;
        if that can't be read, an `UnreadMetadataWarning` says why.

    Returns
    -------
    iterator of Prediction
        First for entries that are not partitions, then for each partition, by topic and number.

    Raises
    ------
    NotALogDirectoryError
        If a path is neither a log directory nor a partition directory.
    UnknownVersionError
        If `version` is not a known version.
    KeyError
        If one of `partitions` does not exist.
    """
    store = open_paths(path)
    job = predict_job(find_cluster_or_warn(store, metadata), store, version, index_interval_bytes)
    return JobResults(replace(job, with_content=True), partial(job.items, store, partitions))


def predict_job(
    cluster: Cluster | None, store: LogStore, version: str, index_interval_bytes: int | None
) -> PredictJob:
    """Return the job for a store in a cluster, if that is known."""
    given = {} if index_interval_bytes is None else {"index.interval.bytes": index_interval_bytes}
    settings = settings_of(cluster, store, given)
    return PredictJob(version, settings, Assignments.of(cluster))
