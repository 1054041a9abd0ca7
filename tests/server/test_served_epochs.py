"""Leader epochs of every kind of directory, also with a lost checkpoint: all answers agree."""

from __future__ import annotations

import contextlib
import json
import random
import uuid
from itertools import product

import pytest
from confluent_kafka import Consumer, TopicPartition
from models import kafka_classes
from models.protocol_client import ProtocolClient, batches
from models.seed import SEED, some

from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.apis import ApiKey
from kafkastore.formats.state.file_names import parse_partition_directory
from kafkastore.server import serve

CHECKPOINT = "leader-epoch-checkpoint"
#: What became of the checkpoint.
STATES = {
    "as it was": None,
    "missing": lambda path: path.unlink(),
    "corrupt": lambda path: path.write_text("no checkpoint"),
    "empty": lambda path: path.write_text("0\n0\n"),
    "of an earlier moment": lambda path: path.write_text(
        "0\n1\n" + path.read_text().splitlines()[2] + "\n"
    ) if len(path.read_text().splitlines()) > 2 else None,
}
CASES = [
    ("0.8.2.2", "codecs"), ("0.9.0.1", "codecs"), ("0.10.0.1", "codecs"),
    ("0.10.2.2", "create-time-out-of-order"), ("0.11.0.3", "leader-epochs"),
    ("2.4.0", "leader-epochs"), ("2.4.0", "old-formats"), ("3.9.1", "leader-epochs"),
    ("4.1.1", "leader-epochs"), ("4.2.2", "leader-epochs"), ("4.3.1", "leader-epochs"),
    ("4.3.1", "delete-records"), ("4.3.1", "transactions"),
]


def copy_in_state(logs, writable_copy, state):
    """Return a copy of a directory with its checkpoints in a state."""
    copy = writable_copy(logs)
    for path in copy.glob(f"*/{CHECKPOINT}"):
        if STATES[state] is not None:
            STATES[state](path)
    return copy


def partitions(logs):
    """Yield the name, number and [(epoch, base offset, last offset)] of batches of partitions."""
    for path in sorted(logs.glob("*-[0-9]*")):
        topic, number = parse_partition_directory(path.name).topic_partition
        found = [
            (int.from_bytes(each.data[12:16], "big", signed=True), each.last_offset)
            for log in sorted(path.glob("*.log")) for each in batches(log.read_bytes())[0]
            if each.data[16] == 2
        ]
        if not topic.startswith("__"):
            yield topic, number, found


def end_of_epoch(client, topic, number, epoch, leader_epoch):
    """Return the row of a response to OffsetForLeaderEpoch."""
    answer = client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, topics=({
        "topic": topic, "partitions": ({
            "partition": number, "current_leader_epoch": leader_epoch, "leader_epoch": epoch,
        },),
    },))
    (row,) = answer["topics"][0]["partitions"]
    assert row["error_code"] == ErrorCode.NONE
    return row["leader_epoch"], row["end_offset"]


def leader_epochs(client):
    """Return the leader epochs that a client has after the errors for older ones."""
    for (topic, number), epoch in described_epochs(client).items():
        answer = client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, topics=({
            "topic": topic, "partitions": ({
                "partition": number, "current_leader_epoch": epoch, "leader_epoch": epoch,
            },),
        },))
        error = answer["topics"][0]["partitions"][0]["error_code"]
        assert error in (ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH)
    return described_epochs(client)


def described_epochs(client):
    """Return the leader epochs in the metadata, by topic and partition."""
    answer = client.ask(ApiKey.METADATA, 9, topics=None)
    return {
        (topic["name"], row["partition_index"]): row["leader_epoch"]
        for topic in answer["topics"] for row in topic["partitions"]
    }


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(("version", "name"), some(CASES, 4, __name__))
def test_no_batch_is_of_an_epoch_that_the_leader_does_not_know(
    golden, writable_copy, version, name, state
):
    logs = copy_in_state(golden(version, name, "answers").logs, writable_copy, state)
    with serve(logs) as served, ProtocolClient(served.bootstrap_servers) as client:
        newest = leader_epochs(client)
        for topic, number, found in partitions(logs):
            leader_epoch = newest[topic, number]
            log = served.catalog.log(topic, number).log
            assert leader_epoch >= max((epoch for epoch, _ in found), default=0)
            assert end_of_epoch(client, topic, number, leader_epoch, leader_epoch) == (
                leader_epoch, log.log_end_offset
            )
            last = {}
            for epoch, last_offset in found:
                last[epoch] = max(last.get(epoch, 0), last_offset)
            for epoch, last_offset in last.items():
                if epoch < 0 or last_offset < log.log_start_offset:
                    continue
                answered = end_of_epoch(client, topic, number, epoch, leader_epoch)
                if epoch < leader_epoch:
                    assert answered == (epoch, last_offset + 1)
            for row in client.fetch(11, {(topic, number): log.log_start_offset}).values():
                assert row["error_code"] == ErrorCode.NONE
            answer = client.ask(ApiKey.LIST_OFFSETS, 7, topics=({
                "name": topic,
                "partitions": [{"partition_index": number, "timestamp": -2}],
            },))
            (row,) = answer["topics"][0]["partitions"]
            assert row["error_code"] == ErrorCode.NONE
            assert row["leader_epoch"] <= leader_epoch


def resumptions(logs, served):
    """Yield (topic, partition, offset, epoch, offsets from there on) in the middle of logs."""
    with ProtocolClient(served.bootstrap_servers) as client:
        newest = leader_epochs(client)
    for topic, number, found in partitions(logs):
        log = served.catalog.log(topic, number).log
        offsets = [each.offset for each in log.records()]
        for epoch, last_offset in found:
            if log.log_start_offset <= last_offset:
                offset = last_offset + 1
                rest = [each for each in offsets if each >= offset]
                for committed in {epoch, newest[topic, number], newest[topic, number] + 7}:
                    if committed >= epoch:
                        yield topic, number, offset, committed, rest
        if not found and offsets:
            rest = offsets[len(offsets) // 2 :]
            for committed in (-1, 0, 5):
                yield topic, number, rest[0], committed, rest


def resume_with_confluent(servers, topic, number, offset, epoch):
    """Let librdkafka go on from an offset that it committed with an epoch."""
    config = {
        "bootstrap.servers": servers, "group.id": str(uuid.uuid4()),
        "auto.offset.reset": "error", "enable.auto.commit": False, "enable.partition.eof": True,
        "isolation.level": "read_uncommitted",
    }
    known = {} if epoch < 0 else {"leader_epoch": epoch}
    place = TopicPartition(topic, number, offset, **known)
    consumer = Consumer(config)
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()
    consumer = Consumer(config)
    try:
        consumer.assign([TopicPartition(topic, number)])
        found = []
        while True:
            message = consumer.poll(20)
            assert message is not None
            if message.error():
                assert message.error().name() == "_PARTITION_EOF"
                return found
            found.append(message.offset())
    finally:
        consumer.close()


@pytest.mark.kafka
def test_consumers_go_on_from_offsets_that_were_committed_with_an_epoch(
    require_broker, golden, writable_copy
):
    require_broker("4.3.1")
    asked = []
    with contextlib.ExitStack() as stack:
        for case, state in some(list(product(CASES, STATES)), 3, "resume"):
            logs = copy_in_state(golden(*case, "answers").logs, writable_copy, state)
            served = stack.enter_context(serve(logs))
            # One of each also in a full run: a directory has hundreds.
            chance = random.Random(f"{SEED} {case} {state}")
            each = chance.choice(list(resumptions(logs, served)))
            asked.append((case, state, served.bootstrap_servers, *each))
        answers = kafka_classes.ask(
            "4.3.1",
            [(servers, *each[:2], uuid.uuid4(), *each[2:4]) for _, _, servers, *each in asked],
            program="KafkaResuming",
        )
        for (*place, rest), answer in zip(asked, answers, strict=True):
            assert json.loads(answer) == rest, place
            assert resume_with_confluent(*place[2:]) == rest, place
