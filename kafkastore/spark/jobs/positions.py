"""What consumer groups have committed: how far they are behind, and where they go on elsewhere."""
from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkastore.formats.file_names import TopicPartition
from kafkastore.formats.group_metadata import OffsetAndMetadata, OffsetCommitKey
from kafkastore.kip_33.committed_offsets import committed_offsets
from kafkastore.kip_33.failover import Method, PartitionFailover, failover_of
from kafkastore.kip_33.fingerprints import Match
from kafkastore.kip_33.lag import PartitionLag, lag_of
from kafkastore.kip_33.lag import Place as Position
from kafkastore.log.damage import OnCorrupt
from kafkastore.log.isolation import Isolation, reads_committed
from kafkastore.spark.jobs.places import (
    Copies,
    Paths,
    columns_of,
    copies_of,
    listed,
    open_copies,
    place_fields,
    store_of,
    weight,
)
from kafkastore.spark.spread import table
from kafkastore.store.log_store import AnyPartition, LogStore, open_store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class Committed(NamedTuple):
    """What a group has committed, and where the partition lies.

    Attributes
    ----------
    key : OffsetCommitKey
        Group, topic and partition.
    committed : OffsetAndMetadata
    copies : tuple of Place
        The partition; nothing where it is not here.
    elsewhere : tuple of Place
        The partition in cluster 2.
    """

    key: OffsetCommitKey
    committed: OffsetAndMetadata
    copies: Copies
    elsewhere: Copies = ()


class Moved(NamedTuple):
    """Where a group goes on, and where it was.

    Attributes
    ----------
    found : PartitionFailover
    place : Position
        Where its position lies in cluster 1.
    log_end_offset : int
        Of cluster 1.
    """

    found: PartitionFailover
    place: Position
    log_end_offset: int


def lag(
    spark: SparkSession,
    paths: Paths,
    groups: Sequence[str] = (),
    *,
    partitions: Collection[AnyPartition] | None = None,
    offsets: Mapping[OffsetCommitKey, int] | None = None,
    now: int | None = None,
    isolation: Isolation = "read_uncommitted",
) -> DataFrame:
    """Tell how far groups are behind, as `kafkastore.lag`; a table.

    Parameters
    ----------
    spark : SparkSession
    paths : path-like or list of path-like
        Log directories or partition directories, of one broker.
    groups : sequence of str
        Only these; none: all.
    partitions : collection, optional
        Only what is committed for these, each as ``("orders", 3)`` or ``"orders-3"``.
    offsets, now, isolation
        As for `kafkastore.lag`. Without `offsets` the driver reads ``__consumer_offsets``, now.

    Returns
    -------
    DataFrame
        A row for each group and partition; see ``docs/jobs.md``.
    """
    reads_committed(isolation)
    store = open_store(listed(paths))
    items = [
        to_follow(key, each, store)
        for key, each in _committed(store, groups, offsets, partitions).items()
    ]
    job = partial(_lag_rows, now=now, isolation=isolation)
    return table(spark, job, items, lag_schema(), where=_where, weigh=weigh)


def to_follow(
    key: OffsetCommitKey,
    committed: OffsetAndMetadata,
    store: LogStore,
    *,
    target: LogStore | None = None,
    topic_prefix: str = "",
    is_weighed: bool = True,
) -> Committed:
    """Tell where the partition of a committed offset lies.

    Parameters
    ----------
    key : OffsetCommitKey
    committed : OffsetAndMetadata
    store : LogStore
    target : LogStore, optional
        Cluster 2.
    topic_prefix : str
        What cluster 2 has before a topic's name.
    is_weighed : bool
        As for `copies_of`.

    Returns
    -------
    Committed
    """
    here = copies_of(store, TopicPartition(key.topic, key.partition), is_weighed=is_weighed)
    there: Copies = ()
    if target is not None:
        other = TopicPartition(topic_prefix + key.topic, key.partition)
        there = copies_of(target, other, is_weighed=is_weighed)
    return Committed(key, committed, here, there)


def weigh(item: Committed) -> int:
    """Return how many bytes of log there are in both clusters.

    Parameters
    ----------
    item : Committed
    """
    return weight(item.copies) + weight(item.elsewhere)


def measure_lag(
    item: Committed,
    *,
    now: int | None,
    isolation: Isolation,
    on_corrupt: OnCorrupt = "raise",
) -> PartitionLag:
    """Tell how far one group is behind in one partition.

    Parameters
    ----------
    item : Committed
    now, isolation
        As for `lag`.
    on_corrupt : str
        As for `kafkastore.lag`.

    Returns
    -------
    PartitionLag
    """
    return lag_of(
        store_of(item.copies),
        item.key,
        item.committed,
        now=now,
        isolation=isolation,
        on_corrupt=on_corrupt,
    )


def lag_schema() -> pa.Schema:
    """Return the columns of `lag`'s table.

    Returns
    -------
    pyarrow.Schema
    """
    import pyarrow as pa

    number, text = pa.int64(), pa.string()
    return pa.schema(
        [
            *place_fields(),
            ("group", text),
            ("offset", number),
            ("leader_epoch", pa.int32()),
            ("metadata", text),
            ("commit_timestamp", number),
            ("place", text),
            ("log_start_offset", number),
            ("log_end_offset", number),
            ("lag_offsets", number),
            ("lag_records", number),
            ("lag_ms", number),
            ("lost_offsets", number),
            ("untimed_records", number),
            ("first_unread_offset", number),
            ("first_unread_timestamp", number),
            ("newest_unread_timestamp", number),
            ("now", number),
            ("error", text),
        ]
    )


def failover(
    spark: SparkSession,
    paths: Paths,
    target: Paths,
    groups: Sequence[str] = (),
    *,
    partitions: Collection[AnyPartition] | None = None,
    offsets: Mapping[OffsetCommitKey, int] | None = None,
    by: Method = "create-time",
    largest_latency_ms: int | None = None,
    clock_skew_ms: int = 0,
    topic_prefix: str = "",
    check: bool = True,
    match: Match = "timestamp",
) -> DataFrame:
    """Find where groups go on in another cluster, as `kafkastore.failover`; a table.

    Parameters
    ----------
    spark : SparkSession
    paths, target : path-like or list of path-like
        Log directories of cluster 1 and of cluster 2.
    groups : sequence of str
        Only these; none: all.
    partitions : collection, optional
        Only what is committed for these, each as ``("orders", 3)`` or ``"orders-3"``.
    offsets : mapping, optional
        Positions by group, topic and partition. Default: those committed in cluster 1, which the
        driver reads, now.
    by, largest_latency_ms, clock_skew_ms, topic_prefix, check, match
        As for `kafkastore.failover`.

    Returns
    -------
    DataFrame
        A row for each group and partition; see ``docs/jobs.md``. A position that can't be carried
        over has an ``error``.
    """
    if by not in ("create-time", "log-append-time"):
        raise ValueError(f"by is 'create-time' or 'log-append-time', not {by!r}")
    store, other = open_store(listed(paths)), open_store(listed(target))
    items = [
        to_follow(key, each, store, target=other, topic_prefix=topic_prefix)
        for key, each in _committed(store, groups, offsets, partitions).items()
    ]
    options = {
        "by": by,
        "largest_latency_ms": largest_latency_ms,
        "clock_skew_ms": clock_skew_ms,
        "topic_prefix": topic_prefix,
        "check": check,
        "match": match,
    }
    job = partial(_failover_rows, options=options)
    return table(spark, job, items, failover_schema(), where=_where_moved, weigh=weigh)


def move_position(item: Committed, *, options: Mapping[str, Any]) -> Moved:
    """Find where one group goes on in one partition of another cluster.

    Parameters
    ----------
    item : Committed
    options : mapping
        What `kafkastore.kip_33.failover.failover_of` is told.

    Returns
    -------
    Moved

    Raises
    ------
    FailoverError
        If the position can't be carried over.
    """
    found = failover_of(
        store_of(item.copies),
        store_of(item.elsewhere),
        item.key,
        item.committed.offset,
        **options,
    )
    log = open_copies(item.copies)
    place = Position.IN_LOG
    if found.position > log.log_end_offset:
        place = Position.BEYOND_END
    elif found.position < log.log_start_offset:
        place = Position.BELOW_START
    return Moved(found, place, log.log_end_offset)


def failover_schema() -> pa.Schema:
    """Return the columns of `failover`'s table.

    Returns
    -------
    pyarrow.Schema
    """
    import pyarrow as pa

    number, text = pa.int64(), pa.string()
    return pa.schema(
        [
            *place_fields(),
            ("group", text),
            ("offset", number),
            ("timestamp", number),
            ("source_topic", text),
            ("source_offset", number),
            ("place", text),
            ("bound_timestamp", number),
            ("basis", text),
            ("untimed_records", number),
            ("unread_records", number),
            ("found_records", number),
            ("lost_records", number),
            ("duplicate_records", number),
            ("stranger_records", number),
            ("error", text),
        ]
    )


def lag_row(found: PartitionLag) -> dict[str, Any]:
    """Name what is known of a group's lag, as JSON and tables do.

    Parameters
    ----------
    found : PartitionLag

    Returns
    -------
    dict
        All but topic and partition.
    """
    unread = found.unread
    return {
        "group": found.group,
        "offset": found.committed.offset,
        "leader_epoch": _or_none(found.committed.leader_epoch),
        "metadata": found.committed.metadata,
        "commit_timestamp": _or_none(found.committed.commit_timestamp),
        "place": found.place.value,
        "log_start_offset": found.log_start_offset,
        "log_end_offset": found.log_end_offset,
        "lag_offsets": found.offsets,
        "lag_records": found.records,
        "lag_ms": found.lag_ms,
        "lost_offsets": found.lost_offsets,
        "untimed_records": None if unread is None else unread.untimed_records,
        "first_unread_offset": None if unread is None else unread.first_offset,
        "first_unread_timestamp": None if unread is None else unread.first_timestamp,
        "newest_unread_timestamp": None if unread is None else unread.newest_timestamp,
        "now": found.now,
    }


def failover_row(moved: Moved) -> dict[str, Any]:
    """Name what is known of a group's move, as JSON and tables do.

    Parameters
    ----------
    moved : Moved

    Returns
    -------
    dict
        All but topic and partition.
    """
    found, check = moved.found, moved.found.check
    return {
        "group": found.group,
        "offset": found.offset,
        "timestamp": None if found.record is None else found.record.timestamp,
        "source_topic": found.source.topic,
        "source_offset": found.position,
        "place": moved.place.value,
        "bound_timestamp": found.bound.timestamp,
        "basis": found.bound.basis,
        "untimed_records": found.bound.untimed_records,
        "unread_records": None if check is None else check.unread,
        "found_records": None if check is None else check.found,
        "lost_records": None if check is None else check.lost,
        "duplicate_records": None if check is None else check.duplicates,
        "stranger_records": None if check is None else check.strangers,
    }


def _committed(
    store: LogStore,
    groups: Sequence[str],
    offsets: Mapping[OffsetCommitKey, int] | None,
    partitions: Collection[AnyPartition] | None,
) -> dict[OffsetCommitKey, OffsetAndMetadata]:
    """Return what groups have committed, or what is given, for some partitions."""
    if offsets is None:
        committed = committed_offsets(store, groups)
    else:
        committed = {
            key: OffsetAndMetadata(offset, "", -1)
            for key, offset in sorted(offsets.items())
            if not groups or key.group in groups
        }
    if partitions is None:
        return committed
    chosen = set(store.chosen(partitions))
    return {
        key: each
        for key, each in committed.items()
        if TopicPartition(key.topic, key.partition) in chosen
    }


def _lag_rows(
    item: Committed, *, now: int | None, isolation: Isolation
) -> Iterator[Mapping[str, Any]]:
    """Yield the row of a committed offset."""
    yield lag_row(measure_lag(item, now=now, isolation=isolation))


def _failover_rows(item: Committed, *, options: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the row of a position."""
    moved = move_position(item, options=options)
    yield {"topic": moved.found.target.topic, **failover_row(moved)}


def _where(item: Committed) -> Mapping[str, Any]:
    """Return the columns that say what a row is about."""
    return {
        **(columns_of(item.copies) if item.copies else {}),
        "topic": item.key.topic,
        "partition": item.key.partition,
        "group": item.key.group,
        "offset": item.committed.offset,
    }


def _where_moved(item: Committed) -> Mapping[str, Any]:
    where = dict(_where(item))
    del where["offset"]
    return {**where, "source_topic": item.key.topic, "source_offset": item.committed.offset}


def _or_none(value: int) -> int | None:
    return None if value < 0 else value
