"""Errors by their classes and fields: lost records, and what Spark wraps."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.errors import PySparkException

from kafkastore.store.data_loss import DataLossError, Loss

#: Kind of loss, partition, and offset where reading can continue.
Fields = tuple[str, str, int]


def fields(loss: Loss) -> Fields:
    """Return the fields of a loss, without its message."""
    return str(loss.kind), str(loss.topic_partition), loss.resume_offset


@contextmanager
def losses(*expected: Fields) -> Iterator[None]:
    """Expect the body to find these losses."""
    with pytest.raises(DataLossError) as caught:
        yield
    assert {fields(each) for each in caught.value.losses} == {*expected}


@contextmanager
def raised_in_python(
    name: str, *conditions: str
) -> Iterator[pytest.ExceptionInfo[PySparkException]]:
    """Expect the body to fail with an error of this class in one of Spark's Python processes.

    The conditions are Spark's, by default those of a data source that plans or reads.
    """
    with pytest.raises(PySparkException) as caught:
        yield caught
    assert caught.value.getCondition() in (
        conditions or ("PYTHON_DATA_SOURCE_ERROR", "PYTHON_EXCEPTION")
    )
    assert class_of(caught.value) == name


def class_of(error: PySparkException) -> str:
    """Return the name of the class of the error that a Python process raised."""
    parameters = error.getMessageParameters()
    assert parameters is not None
    traceback = parameters["traceback" if "traceback" in parameters else "msg"]
    last = [line for line in traceback.splitlines() if line.strip()][-1]
    return last.partition(":")[0].rpartition(".")[2]
