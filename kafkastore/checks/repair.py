"""Plans that mend what `verify` finds: damaged logs, and what is not true of the files beside them.

A damaged log is mended in one of two ways:

like a version
    It ends where that broker's recovery of the whole log would end: at the first broken batch, and
    all later segments go. Swaps that were not finished take their places. See `cut_logs`.
keep
    Every batch that can be read stays.  What lies behind a broken batch becomes a segment of its
    own, so that just the broken bytes are missing, and readers go on behind a gap of offsets. See
    `kept_logs`.

Either way the old files lie in the undo area first.  Indexes, producer snapshots and leader epochs
that keep their promises stay as they are, whoever wrote them; those that don't, and the indexes of
logs that are changed, are made anew.
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
from kafkastore.log.log_store import AnyPartition, AnyPath, open_store
from kafkastore.log.partition_log import PartitionLog
from kafkastore.paths import open_path, to_path
from kafkastore.segment.recovery import (
    INDEX_INTERVAL_BYTES,
    RebuiltIndexes,
    rebuild_indexes,
    rebuild_indexes_of,
)
from kafkastore.versions import NEWEST, BrokerRules, rules_of

KEEP = "keep"
_NOT_TRUE = "it is not what the log says"


@dataclass(frozen=True, slots=True, eq=False)
class RepairPlan(Plan):
    """A plan of `plan_repair`.

    Parameters
    ----------
    damages : tuple of Damage
        The bytes that leave logs; not kept with a plan.
    left_alone : tuple of LeftAlone
        What cannot be repaired, such as a FIFO with the name of an index; not kept with a plan.
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
        ``keep``: keep every batch that can be read. A Kafka version such as ``2.4``: end each log
        where that broker's recovery would end it.
    index_interval_bytes : int
        The topics' ``index.interval.bytes``, for indexes that are made.
    partitions : collection, optional
        Only these, each as ``("orders", 3)`` or ``"orders-3"``.
    progress : callable, optional
        Called with the number of partitions that are done, and of all.

    Returns
    -------
    RepairPlan
        For `kafkastore.apply`; without changes where nothing is damaged. What it changes of a
        ``.log`` is in the undo area first. What cannot be repaired is in `left_alone`.

    Raises
    ------
    NotALogDirectoryError
        If the path is neither.
    DuplicatePartitionError
        If a partition lies in several directories.
    KeyError
        If one of `partitions` is not there.
    UnknownVersionError
        If `like` is neither ``keep`` nor a version.
    InvalidConfigError
        If `index_interval_bytes` is not a whole number from 0 to 2^31 - 1.

    Notes
    -----
    A torn batch at the very end is damage too, which a broker cuts off; preallocated space is not.

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
    total = len(store.partitions if partitions is None else store.chosen(partitions))
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
    """What mends one partition."""

    def __init__(self, mending: Mending, like: str) -> None:
        self.mending, self.like = mending, like
        self.log: PartitionLog = mending.log
        self.rules: BrokerRules = NEWEST if like == KEEP else rules_of(like)
        self.pieces: list[Piece] = []

    def mend(self) -> None:
        """Plan all that is needed."""
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
        """Tell whether an index was seen to with its log, which is changed or goes."""
        return self.mending.has(segment_file_name(file.base_offset, LOG_SUFFIX))

    def _mend_epochs(self) -> None:
        mend_epochs(self.mending, self._pieces())

    def _mend_transaction_indexes(self, names: Collection[str]) -> None:
        self._index(self.mending, self._pieces(), names)

    def _mend_snapshot(self, offset: int, damaged: Collection[int]) -> None:
        mend_snapshot(self.mending, self._pieces(), offset, damaged, self.rules)

    def _findings(self) -> list[Finding]:
        """Check the partition, as far as that goes."""
        findings: list[Finding] = []
        try:
            findings += verify_log(self.log)
        except (KafkaStoreError, OSError) as error:
            self.mending.leave("", error)
        return findings

    def _try(self, name: str, mend: Callable[..., None], *what: object) -> None:
        """Mend one file; what can't be mended hinders nothing else."""
        try:
            mend(*what)
        except (KafkaStoreError, OSError) as error:
            self.mending.leave(name, error)

    def _pieces(self) -> list[Piece]:
        """Return the log as it will be."""
        return self.pieces or [whole(segment) for segment in self.log.segments]

    def _mend_logs(self, findings: list[Finding], aborted: Collection[str]) -> None:
        """Plan the logs, all of them or none, with their indexes."""
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
        """Make the indexes of what is changed; transactions reach from piece to piece.

        Of the rest, the transaction indexes of some names, and those behind what is changed:
        a transaction may have lost its beginning.
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
        """Plan a transaction index of a log that stays as it is, if it can be replaced."""
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
        """Plan an offset or time index made anew from its log as it is."""
        interval = self.mending.index_interval_bytes
        log_path = self.log.path / segment_file_name(file.base_offset, LOG_SUFFIX)
        rebuilt = rebuild_indexes(log_path, file.base_offset, index_interval_bytes=interval)
        if rebuilt.reason is not None:
            # It would hide what lies behind.
            raise CorruptBatchError(f"its log is damaged and not mended here: {rebuilt.reason}")
        is_offset_index = file.type_suffix == OFFSET_INDEX_SUFFIX
        data = rebuilt.offset_index if is_offset_index else rebuilt.time_index
        name = segment_file_name(file.base_offset, file.type_suffix)
        is_missing = name not in self.log.files
        why = "it is missing" if is_missing else _NOT_TRUE
        self.mending.add(name, log_path, data, Rebuilt(interval), why)


def _is_log(name: str) -> bool:
    """Tell whether a file is the log of a segment, which may still be called a swap."""
    file = parse_segment_file(name)
    return (
        file is not None
        and file.type_suffix == LOG_SUFFIX
        and file.temporary in ("", SWAP_SUFFIX)
    )


def _names(files: dict[str, SegmentFile | None], suffix: str) -> dict[str, SegmentFile]:
    """Choose the files of one kind, by name."""
    return {
        name: file
        for name, file in sorted(files.items())
        if file is not None and file.type_suffix == suffix and not file.temporary
    }
