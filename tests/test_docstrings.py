"""Docstrings: a first line that is read at a glance, and few lines for internal functions."""
import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("kafkastore", "legacy", "migration")
SOURCES = [
    path.relative_to(ROOT)
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".pyi", ".pyx", ".pxd")
]
LONGEST_FIRST_LINE = 79
MOST_LINES_OF_INTERNAL = 3
# In Cython: quotes at the start of a line, of a file or after the colon of a definition.
CYTHON = re.compile(
    r'(?:\A|^[ \t]*(?:cdef|cpdef|def|class)\b(?:[^"#]|"[^"\n]*"(?!"))*?:\n)\s*r?"""(.*)',
    re.MULTILINE,
)


def docstrings(source: str) -> Iterator[tuple[str, bool, str]]:
    """Yield the name, whether it is internal, and the docstring of all that has one."""
    pending: list[tuple[ast.AST, bool]] = [(ast.parse(source), False)]
    while pending:
        node, is_internal = pending.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                yield getattr(node, "name", "module"), is_internal and is_function, text
        for child in ast.iter_child_nodes(node):
            name = getattr(child, "name", None) or ""
            is_nested = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            # A private class may be the base of public ones, with public methods.
            is_private = name.startswith("_") and not name.endswith("__")
            pending.append((child, is_nested or is_private))


def faults(path: Path) -> list[str]:
    """Name what is too long in a file."""
    source = (ROOT / path).read_text(encoding="utf-8")
    if path.suffix in (".pyx", ".pxd"):
        found = [("", False, first.split('"""')[0].rstrip()) for first in CYTHON.findall(source)]
    else:
        found = list(docstrings(source))
    said = []
    for name, is_internal, text in found:
        # A table is read faster than the sentences that it stands for.
        lines = [line for line in text.splitlines() if line.strip() and line[0] != "|"]
        first = lines[0] if lines else ""
        if len(first) > LONGEST_FIRST_LINE:
            said.append(f"{name}: {len(first)} characters: {first}")
        if is_internal and len(lines) > MOST_LINES_OF_INTERNAL:
            said.append(f"{name}: {len(lines)} lines")
    return said


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_docstrings_are_short(path: Path) -> None:
    assert faults(path) == []


def test_faults_are_found(tmp_path: Path) -> None:
    long = "x" * 80
    (tmp_path / "long.py").write_text(
        f'"""{long}"""\ndef _f():\n    """A.\n\n    B.\n    C.\n    D."""\n'
    )
    assert len(faults(tmp_path / "long.py")) == 2
    (tmp_path / "long.pyx").write_text(f'cdef int f(\n    int a,\n):\n    """{long}"""\n')
    assert len(faults(tmp_path / "long.pyx")) == 1
