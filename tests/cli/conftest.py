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

from kafkastore import samples
from kafkastore.cli.command_list import cli

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOBODY = 65534

# What they need is imported before the user changes: the interpreter may lie where nobody may look.
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
    """A function that runs a command line in this process."""

    def run(*arguments: object, stdin: str | None = None) -> Ran:
        result = CliRunner().invoke(
            cli, list(map(str, arguments)), prog_name="kafkastore", input=stdin,
            catch_exceptions=False,
        )
        return Ran(result.exit_code, result.stdout_bytes.decode(), result.stderr)

    return run


@pytest.fixture
def execute(tmp_path: Path) -> Run:
    """A function that runs a command line in a process of its own, like a shell would."""

    def execute(*arguments: object, **options: Any) -> Ran:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("kafkastore")), *map(str, arguments)],
            cwd=tmp_path, capture_output=True, text=True, timeout=800, check=False, **options,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return execute


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user may look into, unlike those of pytest."""
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture
def run_as_nobody(sample_copy: Path, tmp_path: Path) -> Callable[..., list[Ran]]:
    """A function that runs command lines as a user without rights, whoever runs the tests."""

    def run(*lines: list[object]) -> list[Ran]:
        asked = [str(sample_copy), NOBODY, [list(map(str, line)) for line in lines]]
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, json.dumps(asked)],
            cwd=tmp_path, capture_output=True, text=True, timeout=800, check=True,
        )
        return [Ran(*json.loads(line)) for line in done.stdout.splitlines()]

    return run


@pytest.fixture(scope="session")
def sample_roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The samples, unpacked; to be read only."""
    roots = samples.unpack(tmp_path_factory.mktemp("samples") / "samples")
    return {root.name: root for root in roots}


@pytest.fixture
def sample_root(sample_roots: dict[str, Path]) -> Path:
    """The sample of Kafka 0.10.0.1: timestamps, no time indexes; to be read only."""
    return sample_roots["0.10.0.1"]


@pytest.fixture
def sample_copy(sample_root: Path, writable_copy: Callable[[Path], Path]) -> Path:
    """A copy of that sample to alter."""
    return writable_copy(sample_root)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session that is there before the commands, so that they do not start one each."""
    from kafkastore.spark import session

    module = importlib.util.find_spec("pyspark_kafkastore")
    assert module is not None
    assert module.origin is not None
    with pytest.MonkeyPatch.context() as environment:
        # As in tests/spark, where the same session may be used.
        environment.setenv("PYTHONPATH", str(Path(module.origin).parent), prepend=os.pathsep)
        running = session("local[2]", "tests", **{"spark.sql.shuffle.partitions": 2})
    yield running
    running.stop()
