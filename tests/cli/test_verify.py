from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli.running import Run, assert_one_sentence


def test_findings_say_where_what_and_what_to_do(run: Run, sample_root: Path) -> None:
    ran = run("verify", sample_root)
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert lines[0].startswith("wrong-answers: the time index is missing")
    assert lines[2] == "    remedy: kafkastore migrate"
    assert lines[3] == f"      {sample_root}/up-0/00000000000000000000.timeindex"
    assert lines[-1] == "4 partitions verified: 10 wrong-answers"


def test_json_has_one_finding_a_line(run: Run, sample_root: Path) -> None:
    ran = run("verify", sample_root, "--json")
    assert ran.code == 1
    assert len(ran.lines) == 10
    assert set(ran.lines[0]) == {
        "severity", "path", "position", "what", "consequence", "remedy"}


@pytest.mark.parametrize(
    ("fail_on", "code"),
    [("data-loss-risk", 0), ("wrong-answers", 1), ("slow", 1), ("style", 1)],
)
def test_fail_on_decides_the_exit_code(
    run: Run, sample_root: Path, fail_on: str, code: int
) -> None:
    assert run("verify", sample_root, "--fail-on", fail_on).code == code


def test_an_unknown_severity_is_wrong_use(run: Run, sample_root: Path) -> None:
    assert_one_sentence(run("verify", sample_root, "--fail-on", "bad"), "data-loss-risk")


@pytest.mark.golden_cases(
    names=["codecs", "create-time-monotonic"], versions="2.4.0", answers="answers"
)
def test_healthy_directories_are_as_they_should_be(run: Run, golden_case: Any) -> None:
    ran = run("verify", golden_case.logs)
    assert ran.code == 0
    assert ran.out.endswith("verified: all as it should be\n")
    assert run("verify", golden_case.logs, "--json").out == ""


def test_only_the_partitions_chosen_are_verified(run: Run, sample_root: Path) -> None:
    assert len(run("verify", sample_root, "--topic", "up-1", "--json").lines) == 3
    assert run("verify", sample_root, "--topic", "up-empty").code == 0


def test_a_bad_batch_is_a_risk_of_loss_at_its_byte(run: Run, sample_copy: Path) -> None:
    log = sample_copy / "up-1" / "00000000000000000024.log"
    with log.open("r+b") as file:
        file.seek(945 + 60)
        file.write(b"\xff\xff")
    ran = run("verify", sample_copy, "--fail-on", "data-loss-risk")
    assert ran.code == 1
    assert f"{log} at byte 945" in ran.out
