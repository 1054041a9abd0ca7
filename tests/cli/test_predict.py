"""Output and exit code of ``kafkastore predict``."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from cli.running import Run, assert_one_sentence
from cli.test_documentation import check, documented


@pytest.mark.golden_cases(
    names="crash-bad-crc", versions=["2.*", "3.*", "4.*"], answers="answers-recovered"
)
def test_a_crash_is_reported_with_the_lost_bytes(golden_case: Any, run: Run) -> None:
    ran = run("predict", golden_case.root / "logs", "--kafka-version", golden_case.version)
    assert ran.code == 1
    assert "crash-0 loses records" in ran.out
    assert "there is no clean-shutdown marker" in ran.out
    assert "checksum is wrong at byte" in ran.out
    end = golden_case.answers["partitions"]["crash-0"]["log_end_offset"]
    assert f"then has 3 segments, log start offset 0, log end offset {end}" in ran.out
    lost = sum(int(each) for each in re.findall(r"at byte \d+ and removes (\d+) byte", ran.out))
    assert ran.out.splitlines()[-1].endswith(f"1 loses records ({lost} bytes)")


@pytest.mark.golden_cases(names="crash-torn", versions=["2.*", "4.*"], answers="answers-recovered")
def test_a_batch_that_a_crash_cut_short_is_reported_but_is_not_a_loss(
    golden_case: Any, run: Run
) -> None:
    logs = golden_case.root / "logs"
    predicted = run("predict", logs, "--kafka-version", golden_case.version)
    assert predicted.code == run("verify", logs).code == 0
    assert "truncates 000" in predicted.out
    assert "1 loads with all records" in predicted.out.splitlines()[-1]
    assert "bytes after the last complete batch" in run("verify", logs).out


@pytest.mark.golden_cases(
    names="crash-bad-crc", versions=["2.*", "4.*"], answers="answers-recovered"
)
def test_json_has_every_file_and_only_documented_fields(golden_case: Any, run: Run) -> None:
    ran = run("predict", golden_case.root / "logs", "--json")
    assert ran.code == 1
    (found,) = ran.lines
    assert (found["topic"], found["partition"], found["outcome"]) == ("crash", 0, "loses-records")
    ((name, cut),) = found["cut"].items()
    log = golden_case.root / "logs" / "crash-0" / name
    assert cut["valid_bytes"] + found["lost_bytes"] == log.stat().st_size
    assert cut["kind"] == "corrupt-batch"
    assert cut["reason"]
    assert len(found["recovered_segments"]) == 3
    assert sum(written.endswith(".timeindex") for written in found["written"]) == 3
    check(ran.lines, documented("predict"))


@pytest.mark.golden_cases(names="broken-index", versions=["2.*", "3.*", "4.*"], answers="answers")
def test_a_healthy_directory_is_one_line(golden_case: Any, run: Run) -> None:
    ran = run("predict", golden_case.logs, "--kafka-version", golden_case.version)
    assert ran.code == 0
    assert "1 loads unchanged" in ran.out.splitlines()[-1]


def test_wrong_arguments_are_one_sentence(run: Run, sample_root: Path, tmp_path: Path) -> None:
    assert_one_sentence(run("predict", sample_root, "--kafka-version", "newest"), "newest")
    assert_one_sentence(run("predict", tmp_path / "nowhere"), "nowhere")
    assert_one_sentence(run("predict", sample_root, "--topic", "nope"), "nope")
