"""A broker merges two segments into one after a reader has listed them."""

import os
import shutil

import pytest
from models.log_directory import Log, Segment
from models.record_format import Batch, Row

import kafkastore

SUFFIXES = (".log", ".index", ".timeindex")
START_MS = 1_500_000_000_000


def batch(base_offset):
    rows = (Row(each, START_MS + each, b"k", b"v") for each in range(base_offset, base_offset + 4))
    return Batch(tuple(rows), 2)


def segment(start, end):
    return Segment(start, tuple(map(batch, range(start, end, 4)))).indexed(interval=60)


def merge(directory, first, second, end):
    """Replace two segments by one, in the order of a broker."""
    staged = directory.parents[1] / "staged"
    staged.mkdir()
    segment(first, end).write(staged)
    for suffix in SUFFIXES:
        os.replace(staged / f"{first:020}{suffix}", directory / f"{first:020}{suffix}.swap")
    for base in (first, second):
        for suffix in SUFFIXES:
            path = directory / f"{base:020}{suffix}"
            path.rename(f"{path}.deleted")
    for suffix in SUFFIXES:
        path = directory / f"{first:020}{suffix}"
        path.with_name(path.name + ".swap").rename(path)
    shutil.rmtree(staged)
    for path in directory.glob("*.deleted"):
        path.unlink()


READERS = {
    "records": lambda log: (each.offset for each in log.records()),
    "batches": lambda log: (
        offset for each in log.batches() for offset in range(each.base_offset, each.last_offset + 1)
    ),
    "to_arrow": lambda log: (
        offset
        for each in log.to_arrow(["offset"], batch_rows=4)
        for offset in each["offset"].to_pylist()
    ),
    "lookups": lambda log: (
        log.offset_for_timestamp(START_MS + offset).offset for offset in range(84)
    ),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("read_before", range(0, 84, 7))
@pytest.mark.parametrize("merged", [(0, 40, 80), (40, 80, 84)], ids=["first", "last"])
def test_segments_merged_after_the_listing_are_read_as_one(tmp_path, reader, read_before, merged):
    parts = (segment(0, 40), segment(40, 80), segment(80, 84))
    root = Log(parts, is_clean=False).write(tmp_path / "logs")
    log = kafkastore.open(root)["t", 0]
    assert len(log.segments) == 3
    offsets = READERS[reader](log)
    found = [next(offsets) for _ in range(read_before)]
    merge(log.path, *merged)
    assert [*found, *offsets] == list(range(84))
