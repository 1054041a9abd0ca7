"""Consumer lag, compared with counting record by record, and of a real group."""
from __future__ import annotations

import random

import pytest
from models.refused import refused
from use_cases.stores import T0, commit, record, written

import kafkastore
from kafkastore.errors import ArgumentTypeError
from kafkastore.formats.records.compression import Codec
from kafkastore.formats.topics.consumer_offsets import OffsetCommitKey
from kafkastore.use_cases.lag import OffsetPlace, Unread, find_unread


def slow_unread(log, offset, isolation="read_uncommitted"):
    """Return the unread records, counted record by record."""
    records = [each for each in log.records(isolation=isolation) if each.offset >= offset]
    times = [each.timestamp for each in records if each.timestamp >= 0]
    if not records:
        return Unread(0, 0, None, None, None)
    first = records[0]
    return Unread(
        len(records),
        len(records) - len(times),
        first.offset,
        first.timestamp if first.timestamp >= 0 else None,
        max(times, default=None),
    )


@pytest.mark.golden_cases(names=["co*", "old*", "log*", "tr*", "del*", "create*order", "head*"])
def test_unread_records_of_real_logs_are_those_counted_record_by_record(golden_case):
    chance = random.Random(golden_case.name)
    for log in kafkastore.open(golden_case.logs):
        start, end = log.log_start_offset, log.log_end_offset
        for offset in {start, end, max(start, end - 1), chance.randint(start, end)}:
            assert find_unread(log, offset, end) == slow_unread(log, offset), (log, offset)
        key = OffsetCommitKey("g", *log.topic_partition)
        (committed,) = kafkastore.lag(
            kafkastore.open(golden_case.logs), offsets={key: start}, isolation="read_committed"
        )
        assert committed.unread == slow_unread(log, start, "read_committed"), log


@pytest.fixture
def root(tmp_path):
    """Write a log with a group in its middle: batches a second apart, then a gap of an hour."""
    with written(tmp_path / "logs") as partition:
        orders = partition("orders")
        for number in range(10):
            orders.add(*(record(T0 + 1000 * (3 * number + each)) for each in range(3)))
        orders.add(record(T0 + 3_600_000))
        partition("__consumer_offsets").add(commit("g", "orders", 0, 16))
    return tmp_path / "logs"


def only(found):
    (each,) = found
    return each


def test_lag_is_reported_in_offsets_records_and_time(root):
    each = only(kafkastore.lag(kafkastore.open(root)))
    assert (each.group, each.topic_partition, each.committed.offset) == ("g", ("orders", 0), 16)
    assert (each.offsets, each.records, each.place) == (15, 15, OffsetPlace.IN_LOG)
    assert (each.unread.first_offset, each.unread.first_timestamp) == (16, T0 + 16_000)
    assert each.lag_ms == 3_600_000 - 16_000


def test_lag_in_time_ends_at_now_if_it_is_given(root):
    store = kafkastore.open(root)
    assert only(kafkastore.lag(store, now=T0 + 20_000)).lag_ms == 4_000
    assert only(kafkastore.lag(store, now=T0)).lag_ms == -16_000


@pytest.mark.parametrize(
    ("offset", "place", "offsets", "records", "lag_ms"),
    [(31, OffsetPlace.IN_LOG, 0, 0, 0), (40, OffsetPlace.BEYOND_END, -9, 0, 0),
     (30, OffsetPlace.IN_LOG, 1, 1, 0), (0, OffsetPlace.IN_LOG, 31, 31, 3_600_000)],
)
def test_a_position_at_or_beyond_the_end_is_reported(root, offset, place, offsets, records, lag_ms):
    given = {OffsetCommitKey("g", "orders", 0): offset}
    each = only(kafkastore.lag(kafkastore.open(root), offsets=given, now=None))
    assert (each.place, each.offsets, each.records, each.lag_ms) == (
        place, offsets, records, lag_ms
    )


def test_deleted_unread_records_are_reported_and_the_rest_is_counted(tmp_path):
    with written(tmp_path / "logs") as partition:
        orders = partition("orders")
        orders.add(*(record(T0 + number) for number in range(10)), batch_bytes=200)
        orders.log.delete_records(7)
    given = {OffsetCommitKey("", "orders", 0): 2}
    each = only(kafkastore.lag(kafkastore.open(tmp_path / "logs"), offsets=given))
    assert (each.place, each.lost_offsets, each.records) == (OffsetPlace.BELOW_START, 5, 3)
    assert (each.offsets, each.unread.first_timestamp) == (8, T0 + 7)


def test_a_missing_partition_is_reported(root):
    given = {OffsetCommitKey("g", "orders", 5): 2}
    each = only(kafkastore.lag(kafkastore.open(root), offsets=given))
    assert (each.place, each.offsets, each.records) == (OffsetPlace.NO_PARTITION, None, None)
    assert each.lag_ms is None


def test_markers_and_for_read_committed_aborted_records_are_not_counted(tmp_path):
    with written(tmp_path / "logs") as partition:
        log = partition("orders")
        log.add(record(T0))
        log.send(7, record(T0 + 10), record(T0 + 20))
        log.end(7, is_commit=False, timestamp=T0 + 99_999)
        log.send(8, record(T0 + 30))
        log.end(8, is_commit=True, timestamp=T0 + 99_999)
        log.send(9, record(T0 + 40))
    given = {OffsetCommitKey("g", "orders", 0): 1}
    store = kafkastore.open(tmp_path / "logs")
    each = only(kafkastore.lag(store, offsets=given))
    assert (each.offsets, each.records, each.lag_ms) == (6, 4, 30)
    each = only(kafkastore.lag(store, offsets=given, isolation="read_committed"))
    assert (each.log_end_offset, each.offsets, each.records, each.lag_ms) == (6, 5, 1, 0)
    assert each.unread.first_timestamp == T0 + 30
    positions = {OffsetCommitKey("g", "orders", 0): 5}
    each = only(kafkastore.lag(store, offsets=positions, isolation="read_committed"))
    assert (each.offsets, each.records, each.lag_ms) == (1, 0, 0)


@pytest.mark.parametrize("codec", list(Codec))
def test_from_a_position_within_a_compressed_batch_the_rest_is_counted(tmp_path, codec):
    with written(tmp_path / "logs") as partition:
        partition("orders").add(
            *(record(T0 + 50 - number) for number in range(50)), codec=codec
        )
    (log,) = kafkastore.open(tmp_path / "logs")
    for offset in (0, 1, 49, 50):
        assert find_unread(log, offset, 50) == slow_unread(log, offset)


def test_lag_in_time_is_unknown_if_the_first_record_has_no_timestamp(tmp_path):
    with written(tmp_path / "logs") as partition:
        log = partition("orders")
        log.add(record(-1), record(-1))
        log.add(record(T0))
    given = {OffsetCommitKey("g", "orders", 0): 0}
    each = only(kafkastore.lag(kafkastore.open(tmp_path / "logs"), offsets=given))
    assert (each.records, each.unread.untimed_records, each.lag_ms) == (3, 2, None)
    assert each.unread.newest_timestamp == T0


def test_groups_can_also_be_chosen_from_given_offsets(root):
    given = {OffsetCommitKey(name, "orders", 0): 1 for name in "ab"}
    assert [each.group for each in kafkastore.lag(kafkastore.open(root), ["b"], offsets=given)] == [
        "b"
    ]


def test_a_single_name_is_refused_in_place_of_a_collection(root):
    with refused("groups", ArgumentTypeError):
        list(kafkastore.lag(kafkastore.open(root), "g"))
