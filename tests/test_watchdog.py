"""A test that makes no progress is ended and named, and the others run."""
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFTEST = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
from models.watchdog import Watchdog
from models.work_units import WorkUnits

def pytest_xdist_make_scheduler(config, log):
    return WorkUnits(config, log)
"""
WATCHED = """
def pytest_configure(config):
    config.pluginmanager.register(Watchdog(config, seconds=2))
"""
#: Where the limit ends a test that makes no progress.
WATCHED_LONG = WATCHED.replace("seconds=2", "seconds=60")
#: Limit of one test alone: others may be slow on a busy machine.
LIMIT = """
import pytest

@pytest.mark.timeout(2)"""
STANDING_STILL = """
def test_stands_still():
    import threading

    locked = threading.Lock()
    locked.acquire()
    waits = threading.Thread(target=locked.acquire)
    waits.start()
    while True:
        try:
            waits.join()
        except BaseException:
            pass

def test_continues():
    pass
"""
WORKING = """
import subprocess, sys, time

LINES = "import time; end = time.monotonic() + 4\\nwhile time.monotonic() < end: pass"

def test_works():
    exec(LINES)

def test_waits_for_a_process_that_works():
    subprocess.run([sys.executable, "-c", LINES], check=True)
"""
STOPPED = """
import pytest

@pytest.mark.timeout(3)
def test_is_stopped():
    import os, subprocess, time

    this = os.getpid()
    subprocess.run(["sh", "-c", f"kill -STOP {this}; sleep 5; kill -CONT {this}"], check=True)
    time.sleep(0.5)  # the watchdog looks
"""


def run(
    folder: Path, tests: str, conftest: str = CONFTEST + WATCHED, processes: int = 1
) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_it.py").write_text(tests)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", folder,
         "-p", "no:cacheprovider", f"--basetemp={folder}/tmp", "-n", str(processes),
         "--dist=loadfile", folder],
        cwd=folder, capture_output=True, text=True, timeout=800, check=False,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_a_test_that_makes_no_progress_is_ended_and_named(tmp_path):
    ran = run(tmp_path, STANDING_STILL)
    assert ran.returncode == 1
    assert "crashed while running 'test_it.py::test_stands_still'" in ran.stdout
    assert "1 failed, 1 passed" in ran.stdout
    assert "in test_stands_still" in ran.stderr + ran.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
@pytest.mark.soak
def test_tests_that_work_longer_are_not_ended(tmp_path):
    ran = run(tmp_path, WORKING)
    assert (ran.returncode, ran.stdout.count("2 passed")) == (0, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_the_time_in_which_a_process_is_stopped_does_not_count(tmp_path):
    conftest = CONFTEST + WATCHED.replace("seconds=2", "seconds=3")
    ran = run(tmp_path, STOPPED, conftest=conftest)
    assert (ran.returncode, ran.stdout.count("1 passed")) == (0, 1), ran.stdout


def test_a_test_that_never_ends_is_ended_and_named(tmp_path):
    ran = run(tmp_path, LIMIT + STANDING_STILL, conftest=CONFTEST + WATCHED_LONG)
    assert ran.returncode == 1
    assert "crashed while running 'test_it.py::test_stands_still'" in ran.stdout
    assert "1 failed, 1 passed" in ran.stdout


@pytest.mark.soak
def test_all_other_tests_run_once_however_a_process_ends(tmp_path):
    for number in range(6):  # files of few tests come first
        (tmp_path / f"test_{number}.py").write_text("def test_before(): pass")
    after = "".join(f"\ndef test_after_{number}(): pass" for number in range(3))
    tests, conftest = LIMIT + STANDING_STILL + after, CONFTEST + WATCHED_LONG
    ran = run(tmp_path, tests, conftest=conftest, processes=2)
    assert ran.returncode == 1
    assert "crashed while running 'test_it.py::test_stands_still'" in ran.stdout
    assert "1 failed, 10 passed" in ran.stdout
