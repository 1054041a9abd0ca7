"""Workers whose Python lacks kafkastore say so in one sentence."""
from __future__ import annotations

import json
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import pytest
from pyspark import cloudpickle

from kafkastore.jobs.listing import ListJob
from kafkastore.spark.java import find_java, java_environment
from kafkastore.spark.runner import _Work
from kafkastore.spark.source.data_source import RecordsReader
from kafkastore.spark.source.options import parse_options
from kafkastore.spark.source.registration import Placeholder

#: What PySpark's workers need, and no more.
OF_PYSPARK = (
    "pyspark", "py4j", "pyarrow", "numpy", "pandas", "python-dateutil", "six", "pytz", "tzdata"
)

PLAIN_SESSION = """
import json, sys
from pyspark.sql import SparkSession
import kafkastore.spark
from kafkastore.spark.jobs import verify

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1").getOrCreate()
)
kafkastore.spark.register(spark)
path, target = sys.argv[1:]
view = f"CREATE TEMPORARY VIEW v USING kafkastore OPTIONS (path '{path}')"
rows = spark.range(1).selectExpr("'t' topic", "0 partition", "cast('v' as binary) value")
errors = {}
for name, use in {
    "read": lambda: spark.read.format("kafkastore").load(path),
    "sql": lambda: spark.sql(view),
    "stream": lambda: spark.readStream.format("kafkastore").load(path),
    "write": lambda: rows.write.format("kafkastore").mode("append").save(target),
    "job": lambda: verify(spark, path).collect(),
}.items():
    try:
        use()
    except Exception as error:
        errors[name] = str(error)
print(json.dumps(errors))
"""


@pytest.fixture(scope="module")
def other_python(tmp_path_factory):
    """A Python with what PySpark's workers need, but without kafkastore."""
    place = tmp_path_factory.mktemp("python")
    venv.EnvBuilder(symlinks=True).create(place)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = place / "lib" / version / "site-packages"
    for distribution in OF_PYSPARK:
        files = metadata.files(distribution) or ()
        for name in {file.parts[0] for file in files if ".." not in file.parts}:
            (packages / name).symlink_to(metadata.distribution(distribution).locate_file(name))
    return place / "bin" / "python"


def test_a_plain_session_says_which_python_has_no_kafkastore(
    other_python, golden, tmp_path
):
    ran = subprocess.run(
        [sys.executable, "-c", PLAIN_SESSION, golden("0.10.0.1", "upgrade", "answers").logs,
         tmp_path / "written"],
        env={
            "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **java_environment(find_java()),
            "PYSPARK_PYTHON": str(other_python), "SPARK_LOCAL_IP": "127.0.0.1",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert ran.returncode == 0, ran.stderr
    errors = json.loads(ran.stdout)
    assert set(errors) == {"read", "sql", "stream", "write", "job"}
    for error in errors.values():
        assert str(other_python) in error
        assert sys.executable in error
        assert "Traceback" not in error
        assert len([line for line in error.splitlines() if not line.startswith("\tat ")]) <= 3
    assert not (tmp_path / "written").exists()


def test_an_executor_without_kafkastore_says_so(other_python, golden):
    options = parse_options({"path": str(golden("0.10.0.1", "upgrade", "answers").logs)})
    job = ListJob()
    for sent in (
        Placeholder,
        RecordsReader(options, ("value",)),
        _Work(job.rows_of, [], job.schema(), "/"),
    ):
        data = cloudpickle.dumps(sent)
        here = cloudpickle.loads(data)
        assert type(here) is type(sent)
        unpickle = f"import pickle; pickle.loads({data!r})({{}})"
        ran = subprocess.run(
            [other_python, "-c", unpickle], capture_output=True, text=True, timeout=800
        )
        assert ran.returncode == 1
        sentence = ran.stderr.splitlines()[-1]
        assert str(other_python) in sentence
        assert sys.executable in sentence


def test_what_is_sent_is_the_same_after_it(golden):
    options = parse_options({"path": str(golden("0.10.0.1", "upgrade", "answers").logs)})
    reader = RecordsReader(options, ("value", "offset"))
    assert vars(cloudpickle.loads(cloudpickle.dumps(reader))) == vars(reader)


def test_the_page_of_spark_begins_with_the_lines_that_a_plain_session_needs():
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    first = text.split("```python\n")[1].split("```")[0]
    assert "kafkastore.spark" in first
    assert 'format("kafkastore")' in first
