"""Work on many things by several threads: in order, a few at a time."""

import threading

import pytest

import kafkastore
from kafkastore.errors import DuplicatePartitionError
from kafkastore.log.side_by_side import side_by_side


def test_what_comes_of_items_is_in_their_order_and_few_are_taken_beforehand():
    taken, done = [], []

    def items():
        for number in range(100):
            taken.append(number)
            yield number

    for result in side_by_side(lambda number: number * 2, items(), 2, "test"):
        done.append(result)
        assert len(taken) - len(done) <= 5
    assert done == [number * 2 for number in range(100)]


def test_an_error_is_raised_in_its_turn_and_nothing_more_is_begun():
    begun = []

    def work(number):
        begun.append(number)
        if number == 3:
            raise ValueError("three")
        return number

    found = side_by_side(work, range(100), 1, "test")
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(found)
    assert len(begun) <= 8
    assert not any(thread.name.startswith("test_") for thread in threading.enumerate())


def test_partitions_are_opened_in_their_turn_and_wrong_ones_are_told_before_the_first(tmp_path):
    for name in ("a/t-1", "a/t-0", "b/t-1"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / f"{0:020}.log").touch()
    store = kafkastore.open(tmp_path / "a")
    assert [str(log.topic_partition) for log in store.logs_of(None)] == ["t-0", "t-1"]
    assert [log.partition for log in store.logs_of(["t-1", ("t", 0), "t-1"])] == [0, 1]
    assert next(store.logs_of(["t-0"])) is not next(store.logs_of(["t-0"]))
    with pytest.raises(KeyError, match="no partition t-7 here"):
        store.logs_of(["t-0", "t-7"])
    with pytest.raises(TypeError, match="not one"):
        store.logs_of("t-0")
    twice = kafkastore.open([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(DuplicatePartitionError):
        twice.logs_of(None)
    assert [log.partition for log in twice.logs_of(["t-0"])] == [0]


def test_one_of_its_own_threads_may_close_it_as_the_collector_may_in_any_thread():
    waits, closed = threading.Event(), threading.Event()

    def work(number):
        if number == 4:
            assert waits.wait(60)
            found.close()
            closed.set()

    found = side_by_side(work, range(100), 2, "test")
    next(found)
    waits.set()
    assert closed.wait(60)
    assert list(found) == []
