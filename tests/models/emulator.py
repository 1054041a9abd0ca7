"""Programs for other processors: a compiler, and QEMU to run them; fetched if none is installed.

Nothing is installed, and root is not needed: fetched files are kept in one folder per user.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

TOOLS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kafkastore", "tools")
ZIG = "0.17.0"  # of PyPI's ziglang: a Clang with the C libraries of many processors


def compile_for(processor, source, program, *flags):
    """Compile a C file into a program that needs no library of this processor's."""
    command = [*_compiler(processor), "-O2", *flags, "-o", str(program), str(source)]
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(TOOLS / "zig-cache")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return program


def run_as(processor, model, program):
    """The output and exit code of a program on a processor model (QEMU's name)."""
    command = [program]
    if not (_is_this_machine(processor) and model is None):
        command = [_qemu(processor), "-cpu", model or "max", program]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.split("\n")[:-1], done.returncode


def _is_this_machine(processor):
    return platform.machine().replace("arm64", "aarch64") == processor


def _compiler(processor):
    if _is_this_machine(processor):
        return ["cc"]
    if found := shutil.which(f"{processor}-linux-gnu-gcc"):
        return [found, "-static"]
    return [
        *(sys.executable, _fetched(f"ziglang-{ZIG}", _fetch_zig) / "ziglang", "cc"),
        *("-static", "-target", f"{processor}-linux-musl"),
    ]


def _qemu(processor):
    names = f"qemu-{processor}-static", f"qemu-{processor}"
    for name in names:
        if found := shutil.which(name):
            return found
    return _fetched("qemu", _fetch_qemu) / names[0]


def _fetched(name, fetch):
    """The folder of a tool, filled by ``fetch`` if it is missing."""
    folder = TOOLS / name
    if not folder.is_dir():
        TOOLS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=TOOLS, prefix="fetching-") as fetching:
            complete = Path(fetching, name)
            complete.mkdir()
            try:
                fetch(complete)
            except (OSError, subprocess.CalledProcessError) as error:
                said = getattr(error, "stderr", None) or error
                pytest.fail(f"{name} is neither on the PATH nor can it be fetched: {said}")
            try:
                complete.rename(folder)
            except OSError:  # another process was faster
                if not folder.is_dir():
                    raise
    return folder


def _fetch_zig(folder):
    _run(
        *(sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"),
        *("--target", folder, f"ziglang=={ZIG}"),
    )


def _fetch_qemu(folder):
    """Unpack Debian's or Ubuntu's package, by lists of our own: the system's may be empty."""
    with tempfile.TemporaryDirectory() as state:
        apt = [
            *("apt-get", "-q", "-o", f"Dir::State={state}", "-o", f"Dir::Cache={state}"),
            *("-o", "Dir::State::status=/var/lib/dpkg/status", "-o", "APT::Sandbox::User="),
        ]
        Path(state, "lists/partial").mkdir(parents=True)
        _run(*apt, "update")
        # Since Debian 13 the second has nothing but links to the first; before, it has programs.
        for package in ("qemu-user", "qemu-user-static"):
            _run(*apt, "download", package, cwd=state)
            (archive,) = Path(state).glob(f"{package}_*.deb")
            _run("dpkg-deb", "-x", archive, state)
        for name in ("qemu-aarch64-static", "qemu-x86_64-static"):
            shutil.copy(Path(state, "usr/bin", name), folder)


def _run(*command, cwd=None):
    subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True)
