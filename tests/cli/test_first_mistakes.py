"""Mistakes of the first minute: one sentence that says what is meant, or what to do."""
from __future__ import annotations

import shutil
from pathlib import Path

import click
import pytest
from cli.running import Run, assert_one_sentence

from kafkastore.cli.command_line import _OTHER_NAMES
from kafkastore.cli.command_list import COMMANDS, cli
from kafkastore.cli.options.whole_numbers import WholeNumber
from kafkastore.lookup.rules import CORRECT
from kafkastore.versions import NEWEST_VERSION


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("yesterday", "-1d"),
        ("10m", "-10m"),
        ("1h ago", "-1h"),
        ("2 hours", "-2h"),
        ("1 day and 12 hours ago", "-1d12h"),
        ("-5min", "-5m"),
        ("14.07.2017", "2017-07-14T00:00:00Z"),
        ("2017/7/14", "2017-07-14T00:00:00Z"),
        ("latst", "latest"),
        ("max-timestmp", "max-timestamp"),
    ],
)
def test_a_time_in_other_words_is_shown_as_it_is_written(
    run: Run, sample_root: Path, text: str, meant: str
) -> None:
    ran = run("offsets", sample_root, "--at", text)
    assert_one_sentence(ran, repr(text), f"did you mean {meant}? see kafkastore offsets --help")
    assert run("offsets", sample_root, "--at", meant).code == 0


def test_a_time_of_day_is_one_of_today(run: Run, sample_root: Path) -> None:
    ran = run("offsets", sample_root, "--at", "2:40")
    assert_one_sentence(ran, "T02:40Z?")


@pytest.mark.parametrize("text", ["soon", "10 parsecs", "31.02.2017", "2017/13/01", ""])
def test_other_texts_are_no_times_and_nothing_is_suggested(
    run: Run, sample_root: Path, text: str
) -> None:
    ran = run("offsets", sample_root, "--at", text)
    assert_one_sentence(ran, "a time must be", repr(text))
    assert "did you mean" not in ran.err


def test_a_date_without_a_zone_is_shown_without_a_space(run: Run, sample_root: Path) -> None:
    ran = run("offsets", sample_root, "--at", "2017-07-14 02:40")
    assert_one_sentence(ran, "has no time zone", "write 2017-07-14T02:40Z for UTC")


def test_a_number_that_looks_like_a_date_is_noted(run: Run, sample_root: Path) -> None:
    ran = run("offsets", sample_root, "--at", "20170714")
    assert ran.code == 0
    assert "write 2017-07-14T00:00:00Z for that day" in ran.err
    for number in ("20171314", "1500000000000", "99999999"):
        assert "for that day" not in run("offsets", sample_root, "--at", number).err


@pytest.mark.parametrize(
    ("text", "meant"), [("7days", "7d"), ("5 min", "5m"), ("1H", "1h"), ("2 weeks, 1 day", "2w1d")]
)
def test_a_duration_with_other_units_is_shown_as_it_is_written(
    run: Run, sample_root: Path, text: str, meant: str
) -> None:
    ran = run("retention", sample_root, "--retention-ms", text)
    assert_one_sentence(ran, repr(text), f"did you mean {meant}?")
    assert run("retention", sample_root, "--retention-ms", meant).code in (0, 1)


@pytest.mark.parametrize(
    ("name", "meant"), [("corect", "correct"), ("v2.4", "2.4"), ("KIP33", "kip-33")]
)
def test_rules_with_a_typo_get_a_suggestion(
    run: Run, sample_root: Path, name: str, meant: str
) -> None:
    ran = run("offsets", sample_root, "--at", "0", "--rules", name)
    assert_one_sentence(ran, "must be all, correct, kip-33", repr(name), f"did you mean {meant}?")
    ran = run("serve", sample_root, "--rules", name)
    assert_one_sentence(ran, f"did you mean {meant}?", "kafkastore serve --help")
    unknown = run("compare", sample_root, "--rules", "9")
    assert_one_sentence(unknown, "'9'")
    assert "all," not in unknown.err


def test_the_default_of_a_version_is_the_newest_on_every_command(
    run: Run, sample_root: Path
) -> None:
    context = click.Context(cli)
    found: dict[str, set[str]] = {}
    for name in COMMANDS:
        command = cli.get_command(context, name)
        for each in command.params if command else ():
            for option in {"--kafka-version", "--rules"} & {*each.opts}:
                found.setdefault(option, set()).add(name)
                assert each.get_default(context) in (NEWEST_VERSION, CORRECT, (CORRECT,))
                is_lookup = option == "--rules" and name != "compare"
                assert (each.get_default(context) != NEWEST_VERSION) == is_lookup
    assert found == {
        "--kafka-version": {"predict", "reindex", "repair", "retention"},
        "--rules": {"offsets", "compare", "serve"},
    }
    ran = run("predict", sample_root, "--kafka-version", "v2.4")
    assert_one_sentence(ran, "'v2.4'", "did you mean 2.4?")


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("predict ROOT --rules 2.4", "--kafka-version"),
        ("offsets ROOT --at 0 --kafka-version 2.4", "--rules"),
        ("cat ROOT --since 0", "--from"),
        ("cat ROOT --max-messages 3", "--limit"),
        ("migrate ROOT --to copy", "--copy-to"),
        ("cat ROOT -t up", "--topic"),
    ],
)
def test_an_option_of_another_command_or_program_is_named_as_it_is_here(
    run: Run, sample_root: Path, line: str, meant: str
) -> None:
    words = [sample_root if word == "ROOT" else word for word in line.split()]
    assert_one_sentence(run(*words), f"did you mean {meant}? see kafkastore {words[0]} --help")


def test_every_other_name_leads_to_an_option_that_some_command_has() -> None:
    context = click.Context(cli)
    commands = [cli.get_command(context, name) for name in COMMANDS]
    known = {name for each in commands if each for option in each.params for name in option.opts}
    assert {name for names in _OTHER_NAMES.values() for name in names} <= known


def test_a_path_without_a_command_is_one_sentence(run: Run, sample_root: Path) -> None:
    assert_one_sentence(run(sample_root), f"such as kafkastore ls {sample_root}")


def test_a_path_with_a_typo_or_a_topic_in_place_of_a_partition_gets_a_suggestion(
    run: Run, sample_root: Path
) -> None:
    assert_one_sentence(run("ls", sample_root / "up"), f"did you mean {sample_root / 'up-0'}?")
    parent = sample_root.parent
    missing = parent.with_name("smaples") / sample_root.name
    assert_one_sentence(run("ls", missing), f"did you mean {sample_root}?")
    far = run("ls", parent / "entirely-different")
    assert_one_sentence(far, "does not exist")
    assert "did you mean" not in far.err


def test_a_topic_in_place_of_a_path_is_one_sentence(
    run: Run, sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run("cat", sample_root, "up")
    assert_one_sentence(ran, "up is a topic, not a path: write --topic up")
    assert_one_sentence(run("cat", sample_root, "down"), "down does not exist")


def test_a_copy_s_path_is_explained(run: Run, sample_root: Path, tmp_path: Path) -> None:
    inside = sample_root / "copy"
    ran = run("migrate", sample_root, "--copy-to", inside)
    assert_one_sentence(ran, "one contains the other", "name a directory outside")
    ran = run("migrate", sample_root, "--copy-to", tmp_path / "new" / "copy")
    assert_one_sentence(ran, f"{tmp_path / 'new'} does not exist", "create it first")
    (tmp_path / "file").touch()
    ran = run("migrate", sample_root, "--copy-to", tmp_path / "file" / "copy")
    assert_one_sentence(ran, f"{tmp_path / 'file'} is a file")
    ran = run("migrate", sample_root, "--copy-to", "s3:/bucket/logs")
    assert_one_sentence(ran, "did you mean s3://bucket/logs?")


def test_a_log_directory_in_place_of_an_undo_area_is_named(run: Run, sample_root: Path) -> None:
    ran = run("changes", "undo", sample_root)
    assert_one_sentence(ran, f"kafkastore changes list {sample_root} lists undo areas")


def test_numbers_are_explained_in_the_words_of_other_errors(run: Run, sample_root: Path) -> None:
    ran = run("verify", sample_root, "--threads", "many")
    assert_one_sentence(ran, "must be an int of at least 1, got 'many'")
    ran = run("migrate", sample_root, "--samples", "-1")
    assert_one_sentence(ran, "must be an int from 0 to", "'-1'")
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        for each in command.params if command else ():
            assert type(each.type) is not click.IntRange, (name, each.name)
            assert not isinstance(each.type, WholeNumber) or each.type.min is not None


def test_a_configuration_with_a_typo_gets_a_suggestion(run: Run, sample_root: Path) -> None:
    ran = run("retention", sample_root, "--config", "retention.mss=5")
    assert_one_sentence(ran, "did you mean retention.ms?")


def test_an_empty_directory_with_the_name_of_a_partition_is_empty(
    run: Run, tmp_path: Path, sample_root: Path
) -> None:
    (tmp_path / "t-0").mkdir()
    assert_one_sentence(run("ls", tmp_path / "t-0"), f"{tmp_path / 't-0'} is empty")
    shutil.copytree(sample_root / "up-0", tmp_path / "up-0")
    assert run("ls", tmp_path / "up-0").code == 0
