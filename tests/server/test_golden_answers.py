"""Every ListOffsets request that a real broker answered, sent to a described broker."""

from dataclasses import replace
from itertools import zip_longest

import pytest
from models.protocol_client import ProtocolClient
from models.seed import some

import kafkastore
from kafkastore.formats.requests.apis import ApiKey
from kafkastore.formats.requests.list_offsets import (
    CONSUMER_REPLICA_ID,
    FIRST_VERSION_WITH_ISOLATION,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    READ_COMMITTED,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    pack_request,
    pack_response,
    parse_request,
    parse_response,
)
from kafkastore.formats.state.file_names import parse_partition_directory
from kafkastore.server import handle_list_offset_request, serve, sole_broker

WITH_TIMES = ["0.10.2.2", "0.11.0.3", "2.4.0", "3.9.1", "4.1.1", "4.2.2", "4.3.1"]


def named(name):
    """Return the TopicPartition of ``topic-partition``."""
    return parse_partition_directory(name).topic_partition


def epoch_in(partition):
    """Return the leader epoch at the time of the requests; the log need not have it."""
    latest = [
        row["leader_epoch"]
        for row in partition.get("list_offsets", [])
        if row["timestamp"] == LATEST_TIMESTAMP and row["leader_epoch"] is not None
    ]
    return latest[0] if latest else 0


def described(case, **fields):
    """Return the broker that answered, described over the directory that it left."""
    broker = sole_broker(kafkastore.open(case.logs), case.answers["kafka"])
    recorded = case.answers["partitions"]
    states = {
        key: state._replace(leader_epoch=epoch_in(recorded.get(str(key), {})), **fields)
        for key, state in broker.metadata.items()
    }
    return replace(broker, metadata=states)


class Exchange:
    """Sends serialized requests to a broker, for one partition or several at a time."""

    def __init__(self, broker, **clock_and_mtimes):
        self.broker, self.clock_and_mtimes = broker, clock_and_mtimes

    def ask(self, rows, version, isolation=0):
        """Return [(TopicPartition, response)] for [(TopicPartition, row of the answers)]."""
        topics = {}
        for (topic, number), row in rows:
            topics.setdefault(topic, []).append(
                ListOffsetsPartition(
                    number,
                    row["timestamp"],
                    row.get("current_leader_epoch", -1),
                    row.get("max_num_offsets", 1),
                )
            )
        request = ListOffsetsRequest(
            tuple(ListOffsetsTopic(name, tuple(rows)) for name, rows in topics.items()),
            isolation_level=isolation,
        )
        read = parse_request(pack_request(request, version), version)
        answered = handle_list_offset_request(
            self.broker, read, version, **self.clock_and_mtimes
        )
        return {
            (topic.name, partition.partition_index): partition
            for topic in parse_response(pack_response(answered, version), version).topics
            for partition in topic.partitions
        }


def expected_response(row):
    """Return a row of the answers in the form of a response."""
    epoch = -1 if row["leader_epoch"] is None else row["leader_epoch"]
    return row["error"], row["result_timestamp"], row["offset"], epoch


def requests_of(partitions, rows_of):
    """Return [[(TopicPartition, row)]]: each partition once in a request, first rows first."""
    columns = [
        [(named(name), row) for row in rows_of(partition)]
        for name, partition in partitions.items()
    ]
    return [[pair for pair in rows if pair is not None] for rows in zip_longest(*columns)]


def lost_since(case, broker, row, topic_partition):
    """Return whether an answer depends on the last batch, removed or damaged since then."""
    log = broker.store[topic_partition]
    recorded_end = case.answers["partitions"][str(topic_partition)]["log_end_offset"]
    match case.name, case.answers_name:
        case "crash-torn", "answers":
            return row["offset"] == recorded_end > log.log_end_offset
        case "crash-bad-crc", "answers":
            # In this state the log has been recovered without the batch.
            end = log.segments[-1].rebuilt_indexes().next_offset
            return row["timestamp"] == MAX_TIMESTAMP and row["offset"] >= end
    return False


def test_every_answer_of_every_broker_is_reproduced(golden_case):
    # A batch was damaged after the broker had answered; what is committed is unknown since.
    is_damaged = (golden_case.name, golden_case.answers_name) == ("crash-bad-crc", "answers")
    partitions = golden_case.answers["partitions"]
    broker = described(golden_case)
    exchange = Exchange(broker)
    kinds = sorted(
        {
            (row["version"], row["isolation"])
            for partition in partitions.values()
            for row in partition.get("list_offsets", [])
        }
    )
    for version, isolation in kinds:
        if isolation == READ_COMMITTED and is_damaged:
            continue

        def of_kind(partition, kind=(version, isolation)):
            rows = partition.get("list_offsets", [])
            return [row for row in rows if (row["version"], row["isolation"]) == kind]

        for rows in requests_of(partitions, of_kind):
            answers = exchange.ask(rows, version, isolation)
            assert len(answers) == len(rows)
            for topic_partition, row in rows:
                if lost_since(golden_case, broker, row, topic_partition):
                    continue
                answer = answers[topic_partition]
                assert answer[1:5] == expected_response(row), (topic_partition, row)


@pytest.mark.golden_cases(versions=["0.*", "2.*", "3.*"])
def test_every_answer_by_modification_times_is_reproduced(golden_case):
    partitions = golden_case.answers["partitions"]
    broker = described(golden_case)
    mtimes = {
        f"{name}/{file}": mtime
        for name, partition in partitions.items()
        for file, mtime in partition.get("mtimes_when_asked_ms", {}).items()
    }
    asked_at_ms = golden_case.answers["asked_at_ms"]
    exchange = Exchange(
        broker, now=None if asked_at_ms is None else asked_at_ms - 1, mtimes=mtimes
    )

    def answered(partition):
        rows = partition.get("list_offsets_v0", [])
        return [row for row in rows if "exception" not in row]

    for rows in requests_of(partitions, answered):
        answers = exchange.ask(rows, 0)
        for topic_partition, row in rows:
            expected = row["offsets"]
            if (golden_case.name, golden_case.answers_name) == ("crash-torn", "answers"):
                end = partitions[str(topic_partition)]["log_end_offset"]
                left = broker.store[topic_partition].log_end_offset
                expected = [left if each == end else each for each in expected]
            answer = answers[topic_partition]
            assert answer.error_code == row["error"], (topic_partition, row)
            assert answer.old_style_offsets == tuple(expected), (topic_partition, row)


@pytest.mark.golden_cases(names="leader-epochs")
def test_every_answer_to_a_client_s_leader_epoch_is_reproduced(golden_case):
    rows = golden_case.answers.get("list_offsets_with_current_leader_epoch", [])
    assert rows or golden_case.version == "0.11.0.3"
    exchange = Exchange(described(golden_case))
    for row in rows:
        ((_, answer),) = exchange.ask([(named("epochs-0"), row)], row["version"]).items()
        assert answer[1:5] == expected_response(row), row


@pytest.mark.golden_cases(
    names=["old-formats", "upgrade"], answers=["answers", "answers-upgraded-2.4.0"]
)
def test_every_answer_for_an_old_message_format_version_is_reproduced(golden_case):
    formats = golden_case.answers.get("list_offsets_when_message_format_version", {})
    assert formats or golden_case.answers["kafka"] not in ("2.4.0", "3.9.1")
    for message_format_version, partitions in formats.items():
        described_so = described(golden_case, message_format_version=message_format_version)
        exchange = Exchange(described_so)
        for name, rows in partitions.items():
            assert any(row["error"] == 43 for row in rows) == (message_format_version == "0.9.0")
            for row in rows:
                ((_, answer),) = exchange.ask([(named(name), row)], row["version"]).items()
                assert answer[1:5] == expected_response(row), (name, row)


def ask_over_a_socket(client, rows, version, isolation):
    """Return {(topic, partition): row of the response} for [(TopicPartition, row)]."""
    topics = {}
    for (topic, number), row in rows:
        topics.setdefault(topic, []).append({
            "partition_index": number, "timestamp": row["timestamp"],
        })
    fields = {"isolation_level": isolation} if version >= FIRST_VERSION_WITH_ISOLATION else {}
    answer = client.ask(
        ApiKey.LIST_OFFSETS, version, replica_id=CONSUMER_REPLICA_ID, **fields,
        topics=[{"name": name, "partitions": asked} for name, asked in topics.items()],
    )
    return {
        (topic["name"], row["partition_index"]): row
        for topic in answer["topics"] for row in topic["partitions"]
    }


@pytest.mark.golden_cases(versions=some(WITH_TIMES, 2, "over a socket"))
def test_every_answer_of_every_broker_is_given_over_a_socket(golden_case):
    is_damaged = (golden_case.name, golden_case.answers_name) == ("crash-bad-crc", "answers")
    broker = described(golden_case)
    partitions = golden_case.answers["partitions"]
    kinds = sorted({
        (row["version"], row["isolation"])
        for partition in partitions.values() for row in partition.get("list_offsets", [])
    })
    chosen = [
        kind for kind in some(kinds, 4, str(golden_case.logs)) if not (is_damaged and kind[1])
    ]
    if not chosen:
        assert is_damaged or not kinds
        return
    with (
        serve(golden_case.logs, rules=golden_case.answers["kafka"]) as served,
        ProtocolClient(served.bootstrap_servers) as client,
    ):
        for version, isolation in chosen:
            def of_kind(partition, kind=(version, isolation)):
                rows = partition.get("list_offsets", [])
                return [row for row in rows if (row["version"], row["isolation"]) == kind]

            for rows in requests_of(partitions, of_kind):
                answers = ask_over_a_socket(client, rows, version, isolation)
                for topic_partition, row in rows:
                    if lost_since(golden_case, broker, row, topic_partition):
                        continue
                    found = answers[topic_partition]
                    epoch = found["leader_epoch"]
                    if row["timestamp"] == LATEST_TIMESTAMP:    # it leaves no trace without records
                        epoch = expected_response(row)[3]
                    assert (
                        found["error_code"], found["timestamp"], found["offset"], epoch
                    ) == expected_response(row), (topic_partition, row)
