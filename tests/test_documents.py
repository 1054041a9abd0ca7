"""All targets of links in the pages exist: other pages, their headings, and source files."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "benchmarks/README.md"})
FOLDERS = (
    "kafkastore", "legacy", "migration", "packaging", "tests", "benchmarks", "docs", ".ci",
)
SUFFIXES = (".py", ".pyx", ".pxd", ".h")


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", each.lower()).replace(" ", "-") for each in titles}


@pytest.fixture(scope="module")
def source_files() -> list[str]:
    """Every source file, with a slash before its path."""
    found = [path for name in FOLDERS for path in (ROOT / name).rglob("*")]
    return [
        f"/{path.relative_to(ROOT).as_posix()}"
        for path in (ROOT / "setup.py", *found)
        if path.suffix in SUFFIXES
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_pages_and_headings(page: Path) -> None:
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)", page.read_text()):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor[1:] in headings(target), (path, anchor)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_source_files_that_are_named_exist(page: Path, source_files: list[str]) -> None:
    named = re.findall(r"`([\w./-]+\.(?:py|pyx|pxd|h))(?:`|::)", page.read_text())
    assert [each for each in named if not any(f.endswith(f"/{each}") for f in source_files)] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
