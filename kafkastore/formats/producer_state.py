"""What a broker knows of a partition's producers: sequences, epochs, open transactions.

`ProducerState.replay` goes over a log that exists, as recovery does. `ProducerState.prepare` judges
what is about to be appended, as a leader does, and `ProducerState.update` takes it in once it is in
the log. Both say what the transaction index gets. What is known at an offset is what a producer
snapshot of that offset holds: `ProducerState.entries`.

Source: Kafka 2.4.0 and 3.9.0 ``ProducerStateManager``, ``ProducerAppendInfo``,
``ProducerStateEntry``, ``BatchMetadata``; ``Log.analyzeAndValidateProducerState``.
"""

from __future__ import annotations

import heapq
from operator import itemgetter
from typing import TYPE_CHECKING, Literal

import numpy as np

from kafkastore.arguments import INT64_MAX
from kafkastore.formats import producer_entry
from kafkastore.formats.producer_entry import BatchMetadata, ProducerEntry, TransactionStep
from kafkastore.formats.producer_snapshot import PRODUCER_ENTRY
from kafkastore.formats.transaction_index import ABORTED_TXN
from kafkastore.versions import NEWEST, BrokerRules

if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterable, Sequence

    from numpy.typing import NDArray

    from kafkastore.errors import ProducerStateError
    from kafkastore.formats.control_records import ControlRecord

#: Where a batch comes from: a producer; the broker itself, as transaction markers and the offsets
#: of consumer groups do; or a leader, or the log itself, where all was judged before.
Origin = Literal["client", "coordinator", "replication"]

_NO_ABORTED_TXNS = np.empty(0, ABORTED_TXN)
_NO_ABORTED_TXNS.flags.writeable = False


class ProducerAppend:
    """Batches that may be appended, see `ProducerState.prepare`; changes nothing by itself.

    Attributes
    ----------
    duplicate : BatchMetadata or None
        A batch that is in the log already, the same as one of these: nothing must be written, and
        the producer is told its offsets and timestamp.
    """

    __slots__ = ("_entries", "_steps", "duplicate")

    def __init__(
        self,
        entries: dict[int, ProducerEntry],
        steps: list[TransactionStep],
        duplicate: BatchMetadata | None,
    ) -> None:
        self._entries, self._steps, self.duplicate = entries, steps, duplicate


class ProducerState:
    """The producers of a partition up to an offset, and their transactions.

    Parameters
    ----------
    entries : numpy.ndarray, optional
        Of dtype `producer_snapshot.PRODUCER_ENTRY`: the state at the offset where the batches
        begin that will be given. Default: nothing is known, as at the start of a log.
    rules : BrokerRules
        What a broker of a version does, see `versions.rules_of`.

    Notes
    -----
    To truncate a log, make another state from the newest snapshot up to the new end, and replay
    from there. A broker leaves out what is too old when it loads a snapshot: `remove_expired`.
    """

    def __init__(
        self, entries: NDArray[np.void] | None = None, *, rules: BrokerRules = NEWEST
    ) -> None:
        self._rules = rules
        self._entries: dict[int, ProducerEntry] = {}
        self._open = _OpenTransactions()
        self._unreplicated: list[tuple[int, int]] = []
        self._high_watermark = -1
        self._first_refusal: ProducerStateError | None = None
        for producer_id, *fields in () if entries is None else entries.tolist():
            self._entries[producer_id] = ProducerEntry(
                *fields, always_has_batch=not rules.markers_have_producer_time
            )
        for producer_id, entry in self._entries.items():
            if entry.current_txn_first_offset is not None:
                self._open.begin(entry.current_txn_first_offset, producer_id)

    @property
    def is_empty(self) -> bool:
        """Whether no producer is known, and no transaction waits for the high watermark."""
        return not self._entries and self.first_unreplicated_offset is None

    @property
    def open_transactions(self) -> dict[int, int]:
        """First offsets of the open transactions by producer id."""
        return {producer_id: offset for offset, producer_id in self._open.items()}

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest open transaction begins; None if none is open."""
        return self._open.first_offset()

    @property
    def first_unreplicated_offset(self) -> int | None:
        """Where the first of the transactions begins whose marker is not replicated.

        None if there is none: if all markers so far lie below the high watermark.
        """
        return self._unreplicated[0][0] if self._unreplicated else None

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset that is undecided or decided by a marker that is not replicated.

        None if there is none. The last stable offset is this if it is below the high watermark, and
        else the high watermark; at least the log start offset.

        Source: Kafka 2.4.0 ``ProducerStateManager.firstUnstableOffset``.
        """
        unstable = (self.first_undecided_offset, self.first_unreplicated_offset)
        return min((offset for offset in unstable if offset is not None), default=None)

    @property
    def first_refusal(self) -> ProducerStateError | None:
        """Why a broker would not load what was replayed, the first reason; None if it would.

        A broker's recovery fails on it, and does not cut the log: it has to be mended by hand.
        """
        return self._first_refusal

    def last_batches(self, producer_id: int) -> tuple[BatchMetadata, ...]:
        """Return the batches of a producer that are told again when they come twice.

        Parameters
        ----------
        producer_id : int
            Any.

        Returns
        -------
        tuple of BatchMetadata
            Up to five of its last epoch, the newest last; of a snapshot one.
        """
        entry = self._entries.get(producer_id)
        return () if entry is None else entry.last_batches()

    def entries(self) -> NDArray[np.void]:
        """Return what a snapshot at this offset holds.

        Returns
        -------
        numpy.ndarray
            Of dtype `producer_snapshot.PRODUCER_ENTRY`, by producer id; a broker's are in no order.

        Notes
        -----
        Source: Kafka 2.4.0, 3.9.0 ``ProducerStateManager.writeSnapshot``.
        """
        markers_count = self._rules.markers_have_producer_time
        return np.array(
            [
                (producer_id, *entry.snapshot_fields(markers_count=markers_count))
                for producer_id, entry in sorted(self._entries.items(), key=itemgetter(0))
            ],
            PRODUCER_ENTRY,
        )

    def replay(
        self, headers: NDArray[np.void], controls: Sequence[ControlRecord | None] = ()
    ) -> NDArray[np.void]:
        """Take in batches that are in the log, as recovery does, whatever is wrong with them.

        Parameters
        ----------
        headers : numpy.ndarray
            Of dtype `batch_header.BATCH_HEADER`: the batches that follow those before, of any
            format.
        controls : sequence of ControlRecord or None
            The record of each control batch among them, in order; None for one without records. See
            `control_records.first_control_record`.

        Returns
        -------
        numpy.ndarray
            Of dtype `transaction_index.ABORTED_TXN`: what the transaction index gets.

        Raises
        ------
        ValueError
            If there are not as many control records as control batches.

        Notes
        -----
        The time of a marker is taken from the header of its batch, in which it is alone.

        Source: Kafka 2.4.0 ``LogSegment.recover``, ``LogSegment.updateProducerState``.
        """
        steps, refusal = producer_entry.replay(self._entries, headers, controls, self._rules)
        if self._first_refusal is None:
            self._first_refusal = refusal
        return self._follow(steps)

    def prepare(
        self,
        headers: NDArray[np.void],
        controls: Sequence[ControlRecord | None] = (),
        *,
        origin: Origin,
    ) -> ProducerAppend:
        """Judge batches that are about to be appended together.

        Parameters
        ----------
        headers : numpy.ndarray
            Of dtype `batch_header.BATCH_HEADER`, with the offsets that the batches will have.
        controls : sequence of ControlRecord or None
            As in `replay`.
        origin : {"client", "coordinator", "replication"}
            Who sends them: sequences are checked of clients alone, epochs not of a leader's
            batches.

        Returns
        -------
        ProducerAppend
            For `update`, once the batches are in the log; nothing is changed yet. With a
            `duplicate` they must not be written.

        Raises
        ------
        ProducerStateError
            If a leader refuses one of them; see its subclasses. Not one of them is written then.
        ValueError
            If there are not as many control records as control batches.

        Notes
        -----
        Source: Kafka 2.4.0, 3.9.0 ``Log.analyzeAndValidateProducerState``, ``ProducerAppendInfo``.
        """
        return ProducerAppend(
            *producer_entry.prepare(self._entries, headers, controls, self._rules, origin)
        )

    def update(self, append: ProducerAppend) -> NDArray[np.void]:
        """Take in what has been appended.

        Parameters
        ----------
        append : ProducerAppend
            The last that `prepare` made, without a duplicate.

        Returns
        -------
        numpy.ndarray
            Of dtype `transaction_index.ABORTED_TXN`: what the transaction index gets.

        Notes
        -----
        Unlike in a replay, a last stable offset may be that of a transaction behind the marker,
        which was appended with it.

        Source: Kafka 2.4.0 ``ProducerStateManager.update``, ``lastStableOffset``, ``completeTxn``.
        """
        for producer_id, appended in append._entries.items():
            entry = self._entries.get(producer_id)
            if entry is None:
                self._entries[producer_id] = appended
            else:
                entry.go_on_with(appended)
        # Those that begin come first: Kafka looks at all of them where one ends.
        steps = append._steps
        if len(steps) > 1:
            steps = sorted(steps, key=lambda step: step.last_offset is not None)
        return self._follow(steps)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Take note that all before an offset is replicated.

        Parameters
        ----------
        high_watermark : int
            Exclusive. A new log start offset tells the same. Given now and then in a long replay,
            it keeps the memory small.
        """
        self._high_watermark = max(self._high_watermark, high_watermark)
        while self._unreplicated and self._unreplicated[0][1] < self._high_watermark:
            heapq.heappop(self._unreplicated)

    def remove_expired(self, now_ms: int, expiration_ms: int | None = None) -> None:
        """Forget the producers without an open transaction that were quiet for long.

        Parameters
        ----------
        now_ms : int
            Milliseconds since 1970.
        expiration_ms : int, optional
            Milliseconds; default: those of `BrokerRules.producer_expiration_ms`.

        Notes
        -----
        Source: Kafka 2.4.0, 3.9.0 ``ProducerStateManager.removeExpiredProducers``.
        """
        limit = self._rules.producer_expiration_ms if expiration_ms is None else expiration_ms
        markers_count = self._rules.markers_have_producer_time
        self._entries = {
            producer_id: entry
            for producer_id, entry in self._entries.items()
            if entry.current_txn_first_offset is not None
            or now_ms - entry.last_timestamp(markers_count=markers_count) < limit
        }

    def _follow(self, steps: Iterable[TransactionStep]) -> NDArray[np.void]:
        """Begin and end transactions; return what the transaction index gets."""
        aborted = []
        for producer_id, first_offset, last_offset, is_aborted in steps:
            if last_offset is None:
                self._open.begin(first_offset, producer_id)
                continue
            self._open.end(first_offset)
            if last_offset >= self._high_watermark:
                heapq.heappush(self._unreplicated, (first_offset, last_offset))
            if is_aborted:
                stable = self._open.first_offset(but_not_of=producer_id)
                if stable is None:
                    stable = min(last_offset + 1, INT64_MAX)
                aborted.append((producer_id, first_offset, last_offset, stable))
        return np.array(aborted, ABORTED_TXN) if aborted else _NO_ABORTED_TXNS


class _OpenTransactions:
    """The open transactions of all producers, and which of them is the oldest."""

    def __init__(self) -> None:
        self._producer_ids: dict[int, int] = {}
        self._offsets: list[int] = []  # a heap; has those that ended until they come up

    def items(self) -> ItemsView[int, int]:
        """Return first offsets and producer ids."""
        return self._producer_ids.items()

    def begin(self, first_offset: int, producer_id: int) -> None:
        """Note that a transaction is open."""
        self._producer_ids[first_offset] = producer_id
        heapq.heappush(self._offsets, first_offset)

    def end(self, first_offset: int) -> None:
        """Note that a transaction is decided."""
        self._producer_ids.pop(first_offset, None)
        while self._offsets and self._offsets[0] not in self._producer_ids:
            heapq.heappop(self._offsets)

    def first_offset(self, *, but_not_of: int = -1) -> int | None:
        """Return where the oldest one begins, leaving out those of a producer."""
        if not self._offsets:
            return None
        if self._producer_ids[self._offsets[0]] != but_not_of:
            return self._offsets[0]
        others = (offset for offset, owner in self.items() if owner != but_not_of)
        return min(others, default=None)
