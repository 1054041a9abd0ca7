"""The statements of docs/cli.md are true."""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from cli.examples import blocks_of, commands_of, run_command, run_python
from cli.running import Run

from kafkastore.cli.command_list import COMMANDS

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")


def test_every_example_prints_the_documented_output(tmp_path: Path) -> None:
    commands = [
        command
        for block in blocks_of(DOCUMENT) if block.language == "console"
        for command in commands_of(block)
    ]
    assert len(commands) > 10
    for command in commands:
        run_command(command, tmp_path)


def test_the_examples_of_cluster_metadata_print_what_is_shown(
    golden: Callable[..., Any], tmp_path: Path
) -> None:
    page = DOCUMENT.with_name("cluster.md")
    (tmp_path / "disk1").symlink_to(golden("4.1.1", "kraft-metadata", "answers").logs)
    for block in blocks_of(page):
        if block.language == "console":
            for command in commands_of(block):
                run_command(command, tmp_path)
        else:
            printed = run_python(block.text, tmp_path).splitlines()
            assert printed == re.findall(r"# (\S.*)$", block.text, re.MULTILINE)


def test_every_command_has_a_chapter_that_names_its_options(run: Run) -> None:
    for name in COMMANDS:
        chapter = section(name)
        assert f"| [`{name}`](#{name}) |" in TEXT
        shown = run(name, "--help").out
        for option in re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", shown, re.MULTILINE):
            assert option in chapter + section("What all commands share") or option == "--help"


def section(title: str) -> str:
    """Return a chapter of the document."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[1]


def documented(title: str, kind: str | None = None) -> set[str]:
    """Return the fields that a chapter names for one kind of object, or for its only kind."""
    _, _, listed = section(title).partition("JSON")
    if kind is not None:
        intro = re.search(rf"^JSON[^\n]*kind `{kind}`.*?\n\n(?=(?:JSON|##|\Z|[^|\n]))|"
                          rf"^\| `{kind}` \|([^\n]*)", section(title) + "\n\n",
                          re.DOTALL | re.MULTILINE)
        assert intro is not None, (title, kind)
        listed = intro[0].replace(f"`{kind}`", "", 1)
    return set(re.findall(r"`([a-z_0-9]+)`", listed))


def check(objects: Iterable[dict[str, Any]], fields: set[str]) -> None:
    """Check that objects have only documented fields."""
    seen = set()
    for value in objects:
        seen |= set(value) - {"kind", "file"}
    assert seen
    assert seen <= fields, seen - fields


@pytest.fixture
def rich_logs(golden: Callable[..., Any]) -> Path:
    """Return a directory with all kinds of files and records."""
    logs: Path = golden("2.4.0", "transactions", "answers").logs
    return logs


def test_fields_of_ls(run: Run, golden: Callable[..., Any]) -> None:
    logs = golden("2.4.0", "wide", "answers").logs
    rows = run("ls", logs, "--json").lines + run("ls", logs, "--segments", "--json").lines
    rows += run("ls", logs, "--topic", "a", "--partition", 0, "--offset", 3, "--json").lines
    for kind in ("log_dir", "skipped", "partition", "segment", "batch"):
        check((row for row in rows if row["kind"] == kind), documented("ls", kind))


def test_fields_of_dump(run: Run, rich_logs: Path) -> None:
    files = [path for path in rich_logs.rglob("*")
             if path.is_file() and path.suffix not in (".lock",)
             and path.name != ".lock"]
    rows = run("dump", "--records", "--json", *files).lines
    records = documented("cat") | documented("dump", "record") | {"key", "value"}
    kinds = {row["kind"] for row in rows}
    assert kinds >= {"batch", "record", "offset_index_entry", "time_index_entry", "leader_epoch"}
    for kind in kinds:
        fields = records if kind == "record" else documented("dump", kind)
        check((row for row in rows if row["kind"] == kind), fields)


def test_fields_of_cluster(run: Run, golden: Callable[..., Any]) -> None:
    logs = golden("4.1.1", "kraft-metadata", "answers").logs
    rows = run("cluster", logs, "--json").lines
    rows += run("cluster", logs, "--json", "--diff", "..").lines
    rows += run("cluster", logs, "--json", "--recreate").lines
    assert {"cluster", "broker", "partition", "config", "change", "recreate"} <= {
        row["kind"] for row in rows
    }
    for kind in {row["kind"] for row in rows}:
        check((row for row in rows if row["kind"] == kind), documented("cluster", kind))


def test_fields_of_cat_offsets_compare_and_verify(
    run: Run, rich_logs: Path, sample_root: Path
) -> None:
    check(run("cat", rich_logs, "--json", "--headers").lines, documented("cat"))
    rows = run("offsets", sample_root, "--at", 0, "--rules", "all", "--json").lines
    check(rows, documented("offsets"))
    check(run("compare", sample_root, "--json").lines, documented("compare"))
    check(run("verify", sample_root, "--json").lines, documented("verify"))


def test_fields_of_explanations(run: Run, sample_root: Path) -> None:
    rows = run("offsets", sample_root, "--at", "2017-07-14T02:40:30Z", "--rules", "2.4",
               "--rules", "correct", "--explain", "--json").lines
    (line,) = re.findall(r"^\| `explanation` \|(.*)", section("offsets"), re.MULTILINE)
    fields = set(re.findall(r"`([a-z_]+)`", line))
    explanations = [row["explanation"] for row in rows]
    check(explanations, fields)
    check((each for row in explanations for each in row.values() if isinstance(each, dict)),
          fields)


def test_fields_of_migrate_and_changes(run: Run, sample_copy: Path) -> None:
    rows = run("migrate", sample_copy, "--in-place", "--yes", "--json").lines
    for kind in ("plan", "change", "answer", "answers", "result"):
        check((row for row in rows if row["kind"] == kind), documented("migrate", kind))
    check(run("changes", "list", sample_copy, "--json").lines, documented("changes"))
