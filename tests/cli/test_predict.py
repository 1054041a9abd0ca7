"""Output and exit code of ``kafkastore predict``."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from cli.running import Run, assert_one_sentence
from cli.test_documentation import check, documented
from models import metadata_directory as made
from models import record_format
from models.metadata_directory import DIRECTORY

import kafkastore


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
    assert ran.out.splitlines()[0].endswith(f"1 loses records ({lost} bytes)")


@pytest.mark.golden_cases(names="crash-torn", versions=["2.*", "4.*"], answers="answers-recovered")
def test_a_batch_that_a_crash_cut_short_is_reported_but_is_not_a_loss(
    golden_case: Any, run: Run
) -> None:
    logs = golden_case.root / "logs"
    predicted = run("predict", logs, "--kafka-version", golden_case.version)
    assert predicted.code == run("verify", logs).code == 0
    assert "truncates 000" in predicted.out
    assert "1 loads with all records" in predicted.out.splitlines()[0]
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


STRAYS = {
    "known-0": None, "known-1": "not-a-replica", "other-0": "unknown-topic",
    "nameless-0": "no-topic-id",
}


def test_logs_that_the_cluster_does_not_assign_to_the_broker_become_stray(
    of_a_cluster: Path, run: Run
) -> None:
    ran = run("predict", of_a_cluster, "--json", "--kafka-version", "4.1")
    assert ran.code == 1
    rows = {Path(row["path"]).name: row for row in ran.lines}
    assert {name: rows[name]["stray"] for name in STRAYS} == STRAYS
    assert rows["__cluster_metadata-0"]["stray"] is None
    for name, reason in STRAYS.items():
        assert (rows[name]["outcome"] == "becomes-stray") == (reason is not None)
        assert (rows[name]["log_end_offset"], rows[name]["lost_bytes"]) == (2, 0)
    check(ran.lines, documented("predict"))
    shown = run("predict", of_a_cluster)
    assert "becomes stray: cluster Cc as of offset 4 has no partition other-0" in shown.out
    assert "3 become stray" in shown.out


def test_brokers_before_3_7_delete_such_logs(of_a_cluster: Path, run: Run) -> None:
    ran = run("predict", of_a_cluster, "--json", "--kafka-version", "3.6")
    rows = {Path(row["path"]).name: row for row in ran.lines}
    for name, reason in STRAYS.items():
        size = (of_a_cluster / name / f"{0:020}.log").stat().st_size
        lost = (rows[name]["outcome"], rows[name]["lost_bytes"], rows[name]["lost_offsets"])
        assert (lost == ("loses-records", size, 2)) == (reason is not None)


def test_the_metadata_may_be_that_of_another_cluster(
    of_a_cluster: Path, run: Run, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "new" / "__cluster_metadata-0"
    made.write_log(elsewhere, [made.topic("known", DIRECTORY), made.partition(0, DIRECTORY)])
    ran = run("predict", of_a_cluster, "--json", "--metadata", elsewhere)
    rows = {Path(row["path"]).name: row for row in ran.lines}
    assert rows["other-0"]["outcome"] == "is-not-served"
    assert {name: rows[name]["stray"] for name in STRAYS} == {
        "known-0": "unknown-topic", "known-1": "unknown-topic", "other-0": "other-topic",
        "nameless-0": "no-topic-id",
    }


def test_without_metadata_no_log_is_stray(of_a_cluster: Path, run: Run, tmp_path: Path) -> None:
    (of_a_cluster / "__cluster_metadata-0").rename(tmp_path / "__cluster_metadata-0")
    ran = run("predict", of_a_cluster, "--json")
    assert {row["stray"] for row in ran.lines} == {None}


def test_index_intervals_are_those_of_the_metadata(of_a_cluster: Path) -> None:
    log = of_a_cluster / "known-0" / f"{0:020}.log"
    log.write_bytes(b"".join(
        record_format.Batch((record_format.Row(offset, 5, None, b"x"),)).data
        for offset in range(10)
    ))
    sizes = {}
    for given in (None, 4096):
        found = kafkastore.predict_start(of_a_cluster, index_interval_bytes=given)
        (each,) = (each for each in found if each.path == log.parent)
        sizes[given] = each.made_bytes[f"{0:020}.index"]
    assert sizes[None] > sizes[4096]


def test_wrong_arguments_are_one_sentence(run: Run, sample_root: Path, tmp_path: Path) -> None:
    assert_one_sentence(run("predict", sample_root, "--kafka-version", "newest"), "newest")
    assert_one_sentence(run("predict", tmp_path / "nowhere"), "nowhere")
    assert_one_sentence(run("predict", sample_root, "--topic", "nope"), "nope")


def test_a_corrupt_metadata_log_is_a_note_and_is_predicted_itself(
    of_a_cluster: Path, run: Run
) -> None:
    made.write_log(of_a_cluster / "__cluster_metadata-0", [b"?"])
    ran = run("predict", of_a_cluster, "--json")
    assert "__cluster_metadata-0" in ran.err
    assert ran.err.startswith("note: ")
    assert len(ran.lines) == len(STRAYS) + 1
    with pytest.warns(kafkastore.UnreadMetadataWarning):
        assert len(list(kafkastore.predict_start(of_a_cluster))) == len(STRAYS) + 1
    refused = run("predict", of_a_cluster, "--metadata", of_a_cluster)
    assert_one_sentence(refused, "__cluster_metadata-0")
