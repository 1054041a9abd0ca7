"""Output and effect of ``kafkastore repair``."""
from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.running import Run, assert_one_sentence
from cli.test_documentation import check, documented
from models.metadata_directory import DIRECTORY


@pytest.fixture
def damaged(golden: Callable[..., Any], writable_copy: Callable[..., Path]) -> Path:
    """Return a directory after a clean shutdown with a flipped bit in its second segment."""
    root = writable_copy(golden("2.4.0", "broken-index", "answers").logs)
    path = sorted(root.glob("broken-0/*.log"))[1]
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)
    return root


def test_a_dry_run_reports_the_damage_and_changes_nothing(run: Run, damaged: Path) -> None:
    before = {path: path.read_bytes() for path in damaged.rglob("*") if path.is_file()}
    ran = run("repair", damaged, "--on-corrupt", "skip", "--dry-run")
    assert ran.code == 0
    assert "190 bytes from byte 115 on, 1 offset from 23 on: skipped" in ran.out
    assert before == {path: path.read_bytes() for path in damaged.rglob("*") if path.is_file()}


def test_kept_records_are_readable_and_verify_finds_nothing(run: Run, damaged: Path) -> None:
    assert run("verify", damaged).code == 1
    ran = run("repair", damaged, "--on-corrupt", "skip", "--in-place", "--yes")
    assert ran.code == 0
    assert "undo area: " in ran.out
    assert run("verify", damaged).code == 0
    assert len(run("cat", damaged, "--json").lines) == 99


def test_truncate_removes_the_rest_like_a_broker_and_undo_restores_it(
    run: Run, damaged: Path
) -> None:
    ran = run("repair", damaged, "--on-corrupt", "truncate", "--in-place", "--yes")
    assert ran.code == 0
    assert "truncated" in ran.out
    assert len(run("cat", damaged, "--json").lines) == 23
    area = next(line for line in ran.out.splitlines() if line.startswith("undo area: "))
    assert run("changes", "undo", area.removeprefix("undo area: ")).code == 0
    assert run("verify", damaged).code == 1


def test_json_has_only_documented_fields(run: Run, damaged: Path) -> None:
    rows = run("repair", damaged, "--on-corrupt", "skip", "--in-place", "--yes", "--json").lines
    check((row for row in rows if row["kind"] == "damage"), documented("repair"))
    for kind in ("plan", "change", "result"):
        check((row for row in rows if row["kind"] == kind), documented("migrate", kind))


def files_of(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("options", [[], ["--in-place", "--yes"], ["--dry-run"]])
def test_without_a_choice_both_outcomes_are_shown_and_nothing_is_changed(
    run: Run, damaged: Path, options: list[str]
) -> None:
    before = files_of(damaged.parent)
    ran = run("repair", damaged, *options)
    assert ran.code == 1
    assert ran.out.startswith("choice "), "the summary comes before the details"
    assert re.search(r"--on-corrupt skip +190 +6$", ran.out, re.MULTILINE)
    assert re.search(r"--on-corrupt truncate +9,287 +17$", ran.out, re.MULTILINE)
    assert "nothing was changed" in ran.out
    assert files_of(damaged.parent) == before


def test_the_choice_as_json_has_only_documented_fields(run: Run, damaged: Path) -> None:
    rows = run("repair", damaged, "--json").lines
    assert [(row["kind"], row["on_corrupt"], row["lost_bytes"]) for row in rows] == [
        ("choice", "skip", 190), ("choice", "truncate", 9287)
    ]
    check(rows, documented("repair", "choice"))
    check(rows[0]["damages"], documented("repair", "damage"))


def test_no_choice_is_needed_if_no_bytes_of_a_log_are_removed(run: Run, damaged: Path) -> None:
    for path in damaged.glob("broken-0/*.log"):
        data = bytearray(path.read_bytes())
        if path == sorted(damaged.glob("broken-0/*.log"))[1]:
            data[300] ^= 1
        path.write_bytes(data)
    index = sorted(damaged.glob("broken-0/*.index"))[1]
    index.write_bytes(bytes(80))
    assert run("verify", damaged).code == 1
    ran = run("repair", damaged, "--in-place", "--yes")
    assert ran.code == 0
    assert "undo area: " in ran.out
    assert run("verify", damaged).code == 0


def test_a_file_that_is_not_regular_is_named_and_the_rest_is_repaired(
    run: Run, damaged: Path
) -> None:
    odd = sorted(damaged.glob("broken-0/*.timeindex"))[3]
    odd.unlink()
    os.mkfifo(odd)
    ran = run("repair", damaged, "--on-corrupt", "skip", "--in-place", "--yes")
    assert ran.code == 1
    assert ran.err.count("\n") == 1
    assert f"not repaired: {odd} is not a regular file" in ran.err
    assert len(run("cat", damaged, "--json").lines) == 99
    rows = run("repair", damaged, "--on-corrupt", "skip", "--dry-run", "--json").lines
    (left,) = (row for row in rows if row["kind"] == "unrepaired")
    check([left], documented("repair", "unrepaired"))


def test_wrong_arguments_are_one_sentence(run: Run, damaged: Path, tmp_path: Path) -> None:
    assert_one_sentence(run("repair", damaged, "--on-corrupt", "best"), "best")
    assert_one_sentence(run("repair", damaged, "--on-corrupt", "best", "--dry-run"), "best")
    assert_one_sentence(run("repair", damaged, "--on-corrupt", "skip", "--in-place"), "add --yes")
    ran = run("repair", damaged, "--on-corrupt", "skip", "--yes")
    assert_one_sentence(ran, "--yes needs --in-place")


def test_a_copy_is_repaired_and_the_original_is_unchanged(
    run: Run, damaged: Path, tmp_path: Path
) -> None:
    before = files_of(damaged)
    copy = tmp_path / "copy"
    assert run("repair", damaged, "--copy-to", copy).code == 1  # a choice is needed first
    assert not copy.exists()
    ran = run("repair", damaged, "--on-corrupt", "skip")
    assert ran.code == 0
    assert ran.out.endswith("--copy-to DIR repairs a copy, --in-place this directory\n")
    ran = run("repair", damaged, "--on-corrupt", "skip", "--copy-to", copy)
    assert ran.code == 0
    assert files_of(damaged) == before
    assert run("verify", copy, "--fail-on", "wrong-answers").code == 0


def test_a_missing_directory_is_one_sentence(
    run: Run, damaged: Path, tmp_path: Path
) -> None:
    ran = run("repair", tmp_path / "x", "--on-corrupt", "skip", "--in-place", "--yes")
    assert_one_sentence(ran, "x")


def test_a_missing_topic_id_is_planned_shown_written_and_undone(
    run: Run, of_a_cluster: Path
) -> None:
    missing = of_a_cluster / "known-0" / "partition.metadata"
    content = missing.read_bytes()
    missing.unlink()
    chosen = ("repair", of_a_cluster, "--topic", "known-0")
    shown = run(*chosen)
    assert shown.code == 0
    assert re.search(r"create +known-0/partition\.metadata .* cluster Cc as of offset 4", shown.out)
    assert "index.interval.bytes=1 [topic]: known" in shown.out.splitlines()
    assert not missing.exists()
    applied = run(*chosen, "--in-place", "--yes")
    assert missing.read_bytes() == content.rstrip(b"\n")
    area = next(line for line in applied.out.splitlines() if line.startswith("undo area: "))
    assert run("changes", "undo", area.removeprefix("undo area: ")).code == 0
    assert not missing.exists()


def test_another_topic_id_is_left_and_reported(run: Run, of_a_cluster: Path) -> None:
    other = of_a_cluster / "known-0" / "partition.metadata"
    other.write_text(f"version: 0\ntopic_id: {DIRECTORY}")
    ran = run("repair", of_a_cluster, "--topic", "known-0", "--json")
    assert ran.code == 1
    (unrepaired,) = (row for row in ran.lines if row["kind"] == "unrepaired")
    assert unrepaired["path"] == str(other)
    assert not any(row.get("path", "").endswith(other.name) for row in ran.lines
                   if row["kind"] == "change")


@pytest.mark.parametrize(("given", "value", "source"), [
    ((), 1, "topic"), (("--index-interval-bytes", 77), 77, "option"),
])
def test_the_interval_of_rebuilt_indexes_has_a_source(
    run: Run, of_a_cluster: Path, given: tuple[Any, ...], value: int, source: str
) -> None:
    ran = run("repair", of_a_cluster, "--topic", "known-0", "--json", *given)
    (setting,) = (row for row in ran.lines if row["kind"] == "setting")
    assert setting["topic"] == "known"
    assert setting["index_interval_bytes"] == value
    assert setting["config_sources"] == {"index.interval.bytes": source}
    check([setting], documented("repair"))


def test_a_copy_gets_the_topic_ids_of_the_original_s_cluster(
    run: Run, of_a_cluster: Path, tmp_path: Path
) -> None:
    (of_a_cluster / "known-0" / "partition.metadata").unlink()
    moved = (of_a_cluster / "__cluster_metadata-0").rename(tmp_path / "__cluster_metadata-0")
    ran = run("repair", of_a_cluster, "--metadata", moved, "--copy-to", tmp_path / "copy")
    assert ran.code == 1  # strays are reported
    assert (tmp_path / "copy" / "known-0" / "partition.metadata").exists()
    assert not (of_a_cluster / "known-0" / "partition.metadata").exists()
