"""Install a wheel where neither compiler nor sources are, and run commands and tests there.

usage:  try_wheel.py WHEEL [TEST]... [--run COMMAND]

By default in a fresh environment of the wheel's Python on this machine. COMMAND runs a Python of
another processor or C library, for example `qemu-aarch64-static -L ROOT ROOT/usr/bin/python3.11`,
where ROOT is a root file system of that processor; then pip of this machine installs for it. QEMU
takes hours for all tests: name some.
"""
from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests/golden/4.3.1.tar.xz"
#: What reads and writes log directories: no broker, no Spark, no server.
TESTS = [
    f"tests/{folder}"
    for folder in (
        "formats", "segment", "log", "lookup", "legacy", "migration", "changes", "checks",
        "metadata", "use_cases", "jobs",
    )
]
#: Of these, all but those that need more than a wheel and Python packages.
CHOICE = [
    "-m", "not (kafka or soak or fuzz or sanitizer or server)", "-p", "no:xdist",
    # They ask Kafka's classes or other clients.
    "--ignore-glob=*_against_*", "--ignore-glob=*_of_other_clients.py",
    # They compile a program first.
    "--ignore-glob=*_on_other_processors.py", "--ignore-glob=*_bad_disks.py",
    # Matplotlib has no wheels for musl.
    "--ignore-glob=*_plot.py",
]
#: QEMU's /proc is this machine's, where no test makes progress; and its processes start none.
EMULATED = [
    "-p", "no:watchdog",
    "-k", (
        "not test_the_kernels_are_those_that_this_processor_can_run"
        " and not test_a_bomb_takes_no_memory"
        " and not test_a_million_keys_need_at_most_32_bytes_each_at_the_peak"
    ),
]
TEST_REQUIREMENTS = [
    "hypothesis", "pandas", "pyarrow", "pytest", "pytest-randomly", "pytest-timeout",
    "python-snappy",
]
#: All that is on PATH in an environment of this machine: what commands need, and documents call.
PROGRAMS = ["cp", "env", "head", "readlink", "sh"]
#: Platform tags of other packages that run wherever ours do.
OLDER_TAGS = {
    "manylinux": ["manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014"],
    "musllinux": ["musllinux_1_2", "musllinux_1_1"],
}


def run(*command: str | Path, **options: Any) -> None:
    """Run a command; end if it fails."""
    print("+", shlex.join(map(str, command)), flush=True)
    done = subprocess.run(command, check=False, **options)
    if done.returncode:
        sys.exit(f"{command[0]}: exit code {done.returncode}")


def link_programs(folder: Path) -> None:
    """Make a folder for PATH that has neither compilers nor git and Java."""
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).symlink_to(str(shutil.which(name)))


def install_here(wheel: Path, work: Path) -> list[str | Path]:
    """Install into a fresh environment of this machine, and test the installation."""
    version = wheel.name.split("-")[2].removeprefix("cp")
    name = f"python{version[0]}.{version[1:]}"
    found = subprocess.run(
        ["sh", ROOT / ".ci/find-python", name],
        env=os.environ | {"CC": "true"},  # no compiler is needed
        check=False, stdout=subprocess.PIPE, text=True,
    )
    if found.returncode:
        sys.exit(found.returncode)
    run(found.stdout.strip(), "-m", "venv", work / "venv")
    python = work / "venv/bin/python"
    pip: list[str | Path] = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    # lz4 has no wheels for musl.
    compiled = ["--no-binary", "lz4"] if "-musllinux" in wheel.name else []
    run(*pip, "--only-binary", ":all:", *compiled, wheel)
    nothing = {"PATH": "/nonexistent"}
    run(python, "-W", "error", ROOT / ".ci/import_test.py", cwd="/", env=nothing)
    run(*pip, *TEST_REQUIREMENTS)
    link_programs(work / "programs")
    return ["env", f"PATH={work}/programs", python]


def install_elsewhere(wheel: Path, command: list[str], work: Path) -> list[str | Path]:
    """Install next to a Python that this machine only emulates."""
    _, _, tag, _, platform = wheel.stem.split("-")
    libc, machine = platform.partition("linux")[0], platform.split("_", 3)[3]
    platforms = [f"--platform={older}_{machine}" for older in OLDER_TAGS[f"{libc}linux"]]
    run(
        *(sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"),
        *("--target", work / "site", "--only-binary", ":all:", *platforms),
        *(f"--python-version={tag[2:]}", "--implementation=cp", f"--abi={tag}"),
        *(wheel, *TEST_REQUIREMENTS),
    )
    return ["env", f"PYTHONPATH={work}/site", *command]


def try_commands(python: list[str | Path], work: Path) -> None:
    """Run commands on the directory of a real broker."""
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(work / "golden", filter="data")
    for words in ("ls", "verify", "offsets --at 2020-01-01T00:00:00Z", "cat --json"):
        run(
            *python, "-P", "-c", "from kafkastore.cli.__main__ import main; main()",
            *words.split(), work / "golden/codecs/logs", stdout=subprocess.DEVNULL,
        )


def main() -> None:
    """Try one wheel."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("tests", nargs="*", default=TESTS, help="files or folders")
    parser.add_argument("--run", type=shlex.split, help="runs Python; default: an environment here")
    options = parser.parse_args()
    wheel = options.wheel.resolve()
    with tempfile.TemporaryDirectory(prefix="kafkastore-try-") as temporary:
        work = Path(temporary)
        python = (
            install_elsewhere(wheel, options.run, work)
            if options.run
            else install_here(wheel, work)
        )
        try_commands(python, work)
        for folder in ("tests", "docs"):  # tests read the tables of formats
            shutil.copytree(ROOT / folder, work / folder)
        shutil.copy(ROOT / "pyproject.toml", work)
        choice = [*CHOICE, *(EMULATED if options.run else [])]
        run(*python, "-P", "-m", "pytest", "-q", "--timeout=0", *choice, *options.tests, cwd=work)
    print(f"{wheel.name} works")


if __name__ == "__main__":
    main()
