"""All of a broker's disk: reading one partition touches no other, and no file stays open."""

import os
import resource
import sys
import threading
from contextlib import ExitStack, contextmanager

import pytest
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.watchdog import LOOKING

import kafkastore

PARTITIONS, SEGMENTS = 2000, 20
#: The calls by which Python reaches files: audit events, and functions of `os` that raise none.
EVENTS = ("open", "os.listdir", "os.scandir")
FUNCTIONS = ("stat", "lstat")


def batch(first):
    return Batch(tuple(Row(first + number, first + number, b"k", b"v") for number in range(5)))


ONE = Log(tuple(Segment(5 * number, (batch(5 * number),)).indexed() for number in range(SEGMENTS)))


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """2,000 partitions of 20 segments; most are dangling links that are never read."""
    root = ONE.write(tmp_path_factory.mktemp("many") / "logs")
    source = root / "t-0"
    names = os.listdir(source)
    for number in range(1, PARTITIONS):
        target = root / f"t-{number}"
        target.mkdir()
        for name in names:
            if number % 100 == 0:
                os.link(source / name, target / name)
            elif name.endswith(".log"):
                os.symlink("/nowhere", target / name)
    return root


class Calls(list):
    """The paths that were reached for."""

    def outside(self, *allowed):
        return [path for path in self if not any(path.startswith(str(each)) for each in allowed)]


_RECORDING = threading.local()


def _record(event, arguments):
    calls = getattr(_RECORDING, "calls", None)
    if calls is not None and event in EVENTS and isinstance(arguments[0], str | os.PathLike):
        calls.append(os.fspath(arguments[0]))


sys.addaudithook(_record)      # can't be removed again; it does nothing unless enabled


@contextmanager
def recorded(monkeypatch):
    """Collect the paths of all calls that open, list or stat files."""
    calls = Calls()
    with monkeypatch.context() as patched:
        for name in FUNCTIONS:
            plain = getattr(os, name)

            def counted(path, *arguments, plain=plain, **options):
                # Other threads are not the product's: one watches that tests make progress.
                mine = getattr(_RECORDING, "calls", None)
                if mine is not None and isinstance(path, str | os.PathLike):
                    mine.append(os.fspath(path))
                return plain(path, *arguments, **options)

            patched.setattr(os, name, counted)
        _RECORDING.calls = calls
        try:
            yield calls
        finally:
            _RECORDING.calls = None


def test_opening_lists_directories_only(many, monkeypatch):
    with recorded(monkeypatch) as calls:
        store = kafkastore.open(many)
        assert len(store.partitions) == PARTITIONS
    assert len(calls) < 10
    assert calls.outside(many) == []
    assert not [path for path in calls if "t-" in os.path.basename(path)]


QUESTIONS = {
    "segments": lambda log: log.segments,
    "the log end": lambda log: log.log_end_offset,
    "all bounds": lambda log: log.explain_bounds("checkpoint"),
    "a time": lambda log: log.offset_for_timestamp(42),
    "a time as a broker": lambda log: log.offset_for_timestamp(42, rules="2.4"),
    "an offset": lambda log: log.segments[3].translate_offset(17),
    "records": lambda log: list(log.records(40, 45)),
    "arrow": lambda log: log.to_arrow(["offset"], start_offset=40, end_offset=45).read_all(),
    "committed records": lambda log: list(log.records(isolation="read_committed")),
    "leftovers": lambda log: (log.leftovers, log.missing_indexes),
}


@pytest.mark.parametrize("query", QUESTIONS.values(), ids=QUESTIONS)
def test_a_question_to_one_partition_touches_no_other(many, monkeypatch, query):
    query(kafkastore.open(many)["t-100"])  # what is imported on first use
    store = kafkastore.open(many)
    with recorded(monkeypatch) as calls:
        assert query(store["t-1900"]) is not None
    touched = {os.path.dirname(path) for path in calls if "/t-" in path}
    assert touched <= {str(many), str(many / "t-1900")}
    assert calls.outside(many / "t-1900", many / ".kafka", many / "recovery", many / "log-start",
                         many / "replication") == []


@pytest.mark.parametrize(
    ("query", "most"),
    [
        (lambda log: log.segments, 1),
        (lambda log: log.segments[7].translate_offset(37), 3),
        # A missing checkpoint is checked twice: it might be a dangling link.
        (lambda log: list(log.records(37, 39)), 5),
        (lambda log: log.log_end_offset, 5),
        (lambda log: (log.log_start_offset, log.checkpointed_high_watermark), 5),
    ],
    ids=["segments", "an offset", "records", "the log end", "checkpoints"],
)
def test_a_question_opens_few_files_of_its_partition(many, monkeypatch, query, most):
    log = kafkastore.open(many)["t-100"]
    with recorded(monkeypatch) as calls:
        query(log)
    assert 1 <= len(calls) <= most


def test_known_answers_are_not_read_again(many, monkeypatch):
    log = kafkastore.open(many)["t-100"]
    segment = log.segments[7]
    segment.translate_offset(37)
    assert log.log_end_offset == 100
    with recorded(monkeypatch) as calls:
        segment.translate_offset(38)
        assert log.log_end_offset == 100
    assert calls == [str(segment.log_path)]


@contextmanager
def few_descriptors(more):
    """Allow this many more open files than are open now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with LOOKING:  # the watchdog opens files in this process too
        highest = max(map(int, os.listdir("/dev/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + more, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("others", [0, 400])
def test_no_descriptor_is_kept_after_any_number_of_queries(many, others):
    kafkastore.open(many)["t-0"].to_arrow(["offset"]).read_all()   # what pyarrow keeps to itself
    store = kafkastore.open(many)
    with ExitStack() as stack:
        for _ in range(others):  # a share of all descriptors is more than there are left then
            stack.enter_context(open(os.devnull))
        stack.enter_context(few_descriptors(6))
        kept = []
        for number in range(0, PARTITIONS, 100):
            log = store["t", number]
            kept.append(log)
            assert log.log_end_offset == 5 * SEGMENTS
            assert [record.offset for record in log.records()] == list(range(5 * SEGMENTS))
            assert log.to_arrow(["offset"]).read_all().num_rows == 5 * SEGMENTS
            for segment in log.segments:
                assert segment.offset_index is not None
                assert segment.time_index is not None
                assert segment.translate_offset(segment.base_offset).position == 0
                assert segment.summary.batch_count == 1
            assert log.offset_for_timestamp(77).offset == 77
            assert log.explain_bounds().last_stable_offset.offset == 5 * SEGMENTS
        assert len(kept) == 20


def test_a_store_is_listed_although_it_has_more_segments_than_descriptors(many):
    with few_descriptors(4):
        store = kafkastore.open(many)
        assert sum(len(log.segments) for log in store) == PARTITIONS * SEGMENTS
