"""One side of a comparison: a process that does a round on request."""
from __future__ import annotations

import json
import subprocess
from typing import Any


class Failed(Exception):
    """A side that ended, with its last words."""


class Contestant:
    """A process that answers each line, ``check`` or ``time``, with a JSON object.

    Rounds of several of them alternate, so all see the same state of the machine, and what a
    process learned in earlier rounds (a JVM's compiled code) stays.
    """

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self, question: str) -> dict[str, Any]:
        """Ask for one round, or for the results in full.

        Raises
        ------
        Failed
            If the process ended instead.
        """
        assert self._process.stdin
        assert self._process.stdout
        try:
            print(question, file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            _, words = self._process.communicate()
            raise Failed((words.strip().splitlines() or ["it said nothing"])[-1])
        found: dict[str, Any] = json.loads(answer)
        return found

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
