"""Sizes of indexes: KIP-33's figures by formula, and files of brokers."""
from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models.log_directory import Log, Segment
from models.refused import refused
from models.seed import examples
from models.segment_indexes import recovered_entries

import kafkastore
from kafkastore import CorruptBatchError
from kafkastore.formats.records.record_builder import build_batch
from kafkastore.jobs.sizing import sizing
from kafkastore.use_cases.sizing import (
    MINUTE_MS,
    SECOND_MS,
    BucketSize,
    IndexSize,
    sizing_of,
    total,
)

MIB, GIB = 1 << 20, 1 << 30


# The proposal's figures.


def test_time_buckets_have_the_sizes_in_the_table_of_the_proposal():
    """3500 partitions: 86400 seconds, 3.4 GB; 1440 minutes, 57 MB."""
    second, minute = sizing(broker_partitions=3500, buckets_ms=(SECOND_MS, MINUTE_MS)).by_bucket
    assert (second.entries, minute.entries) == (3500 * 86_400, 3500 * 1_440)
    assert round(second.bytes / GIB, 1) == 3.4
    assert minute.bytes // MIB == 57


def test_a_time_index_takes_3_mb_for_a_segment_of_1_gb():
    (size,) = sizing(intervals=[4096], broker_partitions=1).by_interval
    assert size.time_index_bytes == 3 * MIB


@pytest.mark.parametrize("interval", [512, 4096, 100_000])
def test_a_time_index_is_at_most_one_and_a_half_times_an_offset_index(interval):
    (size,) = sizing(intervals=[interval]).by_interval
    assert size.time_index_bytes == 1.5 * size.offset_index_bytes


@pytest.mark.golden_cases(names=["crea*", "codecs", "roll*"], versions=["0.10.2.2", "2.*", "3.*"])
def test_no_real_time_index_exceeds_its_estimated_size(golden_case):
    """It exceeds it at most by the last entry."""
    for log in kafkastore.open(golden_case.logs):
        for segment in log.segments:
            offsets, times = segment.offset_index, segment.time_index
            assert times.used_entry_count <= offsets.used_entry_count + 1


def test_a_time_index_is_a_third_file_of_each_segment(golden):
    """The proposal has "about 1/3" more handles; three files for two are half as many more."""
    counts = {}
    for version in ("0.10.0.1", "0.10.2.2"):
        logs = golden(version, "codecs", "answers").logs
        names = [name for _, _, names in os.walk(logs) for name in names]
        counts[version] = [
            sum(name.endswith(suffix) for name in names)
            for suffix in (".log", ".index", ".timeindex")
        ]
    for version, per_segment in (("0.10.0.1", [1, 1, 0]), ("0.10.2.2", [1, 1, 1])):
        segments = counts[version][0]
        assert counts[version] == [segments * each for each in per_segment]


# Real directories.


@pytest.mark.golden_cases(names="create-time-*", answers="answers")
def test_actual_sizes_of_indexes_are_reported(golden_case):
    store = kafkastore.open(golden_case.logs)
    found = sizing(store)
    segments = [segment for log in store for segment in log.segments]
    assert found.segments == len(segments)
    assert found.partitions == len(store.partitions)
    assert found.log_bytes == sum(segment.size for segment in segments)
    for suffix, reported in (
        (".index", found.as_it_is.offset_index_bytes),
        (".timeindex", found.as_it_is.time_index_bytes),
    ):
        sizes = [path.stat().st_size for path in golden_case.logs.rglob(f"*{suffix}")]
        assert reported == sum(sizes)  # trimmed at the clean shutdown


@pytest.mark.golden_cases(names="crash", versions=["3.9.1", "4.*"], answers="answers-recovered")
def test_an_interval_gives_the_sizes_of_indexes_that_brokers_rebuild(golden_case):
    """The indexes that the broker rebuilt after the crash have the same number of entries."""
    store = kafkastore.open(golden_case.logs)
    for log in store:
        interval = int(golden_case.answers["topic_config"][log.topic]["index.interval.bytes"])
        found = sizing_of(log, intervals=[interval])
        (rebuilt,) = found.by_interval
        used = [segment.offset_index.used_entry_count for segment in log.segments]
        assert rebuilt.offset_entries == sum(used)


def test_preallocated_zeros_are_not_entries(golden):
    case = golden("2.4.0", "crash", "answers")
    found = sizing(kafkastore.open(case.logs))
    assert found.as_it_is.offset_index_bytes < sum(
        path.stat().st_size for path in case.logs.rglob("*.index")
    )


def test_missing_indexes_have_no_entries_and_their_segments_are_completely_scanned(golden):
    case = golden("0.10.0.1", "upgrade", "answers")
    log = kafkastore.open(case.logs)["up-1"]
    assert sizing_of(log).as_it_is.time_entries == 0
    size = sizing_of(log, intervals=[1 << 30]).by_interval[0]
    assert size.offset_entries == 0
    assert size.largest_scan_bytes == max(segment.size for segment in log.segments)


def test_a_log_that_cannot_be_read_to_its_end_is_left_out(golden, writable_copy):
    logs = writable_copy(golden("2.4.0", "create-time-monotonic", "answers").logs)
    log = next(iter(kafkastore.open(logs)))
    path = log.segments[0].log_path
    data = bytearray(path.read_bytes())
    last = list(log.batches(0, log.segments[1].base_offset))[-1]
    data[last.position + 8 : last.position + 12] = b"\xff" * 4  # a negative length
    path.write_bytes(data)
    with pytest.raises(CorruptBatchError) as raised:
        sizing_of(kafkastore.open(logs)[str(log.topic_partition)])
    assert (raised.value.path, raised.value.position) == (path, last.position)


def test_a_segment_that_a_broker_deletes_meanwhile_is_left_out(golden, writable_copy):
    logs = writable_copy(golden("2.4.0", "create-time-monotonic", "answers").logs)
    log = next(iter(kafkastore.open(logs)))
    assert log.segments[0].log_path.exists()
    for path in log.path.glob(f"{log.segments[0].base_offset:020}.*"):
        path.rename(path.with_name(f"{path.name}.deleted"))
    count = len(log.segments)
    assert sizing_of(log).segments == count - 1


def test_active_segments_are_mapped_at_their_full_size(golden):
    case = golden("2.4.0", "create-time-monotonic", "answers")
    store = kafkastore.open(case.logs)
    found = sizing(store)
    inactive = [segment for log in store for segment in log.segments[:-1]]
    trimmed = sum(
        path.stat().st_size
        for segment in inactive for path in (segment.offset_index_path, segment.time_index_path)
    )
    full = found.partitions * (10_485_760 + 10_485_756)
    assert found.mapped_bytes(found.as_it_is) == trimmed + full
    assert found.mapped_bytes(found.as_it_is, 100) == trimmed + found.partitions * (96 + 96)


def test_sizes_of_an_empty_store_are_0(tmp_path):
    (tmp_path / "meta.properties").write_text("version=0\n")
    found = sizing(kafkastore.open(tmp_path))
    assert (found.partitions, found.log_bytes) == (0, 0)
    assert found.mean_scan_bytes(found.as_it_is) == 0


def test_intervals_below_1_are_refused():
    with refused("intervals"):
        sizing(intervals=[0])
    with refused("buckets_ms"):
        sizing(buckets_ms=[0])


def test_sizes_can_be_added(golden):
    store = kafkastore.open(golden("2.4.0", "create-time-out-of-order", "answers").logs)
    assert total(map(sizing_of, store)) == sizing(store)
    one, other = IndexSize(1, 2, 3, 4, 5.0, 6), IndexSize(1, 20, 30, 40, 50.0, 5)
    assert one + other == IndexSize(1, 22, 33, 44, 55.0, 6)
    assert BucketSize(9, 1) + BucketSize(9, 2) == BucketSize(9, 3)


# A slow model.


class _Record:
    key = None

    def __init__(self, offset, timestamp, size):
        self.offset, self.timestamp, self.value = offset, timestamp, bytes(size)


class _Batch:
    """The attributes of `models.record_format.Batch` that a segment needs."""

    def __init__(self, offset, timestamp, size):
        self.data = build_batch([_Record(offset, timestamp, size)])
        self.last_offset, self.max_timestamp = offset, timestamp


@given(
    batches=st.lists(st.tuples(st.integers(-1, 400_000), st.integers(0, 300)), max_size=25),
    interval=st.integers(1, 1500),
    bucket_ms=st.sampled_from([1, SECOND_MS, MINUTE_MS]),
)
@settings(max_examples=examples(60))
def test_sizes_agree_with_counting_batch_by_batch(tmp_path_factory, batches, interval, bucket_ms):
    made = tuple(_Batch(offset, *each) for offset, each in enumerate(batches))
    segment = Segment(0, made)
    root = Log((segment,)).write(tmp_path_factory.mktemp("sizing") / "logs")
    found = sizing(kafkastore.open(root), intervals=[interval], buckets_ms=[bucket_ms])
    (size,), (bucket,) = found.by_interval, found.by_bucket

    placed = [(at, each.last_offset, each.max_timestamp) for at, each in segment.placed]
    offset_entries, time_entries = recovered_entries(placed, interval)
    assert size.offset_entries == len(offset_entries)
    assert size.time_entries == len(time_entries)

    # For each byte of the log: its distance from the last position that an entry leads to.
    positions = [0, *(position for _, position in offset_entries)]
    passed = [at + 0.5 - max(p for p in positions if p <= at) for at in range(len(segment.log))]
    assert size.scanned_bytes == pytest.approx(sum(passed))
    ends = [*positions[1:], len(segment.log)]
    assert size.largest_scan_bytes == max(np.subtract(ends, positions))

    entries, last = 0, -1
    for _, _, timestamp in placed:
        if timestamp >= 0 and timestamp // bucket_ms > last:
            last = timestamp // bucket_ms
            entries += 1
    assert bucket.entries == entries
