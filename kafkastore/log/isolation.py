"""What a reader of committed records gets: where the log is decided, and what was aborted before.

The transaction indexes say what was aborted.  Behind the newest producer snapshot, where a crash
may have cost them entries, and from the first segment on that has none, the batches themselves are
gone over: a broker makes no index where nothing was aborted, and a copy may have lost one.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from kafkastore.arguments import INT64_MAX
from kafkastore.errors import CorruptCheckpointError, CorruptionError
from kafkastore.formats import producer_snapshot
from kafkastore.formats.control_records import ControlRecord, first_control_record
from kafkastore.formats.file_names import (
    PRODUCER_SNAPSHOT_SUFFIX,
    segment_file_name,
)
from kafkastore.formats.producer_state import ProducerState
from kafkastore.formats.record_batch import RecordBatch
from kafkastore.formats.transaction_index import ABORTED_TXN
from kafkastore.formats.transactions import AbortedBatches, is_control
from kafkastore.log.damage import Damage
from kafkastore.log.range_scan import RangeScan
from kafkastore.segment.small_file import read_if_there

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkastore.log.partition_log import PartitionLog


#: As Kafka's consumer names them.
Isolation = Literal["read_uncommitted", "read_committed"]


class Committed(NamedTuple):
    """What is decided in a range of offsets.

    Parameters
    ----------
    last_stable_offset : int
        First offset of the oldest transaction that is open, or the log end offset.
    aborted : AbortedBatches
        Knows the batches below it that were aborted.
    broken : CorruptionError or None
        Why nothing is known of what comes then: the log counts as ending there.
    """

    last_stable_offset: int
    aborted: AbortedBatches
    broken: CorruptionError | None = None


def reads_committed(isolation: str) -> bool:
    """Tell which isolation a caller named.

    Raises
    ------
    ValueError
        If it is none of `Isolation`.
    """
    if isolation not in ("read_uncommitted", "read_committed"):
        raise ValueError(
            f"isolation is 'read_uncommitted' or 'read_committed', not {isolation!r}"
        )
    return isolation == "read_committed"


def find_committed(
    log: PartitionLog,
    start_offset: int,
    end_offset: int,
    *,
    verify: bool = True,
    until_broken: bool = False,
    damage: Damage | None = None,
) -> Committed:
    """Find what is decided from one offset to another.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    start_offset, end_offset : int
        Inclusive, exclusive.
    verify : bool
        Check the checksums of the batches that are gone over.
    until_broken : bool
        Take a corrupt batch for the log's end: the reader raises it when it gets there.
    damage : Damage, optional
        What to do at corrupt bytes. A transaction whose marker is skipped counts as open.

    Returns
    -------
    Committed

    Raises
    ------
    CorruptionError
        If a transaction index, or a batch that is gone over, is broken: what was aborted behind it
        is then not known.

    Notes
    -----
    Source: Kafka 2.4.0 ``Log.collectAbortedTransactions``,
    ``ProducerStateManager.firstUnstableOffset``.
    """
    damage = Damage() if damage is None else damage.of_another_read()
    first_to_replay = log_end = log.end_offset("stop" if until_broken else damage.on_corrupt)
    aborted = []
    # Also behind the end: the marker of a transaction may lie in a later segment.
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


def find_aborted(log: PartitionLog, start_offset: int, end_offset: int) -> AbortedBatches:
    """Find what was aborted in a range of offsets of which all is decided.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    start_offset, end_offset : int
        Inclusive, exclusive; the end is at most the last stable offset.

    Returns
    -------
    AbortedBatches
        Knows the batches of the range that were aborted.

    Notes
    -----
    Of a transaction that began before the range only its batches within count, so nothing before
    is gone over; and nothing behind the last marker that counts, for that may not be whole.
    """
    producers, aborted = ProducerState(), []
    producers.on_high_watermark(INT64_MAX)
    first = next(log.batches(start_offset, start_offset + 1), None)
    start = start_offset if first is None else min(first.base_offset, start_offset)
    end, log_end = end_offset, log.log_end_offset
    while True:
        aborted += replay(log, producers, start, end, verify=False)
        undecided = producers.first_undecided_offset
        if undecided is None or undecided >= end_offset or end >= log_end:
            return AbortedBatches(_joined(aborted))
        start, end = end, min(end + max(end - start_offset, 1), log_end)


def first_undecided_offset(log: PartitionLog, end_offset: int) -> int | None:
    """Find where the oldest transaction begins that was open at an offset.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    end_offset : int
        Exclusive; markers at or behind it are not looked at.

    Returns
    -------
    int or None
        None if no transaction was open.
    """
    start, producers = newest_snapshot(log, end_offset)
    replay(log, producers, start, end_offset)
    return producers.first_undecided_offset


def _joined(parts: list[NDArray[np.void]]) -> NDArray[np.void]:
    return np.concatenate([np.empty(0, ABORTED_TXN), *parts])


def replay(
    log: PartitionLog, producers: ProducerState, start: int, end_offset: int, *, verify: bool = True
) -> list[NDArray[np.void]]:
    """Go over batches, and take them into what is known of their producers.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    producers : ProducerState
        As it was at the start.
    start, end_offset : int
        Inclusive, exclusive.
    verify : bool
        Check the batches' checksums.

    Returns
    -------
    list of numpy.ndarray of ABORTED_TXN
        What was aborted.

    Raises
    ------
    CorruptionError
        If a batch is broken.
    """
    return [found for found, _ in _replayed(log, producers, start, end_offset, verify=verify)]


def _replayed(
    log: PartitionLog,
    producers: ProducerState,
    start: int,
    end_offset: int,
    *,
    verify: bool,
    damage: Damage | None = None,
) -> Iterator[tuple[NDArray[np.void], int]]:
    """Do what `replay` does; yield what aborted, and the offset up to which all went through.

    What lies before a broken batch has been taken in when that is raised.
    """
    scan = RangeScan(log, start, end_offset, damage)
    next_offset = start
    for segment, run, headers, _ in scan.runs(verify_crc=verify):
        first, last = headers["base_offset"], headers["last_offset"]
        offsets = np.where(first < 0, last, first)  # of a wrapper only the last is known
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


def newest_snapshot(log: PartitionLog, up_to: int) -> tuple[int, ProducerState]:
    """Read the newest whole producer snapshot up to an offset.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    up_to : int
        Inclusive.

    Returns
    -------
    (int, ProducerState)
        Its offset, and what was known there; without one the log's first, and nothing. Transactions
        that end are forgotten at once, and not kept until they are replicated.
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
            continue  # as a broker does: an older one is as good, and takes longer
    producers.on_high_watermark(INT64_MAX)
    return start, producers
