"""Frames written in a session."""
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from spark.raised import class_of, raised_in_python
from spark.writing.writes import MARKER, NOW, SCHEMA, faults, names, records, values, write

import kafkastore
from kafkastore.spark.source.writing.write_options import OPTIONS


def test_a_frame_is_written_by_several_tasks_and_read_again(spark, target):
    frame = spark.range(0, 3000, 1, 6).selectExpr(
        "if(id % 5 = 0, 'a', 'b-c.d') topic",
        "cast(id % 3 as int) partition",
        "if(id % 7 = 0, null, cast(id as string)) key",
        "if(id % 11 = 0, null, cast(repeat(cast(id as string), 30) as binary)) value",
        f"timestamp_millis({NOW} + id) timestamp",
        "if(id % 2 = 0, null, array(struct('n' as key, cast('v' as binary) as value),"
        " struct('' as key, cast(null as binary) as value))) headers",
    )
    options = {"compression": "zstd", "segment.bytes": 4096, "batch.size": 1000}
    frame.write.format("kafkastore").mode("append").options(**options).save(str(target))
    read = spark.read.format("kafkastore").option("includeHeaders", True).load(str(target))
    columns = ["topic", "partition", "cast(key as binary) key", "value", "timestamp", "headers"]
    both = frame.selectExpr(*columns), read.select(*columns[:2], "key", *columns[3:])
    first, second = (sorted(map(repr, each.toLocalIterator())) for each in both)
    assert first == second
    rows = read.select("topic", "partition", "offset", "timestamp").toPandas()
    for _, part in rows.groupby(["topic", "partition"]):
        in_order = part.sort_values("offset")
        # In the order of the tasks, and of each task's rows.
        assert in_order["timestamp"].is_monotonic_increasing
        assert in_order["offset"].tolist() == list(range(len(part)))
    assert not list(kafkastore.verify(target))
    assert names(target.parent) == ["logs"]


def test_records_that_were_read_are_written_with_their_offsets(spark, golden, target):
    """The records that compaction removed leave gaps."""
    source = golden("2.4.0", "compacted", "answers").logs
    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "headers"]
    read = spark.read.format("kafkastore").option("includeHeaders", True)
    frame = read.load(str(source))
    frame.write.format("kafkastore").mode("append").save(str(target))
    assert_same = [sorted(map(repr, each.select(*columns).toLocalIterator()))
                   for each in (frame, read.load(str(target)))]
    assert assert_same[0] == assert_same[1]
    assert assert_same[0]
    first = kafkastore.open(source)
    for log in kafkastore.open(target):
        assert log.log_start_offset == next(first[log.topic_partition].records()).offset
    assert not faults(target)


def test_a_frame_without_rows_makes_an_empty_log_directory(target, spark):
    write(target, [[], [[]], []])
    assert records(target) == {}
    assert (target / MARKER).exists()
    assert spark.read.format("kafkastore").load(str(target)).count() == 0


@pytest.mark.parametrize(
    ("mode", "condition"),
    [
        ("overwrite", "PYTHON_DATA_SOURCE_ERROR"),
        ("errorifexists", "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
        ("ignore", "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
    ],
)
def test_only_append_is_a_mode(spark, target, mode, condition):
    frame = spark.range(1).selectExpr("'t' topic", "0 partition", "'x' value")
    with pytest.raises(AnalysisException) as raised:
        frame.write.format("kafkastore").mode(mode).save(str(target))
    assert raised.value.getCondition() == condition
    if mode == "overwrite":
        assert class_of(raised.value) == "ChangeRefusedError"
    assert not target.parent.exists() or not names(target.parent)


def test_a_failed_job_leaves_nothing(spark, target):
    frame = spark.range(0, 2000, 1, 4).selectExpr(
        "'t' topic", "cast(id % 3 as int) partition",
        "if(id = 1900, raise_error('no such luck'), 'x') value",
    )
    with pytest.raises(PySparkException) as raised:
        frame.write.format("kafkastore").mode("append").save(str(target))
    assert raised.value.getCondition() == "USER_RAISED_EXCEPTION"
    assert not names(target.parent)


def test_an_error_of_a_task_is_at_the_end_of_spark_s_message(spark, target):
    frame = spark.range(1).selectExpr("'t' topic", "0 partition", "repeat('x', 2000000) value")
    with raised_in_python("RecordTooLargeError", "PYTHON_EXCEPTION"):
        frame.write.format("kafkastore").mode("append").save(str(target))
    assert not names(target.parent)


DRIVER = """
import sys
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql.functions import udf
from kafkastore.spark import register, session

target, job = sys.argv[1:]
spark = session("local[2,3]", **{"spark.driver.memory": "1g"})
register(spark)

@udf("string")
def value(number):
    if job == "fails" and number == 450 and TaskContext.get().attemptNumber() < 2:
        raise RuntimeError("one of two failures")
    if job == "waits" and number == 700:
        Path(target + ".waiting").touch()
        import time
        time.sleep(600)
    return "x" * 3000 + str(number)

frame = spark.range(0, 1000, 1, 4).withColumn("value", value("id")).selectExpr(
    "'t' topic", "cast(id % 2 as int) partition", "value")
frame.write.format("kafkastore").mode("append").save(target)
spark.stop()
"""


@pytest.mark.soak
def test_tasks_that_fail_are_tried_again_and_count_once(target):
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(target), "fails"], check=True, capture_output=True,
        text=True, timeout=800,
    )
    assert "one of two failures" in done.stderr
    assert names(target.parent) == ["logs"]
    written = [value.lstrip(b"x") for each in values(target).values() for value in each]
    assert written == [b"%d" % number for half in (0, 1) for number in range(half, 1000, 2)]
    assert not list(kafkastore.verify(target))


@pytest.mark.soak
def test_a_driver_that_is_killed_leaves_no_target_and_the_next_write_works(spark, target):
    target.parent.mkdir()
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(target), "waits"])
    waiting = target.with_name("logs.waiting")
    try:
        deadline = time.monotonic() + 800
        while not waiting.exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        (staged,) = set(target.parent.iterdir()) - {waiting}
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    waiting.unlink()
    assert not target.exists()
    pid = json.loads((staged / "owner").read_text())["pid"] if staged.exists() else 0
    while pid and Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    frame = spark.range(10).selectExpr("'t' topic", "0 partition", "cast(id as string) value")
    frame.write.format("kafkastore").mode("append").save(str(target))
    assert values(target) == {"t-0": [b"%d" % number for number in range(10)]}
    assert names(target.parent) == ["logs"]


def test_the_documents_example_runs_and_names_every_option_and_column(spark, tmp_path, capfd):
    text = (Path(__file__).parents[3] / "docs" / "spark-writing.md").read_text()
    for name in (*OPTIONS[1:], *SCHEMA.names):
        assert f"`{name}`" in text
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    example = example.replace('"new-logs"', repr(str(tmp_path / "new-logs")))
    exec(compile(example, "spark-writing.md", "exec"), {"spark": spark})
    assert len(values(tmp_path / "new-logs")) == 6
    assert capfd.readouterr().out
