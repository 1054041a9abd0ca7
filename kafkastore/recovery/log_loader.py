"""Load a partition directory step by step as a broker does, without changing it.

`recovery.log_recovery.recover_log` is the entry point and returns the result.

Source: Kafka 2.4.0 ``Log.loadSegments``, ``recoverLog``; 3.9.0 ``LogLoader``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kafkastore.errors import (
    CorruptCheckpointError,
    CorruptIndexError,
    CorruptionError,
    InvalidLeaderEpochError,
    OffsetOverflowError,
    OutOfOrderAppendError,
)
from kafkastore.formats.indexes import transaction_index
from kafkastore.formats.indexes.index_format import offset_index, time_index
from kafkastore.formats.state.checkpoints import (
    EpochStart,
    pack_leader_epoch_checkpoint,
    parse_leader_epoch_checkpoint,
)
from kafkastore.formats.state.file_names import (
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
    segment_file_name,
)
from kafkastore.formats.state.leader_epochs import LeaderEpochs
from kafkastore.recovery.directory_files import DirectoryFiles
from kafkastore.recovery.loaded_segment import LoadedSegment
from kafkastore.recovery.offset_search import check_search
from kafkastore.recovery.producer_recovery import (
    ProducerRecovery,
    delete_snapshot,
    remove_stray_snapshots,
)
from kafkastore.recovery.segment_recovery import SegmentRecovery
from kafkastore.segment.salvage import begins_batch
from kafkastore.versions import BrokerRules


class LogLoader:
    """Load one partition directory, in the steps of a broker.

    `files` notes all changes except truncated logs; `segments` are what remains. `load` replaces
    the checkpointed offsets by the broker's own. If `now_ms` is None, no producer expires.
    `is_tiered`: records before the first segment may be in remote storage.
    """

    def __init__(
        self,
        path: Path,
        rules: BrokerRules,
        index_interval_bytes: int,
        recovery_point: int,
        log_start_offset: int,
        now_ms: int | None,
        *,
        is_clean: bool,
        is_tiered: Callable[[], bool] = lambda: False,
    ) -> None:
        self.files = DirectoryFiles(path)
        self._is_tiered = is_tiered
        self.rules = rules
        self.recovery_point = recovery_point
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_start_offset
        self.now_ms = now_ms
        self.is_clean = is_clean
        self.segments: dict[int, LoadedSegment] = {}
        self._to_be_split: list[tuple[LoadedSegment, OffsetOverflowError]] = []
        self.snapshots_at_first = self.files.snapshot_offsets()
        self.epochs_on_disk = self._read_epochs()
        self.epochs = self._valid_epochs()
        self.producers = ProducerRecovery(self.files, rules, now_ms)
        self._recovery = SegmentRecovery(
            self.files,
            self.segments,
            self.epochs,
            rules,
            index_interval_bytes=index_interval_bytes,
            log_start_offset=log_start_offset,
            now_ms=now_ms,
        )

    def load(self) -> None:
        """Run all steps."""
        swaps = self.files.drop_temporary(self.rules)
        if self.rules.swaps_are_renamed:
            self._rename_swaps(swaps)
        self._load_segments()
        if not self.rules.swaps_are_renamed:
            self._complete_swaps(swaps)
        for segment, error in self._to_be_split:
            if self.segments.get(segment.base_offset) is segment:
                self._recovery.split(segment, error)
        if not self.is_clean:
            self._recover_and_split_unflushed()
        is_kept = self._drop_log_below_its_start()
        if not self.segments:
            self._begin_empty_log()
        self.log_end_offset = self._found_end(self._active)
        if self.rules.recovery_point_waits_for_flush and not (self.is_clean and is_kept):
            self.recovery_point = min(self.recovery_point, self.log_end_offset)
        else:
            self.recovery_point = self.log_end_offset
        checkpointed_start = self.log_start_offset
        first = min(self.segments)
        if checkpointed_start < first and not self._is_tiered():
            self.log_start_offset = first
        self._cut_epochs(self.log_end_offset, checkpointed_start)
        self._rebuild_producers(self.log_end_offset)

    @property
    def _active(self) -> LoadedSegment:
        return self.segments[max(self.segments)]

    def _found_end(self, segment: LoadedSegment) -> int:
        """Return the end offset of a segment by its last index entry, as a broker does.

        Without a batch of that entry's offset the segment counts as empty; without any batch at
        its position no broker starts. Source: Kafka 2.4.0 ``LogSegment.readNextOffset``.
        """
        if segment.is_recovered or segment.start is not None or not segment.size:
            return segment.end()
        data = self.files.read(segment.name(OFFSET_INDEX_SUFFIX), CorruptIndexError) or b""
        last = offset_index.last_entry(data, segment.base_offset)
        begin = offset_index.lookup(
            data,
            segment.base_offset,
            last.offset,
            warm_section=self.rules.indexes_have_warm_section,
        )
        with segment.open_log() as log:
            with suppress(CorruptionError):
                if log.search_for_offset(last.offset, begin.position) is None:
                    return segment.base_offset
            if self.rules.search_reads_first_offset:
                check_search(log, last.offset, max(begin.position, 0), self.rules)
            is_batch = begins_batch(log, begin.position, segment.base_offset)
            position = begin.position if is_batch else 0
            with suppress(CorruptionError):
                for run in log.runs(position):
                    position = run.end_position
            log.check_length(position)
        if begin.position > 0 and not is_batch:
            raise CorruptIndexError(
                f"the last entry leads to byte {begin.position} of {segment.log_name}, where no "
                "batch begins, and a broker does not start on that",
                path=self.files.path / segment.name(OFFSET_INDEX_SUFFIX),
                position=(offset_index.entry_count(data) - 1) * offset_index.ENTRY_SIZE,
            )
        return segment.end()

    def _read_epochs(self) -> tuple[EpochStart, ...]:
        """Read the epoch checkpoint; with a corrupt one a broker does not start."""
        try:
            data = self.files.read(LEADER_EPOCH_CHECKPOINT, CorruptCheckpointError)
            return parse_leader_epoch_checkpoint(data) if data else ()
        except CorruptCheckpointError as error:
            raise error.located(self.files.path / LEADER_EPOCH_CHECKPOINT) from error

    def _valid_epochs(self) -> LeaderEpochs:
        """Return the epochs on disk; with a negative one a broker does not start."""
        try:
            return LeaderEpochs(self.epochs_on_disk)
        except InvalidLeaderEpochError as error:
            path = self.files.path / LEADER_EPOCH_CHECKPOINT
            raise CorruptCheckpointError(str(error), path=path) from error

    def _rename_swaps(self, swaps: list[str]) -> None:
        """Replace all segments that ``.swap`` segments cover.

        Source: Kafka 3.9.0 ``LogLoader.load``.
        """
        logs = [self._open(name) for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
        if logs:
            first = min(segment.base_offset for segment in logs)
            end = max(segment.end() for segment in logs)
            for name in list(self.files):
                file = parse_segment_file(name)
                if file is None or file.leader_epoch is not None or name in swaps:
                    continue
                if first <= file.base_offset < end:
                    self.files.delete(name, "replaced by a .swap segment")
        for name in swaps:
            self.files.rename(name, name.removesuffix(SWAP_SUFFIX), "replaced by a .swap file")

    def _complete_swaps(self, swaps: list[str]) -> None:
        """Recover ``.swap`` segments, and replace the segments that each of them covers.

        Source: Kafka 2.4.0 ``Log.completeSwapOperations``, ``replaceSegments``.
        """
        for name in swaps:
            if not name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
                continue
            swap = self._open(name)
            self._recovery.recover(swap)
            end = swap.end()
            for segment in [self.segments[base] for base in sorted(self.segments)]:
                if swap.base_offset <= segment.base_offset < end or (
                    segment.base_offset < swap.base_offset < segment.end()
                ):
                    self._delete(segment, "replaced by a .swap segment")
            for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
                old_name = swap.name(suffix)
                self.files.rename(old_name, old_name.removesuffix(SWAP_SUFFIX), "")
            swap.log_name = name.removesuffix(SWAP_SUFFIX)
            self.segments[swap.base_offset] = swap

    def _load_segments(self) -> None:
        """Open each segment, and recover those whose indexes a broker rejects.

        Source: Kafka 2.4.0 ``Log.loadSegmentFiles``, ``LogSegment.sanityCheck``.
        """
        for name in list(self.files):
            file = parse_segment_file(name)
            if file is None or file.temporary:
                continue
            log_name = segment_file_name(file.base_offset, LOG_SUFFIX)
            if file.type_suffix in INDEX_SUFFIXES and log_name not in self.files:
                self.files.delete(name, "an index without its log")
            elif file.type_suffix == LOG_SUFFIX:
                segment = self._open(name)
                try:
                    if self._are_indexes_refused(segment):
                        self._recovery.recover(segment)
                except OffsetOverflowError as error:
                    if not any(each.endswith(SWAP_SUFFIX) for each in self.files):
                        self._recovery.split(segment, error)
                        continue
                    # Its parts may already exist, as ``.swap`` segments.
                    self._to_be_split.append((segment, error))
                self.segments[segment.base_offset] = segment

    def _are_indexes_refused(self, segment: LoadedSegment) -> bool:
        """Return whether a broker rejects the indexes; create a missing time index."""
        offset_index_name = segment.name(OFFSET_INDEX_SUFFIX)
        time_index_name = segment.name(TIME_INDEX_SUFFIX)
        if offset_index_name not in self.files:
            return True
        if time_index_name not in self.files:
            self.files.write(time_index_name, b"")
        if self.rules.indexes_checked_on_load and not are_indexes_accepted(
            self.files.read(offset_index_name, CorruptIndexError) or b"",
            self.files.read(time_index_name, CorruptIndexError) or b"",
            segment.base_offset,
            self.rules,
        ):
            return True
        name = segment.name(TRANSACTION_INDEX_SUFFIX)
        data = self.files.read(name, CorruptIndexError) or b""
        try:
            aborted = transaction_index.parse(data)
        except CorruptIndexError as error:
            raise error.located(self.files.path / name) from error
        return bool((aborted["last_offset"] < segment.base_offset).any())

    def _open(self, name: str) -> LoadedSegment:
        """Return a segment with the size of its log."""
        path = self.files.path_of(name)
        file = parse_segment_file(name)
        assert file is not None
        size = path.stat().st_size
        return LoadedSegment(file.base_offset, name, path, size, size)

    def _recover_and_split_unflushed(self) -> None:
        """Recover from the recovery point on; start again whenever a segment was split."""
        while (overflow := self._recover_unflushed()) is not None:
            self._recovery.split(*overflow, was_loaded=True)

    def _recover_unflushed(self) -> tuple[LoadedSegment, OffsetOverflowError] | None:
        """Recover segments from the recovery point on, up to the first that is cut.

        Return a segment that must be split first, if any.
        Source: Kafka 2.4.0 ``Log.recoverLog``.
        """
        flushed = [base for base in self.segments if base <= self.recovery_point]
        first = max(flushed, default=0)
        unflushed = [base for base in sorted(self.segments) if base >= first]
        for slot, base_offset in enumerate(unflushed):
            segment = self.segments[base_offset]
            try:
                cut_bytes = self._recovery.recover(segment, finds_epochs=True)
            except OutOfOrderAppendError as error:
                cut_bytes = segment.valid_bytes
                self._recovery.empty(segment, error)
            except OffsetOverflowError as error:
                return segment, error
            if cut_bytes:
                for later in unflushed[slot + 1 :]:
                    reason = f"after {segment.log_name}, which is truncated"
                    self._delete(self.segments[later], reason)
                return None
        return None

    def _drop_log_below_its_start(self) -> bool:
        """Drop all segments if the log ends below its start; return whether any remain."""
        if not self.segments:
            return False
        log_end_offset = self._found_end(self._active)
        if log_end_offset >= self.log_start_offset:
            return True
        if not self.rules.log_below_its_start_is_deleted:
            return True
        reason = why_deleted(log_end_offset, self.log_start_offset)
        for segment in list(self.segments.values()):
            self._delete(segment, reason)
        if self.rules.snapshots_follow_segments:
            self.epochs.clear()
            for offset in self.snapshots_at_first:
                delete_snapshot(self.files, offset, reason)
            self.producers = ProducerRecovery(
                self.files, self.rules, self.now_ms, self.log_start_offset
            )
        return False

    def _delete(self, segment: LoadedSegment, reason: str) -> None:
        """Delete a segment."""
        for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
            self.files.delete(segment.name(suffix), reason)
        if self.rules.snapshots_follow_segments and segment.base_offset in self.snapshots_at_first:
            delete_snapshot(self.files, segment.base_offset, reason)
        del self.segments[segment.base_offset]

    def _begin_empty_log(self) -> None:
        """Create the first segment of an empty log."""
        base_offset = self.log_start_offset
        name = segment_file_name(base_offset, LOG_SUFFIX)
        for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self.files.write(name.replace(LOG_SUFFIX, suffix), b"")
        self.segments[base_offset] = LoadedSegment(
            base_offset, name, self.files.path / name, 0, 0, base_offset
        )

    def _cut_epochs(self, log_end_offset: int, checkpointed_start: int) -> None:
        """Truncate the leader epochs at both ends, and write them if they changed."""
        self.epochs.truncate_from_end(log_end_offset)
        if self.rules.every_recovery_finds_epochs:
            self.epochs.truncate_from_start(checkpointed_start)
        else:
            self.epochs.truncate_from_start(self.log_start_offset)
        if self.epochs.entries != self.epochs_on_disk:
            data = pack_leader_epoch_checkpoint(self.epochs.entries)
            self.files.write(LEADER_EPOCH_CHECKPOINT, data)

    def _rebuild_producers(self, log_end_offset: int) -> None:
        """Rebuild the producers' state at the log end; write a broker's snapshots."""
        base_offsets = sorted(self.segments)
        if self.rules.snapshots_follow_segments:
            remove_stray_snapshots(self.files, base_offsets)
        self.producers.rebuild(
            base_offsets,
            self.log_start_offset,
            log_end_offset,
            self._recovery.replay,
            is_last=True,
            was_clean=self.is_clean,
        )


def why_deleted(log_end_offset: int, log_start_offset: int) -> str:
    """Say why a broker deletes a log that ends below its start."""
    return f"the log ends at {log_end_offset}, below its start {log_start_offset}"


def are_indexes_accepted(
    offset_index_data: bytes, time_index_data: bytes, base_offset: int, rules: BrokerRules
) -> bool:
    """Return whether a broker that checks indexes when it loads them accepts these."""
    try:
        offset_index.check(offset_index_data, base_offset)
        time_index.check(time_index_data, base_offset)
    except CorruptIndexError:
        return False
    last = offset_index.last_entry(offset_index_data, base_offset)
    is_strict = not rules.offset_index_has_last_offset
    return not (is_strict and offset_index_data and last.offset == base_offset)
