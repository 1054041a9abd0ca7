"""Plans, journals and undo areas of released versions are read; newer formats are refused."""
from __future__ import annotations

import json
from pathlib import Path

import pytest
from changes import made_areas
from cli.running import Ran, assert_one_sentence
from click.testing import CliRunner
from models.seed import some

import kafkastore
from kafkastore.changes.journal import Journal
from kafkastore.changes.plan import InvalidPlanError, Plan
from kafkastore.cli.command_list import cli

MADE = [(version, name) for version in made_areas.versions() for name in made_areas.names(version)]
PHASES = {"applied": "applied", "interrupted": "applying", "undone": "undone"}


def run(*arguments: object) -> Ran:
    result = CliRunner().invoke(
        cli, [*map(str, arguments)], prog_name="kafkastore", catch_exceptions=False
    )
    return Ran(result.exit_code, result.stdout, result.stderr)


def test_every_released_version_has_an_archive() -> None:
    """A changed format must be released with an archive of the version before it."""
    assert kafkastore.__version__ in made_areas.versions()
    for version in made_areas.versions():
        assert len(made_areas.names(version)) == len(made_areas.STATES) * 12


@pytest.mark.parametrize(("version", "name"), some(MADE, 12), ids=str)
def test_a_journal_of_a_released_version_is_read_undone_and_resumed(
    version: str, name: str, tmp_path: Path
) -> None:
    made = made_areas.unpack(version, name, tmp_path)
    journal = Journal.open(made.area)
    assert journal.phase == PHASES[name.partition("/")[2]]
    assert [each.area for each in kafkastore.changes.areas.find_journals(made.root)] == [made.area]
    if not name.endswith("/undone"):
        assert journal.changed or journal.created
        kafkastore.resume(made.area)
        assert made_areas.listing(made.root) == made.after
    kafkastore.undo(made.area)
    assert made_areas.listing(made.root) == made.before


@pytest.mark.parametrize("version", made_areas.versions())
def test_a_plan_of_a_released_version_is_read_and_written_as_it_was(
    version: str, tmp_path: Path
) -> None:
    kinds = set()
    for number, name in enumerate(made_areas.names(version)):
        text = made_areas.unpack(version, name, tmp_path / str(number)).plan_text
        assert Plan.from_json(text).to_json() == text
        kinds |= {change["content"]["kind"] for change in json.loads(text)["changes"]
                  if change["content"] is not None}
    assert kinds == {"inline", "rebuilt", "prefix", "part", "converted", "copied"}


def newer(made: made_areas.MadeArea) -> None:
    """Make the plan one of a later format, with things that this version does not know."""
    plan = made.area / "plan.json"
    value = json.loads(plan.read_text())
    value["kafkastore_plan"] = 3
    value["changes"] = [{"moved": "elsewhere"}]
    plan.write_text(json.dumps(value))


def test_a_plan_of_a_newer_format_is_refused_by_its_number(tmp_path: Path) -> None:
    made = made_areas.unpack(*MADE[0], tmp_path)
    newer(made)
    before = made_areas.listing(made.root)
    with pytest.raises(InvalidPlanError) as caught:
        kafkastore.undo(made.area)
    assert caught.value.path == made.area / "plan.json"
    for verb, *options in (("undo",), ("resume",), ("remove", "--yes")):
        assert_one_sentence(
            run("changes", verb, made.area, *options), str(made.area / "plan.json")
        )
    assert made_areas.listing(made.root) == before


def test_a_journal_with_an_unknown_step_is_refused(tmp_path: Path) -> None:
    made = made_areas.unpack(*MADE[0], tmp_path)
    before = made_areas.listing(made.root)
    with open(made.area / "journal.jsonl", "a") as journal:
        journal.write('{"event": "moved", "path": "t-0/x"}\n')
    with pytest.raises(InvalidPlanError) as caught:
        kafkastore.undo(made.area)
    assert caught.value.path == made.area / "journal.jsonl"
    assert made_areas.listing(made.root) == before


def test_a_line_that_a_crash_truncated_is_no_unknown_step(tmp_path: Path) -> None:
    made = made_areas.unpack(*MADE[0], tmp_path)
    with open(made.area / "journal.jsonl", "a") as journal:
        journal.write('{"event": "mov')
    kafkastore.undo(made.area)
    assert made_areas.listing(made.root) == made.before
