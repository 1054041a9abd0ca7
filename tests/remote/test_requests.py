"""How many requests and bytes it takes to read a store in S3."""
from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cli.running import Run
from remote.conftest import S3

import kafkastore
from kafkastore import LogDirWriter, Severity
from kafkastore.remote.sparse_files import BLOCK_BYTES, LARGEST_FETCH_BLOCKS, WHOLE_BLOCKS

START = 1_500_000_000_000
SEGMENTS = 50
BATCHES, RECORD_BYTES = 40, 16_000
#: Requests for the small files of a log directory and a partition together.
SMALL_FILES = 8


def write_store(root: Path, record_bytes: int) -> Path:
    """Write one partition of batches of one record, one a second; 40 large ones a segment."""
    config = {"segment.bytes": BATCHES * (record_bytes + 100), "retention.ms": -1}
    with LogDirWriter(root, clock=lambda: START) as log_dir:
        writer = log_dir.writer("orders", 0, config)
        value = bytes(record_bytes)
        for number in range(SEGMENTS * BATCHES):
            writer.append_columns(
                pa.table({"value": [value], "timestamp": [START + number * 1000]})
            )
    return root


@pytest.fixture(scope="module")
def big_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 50 large segments with batches of 16 KB, so that partial reads can be detected."""
    return write_store(tmp_path_factory.mktemp("big") / "logs", RECORD_BYTES)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write nearly as many objects with few bytes."""
    return write_store(tmp_path_factory.mktemp("small") / "logs", 10)


def objects(root: Path) -> int:
    return sum(path.is_file() for path in root.rglob("*"))


def test_opening_and_listing_takes_one_request_for_a_thousand_objects(
    s3: S3, store: Path
) -> None:
    url = s3.put(store, "logs")
    log = kafkastore.open(url)["orders-0"]
    assert [each.size for each in log.segments] == [
        each.size for each in kafkastore.open(store)["orders-0"].segments
    ]
    assert len(s3.proxy.requests) == math.ceil(objects(store) / 1000)
    assert s3.proxy.gets == []


def test_more_than_a_thousand_objects_are_listed_page_by_page(s3: S3) -> None:
    for number in range(300):
        directory = s3.file(f"logs/orders-{number}")
        directory.mkdir(parents=True)
        for suffix in ("log", "index", "timeindex", "snapshot"):
            (directory / f"{0:020d}.{suffix}").touch()
    assert len(kafkastore.open(f"s3://{s3.bucket}/logs").partitions) == 300
    assert len(s3.proxy.requests) == 2


def test_a_lookup_by_time_that_trusts_indexes_reads_their_ends_and_one_position(
    s3: S3, big_store: Path
) -> None:
    url = s3.put(big_store, "logs")
    target = START + 777_500
    found = kafkastore.open(url)["orders-0"].offset_for_timestamp(target, indexes="trust")
    assert found is not None
    assert found.offset == 778
    gets = s3.proxy.gets
    by_file = Counter(each.path for each in gets)
    # A segment before the one with the answer: both indexes, the first batch and those after the
    # last index entry.
    segments = 778 // BATCHES + 1
    assert len(gets) <= 4 * segments + SMALL_FILES
    assert max(by_file.values()) <= 3
    assert sum(each.bytes for each in gets) <= (
        segments * (2 * WHOLE_BLOCKS + 2) * BLOCK_BYTES
    )


def test_a_lookup_by_time_that_checks_indexes_fetches_the_segments_up_to_the_answer_once(
    s3: S3, big_store: Path
) -> None:
    log = kafkastore.open(s3.put(big_store, "logs"))["orders-0"]
    for _ in range(2):
        found = log.offset_for_timestamp(START + 3 * BATCHES * 1000)
        assert found is not None
        assert found.offset == 3 * BATCHES
        log.refresh()
    fetched: Counter[str] = Counter()
    for each in s3.proxy.gets:
        if each.path.endswith(".log"):
            fetched[each.path] += each.bytes
    read = [segment.size for segment in log.segments[:4]]
    assert sum(read) <= sum(fetched.values()) <= sum(read) + 2 * WHOLE_BLOCKS * BLOCK_BYTES


def test_a_minute_of_fifty_segments_is_read_only_from_those_that_contain_it(
    s3: S3, big_store: Path
) -> None:
    url = s3.put(big_store, "logs")
    log = kafkastore.open(url)["orders-0"]
    first, last = 1000, 1060
    rows = sum(len(each) for each in log.to_arrow(start_offset=first, end_offset=last))
    assert rows == 60
    logs_read = {each.path for each in s3.proxy.gets if each.path.endswith(".log")}
    assert len(logs_read) <= 60 // BATCHES + 3  # and the last one, for the log's end
    wanted = 60 * RECORD_BYTES
    assert sum(each.bytes for each in s3.proxy.gets) <= 3 * wanted + 8 * WHOLE_BLOCKS * BLOCK_BYTES


@pytest.mark.usefixtures("poisoned")
def test_only_the_used_part_of_preallocated_indexes_is_fetched(
    s3: S3, golden: Any, whole_seconds: Callable[[Path], Path]
) -> None:
    logs = whole_seconds(golden("2.4.0", "preallocate-killed", "answers").logs)
    for path in logs.rglob("*.*index"):
        modified_ns = path.stat().st_mtime_ns
        os.truncate(path, 10485756 if path.suffix == ".timeindex" else 10485760)
        os.utime(path, ns=(modified_ns, modified_ns))
    store = kafkastore.open(s3.put(logs, "logs"))
    here = kafkastore.open(logs)
    for log in store:
        local = here[log.topic_partition]
        for rules in ("correct", "2.4"):
            found = [each.offset_for_timestamp(START, rules) for each in (log, local)]
            assert found[0] == found[1]
        for segment, other in zip(log.segments, local.segments, strict=True):
            assert segment.time_index.entries().tolist() == other.time_index.entries().tolist()
            assert segment.offset_index.entries().tolist() == other.offset_index.entries().tolist()
    fetched: Counter[str] = Counter()
    for each in s3.proxy.gets:
        if each.path.endswith("index"):
            fetched[each.path] += each.bytes
    assert fetched
    assert max(fetched.values()) <= 2 * BLOCK_BYTES


def test_reading_all_fetches_each_byte_once_in_growing_pieces(s3: S3, big_store: Path) -> None:
    url = s3.put(big_store, "logs")
    log = kafkastore.open(url)["orders-0"]
    rows = sum(len(each) for each in log.to_arrow())
    assert rows == SEGMENTS * BATCHES
    size = sum(each.size for each in log.segments)
    fetched = [each for each in s3.proxy.gets if each.path.endswith(".log")]
    assert size <= sum(each.bytes for each in fetched) <= size + SEGMENTS * BLOCK_BYTES
    # 512 KiB, 1 MiB, 2 MiB ... up to 8 MiB
    assert len(fetched) <= size / (LARGEST_FETCH_BLOCKS * BLOCK_BYTES) + 4 * SEGMENTS


def test_verifying_fetches_each_byte_once(s3: S3, big_store: Path) -> None:
    url = s3.put(big_store, "logs")
    found = [each for each in kafkastore.verify(url) if each.severity is not Severity.STYLE]
    assert found == []
    total = sum(path.stat().st_size for path in big_store.rglob("*") if path.is_file())
    assert sum(each.bytes for each in s3.proxy.gets) <= total
    assert len(s3.proxy.gets) <= 4 * objects(big_store)


@pytest.mark.parametrize(
    "line",
    ["ls", "verify", "predict", "compare --samples 3", "latency", "migrate", "reindex --dry-run"],
)
def test_a_command_lists_a_store_once(s3: S3, run: Run, store: Path, line: str) -> None:
    url = s3.put(store, "logs")
    command, *options = line.split()
    assert run(command, url, *options).code == 0
    assert sum(each.is_listing for each in s3.proxy.requests) == math.ceil(
        objects(store) / 1000
    )


def test_a_parent_of_a_listed_directory_is_listed(s3: S3, store: Path) -> None:
    s3.put(store, "logs/kept")
    log = next(iter(kafkastore.open(f"s3://{s3.bucket}/logs/kept/orders-0")))
    above, local = kafkastore.open(log.path.parent), kafkastore.open(store)
    assert [*above.partitions] == [*local.partitions]
    assert above.log_dirs[0].recovery_points == local.log_dirs[0].recovery_points != {}
