"""Leader epochs of a partition: the ranges of offsets written under each leader.

The content of a ``leader-epoch-checkpoint``, and how it changes as a log grows and is truncated.
Each entry is an epoch and the first offset written in it; epochs and start offsets rise.

Source: Kafka 2.4.0 ``LeaderEpochFileCache``; 3.9.0 the same in Java.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np

from kafkastore.errors import InvalidLeaderEpochError
from kafkastore.formats.state.checkpoints import EpochStart

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

#: The result of `LeaderEpochs.end_offset_for` for an unknown epoch.
UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET = -1, -1


class LeaderEpochs:
    """The leader epochs of a partition: (epoch, start offset) pairs.

    An entry that breaks the order removes those it contradicts; 2.4 takes a checkpoint as it is.
    Raises `InvalidLeaderEpochError` if an epoch or an offset is negative.

    Source: Kafka 3.9.0 ``LeaderEpochFileCache``.

    >>> epochs = LeaderEpochs([(2, 6), (3, 8)])
    >>> epochs.epoch_for_offset(7), epochs.end_offset_for(2, log_end_offset=20)
    (2, (2, 8))
    """

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries: list[EpochStart] = []
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        """Rising (epoch, start offset) pairs, as a checkpoint has them."""
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int | None:
        """The last epoch, which may have no offsets yet; None if no epoch is known."""
        return self._entries[-1].epoch if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Start an epoch at `start_offset`; return whether entries changed.

        An entry that contradicts the new one is removed; a later start of the latest epoch changes
        nothing. Raises `InvalidLeaderEpochError` for a negative epoch or offset.

        Source: Kafka 3.9.0 ``LeaderEpochFileCache.assign``.
        """
        if epoch < 0 or start_offset < 0:
            raise InvalidLeaderEpochError(
                f"leader epoch and start offset must be at least 0, got {epoch} and {start_offset}"
            )
        entries = self._entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochStart(epoch, start_offset))
        return True

    def assign_many(self, headers: NDArray[np.void], *, first_epoch: int = 0) -> bool:
        """Assign the epochs of a log's batches, as recovery does; return if any is new.

        `headers` are BATCH_HEADER in log order. Epochs below `first_epoch`
        (`BrokerRules.first_epoch_recovered`) and those not above the latest are skipped.

        Source: Kafka 2.4.0, 3.9.0 ``LogSegment.recover``.
        """
        latest = max(first_epoch, 0) - 1
        if self.latest_epoch is not None:
            latest = max(latest, self.latest_epoch)
        epochs = np.where(headers["magic"] >= 2, headers["leader_epoch"], -1)
        rising = np.flatnonzero(epochs > latest)
        if not len(rising):
            return False
        highest = np.maximum.accumulate(epochs[rising])
        is_new = np.append(True, highest[1:] > highest[:-1])
        for batch in headers[rising[is_new]]:
            self.assign(int(batch["leader_epoch"]), int(batch["base_offset"]))
        return True

    def clear(self) -> bool:
        """Remove all epochs, as a broker does when it appends a batch of an old format.

        Returns whether there was any.
        """
        had_any = bool(self._entries)
        self._entries.clear()
        return had_any

    def truncate_from_end(self, end_offset: int) -> bool:
        """Remove the epochs that begin at or after the new log end offset.

        `end_offset` is exclusive; a negative one changes nothing. Returns whether an entry was
        removed.

        Source: Kafka 2.4.0 ``LeaderEpochFileCache.truncateFromEnd``.
        """
        count = len(self._entries)
        while end_offset >= 0 and self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
        return len(self._entries) < count

    def truncate_from_start(self, start_offset: int) -> bool:
        """Remove the epochs that end at or before the new log start offset.

        The epoch that holds `start_offset` (inclusive) begins there afterwards. Returns whether an
        entry was changed or removed.

        Source: Kafka 2.4.0 ``LeaderEpochFileCache.truncateFromStart``.
        """
        slot = self._slot_of_offset(start_offset)
        if slot < 0:
            return False
        first = EpochStart(self._entries[slot].epoch, start_offset)
        if slot == 0 and self._entries[0] == first:
            return False
        self._entries[: slot + 1] = [first]
        return True

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the epoch that an offset was, or would be, written in.

        Returns None before the first start offset.

        Source: Kafka 3.9.0 ``LeaderEpochFileCache.epochForOffset``.
        """
        slot = self._slot_of_offset(offset)
        return None if slot < 0 else self._entries[slot].epoch

    def end_offset_for(self, requested_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest epoch up to the requested one, and its exclusive end offset.

        If all known epochs are higher: the requested epoch and the first start offset. If all are
        lower, or none is known or requested (-1): (-1, -1).

        Source: Kafka 2.4.0 ``LeaderEpochFileCache.endOffsetFor``.
        """
        if requested_epoch == UNDEFINED_EPOCH or not self._entries:
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        if requested_epoch == self.latest_epoch:
            return requested_epoch, log_end_offset
        slot = bisect_right(self._entries, requested_epoch, key=lambda entry: entry.epoch)
        if slot == len(self._entries):
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        epoch = self._entries[slot - 1].epoch if slot else requested_epoch
        return epoch, self._entries[slot].start_offset

    def _slot_of_offset(self, offset: int) -> int:
        """Return the slot of the epoch that holds an offset; -1 if there is none."""
        return bisect_right(self._entries, offset, key=lambda entry: entry.start_offset) - 1
