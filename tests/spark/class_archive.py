"""Archives classes of Java and Spark in one file, which a JVM maps instead of loading jars.

A session that reads one directory takes half the processor time with it. ``make test`` writes the
file into the environment, once: ``python tests/spark/class_archive.py``. A Java other than the one
that wrote it ignores it.
"""
from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
#: Without them, a short session spends half its time in the C2 compiler and concurrent GC.
_SHORT_SESSION = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xlog:disable")


def java_options() -> Iterator[str]:
    """Yield the options of the JVMs that tests start."""
    yield from _SHORT_SESSION
    if ARCHIVE.is_file() and ARCHIVE.stat().st_size:
        yield f"-XX:SharedArchiveFile={ARCHIVE}"


def _write_archive() -> None:
    """Let a JVM archive what it has loaded as it ends; the file is empty if this Java cannot."""
    from kafkastore import samples
    from kafkastore.spark import register, session

    new = ARCHIVE.with_suffix(".new")
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join((*_SHORT_SESSION, f"-XX:ArchiveClassesAtExit={new}"))
    new.unlink(missing_ok=True)
    with TemporaryDirectory() as folder:
        *_, logs = samples.unpack(Path(folder) / "samples")
        spark = session("local[2]", "classes", **{"spark.sql.shuffle.partitions": 2})
        register(spark)
        records = spark.read.format("kafkastore").load(str(logs))
        records.where("offset > 3").orderBy("partition", "offset").collect()
        records.groupBy("topic").count().collect()
        records.write.parquet(f"{folder}/records")
        spark.read.parquet(f"{folder}/records").count()
        spark.sparkContext.parallelize(range(4), 2).map(str).collect()
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        process = gateway.proc
        spark.stop()
        process.stdin.close()
        process.wait(600)
    new.touch()
    new.replace(ARCHIVE)


if __name__ == "__main__":
    _write_archive()
