"""The site has every page, link and public name, and loads nothing from other hosts."""
from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import click
import pytest
from models.built_site import ROOT, build
from models.seed import some

from kafkastore import public_names
from kafkastore.cli.command_list import COMMANDS, cli

#: Text that Markdown would have made into something else.
UNRENDERED = {
    "a list": r"\n\s*(?:[-*]|\d+\.) \w",
    "bold text": r"\*\*",
    "code": r"`",
    "a link": r"\]\(",
    "a table": r"^\||\n\|",
    "a heading": r"\n#+ ",
}


BLOCKS = {"p", "li", "td", "dd", "div", "h1", "h2", "h3", "h4", "ol", "pre", "table", "ul"}


class Reference(NamedTuple):
    """What an attribute of an element refers to."""

    tag: str
    target: str
    text: str


class Html(HTMLParser):
    """Anchors, references and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.references: list[Reference] = []
        self.prose = [""]
        self._link: str | None = None
        self._shown, self._code, self._article = "", 0, 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.anchors |= {named[key] or "" for key in ("id", "name") if key in named}
        self._article += tag == "article"
        self._code += tag in ("pre", "code")
        if tag in BLOCKS:
            self.prose.append("")
        if tag == "a" and named.get("href") is not None:
            self._link, self._shown = named["href"], ""
        elif tag != "a":
            targets = (named.get(key) for key in ("src", "href", "data", "srcset"))
            self.references += [Reference(tag, each, "") for each in targets if each]

    def handle_endtag(self, tag: str) -> None:
        self._article -= tag == "article"
        self._code -= tag in ("pre", "code")
        if tag in BLOCKS:
            self.prose.append("")
        if tag == "a" and self._link is not None:
            self.references.append(Reference("a", self._link, self._shown.strip()))
            self._link = None

    def handle_data(self, data: str) -> None:
        if self._link is not None:
            self._shown += data
        if self._article and not self._code:
            self.prose[-1] += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "html"
    build(folder)
    return folder


@pytest.fixture(scope="module")
def html(site: Path) -> dict[str, Html]:
    """The pages by their path on the site."""
    return {
        path.relative_to(site).as_posix(): Html(path.read_text(encoding="utf-8"))
        for path in site.rglob("*.html")
    }


def address(source: str) -> str:
    """Return the path on the site of a Markdown file."""
    return posixpath.join(re.sub(r"README$", "", source.removesuffix(".md")), "index.html")


def sources() -> Iterator[str]:
    for pattern in ("*.md", "docs/**/*.md", "benchmarks/README.md"):
        yield from (path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))


def test_every_page_of_the_repository_is_a_page_of_the_site(html: dict[str, Html]) -> None:
    addresses = {address(source) for source in sources()}
    assert len(addresses) > 50
    assert addresses - html.keys() == set()


def test_every_link_leads_to_a_page_a_heading_or_a_file(
    site: Path, html: dict[str, Html]
) -> None:
    internal = 0
    for path, page in html.items():
        for reference in page.references:
            scheme, host, target, _, anchor = urlsplit(reference.target)
            if scheme == "data" or host or path == "404.html":  # that one is served anywhere
                continue
            found = posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(target)))
            if not target:
                found = path
            elif target.endswith(("/", "..")) or target == ".":
                found = posixpath.normpath(posixpath.join(found, "index.html"))
            assert (site / found).is_file(), (path, reference)
            if anchor and found in html:
                assert unquote(anchor) in html[found].anchors, (path, reference)
            internal += 1
    assert internal > 5000


def test_nothing_is_loaded_from_other_hosts(site: Path, html: dict[str, Html]) -> None:
    for path, page in html.items():
        for reference in page.references:
            is_foreign = bool(urlsplit(reference.target).netloc)
            assert not is_foreign or reference.tag == "a", (path, reference)
    for style in site.rglob("*.css"):
        loaded = re.findall(r"(?:url\(|@import\s*)[\"']?(?:https?:)?//", style.read_text())
        assert loaded == [], style


def test_links_are_named_by_the_titles_of_pages(html: dict[str, Html]) -> None:
    links = [
        (path, reference)
        for path, page in html.items()
        for reference in page.references
        if reference.tag == "a"
    ]
    assert [each for each in links if each[1].text.endswith(".md")] == []
    assert any(each[1].text == "Command line" for each in links if each[0] == "index.html")


def test_all_of_the_markdown_is_rendered(html: dict[str, Html]) -> None:
    for path in map(address, sources()):
        for text in html[path].prose:
            left = [name for name, each in UNRENDERED.items() if re.search(each, text)]
            assert left == [], (path, text)


def test_code_in_tables_has_no_backslash_before_a_bar(site: Path) -> None:
    page = (site / "docs" / "cli" / "index.html").read_text(encoding="utf-8")
    assert "<code>--indexes check|trust|ignore</code>" in page
    assert r"\|ignore" not in page


def test_every_public_name_is_described_in_the_reference(site: Path) -> None:
    texts = "".join(path.read_text() for path in (site / "docs" / "api").rglob("index.html"))
    shown = texts.split('<h1 id="')[1:] + texts.split('<h2 id="')[1:]
    described = {each.partition('"')[0]: each for each in shown}
    for name in public_names.__all__:
        text = described[f"kafkastore.{name}"]
        contents = text.partition('<div class="doc doc-contents')[2]
        assert re.search(r"<p>\w", contents.partition("<h2")[0]), name


def test_methods_of_compiled_classes_have_their_docstrings(site: Path) -> None:
    (page,) = site.glob("docs/api/records-*/index.html")
    text = page.read_text(encoding="utf-8").partition('id="kafkastore.RecordBatch.verify"')[2]
    contents = text.partition('<div class="doc doc-contents')[2].partition("<h3 ")[0]
    assert re.findall(r"<p>(.*)</p>", contents)[0] == "Check the checksum."
    assert "ChecksumError" in contents


def test_every_option_of_every_command_is_in_its_chapter(site: Path) -> None:
    page = (site / "docs" / "cli" / "index.html").read_text(encoding="utf-8")
    context, options = click.Context(cli), 0
    for name in COMMANDS:
        (chapter,) = re.findall(rf'<h2 id="{name}">.*?(?=<h2 |</article>)', page, re.DOTALL)
        details = chapter.partition("<details>")[2].partition("</details>")[0]
        pending = [cli.get_command(context, name)]
        for command in pending:
            assert command is not None
            if isinstance(command, click.Group):
                pending += command.commands.values()
            for each in command.params:
                if isinstance(each, click.Option) and not each.hidden:
                    assert re.search(rf"<dt><code>[^<]*{each.opts[-1]}\b", details), (name, each)
                    options += 1
    assert options > 200


def add_broken_link(root: Path) -> None:
    with (root / "README.md").open("a") as file:
        file.write("\n[nowhere](docs/nowhere.md)\n")


def add_broken_anchor(root: Path) -> None:
    with (root / "docs" / "verify.md").open("a") as file:
        file.write("\n[nowhere](cli.md#nowhere)\n")


def add_page_without_a_place(root: Path) -> None:
    (root / "docs" / "new.md").write_text("# New\n")


def remove_chapter(root: Path) -> None:
    page = root / "docs" / "cli.md"
    page.write_text(page.read_text().replace("\n## sizing\n", "\n## size\n"))


@pytest.mark.parametrize(
    "damage",
    some([add_broken_link, add_broken_anchor, add_page_without_a_place, remove_chapter], 1, "site"),
)
def test_the_build_fails_at(damage: object, tmp_path: Path) -> None:
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "docs", root / "docs")
    for name in ("benchmarks", "kafkastore", "legacy", "migration", "pyproject.toml"):
        (root / name).symlink_to(ROOT / name)
    for page in ROOT.glob("*.md"):
        shutil.copy(page, root)
    shutil.copy(ROOT / "LICENSE", root)
    assert callable(damage)
    damage(root)
    assert build(tmp_path / "html", root, check=False).returncode != 0
