"""HDFS through WebHDFS: read, checked and copied as from a disk."""
from __future__ import annotations

import getpass
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cli.running import Run, assert_one_sentence
from fsspec.implementations.webhdfs import WebHDFS
from models.seed import SEED
from pyspark.sql import SparkSession
from remote import hdfs_server
from remote.test_commands import assert_same_output
from remote.test_copies import contents
from spark.conftest import spark  # noqa: F401

import kafkastore
from kafkastore import RemoteObjectChangedError, RemoteStoreError
from kafkastore.changes.upload_store import upload_store
from kafkastore.remote.new_store import PARTS, PIECE_BYTES
from kafkastore.remote.stores import COPYING

#: The user of the name node may do everything; others may read.
USER = getpass.getuser()


@dataclass(frozen=True)
class Hdfs:
    """The file system that tests use."""

    port: int

    @property
    def library(self) -> WebHDFS:
        """Return the client library."""
        return WebHDFS("127.0.0.1", self.port, user=USER, use_listings_cache=False)

    def url(self, name: str, user: str = f"{USER}@") -> str:
        """Return the URL of a directory."""
        return f"webhdfs://{user}127.0.0.1:{self.port}/{name}"

    def put(self, directory: Path, name: str) -> str:
        """Upload a directory with its modification times, which HDFS stores in ms."""
        library = self.library

        def put_one(path: Path) -> None:
            there = f"/{name}/{path.relative_to(directory)}"
            library.pipe_file(there, path.read_bytes())
            library._call(
                "SETTIMES", "PUT", there, modificationtime=path.stat().st_mtime_ns // 10**6
            )

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(put_one, filter(Path.is_file, directory.rglob("*"))))
        return self.url(name)

    def contents(self, name: str) -> dict[str, bytes]:
        """Return the bytes of every file except the lock, which is not copied."""
        library = self.library
        return {
            path.removeprefix(f"/{name}/"): library.cat_file(path)
            for path in library.find(f"/{name}")
            if not path.endswith("/.lock")
        }



@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """Start an empty file system; each test uses its own directory in it."""
    if not hdfs_server.jar().exists():
        pytest.skip(f"{hdfs_server.jar()} does not exist; python -m remote.hdfs_server fetches it")
    with hdfs_server.serving(tmp_path_factory.mktemp("hdfs")) as port:
        yield Hdfs(port)


@pytest.mark.usefixtures("poisoned")
def test_every_reading_command_has_the_same_output_for_hdfs_as_for_a_directory(
    hdfs: Hdfs, run: Run, golden: Any, whole_seconds: Callable[[Path], Path]
) -> None:
    local = whole_seconds(golden("2.4.0", "create-time-out-of-order", "answers").logs)
    assert_same_output(run, local, hdfs.put(local, "read"))


def test_spark_reads_hdfs_as_it_reads_a_directory(
    hdfs: Hdfs, spark: SparkSession, golden: Any  # noqa: F811
) -> None:
    local = golden("2.4.0", "transactions", "answers").logs
    rows = [
        spark.read.format("kafkastore").load(str(path)).drop("topic").collect()
        for path in (local, hdfs.put(local, "transactions"))
    ]
    assert rows[0]
    assert sorted(map(repr, rows[0])) == sorted(map(repr, rows[1]))


def test_hdfs_is_migrated_to_a_disk_and_within_itself(
    hdfs: Hdfs, run: Run, golden: Any, whole_seconds: Callable[[Path], Path], tmp_path: Path
) -> None:
    local = whole_seconds(golden("0.8.2.2", "codecs", "answers").logs)
    url, before = hdfs.put(local, "old"), contents(local)
    assert run("migrate", local, "--copy-to", tmp_path / "expected").code == 0
    expected = contents(tmp_path / "expected")
    assert run("migrate", url, "--copy-to", tmp_path / "copy").code == 0
    assert contents(tmp_path / "copy") == expected
    for number, source in enumerate([local, url]):
        assert run("migrate", source, "--copy-to", hdfs.url(f"copy-{number}")).code == 0
        assert hdfs.contents(f"copy-{number}") == expected
    assert hdfs.contents("old") == before


def test_denied_access_is_one_sentence(
    hdfs: Hdfs, run: Run, golden: Any, tmp_path: Path
) -> None:
    local = golden("0.8.2.2", "codecs", "answers").logs
    hdfs.put(local, "closed")
    other = hdfs.url("closed", "other@")
    ran = run("migrate", local, "--copy-to", f"{other}-copy")
    assert_one_sentence(ran, f"{other}-copy/", "can't be written: access is denied", "=other")
    assert ran.err.count("check ") == 1
    inner = next(path for path in local.iterdir() if path.is_dir()).name
    hdfs.library._call("SETPERMISSION", "PUT", f"/closed/{inner}", permission="700")
    assert_one_sentence(run("verify", other), f"{other} can't be read: access is denied")
    assert run("ls", hdfs.url("closed")).code == 0


def test_a_rewritten_file_is_an_error(hdfs: Hdfs, golden: Any) -> None:
    url = hdfs.put(golden("2.4.0", "transactions", "answers").logs, "changing")
    log = next(iter(kafkastore.open(url)))
    segment = log.segments[0]
    path = f"/changing/{log.topic_partition}/{segment.log_path.name}"
    hdfs.library.pipe_file(path, bytes(segment.size))
    with pytest.raises(RemoteObjectChangedError):
        [*log.to_arrow()]


def test_an_unreachable_name_node_is_one_sentence(run: Run) -> None:
    ran = run("ls", "webhdfs://127.0.0.1:1/logs")
    assert_one_sentence(ran, "webhdfs://127.0.0.1:1/logs can't be read", "check the endpoint")


COPY = """
import sys, kafkastore
from kafkastore.changes.upload_store import upload_store
upload_store(*sys.argv[1:], kafkastore.Plan(sys.argv[1], "a copy", ()))
"""


@pytest.mark.soak
def test_a_copy_killed_at_random_is_finished_by_the_same_call(
    hdfs: Hdfs, tmp_path: Path
) -> None:
    choose = random.Random(SEED)
    source = tmp_path / "logs"
    for number in range(12):
        directory = source / f"t-{number}"
        directory.mkdir(parents=True)
        for size in (0, 1, 5000, 2 * PIECE_BYTES + 7):
            (directory / f"{size}").write_bytes(choose.randbytes(size))
    url, plan = hdfs.url("killed"), kafkastore.Plan(str(source), "a copy", ())
    everything = 4 * 12
    for enough in sorted(choose.sample(range(1, everything - 1), 4)):
        process = subprocess.Popen([sys.executable, "-c", COPY, str(source), url])
        while process.poll() is None and len(hdfs.library.find("/killed")) <= enough:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if f"/killed/{COPYING}" in hdfs.library.find("/killed"):
            with pytest.raises(RemoteStoreError):
                kafkastore.open(url)
    assert upload_store(source, url, plan).files == everything
    assert hdfs.contents("killed") == contents(source)
    assert not hdfs.library.exists(f"/killed/{PARTS}")
