"""The command line on URLs: reading commands work, altering commands work on copies."""
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.examples import blocks_of, commands_of
from cli.running import Run, assert_one_sentence
from models.refused import change_refused
from remote.conftest import S3

import kafkastore
from kafkastore import migration, samples
from kafkastore.samples.unpacking import unpack_archive

PAGE = Path(__file__).parents[2] / "docs" / "storage.md"
READING = [
    "ls", "ls --segments --json", "ls --json", "verify", "verify --json",
    "offsets --at 2017-07-14T02:40:00Z", "compare --samples 3 --json", "cat --json", "predict",
    "retention --now 1600000000000", "sizing", "latency",
]


def assert_same_output(run: Run, local: Path, url: str) -> None:
    """Check that every reading command has the same output for a URL as for a directory."""
    for line in READING:
        command, *options = line.split()
        here, there = run(command, local, *options), run(command, url, *options)
        assert there.code == here.code, line
        # The width of tables depends on the paths in them.
        assert " ".join(there.out.replace(url, str(local)).split()) == " ".join(here.out.split())
        assert there.err.replace(url, str(local)) == here.err


@pytest.fixture
def local(whole_seconds: Callable[[Path], Path], golden: Any) -> Path:
    """Return a directory to compare with."""
    copied = whole_seconds(golden("2.4.0", "create-time-out-of-order", "answers").root)
    return copied / "logs"


@pytest.mark.usefixtures("poisoned")
def test_every_reading_command_has_the_same_output_for_a_url_as_for_a_directory(
    s3: S3, run: Run, local: Path
) -> None:
    assert_same_output(run, local, s3.put(local, "logs"))


GROUPS = Path(__file__).parents[1] / "golden" / "groups" / "4.3.1.tar.xz"
OF_COORDINATORS = [
    "cluster LOGS --json", "cluster LOGS --as-of 60 --json", "cluster LOGS --diff 20.. --json",
    "cluster best-replicas LOGS --json", "groups LOGS --json", "groups LOGS --group share",
    "lag LOGS --json", "transactions LOGS --json", "verify LOGS --metadata LOGS",
    "dump LOGS/__cluster_metadata-0/quorum-state", "dump LOGS/bootstrap.checkpoint",
    "dump LOGS/__share_group_state-0/00000000000000000000.log --records --json",
]


@pytest.mark.usefixtures("poisoned")
def test_the_cluster_and_its_coordinators_are_the_same_in_a_store(
    s3: S3, run: Run, tmp_path: Path
) -> None:
    unpack_archive(GROUPS, tmp_path)
    local = str(tmp_path / "groups" / "logs")
    url = s3.put(Path(local), "logs")
    for line in OF_COORDINATORS:
        here, there = (run(*line.replace("LOGS", each).split()) for each in (local, url))
        assert there.code == here.code, line
        assert " ".join(there.out.replace(url, local).split()) == " ".join(here.out.split())
        assert there.err.replace(url, local) == here.err


@pytest.mark.usefixtures("poisoned")
def test_single_objects_can_be_dumped(s3: S3, run: Run, local: Path) -> None:
    url = s3.put(local, "logs")
    for path in sorted(local.rglob("*")):
        if path.suffix in (".log", ".index", ".timeindex") and path.stat().st_size:
            name = path.relative_to(local)
            here, there = run("dump", path), run("dump", f"{url}/{name}")
            assert there.out.replace(url, str(local)) == here.out
            assert (there.code, there.err) == (here.code, here.err)


@pytest.mark.usefixtures("poisoned")
def test_a_store_is_copied_and_the_copy_migrated(
    s3: S3, run: Run, golden: Any, whole_seconds: Callable[[Path], Path], tmp_path: Path
) -> None:
    local = whole_seconds(golden("0.8.2.2", "codecs", "answers").logs)
    url = s3.put(local, "logs")
    ran = run("migrate", url, "--copy-to", tmp_path / "copy")
    assert ran.code == 0, ran
    assert f"of {url} to {tmp_path / 'copy'}" in ran.out
    assert run("migrate", local, "--copy-to", tmp_path / "other").code == 0
    files = sorted(p.relative_to(tmp_path / "other") for p in (tmp_path / "other").rglob("*"))
    assert files == sorted(p.relative_to(tmp_path / "copy") for p in (tmp_path / "copy").rglob("*"))
    for name in files:
        copied, expected = tmp_path / "copy" / name, tmp_path / "other" / name
        if copied.is_file() and name.name != ".lock":
            assert copied.read_bytes() == expected.read_bytes()
            assert copied.stat().st_mtime_ns == expected.stat().st_mtime_ns
    total = sum(path.stat().st_size for path in local.rglob("*") if path.is_file())
    assert sum(each.bytes for each in s3.proxy.gets) <= total
    before = {path: path.read_bytes() for path in s3.file("logs").rglob("*") if path.is_file()}
    assert before == {
        s3.file("logs") / path.relative_to(local): path.read_bytes()
        for path in local.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    "line",
    ["migrate --in-place --yes", "reindex --in-place --yes", "convert --in-place --yes",
     "repair --in-place --yes"],
)
def test_remote_stores_cannot_be_changed_in_place(
    s3: S3, run: Run, golden: Any, line: str
) -> None:
    url = s3.put(golden("0.8.2.2", "codecs", "answers").logs, "logs")
    command, *options = line.split()
    assert_one_sentence(run(command, url, *options), f"{url} can't be changed in place", "copy")
    assert {each.method for each in s3.proxy.requests} == {"GET"}


def test_a_remote_store_can_be_planned_for(s3: S3, run: Run, golden: Any) -> None:
    url = s3.put(golden("0.8.2.2", "codecs", "answers").logs, "logs")
    ran = run("migrate", url, "--dry-run", "--json")
    assert ran.code == 0
    plans = [json.loads(line) for line in ran.out.splitlines()]
    assert {each["root"] for each in plans if "root" in each} == {url}


def test_output_paths_must_be_local(s3: S3, run: Run, golden: Any) -> None:
    logs = golden("0.8.2.2", "codecs", "answers").logs
    assert_one_sentence(run("convert", logs, "--copy-to", "s3://b/k"), "s3://b/k is a URL")
    with change_refused("unsupported", "s3://b/k"):
        kafkastore.LogDirWriter("s3://b/k")
    assert s3.proxy.requests == []


def test_an_error_is_one_sentence_with_the_url(s3: S3, run: Run, local: Path) -> None:
    url = s3.put(local, "logs")
    assert_one_sentence(run("ls", f"{url}/none"), f"{url}/none does not exist")
    s3.proxy.fault = lambda method, path: 403
    assert_one_sentence(run("ls", url), f"{url} can't be read", "check credentials")


def test_the_examples_of_the_page_run(s3: S3, run: Run, tmp_path: Path) -> None:
    logs = samples.unpack(tmp_path)[-1]
    partition = (logs / "up-0").rename(logs / "orders-3")
    kafkastore.apply(migration.plan(migration.survey(partition)))  # the others have no time indexes
    s3.put(logs, "kafka-logs")
    (block,) = (block for block in blocks_of(PAGE) if block.language == "console")
    for command in commands_of(block):
        line = command.line.replace("s3://backup", f"s3://{s3.bucket}")
        program, *words = line.replace("/data", str(tmp_path)).split()
        ran = run(*words)
        assert program == "kafkastore"
        assert ran.code == (words[0] == "verify"), ran.err  # it finds the missing indexes
        assert ran.out
    for copy in (tmp_path / "kafka-logs", s3.file("kafka-logs-with-times")):
        assert not any(log.missing_indexes for log in kafkastore.open(copy))
