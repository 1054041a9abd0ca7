"""The reasons of Spark's errors, which are found by the types of Java and gRPC."""
import os
import signal

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from kafkastore.spark.failures import is_worker_lost, java_causes, reason


def raised(work):
    with pytest.raises((PySparkException, Py4JJavaError)) as caught:
        work()
    return caught.value


def test_a_killed_worker_is_lost_and_one_that_raises_an_error_is_not(spark):
    def kill(batches):
        os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    def fail(batches):
        raise ValueError("no such luck.")
        yield from batches

    counted = raised(lambda: spark.range(1).mapInArrow(kill, "id long").count())
    iterated = raised(lambda: [*spark.range(1).mapInArrow(kill, "id long").toLocalIterator()])
    assert is_worker_lost(counted)
    assert is_worker_lost(iterated)
    failed = raised(lambda: spark.range(1).mapInArrow(fail, "id long").count())
    assert not is_worker_lost(failed)
    assert reason(failed) == "ValueError: no such luck"


def test_the_reason_is_that_of_the_innermost_cause_in_java(spark):
    java = spark.sparkContext._jvm.java.lang
    error = raised(lambda: java.Integer.parseInt("x"))
    assert reason(error) == next(java_causes(error)).getMessage()
    assert reason(raised(lambda: spark.read.parquet("/nowhere"))).count("\n") == 0


def test_an_error_without_a_cause_in_java_has_the_reason_of_grpc_or_its_own_text():
    class RpcError(Exception):
        def details(self):
            return "too many requests."

    error = PySparkException("a long text\nof Connect", errorClass="SOME_CONDITION")
    assert reason(error) == "[SOME_CONDITION] a long text"
    error.__context__ = RpcError()
    assert reason(error) == "too many requests"
    assert reason(ConnectionRefusedError(111, "Connection refused")) == "connection refused"
