"""What a broker makes of one partition's directory when it loads it: as a value, nothing altered.

After a clean shutdown a broker drops leftovers, makes missing indexes and rebuilds the producers'
state; without the marker it recovers every segment from the recovery point on, and what it cuts or
drops then is gone.  Here each of these is said before it is done.

Source: Kafka 2.4.0 ``Log.loadSegments``, ``recoverLog``, ``rebuildProducerState``; 3.9.0
``LogLoader``; the differences between versions are in `kafkastore.versions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kafkastore.arguments import check_kind
from kafkastore.errors import CorruptCheckpointError
from kafkastore.formats.checkpoints import EpochStart
from kafkastore.formats.file_names import TopicPartition
from kafkastore.log.log_loader import LogLoader
from kafkastore.log.partition_log import PartitionLog
from kafkastore.log.segment_split import CopiedRange
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES
from kafkastore.versions import rules_of

if TYPE_CHECKING:
    from kafkastore.formats.producer_state import ProducerState


@dataclass(frozen=True, slots=True)
class RecoveredSegment:
    """One segment that is left.

    Parameters
    ----------
    base_offset : int
        Of the segment.
    size, valid_bytes : int
        Bytes of the ``.log`` as it is, and of these how many stay.
    next_offset : int
        Offset behind its last batch.
    is_recovered : bool
        Whether the log was gone over and the indexes were made again.
    reason : str or None
        Why bytes are cut; None where none are.
    """

    base_offset: int
    size: int
    valid_bytes: int
    next_offset: int
    is_recovered: bool
    reason: str | None = None

    @property
    def cut_bytes(self) -> int:
        """How many bytes of the ``.log`` a broker cuts."""
        return self.size - self.valid_bytes


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """A partition as a broker that loaded it has it.

    Whoever makes it so does it in this order: `deleted`, `renamed`, `copied`, `cut`, `written`;
    but the files that `copied` takes bytes of are deleted by that.

    Parameters
    ----------
    path : Path
        The partition directory.
    segments : tuple of RecoveredSegment
        What is left, by base offset; at least one.
    deleted : mapping of str to str
        Names of files that go, and why.
    renamed : mapping of str to str
        Names of ``.swap`` files and the names they take.
    cut : mapping of str to int
        Names of ``.log`` files, as they are called then, and how many bytes stay.
    written : mapping of str to bytes
        Names of files that are made, or made again, and what they hold: ``.index``, ``.timeindex``,
        ``.txnindex``, ``.snapshot``, the leader epochs. Indexes as they are in a closed segment: a
        broker then enlarges those of the active one to ``segment.index.bytes``. A ``.log`` is among
        them only where no segment is left and an empty one begins.
    log_start_offset, log_end_offset : int
        Inclusive, exclusive.
    recovery_point : int
        First offset not known to be flushed, as the broker then takes it to be.
    leader_epochs : tuple of EpochStart
        What the epoch checkpoint holds.
    producers : ProducerState
        At the log end.
    copied : mapping of str to CopiedRange
        Names of ``.log`` files that a split makes, and of which bytes of an old one, which is among
        `deleted`. A new one has the old one's modification time, unless it was cut.
    """

    path: Path
    segments: tuple[RecoveredSegment, ...]
    deleted: Mapping[str, str]
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
    log: PartitionLog,
    version: str,
    *,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    clean: bool | None = None,
    recovery_point: int | None = None,
    log_start_offset: int | None = None,
    now_ms: int | None = None,
) -> RecoveredLog:
    """Work out what a broker makes of a partition's directory when it starts; nothing is altered.

    Parameters
    ----------
    log : PartitionLog
        The partition.
    version : str
        Of the broker, such as ``2.4``.
    index_interval_bytes : int
        The topic's ``index.interval.bytes``.
    clean : bool, optional
        Whether the broker finds the clean-shutdown marker. Default: as the log directory says;
        False for a partition directory by itself.
    recovery_point : int, optional
        First offset not known to be flushed; segments that end behind it are recovered if not
        `clean`. Default: the checkpoint's, 0 where it has none or is damaged.
    log_start_offset : int, optional
        Default: the checkpoint's, 0 where it has none or is damaged.
    now_ms : int, optional
        The clock, by which producers in snapshots are too old to be kept. Default: none is.

    Returns
    -------
    RecoveredLog

    Raises
    ------
    OffsetOverflowError
        If an offset does not fit the 31 bits above its segment's base offset, and the segment can't
        be split for it: a broker does not start then.
    OutOfOrderAppendError
        If offsets go back in a segment whose ``.index`` is missing: a broker does not start then.
    CorruptionError
        If a log is broken where a broker only reads it, or can't be read, or the epoch checkpoint
        is damaged: a broker does not start then, or gives the log directory up.
    """
    check_kind("log", log, PartitionLog)
    loader = LogLoader(
        log.path,
        rules_of(version),
        index_interval_bytes,
        _checkpointed(log, "recovery_points", recovery_point),
        _checkpointed(log, "log_start_offsets", log_start_offset),
        now_ms,
        is_clean=log.is_clean if clean is None else clean,
    )
    loader.load()
    segments = tuple(
        RecoveredSegment(
            base_offset,
            segment.size,
            segment.valid_bytes,
            segment.end(),
            segment.is_recovered,
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


def _checkpointed(log: PartitionLog, checkpoint: str, given: int | None) -> int:
    """Return an offset of a checkpoint, or what was given instead; 0 where it can't be read."""
    if given is not None:
        return given
    if log.log_dir is None:
        return 0
    try:
        offsets: Mapping[TopicPartition, int] = getattr(log.log_dir, checkpoint)
    except CorruptCheckpointError:
        return 0
    return offsets.get(log.topic_partition, 0)
