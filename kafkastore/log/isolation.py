"""Find the last stable offset and aborted batches, for ``read_committed``.

Both come from the batches themselves: those of the requested range, and those after the newest
producer snapshot.  Transaction indexes have no checksum, and a crash or a copy may lose entries or
files; they count only where markers can't be read.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from kafkastore.arguments import INT64_MAX, check_choice
from kafkastore.errors import CorruptCheckpointError, CorruptionError
from kafkastore.formats.indexes.transaction_index import ABORTED_TXN
from kafkastore.formats.records.batch_header import is_control
from kafkastore.formats.records.control_records import ControlRecord, first_control_record
from kafkastore.formats.records.record_batch import RecordBatch
from kafkastore.formats.state import producer_snapshot
from kafkastore.formats.state.aborted_batches import AbortedBatches
from kafkastore.formats.state.file_names import (
    PRODUCER_SNAPSHOT_SUFFIX,
    segment_file_name,
)
from kafkastore.formats.state.producer_state import ProducerState
from kafkastore.log.damage import CorruptionHandler, OnCorrupt
from kafkastore.log.log_view import LogView
from kafkastore.log.range_scan import RangeScan
from kafkastore.segment.log_file import BatchRun
from kafkastore.segment.small_file import read_if_there

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


#: The values of a consumer's ``isolation.level``.
Isolation = Literal["read_uncommitted", "read_committed"]
_ISOLATIONS: tuple[Isolation, ...] = get_args(Isolation)


class Committed(NamedTuple):
    """The last stable offset, and the aborted batches below it.

    If `broken` is set, the log counts as ending at that corrupt batch.
    """

    last_stable_offset: int
    aborted: AbortedBatches
    broken: CorruptionError | None = None


def reads_committed(isolation: str) -> bool:
    """Return whether `isolation` is "read_committed"; raise if it is unknown."""
    return check_choice("isolation", isolation, _ISOLATIONS) == "read_committed"


def find_committed(
    log: LogView,
    start_offset: int,
    end_offset: int,
    *,
    verify: bool = True,
    until_broken: bool = False,
    damage: CorruptionHandler | None = None,
) -> Committed:
    """Find the last stable offset, and the aborted batches of a range of offsets.

    A corrupt batch raises; with `until_broken` the log ends there. If `damage` skips a marker, its
    transaction counts as open, or before the newest snapshot as the transaction indexes say.

    Source: Kafka 2.4.0 ``ProducerStateManager.firstUnstableOffset``.
    """
    damage = CorruptionHandler() if damage is None else damage
    # The replay notes what it skips.
    choice: OnCorrupt = "stop" if until_broken else damage.on_corrupt
    log_end = log.end_offset(choice, skipped=[])
    start, producers = newest_snapshot(log, log_end)
    newest = _Replay(log, producers, verify, until_broken, damage.of_another_read())
    newest.read(start, INT64_MAX)
    undecided = producers.first_undecided_offset
    stable = newest.end_offset if undecided is None else undecided
    if start <= start_offset:
        return Committed(stable, AbortedBatches(newest.aborted_txns), newest.broken)
    asked = _Replay(log, without_producers(), verify, until_broken, damage.of_another_read())
    asked.read_decided(start_offset, min(end_offset, stable), log_end)
    if asked.broken is not None or asked.damage.has_stopped:
        undecided = asked.producers.first_undecided_offset
        stable = min(stable, asked.end_offset if undecided is None else undecided)
        return Committed(stable, AbortedBatches(asked.aborted_txns), asked.broken)
    if asked.damage.has_skipped:
        found = _by_index(log, start_offset, end_offset, asked, newest)
        return Committed(stable, found, newest.broken)
    return Committed(stable, AbortedBatches(asked.aborted_txns), newest.broken)


def find_aborted(
    log: LogView, start_offset: int, end_offset: int, *, verify: bool = True
) -> AbortedBatches:
    """Find the aborted batches in a range up to the last stable offset at most.

    Of a transaction that begins before the range, the first offset is the first in it.
    """
    asked = _Replay(log, without_producers(), verify, False, CorruptionHandler())
    asked.read_decided(start_offset, end_offset, log.log_end_offset)
    return AbortedBatches(asked.aborted_txns)


def first_undecided_offset(log: LogView, end_offset: int) -> int | None:
    """Return where the oldest transaction open at `end_offset` begins, or None.

    Markers at or after `end_offset` are ignored.
    """
    return producers_at(log, end_offset).first_undecided_offset


def producers_at(log: LogView, end_offset: int) -> ProducerState:
    """Return the state of producers after the batches before an offset."""
    start, producers = newest_snapshot(log, end_offset)
    replay(log, producers, start, end_offset)
    return producers


def _by_index(
    log: LogView, start_offset: int, end_offset: int, asked: _Replay, newest: _Replay
) -> AbortedBatches:
    """Find aborted batches by transaction indexes, or by replays without these.

    Source: Kafka 2.4.0 ``Log.collectAbortedTransactions``.
    """
    scanned, found = asked.aborted_txns, []
    # Also after `end_offset`: a later segment may contain the marker of a transaction.
    for segment in log.segments_between(start_offset, INT64_MAX):
        if segment.transaction_index_path.name in log.files:
            segment.transaction_index.check()
            found.append(segment.transaction_index.entries())
        else:
            is_here = scanned["last_offset"] >= segment.base_offset
            if segment.next_base_offset is not None:
                is_here &= scanned["last_offset"] < segment.next_base_offset
            found.append(scanned[is_here])
        if len(found[-1]) and found[-1]["last_stable_offset"][-1] >= end_offset:
            break
    return AbortedBatches(np.concatenate([*found, newest.aborted_txns]))


class _Replay:
    """Batches of a log, applied to producers; `end_offset` is how far it came.

    `broken` is the corrupt batch at which it ended, if it may end at one; otherwise that raises.
    """

    def __init__(
        self,
        log: LogView,
        producers: ProducerState,
        verify: bool,
        until_broken: bool,
        damage: CorruptionHandler,
    ) -> None:
        self.producers, self.damage = producers, damage
        self.end_offset = 0
        self.broken: CorruptionError | None = None
        self._log, self._verify, self._until_broken = log, verify, until_broken
        self._aborted = [np.empty(0, ABORTED_TXN)]

    @property
    def aborted_txns(self) -> NDArray[np.void]:
        """The aborted transactions so far (ABORTED_TXN)."""
        return np.concatenate(self._aborted)

    def read(self, start: int, end: int) -> None:
        """Apply the batches of a range of offsets."""
        self.end_offset = start
        try:
            for found, up_to in replayed(
                self._log, self.producers, start, end, verify=self._verify, damage=self.damage
            ):
                self._aborted.append(found)
                self.end_offset = up_to
        except CorruptionError as error:
            if not self._until_broken:
                raise
            self.broken = error

    def read_decided(self, start_offset: int, end_offset: int, log_end: int) -> None:
        """Apply a range, and what follows it until the transactions in it are decided.

        Of what is before it, only the batch that contains the start counts.
        """
        start, end = start_offset, end_offset
        while True:
            self.read(start, end)
            undecided = self.producers.first_undecided_offset
            if undecided is None or undecided >= end_offset or end >= log_end:
                return
            if self.broken is not None or self.damage.has_stopped:
                return
            start = max(end, self.end_offset)
            end = min(end + max(end - start_offset, 1), log_end)


def without_producers() -> ProducerState:
    """Return an empty state in which markers count immediately, replicated or not."""
    producers = ProducerState()
    producers.on_high_watermark(INT64_MAX)
    return producers


def replay(
    log: LogView, producers: ProducerState, start: int, end_offset: int, *, verify: bool = True
) -> None:
    """Apply batches to `producers`.

    A batch that contains the start is applied, the end is exclusive. A corrupt batch raises
    `CorruptionError`.
    """
    for _ in replayed(log, producers, start, end_offset, verify=verify):
        pass


def replayed(
    log: LogView,
    producers: ProducerState,
    start: int,
    end_offset: int,
    *,
    verify: bool,
    damage: CorruptionHandler | None = None,
) -> Iterator[tuple[NDArray[np.void], int]]:
    """Do as `replay`; yield aborted transactions, and the offset reached.

    Batches before a corrupt one are applied before the error is raised.
    """
    scan = RangeScan(log, start, end_offset, damage)
    next_offset = start
    for segment, run, headers, _ in scan.runs(verify_crc=verify):
        first, last = headers["base_offset"], headers["last_offset"]
        offsets = np.where(first < 0, last, first)  # a wrapper message has only a last offset
        within = (last >= scan.first_offset) & (offsets < end_offset)
        first_slot: int | None = 0
        while first_slot is not None:
            controls, broken_slot, broken = _controls_of(run, within, first_slot)
            replayed = headers[first_slot:broken_slot][within[first_slot:broken_slot]]
            if len(replayed):
                next_offset = int(replayed["last_offset"][-1]) + 1
            yield producers.replay(replayed, controls), next_offset
            first_slot = None
            if broken is not None and broken_slot is not None:
                scan.damage.skip_batch(broken, segment, headers[broken_slot])
                if scan.damage.has_stopped:
                    return
                first_slot = broken_slot + 1


def _controls_of(
    run: BatchRun, within: NDArray[np.bool_], first_slot: int
) -> tuple[list[ControlRecord | None], int | None, CorruptionError | None]:
    """Decode control records from a slot on; return them, and the first broken one."""
    controls: list[ControlRecord | None] = []
    slots = np.flatnonzero(is_control(run.headers) & within)
    for slot in slots[slots >= first_slot].tolist():
        batch = RecordBatch(run.batch(slot), int(run.headers["position"][slot]))
        try:
            controls.append(first_control_record(batch))
        except CorruptionError as error:
            return controls, slot, error
    return controls, None, None


def newest_snapshot(log: LogView, up_to: int) -> tuple[int, ProducerState]:
    """Return the newest valid producer snapshot at or below `up_to`: offset, state.

    Without one: the log's first offset and an empty state. A transaction is dropped when it ends,
    without waiting for its replication.
    """
    start, producers = log.segments[0].base_offset if log.segments else 0, without_producers()
    for offset in reversed(log.files.producer_snapshots):
        if offset > up_to:
            continue
        path = log.path / segment_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX)
        try:
            data = read_if_there(path, CorruptCheckpointError)
            if data is not None:
                start, producers = offset, ProducerState(producer_snapshot.parse(data))
                break
        except CorruptionError:
            continue  # as a broker does: an older snapshot only takes longer
    producers.on_high_watermark(INT64_MAX)
    return start, producers
