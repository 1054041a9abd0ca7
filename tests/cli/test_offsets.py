from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from cli.running import Run, assert_one_sentence

from kafkastore.versions import NEWEST_VERSION


@pytest.mark.golden_cases(
    names=["create-time-*", "compacted-empty-segment", "delete-records"], versions=["2.4.0"],
    answers="answers",
)
def test_the_rules_of_a_version_give_the_answers_of_that_broker(run: Run, golden_case: Any) -> None:
    differing = 0
    for name, answers in golden_case.answers["partitions"].items():
        expected = {
            row["timestamp"]: None if row["offset"] < 0 else row["offset"]
            for row in answers["list_offsets"]
            if row["timestamp"] >= 0 and not row["isolation"] and not row["error"]
        }
        if not expected:
            continue
        at = [option for timestamp in expected for option in ("--at", timestamp)]
        rows = run("offsets", golden_case.logs, "--topic", name, "--json", *at, "--rules", "2.4",
                   "--rules", "correct").lines
        by_broker = {
            row["target_timestamp"]: row["offset"] for row in rows if row["rules"] == "2.4"
        }
        assert by_broker == expected
        correct = {
            timestamp: min((each[0] for each in answers["records"] if each[1] >= timestamp),
                           default=None)
            for timestamp in expected
        }
        assert {
            row["target_timestamp"]: row["offset"] for row in rows if row["rules"] == "correct"
        } == correct
        differing += sum(correct[each] != expected[each] for each in expected)
    assert differing or golden_case.name.startswith("create-time")


@pytest.mark.golden_cases(
    names="upgrade", versions=["0.8.2.2", "0.9.0.1", "0.10.0.1"], answers="answers"
)
def test_legacy_rules_give_the_answers_of_old_brokers(run: Run, golden_case: Any) -> None:
    compared = 0
    for name, answers in golden_case.answers["partitions"].items():
        expected = {
            row["timestamp"]: next(iter(row["offsets"]), None)
            for row in answers["list_offsets_v0"]
            # later times depend on the broker's clock at the time of the request
            if 0 <= row["timestamp"] < golden_case.answers["asked_at_ms"] - 3_600_000
            and row["max_num_offsets"] == 1
        }
        at = [option for timestamp in expected for option in ("--at", timestamp)]
        rows = run("offsets", golden_case.logs / name, "--json", *at, "--rules", "legacy").lines
        assert {row["target_timestamp"]: row["offset"] for row in rows} == expected
        compared += len(expected)
    assert compared


def test_one_rule_shows_the_record_found(run: Run, sample_root: Path) -> None:
    ran = run("offsets", sample_root, "--topic", "up", "--at", "2017-07-14T02:40:20Z")
    assert [line.split() for line in ran.out.splitlines()[2:]] == [
        ["up-0", "2017-07-14T02:40:20.000Z", "21", "1500000020507", "2017-07-14T02:40:20.507Z",
         "-"],
        ["up-1", "2017-07-14T02:40:20.000Z", "2", "1500000051534", "2017-07-14T02:40:51.534Z",
         "-"],
    ]


def test_all_rules_are_shown_in_columns_with_a_note_where_they_differ(
    run: Run, sample_root: Path
) -> None:
    ran = run("offsets", sample_root, "--topic", "up-0", "--at", "2017-07-14T02:40:30Z",
              "--at", "2017-07-14T02:41:00Z", "--rules", "all")
    head, _, first, second = ran.out.splitlines()
    assert head.split()[2:6] == ["legacy", "kip-33", "4.3", "correct"]
    assert first.split()[2:6] == ["none", "35", "none", "35"]
    assert first.endswith("legacy finds nothing, 4.3 finds nothing")
    assert second.split()[2:6] == ["0", "none", "none", "none"]
    assert second.endswith("no record is at or after this time; begin at the log end, 80")


def test_notes_count_the_offsets_between(run: Run, sample_root: Path) -> None:
    ran = run("offsets", sample_root, "--topic", "up-1", "--at", "2017-07-14T02:41:23Z",
              "--rules", "legacy", "--rules", "kip-33")
    assert "legacy skips 33 offsets" in ran.out
    rows = run("offsets", sample_root, "--topic", "up-1", "--at", "2017-07-14T02:41:23Z",
               "--rules", "legacy", "--rules", "kip-33", "--json").lines
    assert [row["rules"] for row in rows] == ["legacy", "kip-33"]
    assert {row["note"] for row in rows} == {"legacy skips 33 offsets"}


def test_rules_named_twice_are_used_once(run: Run, sample_root: Path) -> None:
    rows = run("offsets", sample_root, "--topic", "up-1", "--at", 0, "--rules", "all", "--rules",
               "4.3", "--rules", "3.9", "--json").lines
    assert [row["rules"] for row in rows] == ["legacy", "kip-33", "4.3", "correct", "3.9"]


def test_times_are_shown_in_the_chosen_time_zone(run: Run, sample_root: Path) -> None:
    ran = run("offsets", sample_root, "--topic", "up-1", "--at", "2017-07-14T04:41:00",
              "--tz", "Europe/Berlin")
    assert "2017-07-14T04:41:00.000+02:00" in ran.out


def test_now_is_this_machines_clock(run: Run, sample_root: Path) -> None:
    before = time.time_ns() // 1_000_000
    rows = run("offsets", sample_root, "--at", "now", "--at", "-1h", "--json").lines
    after = time.time_ns() // 1_000_000
    now, hour_ago = (row["target_timestamp"] for row in rows[:2])
    assert before <= now <= after
    assert now - hour_ago == 3_600_000


def test_times_can_be_relative_to_the_newest_record(run: Run, sample_root: Path) -> None:
    rows = run("offsets", sample_root, "--topic", "up-0", "--at", "now", "--at", "-1s",
               "--relative-to", "newest", "--json").lines
    assert [row["target_timestamp"] for row in rows] == [1500000054034, 1500000053034]
    assert rows[0]["offset"] == 79


def test_for_a_single_partition_directory_the_version_is_reported(
    run: Run, sample_root: Path
) -> None:
    ran = run("offsets", sample_root / "up-1", "--at", 0, "--rules", "2.4")
    assert "note: a partition directory by itself" in ran.err
    assert run("offsets", sample_root / "up-1", "--at", 0).err == ""


@pytest.mark.parametrize("rules", ["0.9", "0.10.0.1", "9.9", "newest", "\u0662.\u0664"])
def test_unknown_rules_are_refused(run: Run, sample_root: Path, rules: str) -> None:
    ran = run("offsets", sample_root, "--at", 0, "--rules", rules)
    assert_one_sentence(ran, "'--rules'", "legacy", NEWEST_VERSION, repr(rules))


def test_a_major_version_means_its_newest_known_version(run: Run, sample_root: Path) -> None:
    question = ["offsets", sample_root, "--at", 1500000030000, "--json", "--rules"]
    major, newest = (run(*question, rules).lines for rules in ("4", NEWEST_VERSION))
    assert [row | {"rules": "4"} for row in newest] == major


def test_legacy_answers_use_given_modification_times(
    run: Run, sample_root: Path, tmp_path: Path
) -> None:
    names = sorted(path.name for path in (sample_root / "up-1").glob("*.log"))
    times = tmp_path / "mtimes.json"
    at = 1500000100500
    times.write_text(json.dumps({f"up-1/{name}": at + 1000 * n for n, name in enumerate(names)}))
    question = ["offsets", sample_root, "--topic", "up-1", "--rules", "legacy", "--json"]
    times_to_find = [option for step in (-1, 0, 1000, 1500) for option in ("--at", at + step)]
    given = run(*question, *times_to_find, "--mtimes", times)
    assert given.err == ""
    assert [row["offset"] for row in given.lines] == [None, 0, 24, 24]
    rounded = run(*question, *times_to_find, "--mtimes", times, "--whole-seconds").lines
    assert [row["offset"] for row in rounded] == [0, 0, 24, 44]
    by_files = run(*question, *times_to_find).lines
    assert [row["offset"] for row in by_files] == [44] * 4
    times.write_text('{"down-1/00000000000000000000.log": 5}')
    shown = run(*question, *times_to_find, "--mtimes", times)
    assert "has no entry for the selected segments" in shown.err


@pytest.mark.parametrize(
    ("written", "timestamp"),
    [("earliest", -2), ("latest", -1), ("max-timestamp", -3), ("earliest-local", -4),
     ("latest-tiered", -5), ("earliest-pending-upload", -6), ("LATEST", -1)],
)
def test_special_timestamps_can_be_given_by_name_or_number(
    run: Run, sample_root: Path, written: str, timestamp: int
) -> None:
    for at in (written, timestamp):
        (row,) = run("offsets", sample_root, "--topic", "up-0", "--at", at, "--json").lines
        offset = {-1: 80, -2: 0, -3: 79, -4: 0, -5: None, -6: None}[timestamp]
        assert (row["target_timestamp"], row["offset"], row["error"]) == (timestamp, offset, None)
        assert row["timestamp"] == (1500000054034 if timestamp == -3 else None)


@pytest.mark.golden_cases(names=["create-time-out-of-order"], versions=["2.4.0", "4.1.1"])
def test_special_timestamps_give_the_answers_of_the_broker(run: Run, golden_case: Any) -> None:
    rules = golden_case.answers["kafka"]
    for name, answers in golden_case.answers["partitions"].items():
        newest = max((row["version"] for row in answers["list_offsets"]), default=0)
        for row in answers["list_offsets"]:
            if row["timestamp"] >= 0 or row["version"] < newest or row["isolation"]:
                continue
            (found,) = run("offsets", golden_case.logs, "--topic", name, "--json", "--rules", rules,
                          "--at", row["timestamp"]).lines
            assert found["offset"] == (None if row["offset"] < 0 else row["offset"])
            assert found["error"] == ("UNSUPPORTED_VERSION" if row["error"] else None)


def test_a_refused_timestamp_is_reported(run: Run, sample_root: Path) -> None:
    ran = run("offsets", sample_root, "--topic", "up-0", "--at", "-7", "--rules", "2.4", "--rules",
              "3.9", "--rules", "correct")
    assert ran.out.splitlines()[2].split()[:5] == ["up-0", "-7", "0", "refused", "refused"]
    assert ran.out.splitlines()[2].endswith("3.9 refuses it, correct refuses it")
    ran = run("offsets", sample_root, "--topic", "up-0", "--at", "-7", "--explain")
    assert "correct: refused (UNSUPPORTED_VERSION)" in ran.out


@pytest.mark.golden_cases(names="transactions", versions=["2.4.0"], answers="answers")
def test_committed_offsets_are_found_with_isolation(run: Run, golden_case: Any) -> None:
    for name, answers in golden_case.answers["partitions"].items():
        if "committed_offsets" not in answers or not answers["records"]:
            continue
        kept = set(answers["committed_offsets"])
        records = [record for record in answers["records"] if record[0] in kept]
        times = sorted({record[1] for record in answers["records"]})[:60]
        at = [option for time in times for option in ("--at", time)]
        rows = run("offsets", golden_case.logs, "--topic", name, "--json", "--isolation",
                   "read_committed", *at).lines
        found = {row["target_timestamp"]: row["offset"] for row in rows}
        assert found == {
            time: min((record[0] for record in records if record[1] >= time), default=None)
            for time in times
        }


def test_brokers_without_isolation_are_refused(run: Run, sample_root: Path) -> None:
    ran = run("offsets", sample_root, "--at", 0, "--rules", "0.10.2", "--isolation",
              "read_committed")
    assert_one_sentence(ran, "isolation must be read_uncommitted for rules 0.10.2")


def test_explanations_report_the_steps_and_the_reason(run: Run, sample_root: Path) -> None:
    arguments = ["--topic", "up-0", "--at", "2017-07-14T02:40:30Z", "--rules", "2.4", "--explain"]
    reason = (
        "segment 0 has no matching record, and the broker does not search the next segment: its "
        "time index is missing, so it is chosen by the file's modification time, "
        "2017-07-14T02:41:00.000Z"
    )
    shown = run("offsets", sample_root, *arguments).out.splitlines()
    documented = (Path(__file__).parents[2] / "docs" / "lookups.md").read_text()
    assert "".join(f"    {line}\n" for line in shown) in documented
    assert shown == [
        "up-0 at 2017-07-14T02:40:30.000Z",
        "  2.4: none",
        "    segment 0, up to 2017-07-14T02:41:00.000Z, by modification time",
        "    time index: missing",
        "    offset index: entry (0, 0), after slots 0, 0",
        "    log: from byte 0 to its end, 2277 bytes",
        f"    the correct answer is offset 35, 2017-07-14T02:40:30.813Z: {reason}",
    ]
    (row,) = run("offsets", sample_root, *arguments, "--json").lines
    found = row["explanation"]
    assert found["answer"] is None
    assert found["correct"] == {"timestamp": 1500000030813, "offset": 35, "leader_epoch": None}
    assert (found["base_offset"], found["chosen_by"]) == (0, "modification-time")
    assert found["difference"] == "chosen-by-modification-time"
    assert found["reason"] == reason
    (legacy,) = run("offsets", sample_root, *arguments[:4], "--rules", "legacy", "--explain",
                    "--json").lines
    why = legacy["explanation"]
    assert (why["answer"], why["base_offset"], why["chosen_by"]) == (None, None, None)
    assert why["difference"] == "no-segment-that-old"


def test_a_clock_skew_is_subtracted_from_the_time(run: Run, sample_root: Path) -> None:
    at, earlier = "2017-07-14T02:40:30Z", "2017-07-14T02:39:00Z"
    partition = (sample_root, "--topic", "up", "--json")
    with_skew = run("offsets", *partition, "--at", at, "--clock-skew", "1m30s")
    assert with_skew.lines == run("offsets", *partition, "--at", earlier).lines
    shown = run("offsets", sample_root, "--at", at, "--clock-skew", "90s").err
    assert "searched from 1m 30s before each time" in shown
    assert_one_sentence(
        run("offsets", sample_root, "--at", at, "--clock-skew", "soon"), "a duration such as 90s"
    )


def test_json_lists_the_skipped_bytes(run: Run, sample_copy: Path) -> None:
    log = sample_copy / "up-0" / "00000000000000000000.log"
    log.write_bytes(b"\xff" * 131 + log.read_bytes()[131:])
    options = ["--topic", "up-0", "--at", 0, "--on-corrupt", "skip", "--json"]
    (row,) = run("offsets", sample_copy, *options).lines
    assert (row["offset"], row["correct"], row["error"]) == (1, None, None)
    (skipped,) = row["skipped"]
    assert (skipped["path"], skipped["position"], skipped["end_position"]) == (str(log), 0, 131)
