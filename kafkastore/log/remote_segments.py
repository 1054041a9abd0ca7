"""The segments of one partition in remote storage, and which a broker uses.

A segment counts in the leader epochs that it has records of. Its records in
``__remote_log_metadata`` say when its copy began and ended, and when it was deleted; a broker
replays them all when it starts.

Source: Kafka 4.3.1 ``RemoteLogMetadataCache``, ``RemoteLogLeaderEpochState``,
``RemoteLogManager.findHighestRemoteOffset``, ``findLogStartOffset``, ``findOffsetByTimestamp``,
``isRemoteSegmentWithinLeaderEpochs``.
"""
from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from kafkastore.formats.state.checkpoints import EpochStart
from kafkastore.formats.state.leader_epochs import LeaderEpochs


class RemoteSegmentState(IntEnum):
    """The state of a remote segment; `COPY_SEGMENT_FINISHED` ones can be read."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


_STARTED, _FINISHED, _DELETING, _DELETED = RemoteSegmentState
#: The states that may follow a state, other than itself.
_NEXT = {_STARTED: (_FINISHED, _DELETING), _FINISHED: (_DELETING,), _DELETING: (_DELETED,)}


class RemoteSegment(NamedTuple):
    """A segment in remote storage, as ``__remote_log_metadata`` describes it.

    Parameters
    ----------
    segment_id : str
        Its id, in base64.
    start_offset, end_offset : int
        Its first and its last offset.
    max_timestamp : int
        The largest timestamp of its records, ms since 1970.
    size : int
        Bytes of its ``.log``.
    leader_epochs : tuple of EpochStart
        The leader epochs of its records, with the first offset of each in it.
    broker_id : int
        The broker that copied it.
    state : RemoteSegmentState
        Whether it can be read.
    """

    segment_id: str
    start_offset: int
    end_offset: int
    max_timestamp: int
    size: int
    leader_epochs: tuple[EpochStart, ...]
    broker_id: int
    state: RemoteSegmentState = RemoteSegmentState.COPY_SEGMENT_STARTED

    def last_offset_in(self, epoch: int) -> int:
        """Return the last offset of the segment in one of its leader epochs."""
        following = bisect_right(self.leader_epochs, epoch, key=lambda each: each.epoch)
        if following == len(self.leader_epochs):
            return self.end_offset
        return self.leader_epochs[following].start_offset - 1


class _SegmentsOfEpoch:
    """The segments of one leader epoch: those in use, and all others."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.in_use: dict[int, str] = {}
        self.others: dict[str, None] = {}
        #: The last offset that was ever copied; deletion does not lower it.
        self.highest_offset: int | None = None

    def finish(self, start: int, segment_id: str, end: int) -> None:
        """Use a segment that was copied, instead of those that it covers."""
        while self.starts and self.starts[-1] >= start and (self.highest_offset or 0) <= end:
            self.others[self.in_use.pop(self.starts.pop())] = None
        if start not in self.in_use:
            self.starts.insert(bisect_left(self.starts, start), start)
        self.in_use[start] = segment_id
        self.others.pop(segment_id, None)
        if self.highest_offset is None or end > self.highest_offset:
            self.highest_offset = end

    def begin_deletion(self, start: int, segment_id: str) -> None:
        """Use a segment no more."""
        if self.in_use.get(start) == segment_id:
            del self.in_use[start]
            self.starts.remove(start)
        self.others[segment_id] = None


class RemoteSegments:
    """The remote segments of one partition, after the replay of its records."""

    def __init__(self) -> None:
        self._by_id: dict[str, RemoteSegment] = {}
        self._by_epoch: dict[int, _SegmentsOfEpoch] = {}

    @property
    def finished(self) -> list[RemoteSegment]:
        """The segments that can be read, by start offset, of all leader epochs."""
        found = (each for each in self._by_id.values() if each.state is _FINISHED)
        return sorted(found, key=lambda each: (each.start_offset, each.end_offset))

    def add(self, segment: RemoteSegment) -> None:
        """Add a segment whose copy begins."""
        known = self._by_id.get(segment.segment_id)
        if known is not None and known.state is not _STARTED:
            return
        for epoch, _ in segment.leader_epochs:
            self._of_epoch(epoch).others[segment.segment_id] = None
        self._by_id[segment.segment_id] = segment

    def update(self, segment_id: str, state: RemoteSegmentState) -> None:
        """Change the state of a segment; an invalid change is ignored."""
        segment = self._by_id.get(segment_id)
        if segment is None or not (
            state is segment.state is not _STARTED or state in _NEXT.get(segment.state, ())
        ):
            return
        for epoch, start in segment.leader_epochs:
            of_epoch = self._of_epoch(epoch)
            if state is _FINISHED:
                of_epoch.finish(start, segment_id, segment.last_offset_in(epoch))
            elif state is _DELETING:
                of_epoch.begin_deletion(start, segment_id)
            else:
                of_epoch.others.pop(segment_id, None)
        self._by_id[segment_id] = segment._replace(state=state)
        if state is _DELETED:
            del self._by_id[segment_id]

    def highest_offset(self, epochs: LeaderEpochs, log_end_offset: int) -> int | None:
        """Return the last offset that was ever copied in the lineage of a log, or None.

        A broker does not delete a local segment beyond it.
        """
        for epoch, _ in reversed(epochs.entries):
            known = self._by_epoch.get(epoch)
            if known is not None and known.highest_offset is not None:
                _, end = epochs.end_offset_for(epoch, log_end_offset)
                return min(known.highest_offset, end - 1)
        return None

    def first_offset(self, epochs: LeaderEpochs) -> int | None:
        """Return the start of the first segment in the lineage, or None."""
        found = (each.start_offset for epoch, _ in epochs.entries for each in self._in(epoch))
        return next(found, None)

    def find(
        self, timestamp: int, start_offset: int, epochs: LeaderEpochs, log_end_offset: int
    ) -> RemoteSegment | None:
        """Return the segment that a broker searches for a time, or None."""
        first_epoch = epochs.epoch_for_offset(start_offset)
        if first_epoch is None:
            return None
        for each in self.in_lineage(epochs, log_end_offset, first_epoch):
            if each.max_timestamp >= timestamp and each.end_offset >= start_offset:
                return each
        return None

    def in_lineage(
        self, epochs: LeaderEpochs, log_end_offset: int, first_epoch: int = -1
    ) -> Iterator[RemoteSegment]:
        """Yield the readable segments that fit a log's leader epochs, by epoch."""
        for epoch, _ in epochs.entries:
            for each in self._in(epoch) if epoch >= first_epoch else ():
                if each.state is _FINISHED and _is_within(each, epochs.entries, log_end_offset):
                    yield each

    def _of_epoch(self, epoch: int) -> _SegmentsOfEpoch:
        return self._by_epoch.setdefault(epoch, _SegmentsOfEpoch())

    def _in(self, epoch: int) -> list[RemoteSegment]:
        """List the segments of a leader epoch, those out of use too."""
        known = self._by_epoch.get(epoch)
        if known is None:
            return []
        segments = [self._by_id[known.in_use[start]] for start in known.starts]
        if known.others:
            segments += [self._by_id[each] for each in known.others]
            segments.sort(key=lambda each: each.start_offset)
        return segments


def _is_within(
    segment: RemoteSegment, epochs: Sequence[EpochStart], log_end_offset: int
) -> bool:
    """Return whether the leader epochs of a segment are those of a log."""
    starts = dict(epochs)
    own = _with_messages(segment.leader_epochs)
    if not own or not epochs or segment.end_offset >= log_end_offset:
        return False
    last = own[-1].epoch
    if last < epochs[0].epoch or last > epochs[-1].epoch:
        return False
    own = [each for each in own if each.epoch >= epochs[0].epoch]
    for index, (epoch, offset) in enumerate(own):
        if epoch not in starts:
            return False
        if index == 0 and epoch != epochs[0].epoch and offset < starts[epoch]:
            return False
        following = next((each for each in epochs if each.epoch > epoch), None)
        if epoch == last:
            if following is not None and segment.end_offset >= following.start_offset:
                return False
        elif following != own[index + 1]:
            return False
    return True


def _with_messages(epochs: Sequence[EpochStart]) -> list[EpochStart]:
    """Leave out epochs that start where the next one does."""
    following = [*epochs[1:], None]
    return [
        each for each, after in zip(epochs, following, strict=True)
        if after is None or after.start_offset != each.start_offset
    ]
