"""Find the last stable offset and aborted batches, for ``read_committed``.

Transaction indexes list aborted transactions.  The batches themselves are scanned after the newest
producer snapshot, where a crash may have lost index entries, and from the first segment without an
index: a broker writes no index if nothing was aborted, and a copy may have lost one.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from kafkastore.arguments import INT64_MAX, check_choice
from kafkastore.errors import CorruptCheckpointError, CorruptionError
from kafkastore.formats.indexes.transaction_index import ABORTED_TXN
from kafkastore.formats.records.control_records import ControlRecord, first_control_record
from kafkastore.formats.records.record_batch import RecordBatch
from kafkastore.formats.state import producer_snapshot
from kafkastore.formats.state.file_names import (
    PRODUCER_SNAPSHOT_SUFFIX,
    segment_file_name,
)
from kafkastore.formats.state.producer_state import ProducerState
from kafkastore.formats.state.transactions import AbortedBatches, is_control
from kafkastore.log.batch_reading import read_batches
from kafkastore.log.damage import CorruptionHandler, OnCorrupt
from kafkastore.log.log_view import LogView
from kafkastore.log.range_scan import RangeScan
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

    A corrupt transaction index raises. A corrupt scanned batch raises too, unless `until_broken`:
    then the log ends there. A transaction whose marker `damage` skips counts as open.
    Source: Kafka 2.4.0 ``Log.collectAbortedTransactions``,
    ``ProducerStateManager.firstUnstableOffset``.
    """
    damage = CorruptionHandler() if damage is None else damage.of_another_read()
    # The replay notes what it skips.
    choice: OnCorrupt = "stop" if until_broken else damage.on_corrupt
    first_to_replay = log_end = log.end_offset(choice, skipped=[])
    aborted = []
    # Also after `end_offset`: a later segment may contain the marker of a transaction.
    for segment in log.segments_between(start_offset, log_end):
        if segment.transaction_index_path.name not in log.files:
            first_to_replay = segment.base_offset
            break
        index = segment.transaction_index
        index.check()
        found = index.collect_aborted_txns(start_offset, end_offset)
        aborted.append(found.aborted_txns)
        if found.is_complete:
            break
    start, producers = newest_snapshot(log, first_to_replay)
    end, broken = start, None
    try:
        for found_here, up_to in _replayed(
            log, producers, start, INT64_MAX, verify=verify, damage=damage
        ):
            aborted.append(found_here)
            end = up_to
    except CorruptionError as error:
        if not until_broken:
            raise
        broken = error
    undecided = producers.first_undecided_offset
    return Committed(
        end if undecided is None else undecided, AbortedBatches(_joined(aborted)), broken
    )


def find_aborted(log: LogView, start_offset: int, end_offset: int) -> AbortedBatches:
    """Find the aborted batches in a range up to the last stable offset at most.

    Nothing before the range is scanned, because only batches inside it count; and nothing after the
    last marker that counts, because that may be incomplete.
    """
    producers, aborted = ProducerState(), []
    producers.on_high_watermark(INT64_MAX)
    first = next(read_batches(log, start_offset, start_offset + 1, copied=True), None)
    start = start_offset if first is None else min(first[1].base_offset, start_offset)
    end, log_end = end_offset, log.log_end_offset
    while True:
        aborted += replay(log, producers, start, end, verify=False)
        undecided = producers.first_undecided_offset
        if undecided is None or undecided >= end_offset or end >= log_end:
            return AbortedBatches(_joined(aborted))
        start, end = end, min(end + max(end - start_offset, 1), log_end)


def first_undecided_offset(log: LogView, end_offset: int) -> int | None:
    """Return where the oldest transaction open at `end_offset` begins, or None.

    Markers at or after `end_offset` are ignored.
    """
    start, producers = newest_snapshot(log, end_offset)
    replay(log, producers, start, end_offset)
    return producers.first_undecided_offset


def _joined(parts: list[NDArray[np.void]]) -> NDArray[np.void]:
    return np.concatenate([np.empty(0, ABORTED_TXN), *parts])


def replay(
    log: LogView, producers: ProducerState, start: int, end_offset: int, *, verify: bool = True
) -> list[NDArray[np.void]]:
    """Apply batches to `producers`; return the aborted transactions.

    The start is inclusive, the end exclusive; a corrupt batch raises `CorruptionError`.
    """
    return [found for found, _ in _replayed(log, producers, start, end_offset, verify=verify)]


def _replayed(
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
        within = (offsets >= scan.first_offset) & (offsets < end_offset)
        controls: list[ControlRecord | None] = []
        broken = None
        for index in np.flatnonzero(is_control(headers) & within).tolist():
            batch = RecordBatch(run.batch(index), int(headers["position"][index]))
            try:
                controls.append(first_control_record(batch))
            except CorruptionError as error:
                broken = error
                within[index:] = False
                break
        replayed = headers[within]
        if len(replayed):
            next_offset = int(replayed["last_offset"][-1]) + 1
        yield producers.replay(replayed, controls), next_offset
        if broken is not None:
            scan.damage.skip_batch(broken, segment, headers[index])
            if scan.damage.has_stopped:
                return


def newest_snapshot(log: LogView, up_to: int) -> tuple[int, ProducerState]:
    """Return the newest valid producer snapshot at or below `up_to`: offset, state.

    Without one: the log's first offset and an empty state. A transaction is dropped when it ends,
    without waiting for its replication.
    """
    start, producers = log.segments[0].base_offset if log.segments else 0, ProducerState()
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
