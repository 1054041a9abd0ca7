"""Explanations: the way to an answer, and why the right one is another; each claim is checked."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from models.index_model import WARM_SECTION_SIZE, slot_range
from models.log_directory import Log, Segment
from models.offset_lookup import correct_answer
from models.record_format import Batch, Row, emptied, marker
from models.record_strategies import bounded, logs
from models.segment_indexes import pack_offset_entries, pack_time_entries

import kafkastore
from kafkastore.segment.log_file import LogFile
from kafkastore.segment.timestamp_search import SegmentSearch


def one_by_one(first_offset, *times, **fields):
    return tuple(
        Batch((Row(first_offset + number, time),), **fields) for number, time in enumerate(times)
    )


def closed(base_offset, batches, **fields):
    return Segment(base_offset, batches, **fields).indexed()


NEXT = closed(10, one_by_one(10, *range(600, 610)))
UP_TO_1000 = closed(0, one_by_one(0, 0, 1, 1000, *range(3, 10)))
UNTIMED = one_by_one(0, *[-1] * 10, magic=0)

# The log, the time asked for, by what the segment was chosen, and words of the reason.
CAUSES = {
    "log start inside the segment": (
        Log((UP_TO_1000, NEXT), is_clean=True, checkpointed_start=5), 500, "time index",
        "the log start offset 5 is inside the segment"),
    "chosen by mtime, no timestamps": (
        Log((closed(0, UNTIMED, modified_ms=700), NEXT), is_clean=True), 605, "modification time",
        ("its time index is empty, so it is chosen by the file's modification time, "
         "1970-01-01T00:00:00.700Z")),
    "chosen by mtime, index missing": (
        Log((Segment(0, one_by_one(0, 1, 2), modified_ms=700, time_index=None), NEXT),
            is_clean=True), 605, "modification time", "its time index is missing"),
    "skipped by mtime": (
        Log((replace(UP_TO_1000, modified_ms=5, time_index=None), NEXT), is_clean=True), 500,
        "time index", "segment 0 is skipped: its time index is missing"),
    "an emptied batch": (
        Log((closed(0, (*one_by_one(0, 1, 2), emptied(2, 9, 800))), NEXT), is_clean=True), 500,
        "time index", "keeps its old largest timestamp, 1970-01-01T00:00:00.800Z"),
    "zero padding": (
        Log((replace(UP_TO_1000, time_index=UP_TO_1000.time_index + bytes(120)), NEXT),
            is_clean=True), 500, "time index", "takes the zero padding after the entries"),
    "an unsorted index": (
        Log((replace(UP_TO_1000, time_index=pack_time_entries([(1000, 2), (9, 9)], 0)), NEXT),
            is_clean=True), 500, "time index", "its time index is not in order"),
    "a last entry that is too low": (
        Log((replace(UP_TO_1000, time_index=pack_time_entries([(1, 1)], 0)), NEXT), is_clean=True),
        500, "time index", ("1970-01-01T00:00:00.001Z, is below the segment's largest timestamp, "
                            "1970-01-01T00:00:01.000Z")),
    "a last entry that is too high": (
        Log((replace(closed(0, one_by_one(0, 1, 2)), time_index=pack_time_entries([(700, 1)], 0)),
             NEXT), is_clean=True), 500, "time index",
        "has 1970-01-01T00:00:00.700Z, which is later than any"),
    "a KIP-33 entry of a segment without timestamps": (
        Log((replace(closed(0, UNTIMED), time_index=pack_time_entries([(700, 9)], 0)), NEXT),
            is_clean=True), 605, "time index", "none of its records has a timestamp"),
    "a marker": (
        Log((closed(0, (*one_by_one(0, 1), marker(1, 550))), NEXT), is_clean=True), 500,
        "time index", "offset 1 is a transaction marker"),
    "an offset index that leads behind the log": (
        Log((replace(UP_TO_1000, offset_index=pack_offset_entries([(1, 10**6)], 0)),),
            is_clean=True), 500, "time index", "the search starts after it, at byte 1000000"),
}


@pytest.mark.parametrize(("log", "target", "chosen_by", "words"), CAUSES.values(), ids=CAUSES)
def test_each_cause_has_its_sentence(tmp_path, log, target, chosen_by, words):
    (found,) = kafkastore.open(log.write(tmp_path / "logs"))
    told = found.explain_timestamp(target, "2.4")
    assert told.correct == correct_answer(log, target)
    assert told.answer == found.offset_for_timestamp(target, "2.4")
    assert told.answer != told.correct
    assert words in told.reason
    assert "\n" not in told.reason
    assert told.chosen_by == chosen_by
    assert told.reason in str(told)


def test_the_whole_way_is_told(tmp_path):
    log = Log((UP_TO_1000, NEXT), is_clean=True)
    (found,) = kafkastore.open(log.write(tmp_path / "logs"))
    told = found.explain_timestamp(605, "2.4")
    assert told.answer == (1000, 2, 0)
    assert (told.base_offset, told.largest_timestamp) == (0, 1000)
    assert told.time_entry == (1, 1)
    size = len(UP_TO_1000.batches[0].data)
    assert told.offset_entry == (1, size)
    assert (told.starting_position, told.batch_position) == (size, 2 * size)
    assert told.bytes_scanned == 2 * size
    assert told.reason is None
    nothing = found.explain_timestamp(1001, "2.4")
    assert (nothing.base_offset, nothing.chosen_by, nothing.bytes_scanned) == (None, None, 0)
    assert str(nothing) == "2.4: none\nno segment has a time at or after 1970-01-01T00:00:01.001Z"


@pytest.mark.parametrize(
    ("directory", "log", "chosen_by"),
    [
        (".", Log((UP_TO_1000,), is_clean=True), "time index"),
        (".", Log((UP_TO_1000,)), "time index as recovered"),
        ("t-0", Log((replace(UP_TO_1000, time_index=b"", offset_index=b""),)),
         "memory of a running broker"),
    ],
)
def test_the_state_of_the_broker_is_told(tmp_path, directory, log, chosen_by):
    (found,) = kafkastore.open(log.write(tmp_path / "logs") / directory)
    told = found.explain_timestamp(500, "2.4")
    assert (told.answer, told.chosen_by) == ((1000, 2, 0), chosen_by)


def test_kip_33_s_equal_maximum_is_told(tmp_path):
    log = Log((UP_TO_1000, NEXT), is_clean=True)
    (found,) = kafkastore.open(log.write(tmp_path / "logs"))
    told = found.explain_timestamp(1000, "kip-33")
    assert told.answer is None
    assert told.reason == (
        "segment 0 is skipped: the last entry of its time index must be after the requested "
        "time, and is equal"
    )


@pytest.mark.parametrize("rules", ["correct", "kip-33", "2.4", "4.1"])
@pytest.mark.parametrize("time", [-(2**63), -1, 0, 2**63 - 1])
def test_an_empty_partition_is_explained_at_each_extreme(tmp_path, rules, time):
    log = Log((Segment(0, (), time_index=b"", offset_index=b""),), is_clean=True)
    (found,) = kafkastore.open(log.write(tmp_path / "logs"))
    told = found.explain_timestamp(time, rules)
    assert (told.answer, told.correct, told.reason) == (None, None, None)
    if rules == "kip-33":
        assert told.base_offset is None


def test_kip_33_s_segments_without_entries_are_not_said_to_be_searched(tmp_path):
    no_entries = replace(UP_TO_1000, time_index=b"")
    (found,) = kafkastore.open(Log((no_entries, NEXT), is_clean=True).write(tmp_path / "logs"))
    told = found.explain_timestamp(-(2**63), "kip-33")
    assert told.answer == found.offset_for_timestamp(-(2**63), "kip-33") == (600, 10, 0)
    assert (told.base_offset, told.chosen_by) == (10, "time index")


def test_committed_differences_are_told(tmp_path):
    fields = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True}
    batches = (*one_by_one(0, 50, **fields), marker(1, 7, is_commit=False), *one_by_one(2, 60))
    (found,) = kafkastore.open(Log((closed(0, batches),)).write(tmp_path / "logs"))
    told = found.explain_timestamp(40, "2.4", isolation="read_committed")
    assert (told.answer, told.correct) == ((50, 0, 0), (60, 2, 0))
    assert told.reason == "offset 0 is of an aborted transaction"


def test_explanations_are_json(tmp_path):
    log, target, _, _ = CAUSES["log start inside the segment"]
    (found,) = kafkastore.open(log.write(tmp_path / "logs"))
    told = json.loads(json.dumps(found.explain_timestamp(target, "2.4").as_json()))
    assert told["answer"] is None
    assert told["correct"] == {"timestamp": 600, "offset": 10, "leader_epoch": 0}
    assert told["time_slots"]


class Slots(list):
    """Keys that note which of them are looked at."""

    def __init__(self, keys):
        super().__init__(keys)
        self.looked_at = []

    def __getitem__(self, slot):
        self.looked_at.append(slot)
        return super().__getitem__(slot)


@pytest.mark.parametrize("warm_section", [False, True])
def test_the_slots_looked_at_are_those_of_kafka_s_search(tmp_path, warm_section):
    (tmp_path / "0.log").touch()
    padded = [*range(0, 4000, 2), *[0] * 700]
    for times in (
        [], [5], [1, 5, 9], [1, 5, 9, 9, 0, 0, 0, 0], [9, 1, 8, 2, 7, 3], range(40), padded
    ):
        # Times are offsets, too, so that both indexes have the same keys.
        search = SegmentSearch(
            lambda: LogFile(tmp_path / "0.log"),
            0,
            pack_time_entries([(time, 0) for time in times], 0),
            pack_offset_entries([(time, 7) for time in times], 0),
            warm_section=warm_section,
        )
        for target in (*range(-1, 42), 2500, 2501, 3998, 5000):
            for entry_bytes, looked_at in (
                (12, search.trace(target, 0).time_slots),
                (8, search.trace(-1, target).offset_slots),
            ):
                keys = Slots(times)
                warm_entries = WARM_SECTION_SIZE // entry_bytes if warm_section else None
                slot_range(keys, max(target, 0) if entry_bytes == 8 else target, warm_entries)
                assert list(looked_at) == keys.looked_at


def records_of(log):
    return [
        record
        for batch in log.batches
        for record in batch.records
    ]


@pytest.mark.parametrize("rules", ["correct", "2.4", "4.1", "0.10.2"])
@bounded(40)
@given(log=logs())
def test_every_difference_has_its_true_reason(rules, log):
    targets = sorted({record[1] + by for record in records_of(log) for by in (0, 1)} | {0, 50})
    markers = {batch.base_offset for batch in log.batches if batch.is_control}
    with tempfile.TemporaryDirectory() as directory:
        (found,) = kafkastore.open(log.write(Path(directory) / "logs"))
        for target in [each for each in targets if -(2**63) < each < 2**63]:
            told = found.explain_timestamp(target, rules)
            assert told.answer == found.offset_for_timestamp(target, rules)
            assert told.correct == found.offset_for_timestamp(target)
            offsets = [each and each.offset for each in (told.answer, told.correct)]
            assert (told.reason is None) == (offsets[0] == offsets[1])
            if told.reason is not None:
                assert_true(told, log, markers, target)


def assert_true(told, log, markers, target):
    """Check what a reason says against the model's records."""
    segment = next(
        (each for each in log.segments if each.base_offset == told.base_offset), log.segments[0]
    )
    batches = segment.batches
    if "marker" in told.reason:
        assert told.answer.offset in markers
    elif "log start offset" in told.reason and "inside" in told.reason:
        assert told.answer is None
        assert any(
            record[1] >= target and record[0] < log.start_offset
            for batch in batches for record in batch.records
        )
    elif "which these brokers do not have" in told.reason:
        assert told.answer.offset < log.start_offset
    elif "keeps its old largest timestamp" in told.reason:
        assert max(batch.max_timestamp for batch in batches) >= target
        assert not any(record[1] >= target for batch in batches for record in batch.records)
    elif "negative timestamp" in told.reason:
        assert told.answer.timestamp < 0
    elif "chosen by the file's modification time" in told.reason:
        assert told.chosen_by == "modification time"
        assert segment.modified_ms >= target
    elif "is skipped" in told.reason:
        holder = max(
            (each for each in log.segments if each.base_offset <= told.correct.offset),
            key=lambda each: each.base_offset,
        )
        assert f"segment {holder.base_offset} is skipped" in told.reason
        assert told.base_offset is None or told.base_offset > holder.base_offset
    elif "none of its records has a timestamp" in told.reason:
        assert all(batch.max_timestamp < 0 for batch in batches)
    else:
        assert "has no matching record" in told.reason or "holds the record" in told.reason
        assert told.answer is None or told.answer.offset != told.correct.offset


# What golden/README.md says of the cases in which brokers differ from the truth.
FINDINGS = {
    "delete-records": "log start offset",
    "compacted-empty-segment": "modification time",
    "upgrade": "modification time",
    "transactions": "marker",
}


def is_not_known(log, target):
    """Whether the right answer lies in a batch with a wrong checksum, or nowhere before it."""
    try:
        log.offset_for_timestamp(target)
    except kafkastore.CorruptBatchError:
        return True
    return False


def test_known_disagreements_are_explained(golden_case):
    store = kafkastore.open(golden_case.logs)
    rules, reasons = golden_case.answers["kafka"], []
    for name, answers in golden_case.answers["partitions"].items():
        rows = answers.get("list_offsets", [])
        for target in sorted({row["timestamp"] for row in rows if row["timestamp"] >= 0}):
            if golden_case.name == "crash-bad-crc" and is_not_known(store[name], target):
                continue
            told = store[name].explain_timestamp(target, rules)
            offsets = [each and each.offset for each in (told.answer, told.correct)]
            assert (told.reason is None) == (offsets[0] == offsets[1])
            reasons += [told.reason] if told.reason else []
    is_as_found = golden_case.answers_name in ("answers", f"answers-upgraded-{rules}")
    if golden_case.name in FINDINGS and is_as_found and "list_offsets" in answers:
        # Without any timestamp nobody finds a record by time.
        assert bool(reasons) == (golden_case.version not in ("0.8.2.2", "0.9.0.1"))
        assert all(FINDINGS[golden_case.name] in reason for reason in reasons), reasons
    if golden_case.name.startswith("create-time"):
        assert not reasons
