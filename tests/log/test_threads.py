"""Objects shared by threads answer as for one thread: at rest, refreshed, next to a writer."""

import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from models.written_log import UnsyncedFileSystem

import kafkastore
from kafkastore import LogDirWriter
from kafkastore.formats.records.compression import Codec
from kafkastore.log import log_view
from kafkastore.log.partition_files import PartitionFiles
from kafkastore.segment.index_file import OffsetIndex, TimeIndex

from .written_logs import FIRST_TIMESTAMP, new_record, write_transactions

THREADS = 8
#: Seconds between two refreshes. After each, everything is read again.
PAUSE = 0.005
#: Segments of each log: more than the number of logs that stay open.
RECORDS = 600
SMALL = {"segment.bytes": 1024, "segment.index.bytes": 1024, "index.interval.bytes": 100}
TIMES = range(FIRST_TIMESTAMP - 20, FIRST_TIMESTAMP + RECORDS + 20, 11)
TRANSACTION_TIMES = range(FIRST_TIMESTAMP - 20, FIRST_TIMESTAMP + 1100, 9)


def append(writer, first, count):
    """Records whose timestamps are their offsets, except the first; batches of some sizes."""
    number = first
    while number < first + count:
        size = 1 + number % 3
        records = [new_record(FIRST_TIMESTAMP + number + each) for each in range(size)]
        writer.append_records(records, codec=Codec.ZSTD if number % 5 == 0 else Codec.NONE)
        number += size
    return number


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("threads") / "logs"
    with LogDirWriter(root, fs=UnsyncedFileSystem()) as log_dir:
        append(log_dir.writer("rising", 0, SMALL), 0, RECORDS)
        write_transactions(log_dir.writer("transactions", 0, SMALL))
    return root


@pytest.fixture(autouse=True)
def frequent_switches():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@contextmanager
def doing(work, pause=0):
    """Repeat some work in another thread; its error is raised at the end."""
    is_over, raised = threading.Event(), []

    def run():
        try:
            while not is_over.wait(pause):
                work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    assert raised == []


def query_in_threads(questions):
    """Return the answers of each thread; each begins with a different question."""
    questions = list(questions)
    answers = [[None] * len(questions) for _ in range(THREADS)]
    start = threading.Barrier(THREADS, timeout=800)

    def query(number):
        start.wait()
        for turn in range(len(questions)):
            each = (turn + number * len(questions) // THREADS) % len(questions)
            try:
                answers[number][each] = questions[each]()
            except Exception as error:
                answers[number][each] = repr(error)

    with ThreadPoolExecutor(THREADS) as pool:
        submitted = [pool.submit(query, number) for number in range(THREADS)]
    assert [each.exception() for each in submitted] == [None] * THREADS
    return answers


def each_time(query):
    return lambda log: [lambda time=time: query(log, time) for time in times_of(log)]


def times_of(log):
    return TIMES if log.topic == "rising" else TRANSACTION_TIMES


def of_log(query):
    """A question about all of a log; each thread repeats it."""
    return lambda log: [lambda: query(log)] * 2


def each_segment(query):
    return lambda log: [lambda number=number: query(log.segments[number])
                        for number in range(len(log.segments))]  # fmt: skip


def bounds(log):
    said = log.explain_bounds()
    return said, log.log_start_offset, log.log_end_offset, log.last_stable_offset


def lists(log):
    return [log.list_offset(special) for special in (-1, -2, -3, -4, -5)]


def many_by(rules):
    return of_log(lambda log: log.offsets_for_timestamps(list(times_of(log)), rules).tolist())


#: Questions about a log: functions of a log that return functions without arguments.
QUESTIONS = {
    "one time": each_time(lambda log, time: log.offset_for_timestamp(time)),
    "one time by 2.4": each_time(lambda log, time: log.offset_for_timestamp(time, "2.4")),
    "one time by 0.10.1": each_time(lambda log, time: log.offset_for_timestamp(time, "0.10.1")),
    "one time by KIP-33": each_time(lambda log, time: log.offset_for_timestamp(time, "kip-33")),
    "one time committed": each_time(
        lambda log, time: log.offset_for_timestamp(time, isolation="read_committed")),
    "one time with untimed segments": each_time(
        lambda log, time: log.offset_for_timestamp(time, untimed="segment")),
    "many times": many_by("correct"),
    "many times by 4.1": many_by("4.1"),
    "explanations": each_time(lambda log, time: str(log.explain_timestamp(time, "2.4"))),
    "ListOffsets": each_time(lambda log, time: log.list_offset(time, "4.1")),
    "special timestamps": of_log(lists),
    "bounds": of_log(bounds),
    "leader epochs": of_log(lambda log: log.leader_epochs),
    "batches": of_log(lambda log: [(batch.base_offset, batch.size) for batch in log.batches()]),
    "records": of_log(lambda log: list(log.records())),
    "committed records": of_log(lambda log: list(log.records(isolation="read_committed"))),
    "records from an offset": each_time(
        lambda log, time: list(log.records((start := time - FIRST_TIMESTAMP), start + 5))),
    "Arrow": of_log(lambda log: log.to_arrow().read_all()),
    "Arrow from a time": each_time(
        lambda log, time: log.to_arrow(["offset"], start_timestamp=time, limit=3).read_all()),
    "committed Arrow": of_log(lambda log: log.to_arrow(isolation="read_committed").read_all()),
    "latest": of_log(lambda log: log.latest().read_all()),
    "summaries": each_segment(lambda segment: (segment.summary, segment.next_offset)),
    "largest timestamps": each_segment(lambda segment: segment.largest_record_timestamp()),
    "times in segments": each_segment(lambda segment: [
        segment.find_offset_by_timestamp(time, 0) for time in TIMES[::20]]),
    "offsets in segments": each_segment(lambda segment: [
        segment.translate_offset(offset) for offset in range(0, RECORDS, 100)]),
    "rebuilt indexes": each_segment(lambda segment: segment.rebuilt_indexes()),
    "last time entries": each_segment(lambda segment: segment.last_time_entry()),
    "transaction indexes": each_segment(
        lambda segment: segment.transaction_index.entries().tolist()),
}  # fmt: skip


@pytest.mark.parametrize("topic", ["rising", "transactions"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_log_answers_eight_threads_as_it_answers_one(root, topic, question):
    questions = QUESTIONS[question]
    wanted = [query() for query in questions(kafkastore.open(root)[topic, 0])]
    log = kafkastore.open(root)[topic, 0]
    assert query_in_threads(questions(log)) == [wanted] * THREADS
    assert [query() for query in questions(log)] == wanted


@pytest.mark.parametrize("topic", ["rising", "transactions"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_log_that_is_refreshed_meanwhile_answers_the_same(root, topic, question):
    questions = QUESTIONS[question]
    wanted = [query() for query in questions(kafkastore.open(root)[topic, 0])]
    log = kafkastore.open(root)[topic, 0]
    with doing(log.refresh, PAUSE):
        assert query_in_threads(questions(log)) == [wanted] * THREADS


def test_a_store_answers_eight_threads_as_it_answers_one(root):
    def questions(store):
        for time in TIMES:
            yield lambda time=time: store.offsets_for_times({"rising-0": time, "transactions-0": 9})
        yield lambda: [log.log_end_offset for log in store]

    wanted = [query() for query in questions(kafkastore.open(root))]
    store = kafkastore.open(root)
    assert query_in_threads(questions(store)) == [wanted] * THREADS
    opened = kafkastore.open(root)
    logs = query_in_threads([lambda: opened["rising", 0]])
    assert len({id(log) for (log,) in logs}) == 1


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
@pytest.mark.parametrize("is_padded", [False, True])
def test_an_open_index_answers_eight_threads_as_it_answers_one(root, tmp_path, kind, is_padded):
    segment = kafkastore.open(root)["rising", 0].segments[3]
    source = segment.offset_index_path if kind is OffsetIndex else segment.time_index_path
    path = tmp_path / source.name
    path.write_bytes(source.read_bytes() + bytes(12_000 * is_padded))
    targets = [*range(segment.base_offset - 2, segment.base_offset + 30)]
    targets = targets if kind is OffsetIndex else [FIRST_TIMESTAMP + each for each in targets]

    def questions(index):
        yield from (lambda each=each: index.lookup(each) for each in targets)
        yield from (lambda each=each: index.lookup(each, with_padding=True) for each in targets)
        yield lambda: index.lookup_many(targets).tolist()
        yield lambda: (index.entry_count, index.used_entry_count, index.first_disorder())
        yield lambda: (index.last_entry, index.last_entry_with_padding, index.entry(1))
        yield lambda: (index.entries(with_padding=True).tolist(), index.entry_bytes())
        yield lambda: (index.raw.tolist(), index.size)

    with kind.open(path) as index:
        wanted = [query() for query in questions(index)]
    for _ in range(5):
        with kind.open(path) as index:
            assert query_in_threads(questions(index)) == [wanted] * THREADS


def test_eight_threads_read_a_log_next_to_its_writer(tmp_path):
    """Records from before the opening are found in place; later ones have no gaps."""
    root = tmp_path / "logs"
    with LogDirWriter(root, fs=UnsyncedFileSystem()) as log_dir:
        writer = log_dir.writer("rising", 0, SMALL)
        end = append(writer, 0, RECORDS // 3)
        writer.flush()
        log = kafkastore.open(root)["rising", 0]

        def right(answer, offset):
            return answer is not None and answer[:2] == (FIRST_TIMESTAMP + offset, offset)

        def without_gaps(offsets):
            return len(offsets) >= end and offsets == list(range(len(offsets)))

        offsets = range(0, end, 7)
        questions = [
            *(lambda each=each: right(log.offset_for_timestamp(FIRST_TIMESTAMP + each), each)
              for each in offsets),
            *(lambda each=each: right(log.list_offset(FIRST_TIMESTAMP + each, "4.1"), each)
              for each in offsets),
            lambda: log.offsets_for_timestamps(
                [FIRST_TIMESTAMP + each for each in offsets])["offset"].tolist() == [*offsets],
            lambda: without_gaps([record.offset for record in log.records()]),
            lambda: without_gaps(log.to_arrow(["offset"]).read_all()["offset"].to_pylist()),
            lambda: log.log_end_offset >= end,
            lambda: log.last_stable_offset >= end,
        ]  # fmt: skip
        written = [end]

        def write():
            written[0] = append(writer, written[0], 5)
            if written[0] % 3 == 0:
                writer.flush()

        with doing(write), doing(log.refresh):
            answers = query_in_threads(questions)
        assert written[0] > end + 50
        assert [each.count(True) for each in answers] == [len(questions)] * THREADS, answers
        log.refresh()
        assert log.log_end_offset == written[0]


def test_a_listing_from_before_a_refresh_is_not_kept_after_it(root, tmp_path, monkeypatch):
    (log,) = kafkastore.open(shutil.copytree(root / "rising-0", tmp_path / "rising-0"))
    last = log.segments[-1]
    log.refresh()

    def list_and_alter(path):
        found = PartitionFiles(path)
        monkeypatch.undo()
        last.log_path.unlink()      # as another thread, and its refresh
        log.refresh()
        return found

    monkeypatch.setattr(log_view, "PartitionFiles", list_and_alter)
    assert log.segments[-1].base_offset == last.base_offset
    assert log.segments[-1].next_offset == last.base_offset
