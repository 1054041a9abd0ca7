"""Jobs written for Spark's Kafka source, run on a broker and on its directory.

    python kafka_jobs.py REQUEST.json OUT

The request has ``jars``, ``logs`` and ``jobs``: options each, as the Kafka source takes them. OUT
gets ``<number>.<format>.arrow`` with the rows, or ``.error`` with what was raised, and ``.schema``.
"""
from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa

#: Not an option: what the rows are filtered by.
WHERE = "_where"


def main(request_file, out):
    from kafkastore.spark import register, session

    request = json.loads(Path(request_file).read_text())
    spark = session(
        "local[2]", "tests",
        **{"spark.jars": ",".join(request["jars"]), "spark.driver.memory": "1g"},
    )
    register(spark)
    for number, options in enumerate(request["jobs"]):
        where = options.pop(WHERE, "true")
        for name, path in (("kafka", None), ("kafkastore", request["logs"])):
            stem = Path(out, f"{number}.{name}")
            try:
                frame = spark.read.format(name).options(**options).load(path)
                stem.with_name(f"{stem.name}.schema").write_text(frame.schema.json())
                table = frame.where(where).toArrow()
            except Exception as error:
                stem.with_name(f"{stem.name}.error").write_text(str(error))
                continue
            with pa.ipc.new_file(stem.with_name(f"{stem.name}.arrow"), table.schema) as file:
                file.write_table(table)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
