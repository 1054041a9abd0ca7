"""What stands before a ListOffsets request or response on the wire, behind the size of both.

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
from kafkastore.formats.list_offsets import FIRST_FLEXIBLE_VERSION, NEWEST_VERSION
from kafkastore.formats.protocol import ProtocolReader, ProtocolWriter, check_version

API_KEY = 2


class RequestHeader(NamedTuple):
    """What stands before a request.

    Parameters
    ----------
    api_version : int
        Of the request, 0 to 11.
    correlation_id : int
        Comes back in the response.
    client_id : str or None
        How the client calls itself.
    """

    api_version: int
    correlation_id: int
    client_id: str | None


def pack_request_header(header: RequestHeader) -> bytes:
    """Write what stands before a request.

    Parameters
    ----------
    header : RequestHeader
        The header.

    Raises
    ------
    FieldValueError
        If a field cannot hold its value.
    UnsupportedFormatError
        If the version is not 0 to 11.

    Examples
    --------
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
    """Parse what stands before a request.

    Parameters
    ----------
    data : bytes
        Header and request, without their size.

    Returns
    -------
    header : RequestHeader
        The header.
    position : int
        Where the request starts.

    Raises
    ------
    CorruptionError
        If a field is not there whole.
    UnsupportedFormatError
        If the request is not ListOffsets, version 0 to 11.
    """
    reader = ProtocolReader(data)
    api_key, api_version = reader.int16("api key"), reader.int16("api version")
    if api_key != API_KEY:
        raise UnsupportedFormatError(
            f"request has API key {api_key}, not {API_KEY} (ListOffsets)", position=0
        )
    check_version("ListOffsets request", api_version, NEWEST_VERSION, position=2)
    correlation_id = reader.int32("correlation id")
    client_id = reader.nullable_string("client id")
    reader.is_flexible = api_version >= FIRST_FLEXIBLE_VERSION
    reader.tagged_fields("tagged field")
    return RequestHeader(api_version, correlation_id, client_id), reader.position


def pack_response_header(correlation_id: int, version: int) -> bytes:
    """Write what stands before a response.

    Parameters
    ----------
    correlation_id : int
        Of the request.
    version : int
        Of the request, 0 to 11.

    Raises
    ------
    FieldValueError
        If the number does not fit.
    UnsupportedFormatError
        If the version is another.
    """
    check_version("ListOffsets response", version, NEWEST_VERSION)
    writer = ProtocolWriter(is_flexible=version >= FIRST_FLEXIBLE_VERSION)
    writer.int32("correlation id", correlation_id)
    writer.tagged_fields("tagged field")
    return writer.packed()


def parse_response_header(data: bytes, version: int) -> tuple[int, int]:
    """Parse what stands before a response.

    Parameters
    ----------
    data : bytes
        Header and response, without their size.
    version : int
        Of the request, 0 to 11.

    Returns
    -------
    correlation_id : int
        Of the request.
    position : int
        Where the response starts.

    Raises
    ------
    CorruptionError
        If a field is not there whole.
    UnsupportedFormatError
        If the version is another.
    """
    check_version("ListOffsets response", version, NEWEST_VERSION)
    reader = ProtocolReader(data, is_flexible=version >= FIRST_FLEXIBLE_VERSION)
    correlation_id = reader.int32("correlation id")
    reader.tagged_fields("tagged field")
    return correlation_id, reader.position
