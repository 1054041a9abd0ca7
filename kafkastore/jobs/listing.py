"""The partitions or segments of a store, and leftover files."""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkastore.errors import CorruptionError
from kafkastore.formats.state.leader_epochs import LeaderEpochs
from kafkastore.jobs.job import JobResults, PartitionJob, Row
from kafkastore.log.batch_reading import first_timestamp
from kafkastore.paths import describe_error
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.regular_file import stat_regular
from kafkastore.store.cluster_metadata import Metadata
from kafkastore.store.log_store import AnyPartition, Paths, open_paths
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.partition_path import Copies, open_copies
from kafkastore.writing.topic_settings import TopicSettings, remote_settings_of

if TYPE_CHECKING:
    import pyarrow as pa

_Row = dict[str, Any]

#: The columns of a segment that are known without opening a file, and the others.
_OF_FILES = ("path", "base_offset", "is_active", "size", "modified", "index", "timeindex")
_OF_LOGS = ("first_timestamp", "largest_timestamp", "next_offset")


class PartitionListing(NamedTuple):
    """The rows of one partition, and the first error in its log, or None."""

    rows: tuple[_Row, ...]
    error: CorruptionError | None


@dataclass(frozen=True)
class ListJob(PartitionJob[PartitionListing]):
    """List each partition, or its segments, and leftover files; see `list_logs`."""

    segments: bool = False
    quick: bool = False
    settings: TopicSettings = field(default_factory=TopicSettings)

    @staticmethod
    def columns() -> list[tuple[str, pa.DataType]]:
        """Return the columns of a partition, of a segment, and of a leftover file."""
        import pyarrow as pa

        number, text = pa.int64(), pa.string()
        return [
            ("kind", text),
            ("size", number),
            ("first_timestamp", number),
            ("largest_timestamp", number),
            ("segments", number),
            ("missing", pa.struct([("index", number), ("timeindex", number)])),
            ("log_start_offset", number),
            ("log_start_source", text),
            ("log_start_basis", text),
            ("log_start_if_tiered", number),
            ("local_log_start_offset", number),
            ("remote_storage", text),
            ("remote_source", text),
            ("unknown_remote", text),
            ("remote_segments", number),
            ("remote_size", number),
            ("highest_remote_offset", number),
            ("log_end_offset", number),
            ("log_end_source", text),
            ("log_end_basis", text),
            ("base_offset", number),
            ("next_offset", number),
            ("is_active", pa.bool_()),
            ("modified", number),
            ("index", number),
            ("timeindex", number),
            ("leftover_kind", text),
            ("what", text),
            ("start_action", text),
            ("at_next_start", text),
        ]

    def run(self, item: Copies) -> PartitionListing:
        """List one partition."""
        log = open_copies(item)
        self.settings.apply_to(log)
        describe = _segments if self.segments else _partition
        rows, error = log.retry_if_changed(partial(describe, log, self.quick))
        return PartitionListing((*rows, *_leftovers(log)), error)

    def rows(self, result: PartitionListing) -> Iterator[Row]:
        """Yield the rows of a partition, and one for its error."""
        yield from result.rows
        if result.error is not None:
            yield {"error": describe_error(result.error)}


def list_logs(
    path: Paths,
    *,
    partitions: Collection[AnyPartition] | None = None,
    segments: bool = False,
    quick: bool = False,
    metadata: Metadata = None,
) -> JobResults[Copies, PartitionListing]:
    """List the partitions or segments of log directories.

    Parameters
    ----------
    path : path-like, LogStore or list of these
        Log directories or partition directories of one broker.
    partitions : collection, optional
        Only these partitions, each as ``("orders", 3)`` or ``"orders-3"``.
    segments : bool
        Whether to give a row for each segment, instead of one for each partition.
    quick : bool
        Whether to give names and sizes only, without opening a file.
    metadata : Cluster, path-like, LogStore or list of these, optional
        The cluster, or where its metadata is, which says what topics have remote storage. Default:
        the metadata log in `path`, if it has one.

    Returns
    -------
    iterator of PartitionListing
        In the order of topic and partition.

    Raises
    ------
    KafkaStoreError
        If a partition cannot be read.
    """
    store = open_paths(path)
    settings = TopicSettings() if quick else remote_settings_of(store, metadata)
    job = ListJob(segments, quick, settings)
    return JobResults(job, partial(job.items, store, partitions))


def _partition(log: PartitionLog, quick: bool) -> tuple[list[_Row], CorruptionError | None]:
    """Describe a partition in one row; also return the first error found in it."""
    row: _Row = {
        "kind": "partition",
        "topic": log.topic,
        "partition": log.partition,
        "path": str(log.path),
        "segments": len(log.segments),
        "size": sum(segment.size for segment in log.segments),
        "missing": {
            "index": sum(each.offset_index_path.name not in log.files for each in log.segments),
            "timeindex": sum(each.time_index_path.name not in log.files for each in log.segments),
        },
    }
    error = None
    if not quick:
        start, end = log.start_bound, log.end_bound
        first, error = _known(lambda: first_timestamp(log, log.log_start_offset))
        largest, in_batches = _known(lambda: _largest_timestamp(log.segments))
        error = error or in_batches or end.error or _hidden_remote(log)
        row |= {
            "log_start_offset": start.offset,
            "log_start_source": start.source.value,
            "log_start_basis": start.basis,
            "log_start_if_tiered": log.log_start_if_tiered,
            **_remote(log),
            "log_end_offset": end.offset if end.error is None else None,
            "log_end_source": end.source.value,
            "log_end_basis": end.basis,
            "first_timestamp": first,
            "largest_timestamp": largest,
        }
    return [row], error


def _hidden_remote(log: PartitionLog) -> CorruptionError | None:
    """Return the corrupt record that hides what is in remote storage."""
    remote = log.remote_log
    return remote.error if remote.is_tiered or log.log_start_if_tiered is not None else None


def _remote(log: PartitionLog) -> _Row:
    """Describe what of a partition is in remote storage."""
    remote = log.remote_log
    row: _Row = {
        "local_log_start_offset": log.local_log_start_offset,
        "remote_storage": remote.storage.value,
        "remote_source": remote.source.value,
    }
    if not remote.is_tiered:
        return row
    row["unknown_remote"] = None if remote.unknown is None else remote.unknown.value
    if remote.segments is not None and log.end_bound.error is None:
        epochs, end = LeaderEpochs(log.leader_epochs), log.log_end_offset
        # A segment with records of several leader epochs is listed in each.
        sizes = {each.segment_id: each.size for each in remote.segments.in_lineage(epochs, end)}
        row |= {
            "remote_segments": len(sizes),
            "remote_size": sum(sizes.values()),
            "highest_remote_offset": remote.segments.highest_offset(epochs, end),
        }
    return row


def _segments(log: PartitionLog, quick: bool) -> tuple[list[_Row], CorruptionError | None]:
    """Describe the segments of a partition, and the first error in them."""
    names = _OF_FILES if quick else (*_OF_FILES, *_OF_LOGS)
    rows, first = [], None
    for segment in log.segments:
        row, error = describe_segment(log, segment, names)
        place = {"kind": "segment", "topic": log.topic, "partition": log.partition}
        rows.append(place | row)
        first = first or error
    return rows, first


def describe_segment(
    log: PartitionLog, segment: LogSegment, names: Collection[str], start_offset: int = 0
) -> tuple[_Row, CorruptionError | None]:
    """Describe a segment by the columns in `names`; only what they need is read.

    A value that corrupt bytes hide is None, and the first error of these is returned too. The first
    timestamp is that of the first batch at or after `start_offset` and the log start.
    """
    columns: dict[str, Callable[[], Any]] = {
        "path": lambda: str(segment.log_path),
        "base_offset": lambda: segment.base_offset,
        "is_active": lambda: segment.is_active,
        "size": lambda: segment.size,
        "modified": lambda: segment.last_modified_ms,
        "index": lambda: size_of(segment.offset_index_path),
        "timeindex": lambda: size_of(segment.time_index_path),
        "first_timestamp": lambda: first_timestamp(
            log, max(segment.base_offset, start_offset), segment.next_base_offset
        ),
        "largest_timestamp": lambda: segment.largest_record_timestamp("trust"),
        "next_offset": lambda: _next_offset(segment),
    }
    row, first = _Row(), None
    for name, read in columns.items():
        if name in names:
            row[name], error = _known(read)
            first = first or error
    return row, first


def _next_offset(segment: LogSegment) -> int:
    if segment.end_error is not None:
        raise segment.end_error.again()
    return segment.next_offset


def _known(read: Callable[[], Any]) -> tuple[Any, CorruptionError | None]:
    """Read a value from a log, or return the corruption error."""
    try:
        return read(), None
    except CorruptionError as error:
        return None, error


def _largest_timestamp(segments: Sequence[LogSegment]) -> int | None:
    """Return the largest timestamp of segments, by trusted time indexes."""
    found = [segment.largest_record_timestamp("trust") for segment in segments]
    return max((each for each in found if each is not None), default=None)


def _leftovers(log: PartitionLog) -> Iterator[_Row]:
    """Describe files that are not part of a log, or not yet."""
    for note in log.leftovers:
        yield {
            "kind": "leftover",
            "topic": log.topic,
            "partition": log.partition,
            "path": str(note.path),
            "leftover_kind": note.kind.value,
            "what": note.what,
            "start_action": note.start_action.value,
            "at_next_start": note.at_next_start,
        }


def size_of(path: Path) -> int | None:
    """Return a file's size in bytes; None if it is missing."""
    try:
        return stat_regular(path).st_size
    except FileNotFoundError:
        return None
