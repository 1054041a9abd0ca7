"""Ctrl-C at any moment of a command: one sentence, exit code 130, no incomplete output."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from models.seed import some

import kafkastore

# Python has started at the first byte; tests/cli/test_launcher.py tests interrupts before that.
FROM_OUR_FIRST_LINE = """
import os
from kafkastore.cli import interrupts
interrupts.end_the_process()
os.write(2, b"!")
from kafkastore.cli.__main__ import main
main()
"""
COMMANDS = {
    "cat as JSON": ("cat", "{root}", "--json"),
    "cat to Parquet": ("cat", "{root}", "-o", "{out}/records.parquet"),
    "verify": ("verify", "{root}", "--threads", "2"),
    "ls": ("ls", "{root}"),
    "migrate": ("migrate", "{root}", "--copy-to", "{out}/copy", "--yes"),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a directory that is large enough to interrupt commands."""
    root = tmp_path_factory.mktemp("interrupts") / "logs"
    records = [
        SimpleNamespace(timestamp=1600000000000 + number, key=None, value=b"v" * 50)
        for number in range(20000)
    ]
    with kafkastore.LogDirWriter(root) as log_dir:
        for partition in range(4):
            log_dir.writer("t", partition).append_records(records)
    return root


@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_shows_one_sentence_and_no_traceback(name: str, root: Path, tmp_path: Path) -> None:
    for number in some(range(8), 3, name):
        out = tmp_path / str(number)
        out.mkdir()
        words = [each.format(root=root, out=out) for each in COMMANDS[name]]
        with subprocess.Popen(
            [sys.executable, "-c", FROM_OUR_FIRST_LINE, *words],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=tmp_path,
        ) as process:
            assert process.stderr is not None
            assert process.stderr.read(1) == b"!"
            time.sleep(0.12 * number)
            process.send_signal(signal.SIGINT)
            err = process.stderr.read().decode()
            code = process.wait(800)
        if code == 130:
            assert err.startswith("kafkastore: interrupted"), (number, err)
            assert err.count("\n") == 1, (number, err)
        else:
            # -SIGINT: interrupted while Python ends; a shell reports 130 for it.
            assert code in (0, 1, -signal.SIGINT), (number, code, err)
            assert "Traceback" not in err
        assert not [each for each in os.listdir(out) if each.endswith(".partial")]


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("in an import", "import interrupting"),
        ("in a finalizer", "Finalized()"),
        ("in what turns it into another error", "turned()"),
        ("while Python ends", "atexit.register(signal.raise_signal, signal.SIGINT)"),
        ("the second time", "twice()"),
    ],
)
def test_ctrl_c_is_reported_wherever_it_occurs(where: str, left: str, tmp_path: Path) -> None:
    (tmp_path / "interrupting.py").write_text(
        "import signal\ntry:\n  signal.raise_signal(signal.SIGINT)\n"
        "except BaseException as error:\n  raise ImportError('a bad install') from error\n"
    )
    script = f"""
import atexit, os, signal, sys
from pathlib import Path
from kafkastore.cli.output.output_file import open_output
from kafkastore.cli import store_command
class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
def turned():
    try:
        signal.raise_signal(signal.SIGINT)
    except BaseException as error:
        raise ValueError("of a library") from error
def twice():
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.raise_signal(signal.SIGINT)
def select(*arguments):
    with open_output(Path("out")):
        {left}
    sys.exit(130)
store_command.select = select
sys.path.append("")
sys.argv = ["kafkastore", "ls", "."]
from kafkastore.cli.__main__ import main
main()
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=800, cwd=tmp_path,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "kafkastore: interrupted\n")
    assert not list(tmp_path.glob(".out*"))


def test_a_process_that_ignores_sigint_ignores_it_in_commands_too(root: Path) -> None:
    script = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
from kafkastore.cli.__main__ import main
from kafkastore.cli import interrupts
interrupts.end_the_process()
signal.raise_signal(signal.SIGINT)
main()
"""
    ran = subprocess.run(
        [sys.executable, "-c", script, "ls", root], capture_output=True, text=True, timeout=800,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_few_modules_are_imported_before_ctrl_c_is_handled() -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import kafkastore.cli.__main__"],
        capture_output=True, text=True, timeout=800, check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert not imported & {"click", "numpy", "pyarrow", "kafkastore.errors", "typing.io"}
    ours = {each for each in imported if each.startswith("kafkastore")}
    assert ours == {
        "kafkastore", "kafkastore.cli", "kafkastore.cli.interrupts", "kafkastore.cli.__main__"
    }
