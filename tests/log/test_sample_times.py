"""Times to look up: among a partition's records, and where answers can differ."""
from pathlib import Path

import pytest
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.record_strategies import in_a_row

import kafkastore
from kafkastore.store.sample_times import sample_times

FIRST = 1_600_000_000_000


def opened(tmp_path, stamps, **segment):
    """A log of one record a segment."""
    batches = in_a_row([Batch((Row(0, stamp),)) for stamp in stamps])
    segments = tuple(Segment(number, (batch,), **segment) for number, batch in enumerate(batches))
    (log,) = kafkastore.open(Log(segments).write(tmp_path / "logs"))
    return log


def test_times_are_only_where_answers_can_differ(tmp_path):
    log = opened(tmp_path, [FIRST, FIRST + 1000, FIRST + 5000])
    modified = [FIRST - 7, FIRST + 300, FIRST + 9_000_000]
    times = sample_times(log, 2, 100, modified)
    near = {mark + step for mark in (0, 300, 1000, 5000) for step in (-1, 0, 1)}
    assert [each - FIRST for each in times] == sorted(near)


def test_of_few_times_half_are_spread_and_half_are_where_answers_can_differ(tmp_path):
    log = opened(tmp_path, [FIRST, FIRST + 1000, FIRST + 5000])
    spread = sample_times(log, 5)
    assert [each - FIRST for each in spread] == [0, 500, 1000, 3000, 5000]
    times = sample_times(log, 5, 5, [FIRST + 300])
    assert len(times) == 10
    assert set(spread) < set(times)
    assert {FIRST + 299, FIRST + 300, FIRST + 301} & set(times)
    assert len(sample_times(log, 1, 1)) == 2


def test_times_are_around_index_entries_and_the_last_batch(tmp_path):
    stamps = [FIRST, FIRST + 40, FIRST + 900, FIRST + 20]
    batches = in_a_row([Batch((Row(0, stamp, None, bytes(5000)),)) for stamp in stamps])
    (log,) = kafkastore.open(Log((Segment(0, batches).indexed(),)).write(tmp_path / "logs"))
    times = {each - FIRST for each in sample_times(log, 2, 100)}
    assert {39, 40, 41} <= times, "an entry"
    assert {19, 20, 21} <= times, "the last batch"
    Path(log.path, f"{0:020}.timeindex").write_bytes(bytes(7))
    (log,) = kafkastore.open(Path(log.path).parent)
    times = {each - FIRST for each in sample_times(log, 2, 100)}
    assert 40 not in times
    assert {19, 20, 21} <= times


def test_no_time_is_below_0_or_above_what_64_bits_hold(tmp_path):
    largest = (1 << 63) - 1
    times = sample_times(opened(tmp_path, [0, -1, largest]), 2, 100, [-5])
    assert times == [0, 1, largest - 1, largest]


def test_without_timestamps_modification_times_are_all_there_is(tmp_path):
    log = opened(tmp_path, [-1, -1])
    assert sample_times(log, 3) == []
    assert sample_times(log, 2, 2, [500, 700]) == [500, 501, 699, 700]
    assert sample_times(log, 2, 2, [500]) == [500]


@pytest.mark.parametrize(("spread", "around"), [(-1, 0), (0, -1), ("2", 0)])
def test_numbers_of_times_are_ints_and_not_negative(tmp_path, spread, around):
    with pytest.raises((TypeError, ValueError)):
        sample_times(opened(tmp_path, [FIRST]), spread, around)
