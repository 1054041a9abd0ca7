"""Repair leader epochs and producer snapshots from the log.

A broker does not start with a corrupt ``leader-epoch-checkpoint``. It drops a corrupt producer
snapshot and loads the previous one. Without a previous one, after a clean shutdown, it starts
without any producer; therefore this module rebuilds the snapshot.

Source: Kafka 2.4.0 ``LeaderEpochFileCache``, ``Log.rebuildProducerState``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from kafkastore.changes.plan import Inline
from kafkastore.checks.kept_logs import Piece
from kafkastore.checks.mending import Mending
from kafkastore.errors import CorruptCheckpointError, NotAFileError
from kafkastore.formats import producer_snapshot
from kafkastore.formats.checkpoints import pack_leader_epoch_checkpoint
from kafkastore.formats.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    PRODUCER_SNAPSHOT_SUFFIX,
    segment_file_name,
)
from kafkastore.formats.leader_epochs import LeaderEpochs
from kafkastore.formats.producer_state import ProducerState
from kafkastore.segment.recovery import batch_runs, replay_run
from kafkastore.segment.small_file import read_whole
from kafkastore.versions import BrokerRules


def mend_epochs(mending: Mending, pieces: Sequence[Piece]) -> None:
    """Plan the leader epoch checkpoint that the batches give; `pieces` is the log as it will be."""
    epochs = LeaderEpochs()
    for piece in pieces:
        with piece.open() as log:
            for run in batch_runs(log):
                epochs.assign_many(run.headers)
    epochs.truncate_from_start(mending.log.log_start_offset)
    data = pack_leader_epoch_checkpoint(epochs.entries)
    like = pieces[0].segment.log_path
    mending.add(LEADER_EPOCH_CHECKPOINT, like, data, Inline(data), "it is not what the log says")


def cut_state(mending: Mending, log_end_offset: int) -> None:
    """Plan to remove snapshots and epochs beyond the new log end offset of a truncated log."""
    for offset in mending.log.files.producer_snapshots:
        if offset > log_end_offset:
            mending.remove(_name(offset), f"the log ends before it, at offset {log_end_offset}")
    try:
        epochs = LeaderEpochs(mending.log.leader_epochs)
    except CorruptCheckpointError:
        return  # rebuilt by `mend_epochs`
    if epochs.truncate_from_end(log_end_offset):
        data = pack_leader_epoch_checkpoint(epochs.entries)
        like = mending.log.path / LEADER_EPOCH_CHECKPOINT
        why = f"the log ends at offset {log_end_offset} now"
        mending.add(LEADER_EPOCH_CHECKPOINT, like, data, Inline(data), why)


def mend_snapshot(
    mending: Mending,
    pieces: Sequence[Piece],
    offset: int,
    damaged: Collection[int],
    rules: BrokerRules,
) -> None:
    """Plan to rebuild the producer snapshot at `offset`, or to remove it outside the log.

    `damaged` has the offsets of all invalid snapshots, this one included; `pieces` is the log as it
    will be.
    """
    if not mending.log.log_start_offset < offset <= mending.log.log_end_offset:
        mending.remove(_name(offset), "it lies outside the log")
        return
    before = [each for each in mending.log.files.producer_snapshots if each < offset]
    state, first = _newest(mending, [each for each in before if each not in damaged], rules)
    for piece in _holding(pieces, first, offset):
        with piece.open() as log:
            for run in batch_runs(log):
                last = run.headers["last_offset"]
                replay_run(state, run, (last >= first) & (last < offset))
    data = producer_snapshot.pack(state.entries())
    like = pieces[0].segment.log_path
    mending.add(_name(offset), like, data, Inline(data), "it is not what the log says")


def _newest(
    mending: Mending, offsets: Sequence[int], rules: BrokerRules
) -> tuple[ProducerState, int]:
    """Load the newest readable snapshot; return it with its offset, or an empty state and 0."""
    for offset in reversed(offsets):
        try:
            data = read_whole(mending.log.path / _name(offset), CorruptCheckpointError)
            return ProducerState(producer_snapshot.parse(data), rules=rules), offset
        except (CorruptCheckpointError, NotAFileError, FileNotFoundError):
            continue
    return ProducerState(rules=rules), 0


def _holding(pieces: Sequence[Piece], first: int, end: int) -> Iterator[Piece]:
    """Yield the pieces that may contain offsets from `first` to `end`, exclusive."""
    for piece, behind in zip(pieces, [*pieces[1:], None], strict=True):
        if piece.base_offset < end and (behind is None or behind.base_offset > first):
            yield piece


def _name(offset: int) -> str:
    return segment_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX)
