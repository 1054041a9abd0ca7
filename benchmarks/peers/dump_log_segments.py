"""Kafka's DumpLogSegments as a user runs it: a new process each round, its start included.

usage:  dump_log_segments.py JAVA... deep|timeindex SEGMENT.log

JAVA... starts Kafka's classes: ``java -cp CLASS_PATH``. ``deep`` decodes every record of the log,
``timeindex`` compares the time index with the log. While it is timed, its output is not read.
"""
from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

TOOL = "org.apache.kafka.tools.DumpLogSegments"
#: What it prints of a file that is not as it should be.
COMPLAINTS = (b"isvalid: false", b"mismatch", b"out of order")


def command_of(java: list[str], measure: str, log: Path) -> list[str]:
    if measure == "deep":
        return [*java, TOOL, "--deep-iteration", "--files", str(log)]
    index = log.with_suffix(".timeindex")
    return [*java, TOOL, "--verify-index-only", "--files", str(index)]


def check(command: list[str]) -> dict[str, int]:
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        complained = sum(any(map(line.__contains__, COMPLAINTS)) for line in process.stdout)
    if process.returncode:
        raise SystemExit(f"DumpLogSegments ended with {process.returncode}")
    return {"bad_files": int(complained > 0)}


def time_of(command: list[str]) -> dict[str, float]:
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - wall
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {"cpu": cpu, "wall": wall, "sum": code}


def main() -> None:
    *java, measure, log = sys.argv[1:]
    command = command_of(java, measure, Path(log))
    for line in sys.stdin:
        print(json.dumps(check(command) if line == "check\n" else time_of(command)), flush=True)


if __name__ == "__main__":
    main()
