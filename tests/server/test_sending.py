"""Records are sent whole, however fast a client takes them and however its requests arrive."""

from __future__ import annotations

import contextlib
import os
import time
from types import SimpleNamespace

import pytest
from models.open_files import open_files
from models.protocol_client import LARGEST, ProtocolClient

import kafkastore
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.apis import (
    ApiKey,
    RequestHeader,
    pack_request,
    parse_response,
)
from kafkastore.segment.log_file import LogFile
from kafkastore.server import connections, serve
from kafkastore.server.fetch import verified_ranges
from kafkastore.server.fetch.verified_ranges import VerifiedRange, VerifiedRanges

VALUE = bytes(range(256)) * 256
PLACE = ("t", 0)


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """A log directory with 16 MB, more than the buffers of sockets hold."""
    path = tmp_path_factory.mktemp("large") / "logs"
    with kafkastore.LogDirWriter(path) as log_dir:
        writer = log_dir.writer("t", 0)
        for number in range(256):
            writer.append_records([
                SimpleNamespace(timestamp=1_600_000_000_000 + number, key=None, value=VALUE)
            ])
    return path


@pytest.fixture(scope="module")
def content(logs):
    (path,) = (logs / "t-0").glob("*.log")
    return path.read_bytes()


@pytest.fixture
def client(logs):
    with (
        serve(logs) as served,
        ProtocolClient(served.bootstrap_servers) as client,
    ):
        yield client


def fetch_request(offset, size, correlation_id=1):
    """Return the header and the frame of a Fetch."""
    header = RequestHeader(ApiKey.FETCH, 11, correlation_id, "tests")
    row = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": size}
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": LARGEST}
    topics = ({"topic": "t", "partitions": (row,)},)
    return header, pack_request(header, {**fields, "topics": topics})


def records_in(header, frame):
    (row,) = parse_response(header, frame)["responses"][0]["partitions"]
    assert row["error_code"] == ErrorCode.NONE
    return row["records"]


@pytest.mark.parametrize("pause", [0.3, 2])
def test_a_client_that_pauses_gets_all_in_the_end(client, content, pause):
    for _ in range(2):
        header, frame = fetch_request(0, LARGEST)
        client.socket.sendall(frame)
        time.sleep(pause)
        assert records_in(header, client.receive()) == content
    assert client.topic_ids()


def test_a_client_that_takes_nothing_does_not_hold_up_the_end(logs, monkeypatch):
    monkeypatch.setattr(connections, "_CLOSE_SECONDS", 10_000)
    with contextlib.ExitStack() as stack:
        with serve(logs) as served:
            for _ in range(3):
                waiting = stack.enter_context(ProtocolClient(served.bootstrap_servers))
                waiting.socket.sendall(fetch_request(0, LARGEST)[1])
            with ProtocolClient(served.bootstrap_servers) as other:
                assert other.topic_ids()
        assert open_files(logs) == []


def test_a_client_that_leaves_in_the_middle_leaves_no_file_open(logs, monkeypatch):
    monkeypatch.setattr(connections, "CLOSE_UNUSED_EVERY", 0.2)
    with serve(logs) as served:
        for _ in range(5):
            with ProtocolClient(served.bootstrap_servers) as client:
                client.socket.sendall(fetch_request(0, LARGEST)[1])
                client.socket.recv(100)
        deadline = time.monotonic() + 800
        while open_files(logs) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert open_files(logs) == []


@pytest.mark.parametrize("pause", [0, 0.02, 0.15], ids=["at once", "soon", "later"])
def test_requests_of_all_kinds_are_answered_in_their_order(client, content, pause):
    sent = []
    for number in range(12):
        if number % 3 == 2:
            header = RequestHeader(ApiKey.METADATA, 12, number, "tests")
            frame = pack_request(header, {"topics": None})
        else:
            header, frame = fetch_request(0, 200_000, number)
        sent.append(header)
        client.socket.sendall(frame)
        time.sleep(pause)
        if number % 4 == 3:
            for each in sent:
                answer = client.receive()
                if each.api_key == ApiKey.METADATA:
                    assert parse_response(each, answer)["topics"]
                else:
                    found = records_in(each, answer)
                    assert len(found) > 100_000
                    assert content.startswith(found)
            sent = []


@pytest.mark.parametrize("at", [1, 3, 4, 20, -1])
def test_a_request_may_come_in_two_pieces(client, content, at):
    header, frame = fetch_request(0, 200_000)
    for pause in (0.01, 0.2):
        client.socket.sendall(frame)
        assert content.startswith(records_in(header, client.receive()))
        client.socket.sendall(frame[:at])
        time.sleep(pause)
        client.socket.sendall(frame[at:])
        assert content.startswith(records_in(header, client.receive()))


def test_a_request_that_is_none_ends_the_connection_after_records_too(client):
    header, frame = fetch_request(0, 200_000)
    client.socket.sendall(frame)
    assert records_in(header, client.receive())
    client.socket.sendall(bytes.fromhex("0000000a 0001 0063 00000001 ffff"))
    assert client.has_ended()


# Ranges that were verified before


@pytest.fixture
def settled(monkeypatch):
    monkeypatch.setattr(verified_ranges, "SETTLED_NS", -1)


@pytest.mark.usefixtures("settled")
def test_ranges_are_found_as_far_as_they_fit(logs):
    (path,) = (logs / "t-0").glob("*.log")
    with LogFile(path) as log:
        ranges = VerifiedRanges(log)
        assert ranges.find(1000, LARGEST, LARGEST) is None
        for number in range(4):
            ranges.add(1000 + 10 * number, VerifiedRange(50 * number, 50, 1010 + 10 * number))
        assert ranges.find(1000, 2000, 200) == (0, 200, 1040)
        assert ranges.find(1000, 2000, 400) == (0, 200, 1040)
        assert ranges.find(1000, 2000, 401) is None    # few: more may follow
        assert ranges.find(1000, 1040, LARGEST) == (0, 200, 1040)
        assert ranges.find(1010, 2000, 149) == (50, 100, 1030)
        assert ranges.find(1000, 1039, 160) == (0, 150, 1030)
        assert ranges.find(1000, 1009, 100) is None
        assert ranges.find(1000, 2000, 49) is None
        assert ranges.find(1005, 2000, 100) is None
        assert VerifiedRanges(log).find(1030, 2000, 50) == (150, 50, 1040)
        ranges.add(1040, VerifiedRange(200, log.size - 200, 1050))
        assert ranges.find(1040, 2000, LARGEST) == (200, log.size - 200, 1050)


def test_nothing_is_kept_of_a_file_that_changed_a_moment_ago(tmp_path, monkeypatch):
    assert verified_ranges.SETTLED_NS >= 2_000_000_000  # the resolution of some file systems
    monkeypatch.setattr(verified_ranges, "SETTLED_NS", 10**18)
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(bytes(100))
    with LogFile(path) as log:
        VerifiedRanges(log).add(0, VerifiedRange(0, 100, 1))
        assert VerifiedRanges(log).find(0, LARGEST, LARGEST) is None


@pytest.mark.usefixtures("settled")
def test_a_range_that_changed_is_verified_again(tmp_path):
    with kafkastore.LogDirWriter(tmp_path / "logs") as log_dir:
        writer = log_dir.writer("t", 0)
        for number in range(3):
            writer.append_records([
                SimpleNamespace(timestamp=number, key=None, value=b"%d" % number)
            ])
    (path,) = (tmp_path / "logs" / "t-0").glob("*.log")
    with (
        serve(tmp_path / "logs") as served,
        ProtocolClient(served.bootstrap_servers) as client,
    ):
        for _ in range(2):
            (row,) = client.fetch(11, {PLACE: 0}).values()
            assert row["records"] == path.read_bytes()
        with path.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"?")
        (row,) = client.fetch(11, {PLACE: 0}).values()
        assert path.read_bytes().startswith(row["records"])
        assert 0 < len(row["records"]) < path.stat().st_size
        (row,) = client.fetch(11, {PLACE: 2}).values()
        assert row["error_code"] == ErrorCode.CORRUPT_MESSAGE
