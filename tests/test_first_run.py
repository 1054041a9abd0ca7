"""The message of `make` on a machine that lacks something, before it builds anything."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NEEDS = "kafkastore needs Python 3.11 or newer with venv and a C compiler, but "


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def programs(tmp_path):
    """A folder for PATH without any Python, and a function that adds programs to it."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("sh", "cat", "cc", "gcc", "as", "ld", "make", "touch", "find", "expand", "sed"):
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    return folder


@pytest.fixture
def find_python(pytestconfig, programs):
    """Run the script with that PATH."""

    def find(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [programs / "sh", pytestconfig.rootpath / ".ci" / "find-python", *arguments],
            env={"PATH": str(programs)} | environment, capture_output=True, text=True,
        )

    return find


def without(module: str) -> str:
    """Script of a Python from which a distribution has split a module off."""
    hide = f"import sys; sys.modules['{module}'] = None; "
    return (
        f'if [ "$1" = -c ]; then exec {sys.executable} "$@"; fi\n'
        f'exec {sys.executable} -c "{hide} exec(sys.stdin.read())"'
    )


def assert_refused(ran: subprocess.CompletedProcess[str], what: str) -> None:
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert ran.stderr.count("\n") == 1
    assert ran.stderr.startswith(NEEDS + what)


def test_machine_without_python_is_reported(find_python):
    assert_refused(find_python(), "there is no python3.")


def test_a_requested_python_that_is_missing_is_named(find_python):
    assert_refused(find_python("python3.99"), "there is no python3.99.")


def test_old_python_is_named_with_its_version(find_python, programs):
    program(programs / "python3", "echo 3.9.2")
    assert_refused(find_python(), "python3 is Python 3.9.2.")


def test_launcher_without_its_python_is_no_python(find_python, programs):
    program(programs / "python3", "echo 'version not installed' >&2; exit 127")
    assert_refused(find_python(), "python3 does not start.")


def test_shim_of_a_version_that_is_not_chosen_leads_to_its_python(find_python, programs, tmp_path):
    program(programs / "python3.12", "echo 'python3.12: command not found' >&2; exit 127")
    good = program(tmp_path / "3.12.1" / "python3.12", f'exec {sys.executable} "$@"')
    program(
        programs / "pyenv",
        'case "$PYENV_VERSION $*" in\n'
        '" whence python3.12") echo 3.12.0; echo 3.12.1 ;;\n'
        f'*" which python3.12") echo "{tmp_path}/$PYENV_VERSION/python3.12" ;;\n'
        "esac",
    )
    ran = find_python("python3.12")
    assert (ran.stdout, ran.stderr, ran.returncode) == (f"{good}\n", "", 0)


def test_python_without_venv_names_what_to_install(find_python, programs):
    program(programs / "python3", without("ensurepip"))
    assert_refused(find_python(), "Python 3.")
    assert "has no module ensurepip (Debian, Ubuntu: apt install python3." in find_python().stderr


def test_machine_without_a_compiler_is_reported(find_python):
    ran = find_python(sys.executable, CC="/nonexistent/cc")
    assert_refused(ran, "there is no C compiler (/nonexistent/cc does not compile; ")


def test_compiler_that_does_not_work_is_none(find_python, programs):
    broken = program(programs / "broken-cc", "exit 1")
    assert_refused(find_python(sys.executable, CC=str(broken)), "there is no C compiler (")


def test_python_without_headers_names_what_to_install(find_python, programs):
    no_header = program(programs / "no-header-cc", 'if grep -q Python.h; then exit 1; fi')
    (programs / "grep").symlink_to(shutil.which("grep"))
    ran = find_python(sys.executable, CC=str(no_header))
    assert_refused(ran, "Python 3.")
    assert "has no header Python.h (Debian, Ubuntu: apt install python3." in ran.stderr


def test_first_python_that_has_all_is_taken(find_python, programs):
    program(programs / "python3", "echo 3.9.2")
    program(programs / "python3.13", without("ensurepip"))
    good = program(programs / "python3.12", f'exec {sys.executable} "$@"')
    ran = find_python()
    assert (ran.stdout, ran.stderr, ran.returncode) == (f"{good}\n", "", 0)


def test_make_says_it_before_it_makes_anything(pytestconfig, programs, tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(pytestconfig.rootpath / ".ci", tree / ".ci")
    shutil.copy(pytestconfig.rootpath / "Makefile", tree)
    for name in ("kafkastore", "legacy", "migration"):
        (tree / name).mkdir()
    (tree / "pyproject.toml").touch()
    (tree / "setup.py").touch()
    before = sorted(tree.iterdir())
    program(programs / "python3", "echo 3.9.2")
    for target in ("run", "test", "check"):
        ran = subprocess.run(
            [programs / "make", target],
            cwd=tree, env={"PATH": str(programs)}, capture_output=True, text=True,
        )
        assert ran.returncode == 2
        assert ran.stderr.startswith(NEEDS + "python3 is Python 3.9.2.\n")
        assert sorted(tree.iterdir()) == before


def test_help_names_every_target(pytestconfig):
    ran = subprocess.run(
        ["make", "help"], cwd=pytestconfig.rootpath, env=os.environ, capture_output=True, text=True
    )
    for target in ("run", "test", "check", "lint", "build", "bench", "clean"):
        assert f"  make {target} " in ran.stdout
