from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli.running import Run, assert_one_sentence
from cli.test_documentation import check, documented


def files_of(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*") if path.is_file()
    }


@pytest.fixture
def crashed(golden: Any, writable_copy: Any) -> Path:
    """Return the directory of a killed broker whose last batch has a wrong checksum."""
    copy: Path = writable_copy(golden("2.4.0", "crash-bad-crc", "answers").logs)
    return copy


def test_a_dry_run_prints_the_plan_and_changes_nothing(run: Run, sample_copy: Path) -> None:
    before = files_of(sample_copy)
    ran = run("reindex", sample_copy, "--dry-run")
    assert ran.code == 0
    assert ran.out.count("\ncreate   up-") == 5
    assert "\ncreate   6 more .timeindex " in ran.out
    assert run("reindex", sample_copy, "--dry-run", "--verbose").out.count("\ncreate   up-") == 11
    assert files_of(sample_copy) == before


def test_the_plan_is_applied_and_undone_and_a_second_one_is_empty(
    run: Run, sample_copy: Path
) -> None:
    before = files_of(sample_copy)
    options = ["--index-interval-bytes", 200]
    ran = run("reindex", sample_copy, *options, "--in-place", "--yes")
    assert ran.code == 0
    assert files_of(sample_copy) != before
    again = run("reindex", sample_copy, *options, "--in-place", "--yes")
    assert (again.code, again.out) == (0, "reindex (version 4.3): nothing to change\n")
    assert run("verify", sample_copy, "--fail-on", "style").code == 0
    (area,) = sample_copy.parent.glob("*.kafkastore-undo-*")
    assert run("changes", "undo", area).code == 0
    assert files_of(sample_copy) == before


def test_a_root_and_a_partition_in_it_cannot_be_given_together(
    run: Run, sample_copy: Path
) -> None:
    before = files_of(sample_copy)
    (partition, *_) = sorted(path for path in sample_copy.iterdir() if path.is_dir())
    ran = run("reindex", sample_copy, partition, "--in-place", "--yes")
    assert_one_sentence(ran, f"{sample_copy} and {partition} hold the same files")
    assert files_of(sample_copy) == before
    assert run("reindex", sample_copy, sample_copy, "--in-place", "--yes").code == 0


def test_without_a_terminal_nothing_is_changed_without_yes(
    run: Run, sample_copy: Path
) -> None:
    before = files_of(sample_copy)
    ran = run("reindex", sample_copy, "--in-place")
    assert_one_sentence(ran, "nothing was changed", "add --yes to --in-place")
    assert ran.out == ""
    ran = run("reindex", sample_copy)
    assert (ran.code, ran.out) == (0, run("reindex", sample_copy, "--dry-run").out)
    assert ran.out.endswith("--copy-to DIR reindexes a copy, --in-place this directory\n")
    assert files_of(sample_copy) == before


def test_a_copy_is_reindexed_and_the_original_is_unchanged(
    run: Run, sample_copy: Path, tmp_path: Path
) -> None:
    before = files_of(sample_copy)
    copy = tmp_path / "copy"
    ran = run("reindex", sample_copy, "--copy-to", copy, "--index-interval-bytes", 200)
    assert ran.code == 0
    assert files_of(sample_copy) == before
    assert files_of(copy) != before
    assert run("verify", copy, "--fail-on", "style").code == 0


def test_a_corrupt_log_is_skipped_and_named_with_exit_code_1(
    run: Run, crashed: Path
) -> None:
    logs = {name: data for name, data in files_of(crashed).items() if name.endswith(".log")}
    ran = run("reindex", crashed, "--index-interval-bytes", 200, "--in-place", "--yes")
    assert ran.code == 1
    assert "checksum is wrong at byte 1065" in ran.out
    assert ran.out.count("not indexed") == 1
    options = ["--index-interval-bytes", 200, "--up-to-damage", "--in-place", "--yes"]
    ran = run("reindex", crashed, *options)
    assert ran.code == 0
    assert "indexed up to there" in ran.out
    assert logs == {name: data for name, data in files_of(crashed).items() if name.endswith(".log")}


def test_fields_of_json_are_documented(run: Run, crashed: Path) -> None:
    rows = run("reindex", crashed, "--up-to-damage", "--in-place", "--yes", "--json").lines
    kinds = {"plan": "migrate", "change": "migrate", "unindexed": "reindex", "result": "migrate"}
    assert {row["kind"] for row in rows} == set(kinds)
    for kind, chapter in kinds.items():
        check((row for row in rows if row["kind"] == kind), documented(chapter, kind))


def test_only_the_chosen_topics_are_indexed(run: Run, sample_copy: Path) -> None:
    rows = run("reindex", sample_copy, "--topic", "up-1", "--dry-run", "--json").lines
    changed = {row["path"].partition("/")[0] for row in rows if row["kind"] == "change"}
    assert changed == {"up-1"}


def test_an_unknown_version_is_refused(run: Run, sample_copy: Path) -> None:
    assert_one_sentence(run("reindex", sample_copy, "--kafka-version", "new", "--dry-run"), "'new'")
    # This is checked before the confirmation.
    assert_one_sentence(run("reindex", sample_copy, "--kafka-version", "new"), "'new'")


def test_an_interval_out_of_kafka_s_range_is_one_sentence(
    run: Run, sample_copy: Path
) -> None:
    ran = run("reindex", sample_copy, "--index-interval-bytes", 1 << 31, "--dry-run")
    assert_one_sentence(ran, "must be an int from 0 to 2147483647")
