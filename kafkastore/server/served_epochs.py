"""Leader epochs of a partition, of its checkpoint and of its batches.

What clients learn of epochs must agree: a consumer that has read a batch of an epoch which the
leader does not know waits, or takes its log for truncated. A checkpoint may be missing, corrupt, or
older than the batches, because a broker writes it later; then the batches count.

Source: Kafka 4.3.1 ``LeaderEpochFileCache``, ``Partition.lastOffsetForLeaderEpoch``.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.records.record_batch import RecordBatch
from kafkastore.formats.state.checkpoints import EpochStart
from kafkastore.formats.state.leader_epochs import (
    UNDEFINED_EPOCH,
    UNDEFINED_EPOCH_OFFSET,
    LeaderEpochs,
)
from kafkastore.store.partition_log import PartitionLog


def checkpointed_epochs(log: PartitionLog) -> tuple[EpochStart, ...]:
    """Return the epochs of a log's checkpoint; none if it can't be read.

    Lookups in the log then go on without epochs too.
    """
    try:
        return log.leader_epochs
    except (KafkaStoreError, OSError):
        log.facts.setdefault("leader_epochs", ())
        return ()


def last_batch_epoch(log: PartitionLog) -> int:
    """Return the epoch of a log's last batch; -1 if it has none or can't be read."""
    try:
        last = _batch_at(log, log.end_bound.offset - 1)
    except (KafkaStoreError, OSError):
        last = None
    return UNDEFINED_EPOCH if last is None else _epoch_of(last)


def end_of_epoch(
    log: PartitionLog, checkpointed: Sequence[EpochStart], leader_epoch: int, epoch: int, end: int
) -> tuple[int, int]:
    """Return the largest epoch up to one, and where it ends; or -1, -1.

    `leader_epoch` is the leader's, whose records begin at the log end if the log has none of it.
    What is read of the log ends at `end`.
    """
    if epoch == UNDEFINED_EPOCH or epoch > leader_epoch:
        return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
    start = log.log_start_offset
    if epoch == leader_epoch:
        return epoch, end
    epochs = LeaderEpochs(each for each in checkpointed if each.start_offset < end)
    epochs.truncate_from_start(start)
    if last_batch_epoch(log) > _latest(epochs):
        epochs = _epochs_around(log, epoch, end)
    if _latest(epochs) < leader_epoch:
        epochs.assign(leader_epoch, end)
    return epochs.end_offset_for(epoch, log_end_offset=end)


def _latest(epochs: LeaderEpochs) -> int:
    return UNDEFINED_EPOCH if epochs.latest_epoch is None else epochs.latest_epoch


def _epochs_around(log: PartitionLog, epoch: int, end: int) -> LeaderEpochs:
    """Return the largest epoch up to one, and the next one, of the batches."""
    first, log_end = log.log_start_offset, end
    found = LeaderEpochs()
    below: RecordBatch | None = None
    while first < end:    # epochs rise with offsets
        middle = (first + end) // 2
        batch = _batch_at(log, middle)
        if batch is None or _epoch_of(batch) > epoch:
            end = middle
        else:
            below, first = batch, batch.last_offset + 1
    above = _batch_at(log, first) if first < log_end else None
    for batch, start in ((below, 0), (above, first if above is None else above.base_offset)):
        if batch is not None and batch.leader_epoch is not None:
            found.assign(batch.leader_epoch, max(start, log.log_start_offset))
    return found


def _epoch_of(batch: RecordBatch) -> int:
    """Return a batch's epoch; -1 in the formats that have none."""
    return UNDEFINED_EPOCH if batch.leader_epoch is None else batch.leader_epoch


def _batch_at(log: PartitionLog, offset: int) -> RecordBatch | None:
    """Return the first batch that ends at or after an offset."""
    return next(log.batches(max(offset, 0)), None)
