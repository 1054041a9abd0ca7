"""The search for a time in C, against brute force and against the models of both indexes."""

import gc
import os
import random
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.index_model import OffsetIndexModel, TimeIndexModel
from models.log_directory import Segment
from models.open_files import open_files
from models.record_format import CODECS_OF, GZIP, NONE, Batch, Row
from models.record_strategies import bounded, segments
from models.refused import refused
from models.segment_indexes import pack_offset_entries, pack_time_entries
from models.stub import differences

from kafkastore import CorruptBatchError, LogSegment, SegmentGoneError
from kafkastore.formats.indexes.entries import TIMESTAMP_AND_OFFSET
from kafkastore.segment import open_file_limit, segment_summary, timestamp_search
from kafkastore.segment.timestamp_search import SegmentSearch

MAGICS = st.sampled_from([(0,), (1,), (2,), (0, 1, 2)])
ANY_SEGMENT = MAGICS.flatmap(lambda magics: segments(first_offset=40, magics=magics))


def brute_force(placed, target, start, position=0):
    for at, batch in placed:
        if at < position or batch.max_timestamp < target:
            continue
        for offset, timestamp, *_, epoch in batch.records:
            if timestamp >= target and offset >= start:
                return timestamp, offset, epoch
    return None


def right_answer(segment, target, start):
    return brute_force([each for each in segment.placed if not each[1].is_control], target, start)


def broker_answer(segment, target, start, warm_section):
    """As in ``LogSegment.findOffsetByTimestamp``, with indexes of any bytes."""
    base = segment.base_offset
    _, offset = TimeIndexModel(segment.time_index or b"", base, warm_section).lookup(target)
    offsets = OffsetIndexModel(segment.offset_index or b"", base, warm_section)
    _, position = offsets.lookup(max(offset, start))
    return brute_force(segment.placed, target, start, position)


def times_around(segment):
    times = {record[1] for batch in segment.batches for record in batch.records}
    times |= {batch.max_timestamp for batch in segment.batches} | {0}
    near = {time + by for time in times for by in (-1, 0, 1)}
    return sorted(time for time in near if -(2**63) <= time < 2**63)


def starts_in(segment):
    ends = [batch.last_offset for batch in segment.batches] or [segment.base_offset]
    return [0, segment.base_offset, ends[len(ends) // 2], ends[-1], ends[-1] + 1]


def assert_finds(search, targets, start, wanted):
    """`find`, `find_many` and `trace` all give this answer, each time they are called."""
    answers = np.empty(len(targets), TIMESTAMP_AND_OFFSET)
    for _ in range(2):
        assert [search.find(target, start) for target in targets] == wanted
        search.find_many(np.array(targets, np.int64), start, answers)
        assert answers.tolist() == [
            (-1, -1, -1) if each is None else (*each[:2], -1 if each[2] is None else each[2])
            for each in wanted
        ]
    assert [search.trace(target, start).answer for target in targets] == wanted


@bounded(100)
@given(ANY_SEGMENT)
def test_the_right_record_is_found_with_any_indexes(segment):
    targets = [target for target in times_around(segment) if target >= 0]
    with TemporaryDirectory() as directory:
        segment.write(Path(directory))
        search = LogSegment(Path(directory), segment.base_offset).search_by_time()
        for start in starts_in(segment):
            wanted = [right_answer(segment, target, start) for target in targets]
            assert_finds(search, targets, start, wanted)


@bounded(100)
@given(ANY_SEGMENT, st.booleans(), st.randoms(use_true_random=False))
def test_an_unchecked_search_answers_as_a_broker_with_any_indexes(segment, warm_section, chance):
    positions = [at for at, _ in segment.placed]
    if positions and chance.random() < 0.5:   # entries in any order that lead to any batch
        pairs = [(40 + chance.randrange(30), chance.choice(positions)) for _ in range(6)]
        times = [(chance.randrange(-3, 45), 40 + chance.randrange(30)) for _ in range(6)]
        segment = replace(
            segment,
            offset_index=pack_offset_entries(pairs, 40), time_index=pack_time_entries(times, 40),
        )
    targets = times_around(segment)
    with TemporaryDirectory() as directory:
        segment.write(Path(directory))
        search = SegmentSearch(
            LogSegment(Path(directory), 40).open_log, 40,
            segment.time_index or b"", segment.offset_index or b"", warm_section=warm_section,
        )
        for start in starts_in(segment):
            wanted = [broker_answer(segment, target, start, warm_section) for target in targets]
            assert_finds(search, targets, start, wanted)


@pytest.fixture
def opened(tmp_path):
    """A function that writes a model segment and opens it."""

    def write_and_open(segment):
        segment.write(tmp_path)
        return LogSegment(tmp_path, segment.base_offset)

    return write_and_open


@pytest.mark.parametrize(
    ("magic", "codec"), [(magic, codec) for magic in (1, 2) for codec in CODECS_OF[magic]]
)
def test_records_of_all_sizes_are_read_piece_by_piece(opened, magic, codec):
    """Values before, at and after each read size; times in random order."""
    chance, written, offset = random.Random(5), [], 0
    for sizes in ((4020, 5), (9000,) * 5, (20, 70_000, 20), (1000,) * 40, (4096, 8192, 3)):
        for part in [[size] for size in sizes] if magic == 1 and codec == NONE else [sizes]:
            rows = []
            for size in part:
                value = chance.randbytes(size)
                rows.append(Row(offset, chance.randrange(offset, offset + 30), None, value))
                offset += 1
            written.append(Batch(tuple(rows), magic=magic, codec=codec))
    segment = Segment(0, tuple(written)).indexed()
    search = opened(segment).search_by_time()
    targets = list(range(offset + 32))
    for start in (0, 1, 17, offset):
        wanted = [right_answer(segment, target, start) for target in targets]
        assert_finds(search, targets, start, wanted)
    shuffled = chance.sample(targets, len(targets))
    assert_finds(search, shuffled, 0, [right_answer(segment, each, 0) for each in shuffled])


def one_by_one(*times, first_offset=0, size=0, **fields):
    return tuple(
        Batch((Row(first_offset + number, time, None, bytes(size)),), **fields)
        for number, time in enumerate(times)
    )


RISING = Segment(0, one_by_one(*range(0, 2000, 10), size=100)).indexed()


def test_wrappers_are_begun_at_for_the_time_and_for_the_starting_offset(opened):
    """Only decompression gives their first offset; each is read once."""
    written = [
        Batch((Row(4 * n, 100 * n), Row(4 * n + 3, 100 * n + 50)), magic=1, codec=GZIP)
        for n in range(30)
    ]
    segment = Segment(0, tuple(written)).indexed()
    search = opened(segment).search_by_time()
    for target, start in ((700, 3), (700, 60), (701, 61), (50, 119), (2951, 0), (0, 59)):
        assert search.find(target, start) == right_answer(segment, target, start)


# Misplaced entries of both indexes: a search does not begin at an entry that does not fit.
FALSE_ENTRIES = {
    "a time that its batch does not have": ([(695, 69)], [(69, 69)]),
    "an offset past the log": ([(690, 500)], [(69, 69)]),
    "a position past the batch": ([(690, 69)], [(69, 75)]),
    "a position within a batch": ([(690, 69)], [(69, 69.5)]),
    "a position past the log": ([(690, 69)], [(69, 10_000)]),
    "a negative position": ([(690, 69)], [(69, -1)]),
    "no offset entry": ([(690, 69)], []),
    "an offset below the base offset": ([(690, -5)], [(69, 69)]),
}


@pytest.mark.parametrize(("times", "positions"), FALSE_ENTRIES.values(), ids=FALSE_ENTRIES)
def test_checked_entries_that_do_not_fit_are_not_begun_at(opened, times, positions):
    size = len(RISING.batches[0].data)
    search = SegmentSearch(
        opened(RISING).open_log, 0,
        b"".join(time.to_bytes(8, "big") + offset.to_bytes(4, "big", signed=True)
                 for time, offset in times),
        b"".join(offset.to_bytes(4, "big") + int(number * size).to_bytes(4, "big", signed=True)
                 for offset, number in positions),
        checks_entries=True,
    )
    for _ in range(2):
        for target in (0, 5, 690, 691, 700, 750, 1990, 1991):
            assert search.find(target, 0) == right_answer(RISING, target, 0)
    assert search.trace(720, 0).starting_position == 0


def test_a_true_entry_is_begun_at_and_later_after_its_batch(opened):
    search = opened(RISING).search_by_time()
    size = len(RISING.batches[0].data)
    first, second = search.trace(701, 0), search.trace(701, 0)
    assert first.answer == second.answer == (710, 71, 0)
    assert first.time_entry == (700, 70)
    assert (first.starting_position, second.starting_position) == (70 * size, 71 * size)


def test_a_log_that_was_cut_and_written_again_is_not_searched_from_where_a_batch_was(opened):
    """As a follower does; the object still has the old index, and the file open."""
    segment = opened(RISING)
    search = segment.search_by_time()
    assert search.find(701, 0) == (710, 71, 0)
    with open(segment.log_path, "r+b") as file:
        size = file.truncate(60 * len(RISING.batches[0].data))
        file.seek(size)
        rewritten = one_by_one(*range(600, 2000, 5), first_offset=60, size=40)
        file.write(b"".join(batch.data for batch in rewritten))
    assert search.find(701, 0) == (705, 81, 0)


@pytest.mark.parametrize("left", [0, 1, 17, 40, 100, 5000])
def test_a_log_that_is_cut_while_it_is_open_ends_there(opened, left):
    segment = opened(RISING)
    search = segment.search_by_time()
    assert search.find(1500, 0) == (1500, 150, 0)
    os.truncate(segment.log_path, left)
    complete = left // len(RISING.batches[0].data)
    for target in (0, 5, 301, 1500):
        wanted = -(-target // 10)
        found = search.find(target, 0)
        assert found == ((10 * wanted, wanted, 0) if wanted < complete else None)


def test_threads_share_one_object(opened):
    segment = Segment(0, one_by_one(*range(0, 1000, 10), size=3000, codec=GZIP)).indexed()
    search = opened(segment).search_by_time()
    wanted = {target: right_answer(segment, target, 0) for target in range(0, 990, 7)}
    failed = []

    def query(seed):
        chance = random.Random(seed)
        for target in chance.choices(list(wanted), k=400):
            if search.find(target, 0) != wanted[target]:
                failed.append(target)
        answers = np.empty(len(wanted), TIMESTAMP_AND_OFFSET)
        search.find_many(np.array(list(wanted)), 0, answers)
        if [tuple(answer) for answer in answers.tolist()] != list(wanted.values()):
            failed.append(None)

    threads = [threading.Thread(target=query, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_few_logs_stay_open_and_none_of_deleted_objects(tmp_path, monkeypatch):
    most = 20
    monkeypatch.setattr(open_file_limit, "MAX_OPEN_LOGS", most)
    searches = []
    for number in range(3 * most):
        Segment(number, one_by_one(5, first_offset=number)).write(tmp_path)
        searches.append(LogSegment(tmp_path, number).search_by_time())
    for _ in range(2):
        for number, search in enumerate(searches):
            assert search.find(0, 0) == (5, number, 0)
            assert search.find(6, 0) is None
            assert 0 < len(open_files(tmp_path)) <= most
    del searches, search
    gc.collect()
    assert open_files(tmp_path) == []


#: In a separate process: the number of files that other tests keep open is unknown.
FEW_OPEN_FILES = """
import os, resource, sys
from pathlib import Path
from kafkastore import LogSegment

searches = [LogSegment(Path(sys.argv[1]), number).search_by_time() for number in range(20)]
before = len(os.listdir("/dev/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
for number, search in enumerate(searches):
    assert search.find(0, 0) == (5, number, 0)
print(len(os.listdir("/dev/fd")) - before)
"""


def test_fewer_logs_stay_open_if_the_process_may_open_few(tmp_path):
    for number in range(20):
        Segment(number, one_by_one(5, first_offset=number)).write(tmp_path)
    ran = subprocess.run([sys.executable, "-c", FEW_OPEN_FILES, tmp_path],
                         capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("8\n", "")


def test_a_log_that_was_deleted_before_it_is_opened_is_reported(opened):
    segment = opened(RISING)
    search = segment.search_by_time()
    segment.log_path.unlink()
    with pytest.raises(SegmentGoneError):
        search.find(0, 0)
    with pytest.raises(SegmentGoneError):
        search.find_many(np.zeros(3, np.int64), 0, np.empty(3, TIMESTAMP_AND_OFFSET))


def test_broken_records_are_an_error_with_their_place_and_others_are_found(opened):
    good = one_by_one(*range(0, 100, 10))
    broken = Batch((Row(10, 5),), stated_count=9, stated_max_timestamp=500)
    segment = opened(Segment(0, (*good, broken)))
    search = segment.search_by_time()
    targets = np.array([0, 45, 90, 450], np.int64)
    answers = np.empty(4, TIMESTAMP_AND_OFFSET)
    for query in (lambda: search.find(450, 0), lambda: search.find_many(targets, 0, answers)):
        with pytest.raises(CorruptBatchError) as caught:
            query()
        assert caught.value.path == segment.log_path
        assert caught.value.position == sum(len(batch.data) for batch in good)
    assert answers["offset"][:3].tolist() == [0, 5, 9]
    assert search.find(90, 0) == (90, 9, 0)


def test_zeros_after_the_log_are_its_end_and_other_bytes_are_an_error(opened):
    segment = Segment(0, one_by_one(10, 20), tail=bytes(5000))
    assert opened(segment).search_by_time().find(21, 0) is None
    search = opened(replace(segment, tail=bytes(5000) + b"x")).search_by_time()
    assert search.find(20, 0) == (20, 1, 0)
    with pytest.raises(CorruptBatchError):
        search.find(21, 0)


@pytest.mark.parametrize(
    ("count", "kind"), [(2, TIMESTAMP_AND_OFFSET), (4, TIMESTAMP_AND_OFFSET), (3, np.int64)]
)
def test_answers_that_do_not_fit_are_refused(opened, count, kind):
    search = opened(RISING).search_by_time()
    with refused("answers"):
        search.find_many(np.zeros(3, np.int64), 0, np.empty(count, kind))


def test_no_times_have_no_answers(opened):
    search = opened(RISING).search_by_time()
    search.find_many(np.empty(0, np.int64), 0, np.empty(0, TIMESTAMP_AND_OFFSET))


@bounded(100)
@given(ANY_SEGMENT)
def test_the_largest_timestamp_by_index_is_right_or_not_known(segment):
    with TemporaryDirectory() as directory:
        segment.write(Path(directory))
        found = LogSegment(Path(directory), 40)
        largest = found.largest_timestamp_by_index
        assert largest is None or largest == max(b.max_timestamp for b in segment.batches)
        times = TimeIndexModel(segment.time_index or b"", 40)
        if segment.time_index is None:
            assert found.last_time_entry() is None
        else:
            assert found.last_time_entry(with_padding=True) == times.last_entry
            used = times.used_slots
            assert found.last_time_entry() == (times.slots[used - 1] if used else times.none)


@pytest.mark.parametrize("padding", [0, 12, 4092, 8184 + 12, 12 * 20_000])
@pytest.mark.parametrize("is_hole", [True, False])
def test_the_last_entry_is_read_before_any_padding(opened, padding, is_hole):
    segment = opened(RISING)
    last = segment.last_time_entry()
    size = segment.time_index_path.stat().st_size
    with open(segment.time_index_path, "ab") as file:
        if is_hole:
            file.truncate(size + padding)
        else:
            file.write(bytes(padding))
    assert last == (1990, 199)
    assert segment.last_time_entry() == last
    assert segment.last_time_entry(with_padding=True) == ((0, 0) if padding else last)
    assert LogSegment(segment.directory, 0).largest_timestamp_by_index == 1990


@pytest.mark.parametrize("module", [timestamp_search, segment_summary])
def test_the_stubs_match_the_modules(module):
    imported = "constant MAX_DECOMPRESSED_BYTES is not in the stub"
    assert [found for found in differences(module) if found != imported] == []
