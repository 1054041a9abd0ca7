"""The plan as a pure function: every kind of segment with every mode."""

import dataclasses
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafkastore.migration import MODES, NotReadError, mtime_entry, plan
from kafkastore.migration.segment_survey import Digest, LogStatus, Scan, SegmentSurvey
from kafkastore.migration.survey import PartitionSurvey, Survey
from models.refused import refused

from kafkastore.changes.file_state import FileState
from kafkastore.changes.plan import Inline, Rebuilt, Reliance
from kafkastore.formats.indexes.index_format import time_index

MTIME_MS = 1_456_000_000_123
LOG = LogStatus(5000, MTIME_MS * 1_000_000 + 456_789, 0o640, 1000, 1001)
OLD_INDEX = LogStatus(0, 1_400_000_000_000_000_007, 0o600, 1, 2)
REBUILT = Digest(24, "ab" * 32)
REBUILT_OFFSETS = Digest(16, "cd" * 32)


def segment(
    *,
    active=False,
    time_index="missing",
    timestamps=True,
    offset_index=True,
    recovered=False,
    problem=None,
    read=True,
    base=100,
    following=200,
    **changes,
):
    scan = Scan(
        (1,),
        9,
        5000,
        900 if timestamps else None,
        REBUILT if timestamps else None,
        None if offset_index else REBUILT_OFFSETS,
        problem,
    )
    size = {"missing": None, "empty": 0, "zeros": 120, "present": None}[time_index]
    state = (
        None
        if size is None
        else FileState(
            size,
            hashlib.sha256(bytes(size)).hexdigest(),
            OLD_INDEX.mtime_ns,
            OLD_INDEX.mode,
            OLD_INDEX.user,
            OLD_INDEX.group,
        )
    )
    made = SegmentSurvey(
        base,
        None if active else following,
        None,
        LOG,
        MTIME_MS,
        False,
        time_index,
        state,
        offset_index,
        recovered,
        scan if read and time_index != "present" else None,
    )
    return dataclasses.replace(made, **changes)


def of(*segments, directory="t-0"):
    partition = PartitionSurvey(directory, "t", 0, segments)
    return Survey("/d", True, None, 512, MTIME_MS, (partition,))


def outcome(each, mode, entry_offset="next"):
    """Return the planned change of the time index in one word."""
    changes = {
        c.path.partition(".")[2]: c for c in plan(of(each), mode, entry_offset=entry_offset).changes
    }
    change = changes.get("timeindex")
    if change is None:
        return "left"
    if isinstance(change.content, Rebuilt):
        return "rebuilt"
    return "entry" if change.content.data else "empty"


TABLE = [
    # time index, active, timestamps: auto, rebuild, kip-33, empty
    ("missing", True, True, "rebuilt", "rebuilt", "empty", "empty"),
    ("missing", True, False, "empty", "empty", "empty", "empty"),
    ("missing", False, True, "rebuilt", "rebuilt", "entry", "empty"),
    ("missing", False, False, "entry", "empty", "entry", "empty"),
    ("zeros", True, True, "rebuilt", "rebuilt", "empty", "empty"),
    ("zeros", True, False, "empty", "empty", "empty", "empty"),
    ("zeros", False, True, "rebuilt", "rebuilt", "entry", "empty"),
    ("zeros", False, False, "entry", "empty", "entry", "empty"),
    ("empty", True, True, "rebuilt", "rebuilt", "left", "left"),
    ("empty", True, False, "left", "left", "left", "left"),
    ("empty", False, True, "rebuilt", "rebuilt", "left", "left"),
    ("empty", False, False, "left", "left", "left", "left"),
    ("present", True, True, "left", "left", "left", "left"),
    ("present", False, False, "left", "left", "left", "left"),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]}-{row[1]}-{row[2]}")
def test_each_mode_plans_the_change_in_the_table(row):
    kind, active, timestamps, *expected = row
    each = segment(time_index=kind, active=active, timestamps=timestamps)
    modes = ("auto", "rebuild", "kip-33", "empty")
    assert [outcome(each, mode) for mode in modes] == expected


def test_a_new_file_has_the_log_s_time_mode_and_owners():
    for mode in MODES:
        (change,) = plan(of(segment()), mode).changes
        assert change.path == "t-0/00000000000000000100.timeindex"
        assert change.before is None
        after = change.after
        assert (after.mtime_ns, after.mode, after.user, after.group) == (
            LOG.mtime_ns,
            LOG.mode,
            LOG.user,
            LOG.group,
        )
        assert change.relies_on == (
            Reliance("t-0/00000000000000000100.log", LOG.size, LOG.mtime_ns),
        )


def test_a_replaced_file_keeps_its_own_time_mode_and_owners():
    (change,) = plan(of(segment(time_index="zeros"))).changes
    assert change.before.size == 120
    after = change.after
    assert (after.mtime_ns, after.mode, after.user, after.group) == (
        OLD_INDEX.mtime_ns,
        OLD_INDEX.mode,
        OLD_INDEX.user,
        OLD_INDEX.group,
    )


def test_a_rebuilt_index_is_the_one_computed_by_the_survey():
    (change,) = plan(of(segment())).changes
    assert change.content == Rebuilt(512)
    assert (change.after.size, change.after.sha256) == (24, "ab" * 32)


def test_an_mtime_entry_holds_the_time_in_ms_and_the_next_base_offset():
    (change,) = plan(of(segment()), "kip-33").changes
    assert time_index.parse(change.content.data, 100).tolist() == [(MTIME_MS, 200)]
    (change,) = plan(of(segment()), "kip-33", entry_offset="first").changes
    assert time_index.parse(change.content.data, 100).tolist() == [(MTIME_MS, 100)]


@pytest.mark.parametrize(
    ("following", "next_offset", "expected"),
    [
        (100 + (1 << 31) - 1, None, 100 + (1 << 31) - 1),
        (100 + (1 << 31), 5000, 4999),
        (1 << 50, 101, 100),
        (1 << 50, 100, 100),  # the segment is empty
        (1 << 50, 1 << 49, 100),  # its last offset does not fit either
    ],
)
def test_an_mtime_entry_s_offset_fits_31_bits(following, next_offset, expected):
    each = segment(timestamps=False, following=following, next_offset=next_offset)
    assert mtime_entry(each) == (MTIME_MS, expected)
    (change,) = plan(of(each)).changes
    assert time_index.parse(change.content.data, 100).tolist() == [(MTIME_MS, expected)]
    time_index.check(change.content.data, 100)


@pytest.mark.parametrize("mode", ["auto", "kip-33"])
def test_a_segment_without_records_gets_no_entry(mode):
    no_bytes = dataclasses.replace(LOG, size=0)
    for each in (
        segment(timestamps=False, log=no_bytes, scan=Scan()),
        segment(timestamps=False, log=no_bytes, read=False),
        segment(timestamps=False, scan=Scan()),  # preallocated
    ):
        if each.scan is None and mode == "auto":
            continue
        assert mtime_entry(each) is None
        assert outcome(each, mode) == "empty"


@pytest.mark.parametrize("mtime_ms", [0, -1])
def test_a_modification_time_before_1970_gives_no_entry(mtime_ms):
    each = segment(timestamps=False, mtime_ms=mtime_ms)
    assert mtime_entry(each) is None
    assert outcome(each, "kip-33") == "empty"


def test_given_times_set_the_entry_but_not_the_file_s_time():
    each = segment(timestamps=False, mtime_ms=77, mtime_is_given=True)
    (change,) = plan(of(each)).changes
    assert time_index.parse(change.content.data, 100).tolist() == [(77, 200)]
    assert change.after.mtime_ns == LOG.mtime_ns


@pytest.mark.parametrize("mode", MODES)
def test_a_corrupt_log_is_skipped_by_the_modes_that_read_it(mode):
    made = [outcome(segment(problem="broken", timestamps=some), mode) for some in (True, False)]
    assert made == (["left"] * 2 if mode in ("auto", "rebuild") else made)
    assert ("left" in made) == (mode in ("auto", "rebuild"))


@pytest.mark.parametrize("mode", MODES)
def test_an_existing_file_that_a_broker_rebuilds_is_kept_and_a_missing_one_created(mode):
    for kind in ("empty", "zeros", "present"):
        assert outcome(segment(time_index=kind, recovered=True), mode) == "left"
    assert outcome(segment(recovered=True), mode) != "left"


def test_a_missing_offset_index_is_created_only_by_the_rebuilding_modes():
    for mode in MODES:
        for timestamps in (True, False):
            changes = plan(of(segment(offset_index=False, timestamps=timestamps)), mode).changes
            names = [change.path.partition(".")[2] for change in changes]
            rebuilding = mode in ("auto", "rebuild")
            assert names == (["timeindex", "index"] if rebuilding else ["timeindex"])
            if rebuilding:
                assert changes[1].content == Rebuilt(512)
                assert (changes[1].before, changes[1].after.size) == (None, 16)
                assert changes[1].after.mtime_ns == LOG.mtime_ns


@pytest.mark.parametrize("mode", MODES)
def test_only_the_rebuilding_modes_read_the_logs(mode):
    survey = of(segment(read=False), segment(time_index="present"))
    if mode in ("auto", "rebuild"):
        with pytest.raises(NotReadError):
            plan(survey, mode)
    else:
        assert len(plan(survey, mode).changes) == 1


def test_zeros_that_are_a_valid_entry_are_kept():
    # An index of one entry (0, base offset) is 12 zeros.
    zeros = bytes(12)
    digest = Digest.of(zeros)
    each = segment(
        time_index="zeros",
        time_index_state=FileState(12, digest.sha256, 5, 0o644, 0, 0),
        scan=Scan((1,), 1, 70, 0, digest),
    )
    assert plan(of(each), "auto").changes == ()


def test_paths_of_a_single_partition_have_no_directory():
    (change,) = plan(of(segment(), directory="")).changes
    assert change.path == "00000000000000000100.timeindex"
    assert change.relies_on[0].path == "00000000000000000100.log"


@pytest.mark.parametrize(("mode", "entry_offset"), [("kip33", "next"), ("auto", "last")])
def test_unknown_choices_are_refused(mode, entry_offset):
    with refused("mode" if mode == "kip33" else "entry_offset"):
        plan(of(), mode, entry_offset=entry_offset)


segments = st.builds(
    segment,
    active=st.booleans(),
    time_index=st.sampled_from(["missing", "empty", "zeros", "present"]),
    timestamps=st.booleans(),
    offset_index=st.booleans(),
    recovered=st.booleans(),
    problem=st.none() | st.just("broken"),
    base=st.integers(0, 1 << 40),
    following=st.integers(1 << 40, 1 << 41),
    mtime_ms=st.integers(-5, 1 << 45),
    next_offset=st.integers(0, 1 << 41),
)


@given(
    st.lists(segments, max_size=5, unique_by=lambda each: each.base_offset).map(tuple),
    st.sampled_from(MODES),
    st.sampled_from(["next", "first"]),
)
def test_every_plan_is_consistent(each, mode, entry_offset):
    survey = of(*each)
    made = plan(survey, mode, entry_offset=entry_offset)
    assert made == plan(survey, mode, entry_offset=entry_offset)
    by_path = {survey.partitions[0].path(one, ""): one for one in each}
    for change in made.changes:
        stem, _, suffix = change.path.partition(".")
        of_segment = by_path[stem]
        assert suffix in ("timeindex", "index")
        assert of_segment.time_index != "present"
        assert change.after is not None
        assert not change.after.same_bytes(change.before)
        assert change.after.sha256 != hashlib.sha256(bytes(120)).hexdigest()
        if suffix == "timeindex":
            assert change.before == of_segment.time_index_state
        if isinstance(change.content, Inline):
            data = change.content.data
            assert (change.after.size, change.after.sha256) == (
                len(data),
                hashlib.sha256(data).hexdigest(),
            )
            assert len(data) in (0, 12)
            time_index.check(data, of_segment.base_offset)
        else:
            assert of_segment.scan.problem is None
        (reliance,) = change.relies_on
        assert reliance.path == stem + ".log"
