"""The few Kafka requests that are sent over a raw socket, so that their version is known.

ListOffsets v0 (the OffsetRequest that goes by mtimes) up to v11, Fetch v0 to v4 (high watermark,
last stable offset), WriteTxnMarkers v1 and v2, ApiVersions v0 and v3. Source: the protocol guide,
and the schemas in ``clients/src/main/resources/common/message`` of Kafka 4.3.1.
"""
from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from typing import Any

FETCH, LIST_OFFSETS, API_VERSIONS, WRITE_TXN_MARKERS = 1, 2, 18, 27
LATEST_TIMESTAMP, EARLIEST_TIMESTAMP = -1, -2
# Unknown topic or partition, leader not available, not leader, offset not available.
RETRIABLE_ERRORS = frozenset({3, 5, 6, 78})
_FINALIZED_FEATURES_EPOCH = 1  # a tagged field of ApiVersions
# The highest ListOffsets version whose fields `Wire.list_offsets` knows, and the first one with
# compact strings and tagged fields.
NEWEST_LIST_OFFSETS = 11
FIRST_FLEXIBLE_LIST_OFFSETS = 6


def _string(text: str) -> bytes:
    """Pack a string after its 16-bit length."""
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _unsigned_varint(number: int) -> bytes:
    """Pack seven bits to the byte, lowest first."""
    packed = b""
    while number >= 0x80:
        packed += bytes([number & 0x7F | 0x80])
        number >>= 7
    return packed + bytes([number])


def _compact_string(text: str) -> bytes:
    """Pack a string after its length plus one."""
    encoded = text.encode()
    return _unsigned_varint(len(encoded) + 1) + encoded


class Answer:
    """The fields of a response, taken one after the other.

    Parameters
    ----------
    data : bytes
        The response after its size.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    def take(self, field: str) -> int:
        """Return a big-endian number; `field` is its letter in `struct`."""
        (value,) = struct.unpack_from(f">{field}", self._data, self._position)
        self._position += struct.calcsize(f">{field}")
        return int(value)

    def skip(self, size: int) -> None:
        """Leave bytes out."""
        self._position += size

    def unsigned_varint(self) -> int:
        """Return a number of seven bits to the byte."""
        number = shift = 0
        while True:
            byte = self._data[self._position]
            self._position += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    def skip_tags(self) -> None:
        """Leave the tagged fields out."""
        for _ in range(self.unsigned_varint()):
            self.unsigned_varint()
            self.skip(self.unsigned_varint())

    def enter_only_partition(self, *, flexible: bool = False) -> None:
        """Skip to the fields of the one partition of the one topic that was queried."""
        if flexible:
            topics = self.unsigned_varint() - 1
            self.skip(self.unsigned_varint() - 1)
            partitions = self.unsigned_varint() - 1
        else:
            topics = self.take("i")
            self.skip(self.take("h"))
            partitions = self.take("i")
        if (topics, partitions) != (1, 1):
            raise EOFError(f"answer about {topics} topics and {partitions} partitions")
        self.take("i")


@dataclass(frozen=True)
class Watermarks:
    """The fields of a Fetch response but records; no `last_stable_offset` before version 4."""

    error: int
    high_watermark: int
    last_stable_offset: int | None


class Wire:
    """A connection to one broker on this machine.

    Parameters
    ----------
    port : int
        On 127.0.0.1.
    """

    def __init__(self, port: int) -> None:
        self._address = ("127.0.0.1", port)
        self._socket: socket.socket | None = None
        self._correlation_id = 0

    def call(self, api_key: int, version: int, body: bytes, *, flexible: bool = False) -> Answer:
        """Send a request and return the response after its header.

        Raises
        ------
        OSError, EOFError
            If the broker hung up; the next call connects again.
        """
        if self._socket is None:
            self._socket = socket.create_connection(self._address, 15)
        self._correlation_id += 1
        header = struct.pack(">hhi", api_key, version, self._correlation_id) + _string("golden")
        request = header + (b"\0" if flexible else b"") + body
        try:
            self._socket.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", self._receive(self._socket, 4))
            answer = Answer(self._receive(self._socket, size))
            if answer.take("i") != self._correlation_id:
                raise EOFError("the broker answered something else")
        except (OSError, EOFError):
            self.close()
            raise
        if flexible:
            answer.skip_tags()
        return answer

    @staticmethod
    def _receive(connection: socket.socket, size: int) -> bytes:
        """Receive exactly this many bytes."""
        received = b""
        while len(received) < size:
            more = connection.recv(size - len(received))
            if not more:
                raise EOFError("the broker closed the connection")
            received += more
        return received

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def api_versions(self) -> dict[int, tuple[int, int]]:
        """Return lowest and highest version by request; empty from brokers before 0.10."""
        try:
            answer = self.call(API_VERSIONS, 0, b"")
        except (OSError, EOFError):
            return {}
        if answer.take("h"):
            return {}
        count = answer.take("i")
        return {answer.take("h"): (answer.take("h"), answer.take("h")) for _ in range(count)}

    def metadata_offset(self) -> int:
        """Return the offset of the last metadata record that a KRaft broker has applied.

        Returns
        -------
        int
            The epoch of its finalized features; -1 if it knows none yet.
        """
        body = b"\0" + _compact_string("golden") + _compact_string("1") + b"\0"
        answer = self.call(API_VERSIONS, 3, body)  # its response header never has tagged fields
        if error := answer.take("h"):
            raise EOFError(f"error {error} from ApiVersions")
        for _ in range(answer.unsigned_varint() - 1):
            answer.skip(6)
            answer.skip_tags()
        answer.take("i")
        for _ in range(answer.unsigned_varint()):
            tag, size = answer.unsigned_varint(), answer.unsigned_varint()
            if tag == _FINALIZED_FEATURES_EPOCH:
                return answer.take("q")
            answer.skip(size)
        return -1

    def list_offsets_v0(
        self, topic: str, partition: int, timestamp: int, max_num_offsets: int
    ) -> tuple[int, list[int]]:
        """Call ListOffsets version 0, which uses the segments' mtimes.

        Returns
        -------
        error : int
            Kafka's error code, 0 for none.
        offsets : list of int
            Descending.
        """
        request = struct.pack(">ii", -1, 1) + _string(topic)
        request += struct.pack(">iiqi", 1, partition, timestamp, max_num_offsets)
        answer = self.call(LIST_OFFSETS, 0, request)
        answer.enter_only_partition()
        error = answer.take("h")
        return error, [answer.take("q") for _ in range(answer.take("i"))]

    def list_offsets(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        *,
        version: int = 1,
        isolation: int = 0,
        current_leader_epoch: int = -1,
    ) -> dict[str, Any]:
        """Call ListOffsets, version 1 or later.

        Parameters
        ----------
        topic, partition : str, int
            What is queried.
        timestamp : int
            ms since 1970, or one of the special ones below 0.
        version : int
            1 to `NEWEST_LIST_OFFSETS`.
        isolation : int
            0 read_uncommitted, 1 read_committed; sent from version 2 on.
        current_leader_epoch : int
            Sent from version 4 on.

        Returns
        -------
        dict
            error, offset, result_timestamp, leader_epoch (None before version 4).
        """
        flexible = version >= FIRST_FLEXIBLE_LIST_OFFSETS
        request = struct.pack(">i", -1)
        if version >= 2:
            request += struct.pack(">b", isolation)
        if flexible:
            request += _unsigned_varint(2) + _compact_string(topic) + _unsigned_varint(2)
        else:
            request += struct.pack(">i", 1) + _string(topic) + struct.pack(">i", 1)
        request += struct.pack(">i", partition)
        if version >= 4:
            request += struct.pack(">i", current_leader_epoch)
        request += struct.pack(">q", timestamp)
        if flexible:
            timeout = struct.pack(">i", 10_000) if version >= 10 else b""
            request += b"\0\0" + timeout + b"\0"  # tags of partition, topic and request
        answer = self.call(LIST_OFFSETS, version, request, flexible=flexible)
        if version >= 2:
            answer.take("i")
        answer.enter_only_partition(flexible=flexible)
        error, result_timestamp, offset = answer.take("h"), answer.take("q"), answer.take("q")
        return {
            "error": error,
            "offset": offset,
            "result_timestamp": result_timestamp,
            "leader_epoch": answer.take("i") if version >= 4 else None,
        }

    def watermarks(
        self, topic: str, partition: int, offset: int, *, version: int = 4
    ) -> Watermarks:
        """Fetch at an offset to read the fields other than the records."""
        request = struct.pack(">iii", -1, 0, 0)
        if version >= 3:
            request += struct.pack(">i", 1)
        if version >= 4:  # read_committed: 0.11 returns no last stable offset otherwise
            request += struct.pack(">b", 1)
        request += struct.pack(">i", 1) + _string(topic)
        request += struct.pack(">iiqi", 1, partition, offset, 1)
        answer = self.call(FETCH, version, request)
        if version >= 1:
            answer.take("i")
        answer.enter_only_partition()
        error, high_watermark = answer.take("h"), answer.take("q")
        return Watermarks(error, high_watermark, answer.take("q") if version >= 4 else None)

    def write_txn_marker(
        self,
        topic: str,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        *,
        version: int,
        transaction_version: int,
    ) -> int:
        """Commit a producer's transaction in one partition, as the coordinator does.

        Parameters
        ----------
        topic, partition : str, int
            Where the marker is written.
        producer_id, producer_epoch : int
            Of the marker.
        version : int
            Of the request, 1 or 2.
        transaction_version : int
            Sent from version 2 on.

        Returns
        -------
        int
            Kafka's error code, 0 for none.
        """
        request = _unsigned_varint(2) + struct.pack(">qh?", producer_id, producer_epoch, True)
        request += _unsigned_varint(2) + _compact_string(topic)
        request += _unsigned_varint(2) + struct.pack(">i", partition) + b"\0"
        request += struct.pack(">i", 0)  # the coordinator's epoch
        if version >= 2:
            request += struct.pack(">b", transaction_version)
        answer = self.call(WRITE_TXN_MARKERS, version, request + b"\0\0", flexible=True)
        answer.unsigned_varint()
        answer.skip(8)
        answer.enter_only_partition(flexible=True)
        return answer.take("h")

    def wait_for_leader(
        self, topic: str, partition: int, *, version: int, seconds: float = 30
    ) -> None:
        """Wait until the broker answers for the partition, or returns a lasting error.

        Parameters
        ----------
        topic, partition : str, int
            What is queried.
        version : int
            0 for brokers that know no other ListOffsets, else 1.
        seconds : float
            How long to wait.
        """
        deadline = time.monotonic() + seconds
        while True:
            if version >= 1:
                error = self.list_offsets(topic, partition, LATEST_TIMESTAMP)["error"]
            else:
                error = self.list_offsets_v0(topic, partition, LATEST_TIMESTAMP, 1)[0]
            if error not in RETRIABLE_ERRORS or time.monotonic() > deadline:
                return
            time.sleep(0.1)
