"""Consumer groups of the new protocol: the same requests to a real broker and to a server."""

from __future__ import annotations

import random
import time
from base64 import urlsafe_b64decode
from itertools import combinations, cycle

import pytest
from golden.make.cluster import Cluster
from golden.make.java_client import JavaClients
from models.protocol_client import ProtocolClient
from models.seed import SEED

from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.apis import ApiKey
from kafkastore.server import serve

pytestmark = pytest.mark.kafka
#: A running broker, too, writes in what is served.
IS_WRITTEN_BY_BROKER = True

VERSION = "4.3.1"
#: One letter each: Java's hash tables then have them in the order of the alphabet.
NAMES, STATIC_NAMES = "abcdefg", "hijklmno"
SETTINGS = {
    "group.consumer.assignment.interval.ms": 0, "group.consumer.migration.policy": "disabled",
}
PARTITIONS = {f"t{number}": 1 + number % 5 for number in range(30)} | {
    f"other_{number}": 1 for number in range(40)    # some of so many ids are in the wanted order
}
STEPS = 150
GROUPS = 4


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    """A client of a broker, and one of a server of its directory, with the ids of topics."""
    cluster = Cluster(VERSION, tmp_path_factory.mktemp("cluster"), SETTINGS)
    try:
        cluster.start()
        with JavaClients() as java:
            java.of(VERSION)("connect", bootstrap=cluster.address)
            java.of(VERSION)("create", topics=[
                {"name": topic, "partitions": count, "configs": {}}
                for topic, count in PARTITIONS.items()
            ])
            for topic, count in PARTITIONS.items():
                cluster.wait_for_leaders(topic, count)
        with (
            serve(cluster.logs) as served,
            ProtocolClient(cluster.address) as broker,
            ProtocolClient(served.bootstrap_servers) as server,
        ):
            ids = broker.topic_ids()
            assert server.topic_ids() == ids
            wait_for_coordinator(broker)
            yield broker, server, ids
    finally:
        cluster.abandon()


def wait_for_coordinator(broker):
    """Wait until the broker has made the topic of groups and loaded it."""
    error = None
    while error != ErrorCode.GROUP_ID_NOT_FOUND:
        time.sleep(0.05)
        broker.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("g",))
        error = broker.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id="g", member_id="a", member_epoch=1
        )["error_code"]


def java_hash(data):
    """Return what Java's hash tables make of a topic id."""
    both = int.from_bytes(data[:8], "big") ^ int.from_bytes(data[8:], "big")
    code = (both ^ (both >> 32)) & 0xFFFFFFFF
    return code ^ (code >> 16)


def chosen_topics(ids):
    """Return three topics that Java's tables of all sizes and Python have in one order."""
    data = {name: urlsafe_b64decode(ids[name] + "==") for name in PARTITIONS}
    for names in combinations(sorted(PARTITIONS, key=ids.get), 3):
        tables = [[java_hash(data[name]) % size for name in names] for size in (4, 8, 16)]
        values = [int.from_bytes(data[name][:8], "big", signed=True) for name in names]
        if all(each == sorted(set(each)) for each in (*tables, values)):
            return names
    raise AssertionError("no three topics have the same order")


class Twin:
    """Sends the same to both, and compares the answers."""

    def __init__(self, broker, server):
        self.clients = broker, server

    def ask(self, key, version, **fields):
        one, other = (
            normal(client.ask(key, version, **fields)) for client in self.clients
        )
        assert other == one, (key, fields)
        return one


def normal(value):
    """Return a response without what may differ: orders, texts, times, operations."""
    if isinstance(value, dict):
        return {
            name: normal(each) for name, each in value.items()
            if name not in ("error_message", "throttle_time_ms", "subscribed_topic_regex")
        }
    if isinstance(value, (list, tuple)):
        return sorted(map(normal, value), key=repr)
    return value


class Consumer:
    """A member as both know it."""

    def __init__(self, twin, group, rng, assignor, names, instance=None):
        self.twin, self.group, self.rng, self.assignor = twin, group, rng, assignor
        self.names, self.instance = cycle(names), instance
        self.name = names[0]
        self.epoch, self.owned, self.assigned = 0, [], []

    def heartbeat(self, **fields):
        answer = self.twin.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id=self.group, member_id=self.name,
            instance_id=self.instance, **{"member_epoch": self.epoch} | fields,
        )
        if answer["error_code"]:
            self.epoch, self.owned, self.assigned = 0, [], []
        else:
            self.epoch = max(answer["member_epoch"], 0)
            if answer["assignment"] is not None:
                self.assigned = answer["assignment"]["topic_partitions"]
        return answer

    def join(self, topics, **fields):
        self.owned = []
        return self.heartbeat(
            member_epoch=0, rebalance_timeout_ms=60_000, topic_partitions=(),
            **{"subscribed_topic_names": topics} | fields,
        )

    def act(self, topics):
        """Do something that a consumer does, or should not."""
        choice = self.rng.random()
        some = self.rng.sample(topics, self.rng.randint(0, len(topics)))
        if choice < 0.03:
            return self.heartbeat(member_epoch=self.epoch + self.rng.choice((-1, 1, 5)))
        if self.epoch == 0:
            self.name = next(self.names)
            assignor = self.rng.choice((None, self.assignor))
            return self.join(some or topics, server_assignor=assignor)
        if choice < 0.1:
            return self.heartbeat(member_epoch=-1)
        if choice < 0.14:
            return self.heartbeat(member_epoch=-2)
        if choice < 0.18:
            return self.join(some)
        if choice < 0.26:
            return self.heartbeat(subscribed_topic_names=some)
        if choice < 0.3:
            return self.heartbeat(
                rebalance_timeout_ms=60_000, subscribed_topic_names=topics,
                topic_partitions=self.owned,
            )
        if choice < 0.4:
            return self.commit()
        if choice < 0.6:
            return self.heartbeat()
        self.owned = self.assigned
        return self.heartbeat(topic_partitions=self.owned)

    def commit(self):
        epoch = self.epoch + self.rng.choice((0, 0, 0, -1, -2, 1))
        rows = [
            {
                "topic_id": each["topic_id"],
                "partitions": [
                    {
                        "partition_index": number, "committed_offset": self.rng.randint(0, 9),
                        "committed_metadata": "m" * self.rng.choice((0, 1, 4096, 4097)),
                    }
                    for number in each["partitions"]
                ],
            }
            for each in self.assigned
        ]
        named = {"group_id": self.group, "member_id": self.name}
        self.twin.ask(
            ApiKey.OFFSET_COMMIT, 10, **named, group_instance_id=self.instance,
            generation_id_or_member_epoch=epoch, topics=rows,
        )
        return self.twin.ask(
            ApiKey.OFFSET_FETCH, 10, require_stable=True,
            groups=({**named, "member_epoch": epoch, "topics": None},),
        )


def described(twin, group):
    """Compare what administrators see."""
    answer = twin.ask(
        ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=(group,), include_authorized_operations=False
    )
    twin.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=(group,), include_authorized_operations=False)
    return answer["groups"][0]


@pytest.mark.parametrize("number", range(GROUPS))
def test_random_members_get_what_a_broker_gives_them(clients, number):
    broker, server, ids = clients
    twin, rng = Twin(broker, server), random.Random(f"{SEED}-{number}")
    topics, group = chosen_topics(ids), f"random-{number}"
    # One for each group: which of two wins that are wanted equally often is random in Kafka.
    assignor = ("uniform", "range")[number % 2]
    members = [
        Consumer(twin, group, rng, assignor, name)
        for name in NAMES[: rng.randint(1, len(NAMES))]
    ]
    members.append(Consumer(twin, group, rng, assignor, STATIC_NAMES, "instance"))
    states = set()
    for _ in range(STEPS):
        rng.choice(members).act(topics)
        states.add(described(twin, group)["group_state"])
    assert states >= {"Assigning", "Reconciling"}


#: How many topics each matches; None is refused. Each is in a group of its own, because a broker
#: matches those of a group at most every 10 s.
REGEXES = {
    "t[12]": 2, "t1|t2": 2, "t1.*": 11, "(?i)T3": 1, r"t\d\d": 20, r"t1\z|t2$": 2, "^t4$": 1,
    r"\Qt5\E": 1, r"\pL6": 1, "[[:alpha:]]7": 1, "(?P<name>t)8": 1, "t": 0, "(t){2}": 0, "": 0,
    "a(": None, "[a-": None, "x**": None, r"t\1": None, "(?=t)": None, "(?!t)t": None,
    "t{1001}": None, "a)|(b": None, r"\c": None, "t++": None,
}


def test_regular_expressions_match_the_topics_that_a_broker_finds(clients):
    broker, server, ids = clients
    twin, members = Twin(broker, server), {}
    for regex, count in REGEXES.items():
        member = Consumer(twin, f"regex-{len(members)}", random.Random(SEED), "uniform", "a")
        refused = member.join(None, subscribed_topic_regex=regex)["error_code"]
        assert bool(refused) == (count is None), regex
        members[regex] = member
    names = {topic_id: name for name, topic_id in ids.items()}
    for regex, count in REGEXES.items():    # those that match first: they tell when it is done
        if count is None:
            continue
        found = []
        for client in twin.clients:
            topics = set()
            while len(topics) < count:
                time.sleep(0.02)
                answer = client.ask(
                    ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id=members[regex].group,
                    member_id="a", member_epoch=members[regex].epoch,
                )
                assert not answer["error_code"]
                if answer["assignment"] is not None:
                    rows = answer["assignment"]["topic_partitions"]
                    topics = {names[row["topic_id"]] for row in rows}
            found.append(topics)
        assert found[0] == found[1], regex
        assert len(found[0]) == count, regex


def row(**fields):
    return {
        "partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1,
        "committed_metadata": "",
    } | fields


def test_requests_to_groups_that_are_not_as_members_think(clients):
    broker, server, _ = clients
    twin = Twin(broker, server)
    topics = ({"name": "t2", "partitions": (row(),)},)
    unknown = ({"name": "none", "partitions": (row(),)}, *topics)
    member = Consumer(twin, "edges", random.Random(SEED), "uniform", "a")
    classic = {
        "session_timeout_ms": 6000, "rebalance_timeout_ms": 6000, "protocol_type": "consumer",
        "protocols": ({"name": "range", "metadata": b""},),
    }

    def ask_all(group, *, with_join=True):
        named = {"group_id": group}
        for version in (2, 8, 9):
            for epoch, name in ((-1, ""), (0, "a"), (1, "x"), (7, "a"), (-1, "a")):
                twin.ask(
                    ApiKey.OFFSET_COMMIT, version, **named, member_id=name, topics=unknown,
                    generation_id_or_member_epoch=epoch,
                )
        for version in (1, 7):
            twin.ask(ApiKey.OFFSET_FETCH, version, **named, topics=(
                {"name": "t2", "partition_indexes": (0, 1)},
                {"name": "none", "partition_indexes": (0,)},
            ))
        for name, epoch in ((None, -1), ("a", 2), ("a", 99), ("x", 1), ("a", -1)):
            twin.ask(ApiKey.OFFSET_FETCH, 9, groups=(
                {**named, "member_id": name, "member_epoch": epoch, "topics": None},
            ))
        twin.ask(ApiKey.HEARTBEAT, 4, **named, generation_id=2, member_id="a")
        for version in (4, 5):
            twin.ask(
                ApiKey.SYNC_GROUP, version, **named, generation_id=2, member_id="a",
                assignments=(),
            )
        for name, instance in (("x", None), ("", "i"), ("x", "i"), ("", None)):
            twin.ask(ApiKey.LEAVE_GROUP, 5, **named, members=(
                {"member_id": name, "group_instance_id": instance},
            ))
        twin.ask(ApiKey.LEAVE_GROUP, 2, **named, member_id="x")
        if with_join:
            twin.ask(ApiKey.JOIN_GROUP, 9, **named, **classic, member_id="x")
        for epoch in (-3, -2, -1, 1):
            twin.ask(
                ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, **named, member_id="x", member_epoch=epoch,
                instance_id="i" if epoch == -2 else None,
            )
        described(twin, group)
        for version in (5, 6):
            twin.ask(
                ApiKey.DESCRIBE_GROUPS, version, groups=(group,),
                include_authorized_operations=False,
            )
        for states, types in (((), ()), (("stable",), ()), ((), ("consumer",)), (("Empty",), ())):
            twin.ask(ApiKey.LIST_GROUPS, 5, states_filter=states, types_filter=types)
        twin.ask(ApiKey.OFFSET_DELETE, 0, **named, topics=({
            "name": "t2", "partitions": ({"partition_index": 0}, {"partition_index": 9}),
        },))

    for client in twin.clients:    # what other tests left
        listed = client.ask(ApiKey.LIST_GROUPS, 5)["groups"]
        for each in (each["group_id"] for each in listed):
            found = client.ask(
                ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=(each,),
                include_authorized_operations=False,
            )
            for left in found["groups"][0]["members"]:
                client.ask(ApiKey.LEAVE_GROUP, 5, group_id=each, members=(
                    {"member_id": left["member_id"]},
                ))
        client.ask(ApiKey.DELETE_GROUPS, 2, groups_names=[each["group_id"] for each in listed])
    ask_all("missing")
    # A broker forgets a group without offsets some minutes later.
    broker.ask(ApiKey.DELETE_GROUPS, 2, groups_names=("missing",))
    member.join(["t2", "t3"])
    ask_all("edges")
    twin.ask(
        ApiKey.OFFSET_COMMIT, 9, group_id="edges", member_id="a", topics=topics,
        generation_id_or_member_epoch=member.epoch,
    )
    ask_all("edges")
    twin.ask(ApiKey.DELETE_GROUPS, 2, groups_names=("edges", "missing", "none"))
    member.heartbeat(member_epoch=-1)
    ask_all("edges", with_join=False)    # a broker half removes an empty group then
    twin.ask(ApiKey.DELETE_GROUPS, 2, groups_names=("edges", "missing", "none"))
    twin.ask(ApiKey.LIST_GROUPS, 5)
