"""Mistakes of Spark's users give one sentence, unless the session asks for whole tracebacks."""
import shutil

import pytest
from spark.raised import raised_in_python

SIMPLIFIED = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"


@pytest.fixture
def logs(golden, tmp_path):
    """A log directory of which a batch of up-0 is corrupt."""
    root = tmp_path / "logs"
    shutil.copytree(golden("0.10.0.1", "upgrade", "answers").logs, root)
    path = max((root / "up-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return str(root)


def test_each_mistake_is_one_sentence(spark, logs):
    def read(**options):
        return spark.read.format("kafkastore").options(**options)

    def written():
        rows = spark.range(1).selectExpr("'up' topic", "0 partition", "cast('v' as binary) value")
        rows.write.format("kafkastore").mode("append").save(logs)

    for name, mistake in (
        ("OptionError", lambda: read(subscrib="up").load(logs)),
        ("NotALogDirectoryError", lambda: read().load(logs + "-0")),
        ("OptionError", lambda: read(subscribe="no").load(logs).count()),
        ("OptionError", lambda: read().schema("key string").load(logs).count()),
        ("CorruptBatchError", lambda: read(subscribe="up").load(logs).count()),
        ("CorruptBatchError", lambda: read(subscribe="up", latest="true").load(logs).count()),
        ("OptionError", lambda: read(subscribe="up", table="batches", columns="x").load(logs)),
        ("ChangeRefusedError", written),
    ):
        with raised_in_python(name) as caught:
            mistake()
        text = caught.value.getMessage()
        assert "Traceback" not in text
        assert len([line for line in text.splitlines() if line.strip()]) <= 3


def test_a_session_may_ask_for_whole_tracebacks(spark, logs):
    spark.conf.set(SIMPLIFIED, "false")
    try:
        with raised_in_python("CorruptBatchError") as caught:
            spark.read.format("kafkastore").option("subscribe", "up").load(logs).count()
    finally:
        spark.conf.unset(SIMPLIFIED)
    assert "Traceback" in caught.value.getMessage()
