"""Plans that repair what `verify` finds: logs, indexes, snapshots, checkpoints.

A damaged log is repaired in one of two ways:

truncate
    The log ends where a broker's recovery of the whole log would end: before the first corrupt
    batch. All later segments are deleted. Unfinished swaps are completed. See `broker_repair`.
skip
    Every readable batch is kept. Batches after a corrupt one become a new segment. Only
    the corrupt bytes are lost, and readers continue after a gap of offsets. See `salvage_repair`.

Both ways first copy the old files to the undo area. Valid indexes, producer snapshots and leader
epochs are not changed. Invalid ones are rebuilt, and so are the indexes of
changed logs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, get_args

from kafkastore.arguments import INT64_MAX, check_choice, thread_count
from kafkastore.changes.partition_changes import plan_partitions
from kafkastore.changes.plan import FileChange, Inline, Plan, Rebuilt
from kafkastore.checks.broker_repair import LogDeletedError, plan_broker_repair
from kafkastore.checks.findings import Finding, FindingKind, Severity
from kafkastore.checks.partition_repair import NotRepaired, PartitionRepair, RemovedBytes, is_log
from kafkastore.checks.salvage_repair import RepairedSegment, plan_salvage, unchanged_segment
from kafkastore.checks.segment_check import KEPT_BY_AN_INDEX, is_recovered_without_index
from kafkastore.checks.state_repair import (
    plan_epochs,
    plan_snapshot,
    plan_topic_id,
    truncate_state,
)
from kafkastore.checks.verify import verify_log
from kafkastore.errors import CorruptBatchError, KafkaStoreError
from kafkastore.formats.state.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    SegmentFile,
    parse_segment_file,
    segment_file_name,
    snapshot_name,
)
from kafkastore.formats.state.producer_state import ProducerState
from kafkastore.metadata.strays import Assignments
from kafkastore.recovery.log_loader import why_deleted
from kafkastore.runner import Progress, Runner, in_threads
from kafkastore.segment.log_segment import REPLACES_SEGMENTS
from kafkastore.segment.recovery import (
    RebuiltIndexes,
    rebuild_indexes,
    rebuild_indexes_of,
)
from kafkastore.store.cluster_metadata import Metadata, find_cluster_or_warn
from kafkastore.store.log_store import AnyPartition, Paths, open_store, root_of_plan
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.partition_path import PartitionPath, list_unique_paths, open_partition
from kafkastore.store.unread_partition import UnreadPartition
from kafkastore.versions import NEWEST_VERSION, BrokerRules, rules_of
from kafkastore.writing.topic_settings import TopicSettings, settings_of

OnCorruptLog = Literal["truncate", "skip"]
_OUTDATED = "it does not match the log"


@dataclass(frozen=True, slots=True, eq=False)
class RepairPlan(Plan):
    """A plan of `plan_repair`.

    Parameters
    ----------
    removed : tuple of RemovedBytes
        The bytes that are removed from logs; not saved with the plan.
    not_repaired : tuple of NotRepaired
        Files that can't be repaired, such as a FIFO with the name of an index; not saved with the
        plan.
    """

    removed: tuple[RemovedBytes, ...] = ()
    not_repaired: tuple[NotRepaired, ...] = ()


def plan_repair(
    path: Paths,
    version: str = NEWEST_VERSION,
    *,
    on_corrupt: OnCorruptLog = "skip",
    index_interval_bytes: int | None = None,
    partitions: Collection[AnyPartition] | None = None,
    threads: int | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
    metadata: Metadata = None,
) -> RepairPlan:
    """Plan to repair corrupt logs and indexes.

    Parameters
    ----------
    path : path-like, LogStore or list of these
        One log.dirs root, or one partition directory: a plan changes one.
    version : str
        The Kafka version whose recovery is followed, for example ``2.4``.
    on_corrupt : "skip" or "truncate"
        ``skip`` (default): remove only corrupt bytes, and keep every readable batch. ``truncate``:
        end each log where a broker's recovery would end it.
    index_interval_bytes : int, optional
        The topics' ``index.interval.bytes``, for rebuilt indexes. Default: that of the metadata, or
        4096.
    partitions : collection, optional
        Only these, each as ``("orders", 3)`` or ``"orders-3"``.
    threads : int, optional
        Number of partitions read in parallel; by default the number of processors.
    runner : callable, optional
        Reads the partitions in other processes instead of threads; see `kafkastore.spark`.
    progress : callable, optional
        Called with the number of finished partitions and the total.
    metadata : Cluster, path-like, LogStore or list of these, optional
        The cluster, or where its metadata is: a missing ``partition.metadata`` is written with the
        topic id from there; one with another id is left as it is. Default: the metadata log in
        `path`, if it has one; if that can't be read, an `UnreadMetadataWarning` says why.

    Returns
    -------
    RepairPlan
        For `kafkastore.apply`; without changes if nothing is damaged. Applying it first copies the
        bytes it changes in a ``.log`` to the undo area. `not_repaired` has the files that can't be
        repaired.

    Raises
    ------
    NotALogDirectoryError
        If `path` is neither a log.dirs root nor a partition directory.
    DuplicatePartitionError
        If a partition is in several directories.
    KeyError
        If one of `partitions` does not exist.
    UnknownVersionError
        If `version` is not a known version.
    ArgumentValueError
        If `on_corrupt` is neither ``truncate`` nor ``skip``.
    InvalidConfigError
        If `index_interval_bytes` is not an int from 0 to 2^31 - 1.

    Notes
    -----
    An incomplete batch at the very end also is damage, and a broker truncates it; preallocated
    space is not damage.

    Source: Kafka 2.4.0 ``Log.recoverLog``, ``LogSegment.recover``.
    """
    rules_of(version)
    threads = thread_count(threads)
    check_choice("on_corrupt", on_corrupt, get_args(OnCorruptLog))
    root = root_of_plan(path)
    store = open_store(root)
    cluster = find_cluster_or_warn(store, metadata)
    given = {} if index_interval_bytes is None else {"index.interval.bytes": index_interval_bytes}
    is_truncated = on_corrupt == "truncate"
    title = f"repair (truncate, version {version})" if is_truncated else "repair (skip)"
    changes: list[FileChange] = []
    removed: list[RemovedBytes] = []
    not_repaired: list[NotRepaired] = []
    places = list_unique_paths(store, partitions, is_weighed=runner is not None)
    work = partial(
        _repair_place,
        version=version,
        settings=settings_of(cluster, store, given),
        assignments=Assignments.of(cluster),
        is_truncated=is_truncated,
    )
    runner = in_threads(threads) if runner is None else runner
    for done, found in enumerate(plan_partitions(work, places, runner), 1):
        if isinstance(found, UnreadPartition):
            not_repaired.append(NotRepaired(found.path, found.error, True))
        else:
            changes += found.changes
            removed += found.removed
            not_repaired += found.not_repaired
        if progress is not None:
            progress(done, len(places))
    return RepairPlan(str(root), title, tuple(changes), tuple(removed), tuple(not_repaired))


class _Repaired(NamedTuple):
    """The part of a `RepairPlan` for one partition."""

    changes: list[FileChange]
    removed: list[RemovedBytes]
    not_repaired: list[NotRepaired]


def _repair_place(
    place: PartitionPath,
    *,
    version: str,
    settings: TopicSettings,
    assignments: Assignments | None,
    is_truncated: bool,
) -> _Repaired:
    """Plan one partition in any process."""
    log = open_partition(place)
    repair = PartitionRepair(log, settings.config(log.topic).index_interval_bytes)
    try:
        _RepairPlanner(repair, version, is_truncated=is_truncated).plan()
    except (KafkaStoreError, OSError) as error:
        repair.record_failure("", error)
    if assignments is not None:
        try:
            plan_topic_id(repair, assignments)
        except (KafkaStoreError, OSError) as error:
            repair.record_failure(PARTITION_METADATA, error)
    return _Repaired(repair.changes, repair.removed, repair.not_repaired)


class _RepairPlanner:
    """Plans the repair of one partition."""

    def __init__(self, repair: PartitionRepair, version: str, *, is_truncated: bool) -> None:
        self.repair, self.version, self.is_truncated = repair, version, is_truncated
        self.log: PartitionLog = repair.log
        self.rules: BrokerRules = rules_of(version)
        self.parts: list[RepairedSegment] = []

    def plan(self) -> None:
        """Plan all changes that the findings need; a file that can't be opened raises."""
        findings = [*verify_log(self.log)]
        damaged: dict[str, SegmentFile | None] = {
            each.path.name: parse_segment_file(each.path.name)
            for each in findings
            if each.severity is not Severity.STYLE
        }
        aborted = _names(damaged, TRANSACTION_INDEX_SUFFIX)
        self._plan_logs(findings, aborted)
        repair = self.repair
        if LEADER_EPOCH_CHECKPOINT in damaged and not repair.has_change(LEADER_EPOCH_CHECKPOINT):
            self._try(LEADER_EPOCH_CHECKPOINT, self._plan_epochs)
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            for name, file in _names(damaged, suffix).items():
                if not self._is_done(file):
                    self._try(name, self._rebuild, file)
        aborted = {name: file for name, file in aborted.items() if not self._is_done(file)}
        if aborted and not self.parts:
            self._try(next(iter(aborted)), self._plan_transaction_indexes, aborted)
        snapshots = {
            file.base_offset
            for name, file in _names(damaged, PRODUCER_SNAPSHOT_SUFFIX).items()
            if not repair.has_change(name)
        }
        for offset in sorted(snapshots):
            name = snapshot_name(offset)
            self._try(name, self._plan_snapshot, offset, snapshots)
        if not repair.changes_logs:
            for name, each in damaged.items():
                if each is not None and each.temporary == SWAP_SUFFIX:
                    repair.record_failure(name, KafkaStoreError(REPLACES_SEGMENTS))

    def _is_done(self, file: SegmentFile) -> bool:
        """Return whether an index was already planned with its log."""
        return self.repair.has_change(segment_file_name(file.base_offset, LOG_SUFFIX))

    def _plan_epochs(self) -> None:
        plan_epochs(self.repair, self._repaired_log())

    def _plan_transaction_indexes(self, names: Collection[str]) -> None:
        self._index(self.repair, self._repaired_log(), names)

    def _plan_snapshot(self, offset: int, damaged: Collection[int]) -> None:
        plan_snapshot(self.repair, self._repaired_log(), offset, damaged, self.rules)

    def _try(self, name: str, plan: Callable[..., None], *what: object) -> None:
        """Repair one file; a failure is recorded and does not stop the others."""
        try:
            plan(*what)
        except (KafkaStoreError, OSError) as error:
            self.repair.record_failure(name, error)

    def _repaired_log(self) -> list[RepairedSegment]:
        """Return the log after the repair."""
        return self.parts or [unchanged_segment(segment) for segment in self.log.segments]

    def _plan_logs(self, findings: list[Finding], aborted: Collection[str]) -> None:
        """Plan the repair of all logs with their indexes, or of none."""
        trial = PartitionRepair(self.log, self.repair.index_interval_bytes)
        try:
            if self.is_truncated:
                plan_broker_repair(trial, self.version)
            else:
                self._plan_salvage(trial, findings, aborted)
        except (KafkaStoreError, OSError) as error:
            self.repair.record_failure("", error)
        else:
            self.repair.changes += trial.changes
            self.repair.removed += trial.removed
        self.repair.not_repaired += trial.not_repaired

    def _plan_salvage(
        self, trial: PartitionRepair, findings: list[Finding], aborted: Collection[str]
    ) -> None:
        """Plan to keep all readable batches, if a log has a finding."""
        if any(is_log(each.path.name) for each in findings):
            parts = plan_salvage(trial)
            if any(part.is_changed for part in parts):
                self._check_start(trial, self._index(trial, parts, aborted))
                self.parts = parts
                return
        if any(each.kind is FindingKind.LOG_END_BELOW_LOG_START for each in findings):
            self._check_start(trial, self.log.segments[-1].next_offset)

    def _check_start(self, repair: PartitionRepair, log_end_offset: int) -> None:
        """Record it if a broker would delete the kept log."""
        start = self.log.log_start_offset
        if log_end_offset < start and self.rules.log_below_its_start_is_deleted:
            error = LogDeletedError.of(
                self.log.path, self.version, why_deleted(log_end_offset, start)
            )
            checkpoint = self.log.path.parent / LOG_START_OFFSET_CHECKPOINT
            repair.not_repaired.append(NotRepaired(checkpoint, error))

    def _index(
        self, repair: PartitionRepair, parts: list[RepairedSegment], aborted: Collection[str]
    ) -> int:
        """Rebuild the indexes of changed logs, in order; return the new log end offset.

        Transactions span segments: also rebuilds the transaction indexes named in `aborted`, and
        those after a changed log, where a transaction may have lost its first batches.
        """
        state = ProducerState(rules=self.rules)
        state.on_high_watermark(INT64_MAX)
        log_end_offset, is_after_change = 0, False
        for part in parts:
            with part.open() as log:
                rebuilt = rebuild_indexes_of(
                    log,
                    part.base_offset,
                    index_interval_bytes=repair.index_interval_bytes,
                    producers=state,
                )
            log_end_offset = rebuilt.next_offset
            name = segment_file_name(part.base_offset, TRANSACTION_INDEX_SUFFIX)
            if part.is_changed:
                is_after_change = True
                self._add_indexes(repair, part, rebuilt)
            elif name in aborted or (
                is_after_change and (rebuilt.transaction_index or (self.log.path / name).exists())
            ):
                self._add_transaction_index(repair, name, part, rebuilt.transaction_index)
        if parts[-1].is_changed:
            truncate_state(repair, log_end_offset)
        return log_end_offset

    def _add_transaction_index(
        self, repair: PartitionRepair, name: str, part: RepairedSegment, data: bytes
    ) -> None:
        """Plan the transaction index of an unchanged log, if it can be replaced."""
        try:
            repair.plan_file(name, part.segment.log_path, data, Inline(data), _OUTDATED)
        except (KafkaStoreError, OSError) as error:
            repair.record_failure(name, error)

    def _add_indexes(
        self, repair: PartitionRepair, part: RepairedSegment, rebuilt: RebuiltIndexes
    ) -> None:
        """Plan all indexes of a changed log."""
        log_path, why = part.segment.log_path, f"{part.name} is changed"
        content = Rebuilt(repair.index_interval_bytes)
        for suffix, data in (
            (OFFSET_INDEX_SUFFIX, rebuilt.offset_index),
            (TIME_INDEX_SUFFIX, rebuilt.time_index),
        ):
            name = segment_file_name(part.base_offset, suffix)
            repair.plan_file(name, log_path, data, content, why)
        name = segment_file_name(part.base_offset, TRANSACTION_INDEX_SUFFIX)
        data = rebuilt.transaction_index
        if data or (self.log.path / name).exists():
            repair.plan_file(name, log_path, data, Inline(data), why)

    def _rebuild(self, file: SegmentFile) -> None:
        """Plan to rebuild an offset or time index from its unchanged log."""
        interval = self.repair.index_interval_bytes
        log_path = self.log.path / segment_file_name(file.base_offset, LOG_SUFFIX)
        rebuilt = rebuild_indexes(log_path, file.base_offset, index_interval_bytes=interval)
        if rebuilt.reason is not None:
            # An index up to the damage would hide the records after it.
            raise CorruptBatchError(f"its log is corrupt and not repaired: {rebuilt.reason}")
        is_offset_index = file.type_suffix == OFFSET_INDEX_SUFFIX
        segment = next(each for each in self.log.segments if each.base_offset == file.base_offset)
        has_tail = rebuilt.valid_bytes < segment.size
        if is_offset_index and has_tail and is_recovered_without_index(self.log, segment):
            raise CorruptBatchError(
                f"bytes follow its last batch: {KEPT_BY_AN_INDEX}", position=rebuilt.valid_bytes
            )
        data = rebuilt.offset_index if is_offset_index else rebuilt.time_index
        name = segment_file_name(file.base_offset, file.type_suffix)
        is_missing = name not in self.log.files
        why = "it is missing" if is_missing else _OUTDATED
        self.repair.plan_file(name, log_path, data, Rebuilt(interval), why)


def _names(files: dict[str, SegmentFile | None], suffix: str) -> dict[str, SegmentFile]:
    """Return the files of one kind, by name."""
    return {
        name: file
        for name, file in sorted(files.items())
        if file is not None and file.type_suffix == suffix and not file.temporary
    }
