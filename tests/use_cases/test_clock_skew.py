"""Search by create time with differing clocks, and replay from the result."""
from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models.refused import refused
from models.seed import examples
from use_cases.stores import T0, record, written

import kafkastore
from kafkastore.use_cases.clock_skew import earliest_timestamp

SKEW = 6


class Clock:
    def __init__(self):
        self.now = T0

    def __call__(self):
        return self.now


@settings(max_examples=examples(50))
@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(-SKEW, SKEW), st.integers(0, 9)),
        min_size=1, max_size=20,
    ),
    st.sampled_from(["CreateTime", "LogAppendTime"]),
    st.integers(-2, 32),
)
def test_nothing_created_at_the_time_or_later_is_missed(tmp_path_factory, sent, kind, target):
    """`sent` has the create time, the clock skew and the latency of each record."""
    root, clock = tmp_path_factory.mktemp("any") / "logs", Clock()
    arrived = sorted(sent, key=lambda each: each[0] + each[2])
    with written(root, clock=clock) as partition:
        log = partition("t", message_timestamp_type=kind)
        for created, off, took in arrived:
            clock.now = T0 + created + took + off
            log.add(record(T0 + created + off))
    (log,) = kafkastore.open(root)
    found = log.offset_for_timestamp(earliest_timestamp(T0 + target, SKEW))
    begin = len(arrived) if found is None else found.offset
    assert all(created < target for created, _, _ in arrived[:begin])


def test_without_the_allowance_a_record_of_a_slow_clock_is_missed(tmp_path):
    with written(tmp_path / "logs") as partition:
        partition("t").add(record(T0 - 3), record(T0 + 1))  # both created after T0
    (log,) = kafkastore.open(tmp_path / "logs")
    assert log.offset_for_timestamp(T0).offset == 1
    assert log.offset_for_timestamp(earliest_timestamp(T0, 3)).offset == 0


def test_the_earliest_timestamp_is_never_before_1970():
    assert earliest_timestamp(5, 10) == 0
    with refused("clock_skew_ms"):
        earliest_timestamp(5, -1)


@pytest.mark.golden_cases(names="create-time-out-of-order", versions=["2.4.0", "4.*"])
def test_replay_from_a_time_returns_exactly_the_records_at_or_after_it(golden_case):
    """As ``cat --from`` does, also if earlier records are between them."""
    for log in kafkastore.open(golden_case.logs):
        records = [(each.offset, each.timestamp) for each in log.records()]
        times = sorted(timestamp for _, timestamp in records)
        for target in times[:: len(times) // 7]:
            table = log.to_arrow(["offset"], start_timestamp=target).read_all()
            expected = [offset for offset, timestamp in records if timestamp >= target]
            assert table.column("offset").to_pylist() == expected
            assert log.offset_for_timestamp(target).offset == expected[0]
