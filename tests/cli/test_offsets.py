from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from cli.running import Run, assert_one_sentence


@pytest.mark.golden_cases(
    names=["create-time-*", "compacted-empty-segment", "delete-records"], versions=["2.4.0"],
    answers="answers",
)
def test_the_rules_of_a_version_answer_as_that_broker_did(run: Run, golden_case: Any) -> None:
    differing = 0
    for name, answers in golden_case.answers["partitions"].items():
        asked = {
            row["timestamp"]: None if row["offset"] < 0 else row["offset"]
            for row in answers["list_offsets"]
            if row["timestamp"] >= 0 and not row["isolation"] and not row["error"]
        }
        if not asked:
            continue
        at = [option for timestamp in asked for option in ("--at", timestamp)]
        rows = run("offsets", golden_case.logs, "--topic", name, "--json", *at, "--rules", "2.4",
                   "--rules", "correct").lines
        by_broker = {row["asked_timestamp"]: row["offset"] for row in rows if row["rules"] == "2.4"}
        assert by_broker == asked
        correct = {
            timestamp: min((each[0] for each in answers["records"] if each[1] >= timestamp),
                           default=None)
            for timestamp in asked
        }
        assert {
            row["asked_timestamp"]: row["offset"] for row in rows if row["rules"] == "correct"
        } == correct
        differing += sum(correct[each] != asked[each] for each in asked)
    assert differing or golden_case.name.startswith("create-time")


@pytest.mark.golden_cases(
    names="upgrade", versions=["0.8.2.2", "0.9.0.1", "0.10.0.1"], answers="answers"
)
def test_legacy_rules_answer_as_the_old_brokers_did(run: Run, golden_case: Any) -> None:
    compared = 0
    for name, answers in golden_case.answers["partitions"].items():
        asked = {
            row["timestamp"]: next(iter(row["offsets"]), None)
            for row in answers["list_offsets_v0"]
            # the clock of the broker, which later times are compared with, stood still since
            if 0 <= row["timestamp"] < golden_case.answers["asked_at_ms"] - 3_600_000
            and row["max_num_offsets"] == 1
        }
        at = [option for timestamp in asked for option in ("--at", timestamp)]
        rows = run("offsets", golden_case.logs / name, "--json", *at, "--rules", "legacy").lines
        assert {row["asked_timestamp"]: row["offset"] for row in rows} == asked
        compared += len(asked)
    assert compared


def test_one_rule_shows_the_record_found(run: Run, sample_root: Path) -> None:
    ran = run("offsets", sample_root, "--topic", "up", "--at", "2017-07-14T02:40:20Z")
    assert [line.split() for line in ran.out.splitlines()[2:]] == [
        ["up-0", "2017-07-14T02:40:20.000Z", "21", "1500000020507", "2017-07-14T02:40:20.507Z",
         "-"],
        ["up-1", "2017-07-14T02:40:20.000Z", "2", "1500000051534", "2017-07-14T02:40:51.534Z",
         "-"],
    ]


def test_all_rules_stand_side_by_side_with_a_note_where_they_differ(
    run: Run, sample_root: Path
) -> None:
    ran = run("offsets", sample_root, "--topic", "up-0", "--at", "2017-07-14T02:40:30Z",
              "--at", "2017-07-14T02:41:00Z", "--rules", "all")
    head, _, first, second = ran.out.splitlines()
    assert head.split()[2:6] == ["legacy", "kip-33", "2.4", "correct"]
    assert first.split()[2:6] == ["none", "35", "none", "35"]
    assert first.endswith("legacy finds nothing, 2.4 finds nothing")
    assert second.split()[2:6] == ["0", "none", "none", "none"]
    assert second.endswith("no record is at or after this time")


def test_notes_count_the_offsets_between(run: Run, sample_root: Path) -> None:
    ran = run("offsets", sample_root, "--topic", "up-1", "--at", "2017-07-14T02:41:23Z",
              "--rules", "legacy", "--rules", "kip-33")
    assert "legacy skips 33 offsets" in ran.out
    rows = run("offsets", sample_root, "--topic", "up-1", "--at", "2017-07-14T02:41:23Z",
               "--rules", "legacy", "--rules", "kip-33", "--json").lines
    assert [row["rules"] for row in rows] == ["legacy", "kip-33"]
    assert {row["note"] for row in rows} == {"legacy skips 33 offsets"}


def test_rules_named_twice_are_asked_once(run: Run, sample_root: Path) -> None:
    rows = run("offsets", sample_root, "--topic", "up-1", "--at", 0, "--rules", "all", "--rules",
               "2.4", "--rules", "3.9", "--json").lines
    assert [row["rules"] for row in rows] == ["legacy", "kip-33", "2.4", "correct", "3.9"]


def test_times_are_shown_in_the_zone_asked_for(run: Run, sample_root: Path) -> None:
    ran = run("offsets", sample_root, "--topic", "up-1", "--at", "2017-07-14T04:41:00",
              "--tz", "Europe/Berlin")
    assert "2017-07-14T04:41:00.000+02:00" in ran.out


def test_now_is_this_machines_clock(run: Run, sample_root: Path) -> None:
    before = time.time_ns() // 1_000_000
    rows = run("offsets", sample_root, "--at", "now", "--at", "-1h", "--json").lines
    after = time.time_ns() // 1_000_000
    now, hour_ago = (row["asked_timestamp"] for row in rows[:2])
    assert before <= now <= after
    assert now - hour_ago == 3_600_000


def test_the_newest_record_can_be_what_times_are_relative_to(run: Run, sample_root: Path) -> None:
    rows = run("offsets", sample_root, "--topic", "up-0", "--at", "now", "--at", "-1s",
               "--relative-to", "newest", "--json").lines
    assert [row["asked_timestamp"] for row in rows] == [1500000054034, 1500000053034]
    assert rows[0]["offset"] == 79


def test_a_partition_directory_by_itself_says_which_broker_is_meant(
    run: Run, sample_root: Path
) -> None:
    ran = run("offsets", sample_root / "up-1", "--at", 0, "--rules", "2.4")
    assert "note: a partition directory by itself" in ran.err
    assert run("offsets", sample_root / "up-1", "--at", 0).err == ""


@pytest.mark.parametrize(
    ("rules", "told"),
    [("0.9", "use legacy"), ("2", "no rules"), ("newest", "no rules"), ("0.10.0.1", "use legacy")],
)
def test_rules_that_are_none(run: Run, sample_root: Path, rules: str, told: str) -> None:
    assert_one_sentence(run("offsets", sample_root, "--at", 0, "--rules", rules), told)
