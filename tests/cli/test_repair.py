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
