"""Directories of real brokers, loaded: bounds, epochs, leftovers, and the place of every offset."""

import shutil
from itertools import pairwise
from typing import NamedTuple

import pytest
from models import record_reader
from models.loaded_log import position_of

import kafkastore
from kafkastore.formats.state.leader_epochs import LeaderEpochs
from kafkastore.log.log_view import BoundSource

# Damaged after the broker had answered: the log ends earlier.
DAMAGED = ("crash-torn", "crash-bad-crc")
HIGHEST_VERSION_WITHOUT_EPOCHS = 3


def answered(case):
    """(log, its answers) of every partition that was queried."""
    store = kafkastore.open(case.logs)
    for name, answers in case.answers["partitions"].items():
        if "log_start_offset" not in answers:
            continue
        if case.name in DAMAGED and case.answers_name == "answers" and name.startswith("crash"):
            continue
        yield store[name], answers


def test_bounds_are_those_that_the_broker_reported(golden_case):
    checked = 0
    for log, answers in answered(golden_case):
        bounds = log.explain_bounds()
        assert bounds.log_start_offset.offset == answers["log_start_offset"]
        assert bounds.log_end_offset.offset == answers["log_end_offset"]
        assert bounds.high_watermark.offset == answers["high_watermark"]
        if answers.get("last_stable_offset") not in (None, -1):     # -1: not reported
            assert bounds.last_stable_offset.offset == answers["last_stable_offset"]
            assert log.last_stable_offset == answers["last_stable_offset"]
            checked += 1
    assert checked or golden_case.version.startswith("0.") or golden_case.name in DAMAGED


@pytest.mark.golden_cases(answers="answers")
def test_the_checkpointed_high_watermark_is_the_true_one_after_a_clean_shutdown(golden_case):
    for log, answers in answered(golden_case):
        bounds = log.explain_bounds("checkpoint").high_watermark
        if golden_case.answers["shutdown"] == "clean":
            assert bounds.offset == answers["high_watermark"]
            assert bounds.source is BoundSource.CHECKPOINT
        else:
            assert bounds.offset <= answers["high_watermark"]
        assert log.is_clean == (golden_case.answers["shutdown"] == "clean")


@pytest.mark.golden_cases(
    names=["leader-epochs", "transactions", "compacted*", "delete-records"],
    versions=["0.11.*", "2.*", "3.*", "4.*"], answers="answers",
)
def test_the_epoch_of_every_record_and_of_the_log_end_is_that_of_the_broker(golden_case):
    records = 0
    for log, answers in answered(golden_case):
        epochs = LeaderEpochs(log.leader_epochs)
        for record in answers["records"]:
            if record[6] is not None:
                assert epochs.epoch_for_offset(record[0]) == record[6]
                records += 1
        for row in answers["list_offsets"]:
            if (row["timestamp"], row["error"]) == (-1, 0) and row["leader_epoch"] is not None:
                assert row["version"] > HIGHEST_VERSION_WITHOUT_EPOCHS
                assert epochs.latest_epoch == row["leader_epoch"]
    assert records


class OnDisk(NamedTuple):
    """The fields of a batch that `position_of` needs."""

    data: bytes
    last_offset: int


def batches_of(path):
    """[(position, batch)] by the slow reader."""
    found = []
    for position, data in record_reader.split(path.read_bytes())[0]:
        last_offset = int.from_bytes(data[:8], "big")
        if data[16] == 2:
            last_offset += int.from_bytes(data[23:27], "big")
        found.append((position, OnDisk(data, last_offset)))
    return found


@pytest.mark.golden_cases(answers="answers")
def test_every_offset_is_located_where_kafka_s_search_finds_it(golden_case):
    """Kafka 2.4.0 ``LogSegment.translateOffset``, ``FileRecords.searchForOffsetWithSize``."""
    for log in kafkastore.open(golden_case.logs):
        for segment in log.segments:
            placed = batches_of(segment.log_path)
            last = placed[-1][1].last_offset if placed else segment.base_offset
            offsets = range(segment.base_offset - 1, last + 3)
            for target in offsets[:: max(len(offsets) // 150, 1)]:
                assert segment.translate_offset(target) == position_of(placed, target)
            for position, _ in placed[:: max(len(placed) // 5, 1)]:
                for target in (segment.base_offset, (segment.base_offset + last) // 2, last):
                    wanted = position_of(placed, target, position)
                    assert segment.translate_offset(target, position) == wanted


COMPACTED = pytest.mark.golden_cases(
    names=["compacted*", "roll-and-retention-by-time", "delete-records", "transactions"],
    answers="answers",
)


@COMPACTED
def test_reads_from_any_offset_begin_with_the_first_remaining_record(golden_case):
    for log, answers in answered(golden_case):
        offsets = [record[0] for record in answers["records"]]
        for start in range(answers["log_start_offset"], answers["log_end_offset"] + 1, 3):
            wanted = [offset for offset in offsets if start <= offset < start + 9]
            assert [record.offset for record in log.records(start, start + 9)] == wanted
            batches = list(log.batches(start, start + 9))
            assert all(batch.last_offset >= start for batch in batches)
            assert set(wanted) <= {
                record.offset for batch in batches for record in batch.records()
            }


@COMPACTED
def test_compacted_logs_are_read_exactly(golden_case):
    for log, answers in answered(golden_case):
        tombstones = [record[0] for record in answers["records"] if record[4] is None]
        found = list(log.records())
        assert [record.offset for record in found if record.value is None] == tombstones
        for batch in log.batches():
            records = list(batch.records())
            assert batch.base_offset <= batch.last_offset
            assert len(records) == (batch.count if batch.magic == 2 else len(records))
            assert all(
                batch.base_offset <= record.offset <= batch.last_offset for record in records
            )
        for segment in log.segments:
            first = next(iter(batches_of(segment.log_path)), None)
            if first is not None:
                assert segment.translate_offset(0).position == 0


def test_compacted_cases_have_gaps_tombstones_and_emptied_segments(golden):
    """The golden cases must include these, or the tests above would check nothing."""
    gaps = tombstones = emptied = 0
    for version, name in (
        ("2.4.0", "compacted"), ("3.9.1", "compacted"), ("2.4.0", "compacted-empty-segment")
    ):
        for log, answers in answered(golden(version, name, "answers")):
            offsets = [record[0] for record in answers["records"]]
            gaps += sum(after - before > 1 for before, after in pairwise(offsets))
            tombstones += sum(record[4] is None for record in answers["records"])
            emptied += sum(not segment.size for segment in log.segments[:-1])
    assert min(gaps, tombstones, emptied) > 0


@pytest.mark.golden_cases(names="wide", versions=["2.*", "3.*", "4.*"], answers="answers")
def test_leftovers_of_a_broker_are_reported_and_not_part_of_the_log(golden_case):
    noted = [
        note for log in kafkastore.open(golden_case.logs) for note in log.leftovers
    ]
    on_disk = {
        path
        for path in golden_case.logs.rglob("*")
        if path.suffix in (".deleted", ".cleaned", ".swap") and not path.parent.name.endswith(
            "-delete")
    }
    assert {note.path for note in noted} == on_disk
    assert on_disk


@pytest.mark.golden_cases(names="compacted", versions=["2.4.0", "4.3.1"], answers="answers")
def test_a_log_without_its_first_segments_starts_with_the_next(golden_case, tmp_path):
    for log, answers in answered(golden_case):
        if len(log.segments) < 2:
            continue
        copied = tmp_path / log.path.name
        shutil.copytree(log.path, copied)
        for path in copied.glob(f"{log.segments[0].base_offset:020}.*"):
            path.unlink()
        alone = kafkastore.open(copied)[log.path.name]
        second = log.segments[1].base_offset
        assert alone.log_start_offset == second
        assert [record.offset for record in alone.records()] == [
            record[0] for record in answers["records"] if record[0] >= second
        ]
