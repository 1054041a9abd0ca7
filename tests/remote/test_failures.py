"""Errors of a store are reported as such, and never as a corrupt log."""
from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from remote.conftest import S3, forget_connections

import kafkastore
from kafkastore import PartitionLog, RemoteObjectChangedError, RemoteStoreError, reads
from kafkastore.checks.verify import verify_log
from kafkastore.log import range_scan
from kafkastore.log.parallel import piece_reading
from kafkastore.paths import name_url, to_path


@pytest.fixture
def url(s3: S3, golden: Any) -> str:
    """Return the URL of a store with logs of some segments."""
    return s3.put(golden("2.4.0", "transactions", "answers").logs, "logs")


def read_all(url: str) -> int:
    return sum(len(batch) for log in kafkastore.open(url) for batch in log.to_arrow())


READS: list[Callable[[PartitionLog], object]] = [
    lambda log: [*log.to_arrow()],
    lambda log: log.offset_for_timestamp(1_600_000_000_000),
    lambda log: log.offset_for_timestamp(1_600_000_000_000, "2.4"),
    lambda log: log.log_end_offset,
    lambda log: log.segments[0].summary,
    lambda log: log.segments[0].last_time_entry(),
    lambda log: log.segments[0].largest_timestamp_by_index,
    lambda log: log.segments[0].time_index,
    lambda log: [*verify_log(log)],
]


@pytest.mark.parametrize("ask", READS)
def test_denied_access_is_not_a_corrupt_log(
    s3: S3, url: str, ask: Callable[[PartitionLog], object]
) -> None:
    log = next(iter(kafkastore.open(url)))
    s3.proxy.fault = lambda method, path: 403
    with pytest.raises(RemoteStoreError) as caught:
        ask(log)
    assert caught.value.url.startswith(url)
    assert caught.value.start < caught.value.end
    assert isinstance(caught.value.__cause__, PermissionError)
    assert not reads._failures  # type: ignore[attr-defined]
    s3.proxy.fault = lambda method, path: None
    ask(log)


def test_threads_that_cannot_fetch_leave_the_error_to_the_reader(
    s3: S3, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(piece_reading, "SMALL_LOG_BYTES", 1)
    monkeypatch.setattr(range_scan, "SMALL_RANGE", 0)
    log = next(iter(kafkastore.open(url)))
    s3.proxy.fault = lambda method, path: 403
    with pytest.raises(RemoteStoreError):
        log.to_arrow(threads=3).read_all()
    assert not reads._failures  # type: ignore[attr-defined]
    s3.proxy.fault = lambda method, path: None
    assert log.to_arrow(threads=3).read_all() == log.to_arrow(threads=1).read_all()


def test_a_denied_listing_is_reported(s3: S3, url: str) -> None:
    s3.proxy.fault = lambda method, path: 403
    with pytest.raises(RemoteStoreError) as caught:
        kafkastore.open(url)
    assert caught.value.url == url
    assert isinstance(caught.value.__cause__, PermissionError)


def test_wrong_credentials_are_reported(
    s3: S3, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    forget_connections()
    with pytest.raises(RemoteStoreError) as caught:
        kafkastore.open(url)
    assert isinstance(caught.value.__cause__, PermissionError)


def test_transient_errors_are_retried(s3: S3, url: str) -> None:
    expected = read_all(url)
    kinds = cycle((503, "cut", None, None))
    given: list[int | str | None] = []

    def fault(method: str, path: str) -> int | str | None:
        given.append(next(kinds))
        return given[-1]

    s3.file("logs").rename(s3.file("moved"))  # so that no bytes of it are local
    s3.proxy.fault = fault
    assert read_all(url.replace("/logs", "/moved")) == expected
    assert given.count(503) > 2
    assert given.count("cut") > 2


@pytest.mark.parametrize("change", ["replaced", "deleted"])
def test_a_changed_object_is_an_error(
    s3: S3, url: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = next(iter(kafkastore.open(url)))
    segment = log.segments[0]
    key = f"logs/{log.topic_partition}/{segment.log_path.name}"
    if change == "deleted":
        s3.file(key).unlink()
    else:
        import s3fs

        library = s3fs.S3FileSystem(use_listings_cache=False)
        library.pipe_file(f"{s3.bucket}/{key}", bytes(segment.size))
        os.utime(s3.file(key), ns=(segment.last_modified_ns,) * 2)  # only the ETag differs
    with pytest.raises(RemoteObjectChangedError) as caught:
        [*log.to_arrow()]
    assert caught.value.url == f"{url}/{log.topic_partition}/{segment.log_path.name}"


def test_bytes_read_before_an_object_changed_are_not_mixed_with_new_ones(
    s3: S3, url: str
) -> None:
    log = next(iter(kafkastore.open(url)))
    before = [row for batch in log.to_arrow() for row in batch.to_pylist()]
    for segment in log.segments:
        s3.file(f"logs/{log.topic_partition}/{segment.log_path.name}").unlink()
    assert [row for batch in log.to_arrow() for row in batch.to_pylist()] == before


def test_an_unreachable_server_is_reported_with_its_url(
    s3: S3, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    forget_connections()
    with pytest.raises(RemoteStoreError) as caught:
        kafkastore.open(url, storage_options={"retries": 1})
    assert caught.value.url == url


@pytest.mark.parametrize(
    "url",
    [
        "nosuch://a/b",
        "gs://b/logs",
        "s3:///logs",
        "webhdfs:///logs",
        "hdfs://127.0.0.1:9/logs",
        "webhdfs://127.0.0.1:9/logs",
        "github://logs",
        "s3://b/../logs",
    ],
)
def test_a_url_without_a_store_is_one_clear_error(url: str) -> None:
    with pytest.raises(RemoteStoreError) as caught:
        kafkastore.open(url)
    assert (caught.value.url, caught.value.done) == (url, "read")


def test_errors_can_be_pickled() -> None:
    for error in (
        RemoteStoreError("s3://b/k", "no", 1, 2),
        RemoteObjectChangedError("s3://b/k", "is gone"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))


def test_errors_name_urls_also_after_pickling() -> None:
    path = to_path("s3://b/logs/t-0/0.log")
    error = kafkastore.CorruptBatchError("cut", path=path, position=7)
    for each in (error, pickle.loads(pickle.dumps(error))):
        assert str(each) == "cut in s3://b/logs/t-0/0.log at byte 7"
        assert str(each.path) == "s3://b/logs/t-0/0.log"
    with pytest.raises(FileNotFoundError) as raised:
        path.read_bytes()
    name_url(raised.value)
    assert raised.value.filename == "s3://b/logs/t-0/0.log"


def test_a_full_disk_is_reported(s3: S3, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = kafkastore.open(url)
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("only Linux has a full device")
    descriptor = os.open(full, os.O_WRONLY)

    def no_room(target: int, data: Any, position: int) -> int:
        return os.write(descriptor, data)

    monkeypatch.setattr("kafkastore.remote.sparse_files.os.pwrite", no_room)
    with pytest.raises(RemoteStoreError) as caught:
        [*next(iter(store)).to_arrow()]
    assert caught.value.__cause__.errno == errno.ENOSPC
    os.close(descriptor)
