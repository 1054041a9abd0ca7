"""The same requests to a broker and to a server of its directory: the same answers."""

from __future__ import annotations

import fnmatch
import random
import warnings
from collections import Counter

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from golden.make.cluster import free_ports
from models import kafka_classes
from models.answer_differences import CLOSED, differences
from models.chance_requests import ChanceRequests, KnownPartition, KnownTopic
from models.protocol_client import ProtocolClient
from models.recording_proxy import RecordingProxy
from models.seed import SEED, some
from models.served_broker import GROUPS, TIMES, TRANSACTIONAL_IDS, broker_and_server

from kafkastore.formats.requests.apis import ApiKey, RequestHeader, pack_request
from kafkastore.metadata.registrations import ResourceType
from kafkastore.server import serve
from kafkastore.server.refusing_requests import REFUSALS

with warnings.catch_warnings():
    # It reads its package's files by a deprecated way of Python 3.11.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka import TopicPartition as PythonPartition

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka"),
]

#: A running broker, too, writes in what is served.
IS_WRITTEN_BY_BROKER = True
VERSIONS = some(["3.9.1", "4.1.1", "4.3.1"], 1, __name__)
#: The level of groups is that of the server.
GROUPS_HERE = "group.version"
#: Compared by `test_consumer_group_in_brokers`.
OF_NEW_GROUPS = (
    ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.DELETE_GROUPS,
    ApiKey.OFFSET_DELETE,
)
#: Requests of each version of each kind.
REQUESTS_EACH = 6

#: Fields that differ on purpose, by pattern of their path, and why.
DIFFERING = {
    "*.port": "they listen at different ports",
    "*.error_message": "texts are for people",
    "*_authorized_operations": "nothing can be altered here, so clients may do less",
    "*.authorized_operations": "nothing can be altered here, so clients may do less",
    "DESCRIBE_CONFIGS.results[[]].configs[[]].read_only": "nothing can be altered here",
    "DESCRIBE_LOG_DIRS.results[[]].usable_bytes": "the disk is in use",
    "FETCH.responses[[]].partitions[[]].last_stable_offset":
        "consumers ignore it without read_committed, and it costs a read of the log's end",
    "FETCH.session_id": "random numbers",
    "JOIN_GROUP.protocol_name": "an empty name, which clients ignore after an error",
    "LIST_TRANSACTIONS.unknown_state_filters[[]]": "a set, in another order",
}
#: The same, of brokers before 4.0.
DIFFERING_BEFORE_4 = {
    "LIST_OFFSETS.topics": "newer brokers do not answer for topics without partitions",
    "OFFSET_FETCH.topics": "newer brokers answer for topics without partitions",
    "OFFSET_FETCH.groups[[]].topics": "newer brokers answer for topics without partitions",
    "FIND_COORDINATOR.coordinators[[]].error_code": "newer brokers check keys of share groups",
    "DESCRIBE_CONFIGS.results[[]].*": "newer brokers have other configurations",
}


#: Topics' configurations for which the brokers of these tests have others in their properties.
STATIC = ("retention.ms", "segment.index.bytes")
#: Sources of configurations.
OF_TOPIC, OF_BROKER, OF_BROKERS, BY_PROPERTIES = range(1, 5)


def without_static_configs(answer):
    """Remove what a broker has from its ``server.properties``, and loggers and groups' defaults.

    They are not in the directory.
    """
    for result in answer["results"]:
        of_topic = result["resource_type"] == ResourceType.TOPIC
        dynamic = [
            each for each in result["configs"]
            if each["config_source"] in (OF_TOPIC, OF_BROKER, OF_BROKERS)
            or (of_topic and each["name"] not in STATIC)
        ]
        for each in dynamic:
            each["synonyms"] = [
                one for one in each["synonyms"] if of_topic and one["source"] != BY_PROPERTIES
            ]
            each["config_type"] = of_topic and each["config_type"]
        result["configs"] = dynamic
    return answer


def known_topics(client):
    """Return what a broker says of its topics."""
    topics = {}
    for topic in client.ask(ApiKey.METADATA, 12, topics=None)["topics"]:
        partitions = {}
        for row in topic["partitions"]:
            number = row["partition_index"]
            bounds = [
                client.ask(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=({
                    "name": topic["name"],
                    "partitions": ({"partition_index": number, "timestamp": timestamp},),
                },))["topics"][0]["partitions"][0]["offset"]
                for timestamp in (-2, -1)
            ]
            partitions[number] = KnownPartition(*bounds, row["leader_epoch"])
        topics[topic["name"]] = KnownTopic(topic["topic_id"], partitions)
    return topics


@pytest.fixture(scope="module", params=VERSIONS)
def both(request, require_broker, tmp_path_factory):
    """A broker, and a server of the directory that it has in use."""
    require_broker(request.param)
    with broker_and_server(request.param, tmp_path_factory.mktemp("both")) as found:
        yield found


class Asking:
    """Connections to both servers, made again when one closes them."""

    def __init__(self, both):
        self.version = both.version
        self._addresses = {"ours": both.ours, "theirs": both.theirs}
        self._clients = {
            name: ProtocolClient(address) for name, address in self._addresses.items()
        }

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for client in self._clients.values():
            client.__exit__()

    def versions(self):
        """Return the versions that both know, by kind of request."""
        ours, theirs = (
            {
                each["api_key"]: (each["min_version"], each["max_version"])
                for each in client.ask(ApiKey.API_VERSIONS, 0)["api_keys"]
            }
            for client in self._clients.values()
        )
        return {
            key: range(max(ours[key][0], theirs[key][0]), min(ours[key][1], theirs[key][1]) + 1)
            for key in ours.keys() & theirs.keys()
        }

    def one(self, name, call):
        """Return what a server answers; `call` gets a client."""
        try:
            return call(self._clients[name])
        except ConnectionError:
            self._clients[name].__exit__()
            self._clients[name] = ProtocolClient(self._addresses[name])
            return CLOSED

    def both(self, call):
        """Return what both answer."""
        return [self.one(name, call) for name in self._addresses]

    def differences(self, key, version, fields):
        """Return the differences of the answers that are not on purpose."""
        answers = self.both(lambda client: client.ask(key, version, **fields))
        if key == ApiKey.DESCRIBE_CONFIGS and CLOSED not in answers:
            answers = list(map(without_static_configs, answers))
        allowed = [*DIFFERING, *(DIFFERING_BEFORE_4 if self.version < "4" else ())]
        return [
            each for each in differences(key, *answers)
            if not any(fnmatch.fnmatchcase(each[0], pattern) for pattern in allowed)
        ]


def test_requests_of_chance_are_answered_as_the_broker_answers_them(both):
    with Asking(both) as asking:
        known = known_topics(asking._clients["theirs"])
        chance = random.Random(f"{SEED} requests")
        times = [each + more for each in TIMES[::7] for more in (-1, 0, 1, 499, 500)]
        requests = ChanceRequests(chance, known, list(GROUPS), list(TRANSACTIONAL_IDS), times)
        versions = asking.versions()
        assert versions.keys() - requests.keys() <= {
            ApiKey.PRODUCE, ApiKey.API_VERSIONS, ApiKey.OFFSET_COMMIT, *REFUSALS, *OF_NEW_GROUPS,
        }
        wrong, asked = [], Counter()
        for key in sorted(versions.keys() & requests.keys()):
            for version in some(versions[key], 4, str(key)):
                for _ in range(REQUESTS_EACH):
                    fields = requests.request(key, version)
                    found = asking.differences(key, version, fields)
                    wrong += [(version, fields, *each) for each in found]
                    asked[key] += 1
        assert not wrong, "\n".join(map(str, wrong[:10]))
        assert len(asked) >= 20


#: Requests that are sent as they are, without the size, and end the connection.
NOT_ANSWERED = {
    "an unknown kind": "03e7 0000 00000001 ffff",
    "a kind of controllers": "0034 0000 00000001 ffff",
    "an unknown version": "0001 0063 00000001 ffff",
    "an old version of Fetch": "0001 0003 00000001 ffff",
    "half a header": "0003 0001 00",
    "half a request": "0003 0001 00000001 ffff 0000",
    "a negative length": "0003 0009 00000001 0000 00 00",
    "nothing": "",
}


def exchange(client, frame):
    """Send a frame; return the response."""
    client.socket.sendall(len(frame).to_bytes(4, "big") + frame)
    return client.receive()


@pytest.mark.parametrize("name", NOT_ANSWERED)
def test_what_is_no_request_ends_the_connection_as_in_the_broker(both, name):
    frame = bytes.fromhex(NOT_ANSWERED[name])
    if both.version < "4" and name == "an old version of Fetch":
        frame = bytes.fromhex("0001 0013 00000001 ffff")    # older brokers answer for it
    with Asking(both) as asking:
        assert asking.both(lambda client: exchange(client, frame)) == [CLOSED, CLOSED]


def test_requests_that_are_cut_are_answered_as_the_broker_answers_them(both):
    with Asking(both) as asking:
        for key, version, fields in (
            (ApiKey.METADATA, 8, {"topics": ({"name": "plain"},)}),
            (ApiKey.DESCRIBE_GROUPS, 5, {"groups": ("readers",)}),
            (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, {"topics": ({"topic": "plain", "partitions": ({
                "partition": 0, "leader_epoch": 0,
            },)},)}),
        ):
            frame = pack_request(RequestHeader(key, version, 5, "tests"), fields)[4:]
            for size in some(range(len(frame)), 6, str(key)):
                ours, theirs = asking.both(lambda client, cut=frame[:size]: exchange(client, cut))
                assert (ours == CLOSED) == (theirs == CLOSED), (key, size)
            assert asking.both(lambda client, whole=frame: exchange(client, whole)[:4]) == (
                2 * [b"\0\0\0\5"]
            )


def test_unknown_versions_and_names_of_clients_get_what_the_broker_answers(both):
    with Asking(both) as asking:
        ours, theirs = asking.both(
            lambda client: exchange(client, bytes.fromhex("0012 0063 0000002a 0002 6d65 00 02 6d"))
        )
        assert ours[:6] == theirs[:6] == bytes.fromhex("0000002a 0023")
        for name, version in (("", "1"), ("a", ""), ("a b", "1"), ("-", "1"), ("a.b", "1-2")):
            ours, theirs = asking.both(lambda client, name=name, version=version: client.ask(
                ApiKey.API_VERSIONS, 3,
                client_software_name=name, client_software_version=version,
            ))
            assert ours["error_code"] == theirs["error_code"]
            assert bool(ours["api_keys"]) == bool(theirs["api_keys"])
            levels = [
                sorted(repr(feature) for feature in each["finalized_features"]
                       if feature["name"] != GROUPS_HERE)
                for each in (ours, theirs)
            ]
            assert levels[0] == levels[1]
            # The broker goes on to write metadata.
            assert ours["finalized_features_epoch"] <= theirs["finalized_features_epoch"]


#: Parts of the answers of KafkaAdmin.java that differ on purpose.
OPERATIONS = ("cluster.operations", "partitions.operations")
#: What user interfaces do without if it is not offered.
NOT_OFFERED = {"quorum": "UnsupportedVersionException", "quotas": "UnsupportedVersionException"}
#: Newer brokers have other configurations.
OF_VERSIONS = ("configs.names",)


def parts(line):
    """Return the results by name."""
    return dict(each.split("=", 1) for each in line.split("\t"))


def test_java_administrators_see_what_the_broker_shows_them(both):
    ours, theirs = map(parts, kafka_classes.ask(
        both.version, [(both.ours,), (both.theirs,)], program="KafkaAdmin"
    ))
    assert ours.keys() == theirs.keys()
    for name, answer in NOT_OFFERED.items():
        assert ours.pop(name) == answer
        assert theirs.pop(name) != answer
    for name in OPERATIONS:
        mine, of_broker = (set(each.pop(name).strip("[]").split(", ")) for each in (ours, theirs))
        assert mine < of_broker
    if both.version < "4":
        for name in OF_VERSIONS:
            del ours[name], theirs[name]
    for each in (ours, theirs):
        features = each.pop("features").strip("{}").split(", ")
        each["levels"] = {word for word in features if word.startswith("metadata.version=")}
    assert ours == theirs
    assert ours["acls"] == "SecurityDisabledException"
    assert len(ours) > 30


#: Requests whose answers depend on who is a member.
OF_MEMBERS = (
    ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP,
    ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.API_VERSIONS,
)


@pytest.fixture
def recorded(both):
    """A server of the same directory with groups of its own, whose requests are recorded."""
    listen = f"127.0.0.1:{free_ports(1)[0]}"
    with (
        RecordingProxy() as proxy,
        serve(both.logs, rules=both.version, listen=listen, advertise=proxy.address),
    ):
        proxy.forward_to(listen)
        yield proxy


def read_by_confluent(servers):
    """Let librdkafka read as a member of a group."""
    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": "confluent", "enable.partition.eof": True,
        "auto.offset.reset": "earliest", "isolation.level": "read_committed",
    })
    try:
        consumer.list_topics(timeout=20)
        consumer.subscribe(["plain", "txn"])
        ended = set()
        while len(ended) < 5:
            message = consumer.poll(20)
            assert message is not None
            if message.error():
                ended.add((message.topic(), message.partition()))
        consumer.commit(asynchronous=False)
        consumer.offsets_for_times([ConfluentPartition("plain", 0, TIMES[30])], 20)
    finally:
        consumer.close()


def read_by_kafka_python(servers):
    """Let kafka-python find offsets and read."""
    consumer = KafkaConsumer(
        bootstrap_servers=servers, group_id=None, isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    try:
        assert {"plain", "txn", "deleted"} <= consumer.topics()
        places = [PythonPartition("deleted", 0), PythonPartition("txn", 1)]
        consumer.assign(places)
        consumer.offsets_for_times(dict.fromkeys(places, TIMES[10]))
        ends = consumer.end_offsets(places)
        assert consumer.beginning_offsets(places)[places[0]] == 11
        while any(consumer.position(each) < end for each, end in ends.items()):
            consumer.poll(timeout_ms=200)
    finally:
        consumer.close()


def test_the_requests_of_clients_are_answered_as_the_broker_answers_them(both, recorded):
    read_by_confluent(recorded.address)
    read_by_kafka_python(recorded.address)
    asked = [
        ("read", "txn", "read_committed"), ("read", "plain", "read_uncommitted"),
        ("times", "plain", f"{TIMES[3]},{TIMES[30] + 1},{TIMES[-1] + 1}"),
    ]
    answers = kafka_classes.ask(
        both.version,
        [
            (what, server, *more)
            for server in (recorded.address, both.theirs) for what, *more in asked
        ],
        program="KafkaConsumers",
    )
    assert answers[: len(asked)] == answers[len(asked) :]
    replayed = {}
    for header, fields in recorded.requests:
        if header.api_key not in OF_MEMBERS:
            if header.api_key == ApiKey.FETCH:
                fields |= {"max_wait_ms": 0}
            replayed[header.api_key, header.version, repr(fields)] = header, fields
    assert len({key for key, *_ in replayed}) >= 4
    with Asking(both) as asking:
        versions = asking.versions()    # a client may know newer ones than the broker
        wrong = [
            (header, fields, *each)
            for header, fields in replayed.values() if header.version in versions[header.api_key]
            for each in asking.differences(header.api_key, header.version, fields)
        ]
    assert not wrong, "\n".join(map(str, wrong[:10]))
