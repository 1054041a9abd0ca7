"""Times in the batches of a segment: read once for the same files."""

import os
from dataclasses import replace

import pytest
from models.log_directory import Segment
from models.record_format import Batch, Row
from models.segment_indexes import pack_time_entries

import kafkastore
from kafkastore import CorruptBatchError, LogSegment, SegmentGoneError
from kafkastore.segment import index_trust

TIMES = (10, 500, 20, 30)
BATCHES = tuple(Batch((Row(offset, time),)) for offset, time in enumerate(TIMES))
TORN = Batch((Row(len(TIMES), 40),)).data[:50]
SOUND = Segment(0, BATCHES).indexed(interval=0)


@pytest.fixture
def looks(monkeypatch):
    """The identities of segments that were read; files count as settled at once."""
    found, real = [], index_trust._checked

    def note(*arguments):
        found.append(arguments[-1])
        return real(*arguments)

    monkeypatch.setattr(index_trust, "_checked", note)
    monkeypatch.setattr(index_trust, "SETTLED_NS", -1_000_000_000)
    return found


@pytest.mark.parametrize(("entries", "holds"), [
    ([(10, 0), (500, 1)], True),
    ([(10, 0), (500, 3)], True),
    ([(500, 1)], True),
    ([(500, 2)], True),
    ([], True),
    ([(10, 0), (30, 3)], False),
    ([(10, 1), (499, 2)], False),
    ([(10, 0), (500, 4)], False),
    ([(500, 1), (10, 2)], False),
    ([(10, 3), (500, 1)], False),
])  # fmt: skip
def test_an_entry_is_true_if_no_batch_before_its_own_is_later(tmp_path, entries, holds):
    replace(SOUND, time_index=pack_time_entries(entries, 0)).write(tmp_path)
    checked = LogSegment(tmp_path, 0).index_check
    assert checked.largest_timestamp == 500
    assert checked.index_holds == holds


def test_batches_of_all_sizes_are_read(tmp_path):
    sizes = [1, 9000, 5, 3000, 20_000, *[20] * 60, 2048, 9]
    batches = tuple(
        Batch((Row(offset, 7 * offset % 5003, None, bytes(size)),))
        for offset, size in enumerate(sizes)
    )
    segment = Segment(0, batches).indexed()
    segment.write(tmp_path)
    checked = LogSegment(tmp_path, 0).index_check
    assert checked.largest_timestamp == max(batch.max_timestamp for batch in batches)
    assert checked.index_holds


@pytest.mark.parametrize("tail", [b"", bytes(9000), TORN])
def test_bytes_after_the_last_complete_batch_are_the_end(tmp_path, tail):
    replace(SOUND, tail=tail).write(tmp_path)
    assert LogSegment(tmp_path, 0).index_check[:2] == (500, True)


def test_of_a_corrupt_log_nothing_is_known_after_the_corrupt_bytes(tmp_path):
    replace(SOUND, tail=b"\xff" * 200).write(tmp_path)
    segment = LogSegment(tmp_path, 0)
    checked = segment.index_check
    assert checked[:2] == (500, False)
    assert checked.end_offset == 4
    assert segment.may_reach(501)
    raised = []
    for _ in range(2):
        with pytest.raises(CorruptBatchError) as caught:
            segment.largest_record_timestamp()
        raised.append(caught.value)
    # Each time another one: threads that raise the same would add to one traceback.
    assert raised[0] is not raised[1]
    assert raised[0].position == len(SOUND.log)


def test_a_torn_tail_is_the_end_of_the_last_segment_only(tmp_path, looks):
    replace(SOUND, tail=TORN).write(tmp_path)
    assert LogSegment(tmp_path, 0).index_check.error is None
    assert LogSegment(tmp_path, 0, next_base_offset=4).index_check.error is not None
    assert len(looks) == 2


def test_the_time_index_of_a_skipped_segment_is_not_kept(tmp_path):
    SOUND.write(tmp_path)
    segment = LogSegment(tmp_path, 0)
    assert segment.index_check.index_holds
    assert "time_index" not in vars(segment)


def test_batches_are_read_once_for_the_same_files(tmp_path, looks):
    SOUND.write(tmp_path)
    for _ in range(3):
        assert LogSegment(tmp_path, 0).largest_record_timestamp() == 500
    assert len(looks) == 1


def test_an_error_names_the_file_by_the_requested_path(tmp_path, looks):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    replace(SOUND, tail=b"\xff" * 200).write(tmp_path / "one")
    for path in (tmp_path / "one").iterdir():
        (tmp_path / "other" / path.name).symlink_to(path)
    for name in ("other", "one"):
        error = LogSegment(tmp_path / name, 0).index_check.error
        assert error.path == tmp_path / name / f"{0:020}.log"
    assert len(looks) == 1


def test_files_that_changed_just_now_may_change_again_without_a_sign(tmp_path, looks, monkeypatch):
    monkeypatch.setattr(index_trust, "SETTLED_NS", 10**18)
    SOUND.write(tmp_path)
    for _ in range(2):
        LogSegment(tmp_path, 0).largest_record_timestamp()
    assert len(looks) == 2


@pytest.mark.parametrize("suffix", [".log", ".timeindex"])
@pytest.mark.parametrize("way", ["grown", "touched", "another file", "deleted"])
def test_files_that_changed_are_read_again(tmp_path, looks, suffix, way):
    SOUND.write(tmp_path)
    assert LogSegment(tmp_path, 0).index_check is not None
    path = tmp_path / f"{0:020}{suffix}"
    if way == "grown":
        path.write_bytes(path.read_bytes() + bytes(12))
    elif way == "touched":
        os.utime(path, ns=(5, 5))
    else:
        data, times = path.read_bytes(), path.stat()
        path.rename(tmp_path / "old")
        if way == "another file":
            path.write_bytes(data)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    if way == "deleted" and suffix == ".log":
        with pytest.raises(SegmentGoneError):
            _ = LogSegment(tmp_path, 0).index_check
    else:
        assert LogSegment(tmp_path, 0).index_check is not None
    assert len(looks) == 2


def test_few_are_remembered(tmp_path, looks, monkeypatch):
    monkeypatch.setattr(index_trust, "MAX_CACHED_SEGMENTS", 4)
    index_trust._cache.clear()
    for number in range(9):
        Segment(number, ()).write(tmp_path)
        assert LogSegment(tmp_path, number).index_check[:2] == (-1, True)
        assert len(index_trust._cache) <= 4


def test_a_log_in_the_place_of_the_one_that_was_checked_is_checked_itself(tmp_path):
    """As compaction replaces it, between the check and a search that opens it again."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    SOUND.write(directory)
    (log,) = kafkastore.open(directory)
    search = log.segments[0].search_by_time()
    (directory / "other").mkdir()
    Segment(0, (BATCHES[0], BATCHES[2], BATCHES[3])).indexed(interval=0).write(directory / "other")
    for path in (directory / "other").iterdir():
        path.replace(directory / path.name)
    with pytest.raises(SegmentGoneError):
        search.find(400, 0)
    assert log.offset_for_timestamp(25) == (30, 3, 0)
    assert log.offset_for_timestamp(400) is None
