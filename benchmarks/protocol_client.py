"""A client of a broker, or of ``kafkastore serve``, that does no more than it must."""
from __future__ import annotations

import json
import socket
import struct
import sys
import time
from typing import Any

from kafkastore.formats.requests.apis import (
    ApiKey,
    RequestHeader,
    pack_request,
    parse_response,
)

MIB = 1 << 20
FETCH_VERSION, LIST_OFFSETS_VERSION, METADATA_VERSION = 12, 7, 12
_BATCH_HEAD = struct.Struct(">qi")
_MAGIC_2_LAST_OFFSET_DELTA = struct.Struct(">i")


class Client:
    """A connection."""

    def __init__(self, address: str, buffer_bytes: int = 2 * MIB) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(buffer_bytes)

    def close(self) -> None:
        """End the connection."""
        self.socket.close()

    def ask(self, api_key: int, version: int, **fields: Any) -> dict[str, Any]:
        """Return the response to a request."""
        header, request = packed(api_key, version, fields)
        self.socket.sendall(request)
        return parse_response(header, bytes(self.receive()))

    def receive(self) -> memoryview:
        """Return the next frame, without its size, in memory that is reused."""
        size = int.from_bytes(self._exactly(4), "big")
        return self._exactly(size)

    def _exactly(self, size: int) -> memoryview:
        if len(self._buffer) < size:
            self._buffer = bytearray(2 * size)
        view = memoryview(self._buffer)[:size]
        done = 0
        while done < size:
            got = self.socket.recv_into(view[done:])
            if not got:
                raise ConnectionResetError("the server closed the connection")
            done += got
        return view


def packed(api_key: int, version: int, fields: dict[str, Any]) -> tuple[RequestHeader, bytes]:
    """Return a request, and its header."""
    header = RequestHeader(api_key, version, 1, "benchmark")
    return header, pack_request(header, fields)


def fetch_fields(places: dict[tuple[str, int], int], room: int = MIB) -> dict[str, Any]:
    """Return what to ask for records at the offsets of partitions."""
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, number), offset in places.items():
        topics.setdefault(topic, []).append(
            {"partition": number, "fetch_offset": offset, "partition_max_bytes": room}
        )
    return {
        "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 50 * MIB,
        "topics": [{"topic": topic, "partitions": rows} for topic, rows in topics.items()],
    }


def times_fields(places: list[tuple[str, int, int]]) -> dict[str, Any]:
    """Return what to ask for the offsets of times in partitions."""
    topics: dict[str, list[dict[str, int]]] = {}
    for topic, number, timestamp in places:
        topics.setdefault(topic, []).append({"partition_index": number, "timestamp": timestamp})
    return {
        "replica_id": -1,
        "topics": [{"name": topic, "partitions": rows} for topic, rows in topics.items()],
    }


def drain(address: str, topic: str, records: int) -> dict[str, float]:
    """Fetch records of the only partition of a topic, a request after the other."""
    client = Client(address)
    offset, total, started = 0, 0, time.perf_counter()
    while True:
        answer = client.ask(
            ApiKey.FETCH, FETCH_VERSION, **fetch_fields({(topic, 0): offset})
        )
        (row,) = answer["responses"][0]["partitions"]
        if row["error_code"]:
            raise SystemExit(f"error {row['error_code']} at offset {offset}")
        following, size = after_last_batch(row["records"])
        if not size:
            raise SystemExit(f"no records at offset {offset}")
        offset, total = following, total + size
        if offset >= min(records, row["high_watermark"]):
            break
    return {"bytes": total, "end": offset, "seconds": time.perf_counter() - started}


def after_last_batch(records: bytes) -> tuple[int, int]:
    """Return the offset after the whole batches, and the number of their bytes."""
    at, last = 0, -1
    while len(records) - at >= 61:
        base, length = _BATCH_HEAD.unpack_from(records, at)
        if at + 12 + length > len(records):
            break
        last = base + _MAGIC_2_LAST_OFFSET_DELTA.unpack_from(records, at + 23)[0]
        at += 12 + length
    return last + 1, at


def read_by_librdkafka(address: str, topic: str, records: int) -> dict[str, float]:
    """Read records of the only partition of a topic by confluent-kafka, in a tight loop."""
    from confluent_kafka import Consumer, TopicPartition

    # Without the backoff, the client pauses for a second each time it has fetched 100,000 records
    # more than it has handed out: a faster server would make it slower.
    consumer = Consumer({
        "bootstrap.servers": address, "group.id": "benchmark", "enable.auto.commit": False,
        "fetch.queue.backoff.ms": 1,
    })
    started = time.perf_counter()
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.assign([TopicPartition(topic, 0, 0)])
    total, offset = 0, 0
    while offset < min(records, end):
        for message in consumer.consume(10_000, 10):
            if message.error():
                raise SystemExit(str(message.error()))
            total += len(message.value())
            offset = message.offset() + 1
    seconds = time.perf_counter() - started
    consumer.close()
    return {"bytes": total, "end": offset, "seconds": seconds}


if __name__ == "__main__":
    how, its_address, its_topic, count = sys.argv[1:]
    read = {"drain": drain, "librdkafka": read_by_librdkafka}[how]
    print(json.dumps(read(its_address, its_topic, int(count))))
