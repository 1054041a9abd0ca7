"""Write the log of one partition: append, roll, truncate, delete, flush, close.

At any moment the files hold what a broker's would.  After `LogWriter.close` a broker loads them
without recovery; after a crash, a broker's recovery and `recovery.log_recovery.recover_log` give
the same log.

After an I/O error the state on disk is unknown.  A broker then takes the whole log directory
offline; a writer refuses all further work.  Reopen the log to recover it.

Source: Kafka 2.4.0 ``Log``, 3.9.0 ``UnifiedLog``, ``LocalLog``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkastore.arguments import timestamp_ms, whole_number
from kafkastore.errors import OffsetOutOfRangeError, WriterFailedError
from kafkastore.formats.records.append_sets import AppendSets
from kafkastore.formats.records.compression import Codec
from kafkastore.formats.state.checkpoints import EpochStart
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.fs import FileSystem
from kafkastore.metadata.topic_configs import ConfigSource
from kafkastore.recovery.log_recovery import RecoveredLog
from kafkastore.versions import BrokerRules
from kafkastore.writing import retention
from kafkastore.writing.append_rules import AppendRules
from kafkastore.writing.log_config import LogConfig
from kafkastore.writing.new_batches import batches_of_records
from kafkastore.writing.unified_log import UnifiedLog

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from kafkastore.formats.records.record_builder import BatchFields, NewRecord

#: Target size of a batch: the default of a producer's ``batch.size``.
BATCH_BYTES = 16384


class AppendInfo(NamedTuple):
    """Describe the result of an append.

    Parameters
    ----------
    first_offset : int
        Offset of the first record; for a follower's messages before magic 2, the last offset of the
        first message. -1 if nothing was appended.
    last_offset : int
        Inclusive; -1 if nothing was appended.
    log_append_time : int
        ms since 1970, if the records got it as their timestamp; else -1.
    is_duplicate : bool
        Whether the log already held this batch of an idempotent producer. The offsets are the
        existing ones; nothing was written.
    """

    first_offset: int
    last_offset: int
    log_append_time: int = -1
    is_duplicate: bool = False


_LARGEST_INT8 = 127
_NOTHING = AppendInfo(-1, -1)


def _offset(value: object) -> int:
    """Return `value` as an int; bool and anything that is not an int are refused."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise OffsetOutOfRangeError(f"offset must be an int, got {value!r}")
    return operator.index(value)


class LogWriter:
    """Write the log of one partition; get one from `LogDirWriter.writer`.

    Not thread-safe.

    Parameters
    ----------
    loaded : RecoveredLog
        The contents of the directory.
    topic_partition : TopicPartition
        The topic and partition that the directory is named after.
    config : LogConfig
        The topic's configuration.
    rules : BrokerRules
        The behaviour of the broker version to follow.
    reload : callable
        Called with the writer after a truncation: checkpoints a lowered recovery point and loads
        the directory again.
    clock : callable
        Returns the wall clock, ms since 1970.
    fs : FileSystem
        Makes all changes to files.
    prepare : callable
        Called with the writer before the first change: writes to disk what loading has repaired.
    config_sources : mapping of str to ConfigSource
        Where the options of `config` come from, by Kafka's names; the others are Kafka's defaults.
    """

    def __init__(
        self,
        loaded: RecoveredLog,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        rules: BrokerRules,
        reload: Callable[[LogWriter], RecoveredLog],
        clock: Callable[[], int],
        fs: FileSystem,
        prepare: Callable[[LogWriter], None],
        config_sources: Mapping[str, ConfigSource] = MappingProxyType({}),
    ) -> None:
        self.path, self.topic_partition, self.config = loaded.path, topic_partition, config
        self.config_sources = config_sources
        self._reload, self._clock = reload, clock
        self._append_rules = AppendRules(config, rules)
        loaded.producers.on_high_watermark(loaded.log_end_offset)
        self._loaded, self._rules, self._fs, self._prepare = loaded, rules, fs, prepare
        self._opened: UnifiedLog | None = None
        self._failure: BaseException | None = None
        self._is_closed = False

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LogWriter({str(self.path)!r})"

    @property
    def log_start_offset(self) -> int:
        """First offset that can be read."""
        log = self._opened
        return self._loaded.log_start_offset if log is None else log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record."""
        log = self._opened
        return self._loaded.log_end_offset if log is None else log.local.log_end_offset

    @property
    def high_watermark(self) -> int:
        """First offset not replicated: the log end offset, for a sole replica."""
        return self.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """First offset of the oldest open transaction, or the log end offset."""
        if self._opened is not None:
            return self._opened.last_stable_offset
        unstable = self._loaded.producers.first_unstable_offset
        if unstable is None:
            return self.log_end_offset
        return max(unstable, self.log_start_offset)

    @property
    def recovery_point(self) -> int:
        """First offset that may not be flushed."""
        if self._opened is not None:
            return self._opened.local.recovery_point
        return min(self._loaded.recovery_point, self._loaded.log_end_offset)

    @property
    def base_offsets(self) -> tuple[int, ...]:
        """Base offsets of the segments, ascending; the last is the active segment's."""
        if self._opened is not None:
            return self._opened.local.base_offsets
        return tuple(segment.base_offset for segment in self._loaded.segments)

    @property
    def leader_epochs(self) -> tuple[EpochStart, ...]:
        """The leader epochs with their start offsets, ascending."""
        return self._loaded.leader_epochs if self._opened is None else self._opened.epochs.entries

    @property
    def has_failed(self) -> bool:
        """Whether an error has left the state on disk unknown."""
        return self._failure is not None

    @property
    def _log(self) -> UnifiedLog:
        """The log; the first access opens its files and may change them."""
        if self._opened is None:
            try:
                self._prepare(self)
                self._opened = UnifiedLog(
                    self._loaded, self.config, self._rules, now=self._clock(), fs=self._fs
                )
            except BaseException as error:
                self._fail(error)
                raise
        return self._opened

    def begin(self) -> None:
        """Prepare the files for writing, as the first append does."""
        with self._altering():
            self._log  # noqa: B018

    def append(
        self,
        batches: ReadableBuffer,
        *,
        leader_epoch: int | None = None,
        as_follower: bool = False,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Append batches as a leader or as a follower.

        Parameters
        ----------
        batches : bytes-like
            As a leader, record batches (magic 2): offsets, leader epochs and, with LogAppendTime,
            timestamps are set; batches are recompressed if the topic's ``compression.type``
            differs; each batch is checked as if it arrived alone. As a follower, batches or
            messages, kept unchanged and appended as one set; an incomplete batch at the end is
            dropped.
        leader_epoch : int, optional
            The leader's epoch; default: the latest known, at first 0.
        as_follower : bool
            Whether to keep the batches unchanged, as a follower does.
        transaction_version : int
            The ``transaction.version`` of the transactions that markers end: with 2, a leader from
            Kafka 4.2 on checks that a marker raises its producer's epoch (KIP-1228).

        Returns
        -------
        AppendInfo

        Raises
        ------
        ArgumentTypeError, ArgumentValueError
            If `transaction_version` is not an int from 0 to 127.
        InvalidRecordError
            If a leader rejects a record or a batch; subclasses include `InvalidTimestampError` and
            `RecordTooLargeError`.
        CorruptBatchError
            If a batch breaks its format, or its checksum is wrong.
        OutOfOrderAppendError
            If a follower's offsets decrease.
        ProducerStateError
            If a batch does not match its producer's sequence, epoch or transaction.
        WriterFailedError
            If this write or an earlier one failed.

        Notes
        -----
        If an error is raised, nothing is appended, with one exception: batches of producers and
        recompressed batches are appended one by one, so those before the rejected batch are in the
        log. Compare the log end offset.

        Source: Kafka 2.4.0 ``Log.append``, 3.9.0 ``UnifiedLog.append``.
        """
        self._check_usable()
        transaction_version = whole_number(
            "transaction_version", transaction_version, 0, _LARGEST_INT8
        )
        log, now, epoch = self._log, self._clock(), None
        next_offset = log.local.log_end_offset
        if as_follower:
            data, sets = self._append_rules.as_follower(batches, next_offset)
        else:
            epoch = log.epochs.of_leader(leader_epoch)
            data, sets = self._append_rules.as_leader(
                batches, next_offset, leader_epoch=epoch, now=now
            )
        if not sets.count:
            return _NOTHING
        prepared = None
        if sets.count > 1 and (sets.has_producers or self._append_rules.needs_recompression(sets)):
            # A producer's batch may be a duplicate, so each batch is appended alone.
            return self._append_all(
                _each_batch(batches, sets), leader_epoch, transaction_version=transaction_version
            )
        if sets.has_producers:
            prepared = log.producers.prepare(
                data, sets, as_follower=as_follower, transaction_version=transaction_version
            )
            if prepared.duplicate is not None:
                return AppendInfo(
                    prepared.duplicate.first_offset,
                    prepared.duplicate.last_offset,
                    prepared.duplicate.timestamp if self._append_rules.has_append_time else -1,
                    is_duplicate=True,
                )
        first_offset = sets.reported_first_offset()
        try:
            log.append(data, sets, prepared, leader_epoch=epoch, now=now)
        except BaseException as error:
            self._fail(error)
            raise
        append_time = now if self._append_rules.has_append_time and not as_follower else -1
        return AppendInfo(first_offset, log.local.log_end_offset - 1, append_time)

    def append_records(
        self,
        records: Iterable[NewRecord],
        *,
        leader_epoch: int | None = None,
        batch_bytes: int = BATCH_BYTES,
        **fields: Any,
    ) -> AppendInfo:
        """Build batches from records and append them as a leader.

        Parameters
        ----------
        records : iterable of NewRecord
            Such as `Record`; its offset is ignored.
        leader_epoch : int, optional
            As for `append`.
        batch_bytes : int
            Maximum size of a batch before compression, further limited by ``max.message.bytes`` and
            ``segment.bytes``. A single larger record gets a batch of its own.
        **fields : BatchFields
            Fields that all records share: codec, producer, transaction. The default codec is the
            topic's ``compression.type``.

        Returns
        -------
        AppendInfo
            For all batches together.

        Raises
        ------
        InvalidRecordError, ProducerStateError, WriterFailedError
            As for `append`; the batches before the rejected one are appended.
        """
        built = batches_of_records(records, self._largest_batch(batch_bytes), self._fields(fields))
        return self._append_all(built, leader_epoch)

    def append_columns(
        self,
        data: Any,
        *,
        leader_epoch: int | None = None,
        batch_bytes: int = BATCH_BYTES,
        keep_offsets: bool = False,
        **fields: Any,
    ) -> AppendInfo:
        """Build batches from Arrow columns and append them as a leader.

        Parameters
        ----------
        data : pyarrow.Table, RecordBatch, RecordBatchReader
            Columns as in `batches_from_arrow.batches_of_columns`, such as the result of
            `PartitionLog.to_arrow`.
        leader_epoch, batch_bytes
            As for `append_records`.
        keep_offsets : bool
            Whether to keep the offsets of the column `offset`. The batches are then appended as a
            follower does: offsets must increase, and nothing else is checked.
        **fields
            As for `append_records`.

        Returns
        -------
        AppendInfo
            For all batches together.

        Raises
        ------
        InvalidRecordError, ProducerStateError, WriterFailedError
            As for `append_records`.
        OutOfOrderAppendError
            If kept offsets do not increase.
        """
        from kafkastore.writing.batches_from_arrow import (
            batches_of_columns,  # pyarrow is slow to load
        )

        made = self._fields(fields)
        if keep_offsets:
            made = {"leader_epoch": self._log.epochs.of_leader(leader_epoch), **made}
            if self._append_rules.has_append_time:
                made["log_append_time"] = self._clock()
        built = batches_of_columns(
            data, self._largest_batch(batch_bytes), made, keep_offsets=keep_offsets
        )
        return self._append_all(built, leader_epoch, as_follower=keep_offsets)

    def roll(self) -> int:
        """Start a new segment at the log end, unless the active one is empty.

        Returns
        -------
        int
            Base offset of the active segment.
        """
        with self._altering():
            if self._log.local.active.size:
                self._log.roll(self._clock())
        return self.base_offsets[-1]

    def flush(self) -> None:
        """Flush all records to disk; the recovery point becomes the log end offset.

        Notes
        -----
        The next writer or broker learns the recovery point from the log directory's checkpoint,
        which `LogDirWriter.checkpoint` writes.
        """
        with self._altering():
            self._log.local.flush()

    def truncate_to(self, offset: int) -> bool:
        """Delete all records at or after `offset`, and the whole batch that contains it.

        Parameters
        ----------
        offset : int
            The new log end offset.

        Returns
        -------
        bool
            Whether the log held records at or after `offset`.

        Raises
        ------
        OffsetOutOfRangeError
            If `offset` is negative, or not an int.
        WriterFailedError
            As for `append`.

        Notes
        -----
        An offset below the first segment empties the log, which then starts at that offset.

        Source: Kafka 2.4.0 ``Log.truncateTo``.
        """
        offset = _offset(offset)
        if offset < 0:
            raise OffsetOutOfRangeError(f"offset must be at least 0, got {offset}")
        with self._altering():
            if not self._log.truncate_to(offset, self._clock()):
                return False
            loaded = self._reload(self)
            self._log.producers.reload(loaded.producers, loaded.deleted)
            self._log.producers.on_high_watermark(offset)
        return True

    def delete_records(self, before_offset: int) -> int:
        """Raise the log start offset; `delete_old_segments` deletes segments below it.

        Parameters
        ----------
        before_offset : int
            The new log start offset, at most the high watermark; a value below the current one has
            no effect.

        Returns
        -------
        int
            The log start offset.

        Raises
        ------
        OffsetOutOfRangeError
            If `before_offset` is above the high watermark, or not an int.

        Notes
        -----
        Source: Kafka 2.4.0 ``Log.maybeIncrementLogStartOffset``.
        """
        before_offset = _offset(before_offset)
        if before_offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"log start offset {before_offset} is above the high watermark,"
                f" {self.high_watermark}"
            )
        with self._altering():
            self._log.move_start(before_offset)
        return self.log_start_offset

    def delete_old_segments(self, now: int | datetime | None = None) -> retention.Retention:
        """Delete the segments that retention no longer keeps.

        Parameters
        ----------
        now : int or datetime, optional
            ms since 1970, or a datetime with a time zone; default: the wall clock.

        Returns
        -------
        Retention
            The deleted segments, and where each rule stopped.

        Notes
        -----
        Files are renamed to ``.deleted`` and removed immediately, without ``file.delete.delay.ms``:
        a reader has its files open and can still read them.

        Source: Kafka 2.4.0 ``Log.deleteOldSegments``.
        """
        now = None if now is None else timestamp_ms("now", now)
        with self._altering():
            log, clock_now = self._log, self._clock()
        found = log.find_old_segments(clock_now if now is None else now)
        with self._altering():
            log.delete_segments(found, clock_now)
        return found

    def drop_old_snapshots(self) -> None:
        """Delete the producer snapshots that a broker deletes at a checkpoint."""
        if self._failure is None and self._opened is not None:
            self._opened.drop_old_snapshots()

    def close(self) -> None:
        """Shut down cleanly: write a producer snapshot, trim indexes, flush all files.

        After a failure the files are only closed.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self._failure is not None or self._opened is None:
            return
        try:
            self._opened.close()
        except BaseException as error:
            self._fail(error)
            raise

    def _check_usable(self) -> None:
        """Raise `WriterFailedError` after a failure or a close."""
        if self._failure is not None:
            raise WriterFailedError(
                f"the log in {self.path} can't be written after an error ({self._failure}); open"
                " it again"
            ) from self._failure
        if self._is_closed:
            raise WriterFailedError(f"the writer of {self.path} is closed")

    def _fail(self, error: BaseException) -> None:
        """Close the files and refuse further work: the state on disk is unknown."""
        self._failure = error
        if self._opened is not None:
            self._opened.local.close_files()

    @contextmanager
    def _altering(self) -> Iterator[None]:
        """Mark the writer as failed if a change to its files fails."""
        self._check_usable()
        try:
            yield
        except BaseException as error:
            self._fail(error)
            raise

    def _largest_batch(self, batch_bytes: int) -> int:
        # ``max.message.bytes`` may be 0; a batch limit of 1 byte then rejects every batch as too
        # large.
        return min(batch_bytes, max(self.config.max_message_bytes, 1), self.config.segment_bytes)

    def _fields(self, fields: dict[str, Any]) -> BatchFields:
        """Return the fields for building a batch; the default codec is the topic's."""
        return {"codec": self._append_rules.codec or Codec.NONE, **fields}  # type: ignore[typeddict-item]

    def _append_all(
        self,
        batches: Iterable[ReadableBuffer],
        leader_epoch: int | None,
        *,
        as_follower: bool = False,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Append batches one by one; the result covers all of them."""
        infos = [
            self.append(
                batch,
                leader_epoch=leader_epoch,
                as_follower=as_follower,
                transaction_version=transaction_version,
            )
            for batch in batches
        ]
        if not infos:
            return _NOTHING
        is_duplicate = all(info.is_duplicate for info in infos)
        return infos[-1]._replace(first_offset=infos[0].first_offset, is_duplicate=is_duplicate)


def _each_batch(batches: ReadableBuffer, sets: AppendSets) -> Iterator[memoryview]:
    """Yield each of a leader's batches."""
    view = memoryview(batches).cast("B")
    for position, size in sets.headers[["position", "size"]].tolist():
        yield view[position : position + size]
