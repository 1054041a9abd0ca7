"""Running commands, in this process and in others."""
from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from cli.running import Ran, Run
from click.testing import CliRunner
from models import metadata_directory as made
from models.metadata_directory import DIRECTORY, TOPIC_ID

from kafkastore import samples
from kafkastore.cli.command_list import cli

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOBODY = 65534

# All imports happen before the user changes: `nobody` may not have access to the interpreter.
AS_NOBODY = """
import json, os, sys
from click.testing import CliRunner
from kafkastore.cli.command_list import cli
warm_up, nobody, lines = json.loads(sys.argv[1])
for name, _, *options in lines:
    for path in (warm_up, warm_up + "/none"):
        CliRunner().invoke(cli, [name, path, *options])
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(nobody)
    os.setuid(nobody)
for line in lines:
    result = CliRunner().invoke(cli, line)
    print(json.dumps([result.exit_code, result.stdout, result.stderr + str(result.exc_info[1])
                      if not isinstance(result.exception, (SystemExit, type(None)))
                      else result.stderr]))
"""


@pytest.fixture
def run() -> Run:
    """Return a function that runs a command line in this process."""

    def run(*arguments: object, stdin: str | None = None) -> Ran:
        result = CliRunner().invoke(
            cli, list(map(str, arguments)), prog_name="kafkastore", input=stdin,
            catch_exceptions=False,
        )
        return Ran(result.exit_code, result.stdout_bytes.decode(), result.stderr)

    return run


@pytest.fixture
def execute(tmp_path: Path) -> Run:
    """Return a function that runs a command line in a process of its own, as a shell does."""

    def execute(*arguments: object, **options: Any) -> Ran:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("kafkastore")), *map(str, arguments)],
            cwd=tmp_path, capture_output=True, text=True, timeout=800, check=False, **options,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return execute


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """Return a directory that every user can read, unlike those of pytest."""
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture
def run_as_nobody(sample_copy: Path, tmp_path: Path) -> Callable[..., list[Ran]]:
    """Return a function that runs command lines as a user without rights, also under root."""

    def run(*lines: list[object]) -> list[Ran]:
        request = [str(sample_copy), NOBODY, [list(map(str, line)) for line in lines]]
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, json.dumps(request)],
            cwd=tmp_path, capture_output=True, text=True, timeout=800, check=True,
        )
        return [Ran(*json.loads(line)) for line in done.stdout.splitlines()]

    return run


@pytest.fixture(scope="session")
def sample_roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the unpacked samples; tests must not alter them."""
    roots = samples.unpack(tmp_path_factory.mktemp("samples") / "samples")
    return {root.name: root for root in roots}


@pytest.fixture
def sample_root(sample_roots: dict[str, Path]) -> Path:
    """Return the sample of Kafka 0.10.0.1: timestamps, no time indexes; must not be altered."""
    return sample_roots["0.10.0.1"]


@pytest.fixture
def sample_copy(sample_root: Path, writable_copy: Callable[[Path], Path]) -> Path:
    """Return a writable copy of that sample."""
    return writable_copy(sample_root)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Start one session before the commands, so that they do not start one each."""
    from kafkastore.spark import session

    module = importlib.util.find_spec("pyspark_kafkastore")
    assert module is not None
    assert module.origin is not None
    with pytest.MonkeyPatch.context() as environment:
        # As in tests/spark, which may use the same session.
        environment.setenv("PYTHONPATH", str(Path(module.origin).parent), prepend=os.pathsep)
        running = session("local[2]", "tests", **{"spark.sql.shuffle.partitions": 2})
    yield running
    running.stop()


@pytest.fixture
def of_a_cluster(tmp_path: Path) -> Path:
    """Return a log directory of broker 1 with the cluster's metadata, and four partitions."""
    root = tmp_path / "logs"
    ids = {"known-0": TOPIC_ID, "known-1": TOPIC_ID, "other-0": DIRECTORY, "nameless-0": None}
    for name, topic_id in ids.items():
        made.write_log(root / name, [b"x", b"y"])
        if topic_id is not None:
            (root / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=Cc\n")
    made.write_log(root / "__cluster_metadata-0", [
        made.topic("known"), made.partition(0), made.partition(1, replicas=(2, 3, 4)),
        made.config("index.interval.bytes", "1", resource="known"),
    ])
    return root
