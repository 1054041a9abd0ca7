"""``kafkastore retention``."""
from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli.running import Run, assert_one_sentence
from models import metadata_directory as made

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


@pytest.fixture
def with_metadata(tmp_path: Path) -> Path:
    """Return a log directory of broker 7, with two topics and the cluster's metadata."""
    root = tmp_path / "logs"
    for name in ("orders-0", "other-0"):
        made.write_log(root / name, [b"x"], first_time=10_000)
    (root / "meta.properties").write_text("version=1\nnode.id=7\n")
    made.write_log(root / "__cluster_metadata-0", [
        made.topic("orders"), made.partition(0),
        made.config("retention.ms", "1000", resource="orders"),
        made.config("internal.segment.bytes", "3000", resource="orders"),
        made.config("log.retention.ms", "2000", resource="", kind=4),
        made.config("log.retention.bytes", "5000", resource="", kind=4),
        made.config("log.retention.bytes", "6000", resource="7", kind=4),
        made.config("log.retention.bytes", "7000", resource="8", kind=4),
    ])
    return root


def settings(run: Run, *arguments: object) -> dict[str, tuple[object, ...]]:
    """Return the configuration of each topic, and where it comes from."""
    rows = run("retention", *arguments, "--json", "--now", 20_000).lines
    return {
        row["topic"]: (row["retention_ms"], row["retention_bytes"], *row["config_sources"].values())
        for row in rows
        if row["kind"] == "partition" and not row["topic"].startswith("__")
    }


def test_configurations_are_those_of_the_metadata(run: Run, with_metadata: Path) -> None:
    assert settings(run, with_metadata) == {
        "orders": (1000, 6000, "default", "topic", "broker", "default"),
        "other": (2000, 6000, "default", "default-broker", "broker", "default"),
    }
    shown = run("retention", with_metadata, "--now", 20_000).out
    assert (
        "  cleanup.policy=delete [default], retention.ms=1000 (1s) [topic], "
        "retention.bytes=6000 [broker]: orders\n"
    ) in shown


def test_an_option_wins_over_the_metadata(run: Run, with_metadata: Path) -> None:
    found = settings(run, with_metadata, "--retention-ms", "5", "--config", "segment.ms=9")
    expected = (5, 6000, "default", "option", "broker", "option")
    assert found == {"orders": expected, "other": expected}


def test_metadata_may_be_elsewhere(run: Run, with_metadata: Path, tmp_path: Path) -> None:
    metadata = (with_metadata / "__cluster_metadata-0").rename(tmp_path / "__cluster_metadata-0")
    assert settings(run, with_metadata)["orders"][:2] == (604_800_000, -1)
    assert settings(run, with_metadata, "--metadata", metadata)["orders"][:2] == (1000, 6000)
    cluster = kafkastore.cluster(metadata)
    for given in (metadata, cluster, [metadata]):
        first, *_ = kafkastore.retention(with_metadata, metadata=given, now=20_000)
        assert (first.config.retention_ms, first.config.segment_bytes) == (1000, 3000)
    gone = run("retention", with_metadata, "--metadata", tmp_path / "gone")
    assert_one_sentence(gone, "gone")


def test_a_single_partition_directory_prints_a_note(run: Run, logs: Path) -> None:
    ran = run("retention", logs / "retention-0", "--retention-ms", -1)
    assert ran.err.startswith("note: a partition directory by itself has no checkpoints")
    assert "retention.ms=-1 [option]," in ran.out


def test_unreadable_partitions_are_reported_and_the_rest_is_evaluated(run: Run, logs: Path) -> None:
    index = kafkastore.open(logs)["roll-0"].segments[0].time_index_path
    index.unlink()
    index.mkdir()
    ran = run("retention", logs, "--json")
    assert ran.code == 1
    assert ran.err.startswith("kafkastore: roll-0: ")
    assert {row["topic"] for row in ran.lines} == {"retention"}
