"""Work given to Spark: shared out evenly, answered in order, stopped at once."""
import _thread
import math
import operator
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkastore.spark.spread import even_packs, spread, tasks_done, watch


@given(st.lists(st.integers(1, 100), min_size=1), st.integers(1, 8))
def test_packs_hold_each_item_once_and_weigh_alike(weights, count):
    packs = even_packs(weights, min(count, len(weights)))
    assert sorted(item for pack in packs for item in pack) == list(range(len(weights)))
    heavy = [sum(weights[item] for item in pack) for pack in packs]
    assert max(heavy) - min(heavy) <= max(weights)


def test_results_come_in_the_order_of_the_items(spark):
    told = []
    results = spread(
        spark, operator.neg, range(100), weigh=lambda item: item, tell=lambda *how: told.append(how)
    )
    assert results == [-item for item in range(100)]
    assert told[-1] == (100, 100)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_nothing_to_do_starts_no_job(spark):
    assert spread(spark, operator.neg, [], weigh=abs) == []


def test_what_a_job_raises_ends_the_run(spark):
    with pytest.raises(Exception, match=r"ValueError: (math domain error|expected a nonneg)"):
        spread(spark, math.sqrt, [1, -1], weigh=abs)


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
        spread(spark, time.sleep, [120, 120], weigh=lambda _: 1)
    thread.join()
    while tracker.getActiveStageIds():
        assert time.monotonic() - began < 60, "the job goes on"
        time.sleep(0.05)


def test_the_tasks_of_a_piece_of_work_are_counted(spark):
    seen = []
    context = spark.sparkContext
    numbers = context.parallelize(range(6), 6)
    assert watch(context, numbers.count, lambda group: seen.append(tasks_done(context, group))) == 6
    assert seen[-1] == (6, 6)
