"""One Spark session for all tests here, on two cores."""
from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkastore.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session that must find the data source without a registration.

    Spark looks through the folders of the path for modules called ``pyspark_*``. An editable
    installation has no folder there, so it is named to Spark's processes.
    """
    module = importlib.util.find_spec("pyspark_kafkastore")
    assert module is not None
    assert module.origin is not None
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(
            "PYTHONPATH", str(Path(module.origin).parent), prepend=os.pathsep
        )
        running = session("local[2]", "tests", **{"spark.sql.shuffle.partitions": 2})
    yield running
    running.stop()
