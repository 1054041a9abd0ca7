"""The headers of ListOffsets requests and responses, which follow the size.

A frame is its size, an int32, a header, and the request or response.

``docs/formats/list_offsets.md`` has a whole exchange.

Source: Kafka 4.1.1 ``RequestHeader.json`` (versions 1 and 2), ``ResponseHeader.json`` (0 and 1).
"""

from __future__ import annotations

from typing import NamedTuple

from kafkastore.errors import UnsupportedFormatError
from kafkastore.formats.messages.message_codec import StructCodec
from kafkastore.formats.messages.message_table import MessageTable
from kafkastore.formats.requests.list_offsets import API_KEY, FIRST_FLEXIBLE_VERSION, REQUESTS

# Of a request that is not flexible, and of one that is.
_REQUEST_HEADERS = 1, 2
_RESPONSE_HEADERS = 0, 1
_REQUEST, _RESPONSE = 0, 1

HEADERS = MessageTable("""
RequestHeader 0, versions 1-2, flexible 2+
    request_api_key int16
    request_api_version int16
    correlation_id int32
    client_id string? plain

ResponseHeader 1, versions 0-1, flexible 1+
    correlation_id int32
""")
_API_VERSION_AT = 2


class RequestHeader(NamedTuple):
    """The header of a request, version 0 to 11; responses repeat `correlation_id`.

    `client_id` is the client's name for itself.
    """

    api_version: int
    correlation_id: int
    client_id: str | None


def pack_request_header(header: RequestHeader) -> bytes:
    """Return the bytes of a request's header.

    Raises `FieldValueError` if a value does not fit its field, and `UnsupportedFormatError` if the
    version is not 0 to 11.

    >>> pack_request_header(RequestHeader(1, 7, "me")).hex(" ", -2)
    '0002 0001 0000 0007 0002 6d65'
    """
    codec = _codec(_REQUEST, header.api_version)
    return codec.pack({
        "request_api_key": API_KEY,
        "request_api_version": header.api_version,
        "correlation_id": header.correlation_id,
        "client_id": header.client_id,
    })


def parse_request_header(data: bytes) -> tuple[RequestHeader, int]:
    """Return the header of a request, and the position at which the request starts.

    `data` is header and request, without the size. Raises `CorruptionError` if a field is
    incomplete, and `UnsupportedFormatError` for anything but ListOffsets, version 0 to 11.
    """
    fields, _ = HEADERS.known_codec(_REQUEST, 1).parse(data)
    if fields["request_api_key"] != API_KEY:
        raise UnsupportedFormatError(
            f"API key must be {API_KEY} (ListOffsets), got {fields['request_api_key']}", position=0
        )
    version = fields["request_api_version"]
    _, position = _codec(_REQUEST, version, position=_API_VERSION_AT).parse(data)
    return RequestHeader(version, fields["correlation_id"], fields["client_id"]), position


def pack_response_header(correlation_id: int, version: int) -> bytes:
    """Return the bytes of a response's header; `version` is the request's, 0 to 11.

    Raises `FieldValueError` if the correlation id is out of range, and `UnsupportedFormatError` for
    another version.
    """
    return _codec(_RESPONSE, version).pack({"correlation_id": correlation_id})


def parse_response_header(data: bytes, version: int) -> tuple[int, int]:
    """Return a response's correlation id, and the position where its body starts.

    `data` has no size field; `version` is the request's, 0 to 11. Raises `CorruptionError` if a
    field is incomplete, and `UnsupportedFormatError` for another version.
    """
    fields, position = _codec(_RESPONSE, version).parse(data)
    return fields["correlation_id"], position


def _codec(header: int, version: int, *, position: int | None = None) -> StructCodec:
    """Return the codec of a header by the version of the request."""
    REQUESTS.known_codec(API_KEY, version, position=position)
    is_flexible = version >= FIRST_FLEXIBLE_VERSION
    versions = _REQUEST_HEADERS if header == _REQUEST else _RESPONSE_HEADERS
    return HEADERS.known_codec(header, versions[is_flexible])
