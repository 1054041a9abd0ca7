"""Examples in documents, run unchanged.

In a block marked ``console``, a shell runs each line ``$ command``, and the lines after it are the
expected output, including stderr. ``...`` matches any text within a line, and on a line by itself
any lines. Blocks marked ``python`` are run unchanged.
"""
from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """One block of a document."""

    language: str
    text: str


class Command(NamedTuple):
    """One command of a console block, and its expected output."""

    line: str
    expected: str


def blocks_of(document: Path) -> list[Block]:
    """List the marked blocks of a document in order."""
    return blocks_in(document.read_text(encoding="utf-8"))


def blocks_in(text: str) -> list[Block]:
    """List the marked blocks of a text in order."""
    return [Block(*found) for found in _BLOCK.findall(text)]


def commands_of(block: Block) -> Iterator[Command]:
    """Split a console block into commands."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        line, _, expected = part.partition("\n")
        yield Command(line, expected)


def run_command(
    command: Command, directory: Path, timeout: float = 800,
    programs: Path = Path(sys.executable).parent,
) -> None:
    """Run a command and compare its output; the folder `programs` has kafkastore's."""
    done = subprocess.run(
        ["sh", "-c", command.line], cwd=directory, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False,
        env=os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
    )
    check_printed(command, done.stdout)


def check_printed(command: Command, text: str) -> None:
    """Compare what a command printed with its expected output."""
    printed = "".join(line.rstrip() + "\n" for line in text.splitlines())
    assert re.fullmatch(_pattern(command.expected), printed), (
        f"$ {command.line}\n{printed}\n--- expected\n{command.expected}"
    )


def run_python(text: str, directory: Path, timeout: float = 800) -> str:
    """Run a script in a new interpreter; return its output.

    It is a file, as programs are: DuckDB takes `python -c` for a session with a person, to whom it
    shows a bar if a query takes more than 2 s.
    """
    with TemporaryDirectory() as folder:
        script = Path(folder, "example.py")
        script.write_text(text)
        done = subprocess.run(
            [sys.executable, "-W", "error::DeprecationWarning:__main__", script], cwd=directory,
            capture_output=True, text=True, timeout=timeout, check=False,
        )
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    return done.stdout


def _pattern(expected: str) -> str:
    """Return a regular expression for an expected output."""
    pattern = ""
    for line in expected.splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*"
        else:
            parts = (re.escape(part) for part in re.split(r" *\.\.\. *|\.\.\.", line.rstrip()))
            pattern += ".*".join(parts) + r"\n"
    return pattern
