"""FIFOs, sockets, devices, directories where a broker has files: told, and never waited for."""
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

# In a process of its own, which an alarm ends where something waits: threads can't be interrupted.
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
#: Commands that tell what is wrong with one partition and go on with the others.
GOES_ON = (
    "ls", "ls of segments", "ls quickly", "cat", "cat committed", "offsets", "compare", "verify",
    "reindex", "retention", "sizing", "migrate",
)


def write(root: Path, special: str | None, make: Callable[[Path], object]) -> Path:
    """Write two partitions, and in place of one file something else."""
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
    """Run command lines one after the other, none longer than 20 s."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL], input=json.dumps(lines), capture_output=True, text=True,
        timeout=800, check=False,
    )
    ran = [Ran(*json.loads(line)) for line in done.stdout.splitlines()]
    assert len(ran) == len(lines), f"{lines[len(ran)]} waited: {done.stderr}"
    return ran


def batched(ran: list[Ran], size: int) -> list[list[Ran]]:
    return [ran[first : first + size] for first in range(0, len(ran), size)]


def command_lines(root: Path) -> list[list[str]]:
    return [[name.split()[0], str(root), *options] for name, options in COMMANDS.items()]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_regular_file_is_reported_or_not_needed_by_every_command(
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
            # Of the marker a broker, too, asks only whether there is one: `verify` tells it. Who
            # holds a lock that is no file, nobody can tell.
            unasked = (".kafka_cleanshutdown", ".lock") if name != "verify" else (".lock",)
            is_told = special in said or special in unasked
            assert is_told or same, f"{where}: {said}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_that_is_no_file_keeps_no_other_partition_from_being_read(
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
        if name in GOES_ON:
            assert "u-0" in ran.out or name == "sizing", f"{name}: {ran}"
            assert ran.err.count("kafkastore: ") <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_dump_reports_what_is_no_file(tmp_path: Path, kind: str) -> None:
    (tmp_path / "t-0").mkdir()
    places = [tmp_path / "t-0" / name for name in (*IN_PARTITION, *IN_LOG_DIR[:-1])]
    for path in places:
        KINDS[kind](path)
    for path, ran in zip(places, run_all([["dump", str(path)] for path in places]), strict=True):
        assert ran.code == 2
        assert f"{path} is {kind}" in ran.err
        assert ran.err.count("\n") == 1


def test_a_link_to_a_file_is_as_good_as_the_file(tmp_path: Path) -> None:
    root = write(tmp_path / "logs", None, os.mkfifo)
    log = root / "t-0" / f"{0:020}.log"
    log.rename(tmp_path / "moved.log")
    log.symlink_to(tmp_path / "moved.log")
    for name, ran in zip(COMMANDS, run_all(command_lines(root)), strict=True):
        assert "regular file" not in ran.out + ran.err, name


#: What may be a link to nothing -> whose bytes then are of the partition.
LINKS = (f"{0:020}.log", f"{0:020}.timeindex", "")
ALTERING = {
    "migrate": [],
    "reindex": [],
    "convert": ["--leader-epoch", "7"],
}
#: Other epochs leave all batches where they were: no index is needed.
NEEDED = [(command, name) for command in ALTERING for name in LINKS
          if (command, name) != ("convert", f"{0:020}.timeindex")]


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", ["a link to nothing", "a link that leads back to itself"])
@pytest.mark.parametrize(("command", "name"), NEEDED)
def test_commands_that_alter_leave_a_partition_with_such_a_link_and_do_the_others(
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


def test_a_partition_that_can_not_be_copied_is_not_in_a_store_either(
    tmp_path: Path, run: Run
) -> None:
    root = write(tmp_path / "logs", None, os.mkfifo)
    for partition in ("t-0", "u-0"):
        (root / partition / f"{0:020}.timeindex").unlink()
    odd = root / "t-0" / f"{0:020}.txnindex"  # of no matter for a time index
    odd.symlink_to("/nowhere")
    url = f"memory://{tmp_path.name}/copy"
    ran = run("migrate", root, "--copy-to", url)
    assert ran.code == 1
    assert f"t-0 is not copied: {odd} is a link to nothing" in ran.err
    assert "changed as planned: 1\n" in ran.out
    assert {row.get("topic") for row in run("ls", url, "--json").lines} - {None} == {"u"}


def test_a_time_that_is_asked_for_before_a_migration_names_no_temporary_file(
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


def test_a_partition_that_is_a_link_to_nothing_is_reported_by_every_command(
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
