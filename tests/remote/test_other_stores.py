"""Stores other than S3 are read through the common interface of fsspec."""
from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import fsspec
import pytest

import kafkastore
from kafkastore import RemoteObjectChangedError, RemoteStoreError
from kafkastore.remote.stores import RemoteStore, _modified_ns


@pytest.fixture
def memory(golden: Any) -> Iterator[Any]:
    """Return fsspec's store in memory with a log directory."""
    library = fsspec.filesystem("memory")
    library.put(f"{golden('2.4.0', 'transactions', 'answers').logs}/", "/logs/", recursive=True)
    yield library
    library.rm("/logs", recursive=True)


@pytest.mark.usefixtures("memory", "poisoned")
def test_records_are_those_of_the_local_store(golden: Any) -> None:
    local = kafkastore.open(golden("2.4.0", "transactions", "answers").logs)
    there = kafkastore.open("memory://logs")
    assert list(there.partitions) == list(local.partitions)
    for one, other in zip(there, local, strict=True):
        assert [each.to_pylist() for each in one.to_arrow()] == [
            each.to_pylist() for each in other.to_arrow()
        ]


def test_a_changed_file_is_an_error(memory: Any) -> None:
    log = next(iter(kafkastore.open("memory://logs")))
    path = f"/logs/{log.topic_partition}/{log.segments[0].log_path.name}"
    memory.pipe_file(path, bytes(log.segments[0].size))
    with pytest.raises(RemoteObjectChangedError):
        [*log.to_arrow()]


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("size", [3, 10**12])
def test_an_object_of_another_size_than_listed_is_an_error_and_takes_no_room(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    places = list(kafkastore.open("memory://logs").partitions)
    path = f"/logs/{places[0]}/{0:020}.log"
    real = RemoteStore._find

    def find(self: RemoteStore) -> dict[str, Any]:
        found = real(self)
        (name,) = (each for each in found if each.endswith(path))
        return {**found, name: {**found[name], "size": size}}

    monkeypatch.setattr(RemoteStore, "_find", find)
    store = kafkastore.open("memory://logs")
    with pytest.raises(RemoteObjectChangedError) as caught:
        [*store[places[0]].records()]
    assert caught.value.url == f"memory:/{path}"
    (segment, *_) = store[places[0]].segments
    assert os.stat(segment.log_path).st_size == size
    assert os.stat(segment.log_path).st_blocks * 512 <= 1024 * 1024
    for place in places[1:]:
        assert [*store[place].records()]


def test_an_unlistable_directory_is_an_error_and_not_left_out() -> None:
    class Library(fsspec.AbstractFileSystem):
        """A library that lists by fsspec's own walk, as WebHDFS does."""

        protocol = "denying"

        def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
            if path.endswith("-0"):
                raise PermissionError(13, "Permission denied", path)
            names = {"logs": ["meta.properties", "orders-0"]}[path]
            return [
                {"name": f"{path}/{name}", "size": 0, "mtime": 0,
                 "type": "directory" if name.endswith("-0") else "file"}
                for name in names
            ]

    fsspec.register_implementation("denying", Library, clobber=True)
    with pytest.raises(RemoteStoreError) as caught:
        kafkastore.open("denying://logs")
    assert caught.value.url == "denying://logs"
    assert isinstance(caught.value.__cause__, PermissionError)


@pytest.mark.parametrize(
    "info",
    [
        {"mtime": 1_600_000_000.5},
        {"modificationTime": 1_600_000_000_500},
        {"updated": "2020-09-13T12:26:40.500Z"},
        {"last_modified": datetime.fromisoformat("2020-09-13T12:26:40.5Z")},
    ],
)
def test_modification_times_are_read_in_each_format(info: dict[str, Any]) -> None:
    assert _modified_ns("x://y", info) == 1_600_000_000_500_000_000
