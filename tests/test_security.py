"""SECURITY.md names a test for each promise, and each of these tests exists."""
from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)


def test_every_promise_names_a_test() -> None:
    promises = [
        line
        for table in re.findall(r"^\| promise \| test \|\n(?:\|.*\n)+", TEXT, re.MULTILINE)
        for line in table.splitlines()[2:]
    ]
    assert len(promises) > 20
    assert len(NAMED) == len(promises)
    assert [line for line in promises if not re.search(r"`tests/\S+::\w+` \|$", line)] == []


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_every_test_that_is_named_is_there(path: str, name: str) -> None:
    module = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in {each.name for each in module.body if isinstance(each, ast.FunctionDef)}
