"""Incremental fetch sessions, compared with what a client knows and with a slow cache."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from models.record_strategies import bounded

from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.server.fetch.sessions import FetchSessions, SessionLimits

PARTITIONS = 6
ID = 21 * "A" + "Q"
NEWEST = 17


def request(session=(0, 0), partitions=(), forgotten=(), version=12):
    """A request for {partition: offset}."""
    topic = {"topic": "t", "topic_id": None} if version < 13 else {"topic": "", "topic_id": ID}
    return {
        "session_id": session[0], "session_epoch": session[1], "replica_id": -1,
        "replica_state": {"replica_id": -1},
        "topics": [topic | {"partitions": [
            {
                "partition": number, "fetch_offset": offset, "partition_max_bytes": 1,
                "current_leader_epoch": -1, "last_fetched_epoch": -1,
            }
            for number, offset in dict(partitions).items()
        ]}],
        "forgotten_topics_data": [topic | {"partitions": list(forgotten)}],
    }


def rows_of(response):
    """Return {partition: row} in the order of a response."""
    return {
        row["partition_index"]: row for topic in response["responses"]
        for row in topic["partitions"]
    }


PARTITION = st.integers(0, PARTITIONS - 1)
#: What a partition's row has: high watermark, log start, error, records.
STATES = st.fixed_dictionaries({}, optional={
    number: st.tuples(
        st.integers(0, 2), st.integers(0, 1), st.sampled_from([0, 0, 0, 1]),
        st.sampled_from([b"", b"", b"records"]),
    )
    for number in range(PARTITIONS)
})
STEPS = st.lists(
    st.tuples(st.sets(PARTITION), st.sets(PARTITION, max_size=2), STATES), max_size=8
)


def row_of(number, state):
    high_watermark, start, error, records = state
    row = {
        "partition_index": number, "error_code": error, "records": records,
        "high_watermark": high_watermark, "log_start_offset": start,
    }
    return row if not error else row | {
        "records": b"", "high_watermark": -1, "log_start_offset": -1,
    }


@bounded(300)
@given(first=st.sets(PARTITION), steps=STEPS, version=st.sampled_from([7, 12, 13, NEWEST]))
def test_a_client_knows_the_same_as_one_without_a_session(first, steps, version):
    sessions = FetchSessions({ID: "t"}.get)
    states = dict.fromkeys(range(PARTITIONS), (0, 0, 0, b""))
    context = sessions.context(request((0, 0), dict.fromkeys(first, 0), (), version), version)
    rows = [(each, row_of(each.partition, states[each.partition])) for each in context.wanted]
    response = context.respond(rows)
    assert rows_of(response).keys() == first
    session_id, epoch = response["session_id"], 1
    assert session_id
    known = {number: (row["high_watermark"], row["log_start_offset"]) for number, row
             in rows_of(response).items()}
    order = [each.partition for each in context.wanted]
    for step, (added, forgotten, changes) in enumerate(steps):
        states |= changes
        asked = request((session_id, epoch), dict.fromkeys(added, step), forgotten, version)
        context = sessions.context(asked, version)
        order = [each for each in [*order, *(each for each in asked_order(asked)
                                             if each not in order)] if each not in forgotten]
        known = {number: each for number, each in known.items() if number in order}
        if not order:
            assert len(sessions) == 0
            break
        assert [each.partition for each in context.wanted] == order
        rows = [(each, row_of(each.partition, states[each.partition])) for each in context.wanted]
        response = context.respond(rows)
        assert (response["session_id"], response["error_code"]) == (session_id, 0)
        sent, epoch = rows_of(response), epoch + 1
        for number in order:
            row = row_of(number, states[number])
            now = row["high_watermark"], row["log_start_offset"]
            must = bool(row["records"] or row["error_code"]) or known.get(number, (-1, -1)) != now
            assert (number in sent) == must
            known[number] = now
        with_records = [number for number in order if row_of(number, states[number])["records"]]
        order = [each for each in order if each not in with_records] + with_records


def asked_order(asked):
    return [row["partition"] for row in asked["topics"][0]["partitions"]]


class SlowCache:
    """Kafka's rule for slots, over a list."""

    def __init__(self, limits):
        self.limits, self.sessions = limits, []

    def begin(self, session_id, size, now):
        if len(self.sessions) == self.limits.sessions:
            oldest = min(self.sessions, key=lambda each: each["used"])
            old = [each for each in self.sessions if each["is_old"]]
            if now - oldest["used"] > self.limits.safe_seconds:
                self.sessions.remove(oldest)
            elif old and min(each["size"] for each in old) < size:
                smallest = min(old, key=lambda each: (each["size"], each["id"]))
                self.sessions.remove(smallest)
            else:
                assert not session_id
                return
        assert session_id
        self.sessions.append(
            {"id": session_id, "size": size, "used": now, "created": now, "is_old": False}
        )

    def use(self, session_id, now):
        for each in self.sessions:
            if each["id"] == session_id:
                each["used"] = now
                each["is_old"] = now - each["created"] > self.limits.safe_seconds


@bounded(200)
@given(
    steps=st.lists(st.tuples(
        st.integers(0, 5), st.sampled_from([0.5, 1, 40]), st.sets(PARTITION, min_size=1)
    ), max_size=40)
)
def test_a_new_session_replaces_another_by_kafkas_rule(steps):
    limits, clock = SessionLimits(3, 100, 1000), [0.0]
    sessions, slow = FetchSessions({}.get, limits, lambda: clock[0]), SlowCache(limits)
    epochs = {}
    for choice, seconds, partitions in steps:
        clock[0] += seconds
        if choice < 3 and choice < len(slow.sessions):
            session_id = slow.sessions[choice]["id"]
            context = sessions.context(request((session_id, epochs[session_id])), 12)
            assert context.error == ErrorCode.NONE
            context.respond([])
            epochs[session_id] += 1
            slow.use(session_id, clock[0])
            continue
        context = sessions.context(request((0, 0), dict.fromkeys(partitions, 0)), 12)
        rows = [(each, row_of(each.partition, (0, 0, 0, b""))) for each in context.wanted]
        session_id = context.respond(rows)["session_id"]
        epochs[session_id] = 1
        slow.begin(session_id, len(partitions), clock[0])
        assert len(sessions) == len(slow.sessions)


def test_no_session_begins_or_grows_over_the_number_of_partitions():
    sessions = FetchSessions({}.get, SessionLimits(10, 100, 5))

    def begin(partitions):
        context = sessions.context(request((0, 0), dict.fromkeys(partitions, 0)), 12)
        return context.respond([
            (each, row_of(each.partition, (0, 0, 0, b""))) for each in context.wanted
        ])["session_id"]

    first = begin({0, 1, 2})
    assert first
    assert not begin({0, 1, 2})
    second = begin({0, 1})
    assert second
    grown = sessions.context(request((second, 1), {5: 0}), 12)
    assert grown.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 1
    assert begin({3, 4})


def test_a_repeated_request_of_a_session_gets_an_error_and_closes_nothing():
    sessions = FetchSessions({}.get)
    context = sessions.context(request((0, 0), {0: 0}), 12)
    rows = [(each, row_of(0, (0, 0, 0, b""))) for each in context.wanted]
    session_id = context.respond(rows)["session_id"]
    slow = sessions.context(request((session_id, 1)), 12)
    again = sessions.context(request((session_id, 1)), 12)
    assert again.error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    later = sessions.context(request((session_id, 2)), 12)
    response = slow.respond(rows)
    assert response["error_code"] == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert later.respond(rows)["session_id"] == session_id
