"""Plans that repair what `verify` finds: damaged logs, indexes, snapshots and checkpoints.

A damaged log is repaired in one of two ways:

like a version
    The log ends where that broker's recovery of the whole log would end: before the first corrupt
    batch. All later segments are deleted. Unfinished swaps are completed. See `cut_logs`.
keep
    Every readable batch is kept. Batches after a corrupt one become a segment of their own. Only
    the corrupt bytes are lost, and readers continue after a gap of offsets. See `kept_logs`.

Both ways first copy the old files to the undo area. Valid indexes, producer snapshots and leader
epochs are not changed, whoever wrote them. Invalid ones are rebuilt, and so are the indexes of
changed logs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass

from kafkastore.arguments import INT64_MAX
from kafkastore.changes.plan import FileChange, Inline, Plan, Rebuilt
from kafkastore.changes.runner import Progress
from kafkastore.checks.cut_logs import cut
from kafkastore.checks.findings import Finding, Severity
from kafkastore.checks.kept_logs import Piece, keep, whole
from kafkastore.checks.mended_state import cut_state, mend_epochs, mend_snapshot
from kafkastore.checks.mending import Damage, LeftAlone, Mending
from kafkastore.checks.verify import verify_log
from kafkastore.errors import CorruptBatchError, KafkaStoreError
from kafkastore.formats.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    SegmentFile,
    parse_segment_file,
    segment_file_name,
)
from kafkastore.formats.producer_state import ProducerState
from kafkastore.log.log_config import LogConfig
from kafkastore.paths import open_path, to_path
from kafkastore.segment.recovery import (
    INDEX_INTERVAL_BYTES,
    RebuiltIndexes,
    rebuild_indexes,
    rebuild_indexes_of,
)
from kafkastore.store.log_store import AnyPartition, AnyPath, open_store
from kafkastore.store.partition_log import PartitionLog
from kafkastore.versions import NEWEST, BrokerRules, rules_of

KEEP = "keep"
_NOT_TRUE = "it is not what the log says"


@dataclass(frozen=True, slots=True, eq=False)
class RepairPlan(Plan):
    """A plan of `plan_repair`.

    Parameters
    ----------
    damages : tuple of Damage
        The bytes that are removed from logs; not saved with the plan.
    left_alone : tuple of LeftAlone
        Files that can't be repaired, such as a FIFO with the name of an index; not saved with the
        plan.
    """

    damages: tuple[Damage, ...] = ()
    left_alone: tuple[LeftAlone, ...] = ()


def plan_repair(
    path: AnyPath,
    like: str = "2.4",
    *,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    partitions: Collection[AnyPartition] | None = None,
    progress: Progress | None = None,
) -> RepairPlan:
    """Plan to repair damaged logs and indexes.

    Parameters
    ----------
    path : path-like
        A log.dirs root, or one partition directory.
    like : str
        ``keep``: keep every readable batch. A Kafka version such as ``2.4``: end each log where
        that broker's recovery would end it.
    index_interval_bytes : int
        The topics' ``index.interval.bytes``, for rebuilt indexes.
    partitions : collection, optional
        Only these, each as ``("orders", 3)`` or ``"orders-3"``.
    progress : callable, optional
        Called with the number of finished partitions and the total.

    Returns
    -------
    RepairPlan
        For `kafkastore.apply`; without changes if nothing is damaged. Applying it first copies the
        bytes it changes in a ``.log`` to the undo area. `left_alone` lists what can't be repaired.

    Raises
    ------
    NotALogDirectoryError
        If `path` is neither a log.dirs root nor a partition directory.
    DuplicatePartitionError
        If a partition is in several directories.
    KeyError
        If one of `partitions` does not exist.
    UnknownVersionError
        If `like` is neither ``keep`` nor a known version.
    InvalidConfigError
        If `index_interval_bytes` is not an int from 0 to 2^31 - 1.

    Notes ----- A torn batch at the very end also is damage, and a broker truncates it; preallocated
    space is not damage.

    Source: Kafka 2.4.0 ``Log.recoverLog``, ``LogSegment.recover``.
    """
    if like != KEEP:
        rules_of(like)
    index_interval_bytes = LogConfig(index_interval_bytes=index_interval_bytes).index_interval_bytes
    root = to_path(os.path.abspath(open_path(path)))
    store = open_store(root)
    changes: list[FileChange] = []
    damages: list[Damage] = []
    left_alone: list[LeftAlone] = []
    total = len(store.chosen(partitions))
    for done, log in enumerate(store.logs_of(partitions), 1):
        mending = Mending(log, index_interval_bytes)
        try:
            _Repair(mending, like).mend()
        except (KafkaStoreError, OSError) as error:
            mending.leave("", error)
        changes += mending.changes
        damages += mending.damages
        left_alone += mending.left_alone
        if progress is not None:
            progress(done, total)
    return RepairPlan(
        str(root), f"repair ({like})", tuple(changes), tuple(damages), tuple(left_alone)
    )


class _Repair:
    """The repair of one partition."""

    def __init__(self, mending: Mending, like: str) -> None:
        self.mending, self.like = mending, like
        self.log: PartitionLog = mending.log
        self.rules: BrokerRules = NEWEST if like == KEEP else rules_of(like)
        self.pieces: list[Piece] = []

    def mend(self) -> None:
        """Plan all changes that the findings need."""
        findings = self._findings()
        damaged: dict[str, SegmentFile | None] = {
            each.path.name: parse_segment_file(each.path.name)
            for each in findings
            if each.severity is not Severity.STYLE
        }
        aborted = _names(damaged, TRANSACTION_INDEX_SUFFIX)
        self._mend_logs(findings, aborted)
        mending = self.mending
        if LEADER_EPOCH_CHECKPOINT in damaged and not mending.has(LEADER_EPOCH_CHECKPOINT):
            self._try(LEADER_EPOCH_CHECKPOINT, self._mend_epochs)
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            for name, file in _names(damaged, suffix).items():
                if not self._is_done(file):
                    self._try(name, self._rebuild, file)
        aborted = {name: file for name, file in aborted.items() if not self._is_done(file)}
        if aborted and not self.pieces:
            self._try(next(iter(aborted)), self._mend_transaction_indexes, aborted)
        snapshots = {
            file.base_offset
            for name, file in _names(damaged, PRODUCER_SNAPSHOT_SUFFIX).items()
            if not mending.has(name)
        }
        for offset in sorted(snapshots):
            name = segment_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX)
            self._try(name, self._mend_snapshot, offset, snapshots)

    def _is_done(self, file: SegmentFile) -> bool:
        """Return whether an index was already planned with its log, which is changed or deleted."""
        return self.mending.has(segment_file_name(file.base_offset, LOG_SUFFIX))

    def _mend_epochs(self) -> None:
        mend_epochs(self.mending, self._pieces())

    def _mend_transaction_indexes(self, names: Collection[str]) -> None:
        self._index(self.mending, self._pieces(), names)

    def _mend_snapshot(self, offset: int, damaged: Collection[int]) -> None:
        mend_snapshot(self.mending, self._pieces(), offset, damaged, self.rules)

    def _findings(self) -> list[Finding]:
        """Check the partition; record the error if a file could not be opened."""
        findings: list[Finding] = []
        try:
            findings += verify_log(self.log)
        except (KafkaStoreError, OSError) as error:
            self.mending.leave("", error)
        return findings

    def _try(self, name: str, mend: Callable[..., None], *what: object) -> None:
        """Repair one file; a failure is recorded and does not stop the others."""
        try:
            mend(*what)
        except (KafkaStoreError, OSError) as error:
            self.mending.leave(name, error)

    def _pieces(self) -> list[Piece]:
        """Return the log as it will be."""
        return self.pieces or [whole(segment) for segment in self.log.segments]

    def _mend_logs(self, findings: list[Finding], aborted: Collection[str]) -> None:
        """Plan the repair of all logs with their indexes, or of none."""
        trial = Mending(self.log, self.mending.index_interval_bytes)
        try:
            if self.like != KEEP:
                cut(trial, self.like)
            elif any(_is_log(each.path.name) for each in findings):
                pieces = keep(trial)
                if any(piece.is_changed for piece in pieces):
                    self._index(trial, pieces, aborted)
                    self.pieces = pieces
        except (KafkaStoreError, OSError) as error:
            self.mending.leave("", error)
        else:
            self.mending.changes += trial.changes
            self.mending.damages += trial.damages
        self.mending.left_alone += trial.left_alone

    def _index(
        self, mending: Mending, pieces: list[Piece], aborted: Collection[str]
    ) -> None:
        """Rebuild the indexes of changed logs, in order: transactions span pieces.

        Also rebuilds the transaction indexes named in `aborted` and those after a changed log,
        where a transaction may have lost its first batches.
        """
        state = ProducerState(rules=self.rules)
        state.on_high_watermark(INT64_MAX)
        log_end_offset, is_behind = 0, False
        for piece in pieces:
            with piece.open() as log:
                rebuilt = rebuild_indexes_of(
                    log,
                    piece.base_offset,
                    index_interval_bytes=mending.index_interval_bytes,
                    producers=state,
                )
            log_end_offset = rebuilt.next_offset
            name = segment_file_name(piece.base_offset, TRANSACTION_INDEX_SUFFIX)
            if piece.is_changed:
                is_behind = True
                self._add_indexes(mending, piece, rebuilt)
            elif name in aborted or (
                is_behind and (rebuilt.transaction_index or (self.log.path / name).exists())
            ):
                self._add_transaction_index(mending, name, piece, rebuilt.transaction_index)
        if pieces[-1].is_changed:
            cut_state(mending, log_end_offset)

    def _add_transaction_index(
        self, mending: Mending, name: str, piece: Piece, data: bytes
    ) -> None:
        """Plan the transaction index of an unchanged log, if it can be replaced."""
        try:
            mending.add(name, piece.segment.log_path, data, Inline(data), _NOT_TRUE)
        except (KafkaStoreError, OSError) as error:
            mending.leave(name, error)

    def _add_indexes(self, mending: Mending, piece: Piece, rebuilt: RebuiltIndexes) -> None:
        """Plan all indexes of a piece."""
        log_path, why = piece.segment.log_path, f"{piece.name} is changed"
        content = Rebuilt(mending.index_interval_bytes)
        for suffix, data in (
            (OFFSET_INDEX_SUFFIX, rebuilt.offset_index),
            (TIME_INDEX_SUFFIX, rebuilt.time_index),
        ):
            name = segment_file_name(piece.base_offset, suffix)
            mending.add(name, log_path, data, content, why)
        name = segment_file_name(piece.base_offset, TRANSACTION_INDEX_SUFFIX)
        data = rebuilt.transaction_index
        if data or (self.log.path / name).exists():
            mending.add(name, log_path, data, Inline(data), why)

    def _rebuild(self, file: SegmentFile) -> None:
        """Plan to rebuild an offset or time index from its unchanged log."""
        interval = self.mending.index_interval_bytes
        log_path = self.log.path / segment_file_name(file.base_offset, LOG_SUFFIX)
        rebuilt = rebuild_indexes(log_path, file.base_offset, index_interval_bytes=interval)
        if rebuilt.reason is not None:
            # An index up to the damage would hide the records after it.
            raise CorruptBatchError(f"its log is damaged and not mended here: {rebuilt.reason}")
        is_offset_index = file.type_suffix == OFFSET_INDEX_SUFFIX
        data = rebuilt.offset_index if is_offset_index else rebuilt.time_index
        name = segment_file_name(file.base_offset, file.type_suffix)
        is_missing = name not in self.log.files
        why = "it is missing" if is_missing else _NOT_TRUE
        self.mending.add(name, log_path, data, Rebuilt(interval), why)


def _is_log(name: str) -> bool:
    """Return whether a file is the log of a segment; a ``.swap`` counts."""
    file = parse_segment_file(name)
    return (
        file is not None
        and file.type_suffix == LOG_SUFFIX
        and file.temporary in ("", SWAP_SUFFIX)
    )


def _names(files: dict[str, SegmentFile | None], suffix: str) -> dict[str, SegmentFile]:
    """Return the files of one kind, by name."""
    return {
        name: file
        for name, file in sorted(files.items())
        if file is not None and file.type_suffix == suffix and not file.temporary
    }
