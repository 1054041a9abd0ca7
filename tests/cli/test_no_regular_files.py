"""FIFOs, sockets, devices or directories in place of files: reported, and never waited for."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.running import Ran, Run
from models.log_directory import Log, Segment
from models.no_regular_file import KINDS
from models.record_format import Batch, Row
from models.seed import some

# Runs in its own process, which an alarm ends if anything blocks: threads can't be interrupted.
RUN_ALL = """
import json, signal, sys
from click.testing import CliRunner
from kafkastore.cli.command_list import cli
for line in json.load(sys.stdin):
    signal.alarm(20)
    ran = CliRunner().invoke(cli, line, prog_name="kafkastore")
    error = "" if isinstance(ran.exception, (SystemExit, type(None))) else repr(ran.exception)
    print(json.dumps([ran.exit_code, ran.stdout, ran.stderr + error]), flush=True)
"""


IN_PARTITION = (
    *(f"{0:020}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex")),
    f"{20:020}.snapshot",
    "leader-epoch-checkpoint",
)
IN_LOG_DIR = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "meta.properties",
    ".kafka_cleanshutdown",
    ".lock",
)
COMMANDS = {
    "ls": [],
    "ls of segments": ["--segments"],
    "ls quickly": ["--quick"],
    "cat": [],
    "cat committed": ["--isolation", "read_committed"],
    "offsets": ["--at", "150", "--rules", "all"],
    "compare": ["--samples", "2"],
    "verify": [],
    "reindex": ["--dry-run"],
    "retention": ["--now", "100000"],
    "sizing": [],
    "migrate": ["--dry-run"],
}
#: Commands that report a fault of one partition and continue with the others.
CONTINUE_AFTER_FAULT = (
    "ls", "ls of segments", "ls quickly", "cat", "cat committed", "offsets", "compare", "verify",
    "reindex", "retention", "sizing", "migrate",
)


def write(root: Path, special: str | None, make: Callable[[Path], object]) -> Path:
    """Write two partitions, and replace one file by something that is not a regular file."""
    batches = tuple(Batch((Row(n, 10 * n, b"k", bytes(100)),)) for n in range(40))
    log = Log((Segment(0, batches[:20]).recovered(600), Segment(20, batches[20:]).recovered(600)))
    log.write(root)
    (root / "t-0").rename(root / "u-0")
    log.write(root)
    if special is not None:
        path = root / ("t-0" if special in IN_PARTITION else ".") / special
        path.unlink(missing_ok=True)
        make(path)
    return root


def run_all(lines: list[list[str]]) -> list[Ran]:
    """Run command lines one after the other, each for at most 20 s."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL], input=json.dumps(lines), capture_output=True, text=True,
        timeout=800, check=False,
    )
    ran = [Ran(*json.loads(line)) for line in done.stdout.splitlines()]
    assert len(ran) == len(lines), f"{lines[len(ran)]} blocked: {done.stderr}"
    return ran


def batched(ran: list[Ran], size: int) -> list[list[Ran]]:
    return [ran[first : first + size] for first in range(0, len(ran), size)]


def command_lines(root: Path) -> list[list[str]]:
    return [[name.split()[0], str(root), *options] for name, options in COMMANDS.items()]


@pytest.mark.parametrize("kind", some(list(KINDS), 3, __name__))
def test_every_command_reports_or_does_not_need_a_file_that_is_not_regular(
    tmp_path: Path, kind: str
) -> None:
    places = (*IN_PARTITION, *IN_LOG_DIR)
    roots = [write(tmp_path / f"{n}", each, KINDS[kind]) for n, each in enumerate(places)]
    healthy = write(tmp_path / "healthy", None, KINDS[kind])
    lines = [line for root in (healthy, *roots) for line in command_lines(root)]
    expected, *found = batched(run_all(lines), len(COMMANDS))
    for special, root, ran in zip(places, roots, found, strict=True):
        for name, each, usual in zip(COMMANDS, ran, expected, strict=True):
            where = f"{name} of {special}"
            assert each.code in (0, 1, 2), f"{where}: {each.err}"
            said = each.out + each.err
            same = said.replace(str(root), str(healthy)) == usual.out + usual.err
            # Of the marker a broker checks only that it exists; only `verify` reports it. Whether
            # a process holds a lock that is not a file is unknown.
            ignored = (".kafka_cleanshutdown", ".lock") if name != "verify" else (".lock",)
            is_reported = special in said or special in ignored
            assert is_reported or same, f"{where}: {said}"


@pytest.mark.parametrize("kind", some(list(KINDS), 3, __name__))
def test_a_log_that_is_not_a_file_does_not_stop_other_partitions(
    tmp_path: Path, kind: str
) -> None:
    special = IN_PARTITION[0]
    root = write(tmp_path / "logs", special, KINDS[kind])
    for partition in ("t-0", "u-0"):
        (root / partition / f"{0:020}.timeindex").unlink()
    for name, ran in zip(COMMANDS, run_all(command_lines(root)), strict=True):
        said = ran.out + ran.err
        assert f"is {kind} and not a regular file" in said, f"{name}: {ran}"
        assert special in said, f"{name}: {ran}"
        assert ran.code == 1, f"{name}: {ran}"
        if name in CONTINUE_AFTER_FAULT:
            assert "u-0" in ran.out or name == "sizing", f"{name}: {ran}"
            assert ran.err.count("kafkastore: ") <= 1


@pytest.mark.parametrize("kind", some(list(KINDS), 3, __name__))
def test_dump_reports_a_path_that_is_not_a_file(tmp_path: Path, kind: str) -> None:
    (tmp_path / "t-0").mkdir()
    places = [tmp_path / "t-0" / name for name in (*IN_PARTITION, *IN_LOG_DIR[:-1])]
    for path in places:
        KINDS[kind](path)
    for path, ran in zip(places, run_all([["dump", str(path)] for path in places]), strict=True):
        assert ran.code == 2
        assert f"{path} is {kind}" in ran.err
        assert ran.err.count("\n") == 1


def test_a_link_to_a_file_is_used_as_the_file(tmp_path: Path) -> None:
    root = write(tmp_path / "logs", None, os.mkfifo)
    log = root / "t-0" / f"{0:020}.log"
    log.rename(tmp_path / "moved.log")
    log.symlink_to(tmp_path / "moved.log")
    for name, ran in zip(COMMANDS, run_all(command_lines(root)), strict=True):
        assert "regular file" not in ran.out + ran.err, name


#: Files of a partition, or "" for its directory, that may be broken links.
LINKS = (f"{0:020}.log", f"{0:020}.timeindex", "")
ALTERING = {
    "migrate": [],
    "reindex": [],
    "convert": ["--leader-epoch", "7"],
}
#: Changed epochs do not move batches: no index is needed.
NEEDED = [(command, name) for command in ALTERING for name in LINKS
          if (command, name) != ("convert", f"{0:020}.timeindex")]


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", ["a link to nothing", "a link that leads back to itself"])
@pytest.mark.parametrize(("command", "name"), NEEDED)
def test_altering_commands_skip_a_partition_with_a_broken_link_and_alter_the_others(
    tmp_path: Path, run: Run, command: str, name: str, kind: str
) -> None:
    root = write(tmp_path / "logs", None, os.mkfifo)
    for partition in ("t-0", "u-0"):
        (root / partition / f"{0:020}.timeindex").unlink()
    path = root / "t-0" / name if name else root / "t-0"
    if not name:
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    KINDS[kind](path)
    healthy, bad = contents(root / "u-0"), contents(root / "t-0") if name else {}
    line = [command, root, *ALTERING[command]]
    copy = tmp_path / "copy"
    for options in (["--dry-run"], ["--copy-to", copy], ["--in-place", "--yes"]):
        ran = run(*line, *options)
        assert ran.code == 1, ran
        assert ran.err.count("kafkastore: t-0") == 1, ran
        assert f"{path} is {kind}" in ran.err
        assert "Errno" not in ran.out + ran.err
        if "--dry-run" in options:
            assert f"u-0/{0:020}" in ran.out
            assert contents(root / "u-0") == healthy
    assert contents(root / "u-0") != healthy
    assert contents(root / "u-0").keys() == {
        root / path.relative_to(copy) for path in contents(copy / "u-0")
    }
    assert not (copy / "t-0").exists()
    assert not name or contents(root / "t-0") == bad
    assert path.is_symlink()
    only_this = run(*line, "--topic", "t", "--dry-run")
    assert only_this.code == 2
    assert f"{path} is {kind}" in only_this.err


def test_a_partition_that_cannot_be_copied_is_not_in_an_object_store_either(
    tmp_path: Path, run: Run
) -> None:
    root = write(tmp_path / "logs", None, os.mkfifo)
    for partition in ("t-0", "u-0"):
        (root / partition / f"{0:020}.timeindex").unlink()
    odd = root / "t-0" / f"{0:020}.txnindex"  # not needed for a time index
    odd.symlink_to("/nowhere")
    url = f"memory://{tmp_path.name}/copy"
    ran = run("migrate", root, "--copy-to", url)
    assert ran.code == 1
    assert f"t-0 is not copied: {odd} is a link to nothing" in ran.err
    assert "changed as planned: 1\n" in ran.out
    assert {row.get("topic") for row in run("ls", url, "--json").lines} - {None} == {"u"}


def test_answers_before_a_migration_never_name_a_temporary_file(
    tmp_path: Path, run: Run
) -> None:
    root = write(tmp_path / "logs", None, os.mkfifo)
    (root / "t-0" / f"{0:020}.timeindex").unlink()
    path = root / "t-0" / f"{20:020}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    (root / "t-0" / f"{0:020}.txnindex").symlink_to("/nowhere")
    ran = run("migrate", root, "--dry-run", "--json")
    for row in ran.lines:
        if row["kind"] == "unanswered":
            assert str(root / "t-0") in row["problem"]
    assert "kafkastore-" not in (ran.out + ran.err).replace(str(tmp_path), "")


def test_every_command_reports_a_partition_that_is_a_broken_link(
    tmp_path: Path, run: Run
) -> None:
    root = write(tmp_path / "logs", None, os.mkfifo)
    shutil.rmtree(root / "t-0")
    (root / "t-0").symlink_to("/nowhere")
    for name, options in COMMANDS.items():
        if name == "ls quickly":
            continue
        ran = run(name.split()[0], root, *options)
        assert ran.code == 1, f"{name}: {ran}"
        assert f"{root / 't-0'} is a link to nothing" in ran.err, f"{name}: {ran}"
