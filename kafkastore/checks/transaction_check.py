"""Check the transaction index of one segment against the markers in its log.

A valid entry keeps three promises: the marker at its last offset aborts a transaction of its
producer; no batch of that transaction is before its first offset; every transaction that began
below its last stable offset had ended. If a transaction began before the part that was read, or
compaction removed its batches, the log does not contain all of it: fewer checks apply to its entry.

Source: Kafka 2.4.0 ``TransactionIndex``, ``ProducerStateManager``, ``CleanedTransactionMetadata``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kafkastore.arguments import INT64_MAX
from kafkastore.checks.findings import Finding, FindingKind, command, no_file
from kafkastore.errors import CorruptIndexError, CorruptionError, NotAFileError
from kafkastore.formats.indexes.transaction_index import ENTRY_SIZE
from kafkastore.formats.records.batch_header import is_control
from kafkastore.formats.records.control_records import (
    ControlRecord,
    ControlRecordType,
    first_control_record,
)
from kafkastore.formats.records.record_batch import RecordBatch
from kafkastore.formats.state.producer_state import ProducerState

if TYPE_CHECKING:
    from kafkastore.formats.records.batch_sequence import BatchSequence
    from kafkastore.log.parallel.runs_ahead import HeaderRun
    from kafkastore.segment.log_file import BatchRun
    from kafkastore.segment.log_segment import LogSegment
    from kafkastore.segment.transaction_index_file import TransactionIndex


class TransactionCheck:
    """The check of a transaction index, in step with the pass over the log.

    `before` is the previous segment's complete check or None. `producers` is None before a producer
    id; transactions from before `known_from`, or with `has_gaps`, may be unknown.
    """

    def __init__(self, segment: LogSegment, before: TransactionCheck | None) -> None:
        self.segment = segment
        self.producers: ProducerState | None = None if before is None else before.producers
        self.known_from: int = segment.base_offset if before is None else before.known_from
        self.has_gaps: bool = before is not None and before.has_gaps
        self._is_own = False
        self._has_damage = False
        self._aborted: list[NDArray[np.void]] = []
        self._abort_markers: dict[int, int] = {}
        self._bad_marker: CorruptionError | None = None

    def append(self, run: BatchRun | HeaderRun, count: int) -> None:
        """Continue with the first batches of a run, some of which have producer ids."""
        headers = run.headers[:count]
        asked = headers[(headers["producer_id"] >= 0) & (headers["magic"] == 2)]
        if not self._is_own:  # the state belongs to the previous segment's check
            entries = None if self.producers is None else self.producers.entries()
            self.producers, self._is_own = ProducerState(entries), True
        assert self.producers is not None
        controls = []
        if (is_control(asked)).any():
            markers = is_control(headers) & (headers["producer_id"] >= 0)
            controls = [self._control(run, index) for index in np.flatnonzero(markers).tolist()]
        aborted = self.producers.replay(asked, controls)
        if len(aborted):
            self._aborted.append(aborted)
        # Frees the transactions that wait for replication, which are not needed here.
        self.producers.on_high_watermark(int(headers["last_offset"][-1]) + 1)

    def _control(self, run: BatchRun | HeaderRun, index: int) -> ControlRecord | None:
        """Parse a marker; record it if it aborts a transaction."""
        header = run.headers[index]
        try:
            batch = RecordBatch(bytes(run.batch(index)), int(header["position"]))
            control = first_control_record(batch)
        except CorruptionError as error:
            self._bad_marker = self._bad_marker or error
            return None
        if control is not None and control.type == ControlRecordType.ABORT:
            self._abort_markers[int(header["last_offset"])] = int(header["producer_id"])
        return control

    def skip(self, next_offset: int) -> None:
        """Record that batches before an offset are unreadable."""
        self.known_from, self._has_damage = next_offset, True

    def findings(self, log: BatchSequence) -> Iterator[Finding]:
        """Yield the findings, after the whole log was read."""
        self.has_gaps = self.has_gaps or log.has_gaps
        if self._bad_marker is not None:
            yield Finding(
                FindingKind.CORRUPT_TRANSACTION_MARKER, self.segment.log_path,
                self._bad_marker.position,
                f"a transaction marker can't be read: {self._bad_marker.reason}",
                "keep a copy of the partition before a broker starts here",
            )
        try:
            index = self.segment.transaction_index
            entries = index.entries()
        except NotAFileError as error:
            yield no_file(error)
            return
        except CorruptIndexError as error:
            yield self._finding(
                FindingKind.CORRUPT_TRANSACTION_INDEX, error.position, error.reason
            )
            return
        if index.size % ENTRY_SIZE:
            yield self._finding(
                FindingKind.INCOMPLETE_TRANSACTION_INDEX_ENTRY,
                index.size - index.size % ENTRY_SIZE,
                f"the size of {index.size} bytes is not a multiple of the entry size {ENTRY_SIZE}",
            )
        if len(entries) or self._aborted:
            in_log = self._in_log()
            yield from self._false_entries(index, entries, in_log, log)
            yield from self._missing_entries(entries, in_log)

    def _false_entries(
        self,
        index: TransactionIndex,
        entries: NDArray[Any],
        in_log: dict[int, Any],
        log: BatchSequence,
    ) -> Iterator[Finding]:
        """Report the first invalid entry."""
        disorder = index.first_disorder()
        later_begin = np.append(self._begins(entries), INT64_MAX)[::-1]
        later_begin = np.minimum.accumulate(later_begin)[::-1][1:]
        for slot in range(len(entries)):
            entry = entries[slot]
            wrong = (
                (FindingKind.OUT_OF_ORDER_TRANSACTION_INDEX, "breaks the order of entries")
                if slot == disorder
                else self._problem(entry, int(later_begin[slot]), in_log, log)
            )
            if wrong is not None:
                kind, what = wrong
                yield self._finding(
                    kind,
                    slot * ENTRY_SIZE,
                    f"transaction index entry {slot} (producer {entry['producer_id']}, offsets "
                    f"{entry['first_offset']} to {entry['last_offset']}, last stable offset "
                    f"{entry['last_stable_offset']}) {what}",
                )
                return

    def _begins(self, entries: NDArray[Any]) -> NDArray[Any]:
        """Return the first offset of each entry's transaction, or INT64_MAX."""
        ends = [self._abort_markers.get(last) for last in entries["last_offset"].tolist()]
        is_false = np.array([end is None for end in ends], bool) & (not self._has_damage)
        is_false[1:] |= entries["last_offset"][1:] == entries["last_offset"][:-1]
        return np.where(is_false, INT64_MAX, entries["first_offset"])

    def _problem(
        self, entry: Any, later_begin: int, in_log: dict[int, Any], log: BatchSequence
    ) -> tuple[FindingKind, str] | None:
        """Return what is wrong with an entry; None if it is valid."""
        producer_id, first, last, stable = entry.tolist()
        if self._abort_markers.get(last) != producer_id:
            if self._has_damage and last not in self._abort_markers:
                return None  # the marker may be in the unreadable part
            return FindingKind.MISSING_ABORT_MARKER, "has no abort marker in the log"
        known = in_log.get(last)
        begins = last if known is None else int(known["first_offset"])
        if known is not None and first > begins >= self.known_from and begins < last:
            what = f"begins after offset {begins}, where the log has the transaction"
            return FindingKind.ABORTED_TRANSACTION_BEGINS_LATE, what
        if begins > first >= self.known_from and not self.has_gaps:
            what = f"begins before offset {begins}, where the log has the transaction"
            return FindingKind.ABORTED_TRANSACTION_BEGINS_EARLY, what
        if stable > log.next_offset and not log.ends_in_damage:
            what = f"has a last stable offset beyond the log end offset {log.next_offset}"
            return FindingKind.WRONG_LAST_STABLE_OFFSET, what
        oldest_open = later_begin
        if known is not None and not (self._has_damage or self.has_gaps):
            at_marker = int(known["last_stable_offset"])
            oldest_open = min(oldest_open, at_marker if at_marker < last else INT64_MAX)
        if stable > oldest_open:
            what = f"omits a transaction that began at offset {oldest_open}"
            return FindingKind.WRONG_LAST_STABLE_OFFSET, what
        return None

    def _missing_entries(
        self, entries: NDArray[Any], in_log: dict[int, Any]
    ) -> Iterator[Finding]:
        """Report aborted transactions without an entry; one without batches needs none."""
        indexed = set(entries["last_offset"].tolist())
        missing = [
            txn
            for last, txn in in_log.items()
            if last not in indexed and txn["first_offset"] < last
        ]
        if missing:
            yield self._finding(
                FindingKind.MISSING_ABORTED_TRANSACTIONS,
                None,
                f"{len(missing)} aborted transactions are not in the transaction index; the first "
                f"is that of producer {missing[0]['producer_id']}, offsets "
                f"{missing[0]['first_offset']} to {missing[0]['last_offset']}",
            )

    def _in_log(self) -> dict[int, Any]:
        """Return the aborted transactions of the log, by last offset."""
        if not self._aborted:
            return {}
        found = np.concatenate(self._aborted)
        return dict(zip(found["last_offset"].tolist(), found, strict=True))

    def _finding(self, kind: FindingKind, position: int | None, what: str) -> Finding:
        """Return a finding about the index."""
        remedy = command("reindex", self.segment.directory)
        return Finding(kind, self.segment.transaction_index_path, position, what, remedy)
