"""A process whose children run command lines until they are done or killed; run by a test.

For each line on stdin, JSON of the arguments, the path of a journal and when to kill, or null, it
forks a child; when the child is gone it writes its exit code, and what it printed, as JSON.  What
takes long, importing, is done once.
"""

import importlib
import json
import math
import os
import signal
import sys
import tempfile
import time

from kafkastore.cli.__main__ import main

for name in ("changes", "convert", "migrate", "reindex", "repair"):
    importlib.import_module(f"kafkastore.cli.commands.{name}")


def run(arguments, output):
    """Be the command."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = ["kafkastore", *arguments]
    try:
        main()
    except SystemExit as end:
        sys.stdout.flush()
        os._exit(end.code or 0)


def size_of(path):
    """How long a file is; -1 without one."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return -1


def wait(child, journal, kill_after):
    """Wait for a child, and kill it soon after its journal grew; return its status.

    `kill_after` is by how many bytes it must grow, and how many seconds later the kill comes: a
    command that is slower today than yesterday is killed at the same of its steps.
    """
    if kill_after is not None:
        grown, seconds = kill_after
        size, end = size_of(journal) + grown, math.inf
        while time.monotonic() < end:
            gone, status = os.waitpid(child, os.WNOHANG)
            if gone:
                return status
            if end == math.inf and size_of(journal) >= size:
                end = time.monotonic() + seconds
            time.sleep(0.0002)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def serve():
    """Serve."""
    for line in sys.stdin:
        with tempfile.TemporaryFile() as output:
            arguments, journal, kill_after = json.loads(line)
            child = os.fork()
            if child == 0:
                try:
                    run(arguments, output.fileno())
                finally:
                    os._exit(99)
            status = wait(child, journal, kill_after)
            output.seek(0)
            said = output.read().decode(errors="replace")
            print(json.dumps([os.waitstatus_to_exitcode(status), said]), flush=True)


if __name__ == "__main__":
    serve()
