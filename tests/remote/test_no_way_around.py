"""All code fetches bytes before it reads them: no reader bypasses `kafkastore.reads`."""
from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

READERS = {
    "open", "io.open", "os.open", "os.fdopen", "os.pread", "os.preadv", "os.read", "os.readv",
    "mmap.mmap", "FileIO", "io.FileIO", "np.fromfile", "np.memmap", "shutil.copyfile",
    "os.sendfile", "os.copy_file_range",
}
METHODS = {"read_bytes", "read_text", "readinto"}

#: Modules that read bytes, by why that is correct.
FETCHES_FIRST = {
    "kafkastore/segment/log_file.py",
    "kafkastore/segment/index_file.py",
    "kafkastore/segment/salvage.py",
    "kafkastore/segment/small_file.py",
    "kafkastore/segment/zero_tail.py",
    "kafkastore/changes/new_bytes.py",
    "kafkastore/changes/copy_file.py",
    "kafkastore/changes/file_state.py",
}
ONLY_OPENS = {"kafkastore/segment/regular_file.py"}
NO_FILES_OF_STORES = {
    "kafkastore/remote/sparse_files.py": "it writes what was fetched",
    "kafkastore/remote/mount.py": "the lock of the temporary directory",
    "kafkastore/fs.py": "alters; a remote store is refused before",
    "kafkastore/changes/no_follow.py": "undo areas and what was changed: local",
    "kafkastore/changes/journal.py": "undo areas: local",
    "kafkastore/changes/partition_journals.py": "undo areas: local",
    "kafkastore/changes/directory_lock.py": "a directory, to be locked",
    "kafkastore/recovery/applied_recovery.py": "a writer's directory: local",
    "kafkastore/server/authentication.py": "a list of users",
    "kafkastore/server/groups/state_directory.py": "a server's own state: local",
    "kafkastore/server/sending.py": "sends what was read before, with its checksums",
    "legacy/mtimes.py": "a list that the user wrote",
    "migration/answers.py": "a directory of links and new indexes: see its test",
}
#: Not part of this layer: these folders only read output, options and Spark's own files.
OTHER_FILES = ("kafkastore/cli/", "kafkastore/spark/")


def reading_calls(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of every call that reads a file, or opens one for it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in READERS or name.rpartition(".")[2] in METHODS:
                yield node.lineno, name


def test_every_module_that_reads_is_listed(pytestconfig: pytest.Config) -> None:
    known = FETCHES_FIRST | ONLY_OPENS | NO_FILES_OF_STORES.keys()
    found = [
        f"{name}:{line}: {call}"
        for folder in ("kafkastore", "legacy", "migration")
        for path in sorted((pytestconfig.rootpath / folder).rglob("*.py"))
        if not (name := str(path.relative_to(pytestconfig.rootpath))).startswith(OTHER_FILES)
        and name not in known
        for line, call in reading_calls(path.read_text())
    ]
    assert found == []


def test_every_function_that_reads_fetches_first(pytestconfig: pytest.Config) -> None:
    for name in FETCHES_FIRST:
        tree = ast.parse((pytestconfig.rootpath / name).read_text())
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                text = ast.unparse(function)
                calls = {call for _, call in reading_calls(text)} - {"open", "os.open", "FileIO"}
                if calls and not re.search(r"\b(fetch_bytes|is_remote)\(", text):
                    # A caller in the same file has fetched the bytes.
                    assert (name, function.name) in {
                        ("kafkastore/changes/copy_file.py", "_copy_extent"),
                        ("kafkastore/segment/log_file.py", "_map"),
                    }, (name, function.name)


def test_compiled_code_reads_in_one_function_that_fetches(pytestconfig: pytest.Config) -> None:
    found = {
        str(path.relative_to(pytestconfig.rootpath))
        for kind in ("*.pyx", "*.pxd", "*.h")
        for path in (pytestconfig.rootpath / "kafkastore").rglob(kind)
        if re.search(r"\b(pread|preadv|fread|mmap|read)\([\w.]*descriptor", path.read_text())
    }
    assert found == {"kafkastore/segment/log_window.pxd"}
    for name in found:
        text = (pytestconfig.rootpath / name).read_text()
        assert text.count("pread(") == text.count("if not have("), name


@pytest.mark.parametrize(
    "text", ["open(p, 'rb')", "Path(p).read_bytes()", "os.pread(d, 1, 0)", "mmap.mmap(d, 1)"]
)
def test_a_read_is_detected(text: str) -> None:
    assert list(reading_calls(text))


def test_every_listed_module_still_reads(pytestconfig: pytest.Config) -> None:
    for name in (*FETCHES_FIRST, *ONLY_OPENS, *NO_FILES_OF_STORES):
        assert list(reading_calls((pytestconfig.rootpath / Path(name)).read_text())), name
