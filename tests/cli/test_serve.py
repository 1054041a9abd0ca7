"""`kafkastore serve` as a process, and its wrong options."""
from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli.running import Run, assert_one_sentence
from models.protocol_client import ProtocolClient

from kafkastore import samples

PROGRAM = str(Path(sys.executable).with_name("kafkastore"))
FREE = ("--listen", "127.0.0.1:0")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one sample directory."""
    root = tmp_path_factory.mktemp("serve") / "samples"
    samples.unpack(root)
    return sorted(root.iterdir())[-1]


@contextmanager
def serving(*words: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command; yield the process and its first line."""
    with subprocess.Popen(
        [PROGRAM, "serve", *map(str, words)], text=True,
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
        out, err = process.communicate(timeout=600)
        assert (process.returncode, out, err) == (0, "", "")


def test_ctrl_c_ends_it_as_every_command(logs: Path) -> None:
    with serving(logs, *FREE) as (process, line):
        assert "127.0.0.1:" in line
        with ProtocolClient(line.split()[-1]) as client:
            assert client.topic_ids()
            process.send_signal(signal.SIGINT)
            assert client.has_ended()
        out, err = process.communicate(timeout=600)
        assert (process.returncode, out) == (130, "")
        assert err.startswith("kafkastore: ")
        assert err.count("\n") == 1


def test_only_the_chosen_topics_are_served_and_clients_are_shown(logs: Path) -> None:
    with serving(logs, *FREE, "--json", "--topic", "up", "--verbose") as (process, line):
        shown = json.loads(line)
        assert shown["topics"] == 1
        with ProtocolClient(shown["bootstrap_servers"]) as client:
            assert set(client.topic_ids()) == {"up"}
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=600)
        assert err.count("\n") == 2


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


def test_others_than_this_machine_are_warned_of(logs: Path) -> None:
    advertised = ("--advertise", "localhost:9092")
    with serving(logs, "--listen", "0.0.0.0:0", *advertised, "--json") as (process, _):
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=600)
        assert "0.0.0.0:0" in err
        assert err.count("\n") == 1
