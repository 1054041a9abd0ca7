"""Statements of KIP-33, checked on files of real brokers; and references of docs/kip-33.md.

The document names each of these tests.
"""
from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

import kafkastore
from kafkastore.formats.state.file_names import segment_file_name
from kafkastore.use_cases.retention import DatedBy, retention_of

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "kip-33.md"
SOUND = ["create-time-*", "log-append-time", "codecs", "old-formats", "roll-*", "transactions"]
WITH_TIME_INDEX = ["0.10.2.2", "0.11.*", "[2-4].*"]


def segments_of(case):
    """Yield every segment with the timestamps by offset that a consumer received."""
    for log in kafkastore.open(case.logs):
        answers = case.answers["partitions"].get(str(log.topic_partition), {})
        if "records" not in answers:
            continue  # an internal topic
        for segment in log.segments:
            end = segment.next_base_offset or 1 << 62
            yield segment, {
                offset: timestamp
                for offset, timestamp, *_ in answers["records"]
                if segment.base_offset <= offset < end
            }


def entries_of(segment):
    index = segment.time_index
    return [] if index is None else index.entries().tolist()


@pytest.mark.golden_cases(names=SOUND, versions=WITH_TIME_INDEX, answers="answers")
def test_every_message_later_than_an_entry_comes_after_it(golden_case):
    checked = 0
    for segment, timestamps in segments_of(golden_case):
        for entry_timestamp, entry_offset in entries_of(segment):
            later = [o for o, timestamp in timestamps.items() if timestamp > entry_timestamp]
            assert all(offset > entry_offset for offset in later)
            checked += 1
    assert checked


@pytest.mark.golden_cases(names=SOUND, versions=WITH_TIME_INDEX, answers="answers")
def test_an_entry_has_the_offset_of_its_largest_message_not_the_next(golden_case):
    """Or the last of its batch: never a later one, nor the base offset of the next segment."""
    for segment, timestamps in segments_of(golden_case):
        batches = {}
        with segment.open_log() as log:
            for batch in log.batches():
                batches[batch.last_offset] = batch.max_timestamp
        for entry_timestamp, entry_offset in entries_of(segment):
            assert timestamps.get(entry_offset) == entry_timestamp or (
                batches.get(entry_offset) == entry_timestamp
            )
            assert segment.next_base_offset is None or entry_offset < segment.next_base_offset


@pytest.mark.golden_cases(names=SOUND, versions=WITH_TIME_INDEX, answers="answers")
def test_the_last_entry_has_the_largest_timestamp_once_a_segment_is_closed(golden_case):
    for segment, timestamps in segments_of(golden_case):
        last = entries_of(segment)[-1][0] if entries_of(segment) else -1
        largest = segment.summary.largest_record_timestamp
        assert last == (-1 if largest is None else largest)
        # Transaction markers count, although consumers do not receive them.
        assert last == max(timestamps.values(), default=-1) or golden_case.name == "transactions"


@pytest.mark.golden_cases(names="old-formats", answers="answers")
def test_messages_without_timestamps_have_no_entry(golden_case):
    """A segment of v0 messages has an empty index and is dated by its file."""
    found = 0
    for log in kafkastore.open(golden_case.logs):
        results = retention_of(log, version=golden_case.version).segments
        for segment, result in zip(log.segments, results, strict=True):
            if segment.size and segment.summary.magics == {0}:
                found += 1
                assert segment.time_index_path.stat().st_size == 0
                assert result.dated_by is DatedBy.MODIFICATION_TIME
                assert result.largest_timestamp == segment.last_modified_ms
    assert found


@pytest.mark.golden_cases(names="old-formats", answers="answers")
def test_one_message_with_a_timestamp_dates_a_segment_by_its_records(golden_case):
    mixed = 0
    for log in kafkastore.open(golden_case.logs):
        results = retention_of(log, version=golden_case.version).segments
        for segment, result in zip(log.segments, results, strict=True):
            if 0 in segment.summary.magics and len(segment.summary.magics) > 1:
                mixed += 1
                assert result.dated_by is DatedBy.RECORDS
                assert result.largest_timestamp == segment.summary.largest_record_timestamp
    assert mixed


@pytest.mark.golden_cases(
    names="create-time-out-of-order", versions=WITH_TIME_INDEX, answers="answers"
)
def test_the_index_of_a_later_segment_may_hold_earlier_timestamps(golden_case):
    fell = 0
    for log in kafkastore.open(golden_case.logs):
        last = [entries_of(segment)[-1][0] for segment in log.segments if segment.size]
        fell += sum(later < earlier for earlier, later in pairwise(last))
        for segment in log.segments:
            stamps = [timestamp for timestamp, _ in entries_of(segment)]
            assert stamps == sorted(set(stamps))
    assert fell


@pytest.mark.golden_cases(names="crash", versions=WITH_TIME_INDEX, answers="answers")
def test_a_running_broker_gives_both_indexes_of_its_active_segment_their_full_size(golden_case):
    """``segment.index.bytes``, rounded down to complete entries."""
    for log in kafkastore.open(golden_case.logs):
        config = golden_case.answers["topic_config"].get(log.topic)
        if config is None:
            continue
        size = int(config["segment.index.bytes"])
        active = log.segments[-1]
        assert active.offset_index_path.stat().st_size == size // 8 * 8
        assert active.time_index_path.stat().st_size == size // 12 * 12
        for segment in log.segments[:-1]:
            assert segment.time_index_path.stat().st_size < size // 12 * 12


# The document.


def test_every_test_that_the_document_names_exists():
    text = DOCUMENT.read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text)
    assert len(named) > 20
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{name}"


def test_the_document_names_every_test_of_this_file():
    text = DOCUMENT.read_text(encoding="utf-8")
    here = Path(__file__).read_text(encoding="utf-8").partition("# The document.")[0]
    for name in re.findall(r"^def (test_\w+)", here, re.MULTILINE):
        assert f"::{name}`" in text, name


def test_every_golden_case_that_the_document_names_exists(golden_directory):
    text = DOCUMENT.read_text(encoding="utf-8")
    manifest = (golden_directory / "MANIFEST.json").read_text(encoding="utf-8")
    named = re.findall(r"golden `([a-z-]+)`", text)
    assert named
    for name in named:
        assert f'"{name}"' in manifest, name


def test_links_of_the_document_are_not_broken():
    for target in re.findall(r"\]\(([^)#]+)", DOCUMENT.read_text(encoding="utf-8")):
        assert (DOCUMENT.parent / target).exists(), target


def test_segments_are_named_as_in_the_proposal():
    assert segment_file_name(42, ".timeindex") == "00000000000000000042.timeindex"
