"""The log of one partition: its segments, its bounds, its records."""
from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from kafkastore.arguments import INT64_MAX, whole_number
from kafkastore.caching import cached_until_refresh
from kafkastore.errors import (
    CorruptCheckpointError,
    CorruptionError,
    KafkaStoreError,
    SegmentGoneError,
)
from kafkastore.formats.checkpoints import EpochStart, parse_leader_epoch_checkpoint
from kafkastore.formats.decompression import MAX_DECOMPRESSED_BYTES
from kafkastore.formats.entries import TIMESTAMP_AND_OFFSET, TimestampAndOffset, as_targets
from kafkastore.formats.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    SWAP_SUFFIX,
    TopicPartition,
)
from kafkastore.formats.record_batch import Record, RecordBatch
from kafkastore.formats.record_columns import BATCH_BYTES, BATCH_ROWS
from kafkastore.log.batch_reading import read_batches
from kafkastore.log.bounds import (
    HighWatermark,
    LogBounds,
    find_bounds,
    find_last_stable,
    find_log_end,
    find_log_start,
)
from kafkastore.log.damage import Damage, OnCorrupt, SkippedBytes, known_on_corrupt
from kafkastore.log.isolation import Isolation, find_committed, reads_committed
from kafkastore.log.log_dir import LogDir
from kafkastore.log.lookup.explanation import Explanation, explain
from kafkastore.log.lookup.list_offset import Question, list_offset
from kafkastore.log.lookup.past_damage import find_past_damage
from kafkastore.log.lookup.prepared import LookupChoice, prepare
from kafkastore.log.lookup.rules import CORRECT
from kafkastore.log.lookup.segments_by_time import Lookup, as_entry
from kafkastore.log.partition_files import FileNote, PartitionFiles
from kafkastore.paths import list_again, open_path
from kafkastore.segment.checked_times import DEFAULT_INDEXES, Indexes
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.small_file import read_if_there

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import ArrayLike, NDArray

#: How often a segment may be listed and then not be there, until that is an error.
MOST_LISTINGS = 20

AnswerT = TypeVar("AnswerT")


class PartitionLog:
    """The segments of one partition, read lazily and never changed.

    The log is as it was when it was first asked: its directory is listed once, and what files said
    of its bounds is kept, until `refresh`. Reads see what each file holds when they come to it:
    always whole batches. Where a listed segment was deleted meanwhile, a read lists anew by itself
    and goes on with what is there, by offset.

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

    def __init__(
        self, path: Path, topic_partition: TopicPartition, log_dir: LogDir | None = None
    ) -> None:
        self.path = open_path(path)
        self.topic_partition = topic_partition
        self.log_dir = log_dir
        #: What was read since `refresh`: properties by name, and lookups by their rules.
        self.facts: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return f"PartitionLog({str(self.path)!r})"

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.topic_partition.partition

    def refresh(self) -> None:
        """Forget what was read: the next question lists the directory and reads files anew."""
        list_again(self.path)
        if self.log_dir is not None:
            self.log_dir.refresh()
        # Last, so that nothing of before gets in; a thread that still reads keeps the old ones.
        self.facts = {}

    def beside_changes(self, answer: Callable[[], AnswerT]) -> AnswerT:
        """Answer a question, and once more after `refresh` whenever a segment vanished meanwhile.

        Parameters
        ----------
        answer : callable
            Asks this log.

        Returns
        -------
        object
            What it returned.

        Raises
        ------
        SegmentGoneError
            If listing after listing names a segment that is not there.
        """
        # A writer may make and drop one again and again; a link to nowhere stays.
        gone: Counter[str | PathLike[str]] = Counter()
        while True:
            try:
                return answer()
            except SegmentGoneError as error:
                gone[error.path] += 1
                if gone[error.path] > MOST_LISTINGS:
                    raise
                self.refresh()

    @cached_until_refresh
    def files(self) -> PartitionFiles:
        """The names in the directory."""
        return PartitionFiles(self.path)

    @property
    def leftovers(self) -> list[FileNote]:
        """Files that are passed over: ``.deleted``, ``.cleaned``, ``.swap``, orphaned indexes."""
        return self.files.leftovers

    @property
    def missing_indexes(self) -> list[FileNote]:
        """Offset and time indexes that are not there."""
        return self.files.missing_indexes

    @cached_until_refresh
    def segments(self) -> tuple[LogSegment, ...]:
        """The segments by base offset, without those that are being deleted or cleaned.

        One with ``.swap`` behind its name counts where the segments that it replaces are gone.
        """
        return self.beside_changes(self._list_segments)

    def _list_segments(self) -> tuple[LogSegment, ...]:
        bases, swapped = self.files.base_offsets, self.files.swapped_offsets
        if swapped:
            end = LogSegment(self.path, swapped[-1], temporary=SWAP_SUFFIX).next_offset
            bases = sorted([*(b for b in bases if not swapped[0] < b < end), *swapped])
        return tuple(
            LogSegment(self.path, base, following, SWAP_SUFFIX if base in swapped else "")
            for base, following in zip(bases, [*bases[1:], None], strict=False)
        )

    @property
    def is_clean(self) -> bool:
        """Whether there is a clean-shutdown marker; False for a directory by itself."""
        return self.log_dir is not None and self.log_dir.is_clean

    @cached_until_refresh
    def log_start_offset(self) -> int:
        """First offset a reader may ask for: the checkpoint's or the first segment's."""
        return find_log_start(self).offset

    @cached_until_refresh
    def log_end_offset(self) -> int:
        """Offset the next record will get: after the last whole batch.

        By headers, as a broker has it that does not recover the log; `end_offset` looks at
        checksums, too.

        Raises
        ------
        CorruptBatchError
            If what follows that batch is no torn tail: where the log ends is not known.
            `explain_bounds` gives what can be read.
        """
        bound = self.beside_changes(lambda: find_log_end(self))
        if bound.error is not None:
            raise bound.error
        return bound.offset

    def end_offset(self, on_corrupt: OnCorrupt = "raise") -> int:
        """Return where the log ends for a reader, who checks the checksums of the last batches.

        Parameters
        ----------
        on_corrupt : "raise", "skip" or "stop"
            At corrupt bytes: raise; the end is after the last whole batch of the last segment; or
            before them.

        Returns
        -------
        int

        Raises
        ------
        CorruptBatchError
            If the last batches are corrupt, unless they are skipped, or reading stops there.
        """
        known_on_corrupt(on_corrupt)
        if not self.segments:
            return self.log_start_offset
        if on_corrupt == "skip":
            end = self.beside_changes(lambda: self.segments[-1].salvaged_end)
        else:
            end, error = self.beside_changes(lambda: self.segments[-1].verified_end)
            if error is not None and on_corrupt == "raise":
                raise error
        return max(end, self.log_start_offset)

    @property
    def high_watermark(self) -> int:
        """First offset not replicated: the log end, which a sole replica has after its restart.

        What the broker last wrote down is `checkpointed_high_watermark`; it lags in a killed
        broker.
        """
        return self.log_end_offset

    @cached_until_refresh
    def last_stable_offset(self) -> int:
        """First offset that is not decided: of the oldest open transaction, or the log end."""
        return self.beside_changes(lambda: find_last_stable(self, self.high_watermark)).offset

    def explain_bounds(self, high_watermark: HighWatermark = "log-end") -> LogBounds:
        """Say what each bound is, and which file it comes from or what is assumed without one.

        See `bounds.find_bounds`.
        """
        return self.beside_changes(lambda: find_bounds(self, high_watermark))

    @cached_until_refresh
    def last_stable_offsets(self) -> dict[tuple[str, int], int]:
        """What `lookup.last_stable_offset` found out so far, by rules and high watermark."""
        return {}

    @property
    def checkpointed_high_watermark(self) -> int | None:
        """The high watermark that the broker last wrote to its checkpoint, or None."""
        if self.log_dir is None:
            return None
        return self.log_dir.high_watermarks.get(self.topic_partition)

    @property
    def recovery_point(self) -> int | None:
        """First offset not known to be flushed, or None where no checkpoint says.

        0 where the checkpoint is damaged, as brokers take it: everything is recovered.
        """
        if self.log_dir is None:
            return None
        checkpoint = self.log_dir.checkpoint(RECOVERY_POINT_CHECKPOINT)
        if checkpoint.error is not None:
            return 0
        return checkpoint.offsets.get(self.topic_partition)

    @cached_until_refresh
    def leader_epochs(self) -> tuple[EpochStart, ...]:
        """The leader epochs and their start offsets; empty without the checkpoint."""
        path = self.path / LEADER_EPOCH_CHECKPOINT
        data = read_if_there(path, CorruptCheckpointError)
        try:
            return () if data is None else parse_leader_epoch_checkpoint(data)
        except CorruptCheckpointError as error:
            raise error.located(path) from error

    def segments_between(self, start_offset: int, end_offset: int) -> Iterator[LogSegment]:
        """Yield segments that may hold offsets from a start, inclusive, to an end, exclusive."""
        segments = self.segments
        behind = bisect_right(segments, start_offset, key=attrgetter("base_offset"))
        for segment in segments[max(behind - 1, 0) :]:
            if segment.base_offset >= end_offset:
                return
            yield segment

    def bounds(self, start_offset: int | None, end_offset: int | None) -> tuple[int, int]:
        """Return bounds within the log for what a caller asked: start inclusive, end exclusive."""
        start = self.log_start_offset
        if start_offset is not None:
            start = max(start, whole_number("start_offset", start_offset))
        end = INT64_MAX if end_offset is None else whole_number("end_offset", end_offset)
        return start, end

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
        start, end = self.bounds(start_offset, end_offset)
        most_bytes = whole_number("max_decompressed_bytes", max_decompressed_bytes, 0)
        damage = Damage(on_corrupt, skipped)
        aborted = broken = None
        if reads_committed(isolation):
            last_stable_offset, aborted, broken = self.beside_changes(
                lambda: find_committed(
                    self, start, end, verify=verify, until_broken=True, damage=damage
                )
            )
            end, broken = min(end, last_stable_offset), broken if end > last_stable_offset else None
        for segment, batch in read_batches(self, start, end, verify=verify, damage=damage):
            if batch.is_control and not include_control:
                continue
            if aborted is not None and aborted.of(batch.header)[0]:
                continue
            try:
                records = batch.records(max_decompressed_bytes=most_bytes)
            except CorruptionError as error:
                damage.skip_batch(error, segment, batch.header[0])
                if damage.has_stopped:
                    return
                continue
            records = [record for record in records if start <= record.offset < end]
            yield from records
            del records  # they may take 200 MB: gone before the next batch is decompressed
        if broken is not None:
            raise broken

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

    def _lookup(
        self,
        rules: str,
        isolation: Isolation,
        untimed: Literal["segment"] | None,
        indexes: Indexes,
        *,
        past_damage: bool = False,
    ) -> Lookup:
        """Return what these rules make of the log, made ready when it is first asked for."""
        facts, key = self.facts, (rules, isolation, untimed, indexes, past_damage)
        lookup: Lookup | None = facts.get(key)
        if lookup is None:
            lookup = facts.setdefault(key, prepare(self, LookupChoice(*key)))
        return lookup

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
        if on_corrupt != "raise":
            known_on_corrupt(on_corrupt)
        try:
            lookup = self.facts.get((rules, isolation, untimed, indexes, False))
            if lookup is None:
                lookup = self._lookup(rules, isolation, untimed, indexes)
            return lookup.find(target_timestamp)
        except SegmentGoneError:
            return self.beside_changes(
                lambda: self._lookup(rules, isolation, untimed, indexes).find(target_timestamp)
            )
        except CorruptionError as error:
            if on_corrupt == "raise":
                raise
            if rules == CORRECT:
                return find_past_damage(
                    self, target_timestamp, isolation, untimed, on_corrupt, skipped
                )
            lookup = self._lookup(rules, isolation, untimed, indexes, past_damage=True)
            found = lookup.find(target_timestamp)
            Damage("stop", skipped).end_segment(error, self.segments)
            return found

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
        known_on_corrupt(on_corrupt)
        try:
            return self.beside_changes(
                lambda: self._lookup(rules, isolation, untimed, indexes).find_many(
                    target_timestamps
                )
            )
        except CorruptionError:
            if on_corrupt == "raise":
                raise
            find = partial(
                self.offset_for_timestamp,
                rules=rules,
                isolation=isolation,
                untimed=untimed,
                indexes=indexes,
                on_corrupt=on_corrupt,
                skipped=skipped,
            )
            targets = as_targets(target_timestamps).ravel().tolist()
            return np.array([as_entry(find(each)) for each in targets], TIMESTAMP_AND_OFFSET)

    def explain_timestamp(
        self,
        target_timestamp: int,
        rules: str = "correct",
        *,
        isolation: Isolation = "read_uncommitted",
        indexes: Indexes = DEFAULT_INDEXES,
    ) -> Explanation:
        """Find the offset for a time, and say by which way, and why the right one is another.

        See `explanation.explain`.
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
        """Answer what a consumer is told: of times, and of the special timestamps -1 to -6.

        See `lookup.list_offset` for the answers, and its `Question` for the parameters.
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

    def check_readable(self) -> None:
        """Raise one clear error where a file of this partition can't be opened for reading."""
        for segment in self.segments:
            try:
                segment.open_log().close()
            except PermissionError as error:
                raise KafkaStoreError(
                    f"{segment.log_path} can't be read: no permission"
                ) from error
