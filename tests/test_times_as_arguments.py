"""Times as datetimes: the ms that they are, wherever a timestamp is taken."""
from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafkastore.legacy import compare
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.refused import refused

import kafkastore
from kafkastore import PartitionLog, legacy
from kafkastore.arguments import timestamp_ms, timestamps_ms
from kafkastore.errors import ArgumentTypeError, ArgumentValueError

SECOND = 1_700_000_000
#: Records at each ms from this second on.
LOG = Log((Segment(0, tuple(Batch((Row(n, 1000 * SECOND + n, b"k", b"v"),)) for n in range(9))),))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), ZoneInfo("Europe/Rome")])
TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=ZONES)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> PartitionLog:
    return kafkastore.open(LOG.write(tmp_path_factory.mktemp("logs") / "logs"))["t-0"]


def after(microseconds: int) -> datetime:
    return EPOCH + timedelta(seconds=SECOND, microseconds=microseconds)


def exact_ms(time: datetime) -> Fraction:
    passed = time - EPOCH
    microseconds = (passed.days * 86400 + passed.seconds) * 10**6 + passed.microseconds
    return Fraction(microseconds, 1000)


@given(TIMES, st.integers(-3, 3))
def test_whole_ms_are_on_the_same_side_of_both(time: datetime, near: int) -> None:
    ms = timestamp_ms("t", time)
    record = ms + near
    assert (record < ms) == (record < exact_ms(time))
    assert (record >= ms) == (record >= exact_ms(time))


@given(st.lists(TIMES, max_size=5))
def test_each_kind_of_time_is_the_same_ms(times: list[datetime]) -> None:
    expected = [timestamp_ms("t", each) for each in times]
    assert np.asarray(timestamps_ms("t", times)).tolist() == expected
    assert [timestamp_ms("t", pd.Timestamp(each)) for each in times] == expected
    in_utc = [each.astimezone(UTC).replace(tzinfo=None) for each in times]
    array = np.array(in_utc, "M8[us]")
    assert np.asarray(timestamps_ms("t", array)).tolist() == expected
    assert [timestamp_ms("t", each) for each in array] == expected  # type: ignore[misc]
    index = pd.DatetimeIndex([pd.Timestamp(each).tz_convert("UTC") for each in times])
    if times:
        assert np.asarray(timestamps_ms("t", index)).tolist() == expected


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_datetime64_of_each_unit_is_rounded_up(unit: str) -> None:
    one = np.datetime64("1969-12-31T23:59:59.999", "ms").astype(f"M8[{unit}]")
    assert timestamp_ms("t", one) == (-1000 if unit == "s" else -1)
    assert timestamp_ms("t", np.datetime64(1, "ns")) == 1
    assert timestamp_ms("t", np.datetime64(-1, "ns")) == 0


@pytest.mark.parametrize(
    ("time", "kind"),
    [
        (datetime(2024, 3, 1), ArgumentValueError),
        (pd.Timestamp("2024-03-01"), ArgumentValueError),
        (pd.NaT, ArgumentValueError),
        (np.datetime64("NaT"), ArgumentValueError),
        (np.datetime64(2**62, "s"), ArgumentValueError),
        ("2024-03-01", ArgumentTypeError),
        (np.timedelta64(1, "s"), ArgumentTypeError),
        (1.5, ArgumentTypeError),
        (datetime(2024, 3, 1).date(), ArgumentTypeError),
    ],
)
def test_what_is_no_time_is_refused(log: PartitionLog, time: Any, kind: type) -> None:
    for use in (
        log.offset_for_timestamp, log.explain_timestamp,
        lambda each: log.to_arrow(start_timestamp=each),
    ):
        with pytest.raises(kind):
            use(time)
    with refused("end_timestamp", kind):
        log.to_arrow(end_timestamp=time)


@pytest.mark.parametrize("microseconds", [0, 1, 999, 1000, 3500, 9000])
def test_a_range_of_datetimes_has_exactly_the_records_in_it(
    log: PartitionLog, microseconds: int
) -> None:
    time = after(microseconds)
    before = [n for n in range(9) if 1000 * n < microseconds]
    rest = [n for n in range(9) if 1000 * n >= microseconds]
    for bound, expected in (("end_timestamp", before), ("start_timestamp", rest)):
        table = log.to_arrow(["offset"], **{bound: time}).read_all()  # type: ignore[arg-type]
        assert table["offset"].to_pylist() == expected


def test_every_lookup_takes_a_datetime(log: PartitionLog) -> None:
    time, ms = after(3500), 1000 * SECOND + 4
    store = kafkastore.open(log.path.parent)
    assert log.offset_for_timestamp(time) == log.offset_for_timestamp(ms)
    assert log.list_offset(time) == log.list_offset(ms)
    assert log.explain_timestamp(time).target_timestamp == ms
    assert log.offsets_for_timestamps([time, ms]).tolist() == [(ms, 4, 0)] * 2
    assert store.offsets_for_times({"t-0": time}) == store.offsets_for_times({"t-0": ms})
    assert compare(log, [time], now=ms) == compare(log, [ms], now=ms)
    assert legacy.fetch_offsets_before(log, time, 1, ms) == (
        legacy.fetch_offsets_before(log, ms, 1, ms)
    )


def test_the_clock_of_a_job_may_be_a_datetime(log: PartitionLog) -> None:
    root = log.path.parent
    assert [*kafkastore.retention(root, now=after(1))] == (
        [*kafkastore.retention(root, now=1000 * SECOND + 1)]
    )
    with refused("now"):
        kafkastore.retention(root, now=datetime(2024, 3, 1))
    with refused("now"):
        kafkastore.lag(root, now=datetime(2024, 3, 1))
    with refused("now"):
        kafkastore.share_lag(root, now=datetime(2024, 3, 1))
