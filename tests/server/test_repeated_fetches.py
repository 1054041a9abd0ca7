"""A request that is like the one before gets the answer that any request gets."""

from __future__ import annotations

import os
import random
from types import SimpleNamespace

import pytest
from models.protocol_client import LARGEST, batches
from models.record_format import Batch, Row
from models.seed import SEED, examples
from server.test_fetched_records import TransactionalLog, fetching

import kafkastore
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.apis import (
    ApiKey,
    RequestHeader,
    pack_request,
    pack_response,
    parse_request,
    parse_request_header,
    parse_response,
)
from kafkastore.server.answering import Asked, Repeatable, Waiting
from kafkastore.server.fetch.sessions import FetchSessions

STEPS = 200
#: A request without a session, and the first of one.
WITHOUT, FIRST = (0, -1), (0, 0)
SIZES = (1, 300, 2_000, 50_000, LARGEST)


@pytest.fixture(autouse=True)
def _equal_session_ids_and_few_copies(monkeypatch):
    monkeypatch.setattr("kafkastore.server.fetch.batches.SMALL_BYTES", 100)
    monkeypatch.setattr(
        FetchSessions, "_new_id", lambda self: 1 + max(self._sessions, default=0)
    )


def bytes_of(parts):
    found = b""
    for part in parts:
        if not isinstance(part, bytes):
            found += os.pread(part.descriptor, part.size, part.position)
            part.close()
        else:
            found += part
    return found


class Connection:
    """What a client of one connection is answered; `repeats` as it is while a thread stays."""

    def __init__(self, root, *, repeats, **reading):
        self.answers, self.repeats = fetching(root, **reading), repeats
        self.repeat, self.repeated = None, 0

    def ask(self, frame):
        """Return the response, and whether it has to wait for more."""
        parts = None if self.repeat is None else self.repeat(frame)
        if parts is not None:
            self.repeated += 1
            return bytes_of(parts), False
        header, position = parse_request_header(frame)
        response = self.answers.answer(Asked(header, parse_request(header, frame, position)))
        waits = isinstance(response, Waiting)
        if waits:
            response = response.again(False)
        self.repeat, begin = None, None
        if isinstance(response, Repeatable):
            response, begin = response
        parts = pack_response(header, response)
        if begin is not None and self.repeats:
            self.repeat = begin(parts)
        return bytes_of(parts), waits


class Client:
    """A client that reads on, mostly."""

    def __init__(self, chance, end, start=0):
        self.chance, self.start, self.end = chance, start, end
        self.version = chance.choice((4, 5, 6, 7, 9, 11, 12))
        self.session = WITHOUT
        self.row = {
            "partition": 0, "fetch_offset": 0, "partition_max_bytes": 300,
            "current_leader_epoch": -1, "last_fetched_epoch": -1,
        }
        self.fields = {"max_wait_ms": 600_000, "min_bytes": 1, "max_bytes": LARGEST}
        self.forgotten = ()
        self.correlation_id = 0

    def frame(self):
        """Return the next request, as (header, frame)."""
        chance = self.chance
        if chance.random() < 0.5:
            self.forgotten = ()
        if chance.random() < 0.25:
            chance.choice((
                self.jump, self.resize, self.isolate, self.name_epoch, self.begin, self.forget,
                self.mistake_epoch,
            ))()
        rows = [self.row]
        if chance.random() < 0.03:
            rows = [self.row, {**self.row, "partition": 1}]
        elif chance.random() < 0.1 and self.session[1] > 0:
            rows = []    # as before
        self.correlation_id += 1
        header = RequestHeader(ApiKey.FETCH, self.version, self.correlation_id, "tests")
        topics = ({"topic": "t", "partitions": tuple(rows)},) if rows else ()
        fields = {**self.fields, "topics": topics}
        if self.version >= 7:
            fields |= {"session_id": self.session[0], "session_epoch": self.session[1]}
            fields["forgotten_topics_data"] = self.forgotten
        return header, pack_request(header, fields)[4:]

    def jump(self):
        self.row["fetch_offset"] = self.chance.randint(-1, self.end + 1)

    def resize(self):
        self.row["partition_max_bytes"] = self.chance.choice(SIZES)
        self.fields["max_bytes"] = self.chance.choice(SIZES)
        self.fields["min_bytes"] = self.chance.choice((0, 1, 1, 1, 400))

    def isolate(self):
        self.fields["isolation_level"] = self.chance.randrange(2)

    def name_epoch(self):
        if self.version >= 9:
            self.row["current_leader_epoch"] = self.chance.choice((-1, -1, 0, 3, 5))
        if self.version >= 12:
            self.row["last_fetched_epoch"] = self.chance.choice((-1, -1, 0, 3, 5))

    def begin(self):
        if self.version >= 7:
            self.session = self.chance.choice((WITHOUT, FIRST, FIRST, (7, 9)))

    def forget(self):
        if self.session[1] > 0:
            self.forgotten = ({"topic": "t", "partitions": (self.chance.randrange(2),)},)

    def mistake_epoch(self):
        if self.session[1] > 0:
            self.session = (self.session[0], self.session[1] + self.chance.choice((-1, 1)))

    def take(self, header, response):
        """Read on after a response."""
        answer = parse_response(header, response[4:])
        if self.session[1] >= 0:
            is_lost = self.version >= 7 and (answer["error_code"] or not answer["session_id"])
            if is_lost and self.chance.random() < 0.8:
                self.session = FIRST
            else:    # some do not notice
                self.session = (answer["session_id"] or self.session[0], self.session[1] + 1)
        for topic in answer["responses"]:
            for row in topic["partitions"]:
                found, _ = batches(row["records"] or b"")
                if found and row["partition_index"] == 0:
                    self.row["fetch_offset"] = found[-1].last_offset + 1
                elif self.chance.random() < 0.5:
                    self.row["fetch_offset"] = self.start


def compare(chance, root, offsets, change=lambda: None, **reading):
    """Ask the same of both; return how many requests were answered as the one before."""
    one, other = (Connection(root, repeats=each, **reading) for each in (True, False))
    client = Client(chance, *offsets)
    for _ in range(STEPS):
        if chance.random() < 0.1:
            change()
        header, frame = client.frame()
        response = one.ask(frame)
        assert response == other.ask(frame), (header, frame)
        client.take(header, response[0])
    return one.repeated


def test_a_log_that_grows_and_rolls_is_answered_as_any_request(tmp_path):
    repeated = 0
    for number in range(examples(200)):
        chance = random.Random(f"{SEED}/growing/{number}")
        with kafkastore.LogDirWriter(tmp_path / str(number)) as log_dir:
            writer = log_dir.writer("t", 0, {"segment.bytes": 3_000})
            log_dir.writer("t", 1).append_records([record(chance, 0)])
            end = 0

            def grow(writer=writer, chance=chance):
                nonlocal end
                for _ in range(chance.randrange(1, 20)):
                    writer.append_records([record(chance, end)])
                    end += 1
                writer.flush()

            for _ in range(3):
                grow()
            change = chance.choice((grow, lambda: None))
            repeated += compare(chance, tmp_path / str(number), (end,), change)
    assert repeated > STEPS


def record(chance, number):
    value = bytes(chance.choice((10, 200, 1_000)))
    return SimpleNamespace(timestamp=1_600_000_000_000 + number, key=None, value=value)


def test_transactions_are_answered_as_any_request(tmp_path):
    repeated = 0
    for number in range(examples(200)):
        chance = random.Random(f"{SEED}/transactions/{number}")
        log = TransactionalLog(chance)
        root = log.write(tmp_path / str(number)).parent
        start = chance.choice((0, 0, log.end // 3))
        (root / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {start}\n")
        on_corrupt = chance.choice(("raise", "skip"))
        path = chance.choice(sorted(root.glob("*/*.log")))

        def damage(path=path, chance=chance):
            data = bytearray(path.read_bytes())
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            path.write_bytes(data)

        change = chance.choice((damage, lambda: None, lambda: None))
        repeated += compare(chance, root, (log.end, start), change, on_corrupt=on_corrupt)
    assert repeated > STEPS


def test_an_offset_after_the_end_of_the_clients_epoch_is_not_answered_with_records(tmp_path):
    written = [
        Batch((Row(offset, 5, b"k", b"v" * 50),), leader_epoch=0 if offset < 5 else 3)
        for offset in range(10)
    ]
    directory = tmp_path / "logs" / "t-0"
    directory.mkdir(parents=True)
    (directory / f"{0:020}.log").write_bytes(b"".join(each.data for each in written))
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 5\n")
    one, other = (Connection(tmp_path / "logs", repeats=each) for each in (True, False))
    client = Client(random.Random(0), 10)
    client.version = 12
    client.row |= {"last_fetched_epoch": 0, "partition_max_bytes": 150}
    client.chance = SimpleNamespace(random=lambda: 1.0)    # reads on
    for offset in (0, 1, 4, 5, 6, 7, 1):
        client.row["fetch_offset"] = offset
        header, frame = client.frame()
        response = one.ask(frame)
        assert response == other.ask(frame)
        (topic,) = parse_response(header, response[0][4:])["responses"]
        assert (topic["partitions"][0]["diverging_epoch"]["epoch"] == 0) == (offset > 5)
    assert one.repeated == 3


def test_an_offset_before_the_log_start_is_not_answered_with_records(tmp_path):
    written = [Batch((Row(offset, 5, b"k", b"v" * 50),)) for offset in range(10)]
    directory = tmp_path / "logs" / "t-0"
    directory.mkdir(parents=True)
    (directory / f"{0:020}.log").write_bytes(b"".join(each.data for each in written))
    (tmp_path / "logs" / "log-start-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    connection = Connection(tmp_path / "logs", repeats=True)
    client = Client(SimpleNamespace(random=lambda: 1.0, choice=lambda _: 12), 10)
    client.row["partition_max_bytes"] = 150
    for offset in (4, 5, 3):
        client.row["fetch_offset"] = offset
        header, frame = client.frame()
        response, _ = connection.ask(frame)
        (topic,) = parse_response(header, response[4:])["responses"]
        is_out = topic["partitions"][0]["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE
        assert is_out == (offset < 4)
    assert connection.repeated == 1
