"""Many loads through one session, in few queries: each with its table, or its error.

Also a program, for sessions that must have a process to themselves:

    python loads.py REQUEST.json OUT

The request has ``master``, ``conf`` (options of `kafkastore.spark.session`), ``environment`` (what
Spark's processes see) and ``loads``, each a path and options. OUT gets ``<number>.arrow`` or
``<number>.error`` for each load, and ``executors.json``: where each executor found kafkastore, and
in which folder it ran.
"""
from __future__ import annotations

import json
import os
import sys
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

# Loads per query; with many more, planning takes longer than the loads.
LOADS_A_QUERY = 24
NUMBER = "load"


class Load(NamedTuple):
    """The options of `spark.read`."""

    path: str
    options: dict[str, str]


def read_all(spark, loads, keep):
    """Yield each load's number and table, or its error.

    A query's loads have the same columns. One that fails is tried again load by load.
    """
    by_headers = {}
    for number, load in enumerate(loads):
        by_headers.setdefault(load.options.get("includeHeaders"), []).append(number)
    for numbers in by_headers.values():
        for first in range(0, len(numbers), LOADS_A_QUERY):
            some = numbers[first : first + LOADS_A_QUERY]
            try:
                table = _read(spark, loads, some)
            except Exception:
                for number in some:
                    try:
                        keep(number, _read(spark, loads, [number]).drop_columns(NUMBER))
                    except Exception as error:
                        keep(number, str(error))
                continue
            numbered = table[NUMBER]
            for number in some:
                keep(number, table.filter(pa.compute.equal(numbered, number)).drop_columns(NUMBER))


def _read(spark, loads, numbers):
    from pyspark.sql.functions import lit

    frames = [
        spark.read.format("kafkastore").options(**loads[number].options).load(loads[number].path)
        .withColumn(NUMBER, lit(number))
        for number in numbers
    ]
    return reduce(lambda left, right: left.unionAll(right), frames).toArrow()


def executors(spark):
    """The path of kafkastore and the working directory in the Python of each task."""

    def look(batches):
        import os
        import time

        import kafkastore

        for _ in batches:
            time.sleep(0.3)  # so that one executor does not take all tasks
            here = {"module": [kafkastore.__file__], "folder": [os.getcwd()]}
            yield pa.RecordBatch.from_pydict(here)

    found = spark.range(0, 8, 1, 8).mapInArrow(look, "module string, folder string")
    return found.toArrow().to_pylist()


def main(request_file, out):
    import kafkastore.spark

    request = json.loads(Path(request_file).read_text())
    os.environ.update(request["environment"])
    spark = kafkastore.spark.session(request["master"], "tests", **request["conf"])
    if not request["master"].startswith("sc://"):
        kafkastore.spark.register(spark)

    def keep(number, found):
        if isinstance(found, str):
            Path(out, f"{number}.error").write_text(found)
            return
        with pa.ipc.new_file(Path(out, f"{number}.arrow"), found.schema) as file:
            file.write_table(found)

    read_all(spark, [Load(*load) for load in request["loads"]], keep)
    Path(out, "executors.json").write_text(json.dumps(executors(spark)))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
