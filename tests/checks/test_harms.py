"""Each kind of harm is found where it is, with its severity, and its remedy mends it."""
from __future__ import annotations

import ast
import re
import shlex
from fnmatch import fnmatchcase
from os.path import relpath
from pathlib import Path
from typing import Any

import pytest
from checks.harms import HARMS, Harm
from click.testing import CliRunner

import kafkastore
from kafkastore.checks.findings import Finding, Severity
from kafkastore.cli.commands import cli
from kafkastore.jobs.verify import verify

DOCUMENT = Path(__file__).parents[2] / "docs" / "verify.md"


@pytest.fixture(params=HARMS, ids=lambda harm: harm.name)
def harm(request: pytest.FixtureRequest) -> Harm:
    """One harm after the other."""
    return request.param


@pytest.fixture
def harmed(harm: Harm, golden: Any, writable_copy: Any) -> list[Path]:
    """A harmed copy of the harm's golden directory, and what else is to be checked with it."""
    root = writable_copy(golden(*harm.case, "answers").logs)
    paths = harm.do(root)
    return paths if isinstance(paths, list) and paths[:1] == [root] else [root]


def of_harm(harm: Harm, paths: list[Path]) -> Finding:
    """Return the finding that the harm is to be told by."""
    findings = list(verify(paths))
    (found, *_) = [
        each
        for each in findings
        if harm.words in each.what and fnmatchcase(relpath(each.path, paths[0]), harm.file)
    ] or pytest.fail(f"not found: {findings}")
    return found


def test_each_harm_is_found_where_it_is(harm: Harm, harmed: list[Path]) -> None:
    found = of_harm(harm, harmed)
    assert found.severity == harm.severity
    if harm.position == -1:
        assert found.position is not None
        assert 0 <= found.position <= found.path.stat().st_size
    else:
        assert found.position == harm.position
    for text in (found.what, found.consequence, found.remedy):
        assert text
        assert "\n" not in text


def test_each_remedy_mends_its_harm(harm: Harm, harmed: list[Path]) -> None:
    found = of_harm(harm, harmed)
    if harm.mend is not None:
        assert not found.remedy.startswith("kafkastore "), found.remedy
        harm.mend(harmed[0])
    else:
        run_remedy(found)
    # What was moved away is missing, and its remedy a command.
    for each in {each.remedy: each for each in above_style(harmed)}.values():
        run_remedy(each)
    assert above_style(harmed) == []


def above_style(paths: list[Path]) -> list[Finding]:
    """Return what is worse than style in those directories that are there."""
    found = verify([path for path in paths if path.exists()])
    return [each for each in found if each.severity is not Severity.STYLE]


def run_remedy(finding: Finding) -> None:
    """Run the command that a finding names."""
    program, *arguments = shlex.split(finding.remedy)
    assert program == "kafkastore", finding.remedy
    result = CliRunner().invoke(cli, [*arguments, "--in-place", "--yes"], catch_exceptions=False)
    assert result.exit_code == 0, (finding.remedy, result.output)


def test_no_harm_but_those_above_style_ends_with_1(harm: Harm, harmed: list[Path]) -> None:
    result = CliRunner().invoke(cli, ["verify", *map(str, harmed), "--fail-on", "slow"])
    assert result.exit_code == (0 if harm.severity is Severity.STYLE else 1), result.output


def rows() -> list[tuple[str, str]]:
    """Return what is found and how bad it is, as the document's tables have it."""
    return [
        (what, severity)
        for what, severity in re.findall(
            r"^\| ([^|\n]+) \| `([a-z-]+)`[^|\n]* \| [^|\n]+ \| [^|\n]+ \|$",
            DOCUMENT.read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    ]


def fits(what: str, row: str) -> bool:
    """Tell whether a finding is one of a row, in which ``…`` stands for anything."""
    parts = [re.escape(part) for part in re.split("…", row.replace("`", ""))]
    return re.match(".*".join(parts), what) is not None


def test_each_harm_has_its_row_in_the_document(harm: Harm, harmed: list[Path]) -> None:
    found = of_harm(harm, harmed)
    row = [each for each in rows() if fits(found.what, each[0])]
    assert [severity for _, severity in row if severity == found.severity], found.what


def said_in_the_source() -> set[str]:
    """Return the texts of findings that the source has, ``…`` for what is put in."""
    found = set()
    for path in sorted((Path(kafkastore.__file__).parent / "checks").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        places = {"Finding": Finding._fields.index("what")}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                names = [each.arg for each in node.args.args if each.arg != "self"]
                if "what" in names:
                    places[node.name] = names.index("what")
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", None))
                if name in places and len(node.args) > places[name]:
                    text = template(node.args[places[name]])
                    if text is not None and name != "_without_entries":
                        found.add(PREFIXES.get((path.name, name), "") + text)
    return found


#: What a function puts before the text that it is given.
PREFIXES = {
    ("snapshot_check.py", "_wrong"): "the snapshot differs from the log: ",
    ("epoch_check.py", "_wrong"): "leader epochs: ",
}


def template(node: ast.expr) -> str | None:
    """Return a text with ``…`` for what is put in; None where it comes from elsewhere."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if not isinstance(node, ast.JoinedStr):
        return None
    parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
    text = "".join(map(str, parts))
    return text if re.search("[a-z]{3}", text) else None


def test_everything_that_can_be_told_has_its_row_in_the_document() -> None:
    texts = said_in_the_source()
    assert len(texts) > 30
    told = "\n".join(row.replace("`", "") for row, _ in rows())
    # What a function puts together of parts is looked for by its longest part.
    without = [
        text
        for text in texts
        if not any(fits(text, row) for row, _ in rows())
        and max(text.split("…"), key=len).strip() not in told
    ]
    assert without == []


@pytest.mark.golden_cases(answers=["answers", "answers-recovered"])
def test_every_finding_in_golden_directories_has_its_row(golden_case: Any) -> None:
    for finding in verify(golden_case.root / "logs"):
        assert (finding.severity in {
            severity for row, severity in rows() if fits(finding.what, row)
        }), finding
