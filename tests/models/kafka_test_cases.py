"""The tests of a file, for tables that map Kafka's tests to them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]


@cache
def names_of_tests(path):
    """The names of the tests in a file below ``tests/``, without running it."""
    tree = ast.parse((TESTS / path).read_text())
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
