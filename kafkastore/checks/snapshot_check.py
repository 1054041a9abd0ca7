"""Check producer snapshots against the batches of the log.

Only differences that the log proves are reported. A snapshot may contain producers that the log no
longer has, because retention and compaction remove batches. It may lack producers that expired,
but none with an open transaction. Of a restored log, it has no last batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkastore.checks.findings import Finding, FindingKind, command
from kafkastore.errors import CorruptCheckpointError, KafkaStoreError
from kafkastore.formats.state import producer_snapshot
from kafkastore.formats.state.file_names import PRODUCER_SNAPSHOT_SUFFIX, segment_file_name
from kafkastore.formats.state.producer_state import ProducerState
from kafkastore.segment.small_file import read_if_there
from kafkastore.store.partition_log import PartitionLog

#: For at most this many producers that are not in the log, their offsets are looked up.
_MOST_LOOKED_UP = 64


class SnapshotCheck:
    """The check of one partition's snapshots, in step with the check of its segments."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._left = deque(log.files.producer_snapshots)

    def below_first_segment(self, base_offset: int) -> Iterator[Finding]:
        """Report snapshots below the base offset of the first segment."""
        while self._left and self._left[0] < base_offset:
            yield self._outside(self._left.popleft(), f"the log begins at offset {base_offset}")

    def after_segment(
        self, next_offset: int | None, end: int | None, state: ProducerState | None
    ) -> Iterator[Finding]:
        """Check the snapshots up to `end`, the next base offset, inclusive.

        `next_offset` is the offset after the last batch so far, None if unknown; `end` is None
        after the last segment; `state` is None if the log has no producers so far.
        """
        while self._left and (end is None or self._left[0] <= end):
            offset = self._left.popleft()
            if end is None and next_offset is not None and offset > next_offset:
                yield self._outside(offset, f"the log ends at offset {next_offset}")
                continue
            is_known = next_offset is not None and offset >= next_offset
            yield from self._check(offset, state, is_known=is_known)

    def _path(self, offset: int) -> Path:
        return self._log.path / segment_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX)

    def _outside(self, offset: int, why: str) -> Finding:
        what = f"producer snapshot of offset {offset}, but {why}"
        return Finding(FindingKind.PRODUCER_SNAPSHOT_OUTSIDE_LOG, self._path(offset), None, what)

    def _check(
        self, offset: int, state: ProducerState | None, *, is_known: bool
    ) -> Iterator[Finding]:
        path = self._path(offset)
        try:
            data = read_if_there(path, CorruptCheckpointError)
            if data is None:
                return  # deleted after the listing
            entries = producer_snapshot.parse(data)
        except CorruptCheckpointError as error:
            yield Finding(
                FindingKind.CORRUPT_PRODUCER_SNAPSHOT, path, error.position, error.reason,
                command("repair", self._log.path),
            )
            return
        too_new = np.flatnonzero(entries["last_offset"] >= offset)
        if len(too_new):
            entry = entries[too_new[0]]
            yield self._wrong(
                path,
                int(too_new[0]),
                f"producer {entry['producer_id']} has its last batch at offset "
                f"{entry['last_offset']}, and the snapshot is of offset {offset}",
                len(too_new),
            )
        elif is_known:
            of_log = entries[:0] if state is None else state.entries()
            yield from self._compare(path, entries, of_log)

    def _compare(
        self, path: Path, entries: NDArray[np.void], of_log: NDArray[np.void]
    ) -> Iterator[Finding]:
        """Report the first producer whose entry the log contradicts.

        A producer that is only in the snapshot is wrong if another producer wrote its last batch;
        one that is only in the log, if it has an open transaction.
        """
        _, here, there = np.intersect1d(
            entries["producer_id"], of_log["producer_id"], return_indices=True
        )
        differing = [
            (int(slot), said)
            for slot, other in zip(here, there, strict=True)
            if (said := self._difference(entries[slot], of_log[other])) is not None
        ]
        unknown = np.flatnonzero(~np.isin(entries["producer_id"], of_log["producer_id"]))
        differing += [
            (int(slot), said)
            for slot in unknown[:_MOST_LOOKED_UP]
            if (said := self._written_by_another(entries[slot])) is not None
        ]
        is_missing = ~np.isin(of_log["producer_id"], entries["producer_id"])
        differing += [
            (len(entries), _missing(entry))
            for entry in of_log[is_missing & (of_log["current_txn_first_offset"] >= 0)]
        ]
        if differing:
            slot, said = min(differing)
            yield self._wrong(path, slot, said, len(differing))

    def _difference(self, entry: Any, of_log: Any) -> str | None:
        """Return how a snapshot contradicts the log about one producer, or None."""
        who = f"producer {entry['producer_id']}"
        last_offset, in_log = int(entry["last_offset"]), int(of_log["last_offset"])
        if in_log < 0:
            return None  # only the marker of its transaction is left
        begin = int(entry["current_txn_first_offset"])
        begin_in_log = int(of_log["current_txn_first_offset"])
        if last_offset < 0 and entry["last_sequence"] < 0 and 0 <= begin == begin_in_log:
            return None  # as a restored log has it
        if last_offset < in_log and entry["producer_epoch"] <= of_log["producer_epoch"]:
            return f"{who} has its last batch at offset {last_offset}, in the log at {in_log}"
        if last_offset > in_log:
            return self._written_by_another(entry)
        if last_offset == in_log:
            for name in ("producer_epoch", "last_sequence"):
                if entry[name] != of_log[name]:
                    said = name.replace("_", " ")
                    return f"{who} has {said} {entry[name]}, in the log {of_log[name]}"
            # Compaction may have removed the first batch of a transaction since.
            if (begin < 0) != (begin_in_log < 0) or begin > begin_in_log:
                return (
                    f"{who} has {_transaction(begin)}, in the log {_transaction(begin_in_log)} "
                    "before the snapshot's offset"
                )
        return None

    def _written_by_another(self, entry: Any) -> str | None:
        """Return who else wrote the producer's last batch; None if the producer did."""
        producer_id, last_offset = int(entry["producer_id"]), int(entry["last_offset"])
        other = self._producer_at(last_offset) if last_offset >= 0 else None
        if other is None or other == producer_id:
            return None  # removed by compaction or retention, or a marker
        whom = "no producer" if other < 0 else other
        return (
            f"producer {producer_id} has its last batch at offset {last_offset}, which {whom} wrote"
        )

    def _producer_at(self, offset: int) -> int | None:
        """Return the producer id of the batch with an offset, if readable."""
        try:
            for segment in self._log.segments_between(offset, offset + 1):
                found = segment.translate_offset(offset)
                if found is None:
                    continue
                with segment.open_log() as log:
                    header = log.header_at(found.position)
                if header is not None and 0 <= header["base_offset"] <= offset:
                    return int(header["producer_id"])
        except (KafkaStoreError, OSError):
            pass  # the check of the segment reports it
        return None

    def _wrong(self, path: Path, slot: int, what: str, count: int) -> Finding:
        more = f"; {count - 1} more differ" if count > 1 else ""
        return Finding(
            FindingKind.PRODUCER_SNAPSHOT_MISMATCH, path,
            producer_snapshot.ENTRIES_AT + slot * producer_snapshot.ENTRY_SIZE,
            f"the snapshot differs from the log: {what}{more}",
            command("repair", self._log.path),
        )


def _transaction(first_offset: int) -> str:
    """Name the open transaction that begins at an offset; below 0 for none."""
    return "no open transaction" if first_offset < 0 else (
        f"an open transaction from offset {first_offset} on"
    )


def _missing(of_log: Any) -> str:
    """Say that a producer with an open transaction is missing."""
    first_offset = int(of_log["current_txn_first_offset"])
    return (
        f"producer {of_log['producer_id']} is missing, which has {_transaction(first_offset)} in "
        "the log"
    )
