"""Lookups in a log that starts in remote storage.

A broker looks for a time in the remote segments first, epoch by epoch: in the first one that
reaches the time. It reads it from remote storage unless it starts at or after the first segment
here; the offset of the record is then unknown here.

=======  ==========================================================================
asked    answer
=======  ==========================================================================
T        that of the segments here, or an `InRemoteSegmentError`; of many times,
         those in remote storage have the offset `IN_REMOTE_STORAGE`
-5       the last offset that was copied to remote storage
-6       the offset after it, or the log start offset if nothing was copied
=======  ==========================================================================

Source: Kafka 4.3.1 ``UnifiedLog.fetchOffsetByTimestamp``, ``fetchEarliestPendingUploadOffset``,
``RemoteLogManager.findOffsetByTimestamp``.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kafkastore.errors import (
    InRemoteSegmentError,
    KafkaStoreError,
    UnknownRemoteSegmentsError,
)
from kafkastore.formats.indexes.entries import (
    IN_REMOTE_STORAGE,
    NO_TIMESTAMP,
    TIMESTAMP_AND_OFFSET,
    TimestampAndOffset,
    as_targets,
)
from kafkastore.formats.state.leader_epochs import LeaderEpochs
from kafkastore.log.log_view import LogView
from kafkastore.log.remote_log import RemoteStorage, has_remote_log_metadata
from kafkastore.log.remote_metadata import UnknownRemote
from kafkastore.log.remote_segments import RemoteSegment, RemoteSegments
from kafkastore.lookup.segments_by_time import Lookup, SearchStep

if TYPE_CHECKING:
    import pyarrow as pa

#: The entry of a time whose record is in remote storage.
NOT_HERE = np.array((NO_TIMESTAMP, IN_REMOTE_STORAGE, -1), TIMESTAMP_AND_OFFSET)


def starts_in_remote_storage(view: LogView) -> bool:
    """Return whether records before the first segment here may be in remote storage."""
    check_start(view)
    return bool(view.segments) and view.log_start_offset < view.segments[0].base_offset


def remote_segment_type() -> pa.DataType:
    """Return the type of the column that names a segment in remote storage."""
    import pyarrow as pa

    return pa.struct([
        ("segment_id", pa.string()), ("start_offset", pa.int64()), ("end_offset", pa.int64()),
    ])


def remote_segment_row(remote: InRemoteSegmentError | None) -> dict[str, int | str] | None:
    """Return the value of that column."""
    if remote is None:
        return None
    return {
        "segment_id": remote.segment_id,
        "start_offset": remote.start_offset,
        "end_offset": remote.end_offset,
    }


def check_start(view: LogView) -> None:
    """Raise `CorruptionError` if a corrupt record hides where a log starts."""
    if view.log_start_if_tiered is not None:
        view.remote_log.check_is_known()


class RemoteLookup:
    """A lookup in the segments here, for times that are not answered by remote ones.

    `by_broker`: as a broker does; else remote segments count by their offsets.
    """

    def __init__(self, view: LogView, local: Lookup, *, by_broker: bool) -> None:
        self.local = local
        self._view = view
        self._by_broker = by_broker

    def find(
        self, target_timestamp: int, trace: list[SearchStep] | None = None
    ) -> TimestampAndOffset | None:
        """Find the offset for a time; raise `InRemoteSegmentError` if it is not here."""
        remote = self.remote_outcome(target_timestamp)
        if remote is not None:
            raise remote
        return self.local.find(target_timestamp, trace)

    def find_many(self, target_timestamps: ArrayLike) -> NDArray[np.void]:
        """Find the offsets for many times; `IN_REMOTE_STORAGE` for those not here."""
        targets = as_targets(target_timestamps).ravel()
        different, inverse = np.unique(targets, return_inverse=True)
        are_remote = np.array(
            [self.remote_outcome(each) is not None for each in different.tolist()], bool
        )[inverse]
        found = np.full(len(targets), NOT_HERE, TIMESTAMP_AND_OFFSET)
        found[~are_remote] = self.local.find_many(targets[~are_remote])
        return found

    def remote_outcome(self, target: int) -> InRemoteSegmentError | None:
        """Return the remote segment in which a broker looks for a time, if it does."""
        found = find_remote_segment(self._view, target, by_broker=self._by_broker)
        if found is None:
            return None
        return InRemoteSegmentError(
            str(self._view.topic_partition), target,
            found.start_offset, found.end_offset, found.segment_id,
        )


def find_remote_segment(
    view: LogView, target_timestamp: int, *, by_broker: bool
) -> RemoteSegment | None:
    """Return the remote segment that decides about a time; None: those here do."""
    start, end = view.log_start_offset, view.log_end_offset
    segments, epochs = _known(view), LeaderEpochs(view.leader_epochs)
    first_here = view.segments[0].base_offset
    if by_broker:
        found = segments.find(target_timestamp, start, epochs, end)
        return found if found is not None and found.start_offset < first_here else None
    target = max(target_timestamp, 0)
    reaching = (
        each
        for each in _before_here(segments, epochs, end, start, first_here)
        if each.max_timestamp >= target
    )
    return min(reaching, key=lambda each: each.start_offset, default=None)


def largest_remote_timestamp(view: LogView) -> int | None:
    """Return the largest timestamp of the remote segments before the first one here."""
    start, end = view.log_start_offset, view.log_end_offset
    segments, epochs = _known(view), LeaderEpochs(view.leader_epochs)
    before = _before_here(segments, epochs, end, start, view.segments[0].base_offset)
    return max((each.max_timestamp for each in before), default=None)


def _before_here(
    segments: RemoteSegments, epochs: LeaderEpochs, end: int, start: int, first_here: int
) -> Iterator[RemoteSegment]:
    """Yield the remote segments that have records before the first segment here."""
    for each in segments.in_lineage(epochs, end):
        if each.end_offset >= start and each.start_offset < first_here:
            yield each


def latest_tiered(view: LogView) -> TimestampAndOffset | None:
    """Return the last offset that was copied to remote storage; None if none was."""
    highest = highest_remote_offset(view)
    if highest is None:
        return None
    epoch = LeaderEpochs(view.leader_epochs).epoch_for_offset(highest)
    return TimestampAndOffset(NO_TIMESTAMP, highest, epoch)


def earliest_pending_upload(view: LogView) -> TimestampAndOffset | None:
    """Return the first offset that is not copied to remote storage yet.

    Raises `UnknownRemoteSegmentsError` if nothing says whether the topic has remote storage.
    """
    highest = highest_remote_offset(view)
    if not view.remote_log.is_tiered:
        if view.remote_storage is None and has_remote_log_metadata(view.log_dir):
            raise _why_unknown(view, UnknownRemote.NO_CONFIGURATION)
        return None
    start = view.log_start_offset
    if highest is None and view.local_log_start_offset != start:
        return None
    pending = start if highest is None else max(highest + 1, start)
    epoch = LeaderEpochs(view.leader_epochs).epoch_for_offset(pending)
    return TimestampAndOffset(NO_TIMESTAMP, pending, epoch)


def highest_remote_offset(view: LogView) -> int | None:
    """Return the last offset that was ever copied, as a new leader learns it.

    None: nothing was. Raises `UnknownRemoteSegmentsError` if that is not known here.
    """
    remote = view.remote_log
    if not remote.is_tiered and remote.unknown in (None, UnknownRemote.NO_METADATA):
        return None
    if remote.storage is RemoteStorage.COPY_DISABLED:
        return None
    if remote.unknown is not None:
        raise _why_unknown(view, remote.unknown)
    return _known(view).highest_offset(LeaderEpochs(view.leader_epochs), view.log_end_offset)


def _known(view: LogView) -> RemoteSegments:
    """Return the remote segments of a tiered log, or raise."""
    remote = view.remote_log
    if remote.segments is None:
        raise _why_unknown(view, remote.unknown or UnknownRemote.NO_METADATA)
    return remote.segments


def _why_unknown(view: LogView, reason: UnknownRemote) -> KafkaStoreError:
    """Return the error of unknown remote segments."""
    if view.remote_log.error is not None:
        return view.remote_log.error.again()
    return UnknownRemoteSegmentsError(str(view.topic_partition), reason.value)
