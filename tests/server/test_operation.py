"""How a server keeps going: limits of clients, its end, what it reads again, what it counts."""
from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from urllib.error import URLError

import pytest
from models.log_directory import Log, Segment
from models.protocol_client import LARGEST, ProtocolClient, batches
from models.record_format import Batch, Row
from models.unprivileged import as_nobody, give_to_nobody
from prometheus_client.parser import text_string_to_metric_families

import kafkastore
from kafkastore import samples
from kafkastore.errors import ArgumentTypeError, ArgumentValueError
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests import apis
from kafkastore.formats.requests.apis import ApiKey
from kafkastore.formats.topics.consumer_offsets import OffsetCommitKey
from kafkastore.server import serve, serving
from kafkastore.server.authentication import UsersFileError
from kafkastore.server.catalog import Catalog
from kafkastore.server.client import ClientLimits, EndReason
from kafkastore.server.connections import CONNECTION_LOG
from kafkastore.server.fetch import fetch_requests
from kafkastore.server.log_metrics import LogMetrics
from kafkastore.store.log_store import open_store

TLS = Path(__file__).with_name("certificate.pem"), Path(__file__).with_name("key.pem")
PATIENCE = 800


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return samples.unpack(tmp_path_factory.mktemp("samples"))[-1]


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A log that no socket holds: 64 MiB."""
    with kafkastore.LogDirWriter(tmp_path / "large") as log_dir:
        writer = log_dir.writer("large", 0)
        for number in range(80):
            writer.append_records([
                SimpleNamespace(timestamp=number, key=None, value=bytes(900_000))
            ])
    return tmp_path / "large"


def limited(path: Path, **limits: Any) -> AbstractContextManager[serving.ServedCluster]:
    """Serve a directory with limits, which may be shorter than those of users."""
    options = {name: limits.pop(name) for name in ("tls", "users", "metrics") if name in limits}
    store = open_store(path)
    return serving.serve_catalog(
        Catalog(lambda: (store, list(store.partitions))),
        listen=serving.FREE_PORT, limits=ClientLimits(**limits), **options,
    )


def connect(served: serving.ServedCluster) -> socket.socket:
    host, _, port = served.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE)


@pytest.fixture
def ends() -> Iterator[list[tuple[EndReason, str]]]:
    """The reasons why connections ended, and who had them."""
    found: list[tuple[EndReason, str]] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            for each in record.args or ():
                if isinstance(each, EndReason):
                    found.append((each, str(record.args[-1])))    # type: ignore[index]

    handler = Handler()
    CONNECTION_LOG.addHandler(handler)
    CONNECTION_LOG.setLevel(logging.INFO)
    yield found
    CONNECTION_LOG.removeHandler(handler)
    CONNECTION_LOG.setLevel(logging.NOTSET)


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[serving.ServedCluster, float], None]:
    """A function that lets seconds pass for a server; its limits see no others that matter."""
    real, passed = asyncio.BaseEventLoop.time, [0.0]
    monkeypatch.setattr(asyncio.BaseEventLoop, "time", lambda loop: real(loop) + sum(passed))

    def pass_seconds(served: serving.ServedCluster, seconds: float) -> None:
        for _ in range(3):  # what is under way gets its turn before and after
            served._thread.run_in_loop(asyncio.sleep(0)).result()
        passed.append(seconds)
        served._thread.run_in_loop(asyncio.sleep(0)).result()

    return pass_seconds


def read_to_end(sock: socket.socket, meanwhile: Callable[[], None]) -> None:
    """Take what arrives until the connection ends."""
    sock.settimeout(0.02)
    while True:
        with contextlib.suppress(TimeoutError):
            if not sock.recv(1 << 16):
                return
        meanwhile()


# Limits


def test_more_connections_than_allowed_are_closed_at_once(logs, ends):
    with (
        limited(logs, connections=2) as served, ProtocolClient(served.bootstrap_servers) as one,
    ):
        with ProtocolClient(served.bootstrap_servers) as other:
            assert one.topic_ids() == other.topic_ids()
            with ProtocolClient(served.bootstrap_servers) as third:
                assert third.has_ended()
            assert one.topic_ids()
        wait_for(lambda: EndReason.CLIENT_CLOSED in dict(ends))
        with ProtocolClient(served.bootstrap_servers) as third:
            assert third.topic_ids()
    assert [reason for reason, _ in ends].count(EndReason.TOO_MANY_CONNECTIONS) == 1
    for wrong, error in (("9", ArgumentTypeError), (0, ArgumentValueError)):
        with pytest.raises(error), serve(logs, max_connections=wrong):
            pass


def test_slow_clients_are_ended_each_for_its_reason_and_hold_up_no_other(logs, ends, pass_time):
    frame = bytes.fromhex("0000000e 0003 0001 00000001 ffff ffffffff")
    limits = {"first_request": 15_000, "idle": 30_000, "request": 10_000}
    with limited(logs, **limits) as served, contextlib.ExitStack() as stack:
        silent, dripping, half, idle = (
            stack.enter_context(connect(served)) for _ in range(4)
        )
        half.sendall(frame)
        assert half.recv(4)
        idle.sendall(frame)
        assert idle.recv(4)
        half.sendall((1000).to_bytes(4, "big"))
        slow = {silent: b"", dripping: frame, idle: b"", half: bytes(1000)}
        for turn in range(40):
            for sock, data in slow.items():
                with contextlib.suppress(ConnectionError):
                    sock.sendall(data[turn : turn + 1])
            with ProtocolClient(served.bootstrap_servers) as healthy:
                assert healthy.topic_ids()
            pass_time(served, 1000)
        for sock in slow:
            with contextlib.suppress(ConnectionError):
                while sock.recv(1 << 20):
                    pass
    reasons = [reason for reason, _ in ends]
    assert reasons.count(EndReason.NO_FIRST_REQUEST) + reasons.count(EndReason.SLOW_REQUEST) == 3
    assert EndReason.SLOW_REQUEST in reasons
    assert reasons.count(EndReason.IDLE) == 1


def test_tls_and_sasl_have_to_be_done_in_time(logs, tmp_path, ends, pass_time):
    users = tmp_path / "users"
    users.write_text("me:secret\n")
    with limited(logs, tls=TLS, users=users, first_request=50, idle=10**7) as served:
        # asyncio itself ends a handshake after 60 s.
        with connect(served) as silent:
            read_to_end(silent, lambda: pass_time(served, 10))
        context = ssl.create_default_context(cafile=TLS[0])
        with connect(served) as plain, context.wrap_socket(
            plain, server_hostname="localhost"
        ) as client:
            client.sendall(apis.pack_request(
                apis.RequestHeader(ApiKey.API_VERSIONS, 0, 1, "me"), {}
            ))
            read_to_end(client, lambda: pass_time(served, 10))
        with connect(served) as garbage:
            garbage.sendall(b"\x16\x03\x01\x00\x05 no TLS" * 9)
            with contextlib.suppress(ConnectionError):
                while garbage.recv(1 << 16):
                    pass
        wait_for(lambda: len(ends) == 3)
    assert sorted(reason for reason, _ in ends) == [
        EndReason.BAD_TLS, EndReason.NO_FIRST_REQUEST, EndReason.NO_FIRST_REQUEST,
    ]


def test_a_client_that_takes_no_response_is_ended_and_its_files_are_closed(large, ends):
    topics = ({"topic": "large", "partitions": (
        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": LARGEST},
    )},)
    with limited(large, response=1) as served, ProtocolClient(served.bootstrap_servers) as client:
        for _ in range(5):
            client.send(ApiKey.FETCH, 11, max_wait_ms=0, topics=topics)
        wait_for(lambda: ends)
    assert [reason for reason, _ in ends] == [EndReason.SLOW_RESPONSE]


def test_slow_clients_together_take_limited_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch_requests, "MAX_WAITING_BYTES", 1_000_000)
    rows = [Row(offset, 5, b"k", bytes(30_000)) for offset in range(30)]
    segment = Segment(0, tuple(Batch((row,), magic=1) for row in rows))
    root = Log((segment,), True).write(tmp_path / "old")
    for number in range(1, 20):
        shutil.copytree(root / "t-0", root / f"t-{number}")

    def count(client: ProtocolClient) -> int:
        (row,) = client.fetch(11, {("t", 0): 0}, partition_max_bytes=LARGEST).values()
        return len(batches(row["records"])[0])

    with (
        serve(root, as_v2=True) as served,
        ProtocolClient(served.bootstrap_servers) as other,
    ):
        assert count(other) > 1
        with contextlib.ExitStack() as stack:
            for _ in range(8):
                slow = stack.enter_context(ProtocolClient(served.bootstrap_servers))
                slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                slow.send(ApiKey.FETCH, 11, max_wait_ms=0, max_bytes=LARGEST, topics=({
                    "topic": "t", "partitions": tuple(
                        {"partition": each, "fetch_offset": 0, "partition_max_bytes": LARGEST}
                        for each in range(20)
                    )},))
            wait_for(lambda: count(other) == 1)
        wait_for(lambda: count(other) > 1)


def test_requests_above_the_limits_end_their_connection(logs, ends):
    names = apis.MOST_REQUEST_ELEMENTS
    with serve(logs) as served:
        with ProtocolClient(served.bootstrap_servers) as client:
            client.send(ApiKey.METADATA, 9, topics=[{"name": str(n)} for n in range(names)])
            assert len(client.receive()) > names
            client.send(ApiKey.METADATA, 9, topics=(names + 1) * ({"name": ""},))
            assert client.has_ended()
        with connect(served) as sock:
            sock.sendall((ClientLimits().request_bytes + 1).to_bytes(4, "big"))
            assert sock.recv(1) == b""
    assert [reason for reason, _ in ends] == 2 * [EndReason.BAD_REQUEST]


def test_when_no_file_can_be_opened_clients_wait_and_are_served_afterwards(logs, ends):
    real, failures = socket.socket._accept, iter(3 * [OSError(24, "Too many open files")])

    def accept(self):
        for failure in failures:
            raise failure
        return real(self)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(socket.socket, "_accept", accept)
        with serve(logs) as served, ProtocolClient(served.bootstrap_servers) as client:
            assert client.topic_ids()
    assert next(failures, None) is None


def test_a_client_that_leaves_ends_its_wait(logs, ends):
    topics = ({"topic": "up", "partitions": (
        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1},
    )},)
    with serve(logs) as served:
        with ProtocolClient(served.bootstrap_servers) as client:
            end = client.ask(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=(
                {"name": "up", "partitions": ({"partition_index": 0, "timestamp": -1},)},
            ))["topics"][0]["partitions"][0]["offset"]
            topics[0]["partitions"][0]["fetch_offset"] = end
            client.send(ApiKey.FETCH, 11, max_wait_ms=LARGEST, min_bytes=1, topics=topics)
        wait_for(lambda: ends)


# Its end


def test_draining_finishes_what_is_under_way_and_accepts_nobody(large, ends):
    topics = ({"topic": "large", "partitions": (
        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": LARGEST},
    )},)
    with limited(large, drain=10_000) as served, contextlib.ExitStack() as stack:
        busy, waiting, idle = (
            stack.enter_context(ProtocolClient(served.bootstrap_servers)) for _ in range(3)
        )
        assert idle.topic_ids()
        header = busy.send(ApiKey.FETCH, 11, max_wait_ms=0, max_bytes=LARGEST, topics=topics)
        size = int.from_bytes(busy._exactly(4), "big")
        assert size > 60_000_000
        at_end = waiting.send(ApiKey.FETCH, 11, max_wait_ms=LARGEST, min_bytes=1, topics=({
            "topic": "large", "partitions": (
                {"partition": 0, "fetch_offset": 80, "partition_max_bytes": LARGEST},
            )},))
        port, clients = waiting.socket.getsockname()[1], served._thread.connections._clients
        wait_for(lambda: (port, True) in [(c.port, c.is_answering) for c in [*clients.values()]])
        drained = served.drain()
        assert idle.has_ended()
        (row,) = apis.parse_response(at_end, waiting.receive())["responses"][0]["partitions"]
        assert (row["error_code"], row["records"]) == (ErrorCode.NONE, b"")
        assert not drained.done()
        with pytest.raises(ConnectionRefusedError):
            connect(served)
        (row,) = apis.parse_response(header, busy._exactly(size))["responses"][0]["partitions"]
        assert len(row["records"]) > 60_000_000
        assert busy.has_ended()
        drained.result(PATIENCE)
    assert {reason for reason, _ in ends} == {EndReason.SERVER_ENDS}


def test_draining_has_an_end(large):
    with limited(large, drain=0.5) as served, ProtocolClient(served.bootstrap_servers) as client:
        client.send(ApiKey.FETCH, 11, max_wait_ms=0, max_bytes=LARGEST, topics=({
            "topic": "large", "partitions": (
                {"partition": 0, "fetch_offset": 0, "partition_max_bytes": LARGEST},
            )},))
        client._exactly(4)
        served.drain().result(PATIENCE)


# What is read again


def test_new_and_vanished_partitions_are_found(logs, writable_copy):
    copy = writable_copy(logs)
    with serve(copy) as served, ProtocolClient(served.bootstrap_servers) as client:
        assert "more" not in client.topic_ids()
        shutil.copytree(copy / "up-0", copy / "more-0")
        served.reload()
        assert "more" in served.catalog.topics
        shutil.rmtree(copy / "more-0")
        served.reload()
        assert "more" not in served.catalog.topics
        shutil.rmtree(copy)
        with pytest.raises((kafkastore.KafkaStoreError, OSError)):
            served.reload()
        assert "up" in served.catalog.topics


def test_the_users_and_the_certificate_are_read_again(logs, tmp_path):
    users = tmp_path / "users"
    users.write_text("me:secret\n")
    files = [Path(shutil.copy(each, tmp_path)) for each in TLS]

    def login(served, password):
        context = ssl.create_default_context(cafile=TLS[0])
        with connect(served) as plain, context.wrap_socket(
            plain, server_hostname="localhost"
        ) as sock:
            client = ProtocolClient.__new__(ProtocolClient)
            client.socket, client._correlation_id, client._client_id = sock, 0, "tests"
            client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
            return client.ask(
                ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=b"\0me\0" + password
            )["error_code"]

    with limited(logs, tls=tuple(files), users=users) as served:
        assert login(served, b"secret") == ErrorCode.NONE
        users.write_text("me:other\n")
        served.reload()
        assert login(served, b"secret") == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert login(served, b"other") == ErrorCode.NONE
        users.write_text("me\n")
        with pytest.raises(UsersFileError):
            served.reload()
        assert login(served, b"other") == ErrorCode.NONE
        files[0].write_text("no certificate")
        with pytest.raises(ArgumentValueError):
            served.reload()
        assert login(served, b"other") == ErrorCode.NONE


# What is counted


def scraped(served: serving.ServedCluster) -> dict[tuple[str, ...], float]:
    """Return samples by name and labels."""
    with urllib.request.urlopen(f"http://{served.metrics}/metrics", timeout=PATIENCE) as answer:
        text = answer.read().decode()
    return {
        (sample.name.removeprefix("kafkastore_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text) for sample in family.samples
    }


def test_requests_errors_bytes_and_connections_are_counted(logs):
    with serve(logs, metrics="127.0.0.1:0") as served:
        with ProtocolClient(served.bootstrap_servers) as client:
            for _ in range(3):
                client.topic_ids()
            client.fetch(11, {("up", 0): 0, ("missing", 0): 0, ("missing", 1): 0})
            wait_for(lambda: scraped(served).get(("request_seconds_count", "Fetch")))
            found = scraped(served)
            assert found["connections",] == 1
        assert found["request_seconds_count", "Metadata"] == 3
        assert found["errors_total", "Fetch", "UNKNOWN_TOPIC_OR_PARTITION"] == 2
        assert found["sent_bytes_total",] > 1000
        wait_for(lambda: scraped(served)["connections",] == 0)
        found = scraped(served)
        assert found["connections_ended_total", EndReason.CLIENT_CLOSED] == 1
        assert found["connections_ended_total", EndReason.IDLE] == 0
    with pytest.raises(URLError):
        scraped(served)
    with serve(logs) as served:
        assert served.metrics is None


@pytest.mark.golden_cases(
    names=["transactions", "codecs", "delete-records", "compacted*"],
    versions=["2.4.0", "4.1.1"], answers="answers",
)
def test_offsets_and_lags_are_those_of_the_commands(golden_case):
    store = kafkastore.open(golden_case.logs)
    chosen = [each for each in store.partitions if each.topic != "__cluster_metadata"]
    offsets = {
        (group, *place): offset
        for place in chosen
        for start, end in [(store[place].log_start_offset, store[place].log_end_offset)]
        for group, offset in (("a", start), ("b", (start + end) // 2), ("c", end))
    }
    lags = kafkastore.lag(store, offsets={
        OffsetCommitKey(*key): offset for key, offset in offsets.items()
    })
    metrics = LogMetrics(Catalog(lambda: (store, chosen)), lambda: offsets)
    for _ in range(2):
        found = {
            (sample.name, *sample.labels.values()): sample.value
            for family in metrics.collect() for sample in family.samples
        }
        for place in chosen:
            labels = place.topic, str(place.partition)
            assert found["kafkastore_log_end_offset", *labels] == store[place].log_end_offset
            assert found["kafkastore_log_start_offset", *labels] == store[place].log_start_offset
    assert found["kafkastore_group_lags_uncounted",] == 0
    for lag in lags:
        labels = lag.group, lag.topic_partition.topic, str(lag.topic_partition.partition)
        assert found["kafkastore_group_lag_records", *labels] == lag.records
        seconds = found.get(("kafkastore_group_lag_seconds", *labels))
        assert seconds == (None if lag.lag_ms is None else lag.lag_ms / 1000)


def test_a_lag_is_counted_piece_by_piece_and_follows_its_log(tmp_path):
    with kafkastore.LogDirWriter(tmp_path / "logs") as log_dir:
        writer = log_dir.writer("t", 0, {"segment.bytes": 400})

        def append(count):
            for _ in range(count):
                writer.append_records([
                    SimpleNamespace(timestamp=writer.log_end_offset * 1000, key=None, value=b"v")
                ])
            writer.flush()

        append(40)
        store = kafkastore.open(tmp_path / "logs")
        catalog, positions = Catalog(lambda: (store, [*store.partitions])), {("g", "t", 0): 3}
        metrics = LogMetrics(catalog, lambda: positions, count_seconds=0)

        def samples():
            return {
                sample.name.removeprefix("kafkastore_"): sample.value
                for family in metrics.collect() for sample in family.samples
            }

        found = samples()
        assert (found["group_lags_uncounted"], found["unlisted_partitions"]) == (1, 1)
        assert "group_lag_records" not in found
        metrics._seconds = PATIENCE
        for appended in (0, 1, 30):
            append(appended)
            found = samples()
            end = writer.log_end_offset
            assert found["log_end_offset"] == end
            assert found["group_lag_records"] == end - 3
            assert found["group_lag_seconds"] == end - 1 - 3
        positions["g", "t", 0] = writer.log_end_offset - 1
        found = samples()
        assert (found["group_lag_records"], found["group_lag_seconds"]) == (1, 0)


# What can't be reached


HOSTILE = [
    "../secret", "..", ".", "/etc", "up-0/../../secret", "secret-0/..", "up\0", "\0", "", "up/",
    "u*", "__cluster_metadata", "up-0", "secret", "%2e%2e", "é" * 100, "x" * 32767,
]


#: Of a name that no topic may have, Metadata says so.
UNKNOWN = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_no_name_leads_to_a_file_outside_of_the_partitions(logs, writable_copy, tmp_path):
    root = writable_copy(logs)
    shutil.copytree(logs / "up-0", root.parent / "secret-0")
    (root / "linked-0").symlink_to(root.parent / "secret-0")
    with serve(root) as served, ProtocolClient(served.bootstrap_servers) as client:
        reachable = set(client.topic_ids())
        for name in HOSTILE:
            (row,) = client.fetch(11, {(name, 0): 0}).values()
            assert row["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for key, version, fields in (
                (ApiKey.LIST_OFFSETS, 5, {"partitions": (
                    {"partition_index": 0, "timestamp": -1},)}),
                (ApiKey.METADATA, 4, {}),
            ):
                answer = client.ask(key, version, topics=({"name": name, **fields},))
                topic = answer["topics"][0]
                code = topic["partitions"][0]["error_code"] if fields else topic["error_code"]
                assert code in UNKNOWN, name
        assert set(client.topic_ids()) == reachable
        assert "secret" not in reachable
        for number in (-1, 2**31 - 1, -(2**31)):
            (row,) = client.fetch(11, {("up", number): 0}).values()
            assert row["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def everything(root: Path) -> int:
    """Serve a directory, and return the bytes of the records in it."""
    with serve(root) as served, ProtocolClient(served.bootstrap_servers) as client:
        places = {tuple(each): 0 for each in kafkastore.open(root).partitions}
        return sum(len(row["records"]) for row in client.fetch(11, places).values())


def test_a_user_who_may_only_read_serves_everything(logs):
    with TemporaryDirectory() as place:     # nobody reaches the folders of pytest
        copy = Path(shutil.copytree(logs, Path(place) / "logs"))
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        give_to_nobody(Path(place))
        found = as_nobody(lambda: everything(copy))
    assert found == everything(logs) > 0


def test_a_change_by_the_server_would_be_noticed(logs, writable_copy):
    copy = writable_copy(logs)
    for change in (
        lambda: (copy / "up-0" / "new").write_bytes(b""),
        (copy / "up-0" / "new").unlink,
        lambda: (copy / "up-0").chmod(0o755),
    ):
        with pytest.raises(AssertionError), serve(copy):
            thread = threading.Thread(target=change, name="kafkastore-serve")
            thread.start()
            thread.join()
