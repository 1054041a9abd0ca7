"""Kafka's own classes, out of the jars of real brokers, asked in one Java process a test."""

import os
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from golden.make import brokers
from golden.make.java import java_command, jdk_program

SOURCE = Path(__file__).with_name("KafkaClasses.java")
_compiled = TemporaryDirectory()


@cache
def _classes():
    """Compile the Java side, once."""
    subprocess.run(
        [jdk_program("javac"), "-nowarn", "-d", _compiled.name, str(SOURCE)],
        check=True,
        capture_output=True,
    )
    return Path(_compiled.name)


def ask(version, requests):
    """The answers of this Kafka version to requests (see KafkaClasses.java), line by line.

    The test has asked the fixture ``require_broker`` before.
    """
    class_path = brokers.class_path(version, brokers.WORK, _classes())
    asked = "".join("\t".join(map(str, request)) + "\n" for request in requests)
    done = subprocess.run(
        java_command(class_path, "KafkaClasses", logs_as="client"),
        input=asked,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    answers = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(answers) == len(requests), done.stderr[-3000:]
    return answers
