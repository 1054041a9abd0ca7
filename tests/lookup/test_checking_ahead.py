"""Threads read the segments that the first lookup of many times needs, and no more than that."""

import numpy as np
import pytest
from models.log_directory import Log, Segment
from models.record_format import Batch, Row

import kafkastore
from kafkastore.errors import CorruptionError
from kafkastore.lookup import checking_ahead
from kafkastore.segment import index_trust


def segment(base):
    rows = (tuple([Row(base + each, 10 * (base + each), b"k", b"v")]) for each in range(20))
    return Segment(base, tuple(map(Batch, rows))).indexed(interval=100)


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(checking_ahead, "SMALL_SEGMENT_BYTES", 1)
    monkeypatch.setattr(index_trust, "SETTLED_NS", -(10**18))  # cached although just written
    index_trust._cache.clear()
    return Log(tuple(segment(base) for base in range(0, 400, 20))).write(tmp_path / "logs")


@pytest.fixture
def checked(monkeypatch):
    """The base offsets of the segments that are checked, in the order of their ends."""
    found = []
    reaches = checking_ahead._reaches

    def noting(asked):
        result = reaches(asked)
        found.append(asked.segment.base_offset)
        return result

    monkeypatch.setattr(checking_ahead, "_reaches", noting)
    return found


TIMES = np.array([0, 55, 1234, 1999])


def test_many_times_have_the_answers_of_one_thread_and_each_segment_is_read_once(root, checked):
    log = kafkastore.open(root)["t-0"]
    found = log.offsets_for_timestamps(TIMES, threads=3)
    assert found["offset"].tolist() == [0, 6, 124, 200]
    assert sorted(checked)[:11] == list(range(0, 220, 20))
    assert len(checked) <= 11 + 2 * 3 + 1
    count = len(checked)
    assert log.offsets_for_timestamps(TIMES, threads=3).tolist() == found.tolist()
    assert len(checked) == count
    alone = kafkastore.open(root)["t-0"].offsets_for_timestamps(TIMES, threads=1)
    assert alone.tolist() == found.tolist()
    assert len(checked) == count


@pytest.mark.parametrize("options", [{"rules": "4.1"}, {"indexes": "trust"}])
def test_other_lookups_read_nothing_ahead(root, checked, options):
    kafkastore.open(root)["t-0"].offsets_for_timestamps(TIMES, threads=3, **options)
    assert checked == []


def test_a_store_s_partitions_are_read_together(root, checked):
    store = kafkastore.open(root)
    found = store.offsets_for_times({"t-0": 1234}, threads=2)
    assert [each.offset for each in found.values()] == [124]
    assert set(checked) >= set(range(0, 140, 20))


def test_corrupt_bytes_are_reported_by_the_lookup_as_without_threads(root, checked):
    log = kafkastore.open(root)["t-0"]
    path = log.segments[3].log_path
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    errors = []
    for threads in (1, 3):
        index_trust._cache.clear()
        log.refresh()
        with pytest.raises(CorruptionError) as raised:
            log.offsets_for_timestamps(TIMES, threads=threads)
        errors.append(str(raised.value))
    assert errors[0] == errors[1]
