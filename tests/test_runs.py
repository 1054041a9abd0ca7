"""The seed of a run repeats it; tests that share a Spark session share a process."""
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
DRAWS = """
import random

from hypothesis import given, settings, strategies
from models.seed import SEED

def test_draws():
    drawn = []

    @settings(max_examples=5)
    @given(strategies.integers())
    def draw(number):
        drawn.append(number)

    draw()
    print("drawn", SEED, random.random(), drawn)
"""
CHOOSES = """
import os

import pytest
from models.seed import SEED

@pytest.mark.parametrize("other", range(4))
@pytest.mark.parametrize("seed", [SEED])
def test_chosen(seed, other):
    assert os.environ["KAFKASTORE_SEED"] == str(seed)
"""
SPARK = """
import pytest

@pytest.fixture(scope="session")
def spark():
    pass

def test_of_spark(spark):
    pass
"""


@pytest.fixture
def run(tmp_path):
    """A function that runs the tests in a folder with the settings of these."""

    def run(*options, status=0):
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-c", TESTS.parent / "pyproject.toml", "--rootdir",
             tmp_path, "-p", "conftest", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/tmp",
             *options, tmp_path],
            cwd=TESTS, capture_output=True, text=True, timeout=800, check=False,
        )
        assert ran.returncode == status, ran.stdout + ran.stderr
        return ran.stdout

    return run


def test_a_run_draws_a_seed_and_is_repeated_by_it(tmp_path, run):
    (tmp_path / "test_it.py").write_text(DRAWS)
    first = run("-s")
    seed = re.search("--randomly-seed=([0-9]+)", first)[1]
    drawn = re.search("drawn .*", first)[0]
    assert drawn.startswith(f"drawn {seed} ")
    assert drawn in run("-s", f"--randomly-seed={seed}")
    other = re.search("drawn .*", run("-s"))[0]
    assert other.split(maxsplit=2)[2] != drawn.split(maxsplit=2)[2]


def test_all_processes_of_a_run_have_the_seed_that_it_drew(tmp_path, run):
    (tmp_path / "test_it.py").write_text(CHOOSES)
    printed = run("-v", "-n", "2")
    seed = re.search("--randomly-seed=([0-9]+)", printed)[1]
    assert len(re.findall(rf"PASSED .*::test_chosen\[{seed}-\d\]", printed)) == 4


def test_a_failure_shows_the_command_that_repeats_it(tmp_path, run):
    (tmp_path / "test_it.py").write_text("def test_fails():\n    raise OSError\n")
    for processes in ([], ["-n", "1"]):
        printed = run("--randomly-seed=7", *processes, status=1).splitlines()
        assert 'make test SEED=7 ARGS="test_it.py::test_fails"' in printed


def test_the_command_for_a_marked_test_chooses_its_mark(tmp_path, run):
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n@pytest.mark.soak\ndef test_fails():\n    raise OSError\n"
    )
    printed = run("--randomly-seed=7", "--in-full", "-m", "not soak", "-m soak", status=1)
    assert 'make test SEED=7 ARGS="-m soak --in-full test_it.py::test_fails"' in printed


def test_tests_of_a_session_start_first_and_in_one_process(tmp_path, run):
    for name in ("b", "d", "f"):
        (tmp_path / f"test_{name}.py").write_text(SPARK)
    for name, count in (("a", 30), ("c", 8), ("e", 4)):
        tests = [f"def test_{number}():\n    pass\n" for number in range(count)]
        (tmp_path / f"test_{name}.py").write_text("\n".join(tests))
    output = run("-v", "-n", "2", "--dist=loadfile")
    ran = re.findall(r"\[(gw\d)\].* PASSED .*test_(\w)\.py", output)
    assert len(ran) == 3 + 30 + 8 + 4
    (process,) = {process for process, file in ran if file in "bdf"}
    assert [file in "bdf" for its, file in ran if its == process][:3] == [True] * 3
    files = [file for its, file in ran if its != process]
    assert files[:4] == ["e"] * 4
