"""Docstrings: a short first line, and few lines for internal functions."""
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
# The modules whose names are public, as docs/design/layers.md says.
PUBLIC_MODULES = (
    "kafkastore/duckdb.py",
    "kafkastore/polars.py",
    "kafkastore/public_names.py",
    "kafkastore/server/__init__.py",
    "kafkastore/spark/__init__.py",
    "kafkastore/spark/jobs/__init__.py",
    "kafkastore/spark/pipeline/__init__.py",
    "legacy/__init__.py",
    "migration/__init__.py",
)
# Functions of `formats` for callers, bases with public methods; a command's docstring is its help.
OTHER_PUBLIC_NAMES = {
    "LogView",
    "_IndexFile",
    "build_batch",
    "build_end_transaction_marker",
    "command",
    "pack_request",
    "pack_response",
    "parse_request",
    "parse_response",
}
LONGEST_FIRST_LINE = 79
MOST_LINES_OF_INTERNAL = 3
SECTION = re.compile("^---+$", re.MULTILINE)
# In Cython: quotes at the start of a line, of a file or after the colon of a definition.
CYTHON = re.compile(
    r'(?:\A|^[ \t]*(?:cdef|cpdef|def|class)\b(?:[^"#]|"[^"\n]*"(?!"))*?:\n)\s*r?"""(.*)',
    re.MULTILINE,
)


def public_names() -> set[str]:
    """Return the names that the public modules import or define, and the other ones."""
    names = set(OTHER_PUBLIC_NAMES)
    for module in PUBLIC_MODULES:
        for node in ast.walk(ast.parse((ROOT / module).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                names.update(each.name for each in node.names)
            elif isinstance(node, ast.FunctionDef):
                names.add(node.name)
    return names


PUBLIC_NAMES = public_names()


def docstrings(source: str) -> Iterator[tuple[str, bool, str]]:
    """Yield the name, whether it is internal, and the docstring of all that has one."""
    pending: list[tuple[ast.AST, bool]] = [(ast.parse(source), False)]
    while pending:
        node, is_public = pending.pop()
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(node, ast.Module | ast.ClassDef) or is_function:
            text = ast.get_docstring(node)
            if text is not None:
                yield getattr(node, "name", "module"), is_function and not is_public, text
        for child in ast.iter_child_nodes(node):
            name = getattr(child, "name", None) or ""
            is_private = name.startswith("_") and not name.endswith("__")
            if isinstance(node, ast.ClassDef) and not isinstance(child, ast.ClassDef):
                pending.append((child, is_public and not is_private))
            elif isinstance(child, ast.ClassDef):
                # The values of public functions are documented in full too.
                is_full = SECTION.search(ast.get_docstring(child) or "") is not None
                pending.append((child, name in PUBLIC_NAMES or is_full))
            else:
                pending.append((child, name in PUBLIC_NAMES))


def faults(path: Path) -> list[str]:
    """Name what is too long in a file."""
    source = (ROOT / path).read_text(encoding="utf-8")
    if path.suffix in (".pyx", ".pxd"):
        found = [("", False, first.split('"""')[0].rstrip()) for first in CYTHON.findall(source)]
    else:
        found = list(docstrings(source))
    said = []
    for name, is_internal, text in found:
        # A table or an example is read faster than the sentences that it stands for.
        prose = text.split("\n>>> ")[0].splitlines()
        lines = [line for line in prose if line.strip() and line[0] != "|"]
        first = lines[0] if lines else ""
        if len(first) > LONGEST_FIRST_LINE:
            said.append(f"{name}: {len(first)} characters: {first}")
        has_source = any(line.startswith("Source: ") for line in lines)
        if is_internal and len(lines) > MOST_LINES_OF_INTERNAL + has_source:
            said.append(f"{name}: {len(lines)} lines")
        if is_internal and SECTION.search(text):
            said.append(f"{name}: sections")
    return said


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_docstrings_are_short(path: Path) -> None:
    assert faults(path) == []


def test_faults_are_found(tmp_path: Path) -> None:
    long = "x" * 80
    (tmp_path / "long.py").write_text(
        f'"""{long}"""\ndef f():\n    """A.\n\n    B.\n    C.\n    D."""\n'
        'class C:\n    def f(self):\n        """A.\n\n        Notes\n        -----\n        """\n'
    )
    assert len(faults(tmp_path / "long.py")) == 3
    (tmp_path / "long.pyx").write_text(f'cdef int f(\n    int a,\n):\n    """{long}"""\n')
    assert len(faults(tmp_path / "long.pyx")) == 1
