"""An S3 server over a directory, uploads of stores, and a proxy that counts requests."""
from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from cli.running import Ran, Run
from click.testing import CliRunner
from kafkastore.migration.warnings import WarningKind
from remote import s3_server
from remote.counting_proxy import CountingProxy, counting

from kafkastore.cli.command_list import cli
from kafkastore.remote import sparse_files
from kafkastore.remote.sparse_files import SparseFile

# A URL that is reopened in the same process keeps its fetched bytes: each test has its own bucket.
_numbers = count()
#: The beginning of the note on modification times.
LOST = f"note: {WarningKind.MODIFICATION_TIMES_LOST.replace('-', ' ')}:"


@dataclass(frozen=True)
class S3:
    """The server and the proxy that tests use.

    Attributes
    ----------
    root : path
        The served directory, which has the buckets.
    bucket : str
        The bucket of this test.
    proxy : CountingProxy
        In front of the server; the endpoint in this process's environment.
    """

    root: Path
    bucket: str
    proxy: CountingProxy

    def put(self, directory: Path, name: str) -> str:
        """Upload a directory with its modification times, and clear the requests of `proxy`."""
        import s3fs

        library = s3fs.S3FileSystem(use_listings_cache=False)
        library.put(f"{directory}/", f"{self.bucket}/{name}/", recursive=True)
        for path in directory.rglob("*"):
            if path.is_file():
                modified_ns = path.stat().st_mtime_ns
                os.utime(self.file(name) / path.relative_to(directory), ns=(modified_ns,) * 2)
        self.proxy.requests.clear()
        return f"s3://{self.bucket}/{name}"

    def file(self, name: str) -> Path:
        """Return the path where the server stores an object."""
        return self.root / self.bucket / name


@pytest.fixture(scope="session")
def s3_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """Start a server; return its directory and port."""
    if not s3_server.PROGRAM.exists():
        pytest.skip(f"{s3_server.PROGRAM} does not exist; python -m remote.s3_server builds it")
    root = tmp_path_factory.mktemp("s3") / "served"
    root.mkdir()
    with s3_server.serving(root) as port:
        yield root, port


def forget_connections() -> None:
    """Make the library open new connections: it ignores changes of the environment otherwise."""
    import s3fs

    for library in s3fs.S3FileSystem._cache.values():
        if library._s3 is not None:
            library.close_session(library.loop, library._s3)
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def s3(s3_port: tuple[Path, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """Return a server with an empty bucket, as the endpoint in the environment."""
    root, port = s3_port
    bucket = f"kafka-{next(_numbers)}"
    (root / bucket).mkdir()
    for name in [name for name in os.environ if name.startswith(("AWS_", "FSSPEC_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.SECRET_KEY)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    with counting(port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        forget_connections()
        yield S3(root, bucket, proxy)
        forget_connections()
        shutil.rmtree(root / bucket)


@pytest.fixture
def run() -> Run:
    """Return a function that runs a command in this process, without the note on golden files."""

    def run(*arguments: object) -> Ran:
        result = CliRunner().invoke(
            cli, list(map(str, arguments)), prog_name="kafkastore", catch_exceptions=False
        )
        lines = [
            line
            for line in result.stderr.splitlines(keepends=True)
            if not line.startswith(LOST)
        ]
        return Ran(result.exit_code, result.stdout_bytes.decode(), "".join(lines))

    return run


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill bytes that were not fetched: a reader might accept zeros as padding."""
    make, punch, find = SparseFile.__init__, sparse_files._punch, SparseFile._find_end

    def poison(descriptor: int, position: int, size: int) -> None:
        for at in range(position, position + size, 1 << 20):
            os.pwrite(descriptor, b"\xdb" * min(1 << 20, position + size - at), at)

    def make_poisoned(self: SparseFile, path: str, source: Any) -> None:
        make(self, path, source)
        descriptor = os.open(path, os.O_WRONLY)
        poison(descriptor, 0, source.size)
        os.utime(descriptor, ns=(source.modified_ns,) * 2)
        os.close(descriptor)

    def punch_poisoned(descriptor: int, position: int, size: int) -> bool:
        assert punch(descriptor, position, size)
        poison(descriptor, position, min(size, os.fstat(descriptor).st_size - position))
        return True

    def find_end(self: SparseFile, blocks: bytearray) -> int:
        end = find(self, blocks)
        with open(self.path, "r+b") as file:  # the assumed zeros were never fetched
            file.seek(end)
            file.write(bytes(self.source.size - end))
        os.utime(self.path, ns=(self.source.modified_ns,) * 2)
        return end

    monkeypatch.setattr(SparseFile, "_find_end", find_end)
    monkeypatch.setattr(SparseFile, "__init__", make_poisoned)
    monkeypatch.setattr(sparse_files, "_punch", punch_poisoned)


@pytest.fixture
def whole_seconds(writable_copy: Callable[[Path], Path]) -> Callable[[Path], Path]:
    """Return a function that copies a directory with modification times in whole seconds."""

    def copy(directory: Path) -> Path:
        copied = writable_copy(directory)
        for path in copied.rglob("*"):
            if path.is_file():
                os.utime(path, ns=(path.stat().st_mtime_ns // 10**9 * 10**9,) * 2)
        return copied

    return copy
