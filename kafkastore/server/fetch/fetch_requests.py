"""Fetch: whole batches of the partitions that a client wants.

A response has at least the first batch of the first partition that has any, whatever the limits
say (KIP-74), and else as many whole batches as fit. The log end is the high watermark.

Replicas get the error of a broker of whose partitions they are no replica.

Source: Kafka 4.3.1 ``KafkaApis.handleFetchRequest``, ``ReplicaManager.fetchMessages``,
``ReplicaManager.readFromLog``, ``Partition.fetchRecords``, ``LocalLog.read``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kafkastore.caching import cached_property
from kafkastore.errors import CorruptionError, KafkaStoreError
from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.list_offsets import READ_COMMITTED, UNKNOWN_EPOCH
from kafkastore.server.answering import Asked, Repeatable, Waiting
from kafkastore.server.catalog import Catalog, Node
from kafkastore.server.fetch.batches import SMALL_BYTES, FileRange, FoundBatches, ResponseRoom
from kafkastore.server.fetch.repeated import AnsweredFetch, RepeatedFetch, is_repeatable
from kafkastore.server.fetch.sessions import (
    FetchContext,
    FetchSessions,
    Row,
    Wanted,
    close_records,
    is_from_follower,
)
from kafkastore.server.replica_lookup import epoch_error
from kafkastore.server.served_log import ServedLog, State

#: Most bytes of records in one response, however many a client asks for.
MAX_FETCH_BYTES = 64 * 1024 * 1024
#: Most bytes of one response that are in memory: small, converted or remote batches.
MAX_COPIED_BYTES = 8 * 1024 * 1024
#: As much may be in memory of all responses that wait for slow clients; one batch of each beyond.
MAX_WAITING_BYTES = 128 * 1024 * 1024
#: Most files of one response that are open.
MAX_OPEN_FILES = 128
_UNKNOWN_OFFSET = -1
#: Older clients do not know the error for a failed disk.
_LAST_WITHOUT_STORAGE_ERROR = 5
_FIRST_WITH_NODE_ENDPOINTS = 16
#: Errors of rows whose log is not known.
_OF_UNKNOWN_LOGS = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Fetched(NamedTuple):
    """The rows of a response, their bytes, and whether it may wait for more.

    `logs` are those that may grow, each with its state before it was read.
    """

    rows: list[Row]
    records_bytes: int
    may_wait: bool
    logs: list[tuple[ServedLog, State | None]]

    def close(self) -> None:
        """Close the files of a response that is not sent."""
        close_records(self.rows)


class _Budget:
    """What is left for a response."""

    def __init__(self, max_bytes: int, copied_bytes: int) -> None:
        self.left, self.copied_left = max_bytes, copied_bytes
        self.taken, self.files = 0, 0

    def room(self, max_bytes: int) -> ResponseRoom:
        """Return the room of the next partition."""
        room = min(max_bytes, self.left)
        if self.files >= MAX_OPEN_FILES:
            room = min(room, SMALL_BYTES, max(self.copied_left, 0))
        return ResponseRoom(room, max(self.copied_left, 0), not self.taken)

    def take(self, found: FoundBatches) -> None:
        """Count the batches of a partition."""
        size = found.size
        self.taken += size
        self.left = max(self.left - size, 0)
        if isinstance(found.records, FileRange):
            self.files += 1
        else:
            self.copied_left -= size


@dataclass(frozen=True)
class Fetching:
    """The answers to Fetch of one node."""

    catalog: Catalog
    node: Node
    max_bytes: int = MAX_FETCH_BYTES
    #: Returns how many bytes of responses wait in memory.
    waiting_bytes: Callable[[], int] = int

    @cached_property
    def _sessions(self) -> FetchSessions:
        return FetchSessions(self._topic_name)

    def answer(self, asked: Asked) -> Values | Repeatable | Waiting:
        """Answer a request, which may wait for more at the end of the logs."""
        context = self._sessions.context(asked.request, asked.header.version)
        deadline = time.monotonic() + max(asked.request["max_wait_ms"], 0) / 1000
        return self._answer(asked, context, deadline)

    def _answer(
        self, asked: Asked, context: FetchContext, deadline: float
    ) -> Values | Repeatable | Waiting:
        header, request = asked
        fetched = self.fetch(context.wanted, request, header.version)
        is_enough = fetched.records_bytes >= self._least_bytes(request) or not fetched.may_wait
        if is_enough or time.monotonic() >= deadline:
            return self._respond(asked, context, fetched)
        fetched.close()

        def again(has_changed: bool) -> Values | Repeatable | Waiting:
            if has_changed:
                return self._answer(asked, context, deadline)
            last = fetched    # nothing is read again that has not changed
            if fetched.records_bytes:
                last = self.fetch(context.wanted, request, header.version)
            return self._respond(asked, context, last)

        return Waiting(fetched.logs, deadline, again)

    def _respond(
        self, asked: Asked, context: FetchContext, fetched: Fetched
    ) -> Values | Repeatable:
        header, request = asked
        ends = self._node_endpoints(fetched.rows, request, header.version)
        response = context.respond(fetched.rows) | ends
        if not is_repeatable(request, context, fetched.rows):
            return response
        ((wanted, row),), ((log, state),) = fetched.rows, fetched.logs
        if state is None:
            return response
        answered = AnsweredFetch(
            self.catalog, self.catalog.topics, header, request, context, log, state,
            log.log.facts, row, self._budget(request).room(wanted.max_bytes),
            self._least_bytes(request),
        )
        return Repeatable(response, lambda parts: RepeatedFetch(answered, parts).answer)

    def _least_bytes(self, request: Values) -> int:
        """Return with how many bytes a response does not wait for more."""
        least: int = min(request["min_bytes"], request["max_bytes"], self.max_bytes)
        return least

    def _topic_name(self, topic_id: str) -> str | None:
        """Return the name of a topic, if it is served."""
        found = self.catalog.topics_by_id.get(topic_id)
        return None if found is None else found.name

    def fetch(self, wanted: Iterable[Wanted], request: Values, version: int) -> Fetched:
        """Read what a request wants.

        As in a broker, unknown topic ids and then unknown partitions are the last rows; for
        replicas, both in their order.
        """
        budget = self._budget(request)
        is_committed = request["isolation_level"] == READ_COMMITTED
        rows: list[Row] = []
        unknown: list[Row] = []
        unknown_ids = unknown if is_from_follower(request) else []
        logs: list[tuple[ServedLog, State | None]] = []
        may_wait = True
        try:
            for each in wanted:
                error, log = self._find(each)
                if log is None:
                    last = unknown_ids if error == ErrorCode.UNKNOWN_TOPIC_ID else unknown
                    last.append((each, _error_row(each, error)))
                    continue
                error = error or self._refusal(log, each, request)
                if error:
                    row = _error_row(each, error)
                else:
                    row = self._read(log, each, budget, logs, is_committed=is_committed)
                if row["error_code"] or "diverging_epoch" in row:
                    may_wait = False
                    self._complete_error(row, log, version)
                rows.append((each, row))
        except BaseException:
            close_records(rows)
            raise
        if unknown_ids is not unknown:
            rows += unknown_ids
        may_wait = may_wait and bool(logs)
        return Fetched(rows + unknown, budget.taken, may_wait, logs)

    def _budget(self, request: Values) -> _Budget:
        copied_bytes = max(min(MAX_COPIED_BYTES, MAX_WAITING_BYTES - self.waiting_bytes()), 0)
        return _Budget(min(request["max_bytes"], self.max_bytes), copied_bytes)

    def _node_endpoints(self, rows: Iterable[Row], request: Values, version: int) -> Values:
        """Return where the leaders are that rows name, for consumers that know them."""
        if version < _FIRST_WITH_NODE_ENDPOINTS or is_from_follower(request):
            return {}
        if not any("current_leader" in row for _, row in rows):
            return {}
        return {"node_endpoints": [self.node._asdict()]}

    def _find(self, wanted: Wanted) -> tuple[ErrorCode, ServedLog | None]:
        """Find a partition; an error with a log is of a topic that has another id now."""
        if wanted.topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID, None
        log = self.catalog.log(wanted.topic, wanted.partition)
        if log is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        topic = self.catalog.topics.get(wanted.topic)
        if wanted.topic_id is not None and topic and topic.topic_id != wanted.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID, log
        return ErrorCode.NONE, log

    @staticmethod
    def _refusal(log: ServedLog, wanted: Wanted, request: Values) -> ErrorCode:
        error = epoch_error(log.leader_epoch, wanted.current_leader_epoch)
        if error or not is_from_follower(request):
            return error
        if wanted.current_leader_epoch != UNKNOWN_EPOCH:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _complete_error(self, row: Values, log: ServedLog, version: int) -> None:
        """Name the leader to clients that may have another, and errors by older names."""
        error = row["error_code"]
        if error == ErrorCode.KAFKA_STORAGE_ERROR and version <= _LAST_WITHOUT_STORAGE_ERROR:
            row["error_code"] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if version >= _FIRST_WITH_NODE_ENDPOINTS and error in (
            ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH
        ):
            row["current_leader"] = {
                "leader_id": self.node.node_id, "leader_epoch": log.leader_epoch,
            }

    @staticmethod
    def _read(
        log: ServedLog,
        wanted: Wanted,
        budget: _Budget,
        logs: list[tuple[ServedLog, State | None]],
        *,
        is_committed: bool,
    ) -> Values:
        """Read one partition, and its bounds; add its state before that to `logs`."""
        try:
            logs.append((log, log.follow()))
            return _read(log, wanted, budget, is_committed=is_committed)
        except CorruptionError as error:
            log.report(error)
            return _error_row(wanted, ErrorCode.CORRUPT_MESSAGE)
        except (KafkaStoreError, OSError) as error:
            log.report(error)
            return _error_row(wanted, ErrorCode.KAFKA_STORAGE_ERROR)


def _error_row(wanted: Wanted, error: ErrorCode) -> Values:
    return {
        "partition_index": wanted.partition,
        "error_code": error,
        "high_watermark": _UNKNOWN_OFFSET,
        "aborted_transactions": [] if error in _OF_UNKNOWN_LOGS else None,
        "records": b"",
    }


def _read(log: ServedLog, wanted: Wanted, budget: _Budget, *, is_committed: bool) -> Values:
    """Return the row of one partition."""
    offset = wanted.fetch_offset
    start, end, end_error = log.bounds
    stable = end    # to others it makes no difference, and finding it may read a whole segment
    if is_committed:
        stable, broken = log.last_stable_offset(end)
        end_error = broken or end_error
    row: Values = {
        "partition_index": wanted.partition,
        "error_code": ErrorCode.NONE,
        "high_watermark": end,
        "last_stable_offset": stable,
        "log_start_offset": start,
        "aborted_transactions": [] if is_committed else None,
        "records": b"",
    }
    if wanted.last_fetched_epoch != UNKNOWN_EPOCH:
        epoch, end_of_epoch = log.end_of_epoch(wanted.last_fetched_epoch)
        if UNKNOWN_EPOCH in (epoch, end_of_epoch):
            return _error_row(wanted, ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset >= start and (
            epoch < wanted.last_fetched_epoch or end_of_epoch < offset
        ):
            return row | {
                "diverging_epoch": {"epoch": epoch, "end_offset": end_of_epoch},
                "aborted_transactions": None,
            }
    if not start <= offset <= end:
        return _error_row(wanted, ErrorCode.OFFSET_OUT_OF_RANGE)
    if offset >= stable:
        if end_error is not None:
            raise end_error.again()
        return row
    room = budget.room(wanted.max_bytes)
    if room.max_bytes < 0:
        return _error_row(wanted, ErrorCode.UNKNOWN_SERVER_ERROR)
    if room.max_bytes == 0 and not room.at_least_one:
        return row
    found = log.read(offset, stable, room)
    if found is None or not found.size:
        return row
    if is_committed:
        try:
            found, row["aborted_transactions"] = _decided(log, offset, stable, end, room, found)
        except BaseException:
            found.close()
            raise
    row["records"] = found.records
    budget.take(found)
    return row


def _decided(
    log: ServedLog, offset: int, stable: int, end: int, room: ResponseRoom, found: FoundBatches
) -> tuple[FoundBatches, list[Values]]:
    """Return the batches of a range that is decided, and its aborted transactions.

    Raises `CorruptionError` if corrupt bytes hide whether the first batch is committed.
    """
    upper = min(found.end_offset, stable)
    aborted, decided_end = log.aborted(offset, upper, end)
    if decided_end < upper:
        found.close()
        fewer = log.read(offset, decided_end, room) if decided_end > offset else None
        if fewer is None or not fewer.size:
            raise CorruptionError("a corrupt batch hides how a transaction ended")
        found = fewer
        aborted = [each for each in aborted if each.first_offset < decided_end]
    return found, [
        {"producer_id": each.producer_id, "first_offset": each.first_offset} for each in aborted
    ]
