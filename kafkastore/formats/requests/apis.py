"""Requests of all kinds and their responses, with their headers.

A frame is its size, an int32, then a header, then the request or response. Headers are flexible
where the message is; only the response to ApiVersions always has the old one, which a client can
read before it knows the versions of the server.

Source: Kafka 4.4.0 ``RequestHeader.json`` (versions 1 and 2), ``ResponseHeader.json`` (0 and 1),
``ApiMessageType.responseHeaderVersion``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from kafkastore.errors import CorruptionError
from kafkastore.formats.messages.message_codec import Elsewhere, StructCodec
from kafkastore.formats.messages.message_table import MessageTable, Values
from kafkastore.formats.requests import describing, groups, list_offsets, reading

REQUESTS = MessageTable(
    reading.REQUESTS + list_offsets.REQUEST + groups.REQUESTS + describing.REQUESTS
)
RESPONSES = MessageTable(
    reading.RESPONSES + list_offsets.RESPONSE + groups.RESPONSES + describing.RESPONSES
)
HEADERS = MessageTable("""
RequestHeader 0, versions 1-2, flexible 2+
    request_api_key int16
    request_api_version int16
    correlation_id int32
    client_id string? plain

ResponseHeader 1, versions 0-1, flexible 1+
    correlation_id int32
""")
_REQUEST_HEADER, _RESPONSE_HEADER = 0, 1


class ApiKey(IntEnum):
    """The number of a request, and of its response."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_ACLS = 29
    DESCRIBE_CONFIGS = 32
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    DESCRIBE_TOPIC_PARTITIONS = 75


class RequestHeader(NamedTuple):
    """The header of a request; its response repeats `correlation_id`."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None


def is_flexible(api_key: int, version: int) -> bool:
    """Return whether a version of a request has tagged fields; False if it is unknown."""
    description = REQUESTS.descriptions.get(api_key)
    return description is not None and version in description.flexible


def parse_request_header(frame: bytes) -> tuple[RequestHeader, int]:
    """Return the header of a request, and the position at which the request starts.

    Raises `CorruptionError` if a field is incomplete. Of a version that is not known to be
    flexible, the header is that of old versions.
    """
    fields, position = HEADERS.known_codec(_REQUEST_HEADER, 1).parse(frame)
    key, version = fields["request_api_key"], fields["request_api_version"]
    if is_flexible(key, version):
        fields, position = HEADERS.known_codec(_REQUEST_HEADER, 2).parse(frame)
    return RequestHeader(key, version, fields["correlation_id"], fields["client_id"]), position


def parse_request(header: RequestHeader, frame: bytes, position: int) -> Values:
    """Parse the request after its header; bytes after its last field are ignored, as in Kafka.

    Raises `CorruptionError` if a field is incomplete, `UnsupportedFormatError` if the version is
    unknown.
    """
    fields, _ = REQUESTS.known_codec(header.api_key, header.version).parse(frame, position)
    return fields


def pack_response(
    header: RequestHeader, fields: Values, *, version: int | None = None
) -> list[bytes | Elsewhere]:
    """Return the frame of a response in parts; of `Elsewhere`, the bytes are to be sent there.

    `version` is that of the response, if it is not the request's.
    """
    version = header.version if version is None else version
    body, places = RESPONSES.known_codec(header.api_key, version).pack_around(fields)
    head = _response_header(header.api_key, version).pack(
        {"correlation_id": header.correlation_id}
    )
    size = len(head) + len(body) + sum(each.size for _, each in places)
    parts: list[bytes | Elsewhere] = [size.to_bytes(4, "big") + head]
    done = 0
    for place, each in places:
        parts += [body[done:place], each]
        done = place
    parts.append(body[done:])
    return parts


def _response_header(api_key: int, version: int) -> StructCodec:
    is_new = is_flexible(api_key, version) and api_key != ApiKey.API_VERSIONS
    return HEADERS.known_codec(_RESPONSE_HEADER, int(is_new))


def pack_request(header: RequestHeader, fields: Values) -> bytes:
    """Return the frame of a request."""
    codec = HEADERS.known_codec(
        _REQUEST_HEADER, 2 if is_flexible(header.api_key, header.version) else 1
    )
    head = codec.pack({
        "request_api_key": header.api_key,
        "request_api_version": header.version,
        "correlation_id": header.correlation_id,
        "client_id": header.client_id,
    })
    body = REQUESTS.known_codec(header.api_key, header.version).pack(fields)
    return (len(head) + len(body)).to_bytes(4, "big") + head + body


def parse_response(header: RequestHeader, frame: bytes) -> Values:
    """Parse the response to a request, from its frame without the size.

    Raises `CorruptionError` if it is not the response to that request.
    """
    fields, position = _response_header(header.api_key, header.version).parse(frame)
    if fields["correlation_id"] != header.correlation_id:
        raise CorruptionError(
            f"correlation id must be {header.correlation_id}, got {fields['correlation_id']}",
            position=0,
        )
    fields, _ = RESPONSES.known_codec(header.api_key, header.version).parse(frame, position)
    return fields
