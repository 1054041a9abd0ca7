"""Plans that mend what `verify` finds: damaged logs, and indexes that are not true.

A damaged log is mended in one of two ways:

like a version
    It ends where that broker's recovery of the whole log would end: at the first broken batch, and
    all later segments go.
keep
    Every batch that can be read stays.  What lies behind a broken batch becomes a segment of its
    own, so that just the broken bytes are missing, and readers go on behind a gap of offsets.

Either way the old files lie in the undo area first.  Indexes that keep their promises stay as they
are, whoever wrote them; those that don't, and those of logs that are changed, are made anew.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kafkastore.changes.content import chunks_of
from kafkastore.changes.file_state import FileState, read_state
from kafkastore.changes.plan import Content, FileChange, Inline, Part, Plan, Prefix, Rebuilt
from kafkastore.checks.findings import Severity
from kafkastore.checks.verify import verify_log
from kafkastore.errors import KafkaStoreError
from kafkastore.formats.broker_rules import rules_of
from kafkastore.formats.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
    segment_file_name,
)
from kafkastore.formats.java_text import INT64_MAX
from kafkastore.formats.producer_state import ProducerState
from kafkastore.log.directory_files import INDEX_SUFFIXES
from kafkastore.log.log_store import AnyPartition, AnyPath, open_store
from kafkastore.log.partition_log import PartitionLog
from kafkastore.log.recovery import recover_log
from kafkastore.log.segment_split import LogPart
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES, rebuild_indexes_of
from kafkastore.segment.salvage import Stretch, stretches
from kafkastore.segment.zeros import is_zero_from

KEEP = "keep"
_LEFT_OUT = "left out; what follows is kept"


class Damage(NamedTuple):
    """Bytes of a log that can't be read, and what becomes of what lies behind them.

    Parameters
    ----------
    path : str
        The ``.log``, relative to the plan's root.
    position, size : int
        Where they begin, and how many they are.
    first_offset, end_offset : int
        Offsets that are missing then: inclusive, exclusive; not each need have had a record.
    what : str
        What is done.
    """

    path: str
    position: int
    size: int
    first_offset: int
    end_offset: int
    what: str


def plan_repair(
    path: AnyPath,
    like: str = "2.4",
    *,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    partitions: Collection[AnyPartition] | None = None,
    found: Callable[[Damage], None] | None = None,
    progress: Callable[[], None] | None = None,
) -> Plan:
    """Plan to mend damaged logs and indexes.

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
    found : callable, optional
        Called with each `Damage`.
    progress : callable, optional
        Called after each partition.

    Returns
    -------
    Plan
        For `kafkastore.apply`; without changes where nothing is damaged. What it changes of a
        ``.log`` is in the undo area first.

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

    Notes
    -----
    Source: Kafka 2.4.0 ``Log.recoverLog``, ``LogSegment.recover``.
    """
    if like != KEEP:
        rules_of(like)
    root = Path(os.path.abspath(path))
    store = open_store(root)
    changes: list[FileChange] = []
    for log in store.logs_of(partitions):
        repair = _Repair(log, index_interval_bytes)
        repair.mend(like)
        changes += repair.changes
        for each in repair.damages:
            if found is not None:
                found(each)
        if progress is not None:
            progress()
    return Plan(str(root), f"repair ({like})", tuple(changes))


@dataclass(slots=True)
class _Piece:
    """A segment as it will be: bytes of the ``.log`` of one as it is."""

    base_offset: int
    segment: LogSegment
    start: int
    end: int

    @property
    def name(self) -> str:
        return segment_file_name(self.base_offset, LOG_SUFFIX)

    @property
    def is_new(self) -> bool:
        return self.base_offset != self.segment.base_offset

    @property
    def is_changed(self) -> bool:
        return self.is_new or (self.start, self.end) != (0, self.segment.size)


@dataclass(slots=True)
class _Repair:
    """What mends one partition."""

    log: PartitionLog
    index_interval_bytes: int
    changes: list[FileChange] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)

    def mend(self, like: str) -> None:
        """Plan all that is needed."""
        findings = [each for each in verify_log(self.log) if each.severity is not Severity.STYLE]
        if any(each.path.name.endswith(LOG_SUFFIX) for each in findings):
            if like == KEEP:
                self._keep()
            else:
                self._cut(like)
        changed = {each.path for each in self.changes}
        for path in sorted({each.path for each in findings}):
            file = parse_segment_file(path.name)
            if file is None or file.temporary or self._place(path.name) in changed:
                continue
            if file.type_suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                log_path = path.with_name(segment_file_name(file.base_offset, LOG_SUFFIX))
                self._rebuild(path.name, log_path, "it is not what the log says")

    def _keep(self) -> None:
        """Keep each stretch of good batches, the first of a segment under its old name."""
        pieces = []
        for segment in self.log.segments:
            pieces += self._pieces(segment)
        left = {each.base_offset for each in pieces}
        for piece in pieces:
            if piece.is_new:
                content = Part(piece.segment.log_path.name, piece.start, piece.end)
                why = f"what can be read behind byte {piece.start} of {content.source}"
                self._write(piece.name, piece.segment.log_path, content, why)
        for piece in pieces:
            if not piece.is_new and piece.is_changed:
                why = f"what lies behind byte {piece.end} can't be read, or is kept elsewhere"
                self._write(piece.name, piece.segment.log_path, Prefix(piece.end), why)
        for segment in self.log.segments:
            if segment.base_offset not in left:
                for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
                    name = segment_file_name(segment.base_offset, suffix)
                    self._remove(name, "nothing can be read at its start")
        self._index(pieces)

    def _pieces(self, segment: LogSegment) -> list[_Piece]:
        """Divide a segment; say what lies between the pieces."""
        place = self._place(segment.log_path.name)
        with segment.open_log() as log:
            good = list(stretches(log, segment.base_offset, segment.next_base_offset))
            size = log.size
        if not good:
            good = [Stretch(0, 0, segment.base_offset, segment.base_offset)]
        pieces, position, next_offset = [], 0, segment.base_offset
        for each in good:
            if each.start > position:
                self._tell(place, position, each.start, next_offset, each.first_offset, _LEFT_OUT)
            is_first = each.start == 0
            base_offset = segment.base_offset if is_first else each.first_offset
            pieces.append(_Piece(base_offset, segment, each.start, each.end))
            position, next_offset = each.end, each.next_offset
        if position < size and not (segment.is_active and is_zero_from(segment.log_path, position)):
            end_offset = segment.next_base_offset
            self._tell(place, position, size, next_offset, end_offset or next_offset, "cut off")
        elif position < size:
            pieces[-1].end = size  # preallocated space
        return pieces

    def _index(self, pieces: list[_Piece]) -> None:
        """Make the indexes of what is changed; transactions reach from piece to piece."""
        state = ProducerState()
        state.on_high_watermark(INT64_MAX)
        for piece in pieces:
            with LogPart(piece.segment.log_path, piece.start, piece.end) as log:
                rebuilt = rebuild_indexes_of(
                    log,
                    piece.base_offset,
                    index_interval_bytes=self.index_interval_bytes,
                    producers=state,
                )
            if not piece.is_changed:
                continue
            why = f"{piece.name} is changed"
            log_path = piece.segment.log_path
            content = Rebuilt(self.index_interval_bytes)
            for suffix, data in (
                (OFFSET_INDEX_SUFFIX, rebuilt.offset_index),
                (TIME_INDEX_SUFFIX, rebuilt.time_index),
            ):
                name = segment_file_name(piece.base_offset, suffix)
                self._add(name, log_path, data, content, why)
            name = segment_file_name(piece.base_offset, TRANSACTION_INDEX_SUFFIX)
            aborted = rebuilt.transaction_index
            if len(aborted) or (self.log.path / name).exists():
                self._add(name, log_path, aborted, Inline(aborted), why)

    def _cut(self, version: str) -> None:
        """End the log where a broker's recovery would end it."""
        loaded = recover_log(
            self.log,
            version,
            index_interval_bytes=self.index_interval_bytes,
            clean=False,
            recovery_point=0,
        )
        if loaded.renamed or loaded.copied:
            raise KafkaStoreError(
                f"{self.log.path} has files of a compaction or split that was not finished, which "
                "a broker finishes when it starts; start one, or move the .swap files away first"
            )
        log_path = self.log.segments[0].log_path
        for segment in loaded.segments:
            if not segment.cut_bytes:
                continue
            name = segment_file_name(segment.base_offset, LOG_SUFFIX)
            place = self._place(name)
            self._tell(
                place, segment.valid_bytes, segment.size, segment.next_offset,
                self.log.log_end_offset, "cut off",
            )
            log_path = self.log.path / name
            why = f"a broker of {version} cuts it here: {segment.reason}"
            self._write(name, log_path, Prefix(segment.valid_bytes), why)
            for suffix in INDEX_SUFFIXES:
                index_name = segment_file_name(segment.base_offset, suffix)
                if (data := loaded.written.get(index_name)) is not None:
                    content: Content = (
                        Inline(data)
                        if suffix == TRANSACTION_INDEX_SUFFIX
                        else Rebuilt(
                            self.index_interval_bytes,
                            not rules_of(version).offset_index_has_last_offset,
                        )
                    )
                    self._add(index_name, log_path, data, content, f"{name} is cut")
        for name, reason in loaded.deleted.items():
            file = parse_segment_file(name)
            if file is None or file.temporary:
                continue
            if file.type_suffix == LOG_SUFFIX:
                size = (self.log.path / name).stat().st_size
                self._tell(self._place(name), 0, size, file.base_offset, file.base_offset, reason)
            self._remove(name, reason)
        for name, data in loaded.written.items():
            if name == LEADER_EPOCH_CHECKPOINT or name.endswith(PRODUCER_SNAPSHOT_SUFFIX):
                self._add(name, log_path, data, Inline(data), "the log ends elsewhere now")

    def _tell(
        self, place: str, position: int, end: int, first_offset: int, end_offset: int, what: str
    ) -> None:
        size = end - position
        self.damages.append(
            Damage(place, position, size, first_offset, max(end_offset, first_offset), what)
        )

    def _rebuild(self, name: str, log_path: Path, reason: str) -> None:
        """Plan an index made anew from its log as it is."""
        content = Rebuilt(self.index_interval_bytes)
        data = b"".join(bytes(chunk) for chunk in chunks_of(content, log_path.with_name(name)))
        self._add(name, log_path, data, content, reason)

    def _write(self, name: str, log_path: Path, content: Content, reason: str) -> None:
        """Plan a log; its bytes are read to know their digest."""
        path = self.log.path / name
        digest, size = hashlib.sha256(), 0
        for chunk in chunks_of(content, path):
            digest.update(chunk)
            size += len(chunk)
        after = FileState.of_digest(size, digest.hexdigest(), os.stat(log_path))
        self.changes.append(
            FileChange(self._place(name), read_state(path), after, content, reason)
        )

    def _add(
        self, name: str, log_path: Path, data: bytes, content: Content, reason: str
    ) -> None:
        """Plan a small file, unless it is as it should be."""
        path = self.log.path / name
        before = read_state(path)
        if before is not None and path.read_bytes() == data:
            return
        after = FileState.of_bytes(data, os.stat(log_path if before is None else path))
        self.changes.append(FileChange(self._place(name), before, after, content, reason))

    def _remove(self, name: str, reason: str) -> None:
        before = read_state(self.log.path / name)
        if before is not None:
            self.changes.append(FileChange(self._place(name), before, None, None, reason))

    def _place(self, name: str) -> str:
        return name if self.log.log_dir is None else f"{self.log.path.name}/{name}"
