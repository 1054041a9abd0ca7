"""Commands that are killed at random moments, and other commands that finish or undo them."""

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from changes import jobs
from changes.killed_command import wait
from changes.power_loss import RecordedDisk
from changes.small_store import contents
from models.seed import SEED

from kafkastore.changes.areas import find_journals

INTERVAL = ["--index-interval-bytes", str(jobs.INDEX_INTERVAL_BYTES)]
COMMANDS = {
    "migrate auto": ["migrate", "ROOT", "--in-place", "--yes", *INTERVAL],
    "reindex": ["reindex", "ROOT", "--in-place", "--yes", *INTERVAL],
    "repair skip": ["repair", "ROOT", "--on-corrupt", "skip", "--in-place", "--yes", *INTERVAL],
    "convert": ["convert", "ROOT", "--codec", "gzip", "--in-place", "--yes", *INTERVAL],
}
PARTITIONS = 4
ROUNDS = 25
# How many of these rounds, for each command, start a new interpreter.
NEW_PROCESSES = 3


class Commands:
    """Runs commands in children of a process that has imported everything."""

    def __init__(self):
        self._server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("killed_command.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )

    def run(self, arguments, journal="", kill_after=None):
        """Run a command; return its exit code and output."""
        line = json.dumps([arguments, str(journal), kill_after])
        print(line, file=self._server.stdin, flush=True)
        return tuple(json.loads(self._server.stdout.readline()))

    def close(self):
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()


def run_process(arguments, journal="", kill_after=None):
    """Run a command in a new interpreter."""
    with subprocess.Popen(
        [sys.executable, "-m", "kafkastore.cli", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:
        if kill_after is not None:
            wait(process.pid, journal, kill_after)
        said, _ = process.communicate()
    return process.returncode, said


@pytest.fixture
def commands():
    commands = Commands()
    yield commands
    commands.close()


def seconds_of_a_line(journal):
    """Return how long a line of a plan's journal took."""
    lines = (journal.area / "journal.jsonl").read_text().splitlines()
    times = [each["at_ms"] for each in map(json.loads, lines) if "at_ms" in each]
    return (times[-1] - times[0]) / 1000 / len(times)


@pytest.mark.soak
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_killed_at_any_moment_is_finished_or_undone_by_another(tmp_path, name, commands):
    choose = random.Random(f"{SEED} {name}")
    top = tmp_path / "disk"
    top.mkdir()
    root = jobs.make(name, top).root
    for number in range(1, PARTITIONS):
        shutil.copytree(root / "t-0", root / f"t-{number}")
    start, before = RecordedDisk(top).live, contents(root)
    command = [str(root) if each == "ROOT" else each for each in COMMANDS[name]]
    code, said = commands.run(command)
    assert code in (0, 1), said
    planned = contents(root)
    assert planned != before
    (journal,) = find_journals(root)
    lines, took = journal.area / "journal.jsonl", seconds_of_a_line(journal)
    size = lines.stat().st_size
    ways = {"resume": planned, "undo": before}

    def some_moment(grown):
        return choose.randint(1, grown), choose.uniform(0, took)

    def check():
        now = contents(root)
        kept = contents(journal.area / "kept") if (journal.area / "kept").is_dir() else {}
        for path in before.keys() | planned.keys():
            assert now.get(path) in (before.get(path), planned.get(path)), path
            if path in before and now.get(path) != before[path]:
                assert kept.get(path) == before[path], path
        for path in now.keys() - before.keys() - planned.keys():
            assert Path(path).name.startswith("kafkastore-"), path

    number, killed_inside = 0, 0
    # A kill that comes too late, on a busy machine, shows little: then more follow.
    while number < ROUNDS or killed_inside < ROUNDS // 3:
        assert number < 10 * ROUNDS
        number += 1
        run = run_process if number <= NEW_PROCESSES else commands.run
        start.write(top)
        try:
            run(command, lines, some_moment(size))
            check()
            killed_inside += any(not each.is_finished for each in find_journals(root))
            if not find_journals(root):
                assert contents(root) == before
                continue
            way = choose.choice(list(ways))
            for _ in range(choose.randrange(4)):
                if way == "undo" or not journal.read_again().is_finished:
                    run(["changes", way, str(journal.area)], lines, some_moment(size // 2))
                    check()
            code, said = run(["changes", way, str(journal.area)])
            assert code == 0, said
            assert contents(root) == ways[way], way
            if way == "resume":
                code, said = run(["changes", "undo", str(journal.area)])
                assert (code, contents(root)) == (0, before), said
        except BaseException as error:
            error.add_note(f"--randomly-seed={SEED}, round {number}")
            raise
