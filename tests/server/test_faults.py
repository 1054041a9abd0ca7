"""A server under bad clients and changing files: healthy clients get every record, and only those.

The server is a process of its own, whose memory is measured. A writer extends some partitions and
deletes their oldest segments; files of another are truncated and written again. Bad clients do
what their functions say. The value of each record is its partition and offset.
"""
from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, chain
from pathlib import Path
from types import SimpleNamespace

import pytest
from models.protocol_client import LARGEST, ProtocolClient, batches
from models.record_reader import read_records
from models.seed import IN_FULL, SEED

import kafkastore
from kafkastore.formats.primitives.crc import crc32c
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests import apis
from kafkastore.formats.requests.apis import REQUESTS, ApiKey, RequestHeader, pack_request
from kafkastore.segment.log_segment import LogSegment
from kafkastore.server import serve
from kafkastore.server.client import EndReason

PROGRAM = str(Path(sys.executable).with_name("kafkastore"))
GROWING, STILL = ("growing", 0), ("still", 0)
SEGMENT_BYTES = 200_000
MOST_SEGMENTS = 8
#: More than what a server needs with hundreds of connections.
MOST_MEMORY = 250 * 1024 * 1024
#: How connections of healthy clients may end; a file may change while it is sent.
OF_HEALTHY = {EndReason.CLIENT_CLOSED, EndReason.FILE_CHANGED, EndReason.SERVER_ENDS}
BAD_CLIENTS, HEALTHY_CLIENTS = 6, 2


def value_of(place, offset):
    """Return the value of a record, of up to 2 KB."""
    text = b"%s-%d@%d " % (place[0].encode(), place[1], offset)
    return text * (1 + zlib.crc32(text) % 80)


class Directory:
    """A log directory whose files change."""

    def __init__(self, path):
        self.path, self._random = path, random.Random(SEED)
        self._log_dir = kafkastore.LogDirWriter(path)
        self._writers = {
            place: self._log_dir.writer(*place, {"segment.bytes": SEGMENT_BYTES})
            for place in (GROWING, STILL)
        }
        for place in self._writers:
            for _ in range(60):
                self.append(place)
        self._log_dir.close()
        self._log_dir = kafkastore.LogDirWriter(path)
        self._writers = {GROWING: self._log_dir.writer(*GROWING, {"segment.bytes": SEGMENT_BYTES})}

    def append(self, place):
        """Append a batch."""
        writer = self._writers[place]
        start = writer.log_end_offset
        writer.append_records([
            SimpleNamespace(timestamp=offset, key=None, value=value_of(place, offset))
            for offset in range(start, start + self._random.randrange(1, 30))
        ])
        writer.flush()

    def delete_oldest(self):
        """Delete the oldest segment, as retention does: rename, then unlink."""
        logs = sorted((self.path / "growing-0").glob("*.log"))
        if len(logs) > MOST_SEGMENTS:
            for suffix in (".log", ".index", ".timeindex"):
                path = logs[0].with_suffix(suffix)
                deleted = path.with_name(path.name + ".deleted")
                path.rename(deleted)
                deleted.unlink()

    def truncate(self):
        """Truncate a file, and write the same bytes again after a while."""
        files = [each for each in (self.path / "still-0").iterdir() if each.suffix == ".log"]
        path = self._random.choice(files)
        content = path.read_bytes()
        sizes = (len(batch.data) for batch in batches(content)[0])
        # Between two batches it would look as if compaction had removed the following records.
        ends = {0, *accumulate(sizes)}
        kept = self._random.choice([at for at in range(0, len(content), 7) if at not in ends])
        with path.open("r+b") as file:
            file.truncate(kept)
            time.sleep(0.02)
            file.seek(kept)
            file.write(content[kept:])

    def change(self, is_over, failures):
        """Change files until it is over."""
        try:
            while not is_over.wait(0.01):
                self.append(GROWING)
                if self._random.random() < 0.2:
                    self.delete_oldest()
                if self._random.random() < 0.1:
                    self.truncate()
        except Exception as error:
            failures.append(error)
        finally:
            self._log_dir.close()


# Bad clients: each function has a connected socket and random numbers.


def fetch_request(chance, wait_ms=0):
    places = [chance.choice((GROWING, STILL)) for _ in range(chance.randrange(1, 4))]
    topics = tuple(
        {"topic": topic, "partitions": ({
            "partition": number, "fetch_offset": chance.choice((0, 100, 1000)),
            "partition_max_bytes": LARGEST,
        },)}
        for topic, number in places
    )
    return pack_request(RequestHeader(ApiKey.FETCH, chance.choice((4, 11, 12)), 1, "bad"), {
        "max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": LARGEST, "topics": topics,
    })


def leave_in_the_middle_of_a_response(sock, chance):
    sock.sendall(fetch_request(chance))
    sock.recv(chance.randrange(1, 100_000))
    if chance.random() < 0.5:    # a reset instead of an orderly end
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def leave_while_waiting(sock, chance):
    sock.sendall(fetch_request(chance, wait_ms=LARGEST))


def close_one_half(sock, chance):
    sock.sendall(fetch_request(chance))
    sock.shutdown(socket.SHUT_WR)
    sock.recv(1000)


def ask_and_never_read(sock, chance):
    with contextlib.suppress(TimeoutError):
        for _ in range(1000):
            sock.sendall(fetch_request(chance))
    time.sleep(0.2)


def drip(sock, chance):
    for byte in fetch_request(chance)[: chance.randrange(4, 12)]:
        sock.sendall(bytes([byte]))
        time.sleep(0.05)


def send_random_bytes(sock, chance):
    sock.sendall(chance.randbytes(chance.randrange(1, 5000)))
    sock.recv(1000)


def send_sized_random_bytes(sock, chance):
    data = chance.randbytes(chance.randrange(0, 2000))
    sock.sendall(len(data).to_bytes(4, "big") + data)
    sock.recv(1000)


def announce_too_much(sock, chance):
    size = chance.choice((-1, -(2**31), 2**31 - 1, 8 * 2**20 + 1, 8 * 2**20))
    sock.sendall(size.to_bytes(4, "big", signed=True) + bytes(chance.randrange(100_000)))
    sock.recv(1000)


def send_a_damaged_request(sock, chance):
    """Flip bits of lengths, compact lengths, tags and others after a correct header."""
    key = chance.choice(sorted(REQUESTS.descriptions))
    versions = REQUESTS.descriptions[key].versions
    head = apis.pack_request_header(RequestHeader(
        key, chance.randrange(versions.oldest, versions.newest + 1), 1, "bad"
    ))
    if key == ApiKey.FETCH and chance.random() < 0.5:
        body = bytearray(fetch_request(chance)[4 + len(head):])
    else:
        body = bytearray(chance.randbytes(chance.randrange(0, 200)))
    for _ in range(chance.randrange(1, 4)):
        if body:
            at = chance.randrange(len(body))
            body[at : at + 1] = chance.choice((4 * b"\xff" + b"\x0f", b"\x7f\xff", b"\0", b"\x80"))
    sock.sendall((len(head) + len(body)).to_bytes(4, "big") + head + body)
    sock.recv(1000)


def send_compressed_garbage(sock, chance):
    """Produce batches whose compressed bytes are none: nothing decompresses them."""
    batch = bytearray(chance.randbytes(200))
    batch[8:12], batch[16:17], batch[21:23] = (188).to_bytes(4, "big"), b"\2", b"\0\4"
    sock.sendall(pack_request(RequestHeader(ApiKey.PRODUCE, 9, 1, "bad"), {
        "acks": chance.choice((0, 1, -1)), "timeout_ms": 1, "topic_data": (
            {"name": "still", "partition_data": ({"index": 0, "records": bytes(batch)},)},
        ),
    }))
    sock.recv(1000)


def speak_tls(sock, chance):
    sock.sendall(bytes.fromhex("16030100c8010000c40303") + chance.randbytes(193))
    sock.recv(1000)


def join_and_leave(sock, chance):
    sock.sendall(pack_request(RequestHeader(ApiKey.JOIN_GROUP, 2, 1, "bad"), {
        "group_id": f"g{chance.randrange(3)}", "session_timeout_ms": 6000,
        "rebalance_timeout_ms": chance.choice((1, 300_000)), "member_id": "",
        "protocol_type": "consumer", "protocols": ({"name": "range", "metadata": b""},),
    }))


BAD = [
    leave_in_the_middle_of_a_response, leave_while_waiting, close_one_half, ask_and_never_read,
    drip, send_random_bytes, send_sized_random_bytes, announce_too_much, send_a_damaged_request,
    send_compressed_garbage, speak_tls, join_and_leave,
]


def misbehave(address, number, is_over, counts, failures):
    """Be one bad client after the other."""
    chance = random.Random(SEED + number)
    host, _, port = address.rpartition(":")
    while not is_over.is_set():
        act = chance.choice(BAD)
        try:
            sock = socket.create_connection((host, int(port)), 800)
        except OSError as error:
            failures.append(error)
            return
        with sock, contextlib.suppress(OSError):    # the server ends it, or waits for more
            sock.settimeout(0.3)
            act(sock, chance)
        counts[act.__name__] += 1


def read_on(address, number, is_over, counts, failures):
    """Read all partitions again and again, and compare each record with its place."""
    chance = random.Random(SEED - number)
    offsets = {GROWING: 0, STILL: 0}
    try:
        while not is_over.is_set():
            with contextlib.suppress(ConnectionError), ProtocolClient(address) as client:
                while not is_over.is_set():
                    rows = client.fetch(
                        chance.choice((4, 11, 12)), offsets, max_wait_ms=50,
                        partition_max_bytes=chance.choice((1, 100_000, LARGEST)),
                    )
                    for place, row in rows.items():
                        offsets[place] = check_row(place, row, offsets[place], counts)
    except Exception as error:
        failures.append(error)


def check_row(place, row, offset, counts):
    """Check the records of a partition; return where to go on."""
    if row["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE:
        return max(row["log_start_offset"], 0)
    if row["error_code"]:    # a truncated file
        assert place == STILL or row["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR, row
        counts["errors"] += 1
        time.sleep(0.01)
        return offset
    expected = None
    found, size = batches(row["records"])
    if size < len(row["records"]) or not all(map(has_its_checksum, found)):
        # Truncated while its pages were on their way: they lie in the page cache (sendfile).
        assert place == STILL, (place, offset)
        counts["torn"] += 1
        return offset
    for at, _, _, _, value, *_ in chain.from_iterable(
        read_records(batch.data) for batch in found
    ):
        if at < offset:    # the beginning of its batch
            continue
        assert at == (offset if expected is None else expected), (place, offset, at)
        assert value == value_of(place, at)
        expected = at + 1
        counts["records", place] += 1
    if expected is None and place == STILL and offset >= row["high_watermark"]:
        return 0    # again from the start
    return offset if expected is None else expected


def has_its_checksum(batch):
    return crc32c(batch.data[21:]) == int.from_bytes(batch.data[17:21], "big")


def memory_of(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if "VmRSS" in line)


@contextlib.contextmanager
def running(path, log) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with log.open("w") as err, subprocess.Popen(
        [PROGRAM, "serve", str(path), "--listen", "127.0.0.1:0", "--json", "--verbose"],
        text=True, stdout=subprocess.PIPE, stderr=err,
    ) as process:
        try:
            yield process, json.loads(process.stdout.readline())["bootstrap_servers"]
        finally:
            process.kill()


def survive(path, seconds, acts=()):
    """Serve a changing directory to bad and healthy clients; return what they did.

    It takes some time, and longer until all partitions were read and the named acts were done.
    """
    directory, is_over = Directory(path), threading.Event()
    counts, failures = Counter(), []
    log = path.with_name("clients")
    with running(path, log) as (process, address):
        threads = [
            threading.Thread(target=directory.change, args=(is_over, failures)),
            *(
                threading.Thread(target=work, args=(address, number, is_over, counts, failures))
                for work, several in ((misbehave, BAD_CLIENTS), (read_on, HEALTHY_CLIENTS))
                for number in range(several)
            ),
        ]
        for thread in threads:
            thread.start()
        memory, end = [], time.monotonic() + seconds
        awaited = {*acts, ("records", GROWING), ("records", STILL)}
        while process.poll() is None and not failures and (
            time.monotonic() < end or not all(counts[each] for each in awaited)
        ):
            time.sleep(0.2)
            memory.append(memory_of(process))
        is_over.set()
        for thread in threads:
            thread.join()
        assert failures == []
        with ProtocolClient(address) as client:
            assert set(client.topic_ids()) == {"growing", "still"}
        # Of all that was begun nothing stays open.
        deadline = time.monotonic() + 800
        while any("/still-0/" in name for name in open_files_of(process)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(800) == 0
    for line in log.read_text().splitlines():
        ended = re.fullmatch(r"127.0.0.1:\d+ (?:connected|disconnected: ([a-z-]+).*)", line)
        if ended is None:    # a log that was cut, and is to be
            assert "/still-0/" in line
        elif ended[1] is not None:
            counts[EndReason(ended[1])] += 1
            assert "client tests" not in line or EndReason(ended[1]) in OF_HEALTHY, line
    assert counts[EndReason.INTERNAL_ERROR] == 0
    assert max(memory) < MOST_MEMORY
    assert min(counts["records", GROWING], counts["records", STILL]) > 0
    return counts, memory


def open_files_of(process):
    for name in os.listdir(f"/proc/{process.pid}/fd"):
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/{process.pid}/fd/{name}")


def test_healthy_clients_are_served_under_faults(tmp_path):
    survive(tmp_path / "logs", 3)


@pytest.mark.soak
def test_healthy_clients_are_served_under_faults_for_longer(tmp_path):
    acts = {each.__name__ for each in BAD}
    counts, memory = survive(tmp_path / "logs", 300 if IN_FULL else 15, acts)
    half = len(memory) // 2
    assert max(memory[half:]) < max(memory[:half]) + 50 * 1024 * 1024
    print(dict(counts), f"largest memory {max(memory)} bytes")


def test_a_segment_that_is_truncated_while_it_is_read_is_not_passed_over(tmp_path, monkeypatch):
    monkeypatch.undo()    # the truncation happens in a thread of the server
    with kafkastore.LogDirWriter(tmp_path / "logs") as log_dir:
        writer = log_dir.writer("t", 0, {"segment.bytes": 40_000, "index.interval.bytes": 1000})
        for number in range(30):
            writer.append_records([SimpleNamespace(timestamp=number, key=None, value=bytes(5000))])
    first, following, *_ = sorted((tmp_path / "logs" / "t-0").glob("*.log"))
    find, truncated = LogSegment.position_before, []

    def truncating(segment, offset, log):
        position = find(segment, offset, log)
        if segment.base_offset == 0 and not truncated:
            truncated.append(position)
            os.truncate(first, position - 1)
        return position

    last = int(following.stem) - 1
    with serve(tmp_path / "logs") as served, ProtocolClient(served.bootstrap_servers) as client:
        assert client.fetch(11, {("t", 0): last})["t", 0]["records"]
        os.utime(first)    # what is known of it is read again
        monkeypatch.setattr(LogSegment, "position_before", truncating)
        (row,) = client.fetch(11, {("t", 0): last}).values()
        assert truncated[0] > 0
        assert row["error_code"] != ErrorCode.NONE
        assert row["records"] == b""
