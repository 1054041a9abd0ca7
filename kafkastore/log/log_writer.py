"""The log of one partition while it is written: append, roll, truncate, retain, flush, close.

What the files hold at any moment is what a broker's would; after `LogWriter.close` a broker loads
them without recovery, after a crash it ends where `recovery.recover_log` does.

An error of the file system leaves a log whose files nobody can be sure of.  As a broker gives up
the whole log directory then, a writer takes nothing more: opening it again recovers it.

Source: Kafka 2.4.0 ``Log``, 3.9.0 ``UnifiedLog``, ``LocalLog``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkastore.arguments import whole_number
from kafkastore.errors import OffsetOutOfRangeError, WriterFailedError
from kafkastore.formats.append_sets import AppendSets
from kafkastore.formats.checkpoints import EpochStart
from kafkastore.formats.compression import Codec
from kafkastore.formats.file_names import TopicPartition
from kafkastore.fs import FileSystem
from kafkastore.log import retention
from kafkastore.log.append_rules import AppendRules
from kafkastore.log.log_config import LogConfig
from kafkastore.log.new_batches import batches_of_records
from kafkastore.log.recovery import RecoveredLog
from kafkastore.log.unified_log import UnifiedLog
from kafkastore.versions import BrokerRules

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from kafkastore.formats.record_builder import BatchFields, NewRecord

#: What a producer fills a batch up to: its default of ``batch.size``.
BATCH_BYTES = 16384


class AppendInfo(NamedTuple):
    """What became of an append.

    Parameters
    ----------
    first_offset : int
        Of the first record; of a follower's messages before magic 2 the last offset of the first.
        -1 where nothing was appended.
    last_offset : int
        Inclusive; -1 where nothing was appended.
    log_append_time : int
        ms since 1970, where the records got it as their timestamp; else -1.
    is_duplicate : bool
        Whether an idempotent producer's batch was in the log before; the offsets are those it has,
        and nothing was written.
    """

    first_offset: int
    last_offset: int
    log_append_time: int = -1
    is_duplicate: bool = False


_NOTHING = AppendInfo(-1, -1)


def _offset(value: object) -> int:
    """Return an offset that a caller gave; what is no whole number must not get to the files."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise OffsetOutOfRangeError(f"an offset is a whole number, not {value!r}")
    return operator.index(value)


class LogWriter:
    """A partition's log that is written; made by `LogDirWriter.writer`. For one thread at a time.

    Parameters
    ----------
    loaded : RecoveredLog
        What the directory holds.
    topic_partition : TopicPartition
        What its name says.
    config : LogConfig
        The topic's.
    rules : BrokerRules
        What brokers of the version do.
    reload : callable
        Called with the writer after a truncation: makes a lowered recovery point known, and loads
        the directory again.
    clock : callable
        Returns the wall clock, ms since 1970.
    fs : FileSystem
        What alters files.
    prepare : callable
        Called with the writer before the first alteration: makes the files what loading them has
        made of them.
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
    ) -> None:
        self.path, self.topic_partition, self.config = loaded.path, topic_partition, config
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
        """First offset a reader may ask for."""
        log = self._opened
        return self._loaded.log_start_offset if log is None else log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Offset the next record will get."""
        log = self._opened
        return self._loaded.log_end_offset if log is None else log.local.log_end_offset

    @property
    def high_watermark(self) -> int:
        """First offset not replicated: the log end, for this is the only replica."""
        return self.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """First offset that is not decided: of the oldest open transaction, or the log end."""
        if self._opened is not None:
            return self._opened.last_stable_offset
        unstable = self._loaded.producers.first_unstable_offset
        if unstable is None:
            return self.log_end_offset
        return max(unstable, self.log_start_offset)

    @property
    def recovery_point(self) -> int:
        """First offset not known to be flushed."""
        if self._opened is not None:
            return self._opened.local.recovery_point
        return min(self._loaded.recovery_point, self._loaded.log_end_offset)

    @property
    def base_offsets(self) -> tuple[int, ...]:
        """Of the segments; the last is the active one's."""
        if self._opened is not None:
            return self._opened.local.base_offsets
        return tuple(segment.base_offset for segment in self._loaded.segments)

    @property
    def leader_epochs(self) -> tuple[EpochStart, ...]:
        """The leader epochs and their first offsets, rising."""
        return self._loaded.leader_epochs if self._opened is None else self._opened.epochs.entries

    @property
    def has_failed(self) -> bool:
        """Whether an error has left files of which nobody can be sure."""
        return self._failure is not None

    @property
    def _log(self) -> UnifiedLog:
        """The log; its files are opened, and altered, when it is first asked for."""
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
        """Make the files ready to be written, as the first append does."""
        with self._altering():
            self._log  # noqa: B018

    def append(
        self,
        batches: ReadableBuffer,
        *,
        leader_epoch: int | None = None,
        as_follower: bool = False,
    ) -> AppendInfo:
        """Append batches.

        Parameters
        ----------
        batches : bytes-like
            As a leader, record batches (magic 2); their offsets, leader epochs and, where the topic
            says so, timestamps are set, they are compressed anew if the topic has a codec of its
            own, and each is looked at by itself as if it came alone. As a
            follower, batches or messages as they are, all of them as one set: a batch that is cut
            at the end is left out.
        leader_epoch : int, optional
            The leader's; default: the latest known, 0 at first.
        as_follower : bool
            Whether the batches keep what they have.

        Returns
        -------
        AppendInfo

        Raises
        ------
        InvalidRecordError
            If a leader does not take a record or a batch, such as `InvalidTimestampError` or
            `RecordTooLargeError`.
        CorruptBatchError
            If a batch breaks its format or its checksum.
        OutOfOrderAppendError
            If a follower's offsets go back.
        ProducerStateError
            If a batch does not fit its producer's sequence, epoch or transaction.
        WriterFailedError
            If a write failed, now or before.

        Notes
        -----
        Nothing is appended where an error is raised, but for batches of producers, or compressed
        anew: those before the refused one are, as if they had come one by one; the log end offset
        tells.

        Source: Kafka 2.4.0 ``Log.append``, 3.9.0 ``UnifiedLog.append``.
        """
        self._check_usable()
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
        if sets.count > 1 and (sets.has_producers or self._append_rules.are_compressed_anew(sets)):
            # One of them may be a duplicate.
            return self._append_all(_each_batch(batches, sets), leader_epoch)
        if sets.has_producers:
            prepared = log.producers.prepare(data, sets, as_follower=as_follower)
            if prepared.duplicate is not None:
                return AppendInfo(
                    prepared.duplicate.first_offset,
                    prepared.duplicate.last_offset,
                    prepared.duplicate.timestamp if self._append_rules.has_append_time else -1,
                    is_duplicate=True,
                )
        first_offset = sets.first_offset_told()
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
        """Build batches of records and append them as a leader.

        Parameters
        ----------
        records : iterable of NewRecord
            Such as `Record`, whose offset is not looked at.
        leader_epoch : int, optional
            As for `append`.
        batch_bytes : int
            Size of a batch before it is compressed, if ``max.message.bytes`` and ``segment.bytes``
            allow it; only a record that alone is larger gets a larger one.
        **fields : BatchFields
            What the records have in common: codec, producer, transaction. Without a codec the
            topic's ``compression.type`` counts.

        Returns
        -------
        AppendInfo
            Of all batches together.

        Raises
        ------
        InvalidRecordError, ProducerStateError, WriterFailedError
            As of `append`; the batches before the refused one are appended.
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
        """Build batches of Arrow columns and append them as a leader.

        Parameters
        ----------
        data : pyarrow.Table, RecordBatch, RecordBatchReader
            See `batches_from_arrow.batches_of_columns`; `PartitionLog.to_arrow` gives such.
        leader_epoch, batch_bytes
            As for `append_records`.
        keep_offsets : bool
            Whether the records keep the offsets of a column `offset`; they are appended as a
            follower does then, which asks no more of them than that offsets rise.
        **fields
            As for `append_records`.

        Returns
        -------
        AppendInfo
            Of all batches together.

        Raises
        ------
        InvalidRecordError, ProducerStateError, WriterFailedError
            As of `append_records`.
        OutOfOrderAppendError
            If offsets that are kept do not rise.
        """
        from kafkastore.log.batches_from_arrow import batches_of_columns  # pyarrow is slow to load

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
        """Begin a new segment at the log end, unless the active one is empty.

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
        """Make all that was appended durable; the recovery point is then the log end offset.

        Notes
        -----
        Where to recover from after a crash is known to the next writer, or broker, once the log
        directory's checkpoint says so: `LogDirWriter.checkpoint`.
        """
        with self._altering():
            self._log.local.flush()

    def truncate_to(self, offset: int) -> bool:
        """Drop the records at and after an offset, and the whole batch that holds it.

        Parameters
        ----------
        offset : int
            The new log end offset.

        Returns
        -------
        bool
            Whether there was something behind it.

        Raises
        ------
        OffsetOutOfRangeError
            If it is negative, or no whole number.
        WriterFailedError
            As of `append`.

        Notes
        -----
        An offset below the first segment empties the log, which then begins there.

        Source: Kafka 2.4.0 ``Log.truncateTo``.
        """
        offset = _offset(offset)
        if offset < 0:
            raise OffsetOutOfRangeError(f"a log can't be cut at the negative offset {offset}")
        with self._altering():
            if not self._log.truncate_to(offset, self._clock()):
                return False
            loaded = self._reload(self)
            self._log.producers.reload(loaded.producers, loaded.deleted)
            self._log.producers.on_high_watermark(offset)
        return True

    def delete_records(self, before_offset: int) -> int:
        """Move the log start offset up; segments below it go with `delete_old_segments`.

        Parameters
        ----------
        before_offset : int
            The new log start offset, at most the high watermark; a lower one than now changes
            nothing.

        Returns
        -------
        int
            The log start offset.

        Raises
        ------
        OffsetOutOfRangeError
            If it is above the high watermark, or no whole number.

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

    def delete_old_segments(self, now: int | None = None) -> retention.Retention:
        """Delete the segments that retention no longer keeps.

        Parameters
        ----------
        now : int, optional
            ms since 1970; default: the clock.

        Returns
        -------
        Retention
            What went, and where each rule stopped.

        Notes
        -----
        Files are renamed to ``.deleted`` and removed at once, without ``file.delete.delay.ms``:
        who reads them keeps them open.

        Source: Kafka 2.4.0 ``Log.deleteOldSegments``.
        """
        now = None if now is None else whole_number("now", now)
        with self._altering():
            clock_now = self._clock()
            return self._log.delete_old_segments(clock_now if now is None else now, clock_now)

    def drop_old_snapshots(self) -> None:
        """Drop the producer snapshots that a broker drops at a checkpoint."""
        if self._failure is None and self._opened is not None:
            self._opened.drop_old_snapshots()

    def close(self) -> None:
        """Write what a clean shutdown leaves: a producer snapshot, trimmed indexes, all durable.

        After a failure only the files are closed.
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
        """Refuse work after a failure or a close."""
        if self._failure is not None:
            raise WriterFailedError(
                f"the log in {self.path} can't be written after an error ({self._failure}); open"
                " it again"
            ) from self._failure
        if self._is_closed:
            raise WriterFailedError(f"the writer of {self.path} is closed")

    def _fail(self, error: BaseException) -> None:
        """Take nothing more: what the files hold is not known."""
        self._failure = error
        if self._opened is not None:
            self._opened.local.close_files()

    @contextmanager
    def _altering(self) -> Iterator[None]:
        """Fail for good where a change of files does not go through."""
        self._check_usable()
        try:
            yield
        except BaseException as error:
            self._fail(error)
            raise

    def _largest_batch(self, batch_bytes: int) -> int:
        # Of 0 bytes, which a topic may allow, each batch is too large and says so.
        return min(batch_bytes, max(self.config.max_message_bytes, 1), self.config.segment_bytes)

    def _fields(self, fields: dict[str, Any]) -> BatchFields:
        """Return what a batch is built with; its codec is the topic's, unless one is named."""
        return {"codec": self._append_rules.codec or Codec.NONE, **fields}  # type: ignore[typeddict-item]

    def _append_all(
        self,
        batches: Iterable[ReadableBuffer],
        leader_epoch: int | None,
        *,
        as_follower: bool = False,
    ) -> AppendInfo:
        """Append batches one by one, as they come."""
        infos = [
            self.append(batch, leader_epoch=leader_epoch, as_follower=as_follower)
            for batch in batches
        ]
        if not infos:
            return _NOTHING
        is_duplicate = all(info.is_duplicate for info in infos)
        return infos[-1]._replace(first_offset=infos[0].first_offset, is_duplicate=is_duplicate)


def _each_batch(batches: ReadableBuffer, sets: AppendSets) -> Iterator[memoryview]:
    """Yield a leader's batches by themselves."""
    view = memoryview(batches).cast("B")
    for position, size in sets.headers[["position", "size"]].tolist():
        yield view[position : position + size]
