"""Runs a kafkastore command in a separate process, and records its time and memory.

usage: python measured_command.py FIGURES FILES WORDS...

The command is ``kafkastore WORDS...``, with at most FILES files open at once. FIGURES becomes a
JSON object: the exit ``code``, ``cpu`` seconds, and the largest ``memory`` in bytes.
"""

import json
import resource
import sys
import time
from pathlib import Path

from kafkastore.cli.command_list import cli


def largest_memory():
    """Return the most bytes that this program had in memory.

    Linux hands `ru_maxrss` on from the process that started this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main():
    figures, files, *words = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(files), hard))
    start = time.process_time()
    code = cli.main(words, prog_name="kafkastore", standalone_mode=False)
    used = {"code": code, "cpu": time.process_time() - start, "memory": largest_memory()}
    Path(figures).write_text(json.dumps(used))


if __name__ == "__main__":
    main()
