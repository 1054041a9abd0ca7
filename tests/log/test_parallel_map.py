"""Parallel work on many items by several threads: in order, a few at a time."""

import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from models.refused import refused

import kafkastore
from kafkastore.errors import ArgumentTypeError, DuplicatePartitionError
from kafkastore.log.parallel.parallel_map import ParallelMap, StopFlag


def test_results_are_in_the_order_of_items_and_few_items_are_prefetched():
    taken, done = [], []

    def items():
        for number in range(100):
            taken.append(number)
            yield number

    for result in ParallelMap(lambda number: number * 2, items(), 2, "test"):
        done.append(result)
        assert len(taken) - len(done) <= 5
    assert done == [number * 2 for number in range(100)]


def test_an_error_is_raised_in_its_turn_and_nothing_more_is_begun(threads_left):
    begun = []

    def work(number):
        begun.append(number)
        if number == 3:
            raise ValueError("three")
        return number

    found = ParallelMap(work, range(100), 1, "test")
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(found)
    assert len(begun) <= 8
    assert threads_left("test_") == []


def test_an_owner_that_helps_is_one_of_the_threads_and_takes_the_next_item():
    may_end, names = threading.Event(), {}

    def work(number):
        names[number] = threading.current_thread().name
        if threading.current_thread() is not threading.main_thread():
            assert may_end.wait(800)
        if number == 2:
            raise ValueError("two")
        return number

    with ParallelMap(work, range(5), 2, "test", owner_helps=True) as found:
        found.begin()
        while len(names) < 1:
            time.sleep(0.001)
        assert not found.is_next_ready
        assert found.help(leave=1)
        assert found.help(leave=1)
        assert not found.help(leave=2)
        may_end.set()
        assert [next(found), next(found)] == [0, 1]
        assert found.is_next_ready
        with pytest.raises(ValueError, match="two"):
            next(found)
    main = threading.main_thread().name
    assert (names[0], names[1], names[2]) == ("test_0", main, main)
    assert set(names.values()) == {"test_0", main}


def test_a_thread_that_waited_for_work_does_the_next_item():
    items, names = [], []

    def work(number):
        names.append(threading.current_thread().name)
        return number

    class Items:
        def __next__(self):
            if not items:
                raise StopIteration
            return items.pop(0)

        def __iter__(self):
            return self

    with ParallelMap(work, Items(), 3, "test", idle_seconds=1) as found:
        for number in range(200):
            items.append(number)
            found.begin()
            assert next(found) == number
    assert len(set(names)) < 20, "threads ended while there was work"


def test_partitions_are_opened_in_their_turn_and_wrong_ones_are_reported_before_the_first(tmp_path):
    for name in ("a/t-1", "a/t-0", "b/t-1"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / f"{0:020}.log").touch()
    store = kafkastore.open(tmp_path / "a")
    assert [str(log.topic_partition) for log in store.logs_of(None)] == ["t-0", "t-1"]
    assert [log.partition for log in store.logs_of(["t-1", ("t", 0), "t-1"])] == [0, 1]
    assert next(store.logs_of(["t-0"])) is not next(store.logs_of(["t-0"]))
    with pytest.raises(KeyError, match="t-7"):
        store.logs_of(["t-0", "t-7"])
    with refused("partitions", ArgumentTypeError):
        store.logs_of("t-0")
    twice = kafkastore.open([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(DuplicatePartitionError):
        twice.logs_of(None)
    assert [log.partition for log in twice.logs_of(["t-0"])] == [0]


def test_an_error_and_the_end_of_a_with_block_wait_for_the_threads(threads_left):
    def work(number):
        if number == 3:
            raise ValueError("three")
        return number

    found = ParallelMap(work, range(100), 2, "test")
    with pytest.raises(ValueError, match="three"):
        list(found)
    assert threads_left("test_") == []
    assert list(found) == []
    stop = StopFlag()
    with ParallelMap(lambda number: stop() or time.sleep(0.05), range(100), 2, "test", stop=stop):
        pass
    with ParallelMap(lambda number: time.sleep(0.05), range(100), 2, "test") as found:
        next(found)
    assert threads_left("test_") == []


def test_a_dropped_one_ends_its_threads_and_does_not_wait_for_them(threads_left):
    stop, began = StopFlag(), threading.Event()

    def work(number):
        began.set()
        while number and not stop():
            time.sleep(0.01)

    found = ParallelMap(work, range(100), 2, "test", stop=stop)
    next(found)
    assert began.wait(800)
    threads = threads_left("test_")
    assert threads
    del found
    assert stop()
    for each in threads:
        each.join(800)
        assert not each.is_alive()


# The collector runs in a thread that starts: it holds a lock that threads need in order to end.
DROPPED_WHILE_A_THREAD_STARTS = """
import gc, sys, threading
import kafkastore

class CollectingLock:
    def __init__(self, lock):
        self.lock = lock
    def __enter__(self):
        self.lock.acquire()
        if threading.get_ident() == starting.ident:
            gc.collect()
    def __exit__(self, *exception):
        self.lock.release()

gc.disable()
found = kafkastore.verify(sys.argv[1], threads=4)
cycle = [found, next(found)]
cycle.append(cycle)
starting = threading.Thread(target=int)
threading._active_limbo_lock = CollectingLock(threading._active_limbo_lock)
del found, cycle
starting.start()
starting.join()
print("started")
"""


def test_a_verification_that_the_collector_drops_while_a_thread_starts_stops_nothing(tmp_path):
    write_twenty(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", DROPPED_WHILE_A_THREAD_STARTS, tmp_path],
        capture_output=True, text=True, timeout=800, check=False,
    )
    assert (ran.stdout, ran.stderr) == ("started\n", "")


# In the child, the results wait for threads that it does not have.
CONTINUES_IN_A_FORKED_PROCESS = """
import os, sys
import kafkastore

found = kafkastore.verify(sys.argv[1], threads=2)
next(found)
child = os.fork()
if child == 0:
    try:
        list(found)
    except RuntimeError:
        print("refused")
        list(kafkastore.verify(sys.argv[1], threads=2))
        print("verified again", flush=True)
    os._exit(0)
os.waitpid(child, 0)
print("left", len(list(found)))
"""


def test_a_forked_process_can_not_continue_work_that_began_before(tmp_path):
    write_twenty(tmp_path)
    ran = subprocess.run(
        # Python 3.12 and newer warn of each fork in a process with threads.
        [sys.executable, "-W", "ignore", "-c", CONTINUES_IN_A_FORKED_PROCESS, tmp_path],
        capture_output=True, text=True, timeout=800, check=False,
    )
    assert (ran.stdout, ran.stderr) == ("refused\nverified again\nleft 19\n", "")


def write_twenty(root):
    """Twenty partitions, each with something to find."""
    record = SimpleNamespace(timestamp=1, key=None, value=b"v")
    with kafkastore.LogDirWriter(root) as log_dir:
        for number in range(20):
            log_dir.writer("t", number).append_records([record])
    for path in root.glob("t-*/*.timeindex"):
        path.unlink()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_stop_iteration_in_the_work_does_not_end_the_results(threads):
    def work(number):
        return next(iter(() if number == 2 else (number,)))

    found = ParallelMap(work, range(5), threads, "test")
    assert [next(found), next(found)] == [0, 1]
    with pytest.raises(RuntimeError):
        next(found)
