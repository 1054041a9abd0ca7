"""Rules ``legacy``: the first offset of OffsetRequest v0's answer, wherever rules are given."""
import os

import pytest
from kafkastore.legacy import UnsupportedTimestampError, fetch_offsets_before, segment_times
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.refused import refused

import kafkastore
from kafkastore import DifferenceKind

CLOCK = 2_000_000_000_000  # later than every modification time here, earlier than the clock's


def first_offset(log, timestamp, **options):
    """The model: the public function for one offset."""
    offsets = fetch_offsets_before(log, timestamp, 1, **options)
    return offsets[0] if offsets else None


def moments(log):
    """Times around every modification time, and the extremes."""
    times = {mtime + by for _, mtime in segment_times(log) for by in (-1, 0, 1)}
    return sorted(times | {0, 2**63 - 1})


@pytest.fixture
def dated(tmp_path):
    """Two segments of one record, modified at 100 s and 200 s; their records are of 1 and 2 s."""
    segments = [
        Segment(base, (Batch((Row(base, stamp, b"k", b"v"),)),))
        for base, stamp in ((0, 1000), (7, 2000))
    ]
    root = Log(tuple(segments)).write(tmp_path / "logs")
    for base, seconds in ((0, 100), (7, 200)):
        os.utime(root / "t-0" / f"{base:020}.log", (seconds, seconds))
    return kafkastore.open(root)["t-0"]


@pytest.mark.golden_cases(
    names=["create-time*", "delete-records", "crash", "transactions", "upgrade"]
)
def test_each_function_has_the_answer_of_the_request(golden_case):
    for log in kafkastore.open(golden_case.logs).partitions.values():
        times = moments(log)
        found = [first_offset(log, time) for time in times]
        assert [
            answer and answer.offset
            for answer in (log.offset_for_timestamp(time, "legacy") for time in times)
        ] == found
        many = log.offsets_for_timestamps(times[::-1], "legacy")[::-1]
        assert many["offset"].tolist() == [-1 if offset is None else offset for offset in found]
        assert set(many["timestamp"].tolist()) == set(many["leader_epoch"].tolist()) == {-1}
        for special in (-1, -2, *times):
            listed = log.list_offset(special, "legacy")
            assert (listed and listed.offset) == first_offset(log, special)


@pytest.mark.parametrize(
    ("time", "answer", "segment", "difference"),
    [
        (99_999, None, None, None),
        (100_000, 0, 0, DifferenceKind.FIRST_OFFSET),
        (199_999, 0, 0, DifferenceKind.FIRST_OFFSET),
        (200_000, 7, 7, DifferenceKind.FIRST_OFFSET),
        (2**62, 8, None, DifferenceKind.LOG_END),
    ],
)
def test_an_explanation_names_the_segment_and_why_the_answer_is_not_the_correct_one(
    dated, time, answer, segment, difference
):
    found = dated.explain_timestamp(time, "legacy")
    assert (found.answer and found.answer.offset, found.base_offset) == (answer, segment)
    assert found.answer == dated.offset_for_timestamp(time, "legacy")
    if segment is not None:
        assert (found.chosen_by, found.largest_timestamp) == (
            "modification-time", {0: 100_000, 7: 200_000}[segment]
        )
    assert (found.starting_position, found.bytes_scanned) == (None, 0)
    assert found.correct is None
    assert found.difference is difference
    assert (found.reason is None) == (difference is None)
    assert str(found).startswith("legacy: none" if answer is None else f"legacy: offset {answer}\n")


def test_modification_times_after_all_records_are_the_reason_for_no_answer(dated):
    found = dated.explain_timestamp(1500, "legacy")
    assert (found.answer, found.correct.offset) == (None, 7)
    assert found.difference is DifferenceKind.NO_SEGMENT_THAT_OLD


def test_no_time_before_1970_has_an_answer(dated):
    assert dated.offset_for_timestamp(-1, "legacy") is None
    assert dated.offsets_for_timestamps([-5, -1], "legacy")["offset"].tolist() == [-1, -1]


@pytest.mark.parametrize("special", [-3, -4, -5, -6, -7])
def test_other_special_timestamps_are_refused(dated, special):
    with pytest.raises(UnsupportedTimestampError):
        dated.list_offset(special, "legacy")


def test_the_high_watermark_ends_the_answers(dated):
    assert dated.list_offset(-1, "legacy", high_watermark=7).offset == 7
    assert dated.list_offset(2**62, "legacy", high_watermark=3).offset == 3


def test_options_of_other_rules_change_nothing_or_are_refused(dated):
    assert dated.offset_for_timestamp(150_000, "legacy", untimed="segment").offset == 0
    assert dated.offset_for_timestamp(150_000, "legacy", indexes="ignore").offset == 0
    with refused("isolation"):
        dated.offset_for_timestamp(0, "legacy", isolation="read_committed")
    with refused("isolation"):
        dated.list_offset(-1, "legacy", isolation="read_committed")
    with refused("request_version"):
        dated.list_offset(-1, "legacy", request_version=1)
    assert dated.list_offset(-1, "legacy", request_version=0).offset == 8


def test_the_clock_is_read_at_each_lookup(dated, monkeypatch):
    now = [400_001]
    monkeypatch.setattr("kafkastore.lookup.legacy.clock", lambda: now[0])
    assert dated.offset_for_timestamp(400_000, "legacy").offset == 7
    now[0] = 400_000
    assert dated.offset_for_timestamp(400_000, "legacy").offset == 8


def test_corrupt_bytes_at_the_end_are_an_error_or_the_end(dated):
    path = dated.segments[-1].log_path
    data = bytearray(path.read_bytes())
    data[11] ^= 16  # the batch's length
    times = os.stat(path)
    path.write_bytes(data + bytes(range(1, 100)))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    log = kafkastore.open(dated.path.parent)["t-0"]
    skipped = []
    for time in (150_000, 250_000, 2**62):
        try:
            right = first_offset(log, time)
        except kafkastore.CorruptionError:
            with pytest.raises(kafkastore.CorruptionError):
                log.offset_for_timestamp(time, "legacy")
            found = log.offset_for_timestamp(time, "legacy", on_corrupt="stop", skipped=skipped)
            assert found.offset in (0, 7)
        else:
            assert log.offset_for_timestamp(time, "legacy").offset == right


def test_a_log_without_segments_is_one_that_begins_now(tmp_path):
    (tmp_path / "logs" / "t-0").mkdir(parents=True)
    (tmp_path / "logs" / "meta.properties").write_text("version=0\nbroker.id=0\n")
    log = kafkastore.open(tmp_path / "logs")["t-0"]
    assert log.offset_for_timestamp(1, "legacy") is None
    assert log.offset_for_timestamp(CLOCK * 10, "legacy").offset == 0
