"""The examples of guides that no other test runs do what their comments say."""
from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli.examples import blocks_of, commands_of, run_command, run_python
from models.tiered_directory import VERSIONS, unpack

import kafkastore
from kafkastore import samples

DOCS = Path(__file__).parents[1] / "docs"


def example(page: str, containing: str) -> str:
    """Return the block of Python in a page that contains a text."""
    (found,) = (
        block.text
        for block in blocks_of(DOCS / page)
        if block.language == "python" and containing in block.text
    )
    return found


def content(root: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below a directory: bytes and modification time."""
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A copy of the sample of 0.10.0.1, under the name that the pages use."""
    sample = samples.unpack(tmp_path / "samples")[-1]
    return sample.rename(tmp_path / "kafka-logs")


def test_changes_are_printed_made_and_undone(logs: Path) -> None:
    before = content(logs)
    text = example("changes.md", "migration.survey")
    assert ".timeindex" in run_python(text, logs.parent)
    assert content(logs) == before
    run_python(text.partition("kafkastore.undo")[0], logs.parent)
    assert {Path(name).suffix for name in content(logs).keys() - before.keys()} == {".timeindex"}


def test_old_messages_are_converted(logs: Path) -> None:
    before = content(logs)
    text = example("conversion.md", "plan_convert")
    assert ".log" in run_python(f"{text}\nkafkastore.undo(journal)", logs.parent)
    assert content(logs) == before
    run_python(text, logs.parent)
    magics = {batch.magic for log in kafkastore.open(logs) for batch in log.batches()}
    assert magics == {2}


def test_every_finding_is_printed(logs: Path) -> None:
    text = example("verify.md", "finding.remedy")
    printed = run_python(f"import kafkastore\n{text}", logs.parent).splitlines()
    findings = list(kafkastore.verify(logs))
    assert len(printed) == len(findings) > 0
    for line, finding in zip(printed, findings, strict=True):
        assert line.startswith(f"{finding.kind} {finding.severity} ")


def test_lookups_by_several_rules_answer(logs: Path) -> None:
    (logs / "up-0").rename(logs / "orders-3")
    start = """
import json, kafkastore, numpy as np
store = kafkastore.open("kafka-logs")
log, array = store["orders", 3], np.array([1_500_000_030_000])
"""
    lines = example("lookups.md", "offsets_for_timestamps(array").splitlines()
    shown = "\n".join(f"print(json.dumps(repr({line.partition('#')[0]})))" for line in lines)
    found = "TimestampAndOffset(timestamp=1500000030813, offset=35, leader_epoch=None)"
    printed = run_python(start + shown, logs.parent).splitlines()
    correct, at_2_4, many, steps, end, by_partition = map(json.loads, printed)
    assert (correct, at_2_4) == (found, "None")
    assert "(-1, -1, -1)" in many
    assert steps.startswith("Explanation(")
    assert "offset=80" in end
    assert found in by_partition


@pytest.fixture
def tiered(tmp_path: Path) -> Path:
    """A directory that has the tiered directory of the newest broker as ``logs``."""
    return unpack(VERSIONS[-1], tmp_path).logs.parent


def test_what_is_remote_is_listed(tiered: Path) -> None:
    (block,) = (block for block in blocks_of(DOCS / "tiered.md") if block.language == "console")
    commands = list(commands_of(block))
    assert len(commands) == 2
    for command in commands:
        run_command(command, tiered)


def test_remote_storage_is_an_attribute_of_a_log(tiered: Path) -> None:
    start = "import kafkastore\nlog = kafkastore.open('logs')['epochs', 0]\n"
    text = example("tiered.md", "log.remote_storage =")
    shown = re.sub(r"^(log\.\w[^=#]*)(#.*)?$", r"print(\1)", text, flags=re.MULTILINE)
    remote, bounds = run_python(start + shown, tiered).splitlines()
    assert remote.startswith("RemoteLog(")
    assert bounds == "0 63"


def test_lookups_in_remote_storage_say_so(tiered: Path) -> None:
    start = """
import kafkastore
store = kafkastore.open("logs")
log, times = store["epochs", 0], [1_500_000_010_000, 1_500_000_090_000]
"""
    end = "print([*remote], log.offsets_for_timestamps(times, remote={})['offset'].tolist())"
    printed = run_python(f"{start}{example('tiered.md', 'remote = {}')}\n{end}", tiered)
    assert printed == "[1500000010000] [-2, 90]\n"
