"""The cluster of log directories, at a moment."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from kafkastore.arguments import check_zone, whole_number
from kafkastore.clock import EPOCH, MILLISECOND
from kafkastore.errors import ArgumentTypeError
from kafkastore.metadata.cluster import END, AsOf, Cluster, NoMetadataError
from kafkastore.metadata.metadata_diff import MetadataChange, changes_between
from kafkastore.store.cluster_metadata import (
    METADATA_PARTITION,
    cluster_as_of,
    newest_metadata_log,
    the_cluster_id,
)
from kafkastore.store.log_store import Paths, open_paths


def cluster(path: Paths, *, as_of: int | datetime | None = None) -> Cluster:
    """Return the cluster that the metadata log in a directory describes.

    Parameters
    ----------
    path : path-like, LogStore or list of these
        Log directories, ``__cluster_metadata-0`` itself, or one snapshot of it
        (``<end offset>-<epoch>.checkpoint``). Of several metadata logs, the one with the newest
        epoch and the most records is read.
    as_of : int or datetime, optional
        The state before this offset of the metadata log, or at this time, by the controllers'
        clocks; a datetime has a time zone. None: at the end of the log.

    Returns
    -------
    Cluster
        Without a metadata log (a cluster with ZooKeeper) only what the directories of partitions
        show: `Cluster.source` says which.

    Raises
    ------
    NoMetadataError
        If no snapshot or log reaches that moment.
    CorruptionError
        If the snapshot or the log is corrupt before that moment; an earlier moment can be read.
    SeveralClustersError
        If the directories are not of one cluster.
    ReplayError
        If a record does not fit those before it: a broker reports a fault and stops.
    NotALogDirectoryError
        If a path is not such a directory.
    TypeError, ValueError
        If `as_of` is not an int, at least 0, or a datetime with a time zone.

    Notes
    -----
    The last records of a metadata log may not be committed: the quorum may not have known them
    when the disk was copied, and drops them then.

    Source: Kafka 4.3.1 ``MetadataLoader``, ``MetadataImage``.
    """
    return cluster_as_of(path, _as_moment(as_of))


def cluster_changes(
    path: Paths, start: AsOf, end: AsOf, *, show_secrets: bool = False
) -> Iterator[MetadataChange]:
    """Yield what changed between two moments; see `changes_between`."""
    store = open_paths(path)
    the_cluster_id(store)  # of one cluster only
    log = newest_metadata_log(store)
    if log is None:
        raise NoMetadataError(f"{store.paths[0]} has no {METADATA_PARTITION}")
    return changes_between(log, start, end, show_secrets=show_secrets)


def _as_moment(as_of: int | datetime | None) -> AsOf:
    if as_of is None:
        return END
    if isinstance(as_of, datetime):
        check_zone("as_of", as_of)
        return AsOf(timestamp=(as_of - EPOCH) // MILLISECOND)
    if isinstance(as_of, bool) or not isinstance(as_of, int):
        raise ArgumentTypeError("as_of", "an offset or a datetime", as_of)
    return AsOf(offset=whole_number("as_of", as_of, 0))
