"""Fetch requests to a real broker, and to its directories served: the answers are the same.

Other logs, sessions and ranges in every run, as its seed has it.
"""

import random

import pytest
from golden.make.load_into_broker import LoadOptions, broker_on
from models.chance_logs import TOPIC, leader_epochs, write_chance_logs
from models.protocol_client import LARGEST, READ_COMMITTED, ProtocolClient, batches
from models.seed import SEED, some

from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.apis import ApiKey
from kafkastore.server import serve

pytestmark = pytest.mark.kafka
#: A running broker, too, writes in what is served.
IS_WRITTEN_BY_BROKER = True

PARTITIONS = 12
REQUESTS = 150
RANGES = 400
OTHER_TOPIC, OTHER_ID = "missing", 21 * "A" + "Q"
#: Of committed transactions only a broker's response to a committed consumer is compared.
COMPARED = ("partition_index", "error_code", "high_watermark", "log_start_offset")
NEWEST = 17


def start_offsets(client):
    """Return {partition: (log start offset, log end offset)}, once each has a leader."""
    while True:
        rows = client.fetch(12, {(TOPIC, number): 2**62 for number in range(PARTITIONS)})
        if {row["error_code"] for row in rows.values()} == {ErrorCode.OFFSET_OUT_OF_RANGE}:
            break
    found = {}
    for timestamp in (-2, -1):
        answer = client.ask(
            ApiKey.LIST_OFFSETS, 7,
            topics=({"name": TOPIC, "partitions": [
                {"partition_index": number, "timestamp": timestamp}
                for number in range(PARTITIONS)
            ]},),
        )
        for row in answer["topics"][0]["partitions"]:
            found.setdefault(row["partition_index"], []).append(row["offset"])
    return found


class Requests:
    """Random requests of one client, with and without a session."""

    def __init__(self, chance, bounds, topic_ids, reused_epochs=()):
        self.chance, self.bounds, self.ids = chance, bounds, topic_ids
        self.reused_epochs = reused_epochs
        self.session, self.epoch, self.version = 0, 0, 12

    def topic(self, name, partitions):
        if self.version < 13:
            return {"topic": name, "partitions": partitions}
        return {"topic_id": self.ids.get(name, OTHER_ID), "partitions": partitions}

    def partition(self, number):
        chance = self.chance
        start, end = self.bounds.get(number, (0, 0))
        # A new broker forgets the epochs of such a log, a server does not.
        known = (-1,) if number in self.reused_epochs else (0, 3, 9)
        epoch = {"last_fetched_epoch": chance.choice((-1,) * 12 + known)}
        return {
            "partition": number,
            "fetch_offset": chance.choice((
                start, end, end, end, chance.randint(start, end), start - 1, end + 1,
            )),
            "partition_max_bytes": chance.choice((1, 300, 100_000)),
            "current_leader_epoch": chance.choice((-1, -1, -1, min(0, known[0]), 40))
            if self.version > 8 else -1,
        } | (epoch if self.version > 11 else {})

    def next(self):
        """Return version and fields of a request."""
        chance = self.chance
        if not self.session or chance.random() < 0.1:
            self.session, self.epoch = 0, chance.choice((0, 0, -1))
            self.version = chance.choice((7, 9, 11, 12, 13, NEWEST))
        session, epoch, version = self.session, self.epoch, self.version
        if session and chance.random() < 0.1:    # errors leave the session as it was
            session, epoch, version = chance.choice((
                (session, epoch + 1, version), (0, 5, version),
                (session, epoch, 12 if version > 12 else 13),
            ))
        self.version, kept = version, self.version
        numbers = chance.sample(range(PARTITIONS + 1), chance.choice((0, 1, 3, PARTITIONS)))
        topics = [self.topic(TOPIC, [self.partition(number) for number in numbers])]
        if chance.random() < 0.1:
            topics.insert(chance.randrange(2), self.topic(OTHER_TOPIC, [self.partition(0)]))
        forgotten = chance.sample(range(PARTITIONS), chance.choice((0, 0, 1, 4)))
        fields = {
            "max_wait_ms": 0, "min_bytes": 1, "max_bytes": chance.choice((1, LARGEST)),
            "isolation_level": chance.choice((0, 1)), "topics": topics,
            "session_id": session, "session_epoch": epoch,
            "forgotten_topics_data": [self.topic(TOPIC, forgotten)],
        }
        fields["replica_id"] = -1 if version < 9 or chance.random() < 0.95 else 7
        if version >= 15:
            fields["replica_state"] = {"replica_id": fields.pop("replica_id")}
        self.version = kept
        return version, fields

    def follow(self, asked, answer):
        """Continue the session as a client does."""
        if answer["error_code"]:
            return
        if asked["session_epoch"] in (0, self.epoch):
            self.session = answer["session_id"]
            self.epoch = self.epoch + 1 if self.session else 0


def compared(answer, asked):
    """Return what both answers have: all rows in their order, and their first batches."""
    is_committed = asked["isolation_level"] == READ_COMMITTED
    rows = []
    for topic in answer["responses"]:
        for row in topic["partitions"]:
            found, _ = batches(row["records"] or b"")
            rows.append((
                topic.get("topic"), topic.get("topic_id"),
                *[row.get(name) for name in COMPARED],
                row["last_stable_offset"] if is_committed else None,
                row.get("diverging_epoch"), row.get("current_leader", {}).get("leader_id"),
                row.get("preferred_read_replica"),
                [each.data for each in found[:1]],    # how many fit: see `compare_aborted`
            ))
    nodes = [each["node_id"] for each in answer.get("node_endpoints", ())]
    is_replica = asked.get("replica_state", {}).get("replica_id", -1) >= 0
    if is_replica:    # before 4.0, replicas got them too
        nodes = []
    return (answer["error_code"], bool(answer["session_id"]), nodes), rows


@pytest.mark.parametrize("version", some(["3.9.1", "4.3.1"], 1, __name__))
def test_a_broker_and_its_served_directory_answer_the_same_fetches(
    require_broker, tmp_path, version
):
    require_broker(version)
    logs = write_chance_logs(tmp_path / "before", SEED, PARTITIONS, is_clean=False)
    reused = {
        number for number, log in logs.items() if any(epoch for epoch, _ in leader_epochs(log))
    }
    partitions = [tmp_path / "before" / f"{TOPIC}-{number}" for number in range(PARTITIONS)]
    options = LoadOptions(recover=True, topic_config={"segment.index.bytes": 1048576})
    with (
        broker_on(partitions, version, tmp_path / "out", options) as context,
        ProtocolClient(f"localhost:{context.cluster.port}") as broker,
    ):
        bounds = start_offsets(broker)
        with (
            serve(context.cluster.logs) as served,
            ProtocolClient(served.bootstrap_servers) as ours,
        ):
            chance = random.Random(f"{SEED}/sessions")
            compare_sessions(broker, ours, bounds, chance, reused)
            compare_aborted(broker, ours, bounds, chance)


def compare_sessions(broker, ours, bounds, chance, reused_epochs):
    """Ask both the same random requests."""
    theirs = Requests(chance, bounds, broker.topic_ids(), reused_epochs)
    mirrored = Requests(chance, bounds, None)
    seen = set()
    for _ in range(REQUESTS):
        version, asked = theirs.next()
        same = asked | {
            "session_id": mirrored.session if asked["session_id"] == theirs.session
            else asked["session_id"],
        }
        mirrored.epoch = theirs.epoch
        answers = [
            broker.ask(ApiKey.FETCH, version, **asked), ours.ask(ApiKey.FETCH, version, **same),
        ]
        expected, found = (compared(each, asked) for each in answers)
        assert found[0] == expected[0], (version, asked)
        differing = [pair for pair in zip(found[1], expected[1], strict=False)
                     if pair[0] != pair[1]]
        assert not differing, (version, asked, differing[0])
        assert len(found[1]) == len(expected[1])
        seen.add(answers[0]["error_code"])
        seen |= {
            row["error_code"] for topic in answers[0]["responses"]
            for row in topic["partitions"]
        }
        if not theirs.session:
            mirrored.session = 0
        theirs.follow(asked, answers[0])
        mirrored.follow(same, answers[1])
        mirrored.version = theirs.version
    assert len(seen) > 5, seen


def aborted_in(row, end):
    """Return the aborted transactions that begin before the batches end."""
    return {
        (each["producer_id"], each["first_offset"]) for each in row["aborted_transactions"]
        if each["first_offset"] < end
    }


def compare_aborted(broker, ours, bounds, chance):
    """Ask both for ranges of committed records, forwards and at random."""
    begun_before = 0
    for _ in range(RANGES):
        number = chance.randrange(PARTITIONS)
        start, end = bounds[number]
        offset = chance.randint(start, end)
        limits = {"partition_max_bytes": chance.choice((1, 300, 2000))}
        rows = [
            client.fetch(
                12, {(TOPIC, number): offset}, isolation_level=READ_COMMITTED, **limits
            )[TOPIC, number]
            for client in (broker, ours)
        ]
        theirs, found = (
            [each.data for each in batches(row["records"])[0]] for row in rows
        )
        # What is known to be intact is sent without looking for more, if it is half of that.
        assert found == theirs[: len(found)]
        assert 2 * sum(map(len, found)) >= sum(map(len, theirs))
        found = batches(rows[1]["records"])[0]
        if found:
            last = found[-1].last_offset + 1
            expected, given = (aborted_in(row, last) for row in rows)
            assert given == expected, (number, offset)
            begun_before += any(first < offset for _, first in given)
    assert begun_before
