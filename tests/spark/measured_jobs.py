"""A survey, or only the start of Spark, in a separate process; run by a test.

usage: python measured_jobs.py FIGURES HOW [ROOT]

HOW is ``start`` (a Spark session and a job that does nothing), or by what the segments of ROOT are
surveyed: ``threads`` or ``spark``. FIGURES becomes a JSON object: how many ``rows`` there are,
their ``digest``, and the largest ``memory`` of this process in bytes.
"""

import hashlib
import json
import operator
import os
import sys
from pathlib import Path

from models.measured_command import largest_memory

import kafkastore
from kafkastore.jobs.inventory import InventoryJob
from kafkastore.runner import in_threads
from kafkastore.spark import jobs, session
from kafkastore.spark.runner import spread

MASTER = "local[2]"
COLUMNS = (
    "base_offset", "size", "modified", "largest_timestamp", "records", "time_index_entries",
)


def by_threads(root):
    """Yield the rows of the survey's table, read by threads."""
    job = InventoryJob()
    items = job.items(kafkastore.open(root))
    for found in job.results(items, in_threads(os.cpu_count())):
        for segment in found.segments:
            yield found.place.path, *(getattr(segment, name) for name in COLUMNS)


def by_spark(spark, root):
    """Yield the rows of the survey's table."""
    frame = jobs.inventory(spark, root).select("path", *COLUMNS)
    yield from map(tuple, frame.toLocalIterator(prefetchPartitions=True))


def main():
    figures, how, *root = sys.argv[1:]
    digest, count = hashlib.sha256(), 0
    spark = None if how == "threads" else session(MASTER)
    if spark is None:
        rows = by_threads(*root)
    elif how == "spark":
        rows = by_spark(spark, *root)
    else:
        rows = spread(spark, operator.neg, [1, 2], weigh=abs)
    for row in rows:
        digest.update(repr(row).encode())
        count += 1
    if spark is not None:
        spark.stop()
    used = {"rows": count, "digest": digest.hexdigest(), "memory": largest_memory()}
    Path(figures).write_text(json.dumps(used))


if __name__ == "__main__":
    main()
