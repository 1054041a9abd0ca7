"""Groups of every kind, and their lag, equal what brokers answered before they were killed.

The archives are in ``tests/golden/groups``; ``tests/golden/make/cases/groups.py`` says what was
done. A case has the log directory (``logs``) and the answers (``groups.json``).
"""
import hashlib
import json
from functools import cache
from pathlib import Path

import pytest
from use_cases.group_answers import COMPLETE, FORMS, Answers, Read

from kafkastore.samples.unpacking import unpack_archive

ARCHIVES = Path(__file__).parents[1] / "golden" / "groups"
MANIFEST = json.loads((ARCHIVES / "MANIFEST.json").read_text())


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """A function of a version; unpacks and reads each archive once."""

    @cache
    def both(version):
        root = tmp_path_factory.mktemp("groups")
        unpack_archive(ARCHIVES / MANIFEST[version]["archive"], root)
        return Answers(root / "groups"), Read(root / "groups")

    return both


@pytest.fixture(params=MANIFEST)
def case(request, unpacked):
    """The answers of a version, and what is read of its directory."""
    return unpacked(request.param)


@pytest.mark.parametrize("what", FORMS)
def test_a_directory_shows_what_its_broker_answered(case, what):
    answers, read = case
    expected = getattr(answers, what)()
    assert len(expected) > 3
    assert getattr(read, what)() == expected


def test_a_coordinator_that_loads_the_directory_has_the_same_groups(case):
    answers, read = case
    loaded, found = answers.groups_after_load(), read.groups()
    if answers.is_4_1:  # it has forgotten that the topics of the topology are there
        assert loaded.pop("streams") == ("streams", "not-ready", "streams")
        del found["streams"]
    assert found == loaded
    assert read.offsets() == answers.offsets_after_load()


def test_a_directory_shows_the_members_that_its_broker_described(case):
    answers, read = case
    expected, found = answers.members(), read.members()
    if answers.is_4_1:  # leaves out what a member has but should give up
        for key in [key for key, each in found.items() if {} != each[-2] != each[-1] != {}]:
            *identity, described, target = expected.pop(key)
            *same, assigned, our_target = found.pop(key)
            assert (same, our_target) == (identity, target)
            ((topic, partitions),) = assigned.items()
            assert set(described[topic]) < set(partitions) == {0, 1, 2}
    assert found == expected


def test_the_archives_are_those_of_the_manifest():
    for entry in MANIFEST.values():
        digest = hashlib.sha256((ARCHIVES / entry["archive"]).read_bytes()).hexdigest()
        assert digest == entry["sha256"]


def test_every_kind_and_state_occurs(case):
    answers, _ = case
    kinds = {(kind, state) for kind, state, _ in answers.groups().values()}
    if not answers.is_4_1:
        assert ("consumer", "assigning") in kinds
    assert kinds >= {
        ("classic", "stable"), ("classic", "empty"), ("consumer", "stable"), ("consumer", "empty"),
        ("consumer", "reconciling"), ("share", "stable"), ("share", "empty"),
        ("streams", "stable"), ("streams", "not-ready"),
    }


def test_the_lag_of_streams_groups_is_what_their_tool_prints(case):
    answers, read = case
    printed = answers.printed_streams_lag()
    found = {
        (each.group, *each.topic_partition): each.offsets
        for each in read.lag
        if each.group == "streams"
    }
    assert len(found) >= 2
    assert found == {key: printed[key] for key in found}


def test_the_lag_of_share_groups_is_what_their_tool_prints(case):
    answers, read = case
    found = {
        (each.group, *each.topic_partition): (each.state.start_offset, each.offsets)
        for each in read.share_lag
    }
    printed = answers.printed_share_lag()
    assert found.keys() == printed.keys()
    for key, numbers in printed.items():
        assert found[key][: len(numbers)] == numbers  # 4.1 prints no lag


def test_the_complete_offsets_that_a_leader_counts_are_those_of_its_batches(unpacked):
    """So that the lag can be computed from what 4.1 writes, which has no count."""
    _, read = unpacked("4.3.1")
    counted = [each.state for each in read.share_lag if each.state.start_offset is not None]
    assert [each.complete_count for each in counted] == [each.count(*COMPLETE) for each in counted]
    assert sum(each.complete_count for each in counted) > 8


def test_the_unread_records_of_share_groups_are_those_that_are_not_complete(case):
    answers, read = case
    checked = 0
    for each in read.share_lag:
        start = each.state.start_offset
        if start is None:
            assert each.unread is None
            continue
        _, batches = answers.share_states()[each.group, *each.topic_partition]
        complete = {
            offset
            for batch in batches
            if batch.state in COMPLETE
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        unread = [
            record
            for record in read.store.partitions[each.topic_partition].records()
            if record.offset >= start and record.offset not in complete
        ]
        assert each.records == len(unread)
        assert each.unread.first_offset == unread[0].offset
        assert each.unread.first_timestamp == unread[0].timestamp
        times = [record.timestamp for record in unread]
        assert each.lag_ms == max(times) - times[0]
        checked += 1
    assert checked == 3
