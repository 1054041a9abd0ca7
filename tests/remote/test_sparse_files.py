"""Sparse files: the bytes of each request, the disk space, and use by threads and processes."""
from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kafkastore import InvalidConfigError, RemoteStoreError
from kafkastore.errors import RemoteObjectChangedError
from kafkastore.reads import fetch_bytes, is_remote, watch
from kafkastore.remote import sparse_files
from kafkastore.remote.sparse_files import BLOCK_BYTES, LARGEST_FETCH_BLOCKS, SparseFile
from kafkastore.remote.stores import RemoteObject

MODIFIED_NS = 1_600_000_000_123_456_789


class Store:
    """A store in memory that records the requested ranges."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.requests: list[tuple[int, int]] = []

    def read(self, source: RemoteObject, start: int, end: int) -> bytes:
        self.requests.append((start, end))
        return self.data[start:end]

    @property
    def blocks(self) -> list[tuple[int, int]]:
        return [(start // BLOCK_BYTES, -(-end // BLOCK_BYTES)) for start, end in self.requests]


@pytest.fixture
def made(tmp_path: Path) -> Any:
    """Return a function from a number of blocks to a file, its store, and a descriptor."""
    opened, files = [], []

    def make(
        blocks: int, odd_bytes: int = 0, *, zeros: int = 0, suffix: str = ".log"
    ) -> tuple[SparseFile, Store, int]:
        data = random.Random(blocks).randbytes(blocks * BLOCK_BYTES + odd_bytes)
        store = Store(data + bytes(zeros))
        path = str(tmp_path / f"{len(files)}{suffix}")
        source = RemoteObject(
            store, path, f"s3://b/{len(files)}{suffix}", len(store.data), MODIFIED_NS, "v"
        )  # type: ignore[arg-type]
        files.append(SparseFile(path, source))
        opened.append(os.open(path, os.O_RDONLY))
        return files[-1], store, opened[-1]

    watch(sparse_files.find)
    yield make
    for descriptor in opened:
        os.close(descriptor)
    for file in files:
        file.remove()


def read(descriptor: int, start: int, size: int) -> bytes:
    fetch_bytes(descriptor, start, start + size)
    return os.pread(descriptor, size, start)


def test_a_sequential_reader_gets_ever_larger_pieces(made: Any) -> None:
    _, store, descriptor = made(1000, odd_bytes=5)
    got = b"".join(
        read(descriptor, at, BLOCK_BYTES) for at in range(0, len(store.data), BLOCK_BYTES)
    )
    assert got == store.data
    assert store.blocks == [
        (0, 1), (1, 3), (3, 7), (7, 15), (15, 31), (31, 63), (63, 127), (127, 255), (255, 383),
        (383, 511), (511, 639), (639, 767), (767, 895), (895, 1001),
    ]


def test_a_backward_reader_also_gets_larger_pieces(made: Any) -> None:
    _, store, descriptor = made(100)
    for at in reversed(range(100)):
        start = at * BLOCK_BYTES
        assert read(descriptor, start, BLOCK_BYTES) == store.data[start : start + BLOCK_BYTES]
    assert store.blocks == [(99, 100), (97, 99), (93, 97), (85, 93), (69, 85), (37, 69), (0, 37)]


def test_a_random_reader_gets_only_the_requested_blocks(made: Any) -> None:
    _, store, descriptor = made(1000)
    for at in (500, 10, 900, 300):
        read(descriptor, at * BLOCK_BYTES + 7, 100)
    assert store.blocks == [(500, 501), (10, 11), (900, 901), (300, 301)]
    read(descriptor, 500 * BLOCK_BYTES, BLOCK_BYTES)
    assert len(store.requests) == 4


def test_a_small_file_is_completely_fetched(made: Any) -> None:
    _, store, descriptor = made(3, odd_bytes=1)
    read(descriptor, 2 * BLOCK_BYTES, 1)
    assert store.requests == [(0, 3 * BLOCK_BYTES + 1)]


@pytest.mark.parametrize(("used", "requests"), [(0, 1), (1, 2), (5, 3), (40, 6)])
def test_the_zeros_of_a_preallocated_index_are_not_fetched(
    made: Any, used: int, requests: int
) -> None:
    size = 10 << 20
    odd = 7 if used else 0
    _, store, descriptor = made(
        used, odd, zeros=size - used * BLOCK_BYTES - odd, suffix=".timeindex"
    )
    step = 48 * 1024
    for start in reversed(range(0, size, step)):
        assert read(descriptor, start, step) == store.data[start : start + step]
    assert len(store.requests) == requests + 1  # and the last block
    assert sum(end - start for start, end in store.requests) <= 2 * (used + 2) * BLOCK_BYTES
    _, store, descriptor = made(
        used, odd, zeros=size - used * BLOCK_BYTES - odd, suffix=".timeindex"
    )
    assert read(descriptor, 0, size) == store.data
    assert len(store.requests) == requests + 1


def test_a_preallocated_index_that_is_copied_is_completely_fetched(made: Any) -> None:
    _, store, descriptor = made(1, zeros=99 * BLOCK_BYTES, suffix=".index")
    store.data = store.data[: 50 * BLOCK_BYTES] + b"damage" + store.data[50 * BLOCK_BYTES + 6 :]
    read(descriptor, 100 * BLOCK_BYTES - 100, 100)  # for its last entry
    assert store.blocks == [(99, 100), (0, 1), (1, 3)]
    step = 16 * BLOCK_BYTES
    copied = [read(descriptor, at, step) for at in range(0, len(store.data), step)]
    assert b"".join(copied) == store.data


def test_an_index_used_to_its_end_is_fetched_like_other_files(made: Any) -> None:
    _, store, descriptor = made(100, suffix=".index")
    assert read(descriptor, 99 * BLOCK_BYTES, 100) == store.data[99 * BLOCK_BYTES :][:100]
    assert read(descriptor, 0, len(store.data)) == store.data
    assert store.blocks == [(99, 100), (0, 99)]


def test_a_large_piece_takes_several_requests(made: Any) -> None:
    _, store, descriptor = made(300)
    assert read(descriptor, 0, 300 * BLOCK_BYTES) == store.data
    assert max(end - start for start, end in store.blocks) == LARGEST_FETCH_BLOCKS


def test_nothing_is_fetched_beyond_the_end(made: Any) -> None:
    _, store, descriptor = made(5)
    assert read(descriptor, 5 * BLOCK_BYTES, 100) == b""
    assert store.requests == []


def test_size_and_modification_time_are_those_of_the_object(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sparse_files.DISK_BYTES_VARIABLE, str(4 * BLOCK_BYTES))
    file, store, descriptor = made(20)
    for at in range(20):
        read(descriptor, at * BLOCK_BYTES, 10)
        status = os.stat(file.path)
        assert (status.st_size, status.st_mtime_ns) == (len(store.data), MODIFIED_NS)


def test_the_used_disk_space_is_bounded(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    room = 40
    monkeypatch.setenv(sparse_files.DISK_BYTES_VARIABLE, str(room * BLOCK_BYTES))
    made_ones = [made(30) for _ in range(6)]
    most = 0
    for _, store, descriptor in made_ones * 2:
        for at in range(30):
            start = at * BLOCK_BYTES
            assert read(descriptor, start, BLOCK_BYTES) == store.data[start : start + BLOCK_BYTES]
            taken = sum(os.stat(file.path).st_blocks for file, _, _ in made_ones) * 512
            most = max(most, taken)
    assert most <= (room + 16) * BLOCK_BYTES  # one fetch may exceed it before space is freed
    assert most >= room * BLOCK_BYTES // 2


def test_a_file_larger_than_the_disk_space_can_be_read(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sparse_files.DISK_BYTES_VARIABLE, str(16 * BLOCK_BYTES))
    file, store, descriptor = made(600)
    step = 3 * BLOCK_BYTES
    for start in range(0, len(store.data), step):
        assert read(descriptor, start, step) == store.data[start : start + step]
    assert os.stat(file.path).st_blocks * 512 <= (16 + LARGEST_FETCH_BLOCKS) * BLOCK_BYTES


def test_threads_never_lose_bytes_before_they_read_them(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sparse_files.DISK_BYTES_VARIABLE, str(12 * BLOCK_BYTES))
    made_ones = [made(25) for _ in range(4)]
    def work(seed: int) -> int:
        chance, wrong = random.Random(seed), 0
        for _ in range(300):
            _, store, descriptor = chance.choice(made_ones)
            start = chance.randrange(len(store.data))
            size = chance.randrange(3 * BLOCK_BYTES)
            wrong += read(descriptor, start, size) != store.data[start : start + size]
        return wrong

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [0, 0, 0, 0]


def test_a_removed_file_can_no_longer_be_read(made: Any) -> None:
    file, _, descriptor = made(100)
    first = read(descriptor, 0, 10)
    file.remove()
    assert os.pread(descriptor, 10, 0) == first
    with pytest.raises(RemoteObjectChangedError) as caught:
        read(descriptor, 50 * BLOCK_BYTES, 10)
    assert caught.value.url == "s3://b/0.log"


def test_local_files_are_not_affected(tmp_path: Path, made: Any) -> None:
    made(1)
    path = tmp_path / "local"
    path.write_bytes(b"local")
    with path.open("rb") as file:
        fetch_bytes(file.fileno(), 0, 5)
        assert not is_remote(file.fileno())


def test_a_forked_process_must_open_files_itself(made: Any) -> None:
    _, _, descriptor = made(10)
    out, into = os.pipe()
    if (child := os.fork()) == 0:
        try:
            read(descriptor, 0, 10)
            os.write(into, b"read")
        except RemoteStoreError as error:
            os.write(into, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(into)
    said = os.read(out, 1000).decode()
    os.close(out)
    assert "forked; open it again" in said


def test_disk_space_that_is_not_a_number_is_refused(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sparse_files.DISK_BYTES_VARIABLE, "1 GB")
    with pytest.raises(InvalidConfigError) as caught:
        sparse_files.disk_bytes()
    assert caught.value.option == sparse_files.DISK_BYTES_VARIABLE
