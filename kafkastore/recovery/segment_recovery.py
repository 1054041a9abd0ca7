"""Recover or split one segment while its log is loaded.

Source: Kafka 2.4.0 ``Log.recoverSegment``, ``splitOverflowedSegment``; 3.9.0 ``LogLoader``.
"""

from __future__ import annotations

from kafkastore.errors import CorruptIndexError, OffsetOverflowError, OutOfOrderAppendError
from kafkastore.formats.indexes.index_format import offset_index
from kafkastore.formats.state.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from kafkastore.formats.state.leader_epochs import LeaderEpochs
from kafkastore.formats.state.producer_state import ProducerState
from kafkastore.recovery.directory_files import DirectoryFiles
from kafkastore.recovery.loaded_segment import CutKind, LoadedSegment
from kafkastore.recovery.offset_search import check_search
from kafkastore.recovery.producer_recovery import ProducerRecovery, delete_snapshot
from kafkastore.recovery.segment_split import (
    LARGEST_RELATIVE_OFFSET,
    CopiedRange,
    LogPart,
    overflow_position,
    parts_of,
)
from kafkastore.segment.log_file import LogFile
from kafkastore.segment.recovery import (
    RebuiltIndexes,
    batch_runs,
    rebuild_indexes_of,
    replay_run,
)
from kafkastore.versions import BrokerRules

_NO_BATCH = "no complete batch is left: an incomplete one, zeros, or other bytes follow"


class SegmentRecovery:
    """Recover and split segments; note changes in `files`, not on disk.

    `segments` are the log's segments so far, by base offset; the parts of a split segment are
    added. Leader epochs found are added to `epochs`. If `now_ms` is None, no producer expires.
    """

    def __init__(
        self,
        files: DirectoryFiles,
        segments: dict[int, LoadedSegment],
        epochs: LeaderEpochs,
        rules: BrokerRules,
        *,
        index_interval_bytes: int,
        log_start_offset: int,
        now_ms: int | None,
    ) -> None:
        self.files, self.segments, self.epochs, self.rules = files, segments, epochs, rules
        self.index_interval_bytes = index_interval_bytes
        self.log_start_offset = log_start_offset
        self.now_ms = now_ms

    def recover(self, segment: LoadedSegment, *, finds_epochs: bool = False) -> int:
        """Check a log, rebuild its indexes, write a snapshot; return the bytes cut.

        Updates `segment`. Raises `OffsetOverflowError` if it must be split first,
        `OutOfOrderAppendError` if offsets decrease. `finds_epochs` keeps epochs in any version.

        Source: Kafka 2.4.0 ``Log.recoverSegment``, ``LogSegment.recover``.
        """
        with segment.open_log() as log:
            rebuilt, producers = self._rebuild(segment, log, finds_epochs=finds_epochs)
        cut_bytes = segment.valid_bytes - rebuilt.valid_bytes
        segment.valid_bytes, segment.next_offset = rebuilt.valid_bytes, rebuilt.next_offset
        segment.is_recovered = True
        self._copy(segment)
        if segment.cut_bytes and segment.reason is None:
            is_torn = rebuilt.reason is None
            segment.cut_kind = CutKind.INCOMPLETE_BATCH if is_torn else CutKind.CORRUPT_BATCH
            segment.reason = rebuilt.reason or _NO_BATCH
        self._write_indexes(
            segment, rebuilt.offset_index, rebuilt.time_index, rebuilt.transaction_index
        )
        if rebuilt.producers_end_offset is not None:
            producers.end_offset = rebuilt.producers_end_offset
        producers.take_snapshot()
        return cut_bytes

    def empty(self, segment: LoadedSegment, error: OutOfOrderAppendError) -> None:
        """Truncate a segment whose offsets go back to 0 bytes."""
        segment.valid_bytes, segment.next_offset = 0, segment.base_offset
        segment.is_recovered, segment.reason = True, str(error)
        segment.cut_kind = CutKind.OUT_OF_ORDER_OFFSETS
        self._write_indexes(segment, b"", b"", b"")
        self._copy(segment)

    def split(
        self, segment: LoadedSegment, error: OffsetOverflowError, *, was_loaded: bool = False
    ) -> None:
        """Replace a segment whose offsets overflow by parts, which are not recovered yet.

        Raises `error` if it can't be split. Of a segment not loaded, a broker leaves the files that
        no part replaces; here its log is removed, because its records would be duplicates.

        Source: Kafka 2.4.0 ``Log.retryOnOffsetOverflow``, ``replaceSegments``; KAFKA-6264.
        """
        is_split = self.rules.cleaned_files_void_swaps and segment.start is None
        if not is_split or segment.end() - 1 - segment.base_offset <= LARGEST_RELATIVE_OFFSET:
            raise error
        parts = parts_of(
            segment.path,
            segment.valid_bytes,
            self.index_interval_bytes,
            each_batch_is_indexed=self.rules.each_batch_is_indexed,
        )
        new_names = [segment_file_name(part.base_offset, LOG_SUFFIX) for part in parts]
        if any(name in self.files for name in new_names if name != segment.log_name):
            raise error
        reason = f"split, because its offsets do not fit in one segment: {error}"
        is_replaced = parts[0].base_offset == segment.base_offset
        # The recovery that failed had read up to the overflow.
        overflow = overflow_position(segment.path, segment.valid_bytes, segment.base_offset)
        with LogPart(segment.path, 0, overflow) as log:
            rebuilt, _ = self._rebuild(segment, log, finds_epochs=was_loaded)
        aborted = rebuilt.transaction_index if is_replaced and not was_loaded else b""
        self.segments.pop(segment.base_offset, None)
        self.files.delete(segment.log_name, reason)
        self.files.delete(segment.name(TRANSACTION_INDEX_SUFFIX), reason)
        if not is_replaced:
            self.files.delete(segment.name(OFFSET_INDEX_SUFFIX), reason)
            self.files.delete(segment.name(TIME_INDEX_SUFFIX), reason)
            if self.rules.snapshots_follow_segments:
                delete_snapshot(self.files, segment.base_offset, reason)
        for name, part in zip(new_names, parts, strict=True):
            new = LoadedSegment(
                part.base_offset, name, segment.path, part.size, part.size, part.next_offset
            )
            new.start = part.start
            self._copy(new)
            self._write_indexes(new, *part.indexes(), aborted)
            self.segments[new.base_offset], aborted = new, b""

    def replay(self, state: ProducerState, base_offset: int, start_offset: int) -> None:
        """Apply a segment to the producers' state, from the batch with `start_offset` on."""
        end, segment = 0, self.segments[base_offset]
        with segment.open_log() as log:
            if self.rules.search_reads_first_offset:
                self._check_search(segment, log, start_offset)
            for run in batch_runs(log, frames_negative_magic=True):
                replay_run(state, run, run.headers["last_offset"] >= start_offset)
                end = run.end_position
            log.check_length(end)
        self._check_loadable(state)

    def _check_search(self, segment: LoadedSegment, log: LogFile, target_offset: int) -> None:
        """Search a segment for an offset, from the floor entry of its offset index on."""
        data = self.files.read(segment.name(OFFSET_INDEX_SUFFIX), CorruptIndexError) or b""
        floor = offset_index.lookup(
            data,
            segment.base_offset,
            target_offset,
            warm_section=self.rules.indexes_have_warm_section,
        )
        check_search(log, target_offset, max(floor.position, 0), self.rules)

    def _rebuild(
        self, segment: LoadedSegment, log: LogFile, *, finds_epochs: bool
    ) -> tuple[RebuiltIndexes, ProducerRecovery]:
        """Rebuild a segment's indexes, and update producers and epochs from its log."""
        producers = ProducerRecovery(self.files, self.rules, self.now_ms)
        producers.rebuild(
            sorted(self.segments),
            self.log_start_offset,
            segment.base_offset,
            self.replay,
            is_last=False,
        )
        finds_epochs = finds_epochs or self.rules.every_recovery_finds_epochs
        rebuilt = rebuild_indexes_of(
            log,
            segment.base_offset,
            index_interval_bytes=self.index_interval_bytes,
            rules=self.rules,
            producers=producers.state,
            epochs=self.epochs if finds_epochs else None,
        )
        if rebuilt.read_error is not None:
            raise rebuilt.read_error
        self._check_loadable(producers.state)
        return rebuilt, producers

    def _write_indexes(
        self, segment: LoadedSegment, offset_index: bytes, time_index: bytes, aborted: bytes
    ) -> None:
        """Write a segment's index files.

        An empty transaction index is only written over an existing one.
        """
        self.files.write(segment.name(OFFSET_INDEX_SUFFIX), offset_index)
        self.files.write(segment.name(TIME_INDEX_SUFFIX), time_index)
        name = segment.name(TRANSACTION_INDEX_SUFFIX)
        if aborted or name in self.files:
            self.files.write(name, aborted)

    def _copy(self, segment: LoadedSegment) -> None:
        """Note the bytes that form a part's log; other segments need no copy."""
        if segment.start is not None:
            self.files.copied[segment.log_name] = CopiedRange(
                segment.path.name,
                segment.start,
                segment.start + segment.valid_bytes,
                is_cut=segment.cut_bytes > 0,
            )

    def _check_loadable(self, state: ProducerState) -> None:
        """Raise the error with which a broker refuses to load the producers' state."""
        if state.first_refusal is not None:
            raise state.first_refusal
