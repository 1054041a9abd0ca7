"""What a log tells of its epochs and producers, where the files that should tell it are damaged.

A broker does not start on a damaged ``leader-epoch-checkpoint``. A producer snapshot that it can't
read it drops, and goes on from the one before; where there is none, after a clean shutdown, it goes
on without any producer, so that here the snapshot is made anew.

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
    """Plan the leader epochs that the batches tell.

    Parameters
    ----------
    mending : Mending
        Gets the change.
    pieces : sequence of Piece
        The log as it will be.
    """
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
    """Plan that nothing is told of what lay behind the end of a log that was cut.

    Parameters
    ----------
    mending : Mending
        Gets the changes.
    log_end_offset : int
        Exclusive.
    """
    for offset in mending.log.files.producer_snapshots:
        if offset > log_end_offset:
            mending.remove(_name(offset), f"the log ends before it, at offset {log_end_offset}")
    try:
        epochs = LeaderEpochs(mending.log.leader_epochs)
    except CorruptCheckpointError:
        return  # made anew
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
    """Plan a producer snapshot anew that can't be read, or is not what the log says.

    Parameters
    ----------
    mending : Mending
        Gets the change.
    pieces : sequence of Piece
        The log as it will be.
    offset : int
        The snapshot's.
    damaged : collection of int
        Offsets of snapshots that are not to be believed, this one among them.
    rules : BrokerRules
        Of the version whose state of the producers it is.
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
    """Load the newest of some snapshots that can be read; return up to where it tells."""
    for offset in reversed(offsets):
        try:
            data = read_whole(mending.log.path / _name(offset), CorruptCheckpointError)
            return ProducerState(producer_snapshot.parse(data), rules=rules), offset
        except (CorruptCheckpointError, NotAFileError, FileNotFoundError):
            continue
    return ProducerState(rules=rules), 0


def _holding(pieces: Sequence[Piece], first: int, end: int) -> Iterator[Piece]:
    """Yield the pieces that may hold offsets from one to another."""
    for piece, behind in zip(pieces, [*pieces[1:], None], strict=True):
        if piece.base_offset < end and (behind is None or behind.base_offset > first):
            yield piece


def _name(offset: int) -> str:
    return segment_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX)
