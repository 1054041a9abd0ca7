"""The table of `cat` next to kcat in docs/cli.md: what it says is the same, is the same bytes."""
from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from models import kcat

from kafkastore.server import serve

pytestmark = pytest.mark.kafka

PROGRAM = str(Path(sys.executable).with_name("kafkastore"))
DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"
TABLE = DOCUMENT.read_text(encoding="utf-8").split("\n### Next to kcat\n")[1].split("\n## ")[0]
ROWS = re.findall(r"^\| `(.*?)` \| `(.*?)` \| same(?: *|[:,].*) \|$", TABLE, re.MULTILINE)
EVERY_FIELD = r"%t [%p] %o %k %K %s %S %R %T %h%%\n"


@pytest.fixture
def address(sample_root: Path) -> Iterator[str]:
    with serve(sample_root) as served:
        yield served.bootstrap_servers


def by_kcat(address: str, options: str) -> bytes:
    return printed(f"kcat -C -e -q -b {address} {options}")


def printed(command: str) -> bytes:
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, timeout=800, env={"PATH": kcat.search_path()},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b""), command
    return done.stdout


def test_the_table_has_rows_to_compare() -> None:
    assert len(ROWS) == TABLE.count("| same") >= 9


@pytest.mark.parametrize(("theirs", "ours"), ROWS, ids=[theirs for theirs, _ in ROWS])
def test_kcat_prints_the_same_bytes(
    address: str, sample_root: Path, theirs: str, ours: str
) -> None:
    found = printed(f"'{PROGRAM}' cat '{sample_root}' {ours}")
    assert found == by_kcat(address, theirs)
    assert len(found) >= 10


@pytest.mark.golden_cases(
    names=["headers-and-nulls", "codecs"], versions=["2.4.0", "4.1.1"], answers="answers"
)
def test_kcat_prints_every_field_of_golden_records_alike(golden_case: Any) -> None:
    with serve(golden_case.logs) as served:
        for name, answers in golden_case.answers["partitions"].items():
            if not answers.get("records") or not (golden_case.logs / name).exists():
                continue
            topic, _, number = name.rpartition("-")
            ours = printed(f"'{PROGRAM}' cat '{golden_case.logs / name}' -f '{EVERY_FIELD}'")
            theirs = f"-t {topic} -p {number} -f '{EVERY_FIELD}'"
            assert ours == by_kcat(served.bootstrap_servers, theirs), name
