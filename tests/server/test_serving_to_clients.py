"""Directories served to the clients that people use, which read exactly what a broker gave them."""

from __future__ import annotations

import asyncio
import gc
import ssl
import warnings
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaConnectionError, UnsupportedCodecError
from confluent_kafka import Consumer
from models.confluent_reader import read_by_confluent
from models.seed import some
from models.served_records import (
    CASES,
    COMMITTED,
    UNCOMMITTED,
    WITH_OLD_LZ4,
    expected,
    named,
    shown,
    topics_of,
)

from kafkastore.server import serve
from kafkastore.server.authentication import MECHANISMS
from kafkastore.server.groups.consumer_group import GROUP_CONFIG

with warnings.catch_warnings():
    # It reads its package's files by a deprecated way of Python 3.11.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka import TopicPartition as PythonPartition
    from kafka.errors import KafkaTimeoutError

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka"),
]

CERTIFICATE = Path(__file__).with_name("certificate.pem")


def timed(timestamp):
    """Return the time of a message; clients have different words for none."""
    return -1 if timestamp is None else timestamp


def read_by_kafka_python(servers, topic, partitions, isolation):
    consumer = KafkaConsumer(
        bootstrap_servers=servers, isolation_level=isolation, auto_offset_reset="earliest",
        group_id=None, enable_auto_commit=False, max_partition_fetch_bytes=2000,
        fetch_max_wait_ms=50,
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
                     shown(each.value), named(each.headers))
                    for each in records
                ]
        return found
    finally:
        consumer.close()


def read_by_aiokafka(servers, topic, partitions, isolation):
    async def read():
        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers, isolation_level=isolation, enable_auto_commit=False,
            auto_offset_reset="earliest", max_partition_fetch_bytes=2000, fetch_max_wait_ms=50,
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
                         shown(each.value), named(each.headers))
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
                wanted = [(*each[:3], *each[4:]) for each in expected(partitions, isolation)]
                if client == "confluent-kafka":    # to it, time 0 is none
                    wanted = [(*row[:2], row[2] or -1, *row[3:]) for row in wanted]
                assert sorted(found, key=lambda each: each[:2]) == wanted, (topic, isolation)


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


def positions_of(consumer):
    """Return where a consumer will read on, by partition."""
    return {each.partition: each.offset for each in consumer.position(consumer.assignment())}


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
    ends = {number: row["log_end_offset"] for number, row in partitions.items()}
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
        read_with([second], seen, lambda: positions_of(second) == ends)
        assert seen == wanted
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
    assert {each.partition: each.offset for each in committed} == ends


# Encrypted, and with a password


@pytest.fixture(scope="module")
def secured(golden, tmp_path_factory):
    """A server with TLS and a user, and the number of records of a partition."""
    case = golden("4.3.1", "codecs", "answers")
    users = tmp_path_factory.mktemp("secured") / "users"
    users.write_text("me:secret\n")
    topic, partitions = next(iter(topics_of(case).items()))
    number = min(partitions)
    with serve(
        case.logs, listen="localhost:0", users=users,
        tls=(CERTIFICATE, CERTIFICATE.with_name("key.pem")),
    ) as served:
        yield served.bootstrap_servers, topic, number, partitions[number]["records"][0][0]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("password", ["secret", "wrong"])
def test_kafka_python_reads_by_tls_with_the_password_only(secured, mechanism, password):
    servers, topic, number, first = secured
    settings = {
        "bootstrap_servers": servers, "group_id": None, "auto_offset_reset": "earliest",
        "security_protocol": "SASL_SSL", "ssl_cafile": str(CERTIFICATE),
        "sasl_mechanism": mechanism, "sasl_plain_username": "me", "sasl_plain_password": password,
    }
    if password == "wrong":
        with pytest.raises(KafkaTimeoutError):    # it tries again, and logs the error
            KafkaConsumer(**settings, bootstrap_timeout_ms=300)
        return
    consumer = KafkaConsumer(**settings)
    try:
        consumer.assign([PythonPartition(topic, number)])
        assert next(consumer).offset == first
    finally:
        consumer.close()


# After a wrong password, it leaves its socket to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("password", ["secret", "wrong"])
def test_aiokafka_reads_by_tls_with_the_password_only(secured, mechanism, password):
    servers, topic, number, first = secured

    async def read():
        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers, auto_offset_reset="earliest", security_protocol="SASL_SSL",
            ssl_context=ssl.create_default_context(cafile=CERTIFICATE), sasl_mechanism=mechanism,
            sasl_plain_username="me", sasl_plain_password=password,
        )
        try:
            await consumer.start()
            consumer.assign([TopicPartition(topic, number)])
            return (await consumer.getone()).offset
        finally:
            await consumer.stop()

    if password == "wrong":
        with pytest.raises(KafkaConnectionError):
            asyncio.run(read())
        gc.collect()
    else:
        assert asyncio.run(read()) == first
