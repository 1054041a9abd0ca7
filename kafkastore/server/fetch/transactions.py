"""The transactions of a partition, as far as its consumers needed them.

A consumer of committed records gets the aborted transactions that overlap what it reads, each with
its first offset, and nothing from the last stable offset on. Both come from the batches: a
transaction index has no checksum, and may lack entries or be missing.

What was read once is kept as a *stretch*: the transactions that were aborted in a range of offsets,
and those open at its end. A consumer that reads on continues its stretch, so that each batch is
read once, and not once a request. The stretch of the log's end begins at the newest producer
snapshot, and continues when the log grows.

A stretch that begins elsewhere does not show where the transactions began that were open there.
Their first offsets are those of the transaction index, if it agrees with the batches. If it does
not, the stretch begins again at the producer snapshot before it, or at the log's first batch.

Source: Kafka 2.4.0 ``Log.addAbortedTransactions``, ``ProducerStateManager``.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import CorruptionError, KafkaStoreError
from kafkastore.formats.records.control_records import ControlRecordType, first_control_record
from kafkastore.formats.records.record_batch import RecordBatch
from kafkastore.formats.state.producer_state import ProducerState
from kafkastore.log.batch_reading import read_batches
from kafkastore.log.damage import CorruptionHandler
from kafkastore.log.isolation import newest_snapshot, replayed, without_producers
from kafkastore.log.log_view import LogView
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.transaction_index_file import TransactionIndex

#: Consumers of a partition that are at different places.
MAX_STRETCHES = 4
#: Aborted transactions that a stretch keeps; older ones are forgotten.
MAX_ABORTED = 10_000
#: Least offsets that are read at once to find how a transaction ended.
_AHEAD_OFFSETS = 1000


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted, up to its marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int


class Stable(NamedTuple):
    """The last stable offset, and the corrupt batch that counts as the log's end."""

    offset: int
    error: CorruptionError | None


class Decided(NamedTuple):
    """The aborted transactions of a range, and where it ends to be decided.

    `end_offset` is before the end of the range if corrupt bytes hide how a transaction ended.
    """

    aborted: list[AbortedTransaction]
    end_offset: int


class _Stretch:
    """What was learned between two offsets; `is_exact` if its start was known.

    `broken` is the corrupt batch that ended it, if it may end at one.
    """

    def __init__(
        self, log: LogView, start: int, producers: ProducerState, *, is_exact: bool
    ) -> None:
        self.start = self.end = start
        self.producers, self.is_exact = producers, is_exact
        self.aborted: list[AbortedTransaction] = []
        self.broken: CorruptionError | None = None
        self.has_skipped = False
        self._log = log

    def learn(self, end_offset: int, damage: CorruptionHandler) -> None:
        """Continue up to an offset, or to a corrupt batch."""
        if self.broken is not None or self.end >= end_offset:
            return
        reading = damage.of_another_read()
        try:
            for found, up_to in replayed(
                self._log, self.producers, self.end, end_offset, verify=True, damage=reading
            ):
                self.aborted += [
                    AbortedTransaction(*each)
                    for each in found[["producer_id", "first_offset", "last_offset"]].tolist()
                ]
                self.end = max(self.end, up_to)
        except CorruptionError as error:
            self.broken = error
        else:
            self.end = max(self.end, end_offset)
        self.has_skipped |= reading.has_skipped

    def learn_until_decided(
        self, start: int, end: int, log_end: int, damage: CorruptionHandler
    ) -> None:
        """Continue until the transactions before `end` have ended, or the log has."""
        self.learn(end, damage)
        ahead = max(end - start, _AHEAD_OFFSETS)
        while self.broken is None and self.end < log_end and self._undecided_before(end):
            self.learn(min(self.end + ahead, log_end), damage)
            ahead *= 2

    def _undecided_before(self, end: int) -> bool:
        undecided = self.producers.first_undecided_offset
        return undecided is not None and undecided < end

    def decided_end(self, end: int) -> int:
        """Return up to where a range is decided; only corrupt bytes leave it undecided."""
        if self.broken is None:
            return end
        undecided = self.producers.first_undecided_offset
        return min(end, self.end if undecided is None else undecided)

    def overlapping(self, start: int, end: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap a range, by their ends."""
        first = bisect_left(self.aborted, start, key=attrgetter("last_offset"))
        return [each for each in self.aborted[first:] if each.first_offset < end]

    def forget(self, before: int) -> None:
        """Forget what no range from an offset on needs, if there is much."""
        if len(self.aborted) > MAX_ABORTED:
            first = bisect_left(self.aborted, before, key=attrgetter("last_offset"))
            self.aborted = self.aborted[first:]
            self.start = before


class KnownTransactions:
    """The transactions of one partition; threads may share them.

    `damage` returns how corrupt bytes are handled.
    """

    def __init__(self, log: LogView, damage: Callable[[], CorruptionHandler]) -> None:
        self._log, self._damage = log, damage
        self._lock = threading.Lock()
        self._stretches: list[_Stretch] = []    # the last used is last
        self._newest: _Stretch | None = None

    def forget(self) -> None:
        """Drop everything: the log has not only grown."""
        with self._lock:
            self._stretches, self._newest = [], None

    def last_stable_offset(self, log_end: int) -> Stable:
        """Return the first offset of the oldest open transaction, or the log end.

        A corrupt batch ends the log, unless it is skipped.
        """
        with self._lock:
            newest = self._newest
            if newest is None or newest.end > log_end:
                newest = self._newest = self._exact(log_end)
            newest.learn(log_end, self._damage())
            newest.forget(newest.end)
            undecided = newest.producers.first_undecided_offset
            end = log_end if newest.broken is None else min(newest.end, log_end)
            stable = end if undecided is None else min(undecided, end)
            return Stable(max(stable, self._log.start_bound.offset), newest.broken)

    def find_aborted(self, start: int, end: int, log_end: int) -> Decided:
        """Find the aborted transactions of a range below the last stable offset."""
        with self._lock:
            stretch = self._stretch_with(start)
            stretch.learn_until_decided(start, end, log_end, self._damage())
            found = stretch.overlapping(start, end)
            if not stretch.is_exact:
                by_index = self._by_index(found, stretch.start, start, end)
                if by_index is None:
                    self._stretches.remove(stretch)
                    stretch = self._exact(start)
                    self._stretches.append(stretch)
                    stretch.learn_until_decided(start, end, log_end, self._damage())
                    by_index = stretch.overlapping(start, end)
                found = by_index
            if stretch.has_skipped:
                found = self._with_index(found, start, end)
            stretch.forget(start)
            return Decided(found, stretch.decided_end(end))

    def _stretch_with(self, start: int) -> _Stretch:
        """Return the stretch that an offset is in or follows, or a new one."""
        for slot, each in enumerate(self._stretches):
            if each.start <= start <= each.end and each.broken is None:
                self._stretches.append(self._stretches.pop(slot))
                return each
        newest = self._newest
        if newest is not None and newest.start <= start and newest.broken is None:
            return newest
        if len(self._stretches) >= MAX_STRETCHES:
            del self._stretches[0]
        made = self._exact(start) if start in self._log.files.producer_snapshots else None
        if made is None or made.start != start:
            made = _Stretch(self._log, start, without_producers(), is_exact=not start)
        self._stretches.append(made)
        return made

    def _exact(self, up_to: int) -> _Stretch:
        """Return a new stretch from the newest producer snapshot up to an offset."""
        start, producers = newest_snapshot(self._log, up_to)
        return _Stretch(self._log, start, producers, is_exact=True)

    def _by_index(
        self, found: list[AbortedTransaction], stretch_start: int, start: int, end: int
    ) -> list[AbortedTransaction] | None:
        """Return the transactions of the indexes; None if batches contradict them."""
        entries = self._index_entries(start, end)
        if not found and entries is None:
            return found    # transactions without a batch in the range make no difference
        read = {(each.producer_id, each.last_offset): each for each in found}
        if entries is None or not read.keys() <= entries.keys():
            return None
        for key, entry in entries.items():
            known, first = read.get(key), entry.first_offset
            if known is not None and first == known.first_offset:
                continue
            begins = 0 <= first < stretch_start and self._may_begin(entry.producer_id, first)
            if not begins or (known is None and not self._is_abort_marker(*key)):
                return None
        return sorted(entries.values(), key=attrgetter("last_offset"))

    def _may_begin(self, producer_id: int, offset: int) -> bool:
        """Return whether no batch contradicts that a transaction began at an offset."""
        found = self._batch_at(offset)
        if found is None:
            return True    # it was deleted
        is_later = found.base_offset > offset    # compaction removed its batch
        return is_later or (found.base_offset, found.producer_id) == (offset, producer_id)

    def _is_abort_marker(self, producer_id: int, offset: int) -> bool:
        """Return whether the batch at an offset is the marker of an aborted transaction."""
        found = self._batch_at(offset)
        if found is None or (found.base_offset, found.producer_id) != (offset, producer_id):
            return False
        try:
            record = first_control_record(found) if found.is_control else None
        except CorruptionError:
            return False
        return record is not None and record.type == ControlRecordType.ABORT

    def _batch_at(self, offset: int) -> RecordBatch | None:
        """Read the batch with an offset, or the next one; None if it can't be read."""
        if not self._log.segments or offset < self._log.segments[0].base_offset:
            return None
        batches = read_batches(self._log, offset, INT64_MAX, copied=True)
        try:
            return next((batch for _, batch, _ in batches), None)
        except CorruptionError:
            return None

    def _index_entries(
        self, start: int, end: int
    ) -> dict[tuple[int, int], AbortedTransaction] | None:
        """Return the entries that overlap a range, by producer and marker, if sound."""
        entries: dict[tuple[int, int], AbortedTransaction] = {}
        for segment in self._log.segments_between(start, INT64_MAX):
            index = self._index_of(segment)
            if index is None:
                return None
            found, is_complete = index.collect_aborted_txns(start, end)
            for each in found[["producer_id", "first_offset", "last_offset"]].tolist():
                entries[each[0], each[2]] = AbortedTransaction(*each)
            if is_complete:
                break
        return entries

    def _index_of(self, segment: LogSegment) -> TransactionIndex | None:
        """Return a segment's index, which is kept until `refresh`; None: not sound."""
        key = "transaction index", segment.base_offset
        if key not in self._log.facts:
            try:
                index = segment.transaction_index
                index.check()
                is_sound = index.first_disorder() < 0
                self._log.facts[key] = index if is_sound else None
            except (KafkaStoreError, OSError):
                self._log.facts[key] = None
        known: TransactionIndex | None = self._log.facts[key]
        return known

    def _with_index(
        self, found: list[AbortedTransaction], start: int, end: int
    ) -> list[AbortedTransaction]:
        """Add what the indexes have: a marker was skipped, which decided a transaction."""
        entries = self._index_entries(start, end) or {}
        read = {(each.producer_id, each.last_offset): each for each in found}
        return sorted((entries | read).values(), key=attrgetter("last_offset"))
