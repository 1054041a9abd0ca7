"""A test that stands still is ended and named, and the others are run."""
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STANDING_STILL = """
import threading

def test_stands_still():
    locked = threading.Lock()
    locked.acquire()
    waits = threading.Thread(target=locked.acquire)
    waits.start()
    while True:
        try:
            waits.join()
        except BaseException:
            pass

def test_goes_on():
    pass
"""


@pytest.mark.timeout(300)  # it starts pytest and a worker of its own
def test_a_test_that_stands_still_is_ended_and_named(tmp_path):
    (tmp_path / "test_it.py").write_text(STANDING_STILL)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path,
         "-p", "no:cacheprovider", "-o", "timeout=2", "-n", "1", tmp_path],
        cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False,
    )
    assert ran.returncode == 1
    assert "crashed while running 'test_it.py::test_stands_still'" in ran.stdout
    assert "1 failed, 1 passed" in ran.stdout
