"""Commands on a directory with two damaged partitions: the same with Spark and without."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from cli.running import Ran, Run
from models.damaged_store import DAMAGED, SOUND, write_store
from use_cases.stores import T0


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("damaged") / "logs")


@pytest.fixture
def same(run: Run, spark: Any) -> Callable[..., Ran]:
    """Return a function that runs a command with and without Spark, and compares the two."""

    def same(*arguments: object) -> Ran:
        here = run(*arguments)
        assert run(*arguments, "--spark", "local[1]") == here
        return here

    return same


@pytest.fixture(scope="module")
def without_times(root: Path) -> Path:
    """Return the same directory without time indexes."""
    copy = root.parent / "without-times"
    copytree(root, copy)
    for index in copy.glob("*/*.timeindex"):
        index.unlink()
    return copy


NOW, LATE = f"--now={T0 + 100_000}", f"--at={T0 + 8000}"


@pytest.mark.parametrize(("command", "code"), [
    (("verify",), 1),
    (("predict",), 0),  # after a clean shutdown a broker loads it unchanged
    (("reindex", "--dry-run"), 1),
    (("reindex", "--dry-run", "--up-to-damage"), 0),
    (("compare", LATE), 1),
    (("compare", LATE, "--on-corrupt", "skip"), 1),
    (("lag", NOW), 1),
    (("lag", NOW, "--on-corrupt", "skip"), 1),
    (("latency", "--on-corrupt", "stop"), 1),
], ids=str)
def test_a_command_has_the_same_rows_errors_and_exit_code(
    same: Callable[..., Ran], root: Path, command: tuple[str, ...], code: int
) -> None:
    ran = same(command[0], root, *command[1:], "--json")
    assert ran.code == code
    assert all(name in ran.out + ran.err for name in DAMAGED)
    assert not any(f"{name}: " in ran.err for name in SOUND)


def test_migrate_makes_the_same_plan_and_names_skipped_files(
    same: Callable[..., Ran], without_times: Path
) -> None:
    ran = same("migrate", without_times, "--dry-run", "--mode", "rebuild", "--json")
    assert ran.code == 1
    planned = {line["path"] for line in ran.lines if line["kind"] == "change"}
    index = f"{9:020}.timeindex"
    assert all(f"{name}/{index}" in planned for name in SOUND)
    for name in DAMAGED:
        assert f"{name}/{index}" not in planned
        assert name in ran.err


@pytest.mark.soak
@pytest.mark.usefixtures("spark")
def test_a_pipeline_completes_and_names_damaged_partitions(
    run: Run, without_times: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    ran = run("pipeline", without_times, "--out", out, "--spark", "local[1]", "--samples", "1",
              "--json")
    assert ran.code == 1
    problems = ran.lines[-1]["problems"]
    report = (out / "report.html").read_text()
    for name in DAMAGED:
        assert any(name in each for each in problems)
        assert name in report
        assert name in ran.err
    assert not any(name in each for name in SOUND for each in problems)
    assert "Traceback" not in ran.err
