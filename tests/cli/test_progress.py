"""Progress bars on a pseudo terminal, to which both stdout and stderr are connected."""
from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = {
    "verify": (["verify"], "verifying", "partitions checked"),
    "predict": (["predict"], "predicting", "a broker of 4.3 and"),
    "compare": (["compare", "--summary"], "comparing", "lookups: legacy answers"),
    "retention": (["retention"], "checking retention", "would be deleted"),
    "offsets": (["offsets", "--at", "2017-07-14T02:40:30Z"], "looking up times", "up-0"),
    "lag": (["lag", "--offsets", "billing:up:0:3"], "reading", "committed offset"),
    "latency": (["latency"], "reading", "no latency is known"),
    "ls": (["ls"], "listing", "newest record"),
    "migrate": (["migrate"], "reading", "nothing was changed"),
}


#: Ten steps, of which the bar does not know the number before the first. Each takes 0.3 s by the
#: bar's clock, also when the process is stopped meanwhile.
STEPS = """
import time
import rich.console
from kafkastore.cli.output.progress import progress, to_progress_callback
now = time.monotonic()
rich.console.monotonic = lambda: now
with progress("steps", None) as bar:
    show = to_progress_callback(bar)
    for done in range(1, 11):
        time.sleep(0.3)
        now += 0.3
        show(done, 10)
"""


def run_on_terminal(arguments: list[str], program: str = "kafkastore") -> str:
    """Run a command on a terminal, and return the bytes it sends."""
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        [str(Path(sys.executable).with_name(program)), *arguments],
        stdin=terminal, stdout=terminal, stderr=terminal,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "200", "LINES": "50"},
    ):
        os.close(terminal)
        sent = b""
        while True:
            try:
                piece = os.read(controller, 1 << 16)
            except OSError:  # Linux reports a terminal that no process has open so
                piece = b""
            if not piece:
                break
            sent += piece
    os.close(controller)
    return sent.decode()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_progress_bar_on_a_terminal_is_removed_before_the_result(
    name: str, sample_root: Path
) -> None:
    (command, *options), what, result = COMMANDS[name]
    shown = run_on_terminal([command, str(sample_root), *options])
    assert what in shown
    assert "━" in shown
    assert shown.rindex("━") < shown.rindex(result)
    # Rich removes a bar by going to its line and erasing it.
    assert "\x1b[2K" in shown[shown.rindex("━") : shown.rindex(result)]


@pytest.mark.parametrize("command", ["verify", "predict", "compare", "retention"])
def test_there_is_no_progress_bar_between_lines_of_json_on_a_terminal(
    command: str, sample_root: Path
) -> None:
    shown = run_on_terminal([command, str(sample_root), "--json"])
    assert len([json.loads(line) for line in shown.splitlines()]) > 3


def test_the_bar_shows_how_much_time_is_left() -> None:
    shown = run_on_terminal(["-c", STEPS], "python")
    assert "10/10" in shown
    left = [int(each) for each in re.findall(r"(\d+)s left", shown)]
    assert left
    assert left[-1] < left[0], "it counts down"


def test_a_copy_shows_how_many_files_there_are(sample_root: Path, tmp_path: Path) -> None:
    shown = run_on_terminal(["migrate", str(sample_root), "--copy-to", str(tmp_path / "copy")])
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert re.search(r"copying 0\.10\.0\.1 .* 27/27 ", text)
