"""Find whether a broker answers for a partition, and the error if it does not.

First ``ReplicaManager.getPartitionOrError`` checks what the broker hosts::

    has a replica   in metadata   asked   before 2.0    2.0           2.1 to 2.5    from 2.6
    --------------  ------------  ------  ------------  ------------  ------------  ------------
    online          yes           both    --            --            --            --
    offline         yes           both    STORAGE       STORAGE       STORAGE       STORAGE
    no              yes           leader  UNKNOWN       NOT_LEADER    NOT_LEADER    NOT_LEADER
    no              yes           any     NO_REPLICA    NO_REPLICA    NO_REPLICA    NOT_LEADER
    no              no            leader  UNKNOWN       UNKNOWN       UNKNOWN       UNKNOWN
    no              no            any     NO_REPLICA    NO_REPLICA    UNKNOWN       UNKNOWN

    STORAGE     KAFKA_STORAGE_ERROR (brokers before 1.0 stop when a log directory fails)
    UNKNOWN     UNKNOWN_TOPIC_OR_PARTITION
    NOT_LEADER  NOT_LEADER_OR_FOLLOWER
    NO_REPLICA  REPLICA_NOT_AVAILABLE

Consumers and followers ask the *leader*; the debugging replica id, -2, asks *any* replica.
Then ``Partition.getLocalLog`` checks the client's leader epoch, and only
then who leads::

    client's epoch          leader asked   is leader   answer
    ----------------------  -------------  ----------  ----------------------
    below the partition's   any            any         FENCED_LEADER_EPOCH
    above it                any            any         UNKNOWN_LEADER_EPOCH
    none, or the same       yes            no          NOT_LEADER_OR_FOLLOWER
    none, or the same       yes            yes         --
    none, or the same       no             any         --

Source: Kafka 0.10.1 to 2.0 ``ReplicaManager.getLeaderReplicaIfLocal``, ``getReplicaOrException``;
2.1 to 4.1 ``ReplicaManager.getPartitionOrException``, ``Partition.getLocalLog``.
"""

from __future__ import annotations

from enum import Enum

from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.list_offsets import UNKNOWN_EPOCH
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.server.cluster import Broker, PartitionState
from kafkastore.store.partition_log import PartitionLog
from kafkastore.versions import BrokerRules, rules_of


class HostedPartition(Enum):
    """Whether a broker has a replica that it can read."""

    ONLINE = "online"
    OFFLINE = "offline"
    NONE = "none"


def partition_error(
    hosted: HostedPartition, *, in_metadata: bool, expect_leader: bool, rules: BrokerRules
) -> ErrorCode:
    """Return the error for what a broker hosts; see the module's first table.

    NONE if the partition is online.
    """
    if hosted is HostedPartition.ONLINE:
        return ErrorCode.NONE
    if hosted is HostedPartition.OFFLINE:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if expect_leader:
        if in_metadata and rules.other_brokers_partitions_are_known:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not in_metadata and rules.any_replica_is_looked_up:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if rules.replica_not_available_is_returned:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


def epoch_error(leader_epoch: int, current_leader_epoch: int) -> ErrorCode:
    """Return the error for the leader epoch that a client knows; -1 is none."""
    if current_leader_epoch != UNKNOWN_EPOCH:
        if current_leader_epoch < leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if current_leader_epoch > leader_epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE


def local_log_error(
    state: PartitionState, broker_id: int, *, current_leader_epoch: int, require_leader: bool
) -> ErrorCode:
    """Return the error for the client's leader epoch; see the second table.

    `current_leader_epoch` is the client's, -1 for none. NONE if the broker answers.
    """
    if error := epoch_error(state.leader_epoch, current_leader_epoch):
        return error
    if require_leader and state.leader != broker_id:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def get_log_or_error(
    broker: Broker,
    topic_partition: TopicPartition,
    *,
    current_leader_epoch: int = UNKNOWN_EPOCH,
    require_leader: bool = True,
) -> PartitionLog | ErrorCode:
    """Return the log that a broker answers from, or the error, which is never NONE.

    `current_leader_epoch` is the client's, -1 for none.
    """
    state = broker.metadata.get(topic_partition)
    log = broker.online_log(topic_partition)
    if state is None or broker.broker_id not in state.replicas:
        hosted = HostedPartition.NONE
    else:
        hosted = HostedPartition.OFFLINE if log is None else HostedPartition.ONLINE
    error = partition_error(
        hosted,
        in_metadata=state is not None,
        expect_leader=require_leader,
        rules=rules_of(broker.version),
    )
    if error or state is None or log is None:
        return error
    error = local_log_error(
        state,
        broker.broker_id,
        current_leader_epoch=current_leader_epoch,
        require_leader=require_leader,
    )
    return error or log
