import json
import os
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkastore.changes.file_state import FileState
from kafkastore.changes.plan import (
    FileChange,
    Inline,
    InvalidPlanError,
    Plan,
    Prefix,
    Rebuilt,
    Reliance,
)

STATE = FileState(24, "0" * 64, 1_456_000_000_123_456_789, 0o644, 1000, 1000)

sizes = st.integers(0, 1 << 62)
owners = st.integers(0, (1 << 32) - 2)
states = st.builds(
    FileState,
    sizes,
    st.text("0123456789abcdef", min_size=64, max_size=64),
    st.integers(-(1 << 62), 1 << 62),
    st.integers(0, 0o777),
    owners,
    owners,
)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
# Topics as the operating system may name them: also surrogates, for bytes that are not UTF-8.
topics = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=30),
    st.lists(st.sampled_from(sorted(set(range(1, 256)) - set(b"/"))), min_size=1, max_size=30)
    .map(bytes).map(os.fsdecode),
)
names = st.sampled_from(
    ("00000000000000000042.log", "42.timeindex", "00000000000000000000.index.deleted",
     "00000000000000000000-0000000001.checkpoint", "leader-epoch-checkpoint", "any name.swap")
)
paths = st.tuples(topics.map("{}-7".format), names).map("/".join)
reliances = st.lists(st.builds(Reliance, paths, sizes, sizes), max_size=2).map(tuple)
changes = st.one_of(
    st.builds(
        FileChange,
        paths,
        st.none() | states,
        states,
        st.builds(Inline, st.binary()) | st.builds(Rebuilt, st.integers(0, (1 << 31) - 1)),
        texts,
        reliances,
    ),
    st.builds(FileChange, paths, states, states, st.just(Prefix(0)), texts, reliances),
    st.builds(FileChange, paths, states, st.none(), st.none(), texts, reliances),
)
plans = st.builds(
    Plan,
    st.text(string.ascii_letters).map("/".__add__),
    texts,
    st.lists(changes, max_size=4, unique_by=lambda change: change.path).map(tuple),
)


@given(plans)
def test_a_plan_survives_json(plan):
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.id == plan.id
    assert again.to_json() == plan.to_json()
    assert str(again)


@given(plans, plans)
def test_different_plans_have_different_ids(one, other):
    assert (one == other) == (one.id == other.id)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../x",
        "a/../b",
        "a/b/c",
        "a//b",
        "./a",
        "a/",
        "a\0b",
        ".lock",
        "t-0/.lock",
        ".kafka_cleanshutdown",
        "recovery-point-offset-checkpoint",
    ],
)
def test_a_plan_never_names_files_that_no_job_may_change(path):
    with pytest.raises(InvalidPlanError):
        FileChange(path, None, STATE, Inline(b""), "")
    with pytest.raises(InvalidPlanError):
        FileChange("t-0/0.log", None, STATE, Inline(b""), "", (Reliance("../" + path, 1, 1),))


@pytest.mark.parametrize(
    ("before", "after", "content"),
    [
        (None, None, None),
        (None, STATE, None),
        (STATE, None, Inline(b"")),
        (None, STATE, Prefix(1)),
        (STATE, STATE, Prefix(25)),
        (STATE, STATE, Prefix(-1)),
    ],
)
def test_a_change_that_contradicts_itself_is_refused(before, after, content):
    with pytest.raises(InvalidPlanError):
        FileChange("t-0/0.log", before, after, content, "")


def test_a_plan_changes_a_file_only_once():
    change = FileChange("t-0/0.log", STATE, None, None, "")
    with pytest.raises(InvalidPlanError) as refusal:
        Plan("/d", "test", (change, change))
    assert refusal.value.path == change.path


def test_a_plan_s_root_is_absolute():
    with pytest.raises(InvalidPlanError):
        Plan("d", "test", ())


def test_a_printed_plan_describes_each_change_with_its_reason():
    small = FileState(12, "1" * 64, 5, 0o644, 0, 0)
    plan = Plan(
        "/d",
        "migrate (auto)",
        (
            FileChange("t-0/0.timeindex", None, small, Inline(b""), "it is missing"),
            FileChange("t-0/1.timeindex", STATE, small, Rebuilt(4096), "it is empty"),
            FileChange("t-0/2.index", STATE, None, None, "its log is gone"),
        ),
    )
    assert str(plan).splitlines() == [
        "migrate (auto) of /d: 3 files, 24 new bytes",
        "  create t-0/0.timeindex, 12 bytes: it is missing",
        "  replace t-0/1.timeindex, 24 -> 12 bytes: it is empty",
        "  remove t-0/2.index, 24 bytes: its log is gone",
    ]


def positions_of(value, path=()):
    """Yield the path to every value within a JSON value."""
    yield path
    if isinstance(value, dict | list):
        keys = value if isinstance(value, dict) else range(len(value))
        for key in keys:
            yield from positions_of(value[key], (*path, key))


def test_json_with_any_wrong_value_is_refused_or_read_as_a_plan():
    plan = Plan(
        "/d",
        "test",
        (
            FileChange(
                "t-0/0.log", STATE, STATE, Inline(b"abc"), "why", (Reliance("t-0/1.log", 1, 2),)
            ),
            FileChange("t-0/2.log", STATE, STATE, Rebuilt(4096), "why"),
            FileChange("t-0/3.log", STATE, STATE, Prefix(3), "why"),
        ),
    )
    for place in positions_of(json.loads(plan.to_json())):
        for wrong in (None, True, -1.5, "x", [], {}, [[]], {"kind": 3}):
            value = json.loads(plan.to_json())
            if not place:
                value = wrong
            else:
                inner = value
                for key in place[:-1]:
                    inner = inner[key]
                inner[place[-1]] = wrong
            try:
                Plan.from_json(json.dumps(value))
            except InvalidPlanError:
                continue


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"kafkastore_plan": 2}', "\ud800"])
def test_text_that_is_not_a_plan_is_refused(text):
    with pytest.raises(InvalidPlanError):
        Plan.from_json(text)
