"""Which broker answers for a partition: the tables in the docstring, and Kafka's cases."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import kafkastore
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.server import ErrorCode, PartitionState, replica_lookup, sole_broker
from kafkastore.server.replica_lookup import (
    HostedPartition,
    get_log_or_error,
    local_log_error,
    partition_error,
)
from kafkastore.versions import rules_of

NONE, STORAGE = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR
UNKNOWN, NOT_LEADER = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER
SHORT = {
    "--": NONE,
    "STORAGE": STORAGE,
    "UNKNOWN": UNKNOWN,
    "NOT_LEADER": NOT_LEADER,
    "NO_REPLICA": ErrorCode.REPLICA_NOT_AVAILABLE,
}
#: The first and the last version of each column.
COLUMNS = (
    ("0.8.2.2", "0.10.1", "1.1.1"),
    ("2.0", "2.0.1"),
    ("2.1", "2.4.0", "2.5.1"),
    ("2.6", "3.9.1", "4.1.1", "4.3.1"),
)
LEADER_WANTED = {"leader": [True], "any": [False], "both": [True, False]}
HOSTED = {
    "online": HostedPartition.ONLINE,
    "offline": HostedPartition.OFFLINE,
    "no": HostedPartition.NONE,
}


def table(text, number):
    """Return the rows of a table in a docstring as lists of cells."""
    rules = list(re.finditer(r"^ +-{4}[- ]*\n", text, re.M))
    body = text[rules[number].end() :].split("\n\n")[0]
    return [re.split(r" {2,}", line.strip()) for line in body.splitlines()]


def test_a_broker_answers_by_its_hosted_replicas_as_in_the_table():
    rows = table(replica_lookup.__doc__, 0)
    assert len(rows) == 6
    for hosted, in_metadata, required, *answers in rows:
        assert len(answers) == len(COLUMNS)
        for answer, versions in zip(answers, COLUMNS, strict=True):
            for version in versions:
                for expect_leader in LEADER_WANTED[required]:
                    said = partition_error(
                        HOSTED[hosted],
                        in_metadata=in_metadata == "yes",
                        expect_leader=expect_leader,
                        rules=rules_of(version),
                    )
                    assert said is SHORT[answer], (hosted, in_metadata, required, version)


def test_a_broker_answers_by_epochs_and_leadership_as_in_the_table():
    rows = table(replica_lookup.__doc__, 1)
    assert len(rows) == 5
    state = PartitionState(leader=1, replicas=(1, 2), leader_epoch=5)
    epochs = {"below the partition's": (0, 4), "above it": (6, 99), "none, or the same": (-1, 5)}
    words = {"yes": (True,), "no": (False,), "any": (False, True)}
    for epoch, leader_required, is_leader, answer in rows:
        wanted = NONE if answer == "--" else ErrorCode[answer]
        for current in epochs[epoch]:
            for require_leader in words[leader_required]:
                for leads in words[is_leader]:
                    said = local_log_error(
                        state,
                        1 if leads else 2,
                        current_leader_epoch=current,
                        require_leader=require_leader,
                    )
                    assert said is wanted, (epoch, leader_required, is_leader)


ORDERS = TopicPartition("epochs", 0)


@pytest.fixture
def broker(golden):
    """Return broker 0 of 2.4.0, the leader in epoch 6; 1 is a follower, 2 has no replica."""
    found = sole_broker(kafkastore.open(golden("2.4.0", "leader-epochs", "answers").logs), "2.4.0")
    return replace(found, metadata={ORDERS: PartitionState(0, (0, 1), leader_epoch=6)})


def seen_from(broker, broker_id):
    return replace(broker, broker_id=broker_id)


def test_the_leader_answers_every_client(broker):
    for require_leader in (True, False):
        log = get_log_or_error(broker, ORDERS, require_leader=require_leader)
        assert log is broker.store[ORDERS]


def test_a_follower_answers_only_requests_to_any_replica(broker):
    follower = seen_from(broker, 1)
    assert get_log_or_error(follower, ORDERS) is NOT_LEADER
    assert get_log_or_error(follower, ORDERS, require_leader=False) is broker.store[ORDERS]


def test_a_broker_without_a_replica_answers_no_client(broker):
    other = seen_from(broker, 2)
    assert get_log_or_error(other, ORDERS) is NOT_LEADER
    said = get_log_or_error(other, ORDERS, require_leader=False)
    assert said is ErrorCode.REPLICA_NOT_AVAILABLE


def test_a_partition_without_a_leader_is_not_led_by_any_broker(broker):
    leaderless = broker.metadata[ORDERS]._replace(leader=None)
    assert get_log_or_error(replace(broker, metadata={ORDERS: leaderless}), ORDERS) is NOT_LEADER


@pytest.mark.parametrize(
    ("epoch", "said"),
    [(5, ErrorCode.FENCED_LEADER_EPOCH), (7, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
@pytest.mark.parametrize("broker_id", [0, 1])
@pytest.mark.parametrize("require_leader", [True, False])
def test_another_epoch_is_refused_before_leadership_is_checked(
    broker, broker_id, require_leader, epoch, said
):
    found = get_log_or_error(
        seen_from(broker, broker_id),
        ORDERS,
        current_leader_epoch=epoch,
        require_leader=require_leader,
    )
    assert found is said


def test_the_partition_s_current_epoch_is_accepted(broker):
    assert get_log_or_error(broker, ORDERS, current_leader_epoch=6) is broker.store[ORDERS]
    assert get_log_or_error(seen_from(broker, 1), ORDERS, current_leader_epoch=6) is NOT_LEADER


def test_a_failed_log_directory_is_a_storage_error_whatever_the_epoch(broker):
    failed = replace(broker, offline_log_dirs=frozenset({broker.store[ORDERS].path.parent}))
    for epoch in (-1, 5, 6, 7):
        assert get_log_or_error(failed, ORDERS, current_leader_epoch=epoch) is STORAGE
    elsewhere = replace(broker, offline_log_dirs=frozenset({Path("/elsewhere")}))
    assert get_log_or_error(elsewhere, ORDERS) is broker.store[ORDERS]


def test_a_missing_replica_counts_as_in_a_failed_log_directory(broker):
    missing = TopicPartition("missing", 0)
    there = replace(broker, metadata={missing: PartitionState(0, (0,))})
    assert get_log_or_error(there, missing) is STORAGE
    assert get_log_or_error(seen_from(there, 1), missing) is NOT_LEADER


def test_a_directory_that_the_cluster_does_not_know_is_unknown(broker):
    assert get_log_or_error(replace(broker, metadata={}), ORDERS) is UNKNOWN
    assert get_log_or_error(broker, TopicPartition("epochs", 99)) is UNKNOWN


def test_a_directory_left_by_a_reassignment_is_not_used(broker):
    moved = broker.metadata[ORDERS]._replace(leader=1, replicas=(1, 2))
    assert get_log_or_error(replace(broker, metadata={ORDERS: moved}), ORDERS) is NOT_LEADER


def test_a_sole_broker_leads_all_partitions_in_the_latest_epoch_of_their_logs(broker):
    alone = sole_broker(broker.store, "2.4.0", broker_id=3)
    assert alone.metadata.keys() == set(broker.store.partitions)
    for key, state in alone.metadata.items():
        epochs = broker.store[key].leader_epochs
        assert state == PartitionState(3, (3,), epochs[-1].epoch if epochs else 0)
        assert get_log_or_error(alone, key) is broker.store[key]
