"""Control characters in names of directories and files never reach a terminal."""
from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.running import Run

from kafkastore.cli.command_list import COMMANDS

CONTROLS = "\x1b[2J\x07\x9b31m\x7f"
ESCAPED = r"\x1b[2J\x07\x9b31m\x7f"
NOT_PRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

#: For each command, command lines that print names.
LINES = {
    "ls": ["ls {root} --segments --verbose", "ls {root} --topic {topic}-0 --offset 3"],
    "dump": ["dump {log} {index} {damaged} {unknown} --records", "dump {checkpoint}"],
    "cat": ["cat {root}"],
    "cluster": ["cluster {root}"],
    "offsets": ["offsets {root} --at 150 --rules all --explain", "offsets {root} --at 150"],
    "compare": ["compare {root} --samples 2"],
    "verify": ["verify {root} --verbose"],
    "predict": ["predict {root} --verbose"],
    "reindex": ["reindex {root} --dry-run --verbose", "reindex {root} --in-place --yes"],
    "migrate": [
        "migrate {root} --dry-run", "migrate {root} --in-place --yes",
        "migrate {root} --copy-to {out} --yes",
    ],
    "repair": [
        "repair {root}", "repair {root} --on-corrupt truncate --in-place --yes --verbose",
    ],
    "convert": ["convert {root} --dry-run", "convert {root} --copy-to {out} --yes"],
    "restore": ["restore {root} {new} --yes", "restore {root} {root} --dry-run"],
    "changes": ["changes list {root}", "changes undo {area}", "changes remove {area} --yes"],
    "serve": ["serve {root} --topic no{topic}", "serve {root} --listen {topic}"],
    "lag": ["lag {root} --offsets g:{topic}:0:3 --offsets g:gone{topic}:0:3"],
    "latency": ["latency {root}"],
    "groups": ["groups {root}"],
    "failover": ["failover {root} {root} --offsets g:{topic}:0:3"],
    "retention": ["retention {root} --now 100000 --segments"],
    "sizing": ["sizing {root}"],
    "sample": ["sample {out}"],
    "transactions": ["transactions {root}"],
}
#: Runs Spark, and prints by the same functions as the others; prints no name.
NOT_TESTED = {"pipeline", "completion"}


@pytest.fixture
def places(
    run: Run, sample_root: Path, writable_copy: Callable[[Path], Path], tmp_path: Path
) -> dict[str, Path]:
    """Write a log directory with control sequences in all names, and one damaged log."""
    root = Path(shutil.copytree(sample_root, tmp_path / f"logs{CONTROLS}"))
    for directory in sorted(path for path in root.iterdir() if path.is_dir()):
        topic, _, partition = directory.name.rpartition("-")
        directory.rename(root / f"{topic}{CONTROLS}-{partition}")
    healthy, damaged, *_ = sorted(path for path in root.iterdir() if path.is_dir())
    (root / f"no partition{CONTROLS}").mkdir()
    (root / f"file{CONTROLS}").write_bytes(b"?")
    (healthy / f"{CONTROLS}.deleted").write_bytes(b"?")
    log = sorted(damaged.glob("*.log"))[0]
    data = bytearray(log.read_bytes())
    data[8] |= 16
    log.write_bytes(data)
    checkpoint = root / "recovery-point-offset-checkpoint"
    checkpoint.write_text(f"0\n1\nu{CONTROLS} 0 3\n")
    new = tmp_path / f"new{CONTROLS}"
    for path in root.glob("*/*.log"):
        (new / path.parent.name).mkdir(parents=True, exist_ok=True)
        (new / path.parent.name / f"{0:020}.log").touch()
    for name in (".kafka_cleanshutdown", "meta.properties"):
        (new / name).touch()
    return {
        "new": new, "root": root, "out": tmp_path / f"out{CONTROLS}",
        "checkpoint": checkpoint, "damaged": log,
        "log": sorted(healthy.glob("*.log"))[0], "index": sorted(healthy.glob("*.index"))[0],
        "unknown": root / f"file{CONTROLS}", "topic": Path(f"up{CONTROLS}"),
    }


def test_each_command_is_tested() -> None:
    assert {*LINES} | NOT_TESTED == {*COMMANDS}


@pytest.mark.parametrize("line", [line for lines in LINES.values() for line in lines])
def test_control_characters_in_names_are_escaped(
    line: str, run: Run, places: dict[str, Path]
) -> None:
    if line.startswith("changes"):
        run("repair", places["root"], "--on-corrupt", "skip", "--in-place", "--yes")
        (places["area"],) = places["root"].parent.glob("*.kafkastore-undo-*")
    ran = run(*(word.format(**places) for word in line.split()))
    said = ran.out + ran.err
    assert not NOT_PRINTABLE.search(said), ran
    assert ESCAPED in said, ran


@pytest.mark.parametrize(
    "line",
    [
        "ls {root}", "cat {root}", "offsets {root} --at 150", "offsets {root} --at 150 --explain",
        "verify {root}", "verify {root} --verbose", "predict {root}", "predict {root} --verbose",
        "retention {root} --now 100000", "migrate {root} --dry-run --verbose",
    ],
)
def test_newlines_in_names_are_escaped(
    line: str, run: Run, sample_root: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(sample_root, tmp_path / "logs"))
    (root / "up-1").rename(root / "up\nkafkastore: all is well-1")
    ran = run(*(word.format(root=root) for word in line.split()))
    assert r"up\nkafkastore: all is well" in ran.out, ran
    assert "\nkafkastore: all is well" not in ran.out, ran
