"""The log of one partition: its records, offset bounds, and lookups by time."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import numpy as np

from kafkastore.arguments import check_kind, thread_count, timestamp_ms, timestamps_ms
from kafkastore.caching import cached_until_refresh
from kafkastore.errors import InRemoteSegmentError, SegmentGoneError
from kafkastore.formats.indexes.entries import TimestampAndOffset
from kafkastore.formats.records.decompression import MAX_DECOMPRESSED_BYTES
from kafkastore.formats.records.record_batch import Record, RecordBatch
from kafkastore.formats.records.record_columns import BATCH_BYTES, BATCH_ROWS
from kafkastore.log.batch_reading import read_batches, read_records
from kafkastore.log.bounds import HighWatermark, LogBounds, find_bounds, find_last_stable
from kafkastore.log.damage import CorruptionHandler, OnCorrupt, SkippedBytes, check_on_corrupt
from kafkastore.log.isolation import Isolation
from kafkastore.log.log_view import LogView
from kafkastore.log.partition_files import FileNote
from kafkastore.segment.index_trust import DEFAULT_INDEXES, Indexes
from kafkastore.store.arrow_export import ArrowExport

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from kafkastore.lookup.explanation import Explanation
    from kafkastore.lookup.segments_by_time import Lookup
    from kafkastore.store.log_table import LogTable


class PartitionLog(LogView, ArrowExport):
    """Read one partition's log: segments, offset bounds, records, lookups by time.

    A log is a snapshot: the directory is listed at the first access, and the listing and the bounds
    are kept until `refresh`. A read sees the contents of each file at the time it reaches that
    file, always as complete batches. If a listed segment has been deleted meanwhile, the read lists
    the directory again and continues by offset.

    Threads may share a log, `refresh` included: see ``docs/threads.md``.

    Parameters
    ----------
    path : path-like
        The partition directory.
    topic_partition : TopicPartition
        The topic and partition that the directory is named after.
    log_dir : LogDir or None
        The log directory that contains it, whose checkpoints bound the log; None for a partition
        directory by itself.
    """

    @property
    def leftovers(self) -> list[FileNote]:
        """Ignored files: temporary ones, orphaned indexes, names without an offset."""
        return self.files.leftovers

    @property
    def missing_indexes(self) -> list[FileNote]:
        """Offset and time indexes that do not exist."""
        return self.files.missing_indexes

    @cached_until_refresh
    def last_stable_offset(self) -> int:
        """First offset of the oldest open transaction, or the log end offset."""
        return self.retry_if_changed(lambda: find_last_stable(self, self.high_watermark)).offset

    def explain_bounds(self, high_watermark: HighWatermark = "log-end") -> LogBounds:
        """Return each offset bound with the file it comes from, or what is assumed.

        Parameters
        ----------
        high_watermark : "log-end", "checkpoint" or int
            Upper limit of the high watermark and the last stable offset: the log end offset, the
            broker's last checkpoint, or an offset.

        Returns
        -------
        LogBounds

        Raises
        ------
        CorruptionError
            If the high watermark's checkpoint is requested and corrupt, or if a batch after the
            newest producer snapshot is corrupt.
        """
        return self.retry_if_changed(lambda: find_bounds(self, high_watermark))

    def batches(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        on_corrupt: OnCorrupt = "raise",
        skipped: list[SkippedBytes] | None = None,
    ) -> Iterator[RecordBatch]:
        """Read record batches, including control batches and empty batches.

        Parameters
        ----------
        start_offset : int, optional
            Inclusive; the first batch may begin before it. Default: the log start offset.
        end_offset : int, optional
            Exclusive; the last batch may end after it. Default: the log end offset.
        on_corrupt : "raise", "skip" or "stop"
            What to do at corrupt bytes: raise an error; skip to the next valid batch, as ``repair
            --on-corrupt skip`` does; or stop there.
        skipped : list of SkippedBytes, optional
            Receives the skipped ranges, or the one at which reading stopped. Default: a
            `SkippedBytesWarning` for each.

        Yields
        ------
        RecordBatch

        Raises
        ------
        CorruptBatchError
            If bytes break the format. Checksums are not checked: `RecordBatch.verify` checks one. A
            batch whose header is wrong, and ends before `start_offset`, is then not noticed.
        """
        damage = CorruptionHandler(on_corrupt, skipped)
        for _, batch, _ in read_batches(
            self, start_offset, end_offset, damage=damage, copied=True
        ):
            yield batch

    def records(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        include_control: bool = False,
        isolation: Isolation = "read_uncommitted",
        verify: bool = True,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
        on_corrupt: OnCorrupt = "raise",
        skipped: list[SkippedBytes] | None = None,
    ) -> Iterator[Record]:
        """Read records one by one; for many records, `to_arrow` is faster.

        ``for record in log`` does the same for all records.

        Parameters
        ----------
        start_offset, end_offset : int, optional
            Inclusive, exclusive. Default: from the log start offset to the log end offset.
        include_control : bool
            Whether to yield transaction markers.
        isolation : str
            "read_uncommitted"; or "read_committed": skips records of aborted transactions, and
            stops at the last stable offset.
        verify : bool
            Whether to check each batch's checksum before its records are read.
        max_decompressed_bytes : int
            Maximum decompressed size of one batch.
        on_corrupt, skipped
            As for `batches`.

        Yields
        ------
        Record

        Raises
        ------
        CorruptBatchError
            At the first corrupt batch, after all records before it have been yielded.
        """
        return read_records(
            self,
            start_offset,
            end_offset,
            include_control=include_control,
            isolation=isolation,
            verify=verify,
            max_decompressed_bytes=max_decompressed_bytes,
            on_corrupt=on_corrupt,
            skipped=skipped,
        )

    def __iter__(self) -> Iterator[Record]:
        """Read all records, as `records` does."""
        return self.records()

    def __repr__(self) -> str:
        """Return the path, and what was read before; nothing is read."""
        known = {name: self.facts.get(name) for name in ("log_start_offset", "log_end_offset")}
        if (segments := self.facts.get("segments")) is not None:
            known["segments"] = len(segments)
        shown = [f"{name}={value}" for name, value in known.items() if value is not None]
        return f"{type(self).__name__}({', '.join([repr(str(self.path)), *shown])})"

    def _repr_html_(self) -> str:
        """Return what notebooks show: offsets, size and the first records."""
        from kafkastore.store.notebook_view import show_log

        return show_log(self)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        start_timestamp: int | datetime | None = None,
        end_timestamp: int | datetime | None = None,
        limit: int | None = None,
        include_headers: bool = False,
        include_control: bool = False,
        isolation: Isolation = "read_uncommitted",
        is_decided: bool = False,
        binary_view: bool = False,
        decode: str | None = None,
        dictionary: bool = False,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
        verify: bool = True,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
        on_corrupt: OnCorrupt = "raise",
        skipped: list[SkippedBytes] | None = None,
        known_end_offset: int | None = None,
        indexes: Indexes = DEFAULT_INDEXES,
        threads: int | None = None,
    ) -> LogTable:
        """Return records as an Arrow table that is read when it is used.

        Parameters
        ----------
        columns : sequence of str, optional
            Names of the table below; values of other columns are never copied. Default: `key` to
            `timestampType`.
        start_offset, end_offset : int, optional
            Inclusive, exclusive. Default: from the log start offset to the log end offset.
        start_timestamp, end_timestamp : int or datetime, optional
            ms since 1970, or a datetime with a time zone; inclusive, exclusive. The timestamp of a
            record without one counts as -1.
        limit : int, optional
            Maximum number of rows; little more than these rows is read.
        include_headers : bool
            Whether to add the `headers` column if `columns` is not given.
        include_control : bool
            Whether transaction markers are rows.
        isolation : str
            "read_uncommitted"; or "read_committed": skips records of aborted transactions, and
            stops at the last stable offset.
        is_decided : bool
            Whether the caller knows that the end offset is at most the last stable offset, which is
            then not searched. With `on_corrupt` "skip", a corrupt marker in the range is an error.
        binary_view : bool
            Whether keys and values refer to the mapped file, or to a batch's decompressed bytes,
            instead of being copied. The file must not be truncated while the result is in use:
            access to a missing page ends the process. Some Arrow functions do not support the type
            binary_view; a cast to binary copies the values.
        decode : str, optional
            ``"utf-8"``: `key` and `value` are strings. Bytes that are not UTF-8 become U+FFFD, as
            by Python's ``errors="replace"``. Default: they are bytes.
        dictionary : bool
            Whether `topic` is dictionary-encoded: a categorical column in pandas and Polars.
        batch_rows : int
            Maximum number of rows in a batch.
        batch_bytes : int
            A batch ends when its records reach this many bytes. The default fits in the cache of
            one CPU core.
        verify : bool
            Whether to check each batch's checksum.
        max_decompressed_bytes : int
            Maximum decompressed size of one batch.
        on_corrupt, skipped
            As for `batches`. With "skip" and "read_committed", a transaction whose marker is
            skipped counts as open.
        known_end_offset : int, optional
            The log is known to have records up to this offset, exclusive: an incomplete batch
            before it is corruption.
        indexes : str
            ``"trust"``: reading begins at the first record at or after `start_timestamp` according
            to the time indexes, and segments that end before it are skipped; only the entries that
            are used, the first and the last of each index are checked. Otherwise all segments are
            read.
        threads : int, optional
            How many threads decode. Default: the number of processors that this process may use.
            The rows and their order are those of one thread; they may be divided into batches
            differently, usually of at most 8 MiB. A log of less than 2 MiB and a `limit` of less
            than a million rows are read by the thread that takes the rows.

        Returns
        -------
        LogTable
            Iterate over it for `pyarrow.RecordBatch` objects, or pass it to pyarrow, DuckDB, Polars
            or pandas. It uses the memory of a few batches for each thread, whatever the size of the
            log. Each iteration reads again, and appends to `skipped` again; one that is dropped
            stops its threads. A timestamp whose microseconds do not fit 64 bits is null. Reading
            raises `CorruptBatchError` at the first corrupt batch, after all rows before it.

        Raises
        ------
        ArgumentTypeError, ArgumentValueError
            If an argument has a wrong type or value.

        Notes
        -----
        The columns, which are always in this order:

        =====================================  ====================================================
        `key`, `value`                         binary, or string with `decode`; null if missing
        `topic`                                string
        `partition`                            int32
        `offset`                               int64
        `timestamp`                            timestamp[us, tz=UTC]
        `timestampType`                        int32: -1 none, 0 CreateTime, 1 LogAppendTime
        `headers`                              list<struct<key: string, value: binary>>; null if
                                               there is none
        `leader_epoch`, `producer_epoch`       int32
        `producer_id`                          int64
        `is_transactional`, `is_control`       bool
        =====================================  ====================================================

        The first seven are the default, and with `headers` those of Spark's Kafka source. A schema
        is known before anything is read, so JSON is not a type of its own: read it as text, and
        parse it where you use it, as in the examples.

        Examples
        --------
        >>> log = kafkastore.open("kafka-logs")["orders", 0]             # doctest: +SKIP
        >>> noon = datetime(2024, 3, 1, 12, tzinfo=UTC)                  # doctest: +SKIP
        >>> texts = log.to_arrow(start_timestamp=noon, decode="utf-8")   # doctest: +SKIP
        >>> for batch in texts:                                          # doctest: +SKIP
        ...     print(batch.num_rows, batch["value"][0])
        >>> frame = texts.to_pandas()                                    # doctest: +SKIP
        >>> frame["value"].map(json.loads)                               # doctest: +SKIP
        >>> polars.DataFrame(texts)["value"].str.json_path_match("$.id")  # doctest: +SKIP
        >>> duckdb.sql("select value->>'customer' from texts")           # doctest: +SKIP
        """
        # Importing pyarrow takes longer than a lookup.
        from kafkastore.log.record_reading import read
        from kafkastore.log.records_as_arrow import ArrowOptions
        from kafkastore.store.log_table import LogTable

        options = ArrowOptions(
            columns=columns,
            start_offset=start_offset,
            end_offset=end_offset,
            start_timestamp=start_timestamp,
            end_timestamp=end_timestamp,
            limit=limit,
            include_headers=include_headers,
            include_control=include_control,
            isolation=isolation,
            is_decided=is_decided,
            binary_view=binary_view,
            decode=decode,
            all_topics=(self.topic,) if dictionary else None,
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
            verify=verify,
            max_decompressed_bytes=max_decompressed_bytes,
            on_corrupt=on_corrupt,
            skipped=skipped,
            known_end_offset=known_end_offset,
            indexes=indexes,
            threads=threads,
        )
        return LogTable(options.schema, lambda: read(self, options))

    def latest(
        self,
        columns: Sequence[str] | None = None,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        start_timestamp: int | datetime | None = None,
        end_timestamp: int | datetime | None = None,
        limit: int | None = None,
        include_headers: bool = False,
        include_tombstones: bool = False,
        decode: str | None = None,
        dictionary: bool = False,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
        verify: bool = True,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
        on_corrupt: OnCorrupt = "raise",
        skipped: list[SkippedBytes] | None = None,
        indexes: Indexes = DEFAULT_INDEXES,
        threads: int | None = None,
    ) -> LogTable:
        """Return the last record of each key as an Arrow table, as if compacted.

        Only committed records count, as for ``isolation="read_committed"`` of `to_arrow`: records
        of aborted transactions do not replace earlier ones, and records from the last stable offset
        on are not read. Records without a key are left out.

        Parameters
        ----------
        columns : sequence of str, optional
            As for `to_arrow`.
        start_offset, end_offset, start_timestamp, end_timestamp
            As for `to_arrow`; records outside do not count. With `end_timestamp` the result is the
            state of the keys at that time.
        limit : int, optional
            Maximum number of rows; the keys of all records are read nevertheless.
        include_headers : bool
            As for `to_arrow`.
        include_tombstones : bool
            Whether a key whose last value is null, which deletes the key, has a row.
        decode, dictionary, batch_rows, batch_bytes, verify, max_decompressed_bytes
            As for `to_arrow`.
        on_corrupt, skipped, indexes, threads
            As for `to_arrow`.

        Returns
        -------
        LogTable
            In offset order. Reading begins with a pass over all keys, and decodes the records again
            for the rows. It uses up to 26 bytes of memory for each key, and the memory of a few
            batches. Corrupt bytes raise before the first row. Records that a broker deletes between
            the passes are missing.

        Raises
        ------
        ArgumentTypeError, ArgumentValueError
            If an argument has a wrong type or value.

        Notes
        -----
        Keys are compared by 96 bits of a hash with a random secret: that any two of a billion keys
        are taken for one has a probability below 10^-11.

        Source: Kafka 2.4.0 ``Cleaner.shouldRetainRecord``.
        """
        from kafkastore.store.log_table import latest_of_partitions  # imports pyarrow

        return latest_of_partitions(
            lambda _: (self,),
            (self.topic_partition,),
            columns,
            include_tombstones=include_tombstones,
            decode=decode,
            dictionary=dictionary,
            start_offset=start_offset,
            end_offset=end_offset,
            start_timestamp=start_timestamp,
            end_timestamp=end_timestamp,
            limit=limit,
            include_headers=include_headers,
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
            verify=verify,
            max_decompressed_bytes=max_decompressed_bytes,
            on_corrupt=on_corrupt,
            skipped=skipped,
            indexes=indexes,
            threads=threads,
        )

    def offset_for_timestamp(
        self,
        target_timestamp: int | datetime,
        rules: str = "correct",
        *,
        isolation: Isolation = "read_uncommitted",
        untimed: Literal["segment"] | None = None,
        indexes: Indexes = DEFAULT_INDEXES,
        on_corrupt: OnCorrupt = "raise",
        skipped: list[SkippedBytes] | None = None,
    ) -> TimestampAndOffset | None:
        """Return the offset of the first record at or after `target_timestamp`.

        Parameters
        ----------
        target_timestamp : int or datetime
            ms since 1970, or a datetime with a time zone; inclusive.
        rules : str
            ``"correct"``: the first record in offset order, at or after the log start offset, with
            this timestamp or a later one; never a transaction marker. ``"kip-33"``, or a Kafka
            version from 0.10.1 on: the answer of that broker's log layer. ``"legacy"``: the answer
            to OffsetRequest v0 by modification times, as Kafka 3.9 gives it; it has no timestamp.
        isolation : str
            ``"read_committed"``: only records below the last stable offset, and under ``correct``
            no record of an aborted transaction.
        untimed : str or None
            ``"segment"``: a segment whose records have no timestamps counts as one record at its
            first offset, with the segment's last modification time. No effect under ``legacy``.
        indexes : str
            How far ``correct`` trusts time indexes. ``"check"``: the answer does not depend on
            them; the segments up to the answer are read once, with their checksums. ``"trust"``:
            reads only what the search needs; correct if a broker wrote the entries between the
            first and the last of each index for this very log, and no batch is corrupt.
            ``"ignore"``: as ``"check"``, but searches use no time index.
        on_corrupt, skipped
            As for `batches`. Unless ``"raise"``, a Kafka version and ``"kip-33"`` answer as that
            broker does, which takes invalid bytes for the end of their segment; `skipped` gets the
            rest of the segment. Records that the broker could not decode always raise an error.

        Returns
        -------
        TimestampAndOffset or None
            Timestamp, offset and leader epoch of the record; None if no record matches.

        Raises
        ------
        UnknownRulesError
            If the rules are unknown.
        InRemoteSegmentError
            If the answer is in remote storage.
        UnknownRemoteSegmentsError
            If it depends on remote segments that are not known here.
        CorruptBatchError
            If a batch on the search path is corrupt: the first record at or after the time is then
            unknown.
        ValueError
            If `isolation`, `untimed` or `indexes` has an unknown value, or a datetime has no time
            zone.
        TypeError
            If the time is neither an int nor a datetime.
        """
        if type(target_timestamp) is not int:  # cheaper than a call
            target_timestamp = timestamp_ms("target_timestamp", target_timestamp)
        choice = (rules, isolation, untimed, indexes, False)  # equal to a `LookupChoice`, cheaper
        if on_corrupt == "raise" and skipped is None:
            lookup: Lookup | None = self.facts.get(choice)
            if lookup is not None:
                try:
                    return lookup.find(target_timestamp)
                except SegmentGoneError:
                    pass  # `find_offset` lists the directory again
        from kafkastore.lookup.prepared import find_offset  # many commands look nothing up
        from kafkastore.lookup.rules import LookupChoice

        on_corrupt = check_on_corrupt(on_corrupt, skipped)
        return find_offset(self, target_timestamp, LookupChoice(*choice), on_corrupt, skipped)

    def offsets_for_timestamps(
        self,
        target_timestamps: ArrayLike,
        rules: str = "correct",
        *,
        isolation: Isolation = "read_uncommitted",
        untimed: Literal["segment"] | None = None,
        indexes: Indexes = DEFAULT_INDEXES,
        on_corrupt: OnCorrupt = "raise",
        skipped: list[SkippedBytes] | None = None,
        remote: dict[int, InRemoteSegmentError] | None = None,
        threads: int | None = None,
    ) -> NDArray[np.void]:
        """Find the offsets for many times, as `offset_for_timestamp` does for one.

        Parameters
        ----------
        target_timestamps : array_like, shape (n,)
            ms since 1970 as int64, or datetimes with time zones, or `numpy.datetime64` in UTC; in
            any order.
        rules, isolation, untimed, indexes, on_corrupt, skipped
            As for `offset_for_timestamp`.
        remote : dict of int to InRemoteSegmentError, optional
            Gets the remote segment of each time whose answer is in remote storage.
        threads : int, optional
            How many threads read the segments of a log whose first lookup this is. Default: the
            number of processors that this process may use.

        Returns
        -------
        numpy.ndarray, shape (n,)
            Structured: `timestamp` int64, `offset` int64, `leader_epoch` int32, in the order of the
            request; all fields are -1 if no record matches. The offset is `IN_REMOTE_STORAGE`, -2,
            if the answer is in remote storage.

        Raises
        ------
        UnknownRemoteSegmentsError, CorruptBatchError, ValueError
            As `offset_for_timestamp`.
        """
        from kafkastore.lookup.prepared import find_offsets
        from kafkastore.lookup.rules import LookupChoice

        if remote is not None:
            check_kind("remote", remote, dict)
        target_timestamps = timestamps_ms("target_timestamps", target_timestamps)
        choice = LookupChoice(rules, isolation, untimed, indexes)
        return find_offsets(
            self,
            target_timestamps,
            choice,
            check_on_corrupt(on_corrupt, skipped),
            skipped,
            remote,
            thread_count(threads),
        )

    def explain_timestamp(
        self,
        target_timestamp: int | datetime,
        rules: str = "correct",
        *,
        isolation: Isolation = "read_uncommitted",
        indexes: Indexes = DEFAULT_INDEXES,
    ) -> Explanation:
        """Find the offset for a time, and explain the search and any wrong answer.

        Parameters
        ----------
        target_timestamp : int or datetime
            ms since 1970, or a datetime with a time zone; inclusive.
        rules, isolation, indexes : str
            As for `offset_for_timestamp`.

        Returns
        -------
        Explanation
            Its answer is that of `offset_for_timestamp`.

        Raises
        ------
        UnknownRulesError
            If the rules are unknown.
        InRemoteSegmentError
            If the answer is in remote storage.
        UnknownRemoteSegmentsError
            If it depends on remote segments that are not known here.
        CorruptBatchError
            If a batch on the search path is corrupt.
        """
        from kafkastore.lookup.explanation import explain  # with all that may make answers differ
        from kafkastore.lookup.rules import LookupChoice

        target_timestamp = timestamp_ms("target_timestamp", target_timestamp)
        choice = LookupChoice(rules, isolation, indexes=indexes)
        return self.retry_if_changed(lambda: explain(self, target_timestamp, choice))

    def list_offset(
        self,
        timestamp: int | datetime,
        rules: str = "correct",
        isolation: Isolation = "read_uncommitted",
        *,
        high_watermark: HighWatermark = "log-end",
        request_version: int | None = None,
        message_format_version: str | None = None,
        current_leader_epoch: int | None = None,
        indexes: Indexes = DEFAULT_INDEXES,
        on_corrupt: OnCorrupt = "raise",
        skipped: list[SkippedBytes] | None = None,
    ) -> TimestampAndOffset | None:
        """Return a broker's answer to ListOffsets, for a time or a special timestamp.

        Parameters
        ----------
        timestamp : int or datetime
            ms since 1970, a datetime with a time zone, or a special timestamp from -1 to -6;
            ``docs/lookups.md`` lists these.
        rules, isolation : str
            As for `offset_for_timestamp`. Answers are below the high watermark, or below the last
            stable offset.
        high_watermark : "log-end", "checkpoint" or int
            The log end offset, the broker's last checkpoint, or an offset.
        request_version : int, optional
            Version of the ListOffsets request, from 1 on; 0 under ``legacy``. Default: the newest
            that the broker supports.
        message_format_version : str, optional
            The topic's ``message.format.version``. Default: one with timestamps.
        current_leader_epoch : int, optional
            The partition's leader epoch, which is part of the answer to -1. Default: the newest in
            the log.
        indexes, on_corrupt, skipped
            As for `offset_for_timestamp`. The answer to -3 in a corrupt segment, and the last
            stable offset after corrupt bytes, are unknown in any case.

        Returns
        -------
        TimestampAndOffset or None
            The timestamp is -1 if the answer is not a record. None: no answer; a broker returns -1
            in every field.

        Raises
        ------
        UnsupportedTimestampError
            If the broker refuses the timestamp.
        UnsupportedForMessageFormatError
            If the broker does not search a topic of this message format.
        UnknownRulesError
            If the rules are unknown.
        InRemoteSegmentError
            If the answer is in remote storage.
        UnknownRemoteSegmentsError
            If it depends on remote segments that are not known here.
        ValueError
            If the broker does not support that version of the request, or the version has no
            isolation level.
        """
        from kafkastore.lookup.list_offset import ListOffsetQuery, list_offset
        from kafkastore.lookup.rules import LookupChoice

        timestamp = timestamp_ms("timestamp", timestamp)
        query = ListOffsetQuery(
            LookupChoice(rules, isolation, indexes=indexes),
            high_watermark,
            request_version,
            message_format_version,
            current_leader_epoch,
            check_on_corrupt(on_corrupt, skipped),
            skipped,
        )
        return self.retry_if_changed(lambda: list_offset(self, timestamp, query))
