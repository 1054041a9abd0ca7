"""How the peers are built and started. Versions are pinned next to their sources."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

PEERS = Path(__file__).resolve().parent / "peers"
AIOKAFKA = "aiokafka==0.14.0"


class CannotRun(Exception):
    """A peer, and why it is not there."""


@cache
def kafka(work: Path) -> list[str]:
    """Return how Kafka's own classes are run: ``java``, a class path and no class yet."""
    _needs("java", "javac")
    jars, classes = work / "jars", work / "classes"
    if not jars.is_dir() or jars.stat().st_mtime < (PEERS / "kafka" / "pom.xml").stat().st_mtime:
        _needs("mvn")
        fetched = work / "making-jars"
        _run(
            *("mvn", "-q", "-B", "-f", PEERS / "kafka", "dependency:copy-dependencies"),
            *("-DincludeScope=runtime", f"-DoutputDirectory={fetched.absolute()}"),
        )
        if jars.is_dir():
            shutil.rmtree(jars)
        fetched.rename(jars)
        jars.touch()
    sources = sorted((PEERS / "kafka").glob("*.java"))
    _run("javac", "-nowarn", "-cp", jars / "*", "-d", classes, *sources)
    return ["java", "-cp", f"{classes}:{jars}/*"]


def kafka_peer(work: Path) -> list[str]:
    """Return the command of the peer in Java."""
    return [*kafka(work), "KafkaPeer"]


def make_data(work: Path, words: list[str]) -> None:
    """Write a data set with Kafka's classes."""
    _run(*kafka(work), "MakeData", *words)


def rust_peer(work: Path) -> list[str]:
    """Return the command of the peer in Rust."""
    _needs("cargo")
    manifest = PEERS / "rust" / "Cargo.toml"
    _run(
        *("cargo", "build", "-q", "--release"),
        *("--manifest-path", manifest, "--target-dir", work / "rust"),
    )
    return [str(work / "rust" / "release" / "rust-peer")]


def aiokafka_peer(work: Path) -> list[str]:
    """Return the command of the peer in Cython, in an environment of its own."""
    environment = work / AIOKAFKA
    python = environment / "bin" / "python"
    if not environment.is_dir():
        made = work / f"making-{AIOKAFKA}"
        _run(sys.executable, "-m", "venv", "--clear", made)
        _run(made / "bin" / "python", "-m", "pip", "install", "-q", AIOKAFKA)
        made.rename(environment)
    return [str(python), str(PEERS / "aiokafka_peer.py")]


def dump_log_segments(work: Path) -> list[str]:
    """Return the command that runs Kafka's tool for dumping segments, a process each round."""
    return [sys.executable, str(PEERS / "dump_log_segments.py"), *kafka(work)]


PEER_COMMANDS = {
    "kafka": kafka_peer,
    "kafka-dump": dump_log_segments,
    "rust": rust_peer,
    "aiokafka": aiokafka_peer,
}


def _needs(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            raise CannotRun(f"no {program}")


def _run(*command: str | os.PathLike[str]) -> None:
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip() or f"status {done.returncode}"
        raise CannotRun(f"{Path(command[0]).name} failed: {said}")
