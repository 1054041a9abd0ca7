"""Kafka's error codes that occur in ListOffsets responses."""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """An error code in a response.

    NOT_LEADER_OR_FOLLOWER was called NOT_LEADER_FOR_PARTITION before 2.6.

    Source: Kafka 4.1.1 ``org.apache.kafka.common.protocol.Errors``.
    """

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REPLICA_NOT_AVAILABLE = 9
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    KAFKA_STORAGE_ERROR = 56
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    OFFSET_NOT_AVAILABLE = 78
