"""ListOffsets, API key 2: the request for offsets by time, and its response.

Their headers are in `apis`. The numbers in the descriptions are versions of the
request.

``docs/formats/list_offsets.md`` has the changes of each version, and the odd cases.

Source: Kafka 3.9.1 (versions 0 to 9), 4.1.1 (1 to 10), 4.2.0 (1 to 11) ``ListOffsetsRequest.json``,
``ListOffsetsResponse.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from kafkastore.formats.messages.message_table import MessageTable, Values

API_KEY = 2
NEWEST_VERSION = 11
FIRST_VERSION_WITH_ISOLATION = 2
FIRST_VERSION_WITH_EPOCHS = 4
FIRST_FLEXIBLE_VERSION = 6

StructT = TypeVar("StructT", bound=NamedTuple)

REQUEST = """
ListOffsets 2, versions 0-11, flexible 6+
    replica_id int32
    isolation_level int8 2+
    topics struct[]
        name string
        partitions struct[]
            partition_index int32
            current_leader_epoch int32 4+ ignorable = -1
            timestamp int64
            max_num_offsets int32 0 = 1
    timeout_ms int32 10+ ignorable
"""
RESPONSE = """
ListOffsets 2, versions 0-11, flexible 6+
    throttle_time_ms int32 2+ ignorable
    topics struct[]
        name string
        partitions struct[]
            partition_index int32
            error_code int16
            old_style_offsets int64[] 0
            timestamp int64 1+ = -1
            offset int64 1+ = -1
            leader_epoch int32 4+ = -1
"""
REQUESTS, RESPONSES = MessageTable(REQUEST), MessageTable(RESPONSE)

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6

FIRST_VERSION_WITH: Mapping[int, int] = {
    LATEST_TIMESTAMP: 0,
    EARLIEST_TIMESTAMP: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
"""The first version that takes each special timestamp."""

CONSUMER_REPLICA_ID = -1
DEBUGGING_REPLICA_ID = -2
READ_UNCOMMITTED, READ_COMMITTED = 0, 1

UNKNOWN_TIMESTAMP = -1
UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1


class ListOffsetsPartition(NamedTuple):
    """The request for one partition.

    Parameters
    ----------
    partition_index : int
        The partition.
    timestamp : int
        ms since 1970, or a special timestamp.
    current_leader_epoch : int
        The leader's epoch as the client knows it; -1: none, or a version before 4.
    max_num_offsets : int
        Largest number of offsets to return; only version 0.
    """

    partition_index: int
    timestamp: int
    current_leader_epoch: int = UNKNOWN_EPOCH
    max_num_offsets: int = 1


class ListOffsetsTopic(NamedTuple):
    """The request for one topic."""

    name: str
    partitions: tuple[ListOffsetsPartition, ...]


class ListOffsetsRequest(NamedTuple):
    """A request.

    Parameters
    ----------
    topics : tuple of ListOffsetsTopic
        The requests by topic.
    replica_id : int
        Of the broker that sends the request; -1 for a consumer, -2 for debugging.
    isolation_level : int
        0 read_uncommitted, 1 read_committed; from version 2 on.
    timeout_ms : int
        How long to wait for the remote storage; from version 10 on.
    """

    topics: tuple[ListOffsetsTopic, ...]
    replica_id: int = CONSUMER_REPLICA_ID
    isolation_level: int = READ_UNCOMMITTED
    timeout_ms: int = 0


class ListOffsetsPartitionResponse(NamedTuple):
    """The response for one partition.

    Parameters
    ----------
    partition_index : int
        The partition.
    error_code : int
        Kafka's error code; 0 for none.
    timestamp : int
        Of the record found, ms since 1970; -1: none, or version 0.
    offset : int
        Of the record found; -1: none, or version 0.
    leader_epoch : int
        Of the record found; -1: none, or a version before 4.
    old_style_offsets : tuple of int
        Descending; only version 0.
    """

    partition_index: int
    error_code: int = 0
    timestamp: int = UNKNOWN_TIMESTAMP
    offset: int = UNKNOWN_OFFSET
    leader_epoch: int = UNKNOWN_EPOCH
    old_style_offsets: tuple[int, ...] = ()


class ListOffsetsTopicResponse(NamedTuple):
    """The response for one topic."""

    name: str
    partitions: tuple[ListOffsetsPartitionResponse, ...]


class ListOffsetsResponse(NamedTuple):
    """A response.

    Parameters
    ----------
    topics : tuple of ListOffsetsTopicResponse
        The responses by topic.
    throttle_time_ms : int
        How long a quota delays the client, ms; from version 2 on.
    """

    topics: tuple[ListOffsetsTopicResponse, ...]
    throttle_time_ms: int = 0


def pack_request(request: ListOffsetsRequest, version: int) -> bytes:
    """Return the bytes of a request, without its header.

    Parameters
    ----------
    request : ListOffsetsRequest
        Leader epochs and the timeout are left out of versions without these fields, as in Kafka.
    version : int
        0 to 11. The function does not check that the version allows the timestamps; see
        `FIRST_VERSION_WITH`.

    Raises
    ------
    FieldValueError
        If a value does not fit its field, or the version has no field for the isolation level or
        the number of offsets.
    UnsupportedFormatError
        If the version is another.

    Examples
    --------
    >>> topic = ListOffsetsTopic("t", (ListOffsetsPartition(0, LATEST_TIMESTAMP),))
    >>> pack_request(ListOffsetsRequest((topic,)), 1).hex(" ", -4)
    'ffffffff 00000001 00017400 00000100 000000ff ffffffff ffffff'
    """
    return REQUESTS.known_codec(API_KEY, version).pack(_plain(request))


def parse_request(data: bytes, version: int) -> ListOffsetsRequest:
    """Parse a request.

    Parameters
    ----------
    data : bytes
        The request after its header. Extra bytes are ignored, as in Kafka.
    version : int
        0 to 11, from the header.

    Returns
    -------
    ListOffsetsRequest
        Fields that the version does not have are at their defaults.

    Raises
    ------
    CorruptionError
        If a field is not there whole, with its position in `data`.
    UnsupportedFormatError
        If the version is another.
    """
    fields, _ = REQUESTS.known_codec(API_KEY, version).parse(data)
    fields["topics"] = _topics(fields, ListOffsetsTopic, ListOffsetsPartition)
    return _tuple(ListOffsetsRequest, fields)


def pack_response(response: ListOffsetsResponse, version: int) -> bytes:
    """Return the bytes of a response, without its header.

    Parameters
    ----------
    response : ListOffsetsResponse
        The throttle time is left out of versions without this field, as in Kafka.
    version : int
        Of the request, 0 to 11.

    Raises
    ------
    FieldValueError
        If a value does not fit its field, or the version has no field for it.
    UnsupportedFormatError
        If the version is another.
    """
    return RESPONSES.known_codec(API_KEY, version).pack(_plain(response))


def parse_response(data: bytes, version: int) -> ListOffsetsResponse:
    """Parse a response.

    Parameters
    ----------
    data : bytes
        The response after its header. Extra bytes are ignored, as in Kafka.
    version : int
        Of the request, 0 to 11.

    Returns
    -------
    ListOffsetsResponse
        Fields that the version does not have are at their defaults.

    Raises
    ------
    CorruptionError
        If a field is not there whole, with its position in `data`.
    UnsupportedFormatError
        If the version is another.
    """
    fields, _ = RESPONSES.known_codec(API_KEY, version).parse(data)
    fields["topics"] = _topics(fields, ListOffsetsTopicResponse, ListOffsetsPartitionResponse)
    return _tuple(ListOffsetsResponse, fields)


def _topics(
    fields: Values, topic_type: type[StructT], partition_type: type[NamedTuple]
) -> tuple[StructT, ...]:
    """Return the topics in a message, with their partitions."""
    return tuple(
        _tuple(topic_type, topic | {
            "partitions": tuple(_tuple(partition_type, each) for each in topic["partitions"])
        })
        for topic in fields["topics"]
    )


def _tuple(kind: type[StructT], fields: Values) -> StructT:
    """Return a structure as a named tuple; unknown tagged fields are dropped."""
    return kind._make(fields[name] for name in kind._fields)


def _plain(message: ListOffsetsRequest | ListOffsetsResponse) -> dict[str, Any]:
    """Return the fields of a message as its codec takes them."""
    topics = [
        topic._asdict() | {"partitions": [each._asdict() for each in topic.partitions]}
        for topic in message.topics
    ]
    return message._asdict() | {"topics": topics}
