"""The log of one partition as callers have it: its records, its bounds, and lookups by time."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from kafkastore.arguments import whole_number
from kafkastore.caching import cached_until_refresh
from kafkastore.errors import SegmentGoneError
from kafkastore.formats.decompression import MAX_DECOMPRESSED_BYTES
from kafkastore.formats.entries import TimestampAndOffset
from kafkastore.formats.record_batch import Record, RecordBatch
from kafkastore.formats.record_columns import BATCH_BYTES, BATCH_ROWS
from kafkastore.log.batch_reading import read_batches
from kafkastore.log.bounds import HighWatermark, LogBounds, find_bounds, find_last_stable
from kafkastore.log.damage import Damage, OnCorrupt, SkippedBytes, known_on_corrupt
from kafkastore.log.isolation import Isolation
from kafkastore.log.log_view import LogView
from kafkastore.log.partition_files import FileNote
from kafkastore.log.record_reading import read_records
from kafkastore.lookup.explanation import Explanation, explain
from kafkastore.lookup.list_offset import Question, list_offset
from kafkastore.lookup.prepared import find_offset, find_offsets
from kafkastore.lookup.rules import LookupChoice
from kafkastore.lookup.segments_by_time import Lookup
from kafkastore.segment.checked_times import DEFAULT_INDEXES, Indexes

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import ArrayLike, NDArray


class PartitionLog(LogView):
    """The log of one partition: its segments, its bounds, its records, and lookups by time.

    The log is as it was when it was first asked: its directory is listed once, and what files said
    of its bounds is kept, until `refresh`. Reads see what each file holds when they come to it:
    always whole batches. Where a listed segment was deleted meanwhile, a read lists the directory
    again and goes on with what is there, by offset.

    Threads may share it, `refresh` included: see ``docs/threads.md``.

    Parameters
    ----------
    path : path-like
        The partition directory.
    topic_partition : TopicPartition
        What its name says.
    log_dir : LogDir or None
        The log directory around it, whose checkpoints bound the log; None for a directory by
        itself.
    """

    @property
    def leftovers(self) -> list[FileNote]:
        """Files that are passed over: ``.deleted``, ``.cleaned``, ``.swap``, orphaned indexes."""
        return self.files.leftovers

    @property
    def missing_indexes(self) -> list[FileNote]:
        """Offset and time indexes that are not there."""
        return self.files.missing_indexes

    @cached_until_refresh
    def last_stable_offset(self) -> int:
        """First offset that is not decided: of the oldest open transaction, or the log end."""
        return self.beside_changes(lambda: find_last_stable(self, self.high_watermark)).offset

    def explain_bounds(self, high_watermark: HighWatermark = "log-end") -> LogBounds:
        """Say what each bound is, and which file it comes from or what is assumed without one.

        Parameters
        ----------
        high_watermark : "log-end", "checkpoint" or int
            What the last two are bounded by: the log end, what the broker last wrote down, or an
            offset.

        Returns
        -------
        LogBounds

        Raises
        ------
        CorruptionError
            If the high watermark's checkpoint is asked for and damaged, or a batch after the newest
            producer snapshot is corrupt.
        """
        return self.beside_changes(lambda: find_bounds(self, high_watermark))

    def batches(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        on_corrupt: OnCorrupt = "raise",
        skipped: list[SkippedBytes] | None = None,
    ) -> Iterator[RecordBatch]:
        """Read record batches, markers and emptied ones among them.

        Parameters
        ----------
        start_offset : int, optional
            Inclusive; the first batch may begin before it. Default: the log start offset.
        end_offset : int, optional
            Exclusive; the last batch may end behind it. Default: the log end.
        on_corrupt : "raise", "skip" or "stop"
            What to do at corrupt bytes: raise an error; skip to the next whole batch, as
            ``repair --like keep`` does; or end there.
        skipped : list of SkippedBytes, optional
            Gets what is skipped, or what reading stopped at. Default: a `SkippedBytesWarning` each.

        Yields
        ------
        RecordBatch

        Raises
        ------
        CorruptBatchError
            Where bytes break the format; checksums are not looked at (`RecordBatch.verify` does).
        """
        damage = Damage(on_corrupt, skipped)
        for _, batch in read_batches(
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
        """Read records one by one; for many, see `to_arrow`.

        Parameters
        ----------
        start_offset, end_offset : int, optional
            Inclusive, exclusive. Default: from the log start offset to the log end.
        include_control : bool
            Whether to yield transaction markers.
        isolation : str
            "read_uncommitted", or "read_committed": without records of aborted transactions, up to
            the last stable offset.
        verify : bool
            Check each batch's checksum before its records are read.
        max_decompressed_bytes : int
            What one compressed batch may grow to.
        on_corrupt, skipped
            As for `batches`.

        Yields
        ------
        Record

        Raises
        ------
        CorruptBatchError
            At the first batch that is broken; all records before it have been yielded.
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

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        start_timestamp: int | None = None,
        end_timestamp: int | None = None,
        limit: int | None = None,
        include_headers: bool = False,
        include_control: bool = False,
        isolation: Isolation = "read_uncommitted",
        is_decided: bool = False,
        binary_view: bool = False,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
        verify: bool = True,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
        on_corrupt: OnCorrupt = "raise",
        skipped: list[SkippedBytes] | None = None,
        known_end_offset: int | None = None,
        indexes: Indexes = DEFAULT_INDEXES,
    ) -> pa.RecordBatchReader:
        """Read records into Arrow; see `records_as_arrow.read` for the parameters."""
        from kafkastore.log import records_as_arrow  # pyarrow takes longer to import than a lookup

        return records_as_arrow.read(
            self,
            columns,
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
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
            verify=verify,
            max_decompressed_bytes=max_decompressed_bytes,
            on_corrupt=on_corrupt,
            skipped=skipped,
            known_end_offset=known_end_offset,
            indexes=indexes,
        )

    def offset_for_timestamp(
        self,
        target_timestamp: int,
        rules: str = "correct",
        *,
        isolation: Isolation = "read_uncommitted",
        untimed: Literal["segment"] | None = None,
        indexes: Indexes = DEFAULT_INDEXES,
        on_corrupt: OnCorrupt = "raise",
        skipped: list[SkippedBytes] | None = None,
    ) -> TimestampAndOffset | None:
        """Find the offset to begin with for a time.

        Parameters
        ----------
        target_timestamp : int
            ms since 1970, inclusive.
        rules : str
            ``"correct"``: the first record in offset order, at or after the log start offset, with
            this timestamp or a later one; never a marker. ``"kip-33"``, or a Kafka version from
            0.10.1 on: what the log layer of that broker answers.
        isolation : str
            ``"read_committed"``: nothing at or behind the last stable offset, and under ``correct``
            no record of an aborted transaction.
        untimed : str or None
            ``"segment"``: a segment whose records have no timestamps counts as one record at its
            first offset, with the time it was last written.
        indexes : str
            How far ``correct`` trusts time indexes. ``"check"``: the answer is right whatever they
            say; the segments up to the answer are read once, with their checksums. ``"trust"``:
            right where the entries between the first and the last of each index are a broker's for
            this very log, and no batch is corrupt; nothing but what the search needs is read.
            ``"ignore"``: headers are read each time, without checksums.
        on_corrupt, skipped
            As for `batches`. Unless it is "raise", a Kafka version answers as that broker does,
            which takes bytes that are no batch for the end of their segment, and so does
            ``"kip-33"``; the bytes up to there are in `skipped`. Records that the broker could not
            decode are an error in any case.

        Returns
        -------
        TimestampAndOffset or None
            Timestamp, offset and leader epoch of the record found; None where there is none.

        Raises
        ------
        UnknownRulesError
            If the rules are not known.
        CorruptBatchError
            If bytes on the way are corrupt: what comes first at or after the time is not known.
        ValueError
            If the isolation, `untimed` or `indexes` is none.
        TypeError
            If the time is no whole number.
        """
        if type(target_timestamp) is not int:  # which costs less than a call
            target_timestamp = whole_number("target_timestamp", target_timestamp)
        choice = (rules, isolation, untimed, indexes, False)
        if on_corrupt == "raise":
            lookup: Lookup | None = self.facts.get(choice)
            if lookup is not None:  # prepared before
                try:
                    return lookup.find(target_timestamp)
                except SegmentGoneError:
                    pass  # listed again below
        return find_offset(
            self, target_timestamp, LookupChoice(*choice), known_on_corrupt(on_corrupt), skipped
        )

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
    ) -> NDArray[np.void]:
        """Find the offsets for many times; the answers of `offset_for_timestamp`.

        Parameters
        ----------
        target_timestamps : array_like of int64, shape (n,)
            ms since 1970, in any order.
        rules, isolation, untimed, indexes, on_corrupt, skipped
            As for `offset_for_timestamp`.

        Returns
        -------
        numpy.ndarray, shape (n,)
            Structured: `timestamp` int64, `offset` int64, `leader_epoch` int32, in the order asked;
            -1 each where there is none.
        """
        choice = LookupChoice(rules, isolation, untimed, indexes)
        return find_offsets(
            self, target_timestamps, choice, known_on_corrupt(on_corrupt), skipped
        )

    def explain_timestamp(
        self,
        target_timestamp: int,
        rules: str = "correct",
        *,
        isolation: Isolation = "read_uncommitted",
        indexes: Indexes = DEFAULT_INDEXES,
    ) -> Explanation:
        """Find the offset for a time, and say by which way, and why the right one is another.

        Parameters
        ----------
        target_timestamp : int
            ms since 1970, inclusive.
        rules, isolation, indexes : str
            As for `offset_for_timestamp`.

        Returns
        -------
        Explanation
            Its answer is that of `offset_for_timestamp`.

        Raises
        ------
        UnknownRulesError
            If the rules are not known.
        CorruptBatchError
            If bytes on the way are corrupt.
        """
        target_timestamp = whole_number("target_timestamp", target_timestamp)
        choice = LookupChoice(rules, isolation, indexes=indexes)
        return self.beside_changes(lambda: explain(self, target_timestamp, choice))

    def list_offset(
        self,
        timestamp: int,
        rules: str = "correct",
        isolation: Isolation = "read_uncommitted",
        *,
        high_watermark: HighWatermark = "log-end",
        version: int | None = None,
        message_format_version: str | None = None,
        current_leader_epoch: int | None = None,
        indexes: Indexes = DEFAULT_INDEXES,
        on_corrupt: OnCorrupt = "raise",
        skipped: list[SkippedBytes] | None = None,
    ) -> TimestampAndOffset | None:
        """Return what a broker answers a consumer, for a time or a special timestamp, -1 to -6.

        Parameters
        ----------
        timestamp : int
            ms since 1970, or special; ``docs/lookups.md`` has all of them.
        rules, isolation : str
            As for `offset_for_timestamp`. Answers are below the high watermark, or the last stable
            offset.
        high_watermark : "log-end", "checkpoint" or int
            The log end, what the broker last wrote down, or an offset.
        version : int, optional
            Of the ListOffsets request, from 1 on. Default: the newest that the broker speaks.
        message_format_version : str, optional
            The topic's ``message.format.version``. Default: one with timestamps.
        current_leader_epoch : int, optional
            The partition's, which the answer to -1 names. Default: the newest in the log.
        indexes, on_corrupt, skipped
            As for `offset_for_timestamp`. What -3 asks for in a corrupt segment, and the last
            stable offset after corrupt bytes, are not known in any case.

        Returns
        -------
        TimestampAndOffset or None
            The timestamp is -1 where the answer is no record; None: there is no answer, which a
            broker says with -1 in every field.

        Raises
        ------
        UnsupportedTimestampError
            If the timestamp is refused.
        UnsupportedForMessageFormatError
            If such a topic is not searched.
        UnknownRulesError
            If the rules are not known.
        ValueError
            If the broker does not speak that version of the request, or it has no isolation.
        """
        timestamp = whole_number("timestamp", timestamp)
        question = Question(
            LookupChoice(rules, isolation, indexes=indexes),
            high_watermark,
            version,
            message_format_version,
            current_leader_epoch,
            known_on_corrupt(on_corrupt),
            skipped,
        )
        return self.beside_changes(lambda: list_offset(self, timestamp, question))
