"""No code that the garbage collector may run waits for a thread or a lock.

It runs in any thread, also in one that holds a lock, and it ends generators: their `finally`, and
the `with` blocks that they are in.
"""
import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = "kafkastore", "legacy", "migration"
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
#: Code that never waits: files closed after reading, suppressed errors, names put into errors.
SAFE = {"open", "open_log", "open_as_broker", "LogFile", "suppress", "short_errors"}
#: `LogFile` closes a descriptor, as Python's own files do; the others set a flag.
FINALIZERS = {
    ("log_file.py", "LogFile"),
    ("parallel_map.py", "ParallelMap"),
    ("piece_reading.py", "DecodingThreads"),
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def own(node):
    """Yield the nodes of a function's own body."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            yield child
            yield from own(child)


def suspends(statements):
    return any(
        isinstance(node, ast.Yield | ast.YieldFrom)
        for statement in statements
        for node in (statement, *own(statement))
    )


def called(expression):
    function = getattr(expression, "func", expression)
    return getattr(function, "attr", getattr(function, "id", None))


def waits(function):
    """Yield the lines where a generator may be dropped, and more than Python then runs."""
    if any("contextmanager" in ast.unparse(each) for each in function.decorator_list):
        return  # ended by the `with` that it is for
    for node in own(function):
        if isinstance(node, ast.Try) and node.finalbody and suspends(node.body):
            yield node.lineno
        if isinstance(node, ast.With) and suspends(node.body):
            entered = {called(each.context_expr) for each in node.items}
            if not entered <= SAFE:
                yield node.lineno


def functions_of(text):
    return (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))


def test_a_generator_that_is_dropped_runs_nothing_that_waits():
    assert [
        f"{path.relative_to(ROOT)}:{line}"
        for path in SOURCES
        for function in functions_of(path.read_text())
        for line in waits(function)
    ] == []


def test_no_object_has_a_finalizer_that_waits():
    found = set()
    for path in SOURCES:
        text = path.read_text()
        assert "finalize(" not in text, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and "__del__" in {
                getattr(each, "name", None) for each in node.body
            }:
                found.add((path.name, node.name))
    assert found == FINALIZERS


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("with lock:\n    yield 1", 1),
        ("with open(path), lock:\n    yield 1", 1),
        ("with segment.open_log() as file:\n    yield from file", 0),
        ("with lock:\n    pass\n  yield 1", 0),
        ("try:\n    yield 1\n  finally:\n    thread.join()", 1),
        ("try:\n    yield 1\n  except OSError:\n    pass", 0),
    ],
)
def test_waiting_functions_are_found(body, count):
    (function,) = functions_of(f"def generator():\n  {body}")
    assert len(list(waits(function))) == count
