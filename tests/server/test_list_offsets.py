"""Answers of a described broker: Kafka's own test cases, and differences of versions."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kafkastore
from kafkastore.errors import FieldValueError, UnsupportedFormatError
from kafkastore.formats.requests.list_offsets import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_REPLICA_ID,
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    READ_COMMITTED,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    pack_response,
    parse_response,
)
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.server import (
    Broker,
    ErrorCode,
    PartitionState,
    handle_list_offset_request,
    sole_broker,
)
from kafkastore.versions import UnknownVersionError, rules_of

# Epoch 0 from offset 0 at 1500000000000, 2 from 12 at ...100000, 6 from 24 at ...300000 to the end
# at 36; a record every 10 ms.
EPOCHS = TopicPartition("epochs", 0)
FIRST, SECOND, THIRD = 1_500_000_000_000, 1_500_000_100_000, 1_500_000_300_000
END = 36
# An open transaction begins at 127, the log ends at 132.
TXN = TopicPartition("txn", 0)
TXN_STABLE, TXN_END = 127, 132
FOLLOWER = 1
FAR_FUTURE = 4_102_444_800_000
UNKNOWN = (-1, -1, -1)


@pytest.fixture(scope="module")
def epochs(golden):
    return kafkastore.open(golden("2.4.0", "leader-epochs", "answers").logs)


@pytest.fixture(scope="module")
def transactions(golden):
    return kafkastore.open(golden("2.4.0", "transactions", "answers").logs)


def leader_of(store, partition, version="2.4.0", **state):
    """Return broker 0, the leader in epoch 6; broker 1 is a follower, 2 has no replica."""
    known = PartitionState(0, (0, FOLLOWER), 6)._replace(**state)
    return Broker(0, version, store, {partition: known})


def ask_all(broker, *rows, version, **request):
    """Return the response to [(TopicPartition, timestamp or ListOffsetsPartition)]."""
    topics = {}
    for (topic, number), what in rows:
        one = (
            ListOffsetsPartition(number, what)
            if isinstance(what, int)
            else what._replace(partition_index=number)
        )
        topics.setdefault(topic, []).append(one)
    asking = ListOffsetsRequest(
        tuple(ListOffsetsTopic(name, tuple(rows)) for name, rows in topics.items()), **request
    )
    response = handle_list_offset_request(broker, asking, version)
    assert parse_response(pack_response(response, version), version) == response
    return response


def ask(broker, partition, what, *, version=5, **request):
    """Return (error, timestamp, offset, leader epoch) of one partition."""
    response = ask_all(broker, (partition, what), version=version, **request)
    ((answer,),) = [topic.partitions for topic in response.topics]
    return answer[1:5]


def row_in_epoch(epoch, timestamp=0):
    return ListOffsetsPartition(0, timestamp, current_leader_epoch=epoch)


# ListOffsetsRequestTest

ERROR_CODES = [
    # broker's version, broker id, error for a consumer, for a follower, for debugging
    ("2.4.0", 0, "NONE", "NONE", "NONE"),
    ("2.4.0", 1, "NOT_LEADER_OR_FOLLOWER", "NOT_LEADER_OR_FOLLOWER", "NONE"),
    ("2.4.0", 2, "NOT_LEADER_OR_FOLLOWER", "NOT_LEADER_OR_FOLLOWER", "REPLICA_NOT_AVAILABLE"),
    ("4.1.1", 0, "NONE", "NONE", "NONE"),
    ("4.1.1", 1, "NOT_LEADER_OR_FOLLOWER", "NOT_LEADER_OR_FOLLOWER", "NONE"),
    ("4.1.1", 2, "NOT_LEADER_OR_FOLLOWER", "NOT_LEADER_OR_FOLLOWER", "NOT_LEADER_OR_FOLLOWER"),
]


@pytest.mark.parametrize(("version", "broker_id", "consumer", "follower", "debug"), ERROR_CODES)
@pytest.mark.parametrize("timestamp", [0, LATEST_TIMESTAMP, EARLIEST_TIMESTAMP])
def test_error_codes_by_broker_and_replica_id(
    epochs, version, broker_id, consumer, follower, debug, timestamp
):
    broker = replace(leader_of(epochs, EPOCHS, version), broker_id=broker_id)
    for replica_id, error in (
        (CONSUMER_REPLICA_ID, consumer),
        (FOLLOWER, follower),
        (DEBUGGING_REPLICA_ID, debug),
    ):
        answer = ask(broker, EPOCHS, timestamp, replica_id=replica_id)
        assert answer[0] == ErrorCode[error]
        assert error == "NONE" or answer[1:] == UNKNOWN


@pytest.mark.parametrize("replica_id", [CONSUMER_REPLICA_ID, FOLLOWER, DEBUGGING_REPLICA_ID])
@pytest.mark.parametrize("version", ["2.4.0", "3.9.1", "4.1.1"])
def test_an_unknown_topic_is_unknown_for_every_replica_id(epochs, version, replica_id):
    broker = leader_of(epochs, EPOCHS, version)
    for unknown in (TopicPartition("nowhere", 0), TopicPartition("epochs", 7)):
        answer = ask(broker, unknown, 0, replica_id=replica_id)
        assert answer == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *UNKNOWN)


@pytest.mark.parametrize("broker_id", [0, 1])
@pytest.mark.parametrize("version", ["2.4.0", "3.9.1", "4.1.1"])
def test_current_leader_epochs_are_validated(epochs, version, broker_id):
    broker = replace(leader_of(epochs, EPOCHS, version), broker_id=broker_id)
    accepted = ErrorCode.NONE if broker_id == 0 else ErrorCode.NOT_LEADER_OR_FOLLOWER
    for epoch, error in (
        (-1, accepted),
        (5, ErrorCode.FENCED_LEADER_EPOCH),
        (6, accepted),
        (7, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        assert ask(broker, EPOCHS, row_in_epoch(epoch))[0] == error
        # Versions before 4 have no such field, and the broker does not check it.
        assert ask(broker, EPOCHS, 0, version=3)[0] == accepted


@pytest.mark.parametrize("version", ["2.2", "2.4.0", "3.9.1", "4.1.1"])
def test_a_response_includes_leader_epochs(epochs, version):
    broker = leader_of(epochs, EPOCHS, version, leader_epoch=9)
    assert ask(broker, EPOCHS, 0) == (0, FIRST, 0, 0)
    assert ask(broker, EPOCHS, SECOND) == (0, SECOND, 12, 2)
    assert ask(broker, EPOCHS, EARLIEST_TIMESTAMP) == (0, -1, 0, 0)
    assert ask(broker, EPOCHS, LATEST_TIMESTAMP) == (0, -1, END, 9)


def test_brokers_of_2_1_leave_the_leader_epoch_out(epochs):
    broker = leader_of(epochs, EPOCHS, "2.1.1")
    assert ask(broker, EPOCHS, 0, version=4) == (0, FIRST, 0, -1)
    assert ask(broker, EPOCHS, LATEST_TIMESTAMP, version=4) == (0, -1, END, -1)


@pytest.mark.parametrize("kafka", ["2.4.0", "3.0.2", "3.5.1", "3.9.1", "4.1.1", "4.3.1"])
def test_offsets_and_epochs_in_every_version_of_the_request(epochs, kafka):
    broker = leader_of(epochs, EPOCHS, kafka)
    oldest, newest = rules_of(kafka).list_offsets_versions
    assert newest >= 5
    for version in range(max(oldest, 1), newest + 1):
        def epoch(number, has_epochs=version >= 4):
            return number if has_epochs else -1

        def answer(timestamp, version=version):
            return ask(broker, EPOCHS, timestamp, version=version)

        assert answer(0) == (0, FIRST, 0, epoch(0))
        assert answer(EARLIEST_TIMESTAMP) == (0, -1, 0, epoch(0))
        assert answer(LATEST_TIMESTAMP) == (0, -1, END, epoch(6))
        assert answer(FAR_FUTURE) == (0, *UNKNOWN)
        if kafka in ("3.9.1", "4.1.1", "4.2", "4.3.1"):
            unsupported = (ErrorCode.UNSUPPORTED_VERSION, *UNKNOWN)
            largest = (0, THIRD + 110, END - 1, epoch(6))
            assert answer(MAX_TIMESTAMP) == (largest if version >= 7 else unsupported)
            assert answer(EARLIEST_LOCAL_TIMESTAMP) == (
                (0, -1, 0, epoch(0)) if version >= 8 else unsupported
            )
            nothing = (0, *UNKNOWN)
            assert answer(LATEST_TIERED_TIMESTAMP) == (nothing if version >= 9 else unsupported)
            assert answer(-6) == (nothing if version >= 11 else unsupported)
            assert answer(-7) == unsupported
    if oldest == 0:
        response = ask_all(broker, (EPOCHS, 0), version=0)
        assert response.topics[0].partitions[0].old_style_offsets == ()


# GetOffsetShellTest


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [
        (LATEST_TIMESTAMP, END),
        (EARLIEST_TIMESTAMP, 0),
        (MAX_TIMESTAMP, END - 1),
        (FIRST + 41, 5),
        (SECOND + 111, 24),
        (THIRD + 110, END - 1),
        (THIRD + 111, -1),
    ],
)
def test_offsets_that_the_shell_tool_prints(epochs, timestamp, offset):
    assert ask(leader_of(epochs, EPOCHS, "3.9.1"), EPOCHS, timestamp, version=9)[2] == offset


# Visible offsets


@pytest.mark.parametrize("kafka", ["0.11.0.3", "2.4.0", "4.1.1"])
def test_consumers_see_up_to_the_high_watermark_or_last_stable_offset(transactions, kafka):
    broker = leader_of(transactions, TXN, kafka)
    for level, end in ((0, TXN_END), (READ_COMMITTED, TXN_STABLE)):
        assert ask(broker, TXN, -1, version=2, isolation_level=level)[2] == end
    lagging = leader_of(transactions, TXN, kafka, high_watermark=60)
    # A transaction begins at 51, and its marker is above the high watermark.
    for level, end in ((0, 60), (READ_COMMITTED, 51)):
        assert ask(lagging, TXN, -1, version=2, isolation_level=level)[2] == end


def test_followers_and_debugging_see_the_complete_log(transactions):
    broker = leader_of(transactions, TXN, high_watermark=60)
    for replica_id in (FOLLOWER, DEBUGGING_REPLICA_ID):
        for level in (0, READ_COMMITTED):
            options = {"replica_id": replica_id, "isolation_level": level}
            assert ask(broker, TXN, LATEST_TIMESTAMP, **options)[2] == TXN_END


def test_a_time_after_the_visible_records_is_not_found(epochs):
    broker = leader_of(epochs, EPOCHS, high_watermark=20)
    for offset in range(12, 24):
        timestamp = SECOND + 10 * (offset - 12)
        seen = (0, timestamp, offset, 2)
        assert ask(broker, EPOCHS, timestamp) == (seen if offset < 20 else (0, *UNKNOWN))
        assert ask(broker, EPOCHS, timestamp, replica_id=DEBUGGING_REPLICA_ID) == seen


@pytest.mark.parametrize(
    ("kafka", "offset"),
    [("0.10.1", 20), ("0.10.2.2", 20), ("0.11.0.0", 20), ("0.11.0.1", -1), ("1.0", -1)],
)
def test_the_high_watermark_itself_was_found_before_0_11_0_1(epochs, kafka, offset):
    broker = leader_of(epochs, EPOCHS, kafka, high_watermark=20)
    assert ask(broker, EPOCHS, SECOND + 80, version=1)[2] == offset
    assert ask(broker, EPOCHS, SECOND + 90, version=1)[2] == -1


# After an election (KIP-207)


@pytest.mark.parametrize("kafka", ["2.2", "2.4.0", "3.9.1", "4.1.1"])
@pytest.mark.parametrize("version", [1, 4, 5])
def test_a_new_leader_reports_no_end_before_its_high_watermark_reaches_the_epoch(
    epochs, kafka, version
):
    broker = leader_of(epochs, EPOCHS, kafka, leader_epoch_start_offset=24, high_watermark=20)
    waits = ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE

    def answer(timestamp, **request):
        return ask(broker, EPOCHS, timestamp, version=version, **request)

    assert answer(LATEST_TIMESTAMP) == (waits, *UNKNOWN)
    assert answer(EARLIEST_TIMESTAMP)[::2] == (0, 0)
    assert answer(SECOND + 70)[::2] == (0, 19)
    assert answer(SECOND + 80) == (waits, *UNKNOWN)
    assert answer(FAR_FUTURE) == (waits, *UNKNOWN)
    for replica_id in (FOLLOWER, DEBUGGING_REPLICA_ID):
        assert answer(LATEST_TIMESTAMP, replica_id=replica_id)[::2] == (0, END)
        assert answer(FAR_FUTURE, replica_id=replica_id)[::2] == (0, -1)


@pytest.mark.parametrize("high_watermark", [24, 30, "log-end"])
def test_a_leader_whose_high_watermark_has_reached_the_epoch_answers(epochs, high_watermark):
    there = {"leader_epoch_start_offset": 24, "high_watermark": high_watermark}
    end = END if high_watermark == "log-end" else high_watermark
    broker = leader_of(epochs, EPOCHS, **there)
    assert ask(broker, EPOCHS, LATEST_TIMESTAMP) == (0, -1, end, 6)
    assert ask(broker, EPOCHS, FAR_FUTURE) == (0, *UNKNOWN)


def test_leaders_before_2_2_do_not_wait(epochs):
    lagging = {"leader_epoch_start_offset": 24, "high_watermark": 20}
    broker = leader_of(epochs, EPOCHS, "2.1.1", **lagging)
    assert ask(broker, EPOCHS, LATEST_TIMESTAMP, version=4)[::2] == (0, 20)
    assert ask(broker, EPOCHS, FAR_FUTURE, version=4) == (0, *UNKNOWN)


def test_a_waiting_leader_answers_that_nothing_is_tiered(epochs):
    lagging = {"leader_epoch_start_offset": 24, "high_watermark": 20}
    for kafka, timestamp, version in (("3.9.1", LATEST_TIERED_TIMESTAMP, 9), ("4.2", -6, 11)):
        broker = leader_of(epochs, EPOCHS, kafka, **lagging)
        assert ask(broker, EPOCHS, timestamp, version=version) == (0, *UNKNOWN)
    # For 3.0 it is a time: the first record's.
    broker = leader_of(epochs, EPOCHS, "3.0.0", **lagging)
    assert ask(broker, EPOCHS, LATEST_TIERED_TIMESTAMP, version=7) == (0, FIRST, 0, 0)


# Order of checks


def test_an_invalid_request_is_reported_before_the_partition_is_searched(epochs):
    unknown = TopicPartition("nowhere", 0)
    new, old = (leader_of(epochs, EPOCHS, kafka) for kafka in ("3.9.1", "3.8.1"))
    assert ask(new, unknown, -7)[0] == ErrorCode.UNSUPPORTED_VERSION
    assert ask(old, unknown, -7)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(old, EPOCHS, -7) == (0, FIRST, 0, 0)
    twice = ask_all(new, (unknown, -7), (unknown, -7), version=5)
    assert {row.error_code for row in twice.topics[0].partitions} == {ErrorCode.INVALID_REQUEST}


def test_an_old_message_format_is_reported_when_the_search_begins(epochs):
    state = {"message_format_version": "0.9.0", "leader_epoch_start_offset": 24}
    broker = leader_of(epochs, EPOCHS, high_watermark=20, **state)
    assert ask(broker, EPOCHS, 0)[0] == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert ask(broker, EPOCHS, -1)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert ask(broker, EPOCHS, -2)[0] == ErrorCode.NONE
    assert ask(broker, EPOCHS, row_in_epoch(5))[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert ask(leader_of(epochs, EPOCHS, "4.1.1", **state), EPOCHS, 0)[0] == ErrorCode.NONE


# The same partition twice


@pytest.mark.parametrize(
    ("kafka", "rows"), [("0.10.2.2", 1), ("2.4.0", 1), ("2.8.1", 2), ("3.9.1", 2), ("4.1.1", 1)]
)
def test_a_partition_named_twice_is_an_invalid_request(epochs, kafka, rows):
    broker = sole_broker(epochs, kafka)
    other = TopicPartition("epochs", 1)
    response = ask_all(broker, (EPOCHS, 0), (other, -1), (EPOCHS, -2), version=1)
    (topic,) = response.topics
    errors = [(row.partition_index, row.error_code) for row in topic.partitions]
    twice = (0, ErrorCode.INVALID_REQUEST)
    assert errors == [twice, (1, 0), twice][: rows + 1]


@pytest.mark.parametrize(("kafka", "offsets"), [("2.4.0", [(0,)]), ("3.9.1", [(END,), (0,)])])
def test_a_partition_named_twice_in_version_0_is_answered(epochs, kafka, offsets):
    rows = [(EPOCHS, LATEST_TIMESTAMP), (EPOCHS, EARLIEST_TIMESTAMP)]
    response = ask_all(sole_broker(epochs, kafka), *rows, version=0)
    assert [row.old_style_offsets for row in response.topics[0].partitions] == offsets


def test_duplicate_and_empty_topics_are_kept_only_from_2_7_to_3_9(epochs):
    one = ListOffsetsTopic("epochs", (ListOffsetsPartition(0, 0),))
    two = ListOffsetsTopic("epochs", (ListOffsetsPartition(1, 0),))
    request = ListOffsetsRequest((ListOffsetsTopic("none", ()), one, two))
    for kafka, names in (
        ("2.4.0", ["epochs"]),
        ("2.7", ["none", "epochs", "epochs"]),
        ("3.9.1", ["none", "epochs", "epochs"]),
        ("4.0", ["epochs"]),
    ):
        response = handle_list_offset_request(sole_broker(epochs, kafka), request, 1)
        assert [topic.name for topic in response.topics] == names
        assert sum(len(topic.partitions) for topic in response.topics) == 2


# Version 0


def old_style(broker, what, **request):
    ((answer,),) = [
        topic.partitions
        for topic in ask_all(broker, (EPOCHS, what), version=0, **request).topics
    ]
    return answer.error_code, answer.old_style_offsets


def test_version_0_is_bounded_by_the_high_watermark_only_for_consumers(epochs):
    broker = leader_of(epochs, EPOCHS, high_watermark=20)
    assert old_style(broker, LATEST_TIMESTAMP) == (0, (20,))
    for replica_id in (FOLLOWER, DEBUGGING_REPLICA_ID):
        assert old_style(broker, LATEST_TIMESTAMP, replica_id=replica_id) == (0, (END,))


def test_version_0_has_the_errors_of_partitions(epochs):
    other = replace(leader_of(epochs, EPOCHS), broker_id=2)
    assert old_style(other, -1) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, ())
    found = old_style(other, -1, replica_id=DEBUGGING_REPLICA_ID)
    assert found == (ErrorCode.REPLICA_NOT_AVAILABLE, ())
    for kafka, error in (("3.8.1", ErrorCode.NONE), ("3.9.1", ErrorCode.UNSUPPORTED_VERSION)):
        assert old_style(leader_of(epochs, EPOCHS, kafka), -3) == (error, ())


def test_version_0_with_negative_max_num_offsets_is_an_unknown_server_error(epochs):
    row = ListOffsetsPartition(0, LATEST_TIMESTAMP, max_num_offsets=-1)
    broker = leader_of(epochs, EPOCHS)
    assert old_style(broker, row) == (ErrorCode.UNKNOWN_SERVER_ERROR, ())
    assert old_style(broker, row._replace(max_num_offsets=0)) == (ErrorCode.NONE, ())


# Unsupported requests


@pytest.mark.parametrize(
    ("kafka", "oldest", "newest"),
    [
        ("0.8.2.2", 0, 0),
        ("0.10.0.1", 0, 0),
        ("0.10.2.2", 0, 1),
        ("2.4.0", 0, 5),
        ("3.9.1", 0, 9),
        ("4.1.1", 1, 10),
        ("4.2", 1, 11),
        ("4.3.1", 1, 11),
    ],
)
def test_a_broker_accepts_only_its_versions_of_the_request(epochs, kafka, oldest, newest):
    broker = sole_broker(epochs, kafka)
    for version in range(12):
        if oldest <= version <= newest:
            response = ask_all(broker, (EPOCHS, LATEST_TIMESTAMP), version=version)
            assert response.topics[0].partitions[0].error_code == 0
        else:
            with pytest.raises(UnsupportedFormatError):
                ask_all(broker, (EPOCHS, LATEST_TIMESTAMP), version=version)


def test_an_isolation_level_must_be_one_of_two(epochs):
    with pytest.raises(FieldValueError):
        ask(sole_broker(epochs, "2.4.0"), EPOCHS, 0, isolation_level=2)


def test_a_broker_must_have_a_version(epochs):
    with pytest.raises(UnknownVersionError):
        ask(leader_of(epochs, EPOCHS, "newest"), EPOCHS, 0)


# Any request


SOME_TIMESTAMPS = st.sampled_from(
    [*range(-8, 1), FIRST, SECOND + 75, THIRD + 110, FAR_FUTURE, (1 << 63) - 1, -(1 << 63)]
)
PARTITIONS = [TopicPartition("epochs", 0), TopicPartition("epochs", 1), TopicPartition("no", 0)]
ROWS = st.lists(
    st.tuples(st.sampled_from(PARTITIONS), SOME_TIMESTAMPS, st.integers(-1, 8)),
    max_size=5,
)


@given(
    ROWS,
    st.sampled_from(["0.10.2.2", "0.11.0.0", "2.1", "2.4.0", "2.8", "3.9.1", "4.1.1", "4.3.1"]),
    st.integers(1, 11),
    st.sampled_from([CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID, FOLLOWER]),
    st.integers(0, 2),
    st.sampled_from([None, 24]),
    st.sampled_from([0, 20, 30, "log-end", "checkpoint"]),
    st.sampled_from([0, 1]),
)
def test_partitions_of_any_request_have_the_same_answers_as_single_ones(
    epochs, rows, kafka, version, replica_id, broker_id, epoch_start, high_watermark, isolation
):
    oldest, newest = rules_of(kafka).list_offsets_versions
    version = min(max(version, oldest, 1), newest)
    state = PartitionState(0, (0, 1), 6, epoch_start, high_watermark)
    metadata = {TopicPartition("epochs", number): state for number in (0, 1)}
    broker = Broker(broker_id, kafka, epochs, metadata)
    queries = [
        (key, ListOffsetsPartition(key.partition, timestamp, epoch if version >= 4 else -1))
        for key, timestamp, epoch in rows
    ]
    request = {"replica_id": replica_id, "isolation_level": isolation if version >= 2 else 0}
    response = ask_all(broker, *queries, version=version, **request)
    answers = {
        (topic.name, row.partition_index): row[1:5]
        for topic in response.topics
        for row in topic.partitions
    }
    keys = [key for key, _ in queries]
    assert answers.keys() == set(keys)
    for key, what in queries:
        if keys.count(key) > 1:
            assert answers[key] == (ErrorCode.INVALID_REQUEST, *UNKNOWN)
            continue
        alone = ask(broker, key, what, version=version, **request)
        assert answers[key] == alone
        error, _, _, epoch = alone
        assert error == 0 or alone[1:] == UNKNOWN
        assert epoch == -1 or version >= 4
