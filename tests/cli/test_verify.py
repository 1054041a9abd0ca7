from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from cli.running import Run, assert_one_sentence
from cli.test_documentation import check, documented

from kafkastore.checks.findings import FindingKind


def test_findings_have_a_position_a_description_and_a_remedy(run: Run, sample_root: Path) -> None:
    ran = run("verify", sample_root)
    assert ran.code == 1
    summary, *lines = ran.out.splitlines()
    assert summary == "4 partitions checked, 10 wrong-answers"
    assert lines[0].startswith("wrong-answers, 10 times: the time index is missing")
    assert lines[2] == (
        f"    remedy: kafkastore migrate --in-place {sample_root}/up-0, and likewise for the others"
    )
    assert lines[3] == f"      {sample_root}/up-0/00000000000000000000.timeindex"
    assert lines[8:] == ["      ... and 5 more like these; --verbose lists all"]


def test_verbose_prints_every_finding_as_it_is_found(run: Run, sample_root: Path) -> None:
    lines = run("verify", sample_root, "--verbose").out.splitlines()
    places = [each["file"] for each in run("verify", sample_root, "--json").lines[:-1]]
    assert [line.strip() for line in lines if line.endswith(".timeindex")] == places
    assert sum(line.startswith("wrong-answers: ") for line in lines) == 3
    assert lines[-1] == "4 partitions checked, 10 wrong-answers"


def test_findings_are_sorted_by_severity_and_grouped_by_kind(
    run: Run, sample_copy: Path
) -> None:
    for number, name in enumerate(("up-0", "up-1")):
        log = max((sample_copy / name).glob("*.log"))
        os.truncate(log, log.stat().st_size - 7 - number)
    ran = run("verify", sample_copy)
    _, *heads = [line for line in ran.out.splitlines() if not line.startswith(" ")]
    severities = [line.partition(":")[0].partition(",")[0] for line in heads]
    order = ["data-loss-risk", "wrong-answers", "slow", "style"]
    assert severities == sorted(severities, key=order.index)
    assert severities[0] == "data-loss-risk" != severities[-1]
    (alike,) = [block for block in ran.out.split("\ndata-loss-risk") if "up-1/" in block
                and "after the last complete batch" in block]
    first, other = [line for line in alike.splitlines() if ".log at byte " in line]
    assert "/up-0/" in first
    assert "/up-1/" in other
    assert other.endswith("bytes after the last complete batch"), "its text has different numbers"


def test_json_has_one_finding_a_line_and_a_summary(run: Run, sample_root: Path) -> None:
    ran = run("verify", sample_root, "--json")
    assert ran.code == 1
    *findings, summary = ran.lines
    assert len(findings) == 10
    for finding in findings:
        assert list(finding) == [
            "kind", "finding", "severity", "file", "position", "what", "consequence", "remedy"]
        assert finding["finding"] in list(FindingKind)
    assert summary == {
        "kind": "summary",
        "partitions": 4,
        "segments": 11,
        "segments_read": 11,
        "data_loss_risk": 0,
        "wrong_answers": 10,
        "slow": 0,
        "style": 0,
        "failures": 0,
        "cluster": None,
    }


def test_the_metadata_of_the_cluster_is_compared_and_named(
    run: Run, of_a_cluster: Path, tmp_path: Path
) -> None:
    ran = run("verify", of_a_cluster, "--json")
    assert ran.code == 1
    strays = {
        Path(row["file"]).relative_to(of_a_cluster).parts[0]: row["finding"]
        for row in ran.lines
        if row.get("consequence") == FindingKind.NOT_IN_CLUSTER.consequence
    }
    assert strays == {
        "known-1": "not-a-replica", "other-0": "not-in-cluster", "nameless-0": "missing-topic-id"
    }
    assert ran.lines[-1]["cluster"] == "cluster Cc as of offset 4"
    check(ran.lines, documented("verify"))
    assert "5 partitions checked against cluster Cc as of offset 4," in run(
        "verify", of_a_cluster).out
    metadata = of_a_cluster / "__cluster_metadata-0"
    moved = metadata.rename(tmp_path / metadata.name)
    assert run("verify", of_a_cluster, "--json").lines[-1]["cluster"] is None
    elsewhere = run("verify", of_a_cluster, "--json", "--metadata", moved)
    assert elsewhere.lines[-1]["cluster"].endswith("as of offset 4")
    refused = run("verify", of_a_cluster, "--metadata", of_a_cluster)
    assert_one_sentence(refused, "__cluster_metadata-0")


@pytest.mark.parametrize("share", ["1%", "0.01"])
def test_a_sample_always_includes_the_last_segments(
    run: Run, sample_root: Path, share: str
) -> None:
    first, second = (run("verify", sample_root, "--sample", share, "--json") for _ in range(2))
    assert first == second
    summary = first.lines[-1]
    assert summary["segments"] == 11
    assert 4 <= summary["segments_read"] < 11
    assert run("verify", sample_root, "--sample", share).out.startswith(
        f"4 partitions checked ({summary['segments_read']} of 11 segments read), "
    )


@pytest.mark.parametrize("share", ["0", "0%", "-5%", "101%", "1.5", "five", "nan", "inf%", ""])
def test_an_invalid_share_is_refused(run: Run, sample_root: Path, share: str) -> None:
    assert_one_sentence(run("verify", sample_root, "--sample", share), "5% or 0.05")


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_findings_are_the_same_and_in_order_on_any_number_of_threads(
    run: Run, golden: Any, threads: int
) -> None:
    logs = golden("2.4.0", "wide", "answers").logs
    ran = run("verify", logs, "--json", "--threads", threads, "--fail-on", "style")
    assert ran.lines[-1]["style"] > 30
    assert ran == run("verify", logs, "--json", "--fail-on", "style")


@pytest.mark.parametrize(
    ("fail_on", "code"),
    [("data-loss-risk", 0), ("wrong-answers", 1), ("slow", 1), ("style", 1)],
)
def test_fail_on_decides_the_exit_code(
    run: Run, sample_root: Path, fail_on: str, code: int
) -> None:
    assert run("verify", sample_root, "--fail-on", fail_on).code == code


def test_an_unknown_severity_is_refused(run: Run, sample_root: Path) -> None:
    assert_one_sentence(run("verify", sample_root, "--fail-on", "bad"), "data-loss-risk")


@pytest.mark.golden_cases(
    names=["codecs", "create-time-monotonic"], versions="2.4.0", answers="answers"
)
def test_healthy_directories_have_no_problems(run: Run, golden_case: Any) -> None:
    ran = run("verify", golden_case.logs)
    assert ran.code == 0
    assert ran.out.endswith("checked, no problems found\n")
    (summary,) = run("verify", golden_case.logs, "--json").lines
    severities = ("data_loss_risk", "wrong_answers", "slow", "style")
    assert {summary[each] for each in severities} == {0}


def test_only_the_chosen_partitions_are_verified(run: Run, sample_root: Path) -> None:
    assert len(run("verify", sample_root, "--topic", "up-1", "--json").lines) == 3 + 1
    assert run("verify", sample_root, "--topic", "up-empty").code == 0


def test_a_corrupt_batch_is_a_data_loss_risk_at_its_byte(run: Run, sample_copy: Path) -> None:
    log = sample_copy / "up-1" / "00000000000000000024.log"
    with log.open("r+b") as file:
        file.seek(945 + 60)
        file.write(b"\xff\xff")
    ran = run("verify", sample_copy, "--fail-on", "data-loss-risk")
    assert ran.code == 1
    assert f"{log} at byte 945" in ran.out
