"""Bars on a real terminal: a pseudo terminal that both stdout and stderr lead to."""
from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = {
    "verify": (["verify"], "verifying", "partitions checked"),
    "predict": (["predict"], "predicting", "a broker of 4.2 and"),
    "compare": (["compare", "--summary"], "comparing", "lookups: legacy answers"),
    "retention": (["retention"], "checking retention", "would be deleted"),
    "offsets": (["offsets", "--at", "2017-07-14T02:40:30Z"], "times", "up-0"),
    "lag": (["lag", "--offsets", "billing:up:0:3"], "reading", "committed offset"),
    "latency": (["latency"], "reading", "no latency is known"),
    "ls": (["ls"], "listing", "newest record"),
    "migrate": (["migrate"], "reading", "nothing was changed"),
}


def at_a_terminal(arguments: list[str]) -> str:
    """What somebody at a terminal is sent."""
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        [str(Path(sys.executable).with_name("kafkastore")), *arguments],
        stdin=terminal, stdout=terminal, stderr=terminal,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "200", "LINES": "50"},
    ):
        os.close(terminal)
        sent = b""
        while True:
            try:
                piece = os.read(controller, 1 << 16)
            except OSError:  # as Linux ends what nobody has open any more
                piece = b""
            if not piece:
                break
            sent += piece
    os.close(controller)
    return sent.decode()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_bar_is_drawn_at_a_terminal_and_gone_before_the_result(
    name: str, sample_root: Path
) -> None:
    (command, *options), what, result = COMMANDS[name]
    shown = at_a_terminal([command, str(sample_root), *options])
    assert what in shown
    assert "━" in shown
    assert shown.rindex("━") < shown.rindex(result)
    # Rich takes a bar away by going to its line and erasing it.
    assert "\x1b[2K" in shown[shown.rindex("━") : shown.rindex(result)]


@pytest.mark.parametrize("command", ["verify", "predict", "compare", "retention"])
def test_no_bar_is_drawn_between_lines_of_json_at_a_terminal(
    command: str, sample_root: Path
) -> None:
    shown = at_a_terminal([command, str(sample_root), "--json"])
    assert len([json.loads(line) for line in shown.splitlines()]) > 3
