"""ListOffsets, API key 2: the request for offsets by time, and its response.

Their headers are in `list_offsets_header`::

    request               replica_id int32 | isolation_level int8 (from 2) | topics
                          | timeout_ms int32 (from 10)
      topic               name string | partitions
        partition         partition_index int32 | current_leader_epoch int32 (from 4)
                          | timestamp int64 | max_num_offsets int32 (only 0)

    response              throttle_time_ms int32 (from 2) | topics
      topic               name string | partitions
        partition         partition_index int32 | error_code int16
                          | old_style_offsets array of int64 (only 0)
                          | timestamp int64 (from 1) | offset int64 (from 1)
                          | leader_epoch int32 (from 4)

The numbers are versions of the request. From version 6 on it is flexible: every structure ends with
tagged fields, of which none is defined. Strings and arrays are those of `protocol`.

``docs/formats/list_offsets.md`` has the changes of each version, and the odd cases.

Source: Kafka 3.9.1 (versions 0 to 9), 4.1.1 (1 to 10), 4.2.0 (1 to 11) ``ListOffsetsRequest.json``,
``ListOffsetsResponse.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkastore.formats.primitives.protocol import (
    FieldValueError,
    ProtocolReader,
    ProtocolWriter,
    check_version,
)

API_KEY = 2
NEWEST_VERSION = 11
FIRST_VERSION_WITH_ISOLATION = 2
FIRST_VERSION_WITH_EPOCHS = 4
FIRST_FLEXIBLE_VERSION = 6

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
    writer = _writer(version)
    writer.int32("replica id", request.replica_id)
    if version >= FIRST_VERSION_WITH_ISOLATION:
        writer.int8("isolation level", request.isolation_level)
    elif request.isolation_level != READ_UNCOMMITTED:
        raise _no_field("isolation level", version)
    writer.array("topics", request.topics, lambda topic: _put_topic(writer, topic, version))
    if version >= 10:
        writer.int32("timeout", request.timeout_ms)
    writer.tagged_fields("tagged field")
    return writer.packed()


def _put_topic(writer: ProtocolWriter, topic: ListOffsetsTopic, version: int) -> None:
    """Write the request for one topic."""
    writer.string("topic", topic.name)
    writer.array(
        "partitions", topic.partitions, lambda partition: _put_partition(writer, partition, version)
    )
    writer.tagged_fields("tagged field")


def _put_partition(writer: ProtocolWriter, partition: ListOffsetsPartition, version: int) -> None:
    """Write the request for one partition."""
    writer.int32("partition", partition.partition_index)
    if version >= FIRST_VERSION_WITH_EPOCHS:
        writer.int32("current leader epoch", partition.current_leader_epoch)
    writer.int64("timestamp", partition.timestamp)
    if version == 0:
        writer.int32("max number of offsets", partition.max_num_offsets)
    elif partition.max_num_offsets != 1:
        raise _no_field("max number of offsets", version)
    writer.tagged_fields("tagged field")


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
    reader = _reader(data, version)
    replica_id = reader.int32("replica id")
    isolation_level = READ_UNCOMMITTED
    if version >= FIRST_VERSION_WITH_ISOLATION:
        isolation_level = reader.int8("isolation level")
    topics = reader.array("topics", lambda: _take_topic(reader, version))
    timeout_ms = reader.int32("timeout") if version >= 10 else 0
    reader.tagged_fields("tagged field")
    return ListOffsetsRequest(topics, replica_id, isolation_level, timeout_ms)


def _take_topic(reader: ProtocolReader, version: int) -> ListOffsetsTopic:
    """Read the request for one topic."""
    name = reader.string("topic")
    partitions = reader.array("partitions", lambda: _take_partition(reader, version))
    reader.tagged_fields("tagged field")
    return ListOffsetsTopic(name, partitions)


def _take_partition(reader: ProtocolReader, version: int) -> ListOffsetsPartition:
    """Read the request for one partition."""
    index = reader.int32("partition")
    epoch = UNKNOWN_EPOCH
    if version >= FIRST_VERSION_WITH_EPOCHS:
        epoch = reader.int32("current leader epoch")
    timestamp = reader.int64("timestamp")
    max_num_offsets = reader.int32("max number of offsets") if version == 0 else 1
    reader.tagged_fields("tagged field")
    return ListOffsetsPartition(index, timestamp, epoch, max_num_offsets)


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
    writer = _writer(version)
    if version >= 2:
        writer.int32("throttle time", response.throttle_time_ms)
    writer.array(
        "topics", response.topics, lambda topic: _put_topic_response(writer, topic, version)
    )
    writer.tagged_fields("tagged field")
    return writer.packed()


def _put_topic_response(
    writer: ProtocolWriter, topic: ListOffsetsTopicResponse, version: int
) -> None:
    """Write the response for one topic."""
    writer.string("topic", topic.name)
    writer.array(
        "partitions",
        topic.partitions,
        lambda partition: _put_partition_response(writer, partition, version),
    )
    writer.tagged_fields("tagged field")


def _put_partition_response(
    writer: ProtocolWriter, partition: ListOffsetsPartitionResponse, version: int
) -> None:
    """Write the response for one partition."""
    writer.int32("partition", partition.partition_index)
    writer.int16("error code", partition.error_code)
    if version == 0:
        writer.array(
            "offsets", partition.old_style_offsets, lambda offset: writer.int64("offset", offset)
        )
        if (partition.timestamp, partition.offset) != (UNKNOWN_TIMESTAMP, UNKNOWN_OFFSET):
            raise _no_field("timestamp and offset", version)
    else:
        writer.int64("timestamp", partition.timestamp)
        writer.int64("offset", partition.offset)
        if partition.old_style_offsets:
            raise _no_field("old style offsets", version)
    if version >= FIRST_VERSION_WITH_EPOCHS:
        writer.int32("leader epoch", partition.leader_epoch)
    elif partition.leader_epoch != UNKNOWN_EPOCH:
        raise _no_field("leader epoch", version)
    writer.tagged_fields("tagged field")


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
    reader = _reader(data, version)
    throttle_time_ms = reader.int32("throttle time") if version >= 2 else 0
    topics = reader.array("topics", lambda: _take_topic_response(reader, version))
    reader.tagged_fields("tagged field")
    return ListOffsetsResponse(topics, throttle_time_ms)


def _take_topic_response(reader: ProtocolReader, version: int) -> ListOffsetsTopicResponse:
    """Read the response for one topic."""
    name = reader.string("topic")
    partitions = reader.array("partitions", lambda: _take_partition_response(reader, version))
    reader.tagged_fields("tagged field")
    return ListOffsetsTopicResponse(name, partitions)


def _take_partition_response(reader: ProtocolReader, version: int) -> ListOffsetsPartitionResponse:
    """Read the response for one partition."""
    index, error_code = reader.int32("partition"), reader.int16("error code")
    if version == 0:
        offsets = reader.array("offsets", lambda: reader.int64("offset"))
        return ListOffsetsPartitionResponse(index, error_code, old_style_offsets=offsets)
    timestamp, offset = reader.int64("timestamp"), reader.int64("offset")
    leader_epoch = UNKNOWN_EPOCH
    if version >= FIRST_VERSION_WITH_EPOCHS:
        leader_epoch = reader.int32("leader epoch")
    reader.tagged_fields("tagged field")
    return ListOffsetsPartitionResponse(index, error_code, timestamp, offset, leader_epoch)


def _reader(data: bytes, version: int) -> ProtocolReader:
    """Return a reader for a message of this version."""
    check_version("ListOffsets", version, NEWEST_VERSION)
    return ProtocolReader(data, is_flexible=version >= FIRST_FLEXIBLE_VERSION)


def _writer(version: int) -> ProtocolWriter:
    """Return a writer for a message of this version."""
    check_version("ListOffsets", version, NEWEST_VERSION)
    return ProtocolWriter(is_flexible=version >= FIRST_FLEXIBLE_VERSION)


def _no_field(name: str, version: int) -> FieldValueError:
    """Return the error for a value that would be lost silently."""
    return FieldValueError(name, f"is not a field of ListOffsets version {version}")
