"""Repair of logs with unreadable sectors, by Python and by compiled code."""

import sys
from pathlib import Path

import pytest
from models.bad_disk import run_with_bad_disks

CASES = Path(__file__).with_name("bad_disk_repair_cases.py")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has LD_PRELOAD")
def test_every_case_of_a_bad_disk_holds(tmp_path):
    ran = run_with_bad_disks(CASES, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
