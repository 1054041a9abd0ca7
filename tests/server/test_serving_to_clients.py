"""Directories served to the clients that people use, which read exactly what a broker gave them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import uuid
import warnings

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import UnsupportedCodecError
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from models import kafka_classes
from models.seed import some

from kafkastore.formats.state.file_names import parse_partition_directory
from kafkastore.server import serve
from kafkastore.server.groups.consumer_group import GROUP_CONFIG

with warnings.catch_warnings():
    # It reads its package's files by a deprecated way of Python 3.11.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka import TopicPartition as PythonPartition

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka"),
]

CASES = [
    ("0.8.2.2", "codecs"), ("0.8.2.2", "compacted"), ("0.10.2.2", "codecs"),
    ("0.10.2.2", "create-time-out-of-order"), ("2.4.0", "old-formats"), ("2.4.0", "transactions"),
    ("3.9.1", "headers-and-nulls"), ("3.9.1", "leader-epochs"), ("4.1.1", "compacted"),
    ("4.1.1", "delete-records"), ("4.3.1", "codecs"), ("4.3.1", "transactions"),
]
#: LZ4 of version 0 has a wrong checksum, which aiokafka does not read from any server.
WITH_OLD_LZ4 = {("0.8.2.2", "codecs"), ("2.4.0", "old-formats")}
JAVA = ["2.4.0", "3.9.1", "4.1.1", "4.3.1"]
LARGEST_SHOWN = 4096
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


def topics_of(case):
    """Return {topic: {partition: answers}} of ordinary topics."""
    found = {}
    for name, row in case.answers["partitions"].items():
        topic, number = parse_partition_directory(name).topic_partition
        if "records" in row and not topic.startswith("__"):
            found.setdefault(topic, {})[number] = row
    return found


def expected(partitions, isolation, fields=4):
    """Return the (partition, offset, timestamp, key, value...) that a consumer gets."""
    return sorted(
        (number, *[record[0], record[1], record[3], record[4]][:fields])
        for number, row in partitions.items()
        for committed in [set(row.get("committed_offsets", [])) or None]
        for record in row["records"]
        if isolation == UNCOMMITTED or committed is None or record[0] in committed
    )


def timed(timestamp):
    """Return the time of a message; clients have different words for none."""
    return -1 if timestamp is None else timestamp


def shown(data):
    """Return bytes as the answers have them."""
    if data is None:
        return None
    if len(data) > LARGEST_SHOWN:
        return f"sha256:{hashlib.sha256(data).hexdigest()}:{len(data)}"
    return base64.b64encode(data).decode()


def read_by_confluent(servers, topic, partitions, isolation):
    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": str(uuid.uuid4()), "isolation.level": isolation,
        "auto.offset.reset": "earliest", "enable.auto.commit": False, "enable.partition.eof": True,
        "max.partition.fetch.bytes": 2000,
    })
    try:
        consumer.assign([ConfluentPartition(topic, number, 0) for number in partitions])
        found, ended = [], set()
        while ended != set(partitions):
            message = consumer.poll(20)
            assert message is not None
            if message.error():
                ended.add(message.partition())
            else:
                kind, timestamp = message.timestamp()
                found.append((
                    message.partition(), message.offset(),
                    -1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
                    shown(message.key()), shown(message.value()),
                ))
        return found
    finally:
        consumer.close()


def read_by_kafka_python(servers, topic, partitions, isolation):
    consumer = KafkaConsumer(
        bootstrap_servers=servers, isolation_level=isolation, auto_offset_reset="earliest",
        group_id=None, enable_auto_commit=False, max_partition_fetch_bytes=2000,
    )
    try:
        assigned = [PythonPartition(topic, number) for number in partitions]
        consumer.assign(assigned)
        consumer.seek_to_beginning(*assigned)
        ends = consumer.end_offsets(assigned)
        found = []
        while any(consumer.position(each) < end for each, end in ends.items()):
            for records in consumer.poll(timeout_ms=200).values():
                found += [
                    (each.partition, each.offset, timed(each.timestamp), shown(each.key),
                     shown(each.value))
                    for each in records
                ]
        return found
    finally:
        consumer.close()


def read_by_aiokafka(servers, topic, partitions, isolation):
    async def read():
        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers, isolation_level=isolation, enable_auto_commit=False,
            auto_offset_reset="earliest", max_partition_fetch_bytes=2000,
        )
        await consumer.start()
        try:
            assigned = [TopicPartition(topic, number) for number in partitions]
            consumer.assign(assigned)
            await consumer.seek_to_beginning(*assigned)
            ends = await consumer.end_offsets(assigned)
            found = []
            while any([await consumer.position(each) < end for each, end in ends.items()]):
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found.extend(
                        (each.partition, each.offset, timed(each.timestamp), shown(each.key),
                         shown(each.value))
                        for each in records
                    )
            return found
        finally:
            await consumer.stop()

    return asyncio.run(read())


CLIENTS = {
    "confluent-kafka": read_by_confluent,
    "kafka-python": read_by_kafka_python,
    "aiokafka": read_by_aiokafka,
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("version", "name"), some(CASES, 3, __name__))
def test_clients_read_what_a_broker_gave_them(golden, version, name, client):
    case = golden(version, name, "answers")
    with serve(case.logs) as served:
        for topic, partitions in topics_of(case).items():
            for isolation in (UNCOMMITTED, COMMITTED):
                if client == "aiokafka" and (version, name) in WITH_OLD_LZ4:
                    with pytest.raises(UnsupportedCodecError):
                        read_by_aiokafka(
                            served.bootstrap_servers, topic, list(partitions), isolation
                        )
                    continue
                found = CLIENTS[client](
                    served.bootstrap_servers, topic, list(partitions), isolation
                )
                wanted = expected(partitions, isolation)
                if client == "confluent-kafka":    # to it, time 0 is none
                    wanted = [(*row[:2], row[2] or -1, *row[3:]) for row in wanted]
                assert sorted(found, key=lambda each: each[:2]) == wanted, (topic, isolation)


def java_records(answer):
    """Return the rows of a `read` answer, as the answers file has them."""
    found = []
    for text in answer.split():
        number, offset, timestamp, kind, key, value, headers = text.split(",")
        data = [
            None if each == "-" else shown(base64.b64decode(each)) for each in (key, value)
        ]
        names = [each.split(":") for each in headers.split(";") if each]
        found.append((
            int(number), int(offset), int(timestamp), kind, *data,
            [[base64.b64decode(name).decode(), None if value == "-" else value]
             for name, value in names],
        ))
    return sorted(found, key=lambda each: each[:2])


@pytest.mark.parametrize("java", some(JAVA, 2, __name__))
def test_java_consumers_read_what_a_broker_gave_them(require_broker, golden, java):
    require_broker(java)
    for version, name in some(CASES, 4, java):
        case = golden(version, name, "answers")
        topics = topics_of(case)
        with serve(case.logs) as served:
            asked = [
                (topic, isolation) for topic in topics for isolation in (UNCOMMITTED, COMMITTED)
            ]
            answers = kafka_classes.ask(
                java, [("read", served.bootstrap_servers, *each) for each in asked],
                program="KafkaConsumers",
            )
        for (topic, isolation), answer in zip(asked, answers, strict=True):
            wanted = [
                (number, *record[:6])
                for number, row in sorted(topics[topic].items())
                for record in row["records"]
                if isolation == UNCOMMITTED or not row.get("committed_offsets")
                or record[0] in row["committed_offsets"]
            ]
            assert java_records(answer) == wanted, (version, name, topic, isolation)


GROUPS = [(java, "classic") for java in JAVA] + [
    (java, how) for java in ("4.1.1", "4.3.1") for how in ("consumer", "pattern")
]


@pytest.mark.parametrize(("java", "how"), some(GROUPS, 3, "groups"))
def test_java_consumers_form_groups_and_find_times(
    require_broker, golden, java, how, monkeypatch
):
    require_broker(java)
    monkeypatch.setattr(GROUP_CONFIG, "heartbeat_interval_ms", 200)
    case = golden("4.1.1", "create-time-out-of-order", "answers")
    ((topic, partitions),) = topics_of(case).items()
    times = [0, *sorted({each[1] for row in partitions.values() for each in row["records"]})[::40]]
    with serve(case.logs) as served:
        by_time, groups = kafka_classes.ask(
            java,
            [
                ("times", served.bootstrap_servers, topic, ",".join(map(str, times))),
                ("groups", served.bootstrap_servers, topic, "readers", how),
            ],
            program="KafkaConsumers",
        )
    wanted = [
        next((f"{each[0]}@{each[1]}" for each in row["records"] if each[1] >= time), "-")
        for time in times for _, row in sorted(partitions.items())
    ]
    assert by_time.split() == wanted
    first, second, alone, committed, read = groups.split()
    numbers = sorted(map(str, partitions))
    assert sorted(first.split(",") + second.split(",")) == numbers
    assert alone.split(",") == numbers
    ends = [partitions[int(each)]["log_end_offset"] for each in numbers]
    assert committed == ",".join(f"{end}/{end}" for end in ends)
    assert read == ",".join(f"{each}:{len(partitions[int(each)]['records'])}" for each in numbers)


def confluent_member(servers):
    return Consumer({
        "bootstrap.servers": servers, "group.id": "readers", "group.protocol": "consumer",
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
    })


def read_with(consumers, seen, is_enough):
    """Poll all consumers in turn; note the offsets of each partition."""
    while not is_enough():
        for consumer in consumers:
            message = consumer.poll(0.05)
            if message is not None:
                assert message.error() is None
                seen.setdefault(message.partition(), set()).add(message.offset())


@pytest.mark.parametrize("as_pattern", [False, True], ids=["by name", "by pattern"])
def test_librdkafka_consumers_form_groups_of_the_new_protocol(golden, as_pattern, monkeypatch):
    monkeypatch.setattr(GROUP_CONFIG, "heartbeat_interval_ms", 200)
    case = golden("4.1.1", "create-time-out-of-order", "answers")
    ((topic, partitions),) = topics_of(case).items()
    subscription = [f"^{topic[:2]}.*" if as_pattern else topic]
    wanted = {
        number: {record[0] for record in row["records"]} for number, row in partitions.items()
        if row["records"]
    }
    seen = {}
    with serve(case.logs) as served:
        members = [confluent_member(served.bootstrap_servers) for _ in range(2)]
        for each in members:
            each.subscribe(subscription)
        read_with(members, seen, lambda: all(each.assignment() for each in members))
        first, second = members
        assigned = [{each.partition for each in member.assignment()} for member in members]
        assert not assigned[0] & assigned[1]
        first.close()
        read_with([second], seen, lambda: (
            len(second.assignment()) == len(partitions) and seen == wanted
        ))
        second.commit(asynchronous=False)
        second.close()
        third = confluent_member(served.bootstrap_servers)
        third.subscribe(subscription)
        again = {}
        read_with([third], again, lambda: len(third.assignment()) == len(partitions))
        assert {each.partition for each in third.assignment()} == set(partitions)
        committed = third.committed(third.assignment(), 20)
        third.close()
    assert again == {}
    assert {each.partition: each.offset for each in committed} == {
        number: row["log_end_offset"] for number, row in partitions.items()
    }
