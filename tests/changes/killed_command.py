"""A process whose children run command lines until they end or are killed; run by a test.

Each line on stdin is JSON: the arguments, the path of a journal, and when to kill, or null. For
each line the process forks a child; when the child has ended, the process writes its exit code and
output as JSON. The slow part, importing, is done once.
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
from kafkastore.cli.command_list import package_of

for name in ("changes", "convert", "migrate", "reindex", "repair"):
    importlib.import_module(f"{package_of(name)}.{name}")


def run(arguments, output):
    """Run the command in this child."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = ["kafkastore", *arguments]
    try:
        main()
    except SystemExit as end:
        sys.stdout.flush()
        os._exit(end.code or 0)


def size_of(path):
    """Return the size of a file; -1 if it does not exist."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return -1


def wait(child, journal, kill_after):
    """Wait for a child, and kill it soon after its journal grew; return its status.

    `kill_after` is by how many bytes the journal must grow, and how many seconds later to kill: so
    a command is killed at the same step however slow it is today.
    """
    if kill_after is not None:
        grown, seconds = kill_after
        size, end = size_of(journal) + grown, math.inf
        while time.monotonic() < end:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
            if end == math.inf and size_of(journal) >= size:
                end = time.monotonic() + seconds
            time.sleep(0.0002)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def serve():
    """Run each command line from stdin."""
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
