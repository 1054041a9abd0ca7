"""A client that sends ListOffsets requests over a socket, by the package's own codec."""

from __future__ import annotations

import socket
import struct
from contextlib import AbstractContextManager

from kafkastore.formats.requests.apis import (
    ApiKey,
    RequestHeader,
    pack_request_header,
    parse_response_header,
)
from kafkastore.formats.requests.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    pack_request,
    parse_response,
)


class ListOffsetsClient(AbstractContextManager):
    """A connection to a broker on this machine."""

    def __init__(self, port):
        self._socket = socket.create_connection(("127.0.0.1", port), 800)
        self._correlation_id = 0

    def __exit__(self, *_):
        self._socket.close()

    def ask(self, topic, timestamps, *, version, isolation=0):
        """{partition: ListOffsetsPartitionResponse} for {partition: timestamp}."""
        partitions = tuple(
            ListOffsetsPartition(number, timestamp) for number, timestamp in timestamps.items()
        )
        request = ListOffsetsRequest(
            (ListOffsetsTopic(topic, partitions),), isolation_level=isolation, timeout_ms=30_000
        )
        (topic_answer,) = self.exchange(request, version).topics
        assert topic_answer.name == topic
        found = {each.partition_index: each for each in topic_answer.partitions}
        assert found.keys() == timestamps.keys()
        return found

    def exchange(self, request, version):
        """The response to any request."""
        self._correlation_id += 1
        header = RequestHeader(ApiKey.LIST_OFFSETS, version, self._correlation_id, "kafkastore")
        frame = pack_request_header(header) + pack_request(request, version)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        answer = self._receive(struct.unpack(">i", self._receive(4))[0])
        return parse_response(answer[parse_response_header(answer, header) :], version)

    def _receive(self, size):
        received = b""
        while len(received) < size:
            more = self._socket.recv(size - len(received))
            assert more, "the broker hung up"
            received += more
        return received
