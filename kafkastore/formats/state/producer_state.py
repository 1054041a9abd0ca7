"""The state of a partition's producers: sequences, epochs, open transactions.

`ProducerState.replay` scans an existing log, as recovery does. `ProducerState.prepare` checks
batches before they are appended, as a leader does, and `ProducerState.update` applies them once
they are in the log. Both `replay` and `update` return the new entries of the transaction index.
`ProducerState.entries` is the content of a producer snapshot at that offset.

Source: Kafka 2.4.0 and 3.9.0 ``ProducerStateManager``, ``ProducerAppendInfo``,
``ProducerStateEntry``, ``BatchMetadata``; ``Log.analyzeAndValidateProducerState``.
"""

from __future__ import annotations

import heapq
from operator import itemgetter
from typing import TYPE_CHECKING, Literal

import numpy as np

from kafkastore.arguments import INT64_MAX
from kafkastore.formats.indexes.transaction_index import ABORTED_TXN
from kafkastore.formats.state import producer_entry
from kafkastore.formats.state.producer_entry import BatchMetadata, ProducerEntry, TransactionStep
from kafkastore.formats.state.producer_snapshot import PRODUCER_ENTRY
from kafkastore.versions import NEWEST, BrokerRules

if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterable, Sequence

    from numpy.typing import NDArray

    from kafkastore.errors import ProducerStateError
    from kafkastore.formats.records.control_records import ControlRecord

#: Where a batch comes from: a producer; the broker itself, for transaction markers and the offsets
#: of consumer groups; or a leader or the log itself, whose batches were checked before.
Origin = Literal["client", "coordinator", "replication"]

_NO_ABORTED_TXNS = np.empty(0, ABORTED_TXN)
_NO_ABORTED_TXNS.flags.writeable = False


class ProducerAppend:
    """Batches checked by `ProducerState.prepare`, for `ProducerState.update`.

    `duplicate` is a batch in the log that one of these repeats, or None. With a duplicate, nothing
    must be written, and the producer gets its offsets and timestamp.
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

    `entries` (PRODUCER_ENTRY) are those before the first batch; default: none, as at a log's start.
    To truncate, create a new state from a snapshot, `remove_expired` as a broker does, and replay.
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
        """Whether there are no producers and no transactions still to replicate."""
        return not self._entries and self.first_unreplicated_offset is None

    @property
    def open_transactions(self) -> dict[int, int]:
        """First offsets of the open transactions by producer id."""
        return {producer_id: offset for offset, producer_id in self._open.items()}

    @property
    def first_undecided_offset(self) -> int | None:
        """First offset of the oldest open transaction; None if none is open."""
        return self._open.first_offset()

    @property
    def first_unreplicated_offset(self) -> int | None:
        """First offset of the first transaction whose marker is not replicated.

        None if all markers so far are below the high watermark.
        """
        return self._unreplicated[0][0] if self._unreplicated else None

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset undecided or decided by an unreplicated marker, or None.

        The last stable offset is this offset if it is below the high watermark, otherwise the high
        watermark; it is at least the log start offset.

        Source: Kafka 2.4.0 ``ProducerStateManager.firstUnstableOffset``.
        """
        unstable = (self.first_undecided_offset, self.first_unreplicated_offset)
        return min((offset for offset in unstable if offset is not None), default=None)

    @property
    def first_refusal(self) -> ProducerStateError | None:
        """The first reason for a broker not to load the replayed batches, or None.

        A broker's recovery fails on it and does not truncate the log: it has to be repaired by
        hand.
        """
        return self._first_refusal

    def last_batches(self, producer_id: int) -> tuple[BatchMetadata, ...]:
        """Return a producer's last batches, which detect duplicates; newest last.

        There are up to five of its last epoch; after loading a snapshot, one.
        """
        entry = self._entries.get(producer_id)
        return () if entry is None else entry.last_batches()

    def entries(self) -> NDArray[np.void]:
        """Return the PRODUCER_ENTRY array of a snapshot at this offset, by producer id.

        A broker's snapshot is not sorted.

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
        """Apply the next batches (BATCH_HEADER), even invalid; return new ABORTED_TXN.

        `controls` has the record of each control batch among `headers`, None for one without
        records. Raises ValueError if their number is wrong.

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
        transaction_version: int = 0,
    ) -> ProducerAppend:
        """Check batches to be appended together, without changing the state.

        `headers` have new offsets, `controls` as in `replay`, a coordinator's transactions a
        version. Write nothing if there is a `duplicate`. Raises `ProducerStateError` if refused.

        Source: Kafka 2.4.0, 3.9.0 ``Log.analyzeAndValidateProducerState``, ``ProducerAppendInfo``.
        """
        return ProducerAppend(
            *producer_entry.prepare(
                self._entries, headers, controls, self._rules, origin, transaction_version
            )
        )

    def update(self, append: ProducerAppend) -> NDArray[np.void]:
        """Apply appended batches: the last result of `prepare`, without a duplicate.

        Returns the new ABORTED_TXN entries of the transaction index. Unlike in a replay, a last
        stable offset may be that of a transaction after the marker which was appended with it.

        Source: Kafka 2.4.0 ``ProducerStateManager.update``, ``lastStableOffset``, ``completeTxn``.
        """
        for producer_id, appended in append._entries.items():
            entry = self._entries.get(producer_id)
            if entry is None:
                self._entries[producer_id] = appended
            else:
                entry.apply_append(appended)
        # Begins come first: when a transaction ends, Kafka considers all that began in the append.
        steps = append._steps
        if len(steps) > 1:
            steps = sorted(steps, key=lambda step: step.last_offset is not None)
        return self._follow(steps)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Note that all offsets before the high watermark (exclusive) are replicated.

        A new log start offset has the same effect. Calling this in a long replay limits the memory.
        """
        self._high_watermark = max(self._high_watermark, high_watermark)
        while self._unreplicated and self._unreplicated[0][1] < self._high_watermark:
            heapq.heappop(self._unreplicated)

    def remove_expired(self, now_ms: int) -> None:
        """Remove the producers that have expired and have no open transaction.

        They expire after `BrokerRules.producer_expiration_ms`, the default of the broker's version.

        Source: Kafka 2.4.0, 3.9.0 ``ProducerStateManager.removeExpiredProducers``.
        """
        limit = self._rules.producer_expiration_ms
        markers_count = self._rules.markers_have_producer_time
        self._entries = {
            producer_id: entry
            for producer_id, entry in self._entries.items()
            if entry.current_txn_first_offset is not None
            or now_ms - entry.last_timestamp(markers_count=markers_count) < limit
        }

    def _follow(self, steps: Iterable[TransactionStep]) -> NDArray[np.void]:
        """Begin and end transactions; return the new entries of the transaction index."""
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
    """The open transactions of all producers, with the oldest first."""

    def __init__(self) -> None:
        self._producer_ids: dict[int, int] = {}
        self._offsets: list[int] = []  # a heap; ended transactions stay until they reach the top

    def items(self) -> ItemsView[int, int]:
        """Return first offsets and producer ids."""
        return self._producer_ids.items()

    def begin(self, first_offset: int, producer_id: int) -> None:
        """Add an open transaction."""
        self._producer_ids[first_offset] = producer_id
        heapq.heappush(self._offsets, first_offset)

    def end(self, first_offset: int) -> None:
        """Remove a decided transaction."""
        self._producer_ids.pop(first_offset, None)
        while self._offsets and self._offsets[0] not in self._producer_ids:
            heapq.heappop(self._offsets)

    def first_offset(self, *, but_not_of: int = -1) -> int | None:
        """Return the first offset of the oldest transaction, except of one producer."""
        if not self._offsets:
            return None
        if self._producer_ids[self._offsets[0]] != but_not_of:
            return self._offsets[0]
        others = (offset for offset, owner in self.items() if owner != but_not_of)
        return min(others, default=None)
