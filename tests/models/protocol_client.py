"""A client that sends any request over a socket, by the package's own codec."""

from __future__ import annotations

import socket
from contextlib import AbstractContextManager
from typing import NamedTuple

from kafkastore.formats.requests.apis import ApiKey, RequestHeader, pack_request, parse_response

FIRST_FETCH_WITH_TOPIC_IDS = 13
FIRST_API_VERSIONS_WITH_SOFTWARE = 3
SOFTWARE = {"client_software_name": "tests", "client_software_version": "1"}
LARGEST = 2**31 - 1
READ_COMMITTED = 1


class ProtocolClient(AbstractContextManager):
    """A connection to a server on this machine."""

    def __init__(self, bootstrap_servers, client_id="tests"):
        host, _, port = bootstrap_servers.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 800)
        self._correlation_id, self._client_id = 0, client_id

    def __exit__(self, *_):
        self.socket.close()

    def ask(self, api_key, version, **fields):
        """Return the response to a request; ConnectionError if the server ends the connection."""
        header = self.send(api_key, version, **fields)
        return parse_response(header, self.receive())

    def send(self, api_key, version, **fields):
        """Send a request without awaiting its response."""
        self._correlation_id += 1
        if api_key == ApiKey.API_VERSIONS and version >= FIRST_API_VERSIONS_WITH_SOFTWARE:
            fields = SOFTWARE | fields
        header = RequestHeader(api_key, version, self._correlation_id, self._client_id)
        self.socket.sendall(pack_request(header, fields))
        return header

    def receive(self):
        """Return the next frame, without its size."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, size):
        received = bytearray()
        while len(received) < size:
            more = self.socket.recv(size - len(received))
            if not more:
                raise ConnectionResetError("the server closed the connection")
            received += more
        return bytes(received)

    def has_ended(self):
        """Whether the server closes the connection without sending anything more."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def topic_ids(self):
        """Return the id of each topic."""
        found = self.ask(ApiKey.METADATA, 12, topics=None)
        return {topic["name"]: topic["topic_id"] for topic in found["topics"]}

    def fetch(self, version, places, **fields):
        """Return {(topic, partition): row} for {(topic, partition): offset}.

        `partition_max_bytes` and the fields of the request may be given.
        """
        room = fields.pop("partition_max_bytes", LARGEST)
        ids = self.topic_ids() if version >= FIRST_FETCH_WITH_TOPIC_IDS else {}
        topics = {}
        for (topic, number), offset in places.items():
            row = {"partition": number, "fetch_offset": offset, "partition_max_bytes": room}
            topics.setdefault(topic, []).append(row)
        answer = self.ask(
            ApiKey.FETCH, version,
            **{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": LARGEST} | fields,
            topics=[
                {"topic_id": ids[topic]} | {"partitions": rows} if ids
                else {"topic": topic, "partitions": rows}
                for topic, rows in topics.items()
            ],
        )
        names = {topic_id: name for name, topic_id in ids.items()}
        return {
            (names[topic["topic_id"]] if ids else topic["topic"], row["partition_index"]): row
            for topic in answer["responses"] for row in topic["partitions"]
        }


class Batch(NamedTuple):
    """A batch as a consumer sees it before it reads the records."""

    data: bytes
    last_offset: int
    producer_id: int
    is_transactional: bool
    is_control: bool


def batches(data):
    """Divide bytes into whole batches; return also how many bytes they have."""
    found, at = [], 0
    while len(data) - at >= 17:
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if size <= 12 or at + size > len(data):
            break
        batch = data[at : at + size]
        at += size
        last = int.from_bytes(batch[:8], "big")
        if batch[16] < 2:
            found.append(Batch(batch, last, -1, False, False))
            continue
        attributes = int.from_bytes(batch[21:23], "big")
        found.append(Batch(
            batch,
            last + int.from_bytes(batch[23:27], "big"),
            int.from_bytes(batch[43:51], "big", signed=True),
            bool(attributes & 0x10),
            bool(attributes & 0x20),
        ))
    return found, at


def committed_batches(found, aborted):
    """Yield the batches that a read_committed consumer reads.

    Source: Kafka 3.8 ``CompletedFetch.nextFetchedRecord``.
    """
    left = sorted(aborted, key=lambda each: each["first_offset"])
    producers = set()
    for batch in found:
        while left and left[0]["first_offset"] <= batch.last_offset:
            producers.add(left.pop(0)["producer_id"])
        if batch.is_control:
            # Its only record has a key of version and type; 0 is ABORT.
            key = batch.data[batch.data.index(b"\x08\0\0\0", 61) + 1 :][:4]
            if key == bytes(4):
                producers.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in producers):
            yield batch
