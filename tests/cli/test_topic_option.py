"""``--topic`` takes names, patterns and partitions, in the same way on every command."""
from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from cli.running import Run, assert_one_sentence

import kafkastore
from kafkastore import ArgumentTypeError, UnknownTopicError
from kafkastore.cli.command_list import COMMANDS, cli
from kafkastore.cli.commands.best_replicas import command as best_replicas
from kafkastore.cli.options.topic_completion import complete_topics

PATTERN = "up-*"
NAMES = ("--topic", "up-compressed", "--topic", "up-empty")
#: Each command with the option, and what it needs to print which partitions it takes.
LINES = {
    "ls": ["--json"],
    "cat": ["--json"],
    "cluster": ["--json"],
    "offsets": ["--at", "0", "--json"],
    "compare": ["--samples", "2", "--json"],
    "verify": ["--json"],
    "predict": ["--json"],
    "reindex": ["--dry-run"],
    "migrate": ["--dry-run"],
    "repair": ["--dry-run"],
    "convert": ["--dry-run"],
    "restore": ["{root}", "--dry-run"],
    "serve": ["--listen", "127.0.0.1:0"],
    "lag": ["--offsets", "g:up:0:3", "--offsets", "g:up-compressed:0:3", "--json"],
    "latency": ["--json"],
    "groups": [],
    "transactions": [],
    "failover": ["{root}", "--offsets", "g:up-compressed:0:3", "--json"],
    "retention": ["--now", "0", "--json"],
    "sizing": ["--json"],
}


def options_named_topic(command: click.Command) -> list[click.Parameter]:
    return [each for each in command.params if "--topic" in each.opts]


def test_every_command_with_the_option_is_tested() -> None:
    context = click.Context(cli)
    commands = {name: cli.get_command(context, name) for name in COMMANDS}
    named = {name for name, each in commands.items() if each and options_named_topic(each)}
    assert named == {*LINES}
    for each in (*commands.values(), best_replicas):
        for option in options_named_topic(each) if each else []:
            assert isinstance(option, click.Option)
            assert "'ord*'" in (option.help or "")
            assert option._custom_shell_complete is complete_topics


@pytest.mark.parametrize("name", LINES)
def test_a_pattern_selects_what_the_names_that_match_select(
    name: str, run: Run, sample_root: Path
) -> None:
    options = [each.format(root=sample_root) for each in LINES[name]]
    missing = run(name, sample_root, *options, "--topic", "down-*")
    assert_one_sentence(missing, "down-*")
    if name == "serve":
        return  # it would not end
    by_names = run(name, sample_root, *options, *NAMES)
    found = run(name, sample_root, *options, "--topic", PATTERN)
    plan_id = re.compile(r"[0-9a-f]{16}")
    assert [plan_id.sub("", each) for each in (found.out, found.err)] == [
        plan_id.sub("", each) for each in (by_names.out, by_names.err)
    ]
    assert found.code == by_names.code
    assert missing.err != found.err


@pytest.mark.parametrize(
    ("pattern", "selected"),
    [
        ("*", ["up-0", "up-1", "up-compressed-0", "up-empty-0"]),
        ("u?", ["up-0", "up-1"]),
        ("up-[!c]*", ["up-empty-0"]),
        ("up*-1", ["up-1"]),  # no topic matches it, but a partition
        ("up-1", ["up-1"]),
    ],
)
def test_patterns_are_those_of_a_shell(
    run: Run, sample_root: Path, pattern: str, selected: list[str]
) -> None:
    rows = run("ls", sample_root, "--quick", "--json", "--topic", pattern).lines
    found = [f"{row['topic']}-{row['partition']}" for row in rows if row["kind"] == "partition"]
    assert found == selected


def test_a_topic_whose_name_looks_like_a_pattern_is_selected_alone(
    run: Run, sample_root: Path, tmp_path: Path
) -> None:
    for name in ("a*-0", "ab-0"):
        (tmp_path / name).symlink_to(sample_root / "up-0")
    rows = run("ls", tmp_path, "--quick", "--json", "--topic", "a*").lines
    assert [row["topic"] for row in rows if row["kind"] == "partition"] == ["a*"]


def test_a_pattern_without_a_match_is_one_sentence(run: Run, sample_root: Path) -> None:
    ran = run("ls", sample_root, "--topic", "down*")
    assert_one_sentence(ran, "no topic matches down*", "there are up, up-compressed, up-empty")
    ran = run("cluster", sample_root, "--topic", "down*")
    assert_one_sentence(ran, "no topic that matches down*", "there are up")
    assert_one_sentence(run("cluster", sample_root, "--topic", "upp"), "did you mean up?")


@pytest.mark.parametrize("name", ["up-compressed", "up-0"])
def test_a_name_in_other_case_gets_the_name_that_is_meant(
    run: Run, sample_root: Path, name: str
) -> None:
    ran = run("cat", sample_root, "--topic", name.upper())
    assert_one_sentence(ran, f"no topic {name.upper()} in", f"did you mean {name}?")


def test_python_takes_patterns_where_it_takes_topics(sample_root: Path) -> None:
    store = kafkastore.open(sample_root)
    chosen = store.chosen_of(["up-*"], None)
    assert [each.topic for each in chosen] == ["up-compressed", "up-empty"]
    assert store.chosen_of("*", None) == [*store.partitions]
    assert store.chosen_of(["up*", "up"], None) == [*store.partitions]
    assert store.to_arrow("up-*").read_all() == store.topic("up-compressed").to_arrow().read_all()
    with pytest.raises(UnknownTopicError) as caught:
        store.to_arrow("down*")
    assert caught.value.topic == "down*"
    with pytest.raises(ArgumentTypeError):
        store.chosen_of([7], None)  # type: ignore[list-item]
