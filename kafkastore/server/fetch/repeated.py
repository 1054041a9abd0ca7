"""Requests of a client that reads on in one partition, each like the last one.

Only an offset and two numbers differ in them, and few bytes in the responses. To parse and look up
the rest, and to pack it again, takes longer than to find records that were sent before. So the
thread that stays with such a client compares, and sends the same bytes around other records, as
long as catalog and log are the same. All else is answered as any request.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from kafkastore.caching import cached_property
from kafkastore.errors import KafkaStoreError
from kafkastore.formats.messages.message_codec import Elsewhere
from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.apis import RequestHeader, is_flexible, pack_request
from kafkastore.formats.requests.list_offsets import READ_COMMITTED, UNKNOWN_EPOCH
from kafkastore.server.catalog import Catalog
from kafkastore.server.fetch.batches import FileRange, FoundBatches, ResponseRoom, size_of
from kafkastore.server.fetch.sessions import (
    NO_SESSION_EPOCH,
    FetchContext,
    Row,
    is_from_follower,
)
from kafkastore.server.served_log import ServedLog, State

_SIZE_BYTES = 4
_OFFSET_BYTES, _EPOCH_BYTES = 8, 4
_CORRELATION_ID = slice(4, 8)
#: In a response, after the size.
_CORRELATION_ID_BYTES = 4


@dataclass(frozen=True)
class AnsweredFetch:
    """A request for one partition, and the row of its response.

    `topics` are the catalog's, and `facts` the log's: other objects when they are read again.
    `state` is the log's before it was read.
    """

    catalog: Catalog
    topics: object

    header: RequestHeader
    request: Values
    context: FetchContext
    log: ServedLog
    state: State
    facts: object
    row: Values
    room: ResponseRoom
    min_bytes: int


def is_repeatable(request: Values, context: FetchContext, rows: Sequence[Row]) -> bool:
    """Return whether the next request, and its response, may be like these."""
    return (
        context.is_repeatable
        and not is_from_follower(request)
        and not request["forgotten_topics_data"]
        and [len(topic["partitions"]) for topic in request["topics"]] == [1]
        and len(rows) == 1
        and rows[0][1]["error_code"] == ErrorCode.NONE
        and not rows[0][1]["aborted_transactions"]
        and isinstance(rows[0][1]["records"], FileRange)
    )


class RepeatedFetch:
    """Answers requests that are like one before."""

    def __init__(self, answered: AnsweredFetch, response: Sequence[bytes | Elsewhere]) -> None:
        self._answered = answered
        header = answered.header
        self._is_flexible = is_flexible(header.api_key, header.version)
        head, records, self._tail = response
        assert isinstance(head, bytes)
        length = self._length_field(size_of(records))
        self._head = head[_SIZE_BYTES + _CORRELATION_ID_BYTES : -len(length)]

    @cached_property
    def _layout(self) -> _RequestLayout:
        """Where requests differ; found out when there is another one."""
        return _RequestLayout(self._answered.header, self._answered.request)

    @cached_property
    def _epoch_end(self) -> int:
        """Where the epoch of the client's last batch ends; else the high watermark."""
        answered = self._answered
        (topic,) = answered.request["topics"]
        epoch = max(topic["partitions"][0]["last_fetched_epoch"], UNKNOWN_EPOCH)
        if epoch == UNKNOWN_EPOCH:
            return int(answered.row["high_watermark"])
        return answered.log.end_of_epoch(epoch)[1]

    def answer(self, frame: bytes) -> Sequence[bytes | Elsewhere] | None:
        """Return the response; None if the request is another, or anything has changed."""
        layout, answered = self._layout, self._answered
        if not layout.is_like(frame):
            return None
        log, offset = answered.log, layout.fetch_offset(frame)
        if answered.catalog.topics is not answered.topics or log.follow() != answered.state:
            return None
        found = None
        # If it can't be read, the answer to any request tells the client.
        with suppress(KafkaStoreError, OSError):
            if self._may_have_records(offset):
                found = log.read(offset, answered.row["last_stable_offset"], answered.room)
            if (
                found is not None
                and found.size >= answered.min_bytes
                and self._has_nothing_aborted(offset, found)
                and log.log.facts is answered.facts
                and answered.context.repeat(layout.session_epoch(frame), offset)
            ):
                return self._response(frame, found.records)
        if found is not None:
            found.close()
        return None

    def _may_have_records(self, offset: int) -> bool:
        row = self._answered.row
        is_within = row["log_start_offset"] <= offset < row["last_stable_offset"]
        return is_within and offset <= self._epoch_end

    def _response(
        self, frame: bytes, records: bytes | Elsewhere
    ) -> Sequence[bytes | Elsewhere]:
        head = frame[_CORRELATION_ID] + self._head + self._length_field(size_of(records))
        size = len(head) + size_of(records) + size_of(self._tail)
        return [size.to_bytes(_SIZE_BYTES, "big") + head, records, self._tail]

    def _length_field(self, size: int) -> bytes:
        """Return the bytes before the records: their length, or that and 1 as a varint."""
        if not self._is_flexible:
            return size.to_bytes(4, "big")
        left, found = size + 1, bytearray()
        while left > 0x7F:
            found.append(left & 0x7F | 0x80)
            left >>= 7
        found.append(left)
        return bytes(found)

    def _has_nothing_aborted(self, offset: int, found: FoundBatches) -> bool:
        answered = self._answered
        if answered.request["isolation_level"] != READ_COMMITTED:
            return True
        end = min(found.end_offset, answered.row["last_stable_offset"])
        decided = answered.log.aborted(offset, end, answered.row["high_watermark"])
        return not decided.aborted and decided.end_offset >= end


class _RequestLayout:
    """Which bytes differ between requests that are alike."""

    def __init__(self, header: RequestHeader, request: Values) -> None:
        self._template = bytearray(_packed(header, request, 0, 0))
        at = _first_difference(self._template, _packed(header, request, -1, 0))
        self._offset = slice(at, at + _OFFSET_BYTES)
        self._epoch: slice | None = None
        if request["session_epoch"] != NO_SESSION_EPOCH:
            at = _first_difference(self._template, _packed(header, request, 0, -1))
            self._epoch = slice(at, at + _EPOCH_BYTES)

    def is_like(self, frame: bytes) -> bool:
        """Return whether a request is the same but for where it differs."""
        like = self._template
        if len(frame) != len(like):
            return False
        for slot in (_CORRELATION_ID, self._offset, self._epoch):
            if slot is not None:
                like[slot] = frame[slot]
        return like == frame

    def fetch_offset(self, frame: bytes) -> int:
        """Return the offset that is asked for."""
        return int.from_bytes(frame[self._offset], "big", signed=True)

    def session_epoch(self, frame: bytes) -> int:
        """Return the epoch of the request in its session."""
        epoch = self._epoch
        return NO_SESSION_EPOCH if epoch is None else int.from_bytes(frame[epoch], "big")


def _packed(header: RequestHeader, request: Values, offset: int, epoch: int) -> bytes:
    """Return the frame, without its size, with another offset and session epoch."""
    (topic,) = request["topics"]
    (row,) = topic["partitions"]
    topics = ({**topic, "partitions": ({**row, "fetch_offset": offset},)},)
    if request["session_epoch"] == NO_SESSION_EPOCH:
        epoch = NO_SESSION_EPOCH
    fields = {**request, "session_epoch": epoch, "topics": topics}
    return pack_request(header, fields)[_SIZE_BYTES:]


def _first_difference(first: bytes | bytearray, second: bytes) -> int:
    pairs = enumerate(zip(first, second, strict=True))
    return next(at for at, (one, other) in pairs if one != other)
