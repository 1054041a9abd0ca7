from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from changes.small_store import contents
from cli.running import Run, assert_one_sentence
from models.refused import change_refused

import kafkastore
from kafkastore import migration, samples
from kafkastore.cli.altering import migrate
from kafkastore.spark.pipeline import run_pipeline
from kafkastore.spark.pipeline.results import PipelineResult, Step, StoreResult

SHORT = ["--spark", "local[2]", "--samples", "3"]


def fake(problems: list[str], calls: list[dict[str, Any]]) -> Callable[..., PipelineResult]:
    """Return a pipeline that only records its calls."""

    def run_pipeline(path: Any, out: Path, **options: Any) -> PipelineResult:
        calls.append({"paths": list(path), "out": out, **options})
        progress = options["progress"]
        for step in ("inventory", "verify"):
            progress.step_started(step, "partitions", 4)
            progress.step_advanced(step, 2, 4)
            progress.step_finished(step, 1.25, "as it should be")
        store = StoreResult("logs", str(path[0]), str(out / "migrated" / "logs"))
        store.problems = problems
        return PipelineResult(out, options["mode"], 0, [store], [Step("inventory", 1.25, "")])

    return run_pipeline


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], list[dict[str, Any]]]:
    """Return a function that installs a pipeline that only records its calls."""

    def install(problems: list[str]) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []
        monkeypatch.setattr("kafkastore.cli.commands.pipeline._import_pipeline",
                            lambda: fake(problems, calls))
        return calls

    return install


def test_steps_summary_and_suggestions_are_shown(
    run: Run, faked: Any, sample_root: Path, tmp_path: Path
) -> None:
    (calls,) = [faked([])]
    ran = run("pipeline", sample_root, "--out", tmp_path / "out", *SHORT, "--mode", "rebuild")
    assert ran.code == 0
    (call,) = calls
    assert (call["paths"], call["mode"], call["master"]) == ([sample_root], "rebuild", "local[2]")
    assert (call["in_place"], call["samples"], call["resume"]) == (False, 3, False)
    lines = ran.out.splitlines()
    assert lines[0] == "inventory              1.2 s  as it should be"
    assert f"report   {tmp_path / 'out' / 'report.html'}" in lines
    assert f"migrated {tmp_path / 'out' / 'migrated' / 'logs'}" in lines
    assert lines[-1] == f"  kafkastore migrate {sample_root} --dry-run"


def test_problems_are_reported_and_the_exit_code_is_1(
    run: Run, faked: Any, sample_root: Path, tmp_path: Path
) -> None:
    faked(["up-1 could not be read to its end"])
    ran = run("pipeline", sample_root, "--out", tmp_path / "out", "--json")
    assert ran.code == 1
    assert ran.err == "kafkastore: logs: up-1 could not be read to its end\n"
    assert [row["kind"] for row in ran.lines] == ["step", "step", "store", "result"]
    assert ran.lines[-1]["problems"] == ["logs: up-1 could not be read to its end"]


def test_in_place_needs_confirmation_or_yes(
    run: Run, faked: Any, sample_copy: Path, tmp_path: Path
) -> None:
    calls = faked([])
    ran = run("pipeline", sample_copy, "--out", tmp_path / "out", "--in-place")
    assert_one_sentence(ran, "add --yes")
    assert calls == []
    ran = run("pipeline", sample_copy, "--out", tmp_path / "out", "--in-place", "--yes")
    assert ran.code == 0
    assert calls[0]["in_place"] is True


def test_a_wrong_path_is_reported_before_spark_is_started(
    run: Run, faked: Any, tmp_path: Path
) -> None:
    calls = faked([])
    assert_one_sentence(run("pipeline", "/nowhere", "--out", tmp_path / "out"), "does not exist")
    assert_one_sentence(run("pipeline", tmp_path), "--out")
    assert calls == []


def test_without_spark_the_error_says_how_to_install_it(
    run: Run, sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    for missing, sentence in (
        (("pyspark",), "pyspark is not installed"),
        (("pyspark", "jinja2"), "pyspark and jinja2 are not installed"),
    ):
        monkeypatch.setattr(
            "kafkastore.cli.options.on_spark.find_spec",
            lambda name, missing=missing: None if name in missing else find_spec(name),
        )
        ran = run("pipeline", sample_root, "--out", tmp_path / "out")
        assert_one_sentence(ran, sentence, "-m pip install 'kafkastore[spark]'")


def test_ctrl_c_says_how_to_resume(
    run: Run, sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kafkastore.cli.commands.pipeline._import_pipeline", lambda: interrupted)
    ran = run("pipeline", sample_root, "--out", tmp_path / "out")
    assert ran.code == 130
    assert "with --resume to continue" in ran.err


def test_ctrl_c_in_place_says_what_has_changed_and_how_to_undo_it(
    run: Run, sample_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(sample_copy)

    def interrupted(paths: Any, *arguments: object, **options: object) -> None:
        kafkastore.apply(migration.plan(migration.survey(paths[0])), tmp_path)
        raise KeyboardInterrupt

    monkeypatch.setattr("kafkastore.cli.commands.pipeline._import_pipeline", lambda: interrupted)
    line = ("pipeline", sample_copy, "--out", tmp_path / "out", "--in-place", "--yes",
            "--undo-dir", tmp_path)
    ran = run(*line)
    assert ran.code == 130
    assert f"11 of 11 files are changed in {sample_copy}: " in ran.err
    (undo,) = re.findall(r"kafkastore (changes undo \S+ --root \S+) undoes them", ran.err)
    assert contents(sample_copy) != before
    assert run(*undo.split()).code == 0
    assert contents(sample_copy) == before


@pytest.mark.usefixtures("spark")
def test_a_dry_run_prints_the_plan_of_migrate_and_changes_nothing(
    run: Run, faked: Any, sample_copy: Path
) -> None:
    calls, before = faked([]), contents(sample_copy)
    ran = run("pipeline", sample_copy, "--dry-run", "--mode", "rebuild", "--spark", "local[2]")
    planned = run("migrate", sample_copy, "--dry-run", "--mode", "rebuild")
    assert (ran.code, ran.out) == (planned.code, planned.out)
    assert contents(sample_copy) == before
    assert calls == []
    assert_one_sentence(run("pipeline", sample_copy), "Missing option '--out'")


def test_a_dry_run_of_a_copy_plans_for_the_copy(
    run: Run, sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(migrate.command, "callback", lambda **options: given.update(options))
    run("pipeline", sample_root, "--dry-run", "--copy-to", tmp_path / "copy")
    assert (given["dry_run"], given["copy_to"]) == (True, tmp_path / "copy")


@pytest.mark.parametrize(
    "options",
    [
        ["--dry-run", "--in-place"],
        ["--copy-to", "elsewhere", "--in-place"],
        ["--copy-to", "elsewhere", "PATH"],
        ["--yes"],
    ],
    ids=" ".join,
)
def test_options_that_migrate_refuses_are_refused(
    run: Run, faked: Any, sample_root: Path, tmp_path: Path, options: list[str]
) -> None:
    calls = faked([])
    line = [str(sample_root) if each == "PATH" else each for each in options]
    refused = run("pipeline", sample_root, "--out", tmp_path / "out", *line)
    assert refused.code == run("migrate", sample_root, *line).code == 2
    assert refused.err.partition(";")[0] == run("migrate", sample_root, *line).err.partition(";")[0]
    assert calls == []


def test_a_copy_elsewhere_needs_no_confirmation(
    run: Run, faked: Any, sample_root: Path, tmp_path: Path
) -> None:
    calls = faked([])
    options = ["--copy-to", tmp_path / "copy", "--undo-dir", tmp_path]
    assert run("pipeline", sample_root, "--out", tmp_path / "out", *options).code == 0
    (call,) = calls
    assert (call["copy_to"], call["undo_dir"]) == (tmp_path / "copy", tmp_path)
    assert call["in_place"] is False


def test_an_undo_directory_of_copies_is_refused(
    run: Run, faked: Any, sample_root: Path, tmp_path: Path
) -> None:
    calls = faked([])
    ran = run("pipeline", sample_root, "--out", tmp_path / "out", "--undo-dir", tmp_path)
    assert_one_sentence(ran, "--undo-dir needs --in-place")
    with change_refused("unsupported"):
        run_pipeline(sample_root, tmp_path / "out", undo_dir=tmp_path)
    for options in ({"in_place": True}, {"path": [sample_root, tmp_path]}):
        arguments: dict[str, Any] = {"path": sample_root, "copy_to": tmp_path / "copy", **options}
        with change_refused("unsupported"):
            run_pipeline(out=tmp_path / "out", **arguments)
    assert calls == []


@pytest.mark.soak
@pytest.mark.usefixtures("spark")
def test_the_pipeline_of_the_readme_completes_and_its_suggestions_work(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run it on one of the README's three directories."""
    samples.unpack(tmp_path / "samples")
    monkeypatch.chdir(tmp_path)
    ran = run("pipeline", "samples/0.10.0.1", "--out", "out")
    assert (ran.code, ran.err) == (0, "")
    steps = [line.split("  ")[0] for line in ran.out.splitlines() if " s  " in line]
    for step in ("inventory", "verify", "migrate", "report"):
        assert step in steps
    assert (tmp_path / "out" / "report.html").is_file()
    *_, suggested = ran.out.partition("Try next:")
    commands = [line.strip() for line in suggested.splitlines() if line.strip()]
    assert len(commands) == 5
    assert sum(str(tmp_path) in line for line in commands) >= 4
    programs = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    for line in commands:
        subprocess.run(["sh", "-c", line], env=environment, stdout=subprocess.DEVNULL, check=True)
