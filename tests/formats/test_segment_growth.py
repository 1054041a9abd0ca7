"""Index entries and rolling, compared with a slow model and with a recovery of the log."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.segment_growth_model import SegmentModel, Set

from kafkastore import IndexFullError, OffsetOverflowError, Record, TimestampType
from kafkastore.formats.indexes.index_builder import IndexBuilder
from kafkastore.formats.indexes.segment_growth import SegmentGrowth
from kafkastore.formats.records.append_sets import keep_offsets
from kafkastore.formats.records.record_builder import build_batch


def batch(offset, timestamp, size):
    record = Record(offset, timestamp, TimestampType.CREATE_TIME, None, b"v" * size, (), None)
    return build_batch([record])


def growth(base_offset=0, **options):
    known = {
        "index_interval_bytes": 4096, "segment_bytes": 1 << 40, "roll_ms": 1 << 60,
        "created_ms": 0, "max_offset_entries": 1 << 20, "max_time_entries": 1 << 20,
    }
    return SegmentGrowth(base_offset, **known | options)


def packed(entries, layout, base_offset):
    return b"".join(
        struct.pack(">ii", entry[0] - base_offset, entry[1])
        if layout == ">ii"
        else struct.pack(">qi", entry[0], entry[1] - base_offset)
        for entry in entries
    )


appends = st.lists(
    st.tuples(st.integers(-1, 3000), st.integers(0, 300), st.sampled_from([0, 0, 1, 900, 2**31])),
    max_size=25,
)


@given(
    appends,
    st.integers(0, 1000),
    st.sampled_from([300, 1500, 1 << 40]),
    st.sampled_from([500, 1 << 60]),
    st.sampled_from([1, 4, 1000]),
)
def test_segments_grow_and_roll_as_the_model_s(given_appends, interval, limit, roll_ms, entries):
    options = {"max_offset_entries": entries, "max_time_entries": entries + 1}
    limits = {"segment_bytes": limit, "roll_ms": roll_ms}
    offset = now = 0
    real = growth(0, index_interval_bytes=interval, **limits, **options)
    model = SegmentModel(0, interval=interval, created=0, **options)
    for timestamp, size, gap in given_appends:
        now += 100
        offset += gap
        sets, _ = keep_offsets(batch(offset, timestamp, size), 0)
        new = Set(*sets.fields()[0])
        rolls = model.must_roll(new, now=now, **limits)
        end = real.append(sets, 0, now)
        assert end == (0 if rolls else 1)
        if rolls:
            model = SegmentModel(offset, interval=interval, created=now, **options)
            real = growth(
                offset, index_interval_bytes=interval, created_ms=now, **limits, **options
            )
            assert real.append(sets, 0, now, is_new=True) == 1
        model.append(new)
        assert (real.size, real.largest_timestamp) == (model.size, model.largest[0])
        offset += 1
    model.maybe_append_time()
    real.finish()
    assert real.take_entries() == (
        packed(model.offset_entries, ">ii", model.base_offset),
        packed(model.time_entries, ">qi", model.base_offset),
    )
    assert real.take_entries() == (b"", b"")


@given(st.lists(st.tuples(st.integers(-1, 3000), st.integers(0, 300)), max_size=30))
def test_one_batch_a_set_gives_the_indexes_that_a_recovery_builds(given_appends):
    builder, real = IndexBuilder(5, 400), growth(5, index_interval_bytes=400)
    position = 0
    for number, (timestamp, size) in enumerate(given_appends):
        data = batch(5 + number, timestamp, size)
        sets, _ = keep_offsets(data, 0)
        headers = sets.headers
        headers["position"] = position
        builder.append(headers)
        assert real.append(sets, 0, 0) == 1
        position += len(data)
    real.finish()
    assert real.take_entries() == builder.finish()


@given(st.lists(st.tuples(st.integers(-1, 3000), st.integers(0, 300)), max_size=30), st.data())
def test_counting_each_batch_any_sets_give_the_indexes_of_a_recovery(given_appends, data):
    builder, real = IndexBuilder(5, 400), growth(5, index_interval_bytes=400, each_batch=True)
    batches = [batch(5 + number, *each) for number, each in enumerate(given_appends)]
    position = 0
    while batches:
        count = data.draw(st.integers(1, len(batches)))
        sets, size = keep_offsets(b"".join(batches[:count]), 0)
        headers = sets.headers
        headers["position"] += position
        builder.append(headers)
        assert real.append(sets, 0, 0) == 1
        del batches[:count]
        position += size
    real.finish()
    assert real.take_entries() == builder.finish()


def test_a_set_must_fit_even_a_new_segment():
    sets, _ = keep_offsets(batch(2**31, 0, 1), 0)
    with pytest.raises(OffsetOverflowError):
        growth().append(sets, 0, 0, is_new=True)


def test_an_entry_without_a_slot_is_an_error():
    real = growth(index_interval_bytes=0, max_offset_entries=1, max_time_entries=1)
    for offset in (0, 1):
        sets, _ = keep_offsets(batch(offset, offset, 1), 0)
        if offset == 0:
            real.append(sets, 0, 0, is_new=True)
        else:
            with pytest.raises(IndexFullError):
                real.append(sets, 0, 0, is_new=True)


def test_the_last_slot_of_a_time_index_is_for_the_end():
    real = growth(max_time_entries=1)
    sets, _ = keep_offsets(batch(0, 7, 1), 0)
    real.append(sets, 0, 0, is_new=True)
    real.finish()
    assert real.take_entries()[1] == struct.pack(">qi", 7, 0)
    real.finish()
    assert real.take_entries() == (b"", b"")


def test_a_reopened_segment_continues_from_its_files():
    real = growth(
        index_interval_bytes=10, size=500, first_timestamp=3, offset_entries=4, time_entries=2,
        last_indexed_offset=40, last_time_entry=(90, 30), largest=(95, 44),
    )
    for offset, timestamp in ((50, 80), (51, 95), (52, 96)):
        sets, _ = keep_offsets(batch(offset, timestamp, 1), 0)
        assert real.append(sets, 0, 0) == 1
    offsets, times = real.take_entries()
    # The byte count restarts: the first set gets no entry.
    assert [entry[0] for entry in struct.iter_unpack(">ii", offsets)] == [51, 52]
    assert list(struct.iter_unpack(">qi", times)) == [(95, 44), (96, 52)]
