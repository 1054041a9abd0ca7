"""The container image runs as any user, without rights, on a root file system that is read-only.

`make image` makes the root file system; a runtime's part is done by unshare, mount and chroot.
"""
from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from cli.examples import blocks_of, check_printed, commands_of
from confluent_kafka import Consumer, TopicPartition

from kafkastore import samples

ROOT = Path(__file__).parents[1]
IMAGE = ROOT / "build/image"
USER = 65532
LIMIT = 150_000_000
#: Runs a command as a runtime does: $0 is the root, $1 what is mounted at /kafka-logs, $2 the user.
START = """
root=$0 logs=$1 user=$2; shift 2
set -e
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs tmpfs "$root/dev"
for device in null zero urandom; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mount -t proc proc "$root/proc"
mount --bind "$logs" "$root/kafka-logs"
mount -o remount,bind,ro "$root/kafka-logs"
mount -o remount,bind,ro "$root"
cd "$root"
exec env -i PATH=/usr/local/bin:/usr/bin:/usr/sbin setpriv --no-new-privs \
    chroot --userspec="$user:$user" "$root" "$@"
"""

pytestmark = [
    pytest.mark.image,
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can chroot"),
]


def command(logs: Path, *words: str, user: int = USER) -> list[str]:
    """Return a command in the image whose process is number 1, as in a container."""
    assert IMAGE.is_dir(), "make image makes it"
    start = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", START]
    return [*start, str(IMAGE), str(logs), str(user), *words]


def run(logs: Path, *words: str, user: int = USER) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(logs, *words, user=user), capture_output=True, text=True, timeout=300
    )


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A directory of a broker whose files belong to another user than the image's."""
    samples.unpack(tmp_path / "samples")
    found = shutil.move(tmp_path / "samples/0.10.0.1", tmp_path / "kafka-logs")
    for path in (found, *found.rglob("*")):
        os.chown(path, 1000, 1000)
        path.chmod(0o755 if path.is_dir() else 0o644)
    return Path(found)


@contextmanager
def served(logs: Path, *words: str) -> Iterator[tuple[int, int, subprocess.Popen[str]]]:
    """Serve a directory; give the port, the process that is number 1 in there, and its parent."""
    with subprocess.Popen(
        command(logs, "kafkastore", "serve", "/kafka-logs", *words),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as parent:
        try:
            assert parent.stdout is not None
            line = parent.stdout.readline()
            port = re.search(r":(\d+)$", line.strip())
            assert port, line or parent.communicate()[1]
            children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
            yield int(port[1]), int(children[0]), parent
        finally:
            parent.kill()  # with it, all of its namespace


def test_it_is_small() -> None:
    sizes = [path.lstat().st_size for path in IMAGE.rglob("*") if not path.is_dir()]
    assert 50_000_000 < sum(sizes) <= LIMIT


def test_no_file_needs_a_library_that_is_left_out() -> None:
    names = {path.name for path in IMAGE.rglob("*.so*")}
    needed = set()
    for path in IMAGE.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) != b"\x7fELF":
                    continue
            shown = subprocess.run(["readelf", "-d", path], capture_output=True, text=True).stdout
            needed |= set(re.findall(r"\(NEEDED\).*\[(.+)\]", shown))
    assert "libc.so.6" in needed
    assert needed <= names


def test_nothing_in_it_belongs_to_another_user_than_root_or_gives_rights() -> None:
    for path in IMAGE.rglob("*"):
        stat = path.lstat()
        assert stat.st_uid == 0, path
        assert path.is_dir() or not stat.st_mode & 0o6000, path
        assert path.is_symlink() or stat.st_mode & 0o1022 in (0, 0o1022), path


def test_scanners_find_the_packages_and_their_licences() -> None:
    states = list((IMAGE / "var/lib/dpkg/status.d").iterdir())
    assert {"libc6", "libssl3", "python3.11-minimal"} <= {path.name for path in states}
    for path in states:
        assert re.search(r"^Version: \S+$", path.read_text(), re.MULTILINE)
        assert (IMAGE / "usr/share/doc" / path.name / "copyright").exists(), path


def test_it_runs_without_rights_and_can_write_nowhere_but_in_tmp(logs: Path) -> None:
    version = run(logs, "kafkastore", "--version")
    assert (version.returncode, version.stderr) == (0, "")
    script = """
        id -u; id -g; grep -E '^CapEff|^NoNewPrivs' /proc/self/status
        for folder in / /usr/local/bin /kafka-logs /kafka-logs/up-0 /tmp; do
            (: >$folder/new) 2>/dev/null && echo "can write to $folder"
        done
    """
    shown = run(logs, "sh", "-c", script).stdout.split("\n")
    assert shown == [
        str(USER), str(USER), f"CapEff:\t{'0' * 16}", "NoNewPrivs:\t1", "can write to /tmp", "",
    ]


def test_commands_read_a_directory_that_is_mounted_read_only(logs: Path) -> None:
    listed = run(logs, "kafkastore", "ls", "/kafka-logs")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "up-compressed-0" in listed.stdout
    checked = run(logs, "kafkastore", "verify", "--json", "/kafka-logs")
    assert checked.returncode == 1  # these have no time indexes
    findings = [json.loads(line) for line in checked.stdout.splitlines()]
    assert {each.get("severity") for each in findings} & {"wrong-answers"}
    at = run(
        logs, "kafkastore", "cat", "/kafka-logs", "--from", "2017-07-14T02:40:30",
        "--tz", "Europe/Berlin", "--topic", "up", "--json",
    )
    assert (at.returncode, at.stderr) == (0, "")


def test_every_codec_is_read(tmp_path: Path) -> None:
    with tarfile.open(ROOT / "tests/golden/4.3.1.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    read = run(tmp_path / "codecs/logs", "kafkastore", "cat", "--json", "/kafka-logs")
    assert (read.returncode, read.stderr) == (0, "")
    program = Path(sys.executable).with_name("kafkastore")
    expected = subprocess.run(
        [program, "cat", "--json", tmp_path / "codecs/logs"], capture_output=True, text=True
    )
    assert read.stdout == expected.stdout
    assert '"codecs"' in read.stdout


def test_files_of_another_user_are_read_as_that_user_only(logs: Path) -> None:
    for path in logs.rglob("*.log"):
        path.chmod(0o600)
    refused = run(logs, "kafkastore", "cat", "/kafka-logs", "--topic", "up")
    assert refused.returncode != 0
    assert "permission" in refused.stderr.lower()
    assert "Traceback" not in refused.stderr
    read = run(logs, "kafkastore", "cat", "/kafka-logs", "--topic", "up", user=1000)
    assert (read.returncode, read.stderr) == (0, "")


def test_clients_are_served_and_a_stop_ends_it_at_once(logs: Path) -> None:
    with served(logs, "--listen=127.0.0.1:0", "--metrics=127.0.0.1:0") as (port, inner, parent):
        consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "me"})
        consumer.assign([TopicPartition("up", 0, 35)])
        record = consumer.poll(60)
        assert record is not None
        assert (record.error(), record.offset(), record.key()) == (None, 35, b"k1")
        consumer.close()
        before = time.monotonic()
        os.kill(inner, signal.SIGTERM)
        assert parent.wait(60) == 0
        assert time.monotonic() - before < 10


def test_ctrl_c_ends_it_although_it_is_process_1(logs: Path) -> None:
    with served(logs, "--listen=127.0.0.1:0") as (_, inner, parent):
        os.kill(inner, signal.SIGINT)
        assert parent.wait(60) in (130, -signal.SIGINT)
        assert parent.stderr is not None
        assert "Traceback" not in parent.stderr.read()


@pytest.mark.parametrize("name", ["verify", "serve"])
def test_what_the_manifests_run_works(name: str, logs: Path) -> None:
    manifest = next(yaml.safe_load_all((ROOT / f"packaging/kubernetes/{name}.yaml").read_text()))
    pod = manifest["spec"]["template"]["spec"]
    words = pod["containers"][0]["args"]
    if name == "verify":
        done = run(logs, "kafkastore", *words, user=pod["securityContext"]["runAsUser"])
        assert done.returncode == 1
        assert "4 partitions checked" in done.stdout
    else:
        assert words[:2] == ["serve", "/kafka-logs"]
        free = [re.sub(r"^(--(?:listen|metrics)=)0\.0\.0\.0:\d+", r"\g<1>127.0.0.1:0", word)
                for word in words[2:]]
        assert free != words[2:]
        with served(logs, *free):
            pass


def test_commands_of_the_guide_print_what_it_shows(logs: Path) -> None:
    count = 0
    for block in blocks_of(ROOT / "docs/containers.md"):
        for each in commands_of(block) if block.language == "console" else ():
            words = shlex.split(each.line)
            if words[:2] != ["docker", "run"] or "--publish" in words:
                continue
            assert {"--rm", "--read-only", "kafka-logs:/kafka-logs:ro"} <= {
                word.removeprefix("$PWD/") for word in words
            }
            done = subprocess.run(
                command(logs, "kafkastore", *words[words.index("kafkastore") + 1:]),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
            )
            check_printed(each, done.stdout)
            count += 1
    assert count == 3
