"""Records of golden cases through a local session, a standalone cluster and Spark Connect."""
from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import venv
import zipfile
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from models.seed import some
from spark import loads
from spark.loads import Load

import kafkastore
from kafkastore.errors import CorruptionError
from kafkastore.log import records_as_arrow
from kafkastore.spark import archive
from kafkastore.spark.java import find_java, java_environment
from kafkastore.spark.shipping import ArchiveError

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
SECONDS_TO_START = 800


# ---------------------------------------------------------------- what is read


def manifest_cases(directory):
    """Version, case and answers of every golden case."""
    manifest = json.loads((directory / "MANIFEST.json").read_text())
    return [
        (version, name, answers)
        for version, described in manifest.items()
        for name, case in described["cases"].items()
        for answers in case["answers"]
    ]


@pytest.fixture(scope="module")
def cases(golden, golden_directory):
    """Golden cases, with their records as kafkastore's own function gives them."""
    named = manifest_cases(golden_directory)
    chosen = some(list(enumerate(named)), len(named) // 6)
    return [Case(golden(*names), number) for number, names in chosen]


class Case:
    """One golden case: its records, and the options to load it with."""

    def __init__(self, golden_case, number):
        self.name = f"{golden_case.version}/{golden_case.name}/{golden_case.answers_name}"
        self.path = str(golden_case.logs)
        self.options = {}
        self.records = {}
        for log in kafkastore.open(golden_case.logs):
            self.records[log.topic_partition] = found = []
            try:
                found.extend(log.records())  # what is before an error is kept
            except CorruptionError:
                self.options = {"failOnDataLoss": "false"}
        self.by_time_first = bool(number % 2)

    @property
    def full(self):
        """A load of all records, with headers."""
        return Load(self.path, self.options | {"includeHeaders": "true"})

    @property
    def part(self):
        """A load from an offset to a time or the reverse, and its offsets."""
        by_offset, by_time, bounds = {}, {}, {}
        for (topic, partition), records in self.records.items():
            offsets = [each.offset for each in records] or [self._start(topic, partition)]
            stamps = sorted(each.timestamp for each in records if each.timestamp >= 0) or [0]
            place = (1, 3) if self.by_time_first else (3, 1)
            stamp = stamps[len(stamps) * place[0] // 4]
            offset = offsets[len(offsets) * place[1] // 4]
            by_offset.setdefault(topic, {})[str(partition)] = offset
            by_time.setdefault(topic, {})[str(partition)] = stamp
            at = next((each.offset for each in records if each.timestamp >= stamp), 1 << 62)
            bounds[topic, partition] = (at, offset) if self.by_time_first else (offset, at)
        names = ("startingOffsetsByTimestamp", "endingOffsets")
        if not self.by_time_first:
            names = ("endingOffsetsByTimestamp", "startingOffsets")
        options = self.options | {names[0]: json.dumps(by_time), names[1]: json.dumps(by_offset)}
        options |= {"rules": "correct", "startingOffsetsByTimestampStrategy": "latest"}
        return Load(self.path, options), bounds

    def _start(self, topic, partition):
        return kafkastore.open(self.path)[topic, partition].log_start_offset

    def table(self, bounds=None):
        """The records as a frame has them."""
        bounds = bounds or {}
        rows = [
            (*which, each)
            for which, records in sorted(self.records.items())
            for each in records
            if which not in bounds or bounds[which][0] <= each.offset < bounds[which][1]
        ]
        columns = {
            "key": [each.key for _, _, each in rows],
            "value": [each.value for _, _, each in rows],
            "topic": [topic for topic, _, _ in rows],
            "partition": [partition for _, partition, _ in rows],
            "offset": [each.offset for _, _, each in rows],
            "timestamp": [each.timestamp * 1000 for _, _, each in rows],
            "timestampType": [int(each.timestamp_type) for _, _, each in rows],
            "headers": [
                [{"key": name, "value": value} for name, value in each.headers] or None
                for _, _, each in rows
            ],
        }
        if bounds:
            del columns["headers"]
        schema = records_as_arrow.schema(include_headers=not bounds)
        return pa.Table.from_pydict(columns, schema=schema)


ORDER = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]


def differences(cases, found):
    """Names the loads whose table is not what kafkastore's own function gives."""
    wrong = []
    for number, case in enumerate(cases):
        for which, bounds in ((0, None), (1, case.part[1])):
            got = found[2 * number + which]
            if isinstance(got, str):
                wrong.append(f"{case.name} {which}: {got[-400:]}")
            elif not got.sort_by(ORDER).equals(case.table(bounds)):
                wrong.append(f"{case.name} {which}: {got.num_rows} rows, other than expected")
    return wrong


# ---------------------------------------------------------------- clusters on this machine


def clean_environment():
    """The environment of a program that was not prepared for Spark."""
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS")
    chosen = {name: os.environ[name] for name in kept if name in os.environ}
    return chosen | java_environment(find_java()) | {"SPARK_LOCAL_IP": "127.0.0.1"}


@contextmanager
def started(command, log, sentence, **environment):
    """Start a program; yield the match once it has printed a line."""
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [str(each) for each in command], stdout=output, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, env=clean_environment() | environment, cwd=log.parent,
        )
    try:
        ends = time.monotonic() + SECONDS_TO_START
        while (found := re.search(sentence, log.read_text(errors="replace"))) is None:
            assert process.poll() is None, log.read_text(errors="replace")[-3000:]
            assert time.monotonic() < ends, log.read_text(errors="replace")[-3000:]
            time.sleep(0.1)
        yield found
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("clusters")


@pytest.fixture(scope="module")
def shipped(folder):
    """The archive for executors: the options that carry it, and its content on this machine."""
    options = archive(folder / "ks.zip")
    with zipfile.ZipFile(folder / "ks.zip") as written:
        written.extractall(folder / "unpacked")
    return options, folder / "unpacked"


@pytest.fixture(scope="module")
def bare_python(folder):
    """A Python with numpy and pyarrow, but without kafkastore."""
    venv.create(folder / "bare", symlinks=True)
    python = folder / "bare" / "bin" / "python"
    (packages,) = (folder / "bare" / "lib").glob("python*/site-packages")
    for name in ("numpy", "pyarrow"):
        for top in {file.parts[0] for file in metadata.files(name) if file.parts[0] != ".."}:
            source = Path(metadata.distribution(name).locate_file(top))
            (packages / top).symlink_to(source)
    missing = subprocess.run([python, "-c", "import pyarrow, numpy, kafkastore"],
                             capture_output=True, cwd=folder, env=clean_environment(), text=True)
    assert "No module named 'kafkastore'" in missing.stderr
    return python


@pytest.fixture(scope="module")
def standalone(folder, shipped, bare_python):
    """A master and two workers; how a program connects to them."""
    listening = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    package = "org.apache.spark.deploy"
    small = {"SPARK_DAEMON_MEMORY": "256m"}
    with ExitStack() as stack:
        master = stack.enter_context(
            started(
                [SPARK_CLASS, f"{package}.master.Master", *listening], folder / "master.log",
                r"Starting Spark master at (spark://127\.0\.0\.1:\d+)", **small,
            )
        )[1]
        for number in (1, 2):
            stack.enter_context(
                started(
                    [SPARK_CLASS, f"{package}.worker.Worker", *listening, "--cores", "1",
                     "--memory", "1g", "--work-dir", folder / f"work-{number}", master],
                    folder / f"worker-{number}.log", "Successfully registered with master", **small,
                )
            )
        options, unpacked = shipped
        conf = options | {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.executor.memory": "600m",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
        }
        # The driver's own workers plan reads, with the same Python, and find the package elsewhere.
        yield master, conf, {"PYSPARK_PYTHON": str(bare_python), "PYTHONPATH": str(unpacked)}


@pytest.fixture(scope="module")
def connect(folder, shipped):
    """A Spark Connect server; how a program connects to it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": folder / "warehouse",
    }
    command = [SPARK_CLASS, "org.apache.spark.deploy.SparkSubmit", "--master", "local[2]",
               "--driver-memory", "1g"]
    for name, value in conf.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
                "spark-internal"]
    paths = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(shipped[1])}
    with started(command, folder / "connect.log", "Spark Connect server started", **paths):
        yield f"sc://127.0.0.1:{port}", {}, {}


def ask(cluster, wanted, folder):
    """Have a separate process read loads through a session; tables or errors, by number."""
    master, conf, environment = cluster
    folder.mkdir()
    request = folder / "request.json"
    content = {"master": master, "conf": conf, "environment": environment, "loads": wanted}
    request.write_text(json.dumps(content))
    ran = subprocess.run(
        [sys.executable, loads.__file__, request, folder],
        cwd=folder, capture_output=True, text=True, timeout=800,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    found = []
    for number in range(len(wanted)):
        error = folder / f"{number}.error"
        if error.exists():
            found.append(error.read_text())
        else:
            with pa.ipc.open_file(folder / f"{number}.arrow") as file:
                found.append(file.read_all())
    return found, json.loads((folder / "executors.json").read_text())


# ---------------------------------------------------------------- tests


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["local", *some(["standalone", "connect"], 1, "clusters")])
def test_golden_cases_are_read_as_by_records(request, cases, kind, tmp_path):
    wanted = [load for case in cases for load in (case.full, case.part[0])]
    if kind == "local":
        found = {}
        loads.read_all(request.getfixturevalue("spark"), wanted, found.__setitem__)
    else:
        answers, _ = ask(request.getfixturevalue(kind), wanted, tmp_path / "answers")
        found = dict(enumerate(answers))
    wrong = differences(cases, found)
    assert not wrong, "\n".join(wrong)


@pytest.mark.soak
def test_executors_have_the_package_from_the_archive_alone(standalone, golden, tmp_path):
    path = str(golden("2.4.0", "codecs", "answers").logs)
    (table,), executors = ask(standalone, [Load(path, {})], tmp_path / "answers")
    assert table.num_rows
    folders = {each["folder"] for each in executors}
    assert len(folders) == 2
    for each in executors:
        assert f"{each['folder']}/kafkastore-archive/kafkastore/__init__.py" == each["module"]
        assert "/work-" in each["folder"]


def test_an_archive_has_the_package_and_its_libraries_but_not_the_large_ones(shipped):
    options, unpacked = shipped
    assert options["spark.archives"].endswith("/ks.zip#kafkastore-archive")
    names = {each.name for each in unpacked.iterdir()}
    assert {"kafkastore", "cramjam", "isal", "lz4", "xxhash", "zstandard"} <= names
    assert not {"numpy", "pyarrow", "click", "rich"} & names
    # All reading modules can be imported from there.
    program = (
        "import kafkastore, kafkastore.legacy, kafkastore.migration, sys;"
        "from kafkastore.spark.source.data_source import KafkaStoreDataSource;"
        "print(kafkastore.__file__, kafkastore.legacy.__file__)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": str(unpacked)},
        capture_output=True, text=True, cwd=unpacked.parent,
    )
    assert ran.stdout.split() == [
        f"{unpacked}/kafkastore/__init__.py", f"{unpacked}/kafkastore/legacy/__init__.py"
    ], ran.stderr


def test_an_archive_that_spark_would_not_unpack_is_refused(tmp_path):
    with pytest.raises(ArchiveError):
        archive(tmp_path / "ks.whl")
