"""Requests that no client sends, to a real broker and to a described one."""

from collections import Counter
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest
from golden.make.load_into_broker import LoadOptions, broker_on
from models.list_offsets_client import ListOffsetsClient
from models.seed import some

import kafkastore
from kafkastore.errors import UnsupportedFormatError
from kafkastore.formats.requests.list_offsets import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_REPLICA_ID,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafkastore.server import ErrorCode, handle_list_offset_request, sole_broker

pytestmark = pytest.mark.kafka

TOPIC = "requested"
PARTITIONS = 3
FIRST_TIMESTAMP = 1_600_000_000_000
FAR_FUTURE = 4_102_444_800_000
TIMES = (*range(-8, 1), FIRST_TIMESTAMP + 450, FIRST_TIMESTAMP + 10_000_000, FAR_FUTURE)
REPLICAS = (CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID, 1)


def write_logs(root):
    """Write three partitions of several small segments.

    All are in leader epoch 0: brokers ignore epochs that are newer than their cluster.
    """
    with kafkastore.LogDirWriter(root) as log_dir:
        for number in range(PARTITIONS):
            config = kafkastore.LogConfig(segment_bytes=1000, index_interval_bytes=200)
            writer = log_dir.writer(TOPIC, number, config)
            records = [
                SimpleNamespace(
                    timestamp=FIRST_TIMESTAMP + 10 * row + number,
                    key=b"key",
                    value=b"value" * 10,
                    headers=(),
                )
                for row in range(80)
            ]
            writer.append_records(records, batch_bytes=300, leader_epoch=0)
    return [root / f"{TOPIC}-{number}" for number in range(PARTITIONS)]


def topics_of(*rows):
    """Return topics of rows (topic, partition, timestamp, ...); equal adjacent ones are merged."""
    topics = []
    for topic, *what in rows:
        if not topics or topics[-1].name != topic:
            topics.append(ListOffsetsTopic(topic, ()))
        partitions = (*topics[-1].partitions, ListOffsetsPartition(*what))
        topics[-1] = topics[-1]._replace(partitions=partitions)
    return tuple(topics)


def requests(version, leader_epoch):
    """Yield the requests in one version."""
    ways = [
        {"replica_id": replica_id, "isolation_level": level}
        for replica_id, level in product(REPLICAS, (0, 1) if version >= 2 else (0,))
    ]
    counts = (-1, 0, 1, 100) if version == 0 else (1,)
    for way, count in product(ways, counts):
        def row(partition, timestamp, epoch=-1, topic=TOPIC, count=count):
            return topic, partition, timestamp, epoch, count

        for timestamp in TIMES:
            one = row(0, timestamp)
            yield ListOffsetsRequest(topics_of(one, row(1, timestamp)), **way)
            unknown = (row(0, timestamp, topic="nowhere"), row(PARTITIONS, timestamp))
            yield ListOffsetsRequest(topics_of(*unknown, row(2, timestamp)), **way)
            # A partition twice, within a topic's rows and apart; another one once.
            yield ListOffsetsRequest(topics_of(one, row(1, 0), row(0, -2)), **way)
            apart = (one, unknown[0], row(0, -2), unknown[0])
            yield ListOffsetsRequest(topics_of(*apart), **way)
            if version >= 4:
                for epoch in {-1, 0, leader_epoch - 1, leader_epoch, leader_epoch + 1, 99}:
                    yield ListOffsetsRequest(topics_of(row(0, timestamp, epoch)), **way)
        yield ListOffsetsRequest((), **way)
        yield ListOffsetsRequest((ListOffsetsTopic(TOPIC, ()),), **way)


def rows_of(response):
    """Return how often each row is in a response."""
    return Counter(
        (topic.name, partition) for topic in response.topics for partition in topic.partitions
    )


def wait_for_leaders(client, latest):
    """Send requests until every partition has a leader; return the epoch of all."""
    while True:
        rows = list(rows_of(client.exchange(latest, 4)))
        if not any(row.error_code for _, row in rows):
            (epoch,) = {row.leader_epoch for _, row in rows}
            return epoch


def closes_connection(port, request, version):
    """Return whether the broker closes the connection for a request."""
    with ListOffsetsClient(port) as client:
        try:
            client.exchange(request, version)
        except (AssertionError, ConnectionError):
            return True
    return False


@pytest.mark.parametrize("version", some(["2.4.0", "3.9.1", "4.3.1"], 2, __name__))
def test_a_broker_answers_like_the_described_one(require_broker, tmp_path, version):
    require_broker(version)
    before = tmp_path / "before"
    options = LoadOptions(topic_config={"segment.index.bytes": 1048576})
    everybody = topics_of(*((TOPIC, number, LATEST_TIMESTAMP) for number in range(PARTITIONS)))
    latest = ListOffsetsRequest(everybody)
    exchanges = []
    with broker_on(write_logs(before), version, tmp_path / "out", options) as context:
        oldest, newest = context.cluster.list_offsets_versions
        port = context.cluster.port
        with ListOffsetsClient(port) as client:
            leader_epoch = wait_for_leaders(client, latest)
            for api_version in range(oldest, newest + 1):
                for request in requests(api_version, leader_epoch):
                    exchanges.append((api_version, request, client.exchange(request, api_version)))
        unspoken = [each for each in range(12) if not oldest <= each <= newest]
        assert all(closes_connection(port, latest, each) for each in unspoken)
        context.stop()
    broker = sole_broker(kafkastore.open(before), version)
    broker = replace(
        broker,
        metadata={
            key: state._replace(leader_epoch=leader_epoch)
            for key, state in broker.metadata.items()
        },
    )
    for api_version, request, theirs in exchanges:
        ours = handle_list_offset_request(broker, request, api_version)
        assert rows_of(ours) == rows_of(theirs), (api_version, request)
        if version == "3.9.1":    # the others order rows by hash
            assert ours == theirs, (api_version, request)
    for each in unspoken:
        with pytest.raises(UnsupportedFormatError):
            handle_list_offset_request(broker, latest, each)
    errors = {row.error_code for *_, response in exchanges for _, row in rows_of(response)}
    expected = {"NONE", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REQUEST"}
    expected |= {"UNKNOWN_LEADER_EPOCH"}
    expected |= {"FENCED_LEADER_EPOCH"} if leader_epoch else set()    # no epoch is older
    expected |= {"UNSUPPORTED_VERSION"} if version != "2.4.0" else set()
    expected |= {"UNKNOWN_SERVER_ERROR"} if oldest == 0 else set()
    assert {ErrorCode(error).name for error in errors} == expected
    assert len(exchanges) > 1000
