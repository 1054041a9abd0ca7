"""The package compiled with sanitizers, in separate folders: for memory, or for threads.

The one for memory also reports coverage of compiled code to libFuzzer, a part of atheris: see
`coverage.c`. Without libFuzzer, AddressSanitizer gets the report and ignores it. Only `setup.py`
says what is compiled; a compiler of ours appends the sanitizers' options to its own.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build"

OPTIONS = (
    "-O1",
    "-g1",
    "-w",
    "-fno-wrapv",  # Python's options include -fwrapv, which hides overflows
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
)
THREAD_OPTIONS = ("-O1", "-g1", "-w", "-fno-omit-frame-pointer", "-fsanitize=thread")
COVERAGE_OPTIONS = ("-fsanitize-coverage=trace-pc,trace-cmp",)
RUNTIMES = {
    "gcc": ("libasan.so", "libubsan.so"),
    "clang": (f"libclang_rt.asan-{os.uname().machine}.so",),
}

THREAD_RUNTIMES = {
    "gcc": ("libtsan.so",),
    "clang": (f"libclang_rt.tsan-{os.uname().machine}.so",),
}
#: ThreadSanitizer needs the address layout without ASLR.
WITHOUT_ASLR = ("setarch", "--addr-no-randomize")

#: An abort ends the process at the first report; huge `malloc`s fail, as they would elsewhere.
ASAN_OPTIONS = (
    "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1:verify_asan_link_order=0"
)
UBSAN_OPTIONS = "halt_on_error=1:abort_on_error=1:print_stacktrace=1"


class Compiler(NamedTuple):
    """A C compiler that has sanitizers, and the libraries that its programs are started with."""

    path: str
    options: tuple[str, ...]
    runtimes: tuple[str, ...]


@dataclass(frozen=True)
class SanitizedBuild:
    """A folder of the compiled package, and the environment to run Python with it."""

    packages: Path
    environment: dict[str, str] = field(repr=False)
    launcher: tuple[str, ...] = ()

    def run(self, *arguments: str, reports: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run this Python on the sanitized package, from the root of the sources.

        Sanitizers write to stderr, or into files of a folder: pytest keeps what is written to
        stderr for later, and never shows it when the process is ended.
        """
        environment = dict(self.environment)
        if reports is not None:
            for name in {"ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"} & environment.keys():
                environment[name] += f":log_path={reports / 'report'}"
        return subprocess.run(
            [*self.launcher, sys.executable, *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )


def find_compiler(wanted: dict[str, tuple[str, ...]] = RUNTIMES) -> Compiler:
    """Find gcc, or else clang, with its sanitizers."""
    for name, runtimes in wanted.items():
        path = shutil.which(name)
        if path is None:
            continue
        # For a library that it does not have, a compiler prints only the name.
        found = tuple(_said_by(path, f"-print-file-name={library}") for library in runtimes)
        if all(os.path.isabs(library) for library in found):
            return Compiler(path, ("-shared-libasan",) if name == "clang" else (), found)
    raise RuntimeError(
        "sanitizers need gcc with libasan, libubsan and libtsan, or clang with its runtime"
    )


def build(*, for_fuzzing: bool = False) -> SanitizedBuild:
    """Compile what has changed since the last build, and the module that tests the net itself."""
    folder = BUILD / "sanitized"
    folder.mkdir(parents=True, exist_ok=True)
    compiler = find_compiler()
    source, counters = str(HERE / "coverage.c"), str(folder / "coverage.o")
    _compile([compiler.path, "-O2", "-fPIC", "-c", source, "-o", counters])
    options = (*OPTIONS, *compiler.options, *COVERAGE_OPTIONS, counters)
    libraries = list(compiler.runtimes)
    if for_fuzzing:
        libraries.insert(0, str(libfuzzer()))  # before libasan, which has empty callbacks
    packages = _compile_package(folder, compiler.path, options)
    return SanitizedBuild(
        packages,
        {
            **os.environ,
            "LD_PRELOAD": " ".join(libraries),
            "ASAN_OPTIONS": ASAN_OPTIONS,
            "UBSAN_OPTIONS": UBSAN_OPTIONS,
            "PYTHONMALLOC": "malloc",  # Python's allocator would hide reads past an object
            **_paths(packages),
        },
    )


def build_for_threads() -> SanitizedBuild:
    """Compile the same with ThreadSanitizer."""
    compiler = find_compiler(THREAD_RUNTIMES)
    packages = _compile_package(
        BUILD / "sanitized-for-threads", compiler.path, (*THREAD_OPTIONS, *compiler.options)
    )
    environment = {"LD_PRELOAD": " ".join(compiler.runtimes), "TSAN_OPTIONS": "history_size=4"}
    return SanitizedBuild(
        packages, {**os.environ, **environment, **_paths(packages)}, WITHOUT_ASLR
    )


def _paths(packages: Path) -> dict[str, str]:
    return {
        "PYTHONPATH": os.pathsep.join([str(packages), str(ROOT / "tests")]),
        "PYTHONSAFEPATH": "1",
    }


def _compile_package(folder: Path, compiler: str, options: tuple[str, ...]) -> Path:
    """Compile all modules, and the one that tests the net, into a folder."""
    packages = folder / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "cc"
    script.write_text(f'#!/bin/sh\nexec {compiler} "$@" {" ".join(options)}\n')
    script.chmod(0o755)
    into = ["build_ext", "--build-temp", str(folder / "temp"), "--build-lib", str(packages)]
    environment = {**os.environ, "CC": str(script)}
    copied = ["build_py", "--build-lib", str(packages)]
    _compile([sys.executable, "setup.py", "-q", *into, *copied], env=environment)
    _compile([sys.executable, str(HERE / "setup_self_check.py"), "-q", *into], env=environment)
    return packages


def libfuzzer() -> Path:
    """Find the library in which atheris keeps libFuzzer."""
    found = importlib.util.find_spec("atheris")
    if found is None or found.origin is None:
        raise RuntimeError("fuzzing needs atheris, which the extra `dev` installs")
    return next(Path(found.origin).parent.glob("core_with_libfuzzer.*.so"))


def _said_by(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _compile(command: list[str], **options) -> None:
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, **options)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{result.stdout}{result.stderr}")
