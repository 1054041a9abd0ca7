"""The installed command: a launcher that blocks SIGINT until Python has started."""
from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("kafkastore")
LAUNCHER = Path(__file__).parents[2] / "kafkastore" / "cli" / "launcher" / "kafkastore"
#: GNU's env, which Linux has.
CAN_BLOCK = sys.platform == "linux"

#: Replaces `kafkastore-python`: prints its arguments and the blocked signals.
PRINTING_PROGRAM = f"""#!{sys.executable}
import signal, sys
print(sys.argv[1:], sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))))
"""
#: `sitecustomize`: Python runs it before any program.
AT_START = """
import atexit, os, signal
def show(when):
    blocked = sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, [])))
    os.write(1, f"{when} {blocked}\\n".encode())
show("start")
atexit.register(show, "end")
if "INTERRUPTED" in os.environ:
    os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Install the launcher as pip does, next to a program that prints how it is run."""
    folder = tmp_path / "some where" / "bin"
    folder.mkdir(parents=True)
    python = folder / "kafkastore-python"
    python.write_text(PRINTING_PROGRAM)
    python.chmod(0o755)
    return Path(shutil.copy(LAUNCHER, folder))


@pytest.mark.parametrize("way", ["path", "relative", "in folder", "PATH", "link", "sh", "sh PATH"])
def test_launcher_finds_the_program_next_to_it(way: str, installed: Path, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    (links / "again").symlink_to(installed)
    (links / "kafkastore").symlink_to("again")
    path = f"{installed.parent}{os.pathsep}{os.environ['PATH']}"
    command, folder = {
        "path": ([installed], "/"),
        "relative": ([os.path.relpath(installed, tmp_path)], tmp_path),
        "in folder": (["./kafkastore"], installed.parent),
        "PATH": (["env", "kafkastore"], "/"),
        "link": (["links/kafkastore"], tmp_path),
        "sh": (["sh", installed], "/"),
        "sh PATH": (["sh", "-c", "kafkastore \"$@\"", "sh"], "/"),
    }[way]
    ran = subprocess.run(
        [*command, "cat", "", "a b", "--", "-x"], cwd=folder, env={**os.environ, "PATH": path},
        capture_output=True, text=True,
    )
    blocked = [int(signal.SIGINT)] if CAN_BLOCK else []
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == f"{['cat', '', 'a b', '--', '-x']} {blocked}\n"


@pytest.fixture
def other_env(tmp_path: Path) -> Path:
    """Return a folder with an `env` that can't block signals, such as that of macOS."""
    folder = tmp_path / "other env"
    folder.mkdir()
    (folder / "env").write_text("#!/bin/sh\necho 'illegal option' >&2\nexit 125\n")
    (folder / "env").chmod(0o755)
    return folder


def test_launcher_runs_where_no_program_can_block_signals(installed: Path, other_env: Path) -> None:
    for folder in (other_env, other_env / "none"):
        ran = subprocess.run(
            [installed, "ls"], env={"PATH": str(folder)}, capture_output=True, text=True
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "['ls'] []\n", "")


@pytest.mark.skipif(shutil.which("perl") is None, reason="there is no Perl")
def test_perl_blocks_the_signal_where_env_cannot(installed: Path, other_env: Path) -> None:
    (other_env / "perl").symlink_to(shutil.which("perl"))
    words = ["cat", "", "a b", "$x", "--", "-e"]
    ran = subprocess.run(
        [installed, *words], env={"PATH": str(other_env)}, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == f"{words} {[int(signal.SIGINT)]}\n"


def run_program(tmp_path: Path, *words: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the installed command with `AT_START` as `sitecustomize`."""
    (tmp_path / "sitecustomize.py").write_text(AT_START)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)} | options.pop("env", {})
    return subprocess.run(
        [PROGRAM, *words], env=environment, capture_output=True, text=True, timeout=800, **options
    )


@pytest.mark.skipif(sys.platform != "linux", reason="only GNU's env can block a signal")
class TestOnLinux:
    @pytest.mark.parametrize("words", [("--version",), ("--help",), ("ls", "."), ("cat", "x")])
    def test_ctrl_c_while_python_starts_is_one_sentence(self, words, tmp_path):
        ran = run_program(tmp_path, *words, env={"INTERRUPTED": "1"})
        assert (ran.returncode, ran.stderr) == (130, "kafkastore: interrupted\n")

    def test_child_processes_do_not_inherit_the_blocked_signal(self, tmp_path):
        ran = run_program(tmp_path, "--version")
        shown = ran.stdout.splitlines()
        assert (shown[0], shown[-1]) == (f"start [{int(signal.SIGINT)}]", "end []")

    def test_an_ignored_sigint_stays_ignored(self, tmp_path):
        ran = run_program(
            tmp_path, "--version", env={"INTERRUPTED": "1"},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        assert ran.stdout.splitlines()[-1] == "end []"

    def test_ctrl_c_at_any_moment_after_the_start_shows_no_traceback(self, tmp_path):
        interrupted = 0
        for milliseconds in range(0, 60, 3):
            with subprocess.Popen(
                [PROGRAM, "ls", tmp_path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            ) as process:
                assert process.stderr is not None
                time.sleep(milliseconds / 1000)
                if process.poll() is not None:
                    continue  # this process was stopped meanwhile
                interrupted += 1
                process.send_signal(signal.SIGINT)
                err = process.stderr.read().decode()
            # -SIGINT: interrupted before Python started.
            assert (process.returncode, err) in (
                (130, "kafkastore: interrupted\n"), (-signal.SIGINT, "")
            ), milliseconds
        assert interrupted > 10
