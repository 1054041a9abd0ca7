"""Tab completion, as the shells ask for it."""
from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from cli.running import Run

from kafkastore.cli.command_list import COMMANDS

PROGRAMS = Path(sys.executable).parent
ENVIRONMENT = {"PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}", "HOME": "/nowhere"}
#: The hook of bash, as bash calls it; paths are left to bash itself.
ASK_BASH = """
eval "$(kafkastore completion bash)"
compopt() { COMPREPLY+=("$@"); }
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_kafkastore_completion kafkastore
printf '%s\\n' "${COMPREPLY[@]}"
"""


def ask_bash(*words: object) -> list[str]:
    ran = subprocess.run(
        ["bash", "--norc", "-c", ASK_BASH, "bash", *map(str, words)],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=800, check=True,
    )
    assert ran.stderr == ""
    return ran.stdout.split()


@pytest.mark.parametrize("topic", ["", "up-"])
def test_bash_completes_topics_of_the_directory(sample_root: Path, topic: str) -> None:
    found = ask_bash("kafkastore", "cat", sample_root, "--topic", topic)
    expected = ["up", "up-compressed", "up-empty"]
    assert found == [each for each in expected if each.startswith(topic)]


def test_bash_completes_partitions_of_the_topic(sample_root: Path) -> None:
    words = ("kafkastore", "ls", sample_root)
    assert ask_bash(*words, "--partition", "") == ["0", "1"]
    assert ask_bash(*words, "--topic", "up-empty", "--partition", "") == ["0"]


def test_bash_completes_commands_options_and_paths() -> None:
    assert ask_bash("kafkastore", "") == [*COMMANDS]
    assert ask_bash("kafkastore", "re") == ["reindex", "repair", "restore", "retention"]
    assert ask_bash("kafkastore", "ls", "--seg") == ["--segments"]
    assert ask_bash("kafkastore", "ls", "any") == ["-o", "default"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_answered_by_their_protocols(
    shell: str, sample_root: Path, run: Run
) -> None:
    script = run("completion", shell).out
    assert f"_KAFKASTORE_COMPLETE={shell}_complete" in script
    line = f"kafkastore cat {shlex.quote(str(sample_root))} --topic up-"
    asked = {"COMP_WORDS": line, "COMP_CWORD": "4" if shell == "zsh" else "up-"}
    ran = subprocess.run(
        [PROGRAMS / "kafkastore"],
        env=ENVIRONMENT | asked | {"_KAFKASTORE_COMPLETE": f"{shell}_complete"},
        capture_output=True, text=True, timeout=800, check=True,
    )
    words = ran.stdout.replace(",", "\n").split()
    assert [each for each in words if each.startswith("up")] == ["up-compressed", "up-empty"]


def test_nothing_is_completed_of_what_cannot_be_listed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "missing", tmp_path / "file", "s3://127.0.0.1.invalid/bucket"):
        assert ask_bash("kafkastore", "cat", path, "--topic", "") == []
    assert ask_bash("kafkastore", "cat", "--topic", "") == []


def test_names_that_are_not_topics_stay_out_of_the_shell(
    sample_root: Path, tmp_path: Path
) -> None:
    for name in ("good", "a b", "$(touch x)", "a\x1b[31m", "a\nplain,b"):
        (tmp_path / f"{name}-0").symlink_to(sample_root / "up-0")
    assert ask_bash("kafkastore", "cat", tmp_path, "--topic", "") == ["good"]


def test_completion_of_commands_imports_none_of_them() -> None:
    code = (
        "import sys; from kafkastore.cli.command_list import cli; "
        "from click.shell_completion import ShellComplete; "
        "found = ShellComplete(cli, {}, 'kafkastore', 'X').get_completions([], 'c'); "
        "assert [each.value for each in found][:2] == ['cat', 'cluster'], found; "
        "assert not any('.commands.' in each for each in sys.modules); "
        "assert 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=800)


def test_an_unknown_shell_is_refused(run: Run) -> None:
    ran = run("completion", "csh")
    assert (ran.code, ran.out) == (2, "")
