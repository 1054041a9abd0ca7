"""The data source as a stream that follows growing log directories.

Spark stores where a batch of records ends before it reads the batch, and nothing else. After a
crash it asks again where a query's first batch begins. So everything that was found for a batch is
in its end (`StreamOffset`), and the initial offset is empty: ``{}``.

Source: Spark 4.2 ``KafkaMicroBatchStream``, ``KafkaOffsetReaderAdmin``, ``MicroBatchExecution``.
"""
from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kafkastore.caching import cached_property
from kafkastore.errors import DuplicatePartitionError, NotALogDirectoryError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.spark.by_value import SentByValue
from kafkastore.spark.source.option_values import contradiction, must_be
from kafkastore.spark.source.options import (
    OptionError,
    OptionProblem,
    ReadOptions,
    at_least_one,
    parse_options,
)
from kafkastore.spark.source.planning import chosen, starting_offset, warn_of_doubtful_units
from kafkastore.spark.source.schema import check_schema
from kafkastore.spark.source.short_errors import short_errors
from kafkastore.spark.source.streaming.stream_offsets import StreamOffset
from kafkastore.spark.source.streaming.stream_tasks import StreamPack, plan_tasks, read_task, report
from kafkastore.store.data_loss import Loss, LossKind
from kafkastore.store.growing_logs import (
    BatchMark,
    BatchPosition,
    LogNow,
    StableEnd,
    batch_before,
    find_loss,
    inspect_log,
)
from kafkastore.store.log_store import open_store
from kafkastore.store.partition_log import PartitionLog

#: Longer than the time between a broker's two renames.
MOVING_SECONDS = 0.2
#: How often to inspect logs that appear or disappear meanwhile, before that is an error.
MOST_LOOKS = 3

AnswerT = TypeVar("AnswerT")


class StreamOptions(NamedTuple):
    """The parsed options of a stream; `read` has those shared with batch reads.

    The others are `maxOffsetsPerTrigger`, `minOffsetsPerTrigger`, and `maxTriggerDelay` in seconds.
    """

    read: ReadOptions
    max_offsets: int | None
    min_offsets: int | None
    max_delay: float


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Parse the options of a stream; names may be in any case.

    Raises `OptionError` if an option is unknown, invalid, contradicts another, or is not for
    streams.

    >>> parse_stream_options({"path": "/kafka-logs", "maxTriggerDelay": "2m"}).max_delay
    120.0
    """
    options = {name.lower(): value for name, value in given.items()}
    read = parse_options(given, is_stream=True)
    most = at_least_one(options, "maxOffsetsPerTrigger")
    least = at_least_one(options, "minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        advice = f"the minimum, {least}, is above the maximum, {most}"
        raise contradiction("minOffsetsPerTrigger", "maxOffsetsPerTrigger", advice=advice)
    return StreamOptions(read, most, least, _seconds(options.get("maxtriggerdelay", "15m")))


_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def _seconds(text: str) -> float:
    """Parse a duration as Spark writes it: ``90s``, ``15m``; a bare number is in ms."""
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    unit = _UNITS.get(match[2] or "ms") if match else None
    if match is None or unit is None:
        raise must_be("maxTriggerDelay", "a time such as 90s or 15m", text)
    return float(int(match[1]) * unit)


class KafkaStoreStreamReader(SentByValue, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Finds new records, plans the read, and reads them in tasks."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self.given, self.schema = given, schema
        self._latest: dict[TopicPartition, int] = {}
        self._targets: dict[TopicPartition, int] | None = None
        #: Batches from which to continue: the last of each log, and the last that was planned.
        self._tails: dict[TopicPartition, BatchPosition] = {}
        self._planned: dict[TopicPartition, BatchPosition] = {}
        self._stable: dict[TopicPartition, StableEnd] = {}
        self._last_trigger = float("-inf")

    @cached_property
    def options(self) -> StreamOptions:
        """The parsed options, parsed on first use.

        Spark 4.3 replaces an error from a reader's constructor with one of its own.
        """
        return parse_stream_options(self.given)

    def initialOffset(self) -> dict[str, Any]:
        """Return the empty initial offset, which is the same after a crash."""
        warn_of_doubtful_units(self.options.read)
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that the options set."""
        if self.options.max_offsets is not None:
            return ReadMaxRows(self.options.max_offsets)
        if self.options.min_offsets is not None:
            return ReadMinRows(self.options.min_offsets)
        return ReadAllAvailable()

    @short_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        """Record where all logs end now; this query does not read beyond."""
        self._targets = _retry_while_moving(self._ends)

    def _ends(self) -> dict[TopicPartition, int]:
        logs, nows = self._found(())
        return {which: self._end(logs[which], now) for which, now in nows.items()}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return where the logs ended when they were last inspected."""
        return StreamOffset(self._latest).to_json() if self._latest else None

    @short_errors()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends; `start` itself if there is nothing to read.

        A `limit` other than `ReadAllAvailable` means the options' limits. Raises `DataLossError` if
        records after the start are lost or replaced and `failOnDataLoss` is on.
        """
        return _retry_while_moving(lambda: self._latest_offset(start, limit))

    def _latest_offset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before, after = StreamOffset.from_json(start), StreamOffset()
        losses: dict[TopicPartition, Loss] = {}
        if not start:
            chosen(open_store(list(self.options.read.paths)), self.options.read)  # may raise
        logs, nows = self._found(before.offsets.keys())
        for which in nows:
            log, now, begin = logs[which], nows[which], before.offsets.get(which)
            if not start:
                begin = min(starting_offset(log, self.options.read), self._end(log, now))
            elif begin is None:
                begin = now.start_offset
                if begin > 0:
                    sentence = f"{which} is new, and begins at offset {begin}, not at 0"
                    losses[which] = Loss(LossKind.DELETED, which, begin, sentence)
            else:
                now, loss = self._find_loss(log, now, begin, before.marks.get(which))
                if loss is not None:
                    losses[which] = loss
                    begin = loss.resume_offset
            if begin != before.offsets.get(which):
                after.begins[which] = begin
            self._latest[which] = after.offsets[which] = max(begin, self._end(log, now))
        for which in before.offsets.keys() - nows.keys():
            end = before.offsets[which]
            losses[which] = _missing(which, end, f"was read up to {end}")
            for known in (self._latest, self._tails, self._planned, self._stable):
                known.pop(which, None)
        report(losses.values(), self.options.read)
        after.losses = {which: loss.sentence for which, loss in losses.items()}
        begins = {which: after.begins.get(which, before.offsets.get(which, 0)) for which in nows}
        if self._waits(sum(after.offsets.values()) - sum(begins.values()), limit):
            return start
        if isinstance(limit, ReadMaxRows):
            after.offsets = _rate_limited(limit.max_rows, begins, after.offsets)
        if start and after.offsets == before.offsets and not after.losses:
            return start
        for which, end in after.offsets.items():
            is_same = end == before.offsets.get(which) and which not in after.losses
            mark = before.marks.get(which) if is_same else self._mark_before(logs[which], end)
            if mark is not None:
                after.marks[which] = mark
        return after.to_json()

    def _found(
        self, known: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, PartitionLog], dict[TopicPartition, LogNow]]:
        """Inspect the logs; repeat if a partition is missing."""
        logs = self._logs()
        nows = self._inspect_all(logs)
        if set(known) - nows.keys():
            time.sleep(MOVING_SECONDS)
            logs = self._logs()
            nows = self._inspect_all(logs)
        return logs, nows

    def _logs(self) -> dict[TopicPartition, PartitionLog]:
        """Open the followed partitions."""
        store = open_store(self.options.read.paths)
        return {
            which: store.partitions[which]
            for which in store.partitions
            if self.options.read.selection.includes(which)
            and (self._targets is None or which in self._targets)
        }

    def _inspect_all(
        self, logs: Mapping[TopicPartition, PartitionLog]
    ) -> dict[TopicPartition, LogNow]:
        """Inspect logs; skip one that was deleted after it was listed."""
        nows = {}
        for which, log in logs.items():
            try:
                nows[which] = self._inspect(log)
            except NotALogDirectoryError:
                if log.path.exists():
                    raise
        return nows

    def _known(self, which: TopicPartition) -> list[BatchPosition]:
        return [each[which] for each in (self._planned, self._tails) if which in each]

    def _inspect(self, log: PartitionLog) -> LogNow:
        """Inspect a log, starting from the previous inspection."""
        which = log.topic_partition
        now = inspect_log(log, self._known(which))
        if now.last is not None:
            self._tails[which] = now.last
        return now

    def _end(self, log: PartitionLog, now: LogNow) -> int:
        """Return the end offset up to which a log may be read now."""
        which, end = log.topic_partition, now.end_offset
        if self.options.read.isolation == "read_committed":
            end = self._stable.setdefault(which, StableEnd()).find(log, now)
        return end if self._targets is None else min(end, self._targets[which])

    def _find_loss(
        self, log: PartitionLog, now: LogNow, offset: int, mark: BatchMark | None
    ) -> tuple[LogNow, Loss | None]:
        """Return what is missing, if anything; inspect the log from scratch to confirm."""
        which = log.topic_partition
        if mark is not None and which not in self._planned:  # as after a restart
            self._mark_before(log, offset)
        loss = find_loss(log, now, offset, mark, self._known(which))
        if loss is not None:
            self._tails.pop(which, None)
            self._planned.pop(which, None)
            log.refresh()
            now = self._inspect(log)
            loss = find_loss(log, now, offset, mark)
        return now, loss

    def _mark_before(self, log: PartitionLog, offset: int) -> BatchMark | None:
        """Find the batch before an offset, and start from it next time."""
        place = batch_before(log, offset, self._known(log.topic_partition))
        if place is None:
            return None
        self._planned[log.topic_partition] = place
        return place.mark

    def _waits(self, count: int, limit: ReadLimit) -> bool:
        """Return whether `minOffsetsPerTrigger` and `maxTriggerDelay` say to wait."""
        least = self.options.min_offsets
        if least is None or isinstance(limit, ReadAllAvailable) or self._targets is not None:
            return False
        now = time.monotonic()
        if count < least and now - self._last_trigger < self.options.max_delay:
            return True
        self._last_trigger = now
        return False

    @short_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Divide a batch of records into tasks, between offsets of `latestOffset`."""
        return [] if start == end else _retry_while_moving(lambda: self._tasks(start, end))

    def _tasks(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        before, after = StreamOffset.from_json(start), StreamOffset.from_json(end)
        store = open_store(list(self.options.read.paths))
        ranges, gone = [], []
        for which, stop in after.offsets.items():
            begin = after.begins.get(which, before.offsets.get(which))
            if begin is None:
                raise OptionError(
                    f"the checkpoint does not say where its first batch begins in {which}; "
                    f"choose another checkpointLocation",
                    OptionProblem.MISSING, "checkpointLocation",
                )
            if begin >= stop:
                continue
            if which in store.partitions:
                ranges.append((store.partitions[which], begin, stop))
            else:
                gone.append(_missing(which, stop, f"was to be read from {begin} to {stop}"))
        report(gone, self.options.read)
        return list(plan_tasks(ranges, after.marks, self.options.read))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        if isinstance(partition, StreamPack):  # Spark reads one partition even if none is planned
            with short_errors():
                columns = check_schema(self.schema, self.options.read.columns)
                yield from read_task(partition, columns, self.options.read)


def _missing(which: TopicPartition, end: int, then: str) -> Loss:
    return Loss(LossKind.GONE, which, end, f"{which} is missing, and {then}")


def _retry_while_moving(answer: Callable[[], AnswerT]) -> AnswerT:
    """Call `answer` again if a partition moved meanwhile, or was in two directories.

    A broker that moves a partition first renames it in the new log directory, then in the old one.
    """
    for _ in range(MOST_LOOKS - 1):
        with suppress(NotALogDirectoryError, DuplicatePartitionError):
            return answer()
        time.sleep(MOVING_SECONDS)
    return answer()


def _rate_limited(
    most: int, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Divide a number of offsets among partitions, in proportion to what each has.

    Source: Spark 4.2 ``KafkaMicroBatchStream.rateLimit``.
    """
    sizes = {which: ends[which] - begins[which] for which in ends}
    total = sum(sizes.values())
    limited = {}
    for which, size in sizes.items():
        share = most * (size / total) if size else 0  # rounded as Spark rounds it
        # At least one offset, so that a small partition does not starve.
        whole = math.ceil(share) if share < 1 else math.floor(share)
        limited[which] = begins[which] + min(size, whole)
    return limited
