"""Predict how a broker loads a partition directory, without changing it.

After a clean shutdown a broker deletes leftovers, creates missing indexes and rebuilds the
producers' state.  Without the clean-shutdown marker it recovers every segment from the recovery
point on, and bytes and files that it drops are lost.  `recover_log` reports all of this beforehand.

Source: Kafka 2.4.0 ``Log.loadSegments``, ``recoverLog``, ``rebuildProducerState``; 3.9.0
``LogLoader``; `kafkastore.versions` lists the differences between versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kafkastore.errors import ArgumentTypeError, CorruptCheckpointError
from kafkastore.formats.state.checkpoints import EpochStart
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.log_view import LogView
from kafkastore.recovery.loaded_segment import CutKind
from kafkastore.recovery.log_loader import LogLoader
from kafkastore.recovery.segment_split import CopiedRange
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES
from kafkastore.versions import NEWEST_VERSION, rules_of

if TYPE_CHECKING:
    from kafkastore.formats.state.producer_state import ProducerState
    from kafkastore.recovery.directory_files import DeletedFile


@dataclass(frozen=True, slots=True)
class RecoveredSegment:
    """A segment that remains after loading, with `valid_bytes` of the log's `size`.

    `next_offset` follows the last batch. `is_recovered`: the log was checked and its indexes
    rebuilt. `cut_kind` and `reason` say why bytes are cut, or are None.
    """

    base_offset: int
    size: int
    valid_bytes: int
    next_offset: int
    is_recovered: bool
    cut_kind: CutKind | None = None
    reason: str | None = None

    @property
    def cut_bytes(self) -> int:
        """The number of bytes that a broker cuts off the ``.log``."""
        return self.size - self.valid_bytes


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """Describe a partition as a broker has it after loading.

    To apply it to the files, keep this order: `deleted`, `renamed`, `copied`, `cut`, `written`. The
    files that `copied` reads are deleted in that step.

    Parameters
    ----------
    path : Path
        The partition directory.
    segments : tuple of RecoveredSegment
        The remaining segments, by base offset; at least one.
    deleted : mapping of str to DeletedFile
        Names of deleted files, and why.
    renamed : mapping of str to str
        Names of ``.swap`` files, and their new names.
    cut : mapping of str to int
        Names of ``.log`` files after renaming, and how many bytes remain.
    written : mapping of str to bytes
        Names and content of files that are created or replaced: ``.index``, ``.timeindex``,
        ``.txnindex``, ``.snapshot``, the leader epochs. Indexes are trimmed as in a closed segment;
        a broker then extends those of the active segment to ``segment.index.bytes``. A ``.log`` is
        included only if no segment remains and an empty one is created.
    log_start_offset, log_end_offset : int
        Inclusive, exclusive.
    recovery_point : int
        The broker's new recovery point: the first offset that may not be flushed.
    leader_epochs : tuple of EpochStart
        The entries of the epoch checkpoint.
    producers : ProducerState
        The producers' state at the log end.
    copied : mapping of str to CopiedRange
        Names of ``.log`` files that a split creates, and the bytes of the old ``.log``, which is in
        `deleted`. A new file gets the old one's modification time, unless it was cut.
    """

    path: Path
    segments: tuple[RecoveredSegment, ...]
    deleted: Mapping[str, DeletedFile]
    renamed: Mapping[str, str]
    cut: Mapping[str, int]
    written: Mapping[str, bytes]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    leader_epochs: tuple[EpochStart, ...]
    producers: ProducerState
    copied: Mapping[str, CopiedRange] = field(default_factory=dict)


def recover_log(
    log: LogView,
    version: str = NEWEST_VERSION,
    *,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    is_clean: bool | None = None,
    recovery_point: int | None = None,
    log_start_offset: int | None = None,
    now: int | None = None,
) -> RecoveredLog:
    """Predict how a broker loads a partition when it starts; nothing is changed.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    version : str
        The broker's version, such as ``2.4``; default: the newest.
    index_interval_bytes : int
        The topic's ``index.interval.bytes``.
    is_clean : bool, optional
        Whether the broker finds the clean-shutdown marker. Default: whether the log directory has
        it; False for a partition directory by itself.
    recovery_point : int, optional
        First offset that may not be flushed; unless `is_clean`, segments that end after it are
        recovered. Default: the checkpoint's; 0 if it is missing or corrupt.
    log_start_offset : int, optional
        Default: the checkpoint's; 0 if it is missing or corrupt.
    now : int, optional
        The clock, ms since 1970, at which old producers in snapshots expire. Default: none expires.

    Returns
    -------
    RecoveredLog

    Raises
    ------
    OffsetOverflowError
        If an offset is more than 31 bits above its segment's base offset, and the segment can't be
        split: a broker does not start.
    OutOfOrderAppendError
        If offsets decrease in a segment without ``.index``: a broker does not start.
    CorruptionError
        If a log is corrupt where a broker only reads it, or can't be read, or if the epoch
        checkpoint is corrupt: a broker does not start, or takes the log directory offline.
    TypeError
        If `log` is not a partition's log.
    """
    if not isinstance(log, LogView):  # the base class of PartitionLog
        raise ArgumentTypeError("log", "a PartitionLog", log)
    rules = rules_of(version)
    loader = LogLoader(
        log.path,
        rules,
        index_interval_bytes,
        _checkpointed(log, "recovery_points", recovery_point),
        _checkpointed(log, "log_start_offsets", log_start_offset),
        now,
        is_clean=log.is_clean if is_clean is None else is_clean,
        is_tiered=lambda: rules.log_may_start_in_remote_storage and _is_tiered(log),
    )
    loader.load()
    segments = tuple(
        RecoveredSegment(
            base_offset,
            segment.size,
            segment.valid_bytes,
            segment.end(),
            segment.is_recovered,
            segment.cut_kind,
            segment.reason,
        )
        for base_offset, segment in sorted(loader.segments.items())
    )
    return RecoveredLog(
        log.path,
        segments,
        loader.files.deleted,
        loader.files.renamed,
        {
            segment.log_name: segment.valid_bytes
            for segment in loader.segments.values()
            if segment.cut_bytes and segment.start is None
        },
        loader.files.written,
        loader.log_start_offset,
        loader.log_end_offset,
        loader.recovery_point,
        loader.epochs.entries,
        loader.producers.state,
        loader.files.copied,
    )


def _is_tiered(log: LogView) -> bool:
    log.remote_log.check_is_known()
    return log.remote_log.is_tiered


def _checkpointed(log: LogView, checkpoint: str, given: int | None) -> int:
    """Return `given`, or else the checkpoint's offset; 0 if it can't be read."""
    if given is not None:
        return given
    if log.log_dir is None:
        return 0
    try:
        offsets: Mapping[TopicPartition, int] = getattr(log.log_dir, checkpoint)
    except CorruptCheckpointError:
        return 0
    return offsets.get(log.topic_partition, 0)
