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
from kafkastore.formats.requests import altering, describing, groups, list_offsets, reading

REQUESTS = MessageTable(
    reading.REQUESTS + list_offsets.REQUEST + groups.REQUESTS + describing.REQUESTS
    + altering.REQUESTS
)
RESPONSES = MessageTable(
    reading.RESPONSES + list_offsets.RESPONSE + groups.RESPONSES + describing.RESPONSES
    + altering.RESPONSES
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
_REQUEST, _RESPONSE = 0, 1
_SIZE_BYTES = 4
#: Partitions, topics, groups and others in one request, which take 300 times its size as objects.
MOST_REQUEST_ELEMENTS = 200_000


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
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_ACLS = 29
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    DESCRIBE_TOPIC_PARTITIONS = 75


class RequestHeader(NamedTuple):
    """The header of a request.

    Parameters
    ----------
    api_key, version : int
        Kafka's number of the request, and its version.
    correlation_id : int
        Repeated by the response.
    client_id : str or None
        The client's name for itself.
    """

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None


def pack_request_header(header: RequestHeader) -> bytes:
    """Return the bytes of a request's header.

    Raises `FieldValueError` if a value does not fit its field.

    >>> pack_request_header(RequestHeader(ApiKey.LIST_OFFSETS, 1, 7, "me")).hex(" ", -2)
    '0002 0001 0000 0007 0002 6d65'
    """
    return _request_header(header.api_key, header.version).pack({
        "request_api_key": header.api_key,
        "request_api_version": header.version,
        "correlation_id": header.correlation_id,
        "client_id": header.client_id,
    })


def parse_request_header(frame: bytes) -> tuple[RequestHeader, int]:
    """Return the header of a request, and the position at which the request starts.

    `frame` has no size field. The header of an unknown request counts as not flexible. Raises
    `CorruptionError` if a field is incomplete.
    """
    key, version = (int.from_bytes(frame[at : at + 2], "big", signed=True) for at in (0, 2))
    fields, position = _request_header(key, version).parse(frame)
    return RequestHeader(key, version, fields["correlation_id"], fields["client_id"]), position


def pack_response_header(request: RequestHeader) -> bytes:
    """Return the bytes of the header of a request's response.

    Raises `FieldValueError` if the correlation id is out of range.
    """
    codec = _response_header(request.api_key, request.version)
    return codec.pack({"correlation_id": request.correlation_id})


def parse_response_header(frame: bytes, request: RequestHeader) -> int:
    """Return the position at which the response to a request starts.

    `frame` has no size field. Raises `CorruptionError` if a field is incomplete, or the response is
    that to another request.
    """
    fields, position = _response_header(request.api_key, request.version).parse(frame)
    if fields["correlation_id"] != request.correlation_id:
        raise CorruptionError(
            f"correlation id must be {request.correlation_id}, got {fields['correlation_id']}",
            position=0,
        )
    return position


def is_flexible(api_key: int, version: int) -> bool:
    """Return whether a version of a request is known to have tagged fields."""
    description = REQUESTS.descriptions.get(api_key)
    return description is not None and version in description.flexible


def _request_header(api_key: int, version: int) -> StructCodec:
    return HEADERS.known_codec(_REQUEST, 2 if is_flexible(api_key, version) else 1)


def _response_header(api_key: int, version: int) -> StructCodec:
    is_new = is_flexible(api_key, version) and api_key != ApiKey.API_VERSIONS
    return HEADERS.known_codec(_RESPONSE, int(is_new))


def pack_request(header: RequestHeader, fields: Values) -> bytes:
    """Return the frame of a request, with its size."""
    head = pack_request_header(header)
    body = REQUESTS.known_codec(header.api_key, header.version).pack(fields)
    return (len(head) + len(body)).to_bytes(_SIZE_BYTES, "big") + head + body


def parse_request(header: RequestHeader, frame: bytes, position: int) -> Values:
    """Parse the request after its header; bytes after it are ignored, as in Kafka.

    Raises `CorruptionError`, also above `MOST_REQUEST_ELEMENTS`, and `UnsupportedFormatError`.
    """
    codec = REQUESTS.known_codec(header.api_key, header.version)
    fields, _ = codec.parse(frame, position, MOST_REQUEST_ELEMENTS)
    return fields


def pack_response(request: RequestHeader, fields: Values) -> list[bytes | Elsewhere]:
    """Return the frame of a response, with its size, in parts."""
    head = pack_response_header(request)
    body, places = RESPONSES.known_codec(request.api_key, request.version).pack_around(fields)
    size = len(head) + len(body) + sum(each.size for _, each in places)
    frame = size.to_bytes(_SIZE_BYTES, "big") + head + body
    parts: list[bytes | Elsewhere] = []
    done, start = 0, _SIZE_BYTES + len(head)
    for place, each in places:
        parts += [frame[done : start + place], each]
        done = start + place
    parts.append(frame[done:])
    return parts


def parse_response(request: RequestHeader, frame: bytes) -> Values:
    """Parse the response to a request, from its frame without the size."""
    position = parse_response_header(frame, request)
    fields, _ = RESPONSES.known_codec(request.api_key, request.version).parse(frame, position)
    return fields
