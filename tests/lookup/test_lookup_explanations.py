"""Explanations: the steps to an answer, and why the right one differs; each is checked."""

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
from kafkastore import DifferenceKind
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

# The log, the target timestamp, what the segment was chosen by, and why the answer differs.
CAUSES = {
    "log start inside the segment": (
        Log((UP_TO_1000, NEXT), is_clean=True, checkpointed_start=5), 500, "time-index",
        DifferenceKind.DELETED_RECORDS),
    "chosen by mtime, no timestamps": (
        Log((closed(0, UNTIMED, modified_ms=700), NEXT), is_clean=True), 605, "modification-time",
        DifferenceKind.CHOSEN_BY_MODIFICATION_TIME),
    "chosen by mtime, index missing": (
        Log((Segment(0, one_by_one(0, 1, 2), modified_ms=700, time_index=None), NEXT),
            is_clean=True), 605, "modification-time", DifferenceKind.CHOSEN_BY_MODIFICATION_TIME),
    "skipped by mtime": (
        Log((replace(UP_TO_1000, modified_ms=5, time_index=None), NEXT), is_clean=True), 500,
        "time-index", DifferenceKind.SKIPPED_BY_MODIFICATION_TIME),
    "an emptied batch": (
        Log((closed(0, (*one_by_one(0, 1, 2), emptied(2, 9, 800))), NEXT), is_clean=True), 500,
        "time-index", DifferenceKind.COMPACTED_BATCH),
    "zero padding": (
        Log((replace(UP_TO_1000, time_index=UP_TO_1000.time_index + bytes(120)), NEXT),
            is_clean=True), 500, "time-index", DifferenceKind.ZERO_PADDING),
    "an unsorted index": (
        Log((replace(UP_TO_1000, time_index=pack_time_entries([(1000, 2), (9, 9)], 0)), NEXT),
            is_clean=True), 500, "time-index", DifferenceKind.UNORDERED_INDEX),
    "a last entry that is too low": (
        Log((replace(UP_TO_1000, time_index=pack_time_entries([(1, 1)], 0)), NEXT), is_clean=True),
        500, "time-index", DifferenceKind.LAST_ENTRY_TOO_EARLY),
    "a last entry that is too high": (
        Log((replace(closed(0, one_by_one(0, 1, 2)), time_index=pack_time_entries([(700, 1)], 0)),
             NEXT), is_clean=True), 500, "time-index", DifferenceKind.LAST_ENTRY_TOO_LATE),
    "a KIP-33 entry of a segment without timestamps": (
        Log((replace(closed(0, UNTIMED), time_index=pack_time_entries([(700, 9)], 0)), NEXT),
            is_clean=True), 605, "time-index", DifferenceKind.NO_TIMESTAMPS),
    "a marker": (
        Log((closed(0, (*one_by_one(0, 1), marker(1, 550))), NEXT), is_clean=True), 500,
        "time-index", DifferenceKind.TRANSACTION_MARKER),
    "an offset index with an entry past the log end": (
        Log((replace(UP_TO_1000, offset_index=pack_offset_entries([(1, 10**6)], 0)),),
            is_clean=True), 500, "time-index", DifferenceKind.WRONG_INDEX_ENTRY),
    "a negative time": (
        Log((closed(0, one_by_one(0, -5, 5)),), is_clean=True), -7, "time-index",
        DifferenceKind.NEGATIVE_TIMESTAMP),
}


@pytest.mark.parametrize(("log", "target", "chosen_by", "kind"), CAUSES.values(), ids=CAUSES)
def test_each_cause_has_its_kind_and_a_sentence(tmp_path, log, target, chosen_by, kind):
    (found,) = kafkastore.open(log.write(tmp_path / "logs"))
    explanation = found.explain_timestamp(target, "2.4")
    assert explanation.correct == correct_answer(log, target)
    assert explanation.answer == found.offset_for_timestamp(target, "2.4")
    assert explanation.answer != explanation.correct
    assert explanation.difference is kind
    assert "\n" not in explanation.reason
    assert explanation.chosen_by == chosen_by
    assert explanation.reason in str(explanation)


def test_every_step_is_reported(tmp_path):
    log = Log((UP_TO_1000, NEXT), is_clean=True)
    (found,) = kafkastore.open(log.write(tmp_path / "logs"))
    explanation = found.explain_timestamp(605, "2.4")
    assert explanation.answer == (1000, 2, 0)
    assert (explanation.base_offset, explanation.largest_timestamp) == (0, 1000)
    assert explanation.time_entry == (1, 1)
    size = len(UP_TO_1000.batches[0].data)
    assert explanation.offset_entry == (1, size)
    assert (explanation.starting_position, explanation.batch_position) == (size, 2 * size)
    assert explanation.bytes_scanned == 2 * size
    assert (explanation.difference, explanation.reason) == (None, None)
    nothing = found.explain_timestamp(1001, "2.4")
    assert (nothing.base_offset, nothing.chosen_by, nothing.bytes_scanned) == (None, None, 0)
    assert str(nothing) == "2.4: none\nno segment has a time at or after 1970-01-01T00:00:01.001Z"


@pytest.mark.parametrize(
    ("directory", "log", "chosen_by"),
    [
        (".", Log((UP_TO_1000,), is_clean=True), "time-index"),
        (".", Log((UP_TO_1000,)), "recovery"),
        ("t-0", Log((replace(UP_TO_1000, time_index=b"", offset_index=b""),)),
         "running-broker"),
    ],
)
def test_the_state_of_the_broker_is_reported(tmp_path, directory, log, chosen_by):
    (found,) = kafkastore.open(log.write(tmp_path / "logs") / directory)
    explanation = found.explain_timestamp(500, "2.4")
    assert (explanation.answer, explanation.chosen_by) == ((1000, 2, 0), chosen_by)


def test_kip_33_s_equal_maximum_is_reported(tmp_path):
    log = Log((UP_TO_1000, NEXT), is_clean=True)
    (found,) = kafkastore.open(log.write(tmp_path / "logs"))
    explanation = found.explain_timestamp(1000, "kip-33")
    assert explanation.answer is None
    assert explanation.difference is DifferenceKind.LAST_ENTRY_EQUAL


@pytest.mark.parametrize(
    ("changes", "is_last", "target", "kind"),
    [
        ({"time_index": b""}, False, 500, DifferenceKind.NO_TIME_INDEX_ENTRY),
        ({"time_index": None}, True, 500, DifferenceKind.NO_TIME_INDEX_ENTRY),
        ({"time_index": None, "modified_ms": 5}, False, 500,
         DifferenceKind.SKIPPED_BY_MODIFICATION_TIME),
        ({"time_index": pack_time_entries([(1, 1)], 0)}, False, 500,
         DifferenceKind.LAST_ENTRY_TOO_EARLY),
        ({"time_index": pack_time_entries([(1, 5), (1000, 9)], 0)}, False, 500,
         DifferenceKind.WRONG_INDEX_ENTRY),
    ],
)
def test_kip_33_s_differences_have_kinds(tmp_path, changes, is_last, target, kind):
    log = Log((replace(UP_TO_1000, **changes), *(() if is_last else (NEXT,))), is_clean=True)
    (found,) = kafkastore.open(log.write(tmp_path / "logs"))
    explanation = found.explain_timestamp(target, "kip-33")
    assert explanation.correct == correct_answer(log, target)
    assert explanation.answer != explanation.correct
    assert explanation.difference is kind


@pytest.mark.parametrize("rules", ["correct", "kip-33", "2.4", "4.1"])
@pytest.mark.parametrize("time", [-(2**63), -1, 0, 2**63 - 1])
def test_an_empty_partition_is_explained_at_each_extreme(tmp_path, rules, time):
    log = Log((Segment(0, (), time_index=b"", offset_index=b""),), is_clean=True)
    (found,) = kafkastore.open(log.write(tmp_path / "logs"))
    explanation = found.explain_timestamp(time, rules)
    assert (explanation.answer, explanation.correct, explanation.reason) == (None, None, None)
    if rules == "kip-33":
        assert explanation.base_offset is None


def test_kip_33_s_segments_without_entries_are_not_reported_as_searched(tmp_path):
    no_entries = replace(UP_TO_1000, time_index=b"")
    (found,) = kafkastore.open(Log((no_entries, NEXT), is_clean=True).write(tmp_path / "logs"))
    explanation = found.explain_timestamp(-(2**63), "kip-33")
    assert explanation.answer == found.offset_for_timestamp(-(2**63), "kip-33") == (600, 10, 0)
    assert (explanation.base_offset, explanation.chosen_by) == (10, "time-index")


def test_committed_differences_are_reported(tmp_path):
    fields = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True}
    batches = (*one_by_one(0, 50, **fields), marker(1, 7, is_commit=False), *one_by_one(2, 60))
    (found,) = kafkastore.open(Log((closed(0, batches),)).write(tmp_path / "logs"))
    explanation = found.explain_timestamp(40, "2.4", isolation="read_committed")
    assert (explanation.answer, explanation.correct) == ((50, 0, 0), (60, 2, 0))
    assert explanation.difference is DifferenceKind.ABORTED_TRANSACTION


def test_explanations_are_json(tmp_path):
    log, target, _, _ = CAUSES["log start inside the segment"]
    (found,) = kafkastore.open(log.write(tmp_path / "logs"))
    explanation = json.loads(json.dumps(found.explain_timestamp(target, "2.4").as_json()))
    assert explanation["answer"] is None
    assert explanation["correct"] == {"timestamp": 600, "offset": 10, "leader_epoch": 0}
    assert explanation["time_slots"]
    assert explanation["difference"] == "deleted-records"


def test_each_kind_of_difference_is_documented(pytestconfig):
    text = (pytestconfig.rootpath / "docs" / "lookups.md").read_text()
    assert [kind for kind in DifferenceKind if f"`{kind}`" not in text] == []


class Slots(list):
    """Keys that record which slots are read."""

    def __init__(self, keys):
        super().__init__(keys)
        self.read_slots = []

    def __getitem__(self, slot):
        self.read_slots.append(slot)
        return super().__getitem__(slot)


@pytest.mark.parametrize("warm_section", [False, True])
def test_the_slots_read_are_those_of_kafka_s_search(tmp_path, warm_section):
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
            for entry_bytes, read_slots in (
                (12, search.trace(target, 0).time_slots),
                (8, search.trace(-1, target).offset_slots),
            ):
                keys = Slots(times)
                warm_entries = WARM_SECTION_SIZE // entry_bytes if warm_section else None
                slot_range(keys, max(target, 0) if entry_bytes == 8 else target, warm_entries)
                assert list(read_slots) == keys.read_slots


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
            explanation = found.explain_timestamp(target, rules)
            assert explanation.answer == found.offset_for_timestamp(target, rules)
            assert explanation.correct == found.offset_for_timestamp(target)
            offsets = [each and each.offset for each in (explanation.answer, explanation.correct)]
            is_equal = offsets[0] == offsets[1]
            assert (explanation.reason is None) == (explanation.difference is None) == is_equal
            if explanation.difference is not None:
                assert_true(explanation, log, markers, target)


def assert_true(explanation, log, markers, target):
    """Check a difference against the model's records."""
    segment = next(
        (each for each in log.segments if each.base_offset == explanation.base_offset),
        log.segments[0],
    )
    batches = segment.batches
    match explanation.difference:
        case DifferenceKind.TRANSACTION_MARKER:
            assert explanation.answer.offset in markers
        case DifferenceKind.DELETED_RECORDS:
            assert explanation.answer is None
            assert any(
                record[1] >= target and record[0] < log.start_offset
                for batch in batches for record in batch.records
            )
        case DifferenceKind.BELOW_LOG_START:
            assert explanation.answer.offset < log.start_offset
        case DifferenceKind.COMPACTED_BATCH:
            assert max(batch.max_timestamp for batch in batches) >= target
            assert not any(record[1] >= target for batch in batches for record in batch.records)
        case DifferenceKind.NEGATIVE_TIMESTAMP:
            assert explanation.answer.timestamp < 0
        case DifferenceKind.CHOSEN_BY_MODIFICATION_TIME:
            assert explanation.chosen_by == "modification-time"
            assert segment.modified_ms >= target
        case DifferenceKind.NO_TIMESTAMPS:
            assert all(batch.max_timestamp < 0 for batch in batches)
        case _:
            correct = explanation.correct.offset
            holder = max(
                each.base_offset for each in log.segments if each.base_offset <= correct
            )
            is_skipped = explanation.base_offset is None or explanation.base_offset > holder
            if is_skipped:
                assert explanation.difference in SKIPPED | OF_ANY_SEGMENT
            else:
                assert explanation.difference not in SKIPPED
            assert explanation.answer is None or explanation.answer.offset != correct


# The logs of these tests have indexes in order, and no padding.
SKIPPED = {DifferenceKind.SKIPPED_BY_MODIFICATION_TIME, DifferenceKind.LAST_ENTRY_TOO_EARLY}
# Reasons for a segment that is skipped, and for one that is searched in the wrong place.
OF_ANY_SEGMENT = {DifferenceKind.ZERO_PADDING, DifferenceKind.UNORDERED_INDEX}

# The cases of golden/README.md in which brokers differ from the correct answer.
FINDINGS = {
    "delete-records": {DifferenceKind.DELETED_RECORDS},
    "compacted-empty-segment": {DifferenceKind.CHOSEN_BY_MODIFICATION_TIME},
    "upgrade": {
        DifferenceKind.CHOSEN_BY_MODIFICATION_TIME, DifferenceKind.SKIPPED_BY_MODIFICATION_TIME
    },
    "transactions": {DifferenceKind.TRANSACTION_MARKER},
}


def is_not_known(log, target):
    """Whether a batch with a wrong checksum prevents finding the right answer."""
    try:
        log.offset_for_timestamp(target)
    except kafkastore.CorruptBatchError:
        return True
    return False


def test_known_disagreements_are_explained(golden_case):
    store = kafkastore.open(golden_case.logs)
    rules, differences = golden_case.answers["kafka"], set()
    for name, answers in golden_case.answers["partitions"].items():
        rows = answers.get("list_offsets", [])
        for target in sorted({row["timestamp"] for row in rows if row["timestamp"] >= 0}):
            if golden_case.name == "crash-bad-crc" and is_not_known(store[name], target):
                continue
            explanation = store[name].explain_timestamp(target, rules)
            offsets = [each and each.offset for each in (explanation.answer, explanation.correct)]
            assert (explanation.difference is None) == (offsets[0] == offsets[1])
            differences |= {explanation.difference} - {None}
    is_as_found = golden_case.answers_name in ("answers", f"answers-upgraded-{rules}")
    if golden_case.name in FINDINGS and is_as_found and "list_offsets" in answers:
        # Without timestamps no record can be found by time.
        assert bool(differences) == (golden_case.version not in ("0.8.2.2", "0.9.0.1"))
        assert differences <= FINDINGS[golden_case.name]
    if golden_case.name.startswith("create-time"):
        assert not differences
