"""Records of topics as Go's clients of Kafka read them; one process for all requests."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from models.served_records import shown

SOURCES = Path(__file__).with_name("go_clients")
WORK = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kafkastore", "go-clients")
CLIENTS = ("franz-go", "sarama")


def _program() -> Path:
    """Return the program; build it once for each of its sources."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.read_bytes())
    program = WORK / digest.hexdigest()[:12]
    if not program.exists():
        WORK.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=WORK, prefix="building-") as building:
            new = Path(building, "program")
            subprocess.run(["go", "build", "-o", new, "."], cwd=SOURCES, check=True)
            new.rename(program)
    return program


def read_by_go(requests: Iterable[Sequence[object]]) -> list[list[tuple[object, ...]]]:
    """Return the rows of each request: client, servers, topic, isolation, partitions, count.

    A row is partition, offset, timestamp, key, value and headers, in the form of answers files; or
    an error is the only row.
    """
    lines = ["\t".join(map(str, each)) + "\n" for each in requests]
    done = subprocess.run(
        [_program()], input="".join(lines), capture_output=True, text=True, check=True, timeout=800
    )
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines), done.stderr[-3000:]
    return [
        [("error", each)] if each.startswith("error ")
        else sorted(map(_row, each.split(" ")), key=lambda row: row[:2])
        for each in answers
    ]


def _row(text: str) -> tuple[object, ...]:
    number, offset, timestamp, key, value, headers = text.split(",")
    named = [each.split(":") for each in headers.split(";") if each]
    return (
        int(number), int(offset), int(timestamp), _data(key), _data(value),
        [[base64.b64decode(name).decode(), _data(each)] for name, each in named],
    )


def _data(text: str) -> object:
    return None if text == "-" else shown(base64.b64decode(text))
