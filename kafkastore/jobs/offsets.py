"""Offsets for times and special timestamps, by one or several rules."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkastore.clock import clock
from kafkastore.errors import CorruptionError, InRemoteSegmentError, UnsupportedTimestampError
from kafkastore.formats.indexes.entries import NO_TIMESTAMP
from kafkastore.formats.requests.list_offsets import LATEST_TIMESTAMP
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.jobs.job import PartitionJob, Row, skipped_column, skipped_rows
from kafkastore.legacy import fetch_offsets_before
from kafkastore.log.damage import OnCorrupt, SkippedBytes
from kafkastore.log.isolation import Isolation
from kafkastore.lookup.explanation import Explanation, explain
from kafkastore.lookup.legacy import LegacyLookup, offset_times
from kafkastore.lookup.remote import remote_segment_row, remote_segment_type
from kafkastore.lookup.rules import CORRECT, LEGACY, LookupChoice
from kafkastore.paths import describe_error
from kafkastore.segment.index_trust import DEFAULT_INDEXES, Indexes
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.partition_path import FAILURES, Copies, open_copies
from kafkastore.writing.topic_settings import TopicSettings

if TYPE_CHECKING:
    import pyarrow as pa

#: Kafka's name of error code 35, the answer to a special timestamp that a version does not know.
REFUSED = "UNSUPPORTED_VERSION"


class OffsetAnswer(NamedTuple):
    """The answer for one time by one set of rules; offset None means no answer.

    `remote` is the segment in remote storage in which a broker looks for it; its offset is then
    unknown. `log_end_offset` is where a consumer begins if there is no answer for a time.
    """

    rules: str
    offset: int | None = None
    timestamp: int | None = None
    leader_epoch: int | None = None
    is_refused: bool = False
    explanation: Explanation | None = None
    remote: InRemoteSegmentError | None = None
    log_end_offset: int | None = None

    @property
    def place(self) -> int | str | None:
        """The offset, or the id of the remote segment that has it."""
        return self.offset if self.remote is None else self.remote.segment_id


class TimeOffsets(NamedTuple):
    """All answers of a partition for one time.

    `correct` is the correct offset, which is only known if the answers differ. `error` ended the
    lookup of this time; `answers` is then empty.
    """

    target_timestamp: int
    answers: tuple[OffsetAnswer, ...]
    correct: int | None = None
    error: Exception | None = None

    @property
    def is_agreed(self) -> bool:
        """Return whether all rules have the same offset, or the same remote segment."""
        return len({each.place for each in self.answers}) == 1


class PartitionTimeOffsets(NamedTuple):
    """The answers of one partition for all times, and the corrupt bytes skipped."""

    topic_partition: TopicPartition
    times: tuple[TimeOffsets, ...]
    skipped: tuple[SkippedBytes, ...]


@dataclass(frozen=True)
class OffsetsJob(PartitionJob[PartitionTimeOffsets]):
    """Look up times in each partition by each of the rules.

    `timestamps` are ms since 1970, or special ones from -1 to -6. `rules` are as for
    `PartitionLog.list_offset`; other parameters as for `kafkastore.legacy.fetch_offsets_before`.
    """

    timestamps: Sequence[int]
    rules: Sequence[str] = (CORRECT,)
    isolation: Isolation = "read_uncommitted"
    indexes: Indexes = DEFAULT_INDEXES
    explains: bool = False
    now: int | None = None
    mtimes: Mapping[str, int] | None = None
    whole_seconds: bool = False
    on_corrupt: OnCorrupt = "raise"
    settings: TopicSettings = field(default_factory=TopicSettings)

    @staticmethod
    def columns() -> list[tuple[str, pa.DataType]]:
        """Return the columns of an answer."""
        import pyarrow as pa

        number = pa.int64()
        return [
            ("target_timestamp", number),
            ("rules", pa.string()),
            ("offset", number),
            ("timestamp", number),
            ("leader_epoch", pa.int32()),
            ("log_end_offset", number),
            ("correct", number),
            ("remote_segment", remote_segment_type()),
            skipped_column(),
        ]

    def run(self, item: Copies) -> PartitionTimeOffsets:
        """Look up all times in one partition."""
        log, skipped = open_copies(item), list[SkippedBytes]()
        self.settings.apply_to(log)
        times = tuple(self._answers(log, each, skipped) for each in self.timestamps)
        return PartitionTimeOffsets(log.topic_partition, times, tuple(dict.fromkeys(skipped)))

    def rows(self, result: PartitionTimeOffsets) -> Iterator[Row]:
        """Yield a row for each time and rules, or one for the error of a time."""
        skipped = skipped_rows(result.skipped)
        for each in result.times:
            target = {"target_timestamp": each.target_timestamp}
            if each.error is not None:
                yield {**target, "skipped": skipped, "error": describe_error(each.error)}
            for answer in each.answers:
                yield {
                    **target,
                    "rules": answer.rules,
                    "offset": answer.offset,
                    "timestamp": answer.timestamp,
                    "leader_epoch": answer.leader_epoch,
                    "log_end_offset": answer.log_end_offset,
                    "correct": each.correct,
                    "remote_segment": remote_segment_row(answer.remote),
                    "skipped": skipped,
                    "error": REFUSED if answer.is_refused else None,
                }

    def _answers(
        self, log: PartitionLog, timestamp: int, skipped: list[SkippedBytes]
    ) -> TimeOffsets:
        """Look up one time; corrupt bytes do not affect the other times."""
        try:
            answers = tuple(self._answer(log, timestamp, each, skipped) for each in self.rules)
            found = TimeOffsets(timestamp, answers)
            if found.is_agreed:
                return found
            known = [each for each in answers if each.rules == CORRECT]
            right = known or [self._find(log, timestamp, CORRECT, skipped)]
            return found._replace(correct=right[0].offset)
        except FAILURES as error:
            return TimeOffsets(timestamp, (), error=error)

    def _answer(
        self, log: PartitionLog, timestamp: int, rules: str, skipped: list[SkippedBytes]
    ) -> OffsetAnswer:
        answer = self._find(log, timestamp, rules, skipped)
        if not self.explains or timestamp < 0 or answer.is_refused or answer.remote is not None:
            return answer
        try:
            explanation = self._explain(log, timestamp, rules)
        except InRemoteSegmentError:  # of the correct answer
            return answer
        except CorruptionError:
            if self.on_corrupt == "raise":
                raise
            return answer
        return answer._replace(explanation=explanation)

    def _explain(self, log: PartitionLog, timestamp: int, rules: str) -> Explanation:
        if rules != LEGACY:
            return log.explain_timestamp(
                timestamp, rules, isolation=self.isolation, indexes=self.indexes
            )
        now = clock() if self.now is None else self.now
        times = offset_times(log, now, mtimes=self.mtimes, whole_seconds=self.whole_seconds)
        choice = LookupChoice(LEGACY, indexes=self.indexes)
        return explain(log, timestamp, choice, LegacyLookup(log, times, now))

    def _find(
        self, log: PartitionLog, timestamp: int, rules: str, skipped: list[SkippedBytes]
    ) -> OffsetAnswer:
        choice: dict[str, Any] = {
            "isolation": self.isolation,
            "indexes": self.indexes,
            "on_corrupt": self.on_corrupt,
            "skipped": skipped,
        }
        try:
            if rules == LEGACY:
                offsets = fetch_offsets_before(
                    log,
                    timestamp,
                    1,
                    now=self.now,
                    mtimes=self.mtimes,
                    whole_seconds=self.whole_seconds,
                )
                return OffsetAnswer(rules, offsets[0] if offsets else None)
            find = log.list_offset if timestamp < 0 else log.offset_for_timestamp
            found = find(timestamp, rules, **choice)
            if found is None and timestamp >= 0:
                end = log.list_offset(LATEST_TIMESTAMP, rules, **choice)
                return OffsetAnswer(rules, log_end_offset=end and end.offset)
        except UnsupportedTimestampError:
            return OffsetAnswer(rules, is_refused=True)
        except InRemoteSegmentError as error:
            return OffsetAnswer(rules, remote=error)
        if found is None:
            return OffsetAnswer(rules)
        is_record = timestamp >= 0 or found.timestamp != NO_TIMESTAMP
        return OffsetAnswer(
            rules, found.offset, found.timestamp if is_record else None, found.leader_epoch
        )
