"""Leader epochs of a partition: which offsets were written under which leader.

The content of a ``leader-epoch-checkpoint``, and how it changes as a log grows and is cut. Each
entry is an epoch and the first offset written in it; epochs and start offsets rise.

Source: Kafka 2.4.0 ``LeaderEpochFileCache``; 3.9.0 the same in Java.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np

from kafkastore.errors import InvalidLeaderEpochError
from kafkastore.formats.checkpoints import EpochStart

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

#: What `LeaderEpochs.end_offset_for` answers where nothing is known.
UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET = -1, -1


class LeaderEpochs:
    """The leader epochs of a partition.

    Parameters
    ----------
    entries : iterable of (int, int)
        Epochs and their start offsets as a checkpoint has them; default: none. They are assigned
        one after the other, so that an entry which breaks the order removes those it contradicts.

    Raises
    ------
    InvalidLeaderEpochError
        If an epoch or an offset is negative.

    Notes
    -----
    Source: Kafka 3.9.0 ``LeaderEpochFileCache``. 2.4 takes a checkpoint as it is, also one whose
    entries contradict each other.

    Examples
    --------
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
        """What `checkpoints.pack_leader_epoch_checkpoint` writes: epochs and starts, rising."""
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int | None:
        """The last epoch that has offsets, or will have the next; None if none is known."""
        return self._entries[-1].epoch if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Say in which epoch the offsets from one on are written.

        Parameters
        ----------
        epoch : int
            Of the leader.
        start_offset : int
            The first offset in it. Of the latest epoch a later one changes nothing.

        Returns
        -------
        bool
            Whether an entry was added: a broker writes the checkpoint then. Entries that it
            contradicts, of this or a higher epoch or from this offset on, are gone.

        Raises
        ------
        InvalidLeaderEpochError
            If the epoch or the offset is negative.

        Notes
        -----
        Source: Kafka 3.9.0 ``LeaderEpochFileCache.assign``.
        """
        if epoch < 0 or start_offset < 0:
            raise InvalidLeaderEpochError(
                f"leader epoch {epoch} from offset {start_offset} on: both must be 0 or above"
            )
        entries = self._entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochStart(epoch, start_offset))
        return True

    def assign_many(self, headers: NDArray[np.void], *, first_epoch: int = 0) -> bool:
        """Take the epochs of a log's batches, as a recovery does.

        Parameters
        ----------
        headers : numpy.ndarray
            Of dtype `batch_header.BATCH_HEADER`, in the order of the log.
        first_epoch : int
            Epochs below are left out: `BrokerRules.first_epoch_recovered`.

        Returns
        -------
        bool
            Whether an entry was added.

        Notes
        -----
        Unlike `assign`, epochs that are not above the latest one are passed over.

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
        """Forget all epochs, as a broker does when it appends a batch of an old format.

        Returns
        -------
        bool
            Whether there was any.
        """
        had_any = bool(self._entries)
        self._entries.clear()
        return had_any

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget the epochs that begin at or after an offset, where the log is cut.

        Parameters
        ----------
        end_offset : int
            The new log end offset, exclusive; negative changes nothing.

        Returns
        -------
        bool
            Whether an entry was removed.

        Notes
        -----
        Source: Kafka 2.4.0 ``LeaderEpochFileCache.truncateFromEnd``.
        """
        count = len(self._entries)
        while end_offset >= 0 and self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
        return len(self._entries) < count

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forget the epochs that end at or before an offset, where the log begins now.

        Parameters
        ----------
        start_offset : int
            The new log start offset, inclusive: the epoch that holds it begins there now.

        Returns
        -------
        bool
            Whether an entry was changed or removed.

        Notes
        -----
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
        """Find the epoch that an offset was, or would be, written in.

        Parameters
        ----------
        offset : int
            Any.

        Returns
        -------
        int or None
            None before the first start offset.

        Notes
        -----
        Source: Kafka 3.9.0 ``LeaderEpochFileCache.epochForOffset``.
        """
        slot = self._slot_of_offset(offset)
        return None if slot < 0 else self._entries[slot].epoch

    def end_offset_for(self, requested_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Find where an epoch ends, as a follower or a consumer asks to find out what diverged.

        Parameters
        ----------
        requested_epoch : int
            -1 is undefined.
        log_end_offset : int
            Exclusive: the end of the latest epoch.

        Returns
        -------
        tuple of int
            The largest epoch up to the requested one, and its end, exclusive: the start of the
            next. The requested epoch itself and the first start offset where all known ones are
            higher; (-1, -1) where all are lower, or none is known or asked for.

        Notes
        -----
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
        """Return the slot of the epoch that holds an offset; -1 if none does."""
        return bisect_right(self._entries, offset, key=lambda entry: entry.start_offset) - 1
