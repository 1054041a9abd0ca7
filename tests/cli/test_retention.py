"""``kafkastore retention``."""
from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli.running import Run, assert_one_sentence

import kafkastore

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"


@pytest.fixture
def logs(golden, writable_copy) -> Path:
    """Return logs with one hour of retention: nothing to delete, some segments blocked."""
    return writable_copy(golden("2.4.0", "roll-and-retention-by-time", "answers").logs)


@pytest.fixture
def now_ms(golden) -> int:
    now: int = golden("2.4.0", "roll-and-retention-by-time", "answers").answers["asked_at_ms"]
    return now


HOUR = ("--retention-ms", 3_600_000, "--topic", "retention")


def test_partitions_are_listed_with_deletable_and_blocking_segments(
    run: Run, logs: Path, now_ms: int
) -> None:
    ran = run("retention", logs, *HOUR, "--now", now_ms)
    assert ran.code == 0
    assert re.search(r"^retention-0 +7 +0 +- +0 B +52 +52 +1$", ran.out, re.MULTILINE)
    assert "1 segment (1.25 KiB) expired but cannot be deleted before segment 52" in ran.out
    assert ran.out.endswith("0 segments of 7 would be deleted, 0 B of 9.55 KiB\n")


def test_segments_are_listed_with_their_dates(run: Run, logs: Path, now_ms: int) -> None:
    ran = run("retention", logs, *HOUR, "--now", now_ms + 43 * 60_000, "--segments")
    rows = [line for line in ran.out.splitlines() if line.startswith("retention-0 ")]
    assert len(rows) == 7
    assert rows[0].endswith("deleted by retention.ms")
    assert rows[-1].endswith("kept")


def test_times_can_be_relative_to_the_newest_record(run: Run, logs: Path) -> None:
    ran = run("retention", logs, *HOUR, "--relative-to", "newest", "--json")
    segments = kafkastore.open(logs)["retention-0"].segments
    newest = max(segment.largest_record_timestamp() for segment in segments)
    assert {row["now"] for row in ran.lines if row["kind"] == "partition"} == {newest}


def test_json_has_the_documented_fields(run: Run, logs: Path, now_ms: int) -> None:
    chapter = DOCUMENT.read_text(encoding="utf-8").split("\n## retention\n")[1].split("\n## ")[0]
    rows = run("retention", logs, "--json", *HOUR, "--now", now_ms).lines
    for kind in ("partition", "segment"):
        table = re.search(rf"JSON, kind `{kind}`.*?\n\n\|.*?(\n\n|\Z)", chapter, re.DOTALL)
        assert table is not None
        fields = set(re.findall(r"`([a-z_]+)`", table[0].replace(f"`{kind}`", "", 1)))
        shown = {name for row in rows if row["kind"] == kind for name in row} - {"kind"}
        assert shown <= fields
    segments = [row for row in rows if row["kind"] == "segment"]
    assert [row["blocked_by"] for row in segments] == [None, None, 52, None, None, None, None]
    assert all(row["expires_at"] == row["largest_timestamp"] + 3_600_001 for row in segments)


def test_timestamps_in_a_wrong_unit_are_reported_with_their_effect(
    run: Run, golden, writable_copy
) -> None:
    logs = writable_copy(golden("2.4.0", "create-time-monotonic", "answers").logs)
    segments = kafkastore.open(logs)["mono-0"].segments
    moment = 1_500_000_000
    for segment, timestamp in zip(
        segments, (moment, moment * 10**6, moment * 10**9), strict=False
    ):
        segment.time_index_path.write_bytes(timestamp.to_bytes(8, "big") + bytes(4))
    ran = run("retention", logs, "--topic", "mono", "--partition", 0)
    assert ran.code == 1
    first, second, third = (segment.base_offset for segment in segments[:3])
    later = len(segments) - 2
    assert (
        f"the largest timestamp of segment {first}, 1500000000, is in seconds, if it means "
        "2017-07-14T02:40:00.000Z; as ms it is 1970-01-18T08:40:00.000Z, and a broker deletes it "
        "immediately"
    ) in ran.out
    assert (
        f"segment {second}, 1500000000000000, is in microseconds, if it means "
        "2017-07-14T02:40:00.000Z; as ms it is more than 10,000 years ahead, and retention.ms "
        f"never deletes it or the {later} later segments"
    ) in ran.out
    assert f"segment {third}, 1500000000000000000, is in nanoseconds" in ran.out
    assert f"deleted before segment {second}, which is kept until" in ran.out


def test_zeros_that_a_broker_would_load_are_reported(run: Run, golden) -> None:
    case = golden("2.4.0", "broken-index-active-zero-padded", "answers-recovered")
    ran = run("retention", case.root / "logs")
    assert ran.code == 1
    assert (
        "ends in zeros: a broker reads 0 as the largest timestamp and deletes it immediately"
        in ran.out
    )
    assert "although the newest record is of 2017-07-14" in ran.out


def test_implausible_times_do_not_matter_without_retention_by_time(run: Run, golden) -> None:
    case = golden("2.4.0", "broken-index-active-zero-padded", "answers-recovered")
    for option in ("retention.ms=-1", "cleanup.policy=compact"):
        ran = run("retention", case.root / "logs", "--config", option)
        assert ran.code == 0
        assert "zeros" not in ran.out


def test_a_future_modification_time_is_reported(run: Run, sample_root: Path) -> None:
    ran = run("retention", sample_root, "--topic", "up-1", "--now", "2017-07-14T02:42:30Z")
    assert ran.code == 1
    assert (
        "up-1: the modification time of segment 24, 2017-07-14T02:42:55.000Z, is in the future: "
        "retention.ms does not delete it or the later segment before 2017-07-21T02:42:55.001Z"
    ) in ran.out


def test_options_have_kafkas_names_and_valid_values(run: Run, logs: Path) -> None:
    given = ("--config", "retention.bytes=0", "--config", "cleanup.policy=compact,delete")
    ran = run("retention", logs, *given)
    assert "17 segments of 17 would be deleted" in ran.out
    assert_one_sentence(run("retention", logs, "--config", "retention.ms"), "must be KEY=VALUE")
    assert_one_sentence(run("retention", logs, "--config", "retention=1"), "retention is not a")
    assert_one_sentence(run("retention", logs, "--kafka-version", "new"), "must be a Kafka version")


def test_retention_ms_accepts_a_duration_and_kafkas_numbers(run: Run, logs: Path) -> None:
    for given, ms in (("7d", 604_800_000), ("1h30m", 5_400_000), ("3600000", 3_600_000), (-1, -1)):
        rows = run("retention", logs, "--retention-ms", given, "--json").lines
        assert {row["retention_ms"] for row in rows if row["kind"] == "partition"} == {ms}
    for wrong in ("7 days", "-2", "-1h"):
        assert run("retention", logs, "--retention-ms", wrong).code == 2


def test_a_note_says_that_configurations_in_the_metadata_log_are_not_read(
    run: Run, golden
) -> None:
    logs = golden("4.1.1", "kraft-metadata", "answers").logs
    noted = run("retention", logs, "--topic", "meta-0")
    assert "__cluster_metadata-0" in noted.err
    assert "--config" in noted.err
    assert noted.err.count("\n") == 1
    assert run("retention", logs, "--topic", "meta-0", "--retention-ms", "7d").err == ""


def test_a_single_partition_directory_prints_a_note(run: Run, logs: Path) -> None:
    ran = run("retention", logs / "retention-0", "--retention-ms", -1)
    assert ran.err.startswith("note: a partition directory by itself has no checkpoints")
    assert "retention.ms=-1," in ran.out


def test_unreadable_partitions_are_reported_and_the_rest_is_evaluated(run: Run, logs: Path) -> None:
    index = kafkastore.open(logs)["roll-0"].segments[0].time_index_path
    index.unlink()
    index.mkdir()
    ran = run("retention", logs, "--json")
    assert ran.code == 1
    assert ran.err.startswith("kafkastore: roll-0: ")
    assert {row["topic"] for row in ran.lines} == {"retention"}
