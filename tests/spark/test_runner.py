"""Work on Spark: distributed evenly, answered in order, stopped at once."""
import _thread
import math
import operator
import os
import pickle
import sys
import threading
import time
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from kafkastore.errors import (
    CorruptBatchError,
    DuplicatePartitionError,
    KafkaStoreError,
    NotAFileError,
)
from kafkastore.jobs.job import Job
from kafkastore.runner import attempt
from kafkastore.spark import watch as watching
from kafkastore.spark.runner import (
    TASK_BYTES,
    JobError,
    dumps,
    even_packs,
    spread,
    table,
)
from kafkastore.spark.watch import watch


@pytest.fixture(scope="module", autouse=True)
def _jobs_of_this_module_travel():
    """Send functions of this module by value: workers don't have it."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


@given(st.lists(st.integers(1, 100), min_size=1), st.integers(1, 8))
def test_packs_hold_each_item_once_in_order_and_none_is_much_too_heavy(weights, count):
    packs = even_packs(weights, min(count, len(weights)))
    assert [item for pack in packs for item in pack] == list(range(len(weights)))
    assert all(packs)
    assert len(packs) <= count
    share = sum(weights) / min(count, len(weights))
    assert max(sum(weights[item] for item in pack) for pack in packs) <= share + max(weights)


def test_results_come_in_the_order_of_the_items(spark):
    reported = []

    def progress(done, total):
        reported.append((done, total))

    results = spread(spark, operator.neg, range(100), weigh=abs, progress=progress)
    assert list(results) == [-item for item in range(100)]
    assert reported[-1] == (100, 100)
    assert [done for done, _ in reported] == sorted(done for done, _ in reported)


def test_nothing_to_do_starts_no_job(spark):
    assert list(spread(spark, operator.neg, [], weigh=abs)) == []


def test_an_error_of_a_job_is_raised_in_its_turn(spark):
    results = spread(spark, math.sqrt, [4, 1, -1, 9], weigh=abs)
    assert [next(results), next(results)] == [2, 1]
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        next(results)
    with pytest.raises(ValueError) as here:  # noqa: PT011
        math.sqrt(-1)
    assert raised.value.args == here.value.args


def refuse(item):
    """Raise the requested error, as jobs do."""
    if item == 0:
        try:
            raise PermissionError(13, "Permission denied", "f")
        except PermissionError as error:
            raise NotAFileError("f", "a socket") from error
    if item == 1:
        raise CorruptBatchError("no", path="f", position=3)
    if item == 2:
        raise DuplicatePartitionError({("t", 0): ["a", "b"]})

    class LocalError(Exception):
        """An error class that no other process has."""

    raise LocalError("of here")


def test_errors_are_pickled_with_their_text_and_cause(spark):
    errors = []
    for item in range(4):
        with pytest.raises(Exception) as raised:  # noqa: PT011
            list(spread(spark, refuse, [item], weigh=abs))
        errors.append(raised.value)
    odd, corrupt, twice, local = errors
    assert (type(odd), odd.kind) == (NotAFileError, "a socket")
    assert isinstance(odd.__cause__, PermissionError)
    assert (type(corrupt), corrupt.position) == (CorruptBatchError, 3)
    assert (type(twice), str(twice)) == (
        DuplicatePartitionError, str(DuplicatePartitionError({("t", 0): ["a", "b"]})),
    )
    assert (type(local), str(local)) == (JobError, "LocalError: of here")


def test_an_error_as_a_value_can_be_raised_again():
    error = pickle.loads(dumps(attempt(refuse, 0))).error
    assert isinstance(error, NotAFileError)
    assert isinstance(error.__cause__, PermissionError)
    assert attempt(abs, -3) == 3


@dataclass(frozen=True)
class Roots(Job[int, int]):
    """A row for each number; negative ones fail after it."""

    size: int | None = None

    def run(self, item):
        return item

    def rows(self, result):
        yield {"root": None if result < 0 else math.sqrt(result)}
        if result == -1:
            raise KafkaStoreError("no root")
        math.sqrt(result)

    @staticmethod
    def columns():
        return [("root", pa.float64())]

    def place(self, item):
        return {"partition": item}

    def weigh(self, item):
        return item if self.size is None else self.size


def test_a_failure_is_a_row_of_the_table(spark):
    frame = table(spark, Roots(1), [4, -1, 9, -2])
    assert frame.schema.simpleString() == (
        "struct<store:string,topic:string,partition:int,path:string,root:double,error:string>"
    )
    rows = [tuple(row) for row in frame.drop("store", "topic", "path").collect()]
    assert rows[:4] == [(4, 2.0, None), (-1, None, None), (-1, None, "no root"), (9, 3.0, None)]
    assert rows[4] == (-2, None, None)
    assert rows[5][:2] == (-2, None)
    assert rows[5][2].startswith("ValueError: ")


def test_a_table_of_nothing_has_its_columns(spark):
    frame = table(spark, Roots(), [])
    assert frame.collect() == []
    assert frame.columns == Roots().schema().names


def test_every_table_has_few_tasks(spark):
    frame = table(spark, Roots(), range(1000))
    assert frame.rdd.getNumPartitions() == 8
    assert [row.partition for row in frame.collect()] == list(range(1000))


@pytest.mark.parametrize(("size", "tasks"), [(1, 8), (TASK_BYTES // 2, 50), (TASK_BYTES * 2, 100)])
def test_much_to_read_has_more_tasks(spark, size, tasks):
    frame = table(spark, Roots(size), range(100))
    assert frame.rdd.getNumPartitions() == tasks


def directory(_):
    """Where a job runs."""
    return os.getcwd()


def test_jobs_run_in_the_driver_s_directory(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert set(spread(spark, directory, range(8), weigh=abs)) == {str(tmp_path)}
    monkeypatch.undo()
    assert set(spread(spark, directory, range(8), weigh=abs)) == {os.getcwd()}


def test_an_interrupt_stops_the_jobs_at_once(spark):
    tracker = spark.sparkContext.statusTracker()

    def interrupt():
        while not tracker.getActiveStageIds():
            time.sleep(0.05)
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(spread(spark, time.sleep, [600, 600], weigh=lambda _: 1))
    thread.join()
    while tracker.getActiveStageIds():
        assert time.monotonic() - began < 300, "the job still runs"
        time.sleep(0.05)


def test_the_thread_that_gets_interrupts_does_not_call_java(spark, monkeypatch):
    """PySpark's handler would send a request within another, on the same connection."""
    asking = set()
    tasks_done = watching._ClassicJobs.tasks_done
    monkeypatch.setattr(
        watching._ClassicJobs, "tasks_done",
        lambda jobs: asking.add(threading.current_thread()) or tasks_done(jobs),
    )
    seen = []
    watch(spark, spark.range(3).count, lambda *counts: seen.append(counts))
    assert threading.current_thread() not in asking
    assert len(asking) == 1
    assert seen[-1][0] == seen[-1][1] > 0


def test_after_an_interrupt_the_session_writes_as_before(spark, tmp_path):
    def interrupted(_done, _total):
        raise KeyboardInterrupt

    frame = spark.range(3).selectExpr("'t' topic", "0 partition", "cast(id as string) value")
    gateway = spark.sparkContext._gateway
    with pytest.raises(KeyboardInterrupt):
        # As if the interrupt had come while this thread waited for Java: its connection is closed.
        gateway._gateway_client.get_thread_connection().close()
        watch(spark, lambda: time.sleep(1), interrupted)
    frame.write.format("kafkastore").mode("append").save(str(tmp_path / "logs"))
    assert spark.read.format("kafkastore").load(str(tmp_path / "logs")).count() == 3


def test_the_tasks_of_a_piece_of_work_are_counted(spark):
    seen = []
    numbers = spark.sparkContext.parallelize(range(6), 6)
    assert watch(spark, numbers.count, lambda *how: seen.append(how)) == 6
    assert seen[-1] == (6, 6)
