"""Kafka's own classes, from the jars of real brokers; each call runs one Java process."""

import os
import re
import subprocess
from functools import cache
from pathlib import Path

from golden.make import brokers
from golden.make.java import ClassArchive, compiled, java_command

SOURCES = Path(__file__).parent
# Since 4.3 all classes of this package are in `internal`, except TimestampType.
_FIRST_WITH_INTERNAL_RECORDS = (4, 3)
_RECORDS = re.compile(r"(?<=org\.apache\.kafka\.common\.record\.)(?!TimestampType)(?=[A-Z])")


@cache
def _jar(program, version):
    """Compile a Java side against this version."""
    text = (SOURCES / f"{program}.java").read_text()
    if brokers.version_key(version) >= _FIRST_WITH_INTERNAL_RECORDS:
        text = _RECORDS.sub("internal.", text)
    jars = brokers.class_path(version, brokers.WORK)
    return compiled(version, program, text, jars, brokers.WORK)


def ask(version, requests, *, program="KafkaClasses", more_jars=()):
    """The answers of this Kafka version to requests, line by line.

    The Java side defines the requests: ``KafkaClasses.java`` (indexes and small files) or
    ``KafkaRecords.java``. The test calls the fixture ``require_broker`` first. `more_jars` come
    before the broker's.
    """
    lines = "".join("\t".join(map(str, request)) + "\n" for request in requests)
    jar = _jar(program, version)
    archive = ClassArchive(jar.stem, brokers.WORK)
    path = brokers.class_path(version, brokers.WORK, jar, *more_jars)
    done = subprocess.run(
        java_command(path, program, logs_as="client", options=archive.options),
        input=lines,
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    answers = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr[-3000:]
    archive.keep()
    assert len(answers) == len(requests), done.stderr[-3000:]
    return answers
