"""What Spark's workers unpickle before they import kafkastore.

Spark pickles objects of this package by the names of their modules, so a worker whose Python lacks
the package fails in `pickle`, with a page of PySpark's frames. The code of this module itself
travels in the pickle, and raises one sentence there. So it uses only the standard library.
"""
from __future__ import annotations

import os
import pickle
import socket
import sys
from typing import Any

from pyspark import cloudpickle

#: The Python that pickles: with this package.
_SENDER = sys.executable


class SentByValue:
    """An object whose pickle says where a module is missing; see `sent_by_value`."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to unpickle it."""
        return sent_by_value(self)


def sent_by_value(value: object) -> tuple[Any, ...]:
    """Return a function that is sent by value, and the object's own pickle."""
    data = cloudpickle.dumps(  # type: ignore[no-untyped-call]
        (type(value), value.__dict__)
    )
    return load, (data,)


def load(data: bytes) -> Any:
    """Unpickle an object, or raise an error that names the missing module."""
    try:
        kind, attributes = pickle.loads(data)
    except ModuleNotFoundError as error:
        raise missing_module(error) from None
    loaded = kind.__new__(kind)
    loaded.__dict__.update(attributes)
    return loaded


def missing_module(error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return an error that says what to do; the process must end with it.

    PySpark reports it without the traceback, of which no line is the user's.
    """
    os.environ["SPARK_HIDE_TRACEBACK"] = "1"
    return ModuleNotFoundError(
        f"Spark's Python workers on {socket.gethostname()} run {sys.executable}, which has no "
        f"module {error.name}: start Spark with kafkastore.spark.session, or set PYSPARK_PYTHON "
        f"to a Python that has it, such as {_SENDER}; for executors of a cluster there is "
        f"kafkastore.spark.archive",
        name=error.name,
    )


cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call]
    sys.modules[__name__]
)
