"""Index files: which bytes are read, when, and the effect of concurrent changes."""

import errno
import os
import stat
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models.index_bytes import index_bytes, targets_near
from models.index_model import OffsetIndexModel, TimeIndexModel

from kafkastore.errors import CorruptIndexError, NotAFileError
from kafkastore.formats.indexes import entries as entry_types
from kafkastore.formats.indexes.index_format import offset_index, time_index
from kafkastore.formats.state.file_names import InvalidNameError
from kafkastore.segment import index_file
from kafkastore.segment.index_file import TAIL_BLOCK_SIZE, OffsetIndex, TimeIndex
from kafkastore.segment.segment_summary import last_time_entry

BASE_OFFSET = 42
MEBIBYTE = 1024 * 1024
OFFSET_ENTRIES = [(45, 4100), (50, 8300), (51, 12500)]
TIME_ENTRIES = [(1000, 45), (2000, 50), (2001, 51)]
KINDS = {
    OffsetIndex: (
        ".index",
        8,
        offset_index.pack(OFFSET_ENTRIES, BASE_OFFSET),
        OFFSET_ENTRIES,
        (42, 0),
    ),
    TimeIndex: (
        ".timeindex",
        12,
        time_index.pack(TIME_ENTRIES, BASE_OFFSET),
        TIME_ENTRIES,
        (-1, 42),
    ),
}
# The entry of twelve or eight zero bytes, with BASE_OFFSET.
ALL_ZERO = {OffsetIndex: (42, 0), TimeIndex: (0, 42)}
both_kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@pytest.fixture
def write(tmp_path):
    """Write an index file named for BASE_OFFSET, its padding as a hole or as written zeros."""

    def write(kind, data, padding=0, hole=False):
        path = tmp_path / f"{BASE_OFFSET:020d}{KINDS[kind][0]}"
        path.write_bytes(data + (b"" if hole else bytes(padding)))
        os.truncate(path, len(data) + padding)
        return path

    return write


@pytest.fixture
def preads(monkeypatch):
    """Every pread as (position, requested size)."""
    seen = []
    pread = os.pread

    def watched(descriptor, size, position):
        seen.append((position, size))
        return pread(descriptor, size, position)

    monkeypatch.setattr(index_file.os, "pread", watched)
    return seen


# Reading


@both_kinds
@pytest.mark.parametrize("hole", [True, False], ids=["hole", "zeros"])
@pytest.mark.parametrize("slots", [0, 1, 125, 200_000])
def test_padding_is_cut_and_can_be_put_back(write, kind, slots, hole):
    _, entry_size, data, entries, none = KINDS[kind]
    with kind.open(write(kind, data, slots * entry_size, hole)) as index:
        assert index.entry_count == 3 + slots
        assert index.used_entry_count == 3
        assert index.last_entry == entries[-1]
        assert index.last_entry_with_padding == (ALL_ZERO[kind] if slots else entries[-1])
        assert index.entries().tolist() == entries
        assert len(index.entries(with_padding=True)) == 3 + slots
        assert index.first_disorder() == -1
        assert index.entry_bytes() == data
        assert index.entry_bytes(with_padding=True) == data + bytes(slots * entry_size)
        target = entries[1][0]
        assert index.lookup(target) == entries[1]
        assert index.lookup_many([target, -5]).tolist() == [entries[1], none]
        model = (OffsetIndexModel if kind is OffsetIndex else TimeIndexModel)(
            index.entry_bytes(with_padding=True), BASE_OFFSET
        )
        assert index.lookup(target, with_padding=True) == model.lookup(target)
        assert index.lookup_many([target], with_padding=True).tolist() == [model.lookup(target)]
        assert index.truncate_to(50) == 1


@both_kinds
def test_an_empty_file_has_no_entries(write, kind):
    none = KINDS[kind][4]
    with kind.open(write(kind, b"")) as index:
        assert index.entry_count == index.used_entry_count == 0
        assert index.last_entry == index.last_entry_with_padding == index.lookup(100) == none
        assert index.entries().tolist() == index.raw.tolist() == []
        assert index.lookup_many([1, 2]).tolist() == [none, none]
        assert index.truncate_to(0) == 0
        index.check()


@both_kinds
def test_a_file_of_zeros_has_no_entries(write, kind):
    entry_size, none = KINDS[kind][1], KINDS[kind][4]
    for hole in (True, False):
        with kind.open(write(kind, b"", 100_000 * entry_size, hole)) as index:
            assert index.entry_count == 100_000
            assert index.used_entry_count == 0
            assert index.last_entry == index.lookup(10**15) == none
            assert index.last_entry_with_padding == ALL_ZERO[kind]


@pytest.mark.parametrize("slots", [1, 5, 100_000])
@pytest.mark.parametrize("hole", [True, False], ids=["hole", "zeros"])
def test_a_time_index_of_zeros_has_an_entry_if_the_log_says_so(write, slots, hole):
    path = write(TimeIndex, b"", 12 * slots, hole)
    with TimeIndex.open(path, first_timestamp_may_be_zero=True) as index:
        assert index.used_entry_count == 1
        assert index.last_entry == (0, BASE_OFFSET)
        assert index.entries().tolist() == [(0, BASE_OFFSET)]
        assert index.lookup(7) == (0, BASE_OFFSET)


def test_a_trimmed_time_index_of_twelve_zero_bytes_has_one_entry(write):
    path = write(TimeIndex, bytes(12))
    with TimeIndex.open(path) as index:
        assert index.used_entry_count == 1
        assert index.last_entry == index.last_entry_with_padding == (0, BASE_OFFSET)
        assert index.entries().tolist() == [(0, BASE_OFFSET)]
    for with_padding in (False, True):
        last = last_time_entry(path, BASE_OFFSET, with_padding=with_padding)
        assert last == (0, BASE_OFFSET)


@pytest.mark.parametrize("slots", [2, TAIL_BLOCK_SIZE // 12 + 1])
@pytest.mark.parametrize("hole", [True, False], ids=["hole", "zeros"])
def test_zeros_that_were_not_trimmed_to_one_slot_are_padding(write, slots, hole):
    path = write(TimeIndex, b"", 12 * slots, hole)
    with TimeIndex.open(path) as index:
        assert index.used_entry_count == 0
    assert last_time_entry(path, BASE_OFFSET, with_padding=False) == (-1, BASE_OFFSET)


def test_the_log_s_first_timestamp_does_not_affect_other_padding(write):
    data = KINDS[TimeIndex][2]
    path = write(TimeIndex, data, 5 * TAIL_BLOCK_SIZE)
    with TimeIndex.open(path, first_timestamp_may_be_zero=True) as index:
        assert index.entries().tolist() == TIME_ENTRIES
    with TimeIndex.open(write(TimeIndex, b""), first_timestamp_may_be_zero=True) as index:
        assert index.used_entry_count == 0


@both_kinds
def test_odd_bytes_at_the_end_are_not_an_entry_and_found_by_check(write, kind):
    entry_size, data, entries = KINDS[kind][1:4]
    for odd_bytes in range(1, entry_size):
        path = write(kind, data + b"\xff" * odd_bytes)
        with kind.open(path) as index:
            assert index.entry_count == index.used_entry_count == 3
            assert index.last_entry == entries[-1]
            assert index.entries().tolist() == entries
            assert len(index.raw) == 3
            assert index.entry_bytes(with_padding=True) == data
            with pytest.raises(CorruptIndexError) as refused:
                index.check()
            assert (refused.value.path, refused.value.position) == (path, 3 * entry_size)


@both_kinds
def test_check_names_the_file(write, kind):
    entry_size, data = KINDS[kind][1:3]
    path = write(kind, data + struct.pack(">ii" if kind is OffsetIndex else ">qi", -5, -5))
    with kind.open(path) as index, pytest.raises(CorruptIndexError) as refused:
        index.check()
    assert (refused.value.path, refused.value.position) == (path, 3 * entry_size)
    assert refused.value.__cause__ is not None


@both_kinds
def test_an_all_zero_slot_between_entries_counts_and_is_disorder(write, kind):
    entry_size, data = KINDS[kind][1:3]
    for zeros in (entry_size, 3 * TAIL_BLOCK_SIZE):
        with kind.open(write(kind, data + bytes(zeros) + data[-entry_size:], 600)) as index:
            assert index.used_entry_count == 4 + zeros // entry_size
            assert index.first_disorder() == 3


@both_kinds
def test_entry_reads_every_slot_of_the_file(write, kind):
    entry_size, data, entries = KINDS[kind][1:4]
    with kind.open(write(kind, data, 10 * entry_size)) as index:
        assert [index.entry(slot) for slot in range(3)] == entries
        assert index.entry(12) == index.last_entry_with_padding
        for slot in (-1, 13):
            with pytest.raises(IndexError):
                index.entry(slot)


def test_fetch_upper_bound_ignores_the_padding(write):
    with OffsetIndex.open(write(OffsetIndex, KINDS[OffsetIndex][2], 800)) as index:
        assert index.fetch_upper_bound(4100, 100) == (50, 8300)
        assert index.fetch_upper_bound(12500, 1) is None


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(list(KINDS)), st.data())
def test_any_bytes_in_a_file_are_what_they_are_in_memory(tmp_path_factory, kind, data):
    layout, model_kind = (
        (">ii", OffsetIndexModel) if kind is OffsetIndex else (">qi", TimeIndexModel)
    )
    content = data.draw(index_bytes(layout)) + bytes(
        data.draw(st.sampled_from([0, 5, 2 * TAIL_BLOCK_SIZE]))
    )
    path = tmp_path_factory.mktemp("any", numbered=True) / "x"
    path.write_bytes(content)
    model = model_kind(content, BASE_OFFSET)
    used = model_kind(content[: model.used_slots * model.entry_size], BASE_OFFSET)
    targets = targets_near(np.array([slot[0] for slot in used.slots], np.int64), len(content))
    with kind.open(path, BASE_OFFSET) as index:
        assert index.last_entry == used.last_entry
        assert index.used_entry_count == model.used_slots
        assert index.last_entry_with_padding == model.last_entry
        assert index.entries().tolist() == used.slots
        assert index.lookup_many(targets).tolist() == [used.lookup(int(t)) for t in targets]
        assert [index.lookup(t, with_padding=True) for t in targets.tolist()] == [
            model.lookup(int(t)) for t in targets
        ]
        complete = len(content) // model.entry_size * model.entry_size
        assert index.entry_bytes(with_padding=True) == content[:complete]
        assert index.first_disorder() == used.first_disorder()


# Opening and closing


@both_kinds
def test_opening_reads_nothing(write, kind, preads):
    with kind.open(write(kind, KINDS[kind][2])) as index:
        assert index.entry_count == 3
        assert index.base_offset == BASE_OFFSET
        assert preads == []


@both_kinds
def test_the_last_entry_of_a_large_padded_file_is_found_without_reading_its_hole(
    write, kind, preads
):
    entry_size, data, entries = KINDS[kind][1:4]
    path = write(kind, data, 10 * MEBIBYTE // entry_size * entry_size, hole=True)
    if path.stat().st_blocks * 512 > MEBIBYTE:
        pytest.skip("the file system keeps no holes")
    with kind.open(path) as index:
        assert index.last_entry == entries[-1]
    assert sum(size for _, size in preads) < 64 * 1024


@both_kinds
def test_the_last_entry_of_a_large_file_is_read_from_its_tail(write, kind, preads):
    entry_size, data = KINDS[kind][1:3]
    path = write(kind, b"\x01" * entry_size * 100_000 + data)
    with kind.open(path) as index:
        assert index.last_entry == KINDS[kind][3][-1]
    assert sum(size for _, size in preads) <= TAIL_BLOCK_SIZE + entry_size


@both_kinds
def test_the_used_part_is_read_once(write, kind, preads):
    with kind.open(write(kind, KINDS[kind][2], 1200)) as index:
        index.lookup(1)
        count = len(preads)
        index.lookup(2)
        index.lookup_many([3])
        index.entries()
        assert index.last_entry
        assert len(preads) == count


@both_kinds
def test_read_permission_is_enough(write, kind):
    path = write(kind, KINDS[kind][2])
    path.chmod(stat.S_IRUSR)
    path.parent.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with kind.open(path) as index:
            assert index.entries().tolist() == KINDS[kind][3]
            assert len(index.raw) == 3
    finally:
        path.parent.chmod(stat.S_IRWXU)


@both_kinds
def test_values_that_were_read_are_available_after_close(write, kind):
    entries = KINDS[kind][3]
    with kind.open(write(kind, KINDS[kind][2])) as index:
        raw = index.raw
        index.lookup(1)
    assert index.lookup(entries[1][0]) == entries[1]
    assert len(raw) == len(index.raw) == 3
    index.close()


@both_kinds
def test_reading_after_close_is_an_error(write, kind):
    index = kind.open(write(kind, KINDS[kind][2]))
    index.close()
    with pytest.raises(ValueError, match="closed"):
        index.lookup(1)


@both_kinds
def test_an_index_that_is_not_closed_warns(write, kind):
    indexes = [kind.open(write(kind, KINDS[kind][2]))]
    with pytest.warns(ResourceWarning):
        indexes.clear()


@both_kinds
def test_the_base_offset_is_in_the_name_unless_given(tmp_path, kind):
    suffix, _, data, _, none = KINDS[kind]
    path = tmp_path / f"index{suffix}"
    path.write_bytes(data)
    with pytest.raises(InvalidNameError):
        kind.open(path)
    with kind.open(str(path), 1042) as index:
        assert index.lookup(-9) == tuple(1042 if part == 42 else part for part in none)
        assert repr(index) == f"{kind.__name__}('{path}', base_offset=1042)"
    deleted = path.rename(tmp_path / f"{7:020d}{suffix}.deleted")
    with kind.open(deleted) as index:
        assert index.base_offset == 7


@both_kinds
def test_a_missing_file_is_an_os_error_and_a_directory_is_reported_as_one(tmp_path, kind):
    with pytest.raises(FileNotFoundError):
        kind.open(tmp_path / f"{7:020d}.index")
    with pytest.raises(NotAFileError):
        kind.open(tmp_path, 7)


# Files that change while they are open


@both_kinds
def test_a_file_removed_after_opening_is_still_read(write, kind):
    path = write(kind, KINDS[kind][2])
    with kind.open(path) as index:
        path.unlink()
        assert index.entries().tolist() == KINDS[kind][3]


@both_kinds
def test_a_file_cut_after_opening_gives_complete_entries_only(write, kind):
    entry_size, data, entries = KINDS[kind][1:4]
    for left in range(len(data) + 1):
        path = write(kind, data, 40 * entry_size)
        with kind.open(path) as index:
            os.truncate(path, left)
            complete = entries[: left // entry_size]
            assert index.entries().tolist() == complete
            assert index.last_entry == (complete[-1] if complete else KINDS[kind][4])
            assert index.used_entry_count == len(complete)
            assert len(index.entry_bytes()) == len(complete) * entry_size


@both_kinds
def test_a_file_cut_between_two_reads_gives_complete_entries_only(write, kind):
    entry_size, data, entries = KINDS[kind][1:4]
    for left in range(len(data) + 1):
        path = write(kind, data)
        with kind.open(path) as index:
            assert index.used_entry_count == 3
            os.truncate(path, left)
            complete = entries[: left // entry_size]
            assert index.last_entry == (complete[-1] if complete else KINDS[kind][4])
            assert index.entries().tolist() == complete
            assert index.used_entry_count == len(complete)
            index.lookup(10**6, with_padding=True)


@both_kinds
def test_a_file_that_grows_after_opening_is_read_as_before(write, kind):
    entry_size, data, entries = KINDS[kind][1:4]
    path = write(kind, data[:entry_size])
    with kind.open(path) as index:
        path.write_bytes(data)
        assert index.entry_count == 1
        assert index.entries().tolist() == entries[:1]
        assert len(index.raw) == 1


@both_kinds
def test_raw_is_a_read_only_view_of_the_stored_slots(write, kind):
    entry_size, data = KINDS[kind][1:3]
    path = write(kind, data, 2 * entry_size)
    with kind.open(path) as index:
        raw = index.raw
        assert raw.dtype == (
            entry_types.OFFSET_ENTRY_ON_DISK
            if kind is OffsetIndex
            else entry_types.TIME_ENTRY_ON_DISK
        )
        assert raw.tobytes() == path.read_bytes()
        assert (raw["relative_offset"][:3] + BASE_OFFSET).tolist() == [45, 50, 51]
        assert not raw.flags.writeable
        assert index.raw is raw
        os.truncate(path, entry_size + 1)
        with kind.open(path) as cut:
            assert len(cut.raw) == 1


@both_kinds
def test_raw_maps_no_more_than_the_file_has_left(write, kind):
    entry_size, data = KINDS[kind][1:3]
    path = write(kind, data)
    with kind.open(path) as index:
        os.truncate(path, entry_size + 3)
        assert len(index.raw) == 1


@both_kinds
def test_a_loaded_index_keeps_no_padding_in_memory(write, kind):
    """A running broker preallocates 10 MiB for each index of each active segment."""
    entry_size, data = KINDS[kind][1:3]
    path = write(kind, data)
    os.truncate(path, 10 * 1024 * 1024 // entry_size * entry_size)
    tracemalloc.start()
    try:
        index = kind.open(path).load()
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 200_000
    assert kept < 20_000
    assert index.used_entry_count == len(data) // entry_size
    assert len(index.entry_bytes(with_padding=True)) == path.stat().st_size


@both_kinds
def test_a_read_error_names_the_file_and_the_byte(write, kind, monkeypatch):
    def broken(descriptor, size, position):
        raise OSError(errno.EIO, "Input/output error")

    path = write(kind, KINDS[kind][2])
    with kind.open(path) as index:
        monkeypatch.setattr(index_file.os, "pread", broken)
        with pytest.raises(CorruptIndexError) as failed:
            index.lookup(1)
    assert (failed.value.path, failed.value.position) == (path, 0)
    assert failed.value.__cause__.errno == errno.EIO


@both_kinds
def test_short_reads_are_continued(write, kind, monkeypatch):
    pread = os.pread
    monkeypatch.setattr(
        index_file.os,
        "pread",
        lambda descriptor, size, position: pread(descriptor, min(size, 5), position),
    )
    with kind.open(write(kind, KINDS[kind][2], 50)) as index:
        assert index.entries().tolist() == KINDS[kind][3]


@both_kinds
@pytest.mark.parametrize("error", [errno.EINVAL, errno.EOPNOTSUPP])
def test_a_file_on_a_file_system_without_holes_is_read_backwards(write, kind, monkeypatch, error):
    def refuse(descriptor, position, whence):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(index_file.os, "lseek", refuse)
    entry_size, data, entries = KINDS[kind][1:4]
    with kind.open(write(kind, data, 50_000 * entry_size)) as index:
        assert index.last_entry == entries[-1]


# What brokers wrote


def test_every_index_of_every_broker_reads_as_its_own_tool_prints_it(golden_case):
    for directory, partition in golden_case.answers["partitions"].items():
        dump = partition.get("dump") or {}
        has_failed = any("Exception in thread" in line for line in dump.get("printed", ()))
        last_segment = max(dump.get("batches", ()), default="")[:20]
        for name, rows in dump.items():
            kind = {".index": OffsetIndex, ".timeindex": TimeIndex}.get(name[20:])
            if kind is None:
                continue
            printed = [tuple(row) for row in rows]
            with kind.open(golden_case.logs / directory / name) as index:
                entries = [tuple(entry) for entry in index.entries().tolist()]
                if kind is TimeIndex and golden_case.version == "0.11.0.3":
                    while printed and printed[-1] == (0, index.base_offset):
                        printed.pop()  # its tool prints padding
                if has_failed:  # its tool reads the log, too, and stops at an entry
                    assert len(entries) - len(printed) <= 1 or name[:20] == last_segment
                    entries = entries[: len(printed)]
                assert entries == printed, name


def test_an_entry_that_the_hole_begins_in_is_read_by_all(write):
    """4096 is no multiple of an entry's 12 bytes."""
    entries = [(1000 + slot, BASE_OFFSET + slot) for slot in range(1 << 10)]
    data = time_index.pack(entries, BASE_OFFSET)[: 2 * 4096]
    path = write(TimeIndex, data, 10 * MEBIBYTE // 12 * 12 - len(data), hole=True)
    with TimeIndex.open(path) as index:
        slots = -(-len(data) // 12)
        assert index.used_entry_count == slots
        assert last_time_entry(path, BASE_OFFSET, with_padding=False) == index.last_entry
