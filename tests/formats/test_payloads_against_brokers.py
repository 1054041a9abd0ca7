"""ListOffsets frames that real brokers answer, and the records they write for a group's members."""

import socket
import time

import pytest
from confluent_kafka import Consumer
from golden.make import brokers
from golden.make.case_context import CaseContext, Surroundings
from golden.make.java_client import JavaClients
from models import record_reader
from models.internal_topics import pack_key, pack_value
from models.seed import some

from kafkastore.formats.records.record_batch import RecordBatch
from kafkastore.formats.requests.apis import (
    ApiKey,
    RequestHeader,
    pack_request_header,
    parse_response_header,
)
from kafkastore.formats.requests.list_offsets import (
    FIRST_VERSION_WITH,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    pack_request,
    parse_response,
)
from kafkastore.formats.topics.consumer_offsets import RECORDS

pytestmark = pytest.mark.kafka

COUNT = 10
UNKNOWN_TOPIC_OR_PARTITION = 3
#: Lowest and highest version of ListOffsets; versions of a group's values.
BROKERS = {
    "0.11.0.3": ((0, 2), 1, 1),
    "2.4.0": ((0, 5), 3, 3),
    "3.9.1": ((0, 9), 3, 3),
    "4.3.1": ((1, 11), 4, 3),
}


@pytest.fixture(params=some(list(BROKERS), 2, __name__))
def context(request, require_broker, tmp_path):
    """A running broker of each version with ten records in t-0."""
    require_broker(request.param)
    with JavaClients(brokers.WORK) as clients:
        around = Surroundings("payloads", brokers.WORK, clients)
        made = CaseContext(request.param, "payloads", tmp_path / "out", around)
        try:
            made.start({"group.initial.rebalance.delay.ms": 0})
            made.create_topic("t")
            stamps = [made.first_timestamp + number for number in range(COUNT)]
            made.produce("t", made.batches(stamps))
            yield made
            if made.cluster.broker is not None:
                made.stop()
        finally:
            made.abandon()
            made.remove_run_directory()


def response_to(context, version, request):
    """The broker's response to a request, over a new connection."""
    header = RequestHeader(ApiKey.LIST_OFFSETS, version, 4711, "tests")
    frame = pack_request_header(header) + pack_request(request, version)
    host, port = context.cluster.address.split(":")
    with (
        socket.create_connection((host, int(port)), 15) as connection,
        connection.makefile("rb") as stream,
    ):
        connection.sendall(len(frame).to_bytes(4, "big") + frame)
        data = stream.read(int.from_bytes(stream.read(4), "big"))
    return parse_response(data[parse_response_header(data, header) :], version)


def test_every_version_of_list_offsets_is_answered(context):
    (lowest, highest), *_ = BROKERS[context.version]
    assert context.cluster.list_offsets_versions == (lowest, highest)
    for version in range(lowest, highest + 1):
        times = [context.first_timestamp + 3, context.first_timestamp + COUNT]
        times += [special for special, first in FIRST_VERSION_WITH.items() if first <= version]
        for timestamp in times:
            one = ListOffsetsPartition(0, timestamp)
            topics = (ListOffsetsTopic("t", (one,)), ListOffsetsTopic("unknown", (one,)))
            response = response_to(context, version, ListOffsetsRequest(topics, timeout_ms=5000))
            names = {topic.name: topic.partitions for topic in response.topics}
            assert sorted(names) == ["t", "unknown"]
            ((unknown,), (answer,)) = names["unknown"], names["t"]
            assert unknown.error_code == UNKNOWN_TOPIC_OR_PARTITION
            compare(context, version, timestamp, answer)


def compare(context, version, timestamp, answer):
    """The same as the scripts that make golden data get, which pack and parse by themselves."""
    assert answer.partition_index == 0
    if version == 0:
        error, offsets = context.cluster.wire.list_offsets_v0("t", 0, timestamp, 1)
        assert (answer.error_code, list(answer.old_style_offsets)) == (error, offsets)
        return
    expected = context.cluster.wire.list_offsets("t", 0, timestamp, version=version)
    assert answer.error_code == expected["error"]
    assert answer.offset == expected["offset"]
    assert answer.timestamp == expected["result_timestamp"]
    assert answer.leader_epoch == (-1 if version < 4 else expected["leader_epoch"])
    if timestamp == context.first_timestamp + 3:
        assert answer[1:4] == (0, timestamp, 3)


def test_records_of_a_group_s_member_by_a_broker_are_parsed_and_packed_again(context):
    _, offset_version, group_version = BROKERS[context.version]
    consume(context, "classic-group")
    is_new = context.version == "4.3.1"
    if is_new:
        consume(context, "new-group", {"group.protocol": "consumer"})
    context.stop()
    records = read_records(context)

    commits = [record for record in records if record.name == "OffsetCommit"]
    groups = {"classic-group", "new-group"} if is_new else {"classic-group"}
    assert {tuple(record.key.values()) for record in commits} == {
        (group, "t", 0) for group in groups
    }
    assert {record.version for record in commits} == {offset_version}
    assert {record.value["offset"] for record in commits} == {COUNT}

    classic = [
        record for record in records
        if record.name == "GroupMetadata" and record.key == {"group": "classic-group"}
    ]
    assert {record.version for record in classic} <= {group_version, None}
    values = [record.value for record in classic if record.value is not None]
    stable = next(value for value in values if value["members"])
    (member,) = stable["members"]
    assert (stable["protocol_type"], stable["protocol"]) == ("consumer", "range")
    assert stable["generation"] == 1
    assert stable["leader"] == member["member_id"]
    assert (member["client_id"], member["session_timeout"]) == ("tests", 6000)
    assert member["client_host"] == "/127.0.0.1"
    assert b"\0\1t" in member["subscription"]
    assert b"\0\1t\0\0\0\1\0\0\0\0" in member["assignment"]
    assert values[-1]["members"] == ()
    assert values[-1]["protocol"] is None
    if group_version >= 3:
        assert abs(stable["current_state_timestamp"] / 1000 - time.time()) < 300

    others = [
        record for record in records if record.name not in ("OffsetCommit", "GroupMetadata")
    ]
    assert bool(others) == is_new
    for record in others:
        assert record.name.startswith("ConsumerGroup")
        assert record.key["group_id"] == "new-group"
        assert record.unparsed is None


def consume(context, group, settings=None):
    """Join a group, read everything, commit, leave."""
    consumer = Consumer(
        {
            "bootstrap.servers": context.cluster.address,
            "group.id": group,
            "client.id": "tests",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **(settings or {"session.timeout.ms": 6000}),
        }
    )
    try:
        consumer.subscribe(["t"])
        read, deadline = 0, time.monotonic() + 60
        while read < COUNT and time.monotonic() < deadline:
            message = consumer.poll(1)
            read += message is not None and message.error() is None
        assert read == COUNT
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def read_records(context):
    """Records in offset order; each is packed again into the broker's bytes."""
    records = []
    for path in sorted((context.cluster.logs / "__consumer_offsets-0").glob("*.log")):
        for _, batch in record_reader.split(path.read_bytes())[0]:
            for record in RecordBatch(batch).records():
                parsed = RECORDS.parse_keyed(record.key, record.value)
                assert pack_key(RECORDS, parsed.number, **parsed.key) == record.key
                if parsed.value is not None:
                    again = pack_value(RECORDS, parsed.number, parsed.version, **parsed.value)
                    assert again == record.value
                records.append(parsed)
    return records
