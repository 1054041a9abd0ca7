"""Slices cover all offsets, each once, and have about the requested size."""
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.record_strategies import bounded, logs

import kafkastore
from kafkastore.spark.jobs.records import MOST_FILES_AT_ONCE
from kafkastore.spark.source.slices import (
    END,
    LARGEST_TASK_BYTES,
    OPENING_BYTES,
    SMALLEST_TASK_BYTES,
    LogSlice,
    at_most,
    cut,
    log_bytes,
    pack,
    spread,
    task_bytes,
)


@bounded(120)
@given(
    log=logs(),
    start=st.integers(0, 20),
    length=st.sampled_from([0, 1, 5, 30, None]),
    size=st.sampled_from([1, 80, 300, 10_000]),
)
def test_slices_hold_every_record_once_and_in_order(tmp_path_factory, log, start, length, size):
    (opened,) = kafkastore.open(log.write(tmp_path_factory.mktemp("log") / "logs"))
    end = END if length is None else start + length
    slices = list(cut(opened, start, end, size))
    ends = [each.end_offset for each in slices]
    assert [each.start_offset for each in slices[1:]] == ends[:-1]
    read = [
        record.offset
        for each in slices
        for record in each.open_log().records(
            max(each.start_offset, opened.log_start_offset), each.end_offset
        )
    ]
    assert read == [record.offset for record in opened.records(start, end)]


def test_a_large_segment_is_cut_at_its_offset_index(golden):
    (log,) = (
        each
        for each in kafkastore.open(golden("2.4.0", "create-time-monotonic", "answers").logs)
        if str(each.topic_partition).endswith("-0") and not each.topic.startswith("__")
    )
    segment = max(log.segments, key=lambda each: each.size)
    slices = list(cut(log, segment.base_offset, segment.next_offset, segment.size // 3))
    assert len(slices) == 3
    entries = segment.offset_index.entries()["offset"].tolist()
    assert all(each.start_offset in entries for each in slices[1:])
    assert sum(each.bytes for each in slices) == segment.size


def test_planning_opens_no_log(golden, monkeypatch):
    store = kafkastore.open(golden("2.4.0", "codecs", "answers").logs)
    monkeypatch.setattr("kafkastore.segment.log_segment.LogSegment.open_log", None)
    for log in store:
        size = log_bytes(log, 0, END)
        assert sum(each.bytes for each in cut(log, 0, END, 1000)) == size


@given(st.lists(st.integers(0, 5 * OPENING_BYTES)), st.integers(1, 10 * OPENING_BYTES))
def test_packs_keep_all_slices_in_order_and_fill_up(sizes, size):
    slices = [LogSlice("/t-0", "t", 0, at, at + 1, each) for at, each in enumerate(sizes)]
    packs = pack(slices, size)
    assert [each for one in packs for each in one.slices] == slices
    weights = [sum(each.bytes + OPENING_BYTES for each in one.slices) for one in packs]
    assert all(
        weight <= size or len(one.slices) == 1 for weight, one in zip(weights, packs, strict=True)
    )
    assert all(one + other > size for one, other in pairwise(weights))


@given(st.integers(0, 50), st.integers(0, 300), st.integers(1, 60), st.booleans())
def test_a_slice_is_cut_by_offsets_as_evenly_as_can_be(start, count, most, is_open):
    original = LogSlice("/t-0", "t", 0, start, END if is_open else start + count, 7, start + count)
    parts = list(at_most(original, most))
    assert [each.start_offset for each in parts] == [start, *(e.end_offset for e in parts[:-1])]
    assert parts[-1].end_offset == original.end_offset
    counts = [each.known_end_offset - each.start_offset for each in parts]
    assert max(counts) <= most
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == count


@given(st.lists(st.integers(1, 100), min_size=1), st.integers(1, 40))
def test_slices_are_spread_over_enough_tasks(counts, wanted):
    slices = [LogSlice("/t-0", "t", at, 0, END, 7, count) for at, count in enumerate(counts)]
    parts = spread(slices, wanted)
    for original in slices:
        own = [each for each in parts if each.partition == original.partition]
        assert [each.start_offset for each in own] == [0, *(e.end_offset for e in own[:-1])]
        assert own[-1].end_offset == END
    assert min(wanted, sum(counts)) <= len(parts) <= wanted + len(slices)


@given(st.lists(st.integers(0, 30)), st.integers(30, 60))
def test_packs_have_no_more_records_than_requested(counts, most):
    slices = [LogSlice("/t-0", "t", 0, 0, count, 1, count) for count in counts]
    packs = pack(slices, 1 << 40, most)
    assert [each for one in packs for each in one.slices] == slices
    assert all(sum(each.end_offset for each in one.slices) <= most for one in packs)


def test_bytes_of_a_range_are_those_between_its_offsets(golden):
    (log,) = (
        each
        for each in kafkastore.open(golden("2.4.0", "create-time-monotonic", "answers").logs)
        if str(each.topic_partition).endswith("-0") and not each.topic.startswith("__")
    )
    end = log.log_end_offset
    places = [0, end // 4, end // 2, end // 2 + 1, end]
    sizes = [log_bytes(log, start, stop) for start, stop in pairwise(places)]
    assert all(size >= 0 for size in sizes)
    assert sum(sizes) <= log_bytes(log, 0, END) == sum(each.size for each in log.segments)
    assert log_bytes(log, 0, end // 2) < 0.7 * log_bytes(log, 0, END)


def test_no_task_reads_more_partitions_than_files_are_written_at_once():
    assert LARGEST_TASK_BYTES // OPENING_BYTES < MOST_FILES_AT_ONCE


@pytest.mark.parametrize(
    ("total", "min_tasks", "expected"),
    [
        (0, 1, 1),
        (1000, 1, 1000),
        (SMALLEST_TASK_BYTES * 2, 1, SMALLEST_TASK_BYTES),
        (1 << 50, 1, LARGEST_TASK_BYTES),
        (1000, 10, 100),
    ],
)
def test_tasks_are_neither_tiny_nor_huge(total, min_tasks, expected):
    assert task_bytes(total, min_tasks) == expected
