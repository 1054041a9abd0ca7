"""Jobs of one partition directory, called without a runner."""
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.record_strategies import bounded, logs

import kafkastore
from kafkastore.errors import NotALogDirectoryError
from kafkastore.jobs.compare import AnswersJob, AskedPartition
from kafkastore.jobs.error_fields import ErrorFields
from kafkastore.jobs.inventory import MOST_SAMPLED_RECORDS, MOST_TIMES, InventoryJob, _Reading
from kafkastore.jobs.verify import PartitionToCheck, VerifyJob
from kafkastore.store import partition_path
from kafkastore.store.partition_path import (
    find_copies,
    list_partition_paths,
    open_copies,
    open_partition,
)
from kafkastore.store.sample_times import sample_times

NOW = 2_000_000_000_000


@pytest.fixture
def places(golden):
    """Return the partitions of a directory of 0.10.0.1."""
    return list_partition_paths("s", kafkastore.open(golden("0.10.0.1", "upgrade", "answers").logs))


@bounded(60)
@given(log=logs())
def test_a_survey_counts_the_records_of_the_log(tmp_path_factory, log):
    store = kafkastore.open(log.write(tmp_path_factory.mktemp("log") / "logs"))
    (place,) = list_partition_paths("s", store)
    row = InventoryJob().run((place,))
    (opened,) = store
    records = list(opened.records())
    assert row.error is None
    assert row.records == len(records) == sum(segment.records for segment in row.segments)
    assert (row.log_start_offset, row.log_end_offset) == (
        opened.log_start_offset, opened.log_end_offset,
    )
    assert place.bytes == sum(segment.size for segment in row.segments)
    for found, segment in zip(row.segments, opened.segments, strict=True):
        ends = segment.next_base_offset or 1 << 62
        stamps = [
            # Timestamps that do not fit microseconds are not surveyed.
            record.timestamp
            for record in records
            if segment.base_offset <= record.offset < ends and record.timestamp < 2**63 // 1000
        ]
        largest = max(stamps, default=-1)
        assert found.largest_timestamp == (largest if largest >= 0 else None)
        assert found.modified == segment.last_modified_ms
    expected = [
        (record.timestamp, record.offset)
        for record in records
        if 0 <= record.timestamp < 2**63 // 1000
    ]
    assert list(row.samples) == expected


@bounded(20)
@given(st.lists(st.integers(1, 900), min_size=1, max_size=12))
def test_samples_are_evenly_spaced_records(sizes):
    reading, first = _Reading(), 0
    reading._bases = np.zeros(1, np.int64)
    reading.records, reading._largest = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for size in sizes:
        offsets = np.arange(first, first + size)
        reading.add(offsets, offsets + 7)
        first += size
    samples = reading.samples()
    stride = 1
    while -(-first // stride) > MOST_SAMPLED_RECORDS:
        stride *= 2
    assert samples == tuple((offset + 7, offset) for offset in range(0, first, stride))


def test_a_corrupt_partition_is_a_row_with_its_error(golden, writable_copy):
    copy = writable_copy(golden("0.10.0.1", "upgrade", "answers").logs)
    segment = sorted((copy / "up-0").glob("*.log"))[1]
    segment.write_bytes(segment.read_bytes()[:-10] + bytes(10))
    paths = list_partition_paths("s", kafkastore.open(copy))
    place = next(path for path in paths if path.path.endswith("up-0"))
    row = InventoryJob().run((place,))
    assert row.error.path == str(segment)
    assert ErrorFields(*json.loads(json.dumps(row.error))) == row.error
    assert row.readable_end == row.log_end_offset == row.records
    log = kafkastore.open(golden("0.10.0.1", "upgrade", "answers").logs)["up", 0]
    assert 0 < row.records < sum(1 for _ in log.records())
    assert len(row.segments) == len(log.segments)
    checked = VerifyJob().run(PartitionToCheck(place, None))
    (finding,) = (each for each in checked.findings if each.severity == "data-loss-risk")
    assert finding.path == segment


def test_a_missing_partition_is_a_row_with_its_error(golden, writable_copy):
    copy = writable_copy(golden("0.10.0.1", "upgrade", "answers").logs)
    (place, *_) = list_partition_paths("s", kafkastore.open(copy))
    for path in (copy / "up-0").iterdir():
        path.unlink()
    (copy / "up-0").rmdir()
    assert InventoryJob().run((place,)).error.type == NotALogDirectoryError.__name__
    (failure,) = VerifyJob().run(PartitionToCheck(place, None)).failures
    assert isinstance(failure, NotALogDirectoryError)
    error = AnswersJob(NOW).run(AskedPartition(place, [0])).error
    assert error.type == NotALogDirectoryError.__name__


def test_rows_can_be_pickled_and_become_json(places):
    for place in places:
        row = InventoryJob().run((place,))
        checked = VerifyJob().run(PartitionToCheck(place, None))
        rows = [row, checked, AnswersJob(NOW).run(AskedPartition(place, [0, 1]))]
        assert pickle.loads(pickle.dumps(rows)) == rows
        json.dumps([segment._asdict() for segment in row.segments])


def test_a_job_uses_the_logs_of_the_store_in_its_process(golden, monkeypatch):
    store = kafkastore.open(golden("0.10.0.1", "upgrade", "answers").logs)
    opened, *others = store
    monkeypatch.setattr(partition_path, "_state_of", None)  # needed only by other processes
    assert open_copies(find_copies(store, opened.topic_partition)) is opened
    (copy,) = find_copies(kafkastore.open(opened.path.parent), others[0].topic_partition)
    assert open_partition(copy).log_dir is copy.listed_by.log_dirs[0]


def test_checkpoints_bound_a_partition_and_other_processes_reread_changed_ones(
    golden, writable_copy
):
    copy = writable_copy(golden("2.4.0", "delete-records", "answers").logs)
    store = kafkastore.open(copy)
    (place, *_) = pickle.loads(pickle.dumps(list_partition_paths("s", store)))
    assert InventoryJob().run((place,)).log_start_offset == store["deleted", 0].log_start_offset > 0
    last = store["deleted", 0].log_end_offset - 1
    (copy / "log-start-offset-checkpoint").write_text(f"0\n1\ndeleted 0 {last}\n")
    os.utime(copy / "log-start-offset-checkpoint", ns=(1, 1))
    assert InventoryJob().run((place,)).log_start_offset == last


def test_a_survey_chooses_the_same_times_as_a_comparison(places):
    for place in places:
        log = kafkastore.open(place.root)[place.topic, place.partition]
        modified = [segment.last_modified_ms for segment in log.segments]
        assert InventoryJob(7).run((place,)).times == tuple(
            sample_times(log, 7, MOST_TIMES - 7, modified)
        )
        assert InventoryJob().run((place,)).times == ()


def test_an_unreadable_partition_cannot_be_asked(places, writable_copy):
    copy = writable_copy(Path(places[0].root))
    (place, *_) = list_partition_paths("s", kafkastore.open(copy))
    log = min(Path(place.path).glob("*.log"))
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    row = InventoryJob(7).run((place,))
    assert row.error is not None
    assert row.times == ()


def test_answers_are_those_of_the_lookups(places):
    place = places[0]
    log = kafkastore.open(place.root)[place.topic, place.partition]
    times = InventoryJob(5).run((place,)).times
    answers = AnswersJob(NOW).run(AskedPartition(place, times))
    assert answers.error is None
    assert tuple(row.target_timestamp for row in answers.rows) == times
    for row in answers.rows:
        timestamp = row.target_timestamp
        (legacy, *_) = kafkastore.legacy.fetch_offsets_before(log, timestamp, 1, NOW) or [None]
        assert row.legacy == legacy
        for found, rules in (
            (row.kip_33, "kip-33"), (row.broker, "4.3"), (row.correct, "correct"),
        ):
            answer = log.offset_for_timestamp(timestamp, rules)
            assert found == (None if answer is None else answer.offset)
