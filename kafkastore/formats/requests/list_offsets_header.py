"""The headers of ListOffsets requests and responses, which follow the size.

::

    frame              size int32 | header | request or response
    request header     api_key int16 | api_version int16 | correlation_id int32
                       | client_id string or null, never compact
                       | tagged fields (from version 6 of the request)
    response header    correlation_id int32
                       | tagged fields (from version 6 of the request)

``docs/formats/list_offsets.md`` has a whole exchange.

Source: Kafka 4.1.1 ``RequestHeader.json`` (versions 1 and 2), ``ResponseHeader.json`` (0 and 1).
"""

from __future__ import annotations

from typing import NamedTuple

from kafkastore.errors import UnsupportedFormatError
from kafkastore.formats.primitives.protocol import ProtocolReader, ProtocolWriter, check_version
from kafkastore.formats.requests.list_offsets import FIRST_FLEXIBLE_VERSION, NEWEST_VERSION

API_KEY = 2


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
    check_version("ListOffsets request", header.api_version, NEWEST_VERSION)
    writer = ProtocolWriter()
    writer.int16("api key", API_KEY)
    writer.int16("api version", header.api_version)
    writer.int32("correlation id", header.correlation_id)
    writer.nullable_string("client id", header.client_id)
    writer.is_flexible = header.api_version >= FIRST_FLEXIBLE_VERSION
    writer.tagged_fields("tagged field")
    return writer.packed()


def parse_request_header(data: bytes) -> tuple[RequestHeader, int]:
    """Return the header of a request, and the position at which the request starts.

    `data` is header and request, without the size. Raises `CorruptionError` if a field is
    incomplete, and `UnsupportedFormatError` for anything but ListOffsets, version 0 to 11.
    """
    reader = ProtocolReader(data)
    api_key, api_version = reader.int16("api key"), reader.int16("api version")
    if api_key != API_KEY:
        raise UnsupportedFormatError(
            f"API key must be {API_KEY} (ListOffsets), got {api_key}", position=0
        )
    check_version("ListOffsets request", api_version, NEWEST_VERSION, position=2)
    correlation_id = reader.int32("correlation id")
    client_id = reader.nullable_string("client id")
    reader.is_flexible = api_version >= FIRST_FLEXIBLE_VERSION
    reader.tagged_fields("tagged field")
    return RequestHeader(api_version, correlation_id, client_id), reader.position


def pack_response_header(correlation_id: int, version: int) -> bytes:
    """Return the bytes of a response's header; `version` is the request's, 0 to 11.

    Raises `FieldValueError` if the correlation id is out of range, and `UnsupportedFormatError` for
    another version.
    """
    check_version("ListOffsets response", version, NEWEST_VERSION)
    writer = ProtocolWriter(is_flexible=version >= FIRST_FLEXIBLE_VERSION)
    writer.int32("correlation id", correlation_id)
    writer.tagged_fields("tagged field")
    return writer.packed()


def parse_response_header(data: bytes, version: int) -> tuple[int, int]:
    """Return a response's correlation id, and the position where its body starts.

    `data` has no size field; `version` is the request's, 0 to 11. Raises `CorruptionError` if a
    field is incomplete, and `UnsupportedFormatError` for another version.
    """
    check_version("ListOffsets response", version, NEWEST_VERSION)
    reader = ProtocolReader(data, is_flexible=version >= FIRST_FLEXIBLE_VERSION)
    correlation_id = reader.int32("correlation id")
    reader.tagged_fields("tagged field")
    return correlation_id, reader.position
