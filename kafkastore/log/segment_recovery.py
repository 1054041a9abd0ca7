"""One segment recovered while its log is loaded, or split; and what its producers have done.

Source: Kafka 2.4.0 ``Log.recoverSegment``, ``splitOverflowedSegment``; 3.9.0 ``LogLoader``.
"""

from __future__ import annotations

from kafkastore.errors import OffsetOverflowError
from kafkastore.formats.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from kafkastore.formats.leader_epochs import LeaderEpochs
from kafkastore.formats.producer_state import ProducerState
from kafkastore.log.directory_files import DirectoryFiles
from kafkastore.log.loaded_segment import LoadedSegment
from kafkastore.log.producer_recovery import ProducerRecovery, delete_snapshot
from kafkastore.log.segment_split import (
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

_TORN = "the last batch is torn, or there are zeros behind it"


class SegmentRecovery:
    """Recovers and splits segments; what becomes of them is noted, nothing on disk is altered.

    Parameters
    ----------
    files : DirectoryFiles
        Gets what becomes of the files.
    segments : dict of int to LoadedSegment
        The log's segments so far, by base offset; parts of one that is split are put there.
    epochs : LeaderEpochs
        Gets those that are found.
    rules : BrokerRules
        Of the broker's version.
    index_interval_bytes : int
        The topic's ``index.interval.bytes``.
    log_start_offset : int
        As checkpointed.
    now_ms : int or None
        The clock; None: no producer is too old.
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
        """Go over a segment's log, and make its indexes and a snapshot.

        Parameters
        ----------
        segment : LoadedSegment
            Which has then what stays of it.
        finds_epochs : bool
            Whether its leader epochs are kept whatever the version.

        Returns
        -------
        int
            How many bytes are cut.

        Raises
        ------
        OffsetOverflowError
            If it has to be split first.
        OutOfOrderAppendError
            If offsets go back.

        Notes
        -----
        Source: Kafka 2.4.0 ``Log.recoverSegment``, ``LogSegment.recover``.
        """
        with segment.open_log() as log:
            rebuilt, producers = self._rebuild(segment, log, finds_epochs=finds_epochs)
        cut_bytes = segment.valid_bytes - rebuilt.valid_bytes
        segment.valid_bytes, segment.next_offset = rebuilt.valid_bytes, rebuilt.next_offset
        segment.is_recovered = True
        self._copy(segment)
        if segment.cut_bytes and segment.reason is None:
            segment.reason = rebuilt.reason or _TORN
        self._write_indexes(
            segment, rebuilt.offset_index, rebuilt.time_index, rebuilt.transaction_index
        )
        if rebuilt.producers_end_offset is not None:
            producers.end_offset = rebuilt.producers_end_offset
        producers.take_snapshot()
        return cut_bytes

    def empty(self, segment: LoadedSegment, reason: str) -> None:
        """Drop all that a segment holds.

        Parameters
        ----------
        segment : LoadedSegment
            Which stays, empty.
        reason : str
            Why.
        """
        segment.valid_bytes, segment.next_offset = 0, segment.base_offset
        segment.is_recovered, segment.reason = True, reason
        self._write_indexes(segment, b"", b"", b"")
        self._copy(segment)

    def split(
        self, segment: LoadedSegment, error: OffsetOverflowError, *, was_loaded: bool = False
    ) -> None:
        """Put parts in the place of a segment that an offset does not fit; they aren't recovered.

        Parameters
        ----------
        segment : LoadedSegment
            Which is gone then.
        error : OffsetOverflowError
            What its recovery ended with; raised where it can't be split.
        was_loaded : bool
            Whether it was among the log's segments.

        Notes
        -----
        One that was not loaded yet is not deleted by a broker: what no part replaces stays. Of that
        the transaction index is kept here, but not a log beside which its records are once more.

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
        reason = f"split, for its offsets do not fit in one segment: {error}"
        is_replaced = parts[0].base_offset == segment.base_offset
        # Up to the overflow a recovery has gone before it gave up.
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
        """Carry producers on over a segment, from the batch on that holds an offset.

        Parameters
        ----------
        state : ProducerState
            As it is before.
        base_offset : int
            Of the segment.
        start_offset : int
            The offset.
        """
        segment = self.segments[base_offset]
        with segment.open_log() as log:
            for run in batch_runs(log):
                headers = run.headers
                is_asked = (headers["position"] < segment.valid_bytes) & (
                    headers["last_offset"] >= start_offset
                )
                replay_run(state, run, is_asked)
        self._check_loadable(state)

    def _rebuild(
        self, segment: LoadedSegment, log: LogFile, *, finds_epochs: bool
    ) -> tuple[RebuiltIndexes, ProducerRecovery]:
        """Index a segment's log, and carry the producers, and epochs, on over it."""
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
        """Make a segment's index files; a transaction index only if there is one, or a need."""
        self.files.write(segment.name(OFFSET_INDEX_SUFFIX), offset_index)
        self.files.write(segment.name(TIME_INDEX_SUFFIX), time_index)
        name = segment.name(TRANSACTION_INDEX_SUFFIX)
        if aborted or name in self.files:
            self.files.write(name, aborted)

    def _copy(self, segment: LoadedSegment) -> None:
        """Have a part's log made of the bytes of it that stay; for others nothing is to be done."""
        if segment.start is not None:
            self.files.copied[segment.log_name] = CopiedRange(
                segment.path.name,
                segment.start,
                segment.start + segment.valid_bytes,
                is_cut=segment.cut_bytes > 0,
            )

    def _check_loadable(self, state: ProducerState) -> None:
        """Refuse what a broker refuses to load."""
        if state.first_refusal is not None:
            raise state.first_refusal
