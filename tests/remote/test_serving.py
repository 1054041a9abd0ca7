"""Remote stores served to Kafka clients: right bytes by few requests, or an error that passes."""
from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from models.protocol_client import LARGEST, ProtocolClient, batches
from remote.conftest import S3

import kafkastore
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.remote import sparse_files
from kafkastore.server import serve

MiB = 1 << 20
SEGMENTS, SEGMENT_MIB = 2, 20
FIRST, OTHER = ("t", 0), ("t", 1)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of a large partition and a small one."""
    root = tmp_path_factory.mktemp("serving") / "logs"
    with kafkastore.LogDirWriter(root) as log_dir:
        large, small = log_dir.writer("t", 0), log_dir.writer("t", 1)
        for _ in range(SEGMENTS):
            for number in range(SEGMENT_MIB * 2):
                value = os.urandom(MiB // 2)
                large.append_records([SimpleNamespace(timestamp=number, key=None, value=value)])
            large.roll()
        small.append_records([SimpleNamespace(timestamp=5, key=b"k", value=b"v")])
    return root


@pytest.fixture
def url(s3: S3, local: Path) -> str:
    return s3.put(local, "logs")


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    with serve(url) as served, ProtocolClient(served.bootstrap_servers) as asking:
        yield asking


def stored(local: Path, place: tuple[str, int]) -> bytes:
    directory = local / "-".join(map(str, place))
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def consume(client: Any, place: tuple[str, int], offset: int = 0) -> tuple[bytes, Any]:
    """Read until nothing comes; return the bytes and the last row."""
    data = b""
    while True:
        (row,) = client.fetch(12, {place: offset}, partition_max_bytes=MiB).values()
        found, size = batches(row["records"])
        assert size == len(row["records"])
        if not found:
            return data, row
        data += row["records"]
        offset = found[-1].last_offset + 1


def test_consumers_read_a_remote_partition_by_few_large_requests(
    s3: S3, local: Path, client: Any
) -> None:
    client.topic_ids()
    s3.proxy.requests.clear()
    data, _ = consume(client, FIRST)
    assert data == stored(local, FIRST)
    gets = [each for each in s3.proxy.requests if each.path.split("?")[0].endswith(".log")]
    # 64 KiB, 128 KiB, ... 8 MiB, and then 8 MiB each; nothing twice.
    assert len(gets) <= SEGMENTS * 14


def test_bytes_that_are_released_before_they_are_sent_are_right(
    s3: S3, local: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse_files, "DISK_BYTES", MiB)
    offsets, data = [0, 40], [b"", b""]
    for _ in range(30):
        for reader, offset in enumerate(offsets):
            if offset == SEGMENTS * SEGMENT_MIB * 2:
                continue
            (row,) = client.fetch(
                12, {FIRST: offset}, partition_max_bytes=LARGEST, max_bytes=2 * MiB
            ).values()
            data[reader] += row["records"]
            offsets[reader] = batches(row["records"])[0][-1].last_offset + 1
    whole = stored(local, FIRST)
    middle = sum(len(each.data) for each in batches(whole)[0][:40])
    assert whole.startswith(data[0])
    assert whole[middle:].startswith(data[1])


def test_a_failing_store_is_an_error_of_its_partition_that_passes(
    s3: S3, local: Path, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert consume(client, OTHER)[0] == stored(local, OTHER)
    s3.proxy.fault = lambda method, path: 403 if "/t-0/" in path else None
    for version in (5, 12):
        rows = client.fetch(version, {FIRST: 50, OTHER: 0})
        assert rows[OTHER]["records"] == stored(local, OTHER)
        assert rows[FIRST]["records"] == b""
        assert rows[FIRST]["error_code"] == (
            ErrorCode.NOT_LEADER_OR_FOLLOWER if version == 5 else ErrorCode.KAFKA_STORAGE_ERROR
        )
    assert [each.args[0] for each in caplog.records if each.name.startswith("kafkastore")] == [
        FIRST
    ]
    s3.proxy.fault = lambda method, path: None
    assert stored(local, FIRST).endswith(consume(client, FIRST, 50)[0])


def test_errors_that_pass_are_not_seen_by_consumers(s3: S3, local: Path, client: Any) -> None:
    assert consume(client, OTHER)[0] == stored(local, OTHER)
    kinds, given = cycle((503, "cut", None, 500, None, None)), []

    def fault(method: str, path: str) -> int | str | None:
        given.append(next(kinds))
        return given[-1]

    s3.proxy.fault = fault
    assert consume(client, FIRST)[0] == stored(local, FIRST)
    assert consume(client, OTHER)[0] == stored(local, OTHER)
    assert {503, 500, "cut"} <= set(given)


@pytest.mark.parametrize("change", ["replaced", "gone"])
def test_an_object_that_changes_is_an_error_and_never_other_bytes(
    s3: S3, local: Path, client: Any, change: str
) -> None:
    before, _ = consume(client, OTHER)
    (row,) = client.fetch(12, {FIRST: 0}, partition_max_bytes=1).values()
    assert stored(local, FIRST).startswith(row["records"])
    path = s3.file("logs") / "t-0" / f"{0:020}.log"
    if change == "gone":
        path.unlink()
    else:
        import s3fs

        library = s3fs.S3FileSystem(use_listings_cache=False)
        key = f"{s3.bucket}/logs/t-0/{path.name}"
        library.pipe_file(key, os.urandom(path.stat().st_size))
    data, row = consume(client, FIRST)
    assert stored(local, FIRST).startswith(data)
    assert len(data) < SEGMENT_MIB * MiB
    assert row["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR
    assert consume(client, OTHER)[0] == before
