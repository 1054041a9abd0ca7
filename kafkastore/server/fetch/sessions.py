"""Incremental fetch sessions: a request names only partitions that are new.

It may change what it asks of the others, or forget them.

A session has the partitions of a client's requests. A response has those of them with records, an
error, or another high watermark or log start offset than the last response that had them. A
partition with records becomes the session's last one, so that none waits for the others.

A new session replaces another when all slots are taken: one that was not used for two minutes, or
one with fewer partitions that is older than that.

Source: Kafka 4.3.1 ``FetchManager``, ``FetchContext``, ``FetchSession``,
``FetchSessionCacheShard``; KIP-227.
"""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from kafkastore.arguments import INT32_MAX
from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.list_offsets import UNKNOWN_EPOCH
from kafkastore.server.fetch.batches import close_files, size_of

FIRST_VERSION_WITH_TOPIC_IDS = 13
NO_SESSION = 0
#: The epoch of a request that ends a session, and of one without any.
NO_SESSION_EPOCH = -1
_FIRST_EPOCH = 0
_UNKNOWN_OFFSET = -1


class SessionLimits(NamedTuple):
    """How many sessions are kept, and how long one is safe from another.

    Sessions and seconds are a broker's defaults. Partitions of all sessions take memory.
    """

    sessions: int = 1000
    safe_seconds: float = 120
    partitions: int = 250_000


DEFAULT_LIMITS = SessionLimits()


class Wanted(NamedTuple):
    """What a client wants of a partition; its `topic` is None for an unknown id."""

    topic: str | None
    topic_id: str | None
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int


Key = tuple[str | None, int]
#: What was wanted, and the row of the response.
Row = tuple[Wanted, Values]


def close_records(rows: Iterable[Row]) -> None:
    """Close the files of rows that are not sent."""
    close_files(row["records"] for _, row in rows)


class FetchContext:
    """A request without a session, from its partitions to its response."""

    error = ErrorCode.NONE
    #: Whether `repeat` may be called.
    is_repeatable = True

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        self.wanted = wanted

    def repeat(self, _epoch: int, _fetch_offset: int) -> bool:
        """Begin the next request for one partition; return False if it is not due."""
        return True

    def respond(self, rows: Sequence[Row]) -> Values:
        """Return the response for the rows of all partitions."""
        return _response(rows)


class _Refused(FetchContext):
    """A request whose session is not known: nothing says which partitions it wants."""

    is_repeatable = False

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(())
        self.error = error

    def respond(self, rows: Sequence[Row]) -> Values:
        return _response(rows, error=self.error)


class _Full(FetchContext):
    """A request that begins a session, if there is room for one."""

    is_repeatable = False

    def __init__(
        self, sessions: FetchSessions, wanted: Sequence[Wanted], *, uses_topic_ids: bool
    ) -> None:
        super().__init__(wanted)
        self._sessions, self._uses_topic_ids = sessions, uses_topic_ids

    def respond(self, rows: Sequence[Row]) -> Values:
        with self._sessions.lock:
            session_id = self._sessions.begin(rows, uses_topic_ids=self._uses_topic_ids)
        return _response(rows, session_id)


class _Incremental(FetchContext):
    """A request of a session; its response leaves out what has not changed."""

    def __init__(self, sessions: FetchSessions, session: _Session) -> None:
        super().__init__([each.wanted for each in session.partitions.values()])
        self._sessions, self._session, self._epoch = sessions, session, session.epoch

    def repeat(self, epoch: int, fetch_offset: int) -> bool:
        with self._sessions.lock:
            return self._sessions.repeat(self._session, epoch, fetch_offset)

    def respond(self, rows: Sequence[Row]) -> Values:
        with self._sessions.lock:
            return self._respond(rows)

    def _respond(self, rows: Sequence[Row]) -> Values:
        session = self._session
        if session.epoch != self._epoch:    # another request of the session came meanwhile
            close_records(rows)
            return _response((), session.session_id, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        return _response(
            [(wanted, row) for wanted, row in rows if session.answer(wanted, row)],
            session.session_id,
        )


class _SessionPartition:
    """A partition of a session, and what the last response that had it said."""

    __slots__ = ("high_watermark", "log_start_offset", "wanted")

    def __init__(
        self,
        wanted: Wanted,
        high_watermark: int = _UNKNOWN_OFFSET,
        log_start_offset: int = _UNKNOWN_OFFSET,
    ) -> None:
        self.wanted = wanted
        self.high_watermark, self.log_start_offset = high_watermark, log_start_offset


class _Session:
    """The partitions of one client, in the order in which they are read."""

    def __init__(self, session_id: int, created: float, *, uses_topic_ids: bool) -> None:
        self.session_id, self.created, self.uses_topic_ids = session_id, created, uses_topic_ids
        self.epoch = _next_epoch(_FIRST_EPOCH)
        self.last_used = created
        self.is_replaceable = False
        self.partitions: dict[Key, _SessionPartition] = {}

    def key(self, wanted: Wanted) -> Key:
        """Return what a partition is known by."""
        topic = wanted.topic_id if self.uses_topic_ids else wanted.topic
        return topic, wanted.partition

    def update(self, wanted: Iterable[Wanted], forgotten: Iterable[Wanted]) -> None:
        """Add, alter and remove partitions."""
        for each in wanted:
            known = self.partitions.get(self.key(each))
            if known is None:
                self.partitions[self.key(each)] = _SessionPartition(each)
            else:    # a topic keeps the name by which it was known
                known.wanted = each._replace(topic=known.wanted.topic or each.topic)
        for each in forgotten:
            self.partitions.pop(self.key(each), None)

    def answer(self, wanted: Wanted, row: Values) -> bool:
        """Return whether a row is sent, and note what it says."""
        key = self.key(wanted)
        known = self.partitions[key]
        has_records = size_of(row["records"] or b"") > 0
        start = row.get("log_start_offset", _UNKNOWN_OFFSET)
        is_sent = (
            has_records
            or known.high_watermark != row["high_watermark"]
            or known.log_start_offset != start
            or bool(row["error_code"])
            or "diverging_epoch" in row
        )
        known.high_watermark = _UNKNOWN_OFFSET if row["error_code"] else row["high_watermark"]
        known.log_start_offset = start
        if has_records:
            self.partitions[key] = self.partitions.pop(key)
        return is_sent


class FetchSessions:
    """The sessions of all clients, which threads may share.

    `topic_name` returns the name of a topic id, or None.
    """

    def __init__(
        self,
        topic_name: Callable[[str], str | None],
        limits: SessionLimits = DEFAULT_LIMITS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topic_name, self._limits, self._now = topic_name, limits, now
        self._sessions: OrderedDict[int, _Session] = OrderedDict()    # the last used is last
        self._partitions = 0
        self.lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._sessions)

    def context(self, request: Values, version: int) -> FetchContext:
        """Return what a request wants."""
        with self.lock:
            return self._context(request, version)

    def _context(self, request: Values, version: int) -> FetchContext:
        uses_topic_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
        # As in a broker, the last row of a partition counts, at the place of the first.
        wanted = [*{
            (each.topic_id, each.topic, each.partition): each
            for topic in request["topics"]
            for each in self._wanted(topic, uses_topic_ids=uses_topic_ids)
        }.values()]
        session_id, epoch = request["session_id"], request["session_epoch"]
        if epoch in (_FIRST_EPOCH, NO_SESSION_EPOCH):
            self._remove(session_id)
            if epoch == NO_SESSION_EPOCH:
                return FetchContext(wanted)
            return _Full(self, wanted, uses_topic_ids=uses_topic_ids)
        session = self._sessions.get(session_id)
        if session is None:
            return _Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return _Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return _Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._partitions -= len(session.partitions)
        session.update(wanted, [
            Wanted(topic["topic"], topic["topic_id"], number, 0, 0, 0, 0)
            for topic in request["forgotten_topics_data"] for number in topic["partitions"]
        ])
        self._partitions += len(session.partitions)
        if not session.partitions:
            self._remove(session_id)
            return FetchContext(wanted)
        if self._partitions > self._limits.partitions:    # its client begins again, without one
            self._remove(session_id)
            return _Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self._touch(session)
        session.epoch = _next_epoch(epoch)
        if uses_topic_ids:
            self._find_names(session)
        return _Incremental(self, session)

    def repeat(self, session: _Session, epoch: int, fetch_offset: int) -> bool:
        """Begin a session's next request, from another offset of its only partition.

        The caller has the `lock`.
        """
        is_known = self._sessions.get(session.session_id) is session
        if not is_known or session.epoch != epoch:
            return False
        (known,) = session.partitions.values()    # they change with the epoch
        known.wanted = known.wanted._replace(fetch_offset=fetch_offset)
        self._touch(session)
        session.epoch = _next_epoch(epoch)
        return True

    def begin(self, rows: Sequence[Row], *, uses_topic_ids: bool) -> int:
        """Begin a session with the rows of a response; return its id, 0 without room.

        The caller has the `lock`.
        """
        if self._partitions + len(rows) > self._limits.partitions:
            return NO_SESSION
        if len(self._sessions) >= self._limits.sessions and not self._replace(len(rows)):
            return NO_SESSION
        session = _Session(self._new_id(), self._now(), uses_topic_ids=uses_topic_ids)
        session.partitions = {
            session.key(wanted): _SessionPartition(
                wanted, row["high_watermark"], row.get("log_start_offset", _UNKNOWN_OFFSET)
            )
            for wanted, row in rows
        }
        self._sessions[session.session_id] = session
        self._partitions += len(session.partitions)
        self._touch(session)
        return session.session_id

    def _wanted(self, topic: Values, *, uses_topic_ids: bool) -> Iterable[Wanted]:
        topic_id = topic["topic_id"] if uses_topic_ids else None
        name = self._name_of(topic_id) if uses_topic_ids else topic["topic"]
        for row in topic["partitions"]:
            yield Wanted(
                name, topic_id, row["partition"], row["fetch_offset"],
                row["partition_max_bytes"],
                max(row["current_leader_epoch"], UNKNOWN_EPOCH),    # each negative one is none
                max(row["last_fetched_epoch"], UNKNOWN_EPOCH),
            )

    def _name_of(self, topic_id: str | None) -> str | None:
        return None if topic_id is None else self._topic_name(topic_id)

    def _find_names(self, session: _Session) -> None:
        """Find names of topics that had none when the client named their ids."""
        for each in session.partitions.values():
            if each.wanted.topic is None:
                name = self._name_of(each.wanted.topic_id)
                if name is not None:
                    each.wanted = each.wanted._replace(topic=name)

    def _new_id(self) -> int:
        while True:
            session_id = random.randint(1, INT32_MAX)
            if session_id not in self._sessions:
                return session_id

    def _touch(self, session: _Session) -> None:
        session.last_used = self._now()
        session.is_replaceable = session.last_used - session.created > self._limits.safe_seconds
        self._sessions.move_to_end(session.session_id)

    def _remove(self, session_id: int) -> None:
        removed = self._sessions.pop(session_id, None)
        if removed is not None:
            self._partitions -= len(removed.partitions)

    def _replace(self, size: int) -> bool:
        """Remove a session that a new one with so many partitions may replace."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if self._now() - oldest.last_used > self._limits.safe_seconds:
            self._remove(oldest.session_id)
            return True
        smallest = min(
            (each for each in self._sessions.values() if each.is_replaceable),
            key=lambda each: (len(each.partitions), each.session_id),
            default=None,
        )
        if smallest is None or len(smallest.partitions) >= size:
            return False
        self._remove(smallest.session_id)
        return True


def is_from_follower(request: Values) -> bool:
    """Return whether a replica sends a request; consumers have negative ids."""
    replica_ids = request["replica_id"], request["replica_state"]["replica_id"]
    return any(each >= 0 for each in replica_ids)


def _next_epoch(epoch: int) -> int:
    return 1 if epoch == INT32_MAX else epoch + 1


def _response(
    rows: Iterable[Row], session_id: int = NO_SESSION, error: ErrorCode = ErrorCode.NONE
) -> Values:
    """Return a response in the order of the rows, divided by topics."""
    topics: list[Values] = []
    for wanted, row in rows:
        last = topics[-1] if topics else None
        if last is None or (last["topic"], last["topic_id"]) != (wanted.topic, wanted.topic_id):
            last = {"topic": wanted.topic, "topic_id": wanted.topic_id, "partitions": []}
            topics.append(last)
        last["partitions"].append(row)
    return {"error_code": error, "session_id": session_id, "responses": topics}
