"""Kafka's own classes, from the jars of real brokers; each call runs one Java process."""

import os
import re
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from golden.make import brokers
from golden.make.java import java_command, jdk_program

SOURCES = Path(__file__).parent
_compiled = TemporaryDirectory()
# Since 4.3 all classes of this package are in `internal`, except TimestampType.
_FIRST_WITH_INTERNAL_RECORDS = (4, 3)
_RECORDS = re.compile(r"(?<=org\.apache\.kafka\.common\.record\.)(?!TimestampType)(?=[A-Z])")


@cache
def _class_path(program, version):
    """Compile a Java side against this version, once; return the class path that it runs with."""
    classes = Path(_compiled.name, program, version)
    classes.mkdir(parents=True)
    jars = brokers.class_path(version, brokers.WORK)
    text = (SOURCES / f"{program}.java").read_text()
    if brokers.version_key(version) >= _FIRST_WITH_INTERNAL_RECORDS:
        text = _RECORDS.sub("internal.", text)
    source = classes / f"{program}.java"
    source.write_text(text)
    done = subprocess.run(
        [jdk_program("javac"), "-nowarn", "-cp", jars, "-d", str(classes), str(source)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return brokers.class_path(version, brokers.WORK, classes)


def ask(version, requests, *, program="KafkaClasses"):
    """The answers of this Kafka version to requests, line by line.

    The Java side defines the requests: ``KafkaClasses.java`` (indexes and small files) or
    ``KafkaRecords.java``. The test calls the fixture ``require_broker`` first.
    """
    lines = "".join("\t".join(map(str, request)) + "\n" for request in requests)
    done = subprocess.run(
        java_command(_class_path(program, version), program, logs_as="client"),
        input=lines,
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    answers = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(answers) == len(requests), done.stderr[-3000:]
    return answers
