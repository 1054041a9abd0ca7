"""`kafkastore serve` as a process, and its wrong options."""
from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli.running import Run, assert_one_sentence
from models.log_directory import Log, Segment
from models.protocol_client import LARGEST, ProtocolClient, batches
from models.record_format import Batch, Row
from models.record_reader import read_records

import kafkastore
from kafkastore import samples
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.apis import ApiKey
from kafkastore.server.client import EndReason

PROGRAM = str(Path(sys.executable).with_name("kafkastore"))
FREE = ("--listen", "127.0.0.1:0")
#: The command, with more time for the responses under way at its end than a test may take.
PATIENT = (sys.executable, "-c", """
from kafkastore.server.client import ClientLimits
*others, _ = ClientLimits.__new__.__defaults__
ClientLimits.__new__.__defaults__ = (*others, 10_000)
assert ClientLimits().drain == 10_000
from kafkastore.cli.__main__ import main
main()
""")
_LIBC = ctypes.CDLL(None)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one sample directory."""
    root = tmp_path_factory.mktemp("serve") / "samples"
    samples.unpack(root)
    return sorted(root.iterdir())[-1]


@contextmanager
def serving(
    *words: object, program: Sequence[str] = (PROGRAM,)
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command; yield the process and its first line."""
    with subprocess.Popen(
        [*program, "serve", *map(str, words)], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()


def test_the_first_line_says_where_clients_connect_and_sigterm_is_its_end(logs: Path) -> None:
    with serving(logs, *FREE, "--json") as (process, line):
        shown = json.loads(line)
        with ProtocolClient(shown["bootstrap_servers"]) as client:
            topics = client.topic_ids()
            assert len(topics) == shown["topics"] > 0
            assert client.socket.getpeername()[1] != 0
            process.send_signal(signal.SIGTERM)
            assert client.has_ended()
        out, err = process.communicate(timeout=800)
        assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux sends a signal to a thread")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_that_another_thread_receives_ends_it(
    logs: Path, number: signal.Signals, code: int
) -> None:
    with serving(logs, *FREE, "--json") as (process, line):
        with ProtocolClient(json.loads(line)["bootstrap_servers"]) as client:
            assert client.topic_ids()
        threads = {int(each.name) for each in Path(f"/proc/{process.pid}/task").iterdir()}
        other = min(threads - {process.pid})
        assert _LIBC.tgkill(process.pid, other, number) == 0
        process.communicate(timeout=800)
        assert process.returncode == code


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists what a process has mapped")
def test_it_is_small_because_it_loads_no_arrow(logs: Path) -> None:
    with serving(logs, *FREE, "--json") as (process, line):
        with ProtocolClient(json.loads(line)["bootstrap_servers"]) as client:
            assert client.topic_ids()
        mapped = Path(f"/proc/{process.pid}/maps").read_text()
        assert "kafkastore" in mapped
        assert "libarrow" not in mapped


def test_ctrl_c_ends_it_as_every_command(logs: Path) -> None:
    with serving(logs, *FREE) as (process, line):
        assert "127.0.0.1:" in line
        with ProtocolClient(line.split()[-1]) as client:
            assert client.topic_ids()
            process.send_signal(signal.SIGINT)
            assert client.has_ended()
        out, err = process.communicate(timeout=800)
        assert (process.returncode, out) == (130, "")
        assert err.startswith("kafkastore: ")
        assert err.count("\n") == 1


def test_corrupt_bytes_are_noted_once_and_old_messages_become_record_batches(
    tmp_path: Path,
) -> None:
    written = [Batch((Row(offset, 5, b"k", b"v"),), magic=1) for offset in range(5)]
    root = Log((Segment(0, tuple(written)),), True).write(tmp_path / "logs")
    path = root / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[len(written[0].data) * 3 - 1] ^= 1
    path.write_bytes(data)
    for words, offsets, notes in (
        ((), [0, 1], 1), (("--on-corrupt", "skip", "--as-v2"), [0, 1, 3, 4], 2)
    ):
        with serving(root, *FREE, *words) as (process, line):
            with ProtocolClient(line.split()[-1]) as client:
                bounds = [
                    client.ask(
                        ApiKey.LIST_OFFSETS, 7, replica_id=-1, isolation_level=isolation,
                        topics=({"name": "t", "partitions": (
                            {"partition_index": 0, "timestamp": timestamp},
                        )},),
                    )["topics"][0]["partitions"][0]["offset"]
                    for isolation in (0, 1) for timestamp in (-2, -1)
                ]
                # Without --on-corrupt skip, nobody knows whether a transaction is open at the end.
                assert bounds == [0, 5, 0, 5 if words else 2]
                found, offset = [], 0
                while offset < 5:
                    (row,) = client.fetch(12, {("t", 0): offset}).values()
                    more, _ = batches(row["records"])
                    if row["error_code"]:
                        assert row["error_code"] == ErrorCode.CORRUPT_MESSAGE
                        break
                    found += more
                    offset = found[-1].last_offset + 1
            assert {each.data[16] for each in found} == {2 if words else 1}
            records = [record for each in found for record in read_records(each.data)]
            assert [record[0] for record in records] == offsets
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=800)
            assert err.count("\n") == notes
            assert str(path) in err.splitlines()[0]
            assert process.returncode == bool(words)


def test_only_the_chosen_topics_are_served_and_clients_are_shown(logs: Path) -> None:
    with serving(logs, *FREE, "--json", "--topic", "up", "--verbose") as (process, line):
        shown = json.loads(line)
        assert shown["topics"] == 1
        with ProtocolClient(shown["bootstrap_servers"]) as client:
            assert set(client.topic_ids()) == {"up"}
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=800)
        assert err.count("\n") == 2


def test_who_a_client_says_it_is_stays_in_its_line(logs: Path) -> None:
    with serving(logs, *FREE, "--json", "--verbose") as (process, line):
        address = json.loads(line)["bootstrap_servers"]
        with ProtocolClient(address, "tests\x1b[2J 1\n2") as client:
            client.ask(ApiKey.API_VERSIONS, 3)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=800)
        connected, disconnected = err.splitlines()
        assert "127.0.0.1:" in connected
        assert any(each in disconnected for each in EndReason)
        for part in ("client tests\\x1b[2J 1\\n2,", "software tests 1,", "1 req"):
            assert part in disconnected


def test_sighup_lists_the_directories_and_reads_files_again(logs: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(logs, tmp_path / "logs"))
    with serving(copy, *FREE, "--json") as (process, line):
        address = json.loads(line)["bootstrap_servers"]
        with ProtocolClient(address) as client:
            topics = set(client.topic_ids())
            stat = copy.stat()
            shutil.copytree(copy / "up-0", copy / "new-0")
            # As on a file system that has not told this machine of the change yet.
            os.utime(copy, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            assert set(client.topic_ids()) == topics
            process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + 800
            while set(client.topic_ids()) == topics:
                assert time.monotonic() < deadline
            assert set(client.topic_ids()) == {*topics, "new"}
            shutil.rmtree(copy)
            process.send_signal(signal.SIGHUP)
            assert process.stderr is not None
            assert process.stderr.readline()
            assert set(client.topic_ids()) == {*topics, "new"}
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=800)
        assert process.returncode == 0


def test_a_second_sigterm_does_not_wait_for_responses(tmp_path: Path) -> None:
    with kafkastore.LogDirWriter(tmp_path / "logs") as log_dir:
        writer = log_dir.writer("large", 0)
        for number in range(60):
            writer.append_records([
                SimpleNamespace(timestamp=number, key=None, value=bytes(900_000))
            ])
    with (
        serving(tmp_path / "logs", *FREE, "--json", program=PATIENT) as (process, line),
        ProtocolClient(json.loads(line)["bootstrap_servers"]) as client,
    ):
        client.send(ApiKey.FETCH, 11, max_wait_ms=0, max_bytes=LARGEST, topics=({
            "topic": "large", "partitions": (
                {"partition": 0, "fetch_offset": 0, "partition_max_bytes": LARGEST},
            )},))
        assert int.from_bytes(client.socket.recv(4), "big") > 50_000_000
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(800) == 0


def test_metrics_are_where_the_command_says(logs: Path) -> None:
    with (
        serving(logs, *FREE, "--json", "--metrics", "127.0.0.1:0") as (_, line),
        urllib.request.urlopen(f"http://{json.loads(line)['metrics']}/metrics") as answer,
    ):
        assert b"kafkastore_log_end_offset" in answer.read()


def test_without_the_library_metrics_are_refused_in_one_sentence(
    run: Run, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    ran = run("serve", logs, *FREE, "--metrics", "127.0.0.1:0")
    assert_one_sentence(ran, "pip install 'kafkastore[serve]'")
    assert ran.out == ""


def test_clients_are_led_to_the_advertised_address(logs: Path) -> None:
    advertised = ("--advertise", "kafka.example:19092")
    with serving(logs, "--listen", "127.0.0.1:0", *advertised, "--json") as (_, line):
        assert json.loads(line)["bootstrap_servers"] == "kafka.example:19092"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--listen", "localhost"), "listen"),
        (("--listen", ":9092"), "listen"),
        (("--listen", "127.0.0.1:http"), "listen"),
        (("--listen", "127.0.0.1:65536"), "listen"),
        (("--listen", "no.such.host.invalid:0"), "no.such.host.invalid"),
        ((*FREE, "--advertise", "nowhere"), "advertise"),
        (("--listen", "0.0.0.0:0"), "advertise"),
        (("--listen", "[::]:0"), "advertise"),
        ((*FREE, "--advertise", "0.0.0.0:9092"), "advertise"),
        ((*FREE, "--metrics", "9100"), "metrics"),
        ((*FREE, "--metrics", "no.such.host.invalid:0"), "no.such.host.invalid"),
        ((*FREE, "--max-connections", "0"), "max-connections"),
        ((*FREE, "--rules", "9.9.9"), "9.9.9"),
        ((*FREE, "--rules", "wrong"), "wrong"),
        ((*FREE, "--topic", "missing"), "missing"),
        ((*FREE, "--state", "/nowhere/state"), "/nowhere/state"),
        ((*FREE, "--state", "state", "--no-groups"), "--state"),
    ],
)
def test_wrong_options_are_refused_in_one_sentence(
    run: Run, logs: Path, words: tuple[str, ...], part: str
) -> None:
    ran = run("serve", logs, *words)
    assert_one_sentence(ran, part)
    assert ran.out == ""


def test_a_state_within_the_served_directories_is_refused(run: Run, logs: Path) -> None:
    before = sorted(logs.rglob("*"))
    assert_one_sentence(run("serve", logs, *FREE, "--state", logs / "state"), str(logs / "state"))
    assert sorted(logs.rglob("*")) == before


def test_no_log_directory_is_refused(run: Run, tmp_path: Path) -> None:
    assert_one_sentence(run("serve", tmp_path / "none", *FREE), str(tmp_path / "none"))
    (tmp_path / "file").write_bytes(b"")
    assert_one_sentence(run("serve", tmp_path / "file", *FREE), str(tmp_path / "file"))


def test_a_port_in_use_is_refused(run: Run, logs: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        address = f"127.0.0.1:{sock.getsockname()[1]}"
        assert_one_sentence(run("serve", logs, "--listen", address), address)
        assert_one_sentence(run("serve", logs, *FREE, "--metrics", address), address)


def test_others_than_this_machine_are_warned_of(logs: Path) -> None:
    advertised = ("--advertise", "localhost:9092")
    with serving(logs, "--listen", "0.0.0.0:0", *advertised, "--json") as (process, _):
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=800)
        assert "0.0.0.0:0" in err
        assert err.count("\n") == 1
