"""Each kind of damage is found at its position, with its severity, and its remedy repairs it."""
from __future__ import annotations

import re
import shlex
from fnmatch import fnmatchcase
from os.path import relpath
from pathlib import Path
from typing import Any

import pytest
from checks.damages import DAMAGES, Damage
from click.testing import CliRunner

import kafkastore
from kafkastore.checks.findings import Finding, FindingKind, Severity
from kafkastore.cli.command_list import cli
from kafkastore.jobs.verify import verify

DOCUMENT = Path(__file__).parents[2] / "docs" / "verify.md"


@pytest.fixture(params=DAMAGES, ids=lambda damage: damage.name)
def damage(request: pytest.FixtureRequest) -> Damage:
    """Return each damage in turn."""
    return request.param


@pytest.fixture
def damaged(damage: Damage, golden: Any, writable_copy: Any) -> list[Path]:
    """Return a damaged copy of a golden directory, and other paths to check with it."""
    root = writable_copy(golden(*damage.case, "answers").logs)
    paths = damage.do(root)
    return paths if isinstance(paths, list) and paths[:1] == [root] else [root]


def finding_of(damage: Damage, paths: list[Path]) -> Finding:
    """Return the expected finding of a damage."""
    findings = list(verify(paths))
    (found, *_) = [
        each
        for each in findings
        if each.kind is damage.kind and fnmatchcase(relpath(each.path, paths[0]), damage.file)
    ] or pytest.fail(f"not found: {findings}")
    return found


def test_each_damage_is_found_at_its_position(damage: Damage, damaged: list[Path]) -> None:
    found = finding_of(damage, damaged)
    if damage.position == -1:
        assert found.position is not None
        assert 0 <= found.position <= found.path.stat().st_size
    else:
        assert found.position == damage.position
    for text in (found.what, found.consequence, found.remedy):
        assert text
        assert "\n" not in text


def test_each_remedy_repairs_its_damage(damage: Damage, damaged: list[Path]) -> None:
    found = finding_of(damage, damaged)
    if damage.repair is not None:
        assert not found.remedy.startswith("kafkastore "), found.remedy
        damage.repair(damaged[0])
    else:
        run_remedy(found)
    # Files that were moved away are then missing; the remedy of that is a command.
    for each in {each.remedy: each for each in findings_above_style(damaged)}.values():
        run_remedy(each)
    assert findings_above_style(damaged) == []


def findings_above_style(paths: list[Path]) -> list[Finding]:
    """Return the findings above `style` in those paths that exist."""
    found = verify([path for path in paths if path.exists()])
    return [each for each in found if each.severity is not Severity.STYLE]


def run_remedy(finding: Finding) -> None:
    """Run the command that a finding names."""
    program, *arguments = shlex.split(finding.remedy)
    assert program == "kafkastore", finding.remedy
    result = CliRunner().invoke(cli, [*arguments, "--in-place", "--yes"], catch_exceptions=False)
    assert result.exit_code == 0, (finding.remedy, result.output)


def test_verify_exits_with_1_only_for_damage_above_style(
    damage: Damage, damaged: list[Path]
) -> None:
    result = CliRunner().invoke(cli, ["verify", *map(str, damaged), "--fail-on", "slow"])
    assert result.exit_code == (0 if damage.kind.severity is Severity.STYLE else 1), result.output


def test_the_document_lists_each_kind_with_its_severity_and_consequence() -> None:
    documented = re.findall(
        r"^\| `([a-z-]+)` \| `([a-z-]+)` \| [^|\n]+ \| ([^|\n]+) \| [^|\n]+ \|$",
        DOCUMENT.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert documented == [(kind, kind.severity, kind.consequence) for kind in FindingKind]


@pytest.mark.parametrize("kind", FindingKind)
def test_each_kind_of_finding_is_reported_by_a_check_and_expected_by_a_test(
    kind: FindingKind
) -> None:
    name = re.compile(rf"FindingKind\.{kind.name}\b")
    for folder in (Path(kafkastore.__file__).parent / "checks", Path(__file__).parent):
        texts = (path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
        assert any(name.search(text) for text in texts), folder
