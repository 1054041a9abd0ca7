"""Make a site of the repository's Markdown files.

The site has the repository's folders, so that a link between two files leads to the same page on
the code host and on the site. The navigation is that of docs/README.md. Pages that would repeat the
code are generated: the reference of the Python API, and the options of each command.
"""
from __future__ import annotations

import ast
import html
import posixpath
import re
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from kafkastore.cli.command_list import COMMANDS, cli

ROOT = Path(__file__).parents[2]
CONTENTS = "docs/README.md"
COMMAND_LINE = "docs/cli.md"
#: Public names of `kafkastore` by page; the folders of the modules that define them.
SUBJECTS = {
    "Stores, logs and lookups": ("store", "log", "lookup"),
    "Records, segments and indexes": ("formats", "segment"),
    "Jobs and checks": ("jobs", "checks"),
    "Plans and changes": ("changes",),
    "Writing and recovery": ("writing", "recovery"),
    "Cluster metadata": ("metadata",),
    "Errors and warnings": ("errors",),
}
#: Public modules of their own.
MODULES = (
    "kafkastore.legacy", "kafkastore.migration", "kafkastore.server", "kafkastore.spark",
    "kafkastore.polars", "kafkastore.duckdb",
)
#: The folders of the package, and where a wheel has them.
PLACES = {
    "kafkastore": "kafkastore",
    "legacy": "kafkastore/legacy",
    "migration": "kafkastore/migration",
}
LINK = re.compile(r"(?<!!)\[([^]\[]+)\]\((?!https?:)([^)#\s]+)(#[^)\s]*)?\)")
#: Names that leave no room for other columns of a table on a phone.
LONG_NAME = re.compile(r"(?<=<code>)[\w/.:]{30,}(?=</code>)")
FENCED = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
_FOLDER = tempfile.TemporaryDirectory(prefix="kafkastore-site-")


def pages() -> list[str]:
    """List the Markdown files of the site."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def contents() -> list[Any]:
    """Return the navigation: the headings and links of docs/README.md."""
    sections: list[Any] = []
    target: list[Any] = []
    for line in (ROOT / CONTENTS).read_text(encoding="utf-8").splitlines():
        if heading := re.fullmatch(r"(##+) (.+)", line):
            target = []
            parent = sections if heading[1] == "##" else next(iter(sections[-1].values()))
            parent.append({heading[2]: target})
        elif entry := re.match(r"\| \[([^]]+)\]\(([^)]+)\) \|", line):
            target.append({entry[1]: posixpath.normpath(f"docs/{entry[2]}")})
    return sections


def place_of(name: str, module: str) -> tuple[str, int]:
    """Return the page of a public name, and the place of its folder there."""
    folder = "errors" if name.endswith(("Error", "Warning")) else module.split(".")[1]
    for subject, folders in SUBJECTS.items():
        if folder in folders:
            return subject, folders.index(folder)
    raise PluginError(f"docs/site/hooks.py: SUBJECTS has no page for kafkastore/{folder}")


def reference() -> dict[str, tuple[str, str]]:
    """Return title and text of each page about the Python API, by its path."""
    listed: dict[str, list[tuple[int, str]]] = {subject: [] for subject in SUBJECTS}
    module = ROOT / "kafkastore" / "public_names.py"
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module != "kafkastore":
            for name in (each.asname or each.name for each in node.names):
                subject, place = place_of(name, node.module)
                listed[subject].append((place, name))
    found = {}
    for subject, names in listed.items():
        names.sort(key=lambda each: (each[0], each[1][0].isupper()))  # functions first
        lines = [f"# {subject}", *(f"::: kafkastore.{name}" for _, name in names)]
        path = f"docs/api/{re.sub('[^a-z]+', '-', subject.lower())}.md"
        found[path] = (subject, "\n\n".join(lines))
    for name in MODULES:
        options = "    options: {heading_level: 1, show_root_full_path: true}"
        found[f"docs/api/{name.rpartition('.')[2]}.md"] = (name, f"::: {name}\n{options}\n")
    return found


@event_priority(100)  # before mkdocstrings reads its paths
def on_config(config: MkDocsConfig) -> None:
    """Set the navigation, and where the package's Python files are."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    config.site_description = project["description"]
    api = {"Python API": [{title: path} for path, (title, _) in reference().items()]}
    nav = contents()
    (entries,) = (part["Reference"] for part in nav if "Reference" in part)
    entries.append(api)
    (guides,) = (part["Guides"] for part in nav if "Guides" in part)
    guides.insert(0, {"All pages": CONTENTS})
    config.nav = [{"Home": "README.md"}, *nav]
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [python_files()]


def python_files() -> str:
    """Return a folder with the package's Python files and stubs where a wheel has them."""
    folder = Path(_FOLDER.name)
    for name, place in PLACES.items():
        for path in (ROOT / name).rglob("*.py*"):
            if path.suffix in (".py", ".pyi"):
                link = folder / place / path.relative_to(ROOT / name)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.unlink(missing_ok=True)  # `mkdocs serve` comes here again
                link.symlink_to(path)
    return str(folder)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files of docs/ by those of the repository, and add the generated pages."""
    found = [file for file in files if file.src_dir != config.docs_dir]
    for name in pages():
        found.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    for path, (_, text) in reference().items():
        found.append(File.generated(config, path, content=text))
    for path in linked_sources():
        text = source_page(path)
        hidden = InclusionLevel.NOT_IN_NAV
        found.append(File.generated(config, f"{path}.md", content=text, inclusion=hidden))
    style = (ROOT / "docs" / "site" / "site.css").read_text(encoding="utf-8")
    found.append(File.generated(config, "site.css", content=style))
    return Files(found)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Name pages in links by their titles, and add the options to the commands' chapters."""
    path = page.file.src_uri
    if path == "README.md":
        page.meta["hide"] = ["navigation"]
    parts = FENCED.split(markdown)
    known = dict(titles(config.nav))
    parts[::2] = [with_plain_bars(link_titles(part, path, known)) for part in parts[::2]]
    text = "".join(parts)
    return with_options(text) if path == COMMAND_LINE else text


def on_page_content(html: str, **_: Any) -> str:
    """Let long names break between their words."""
    return LONG_NAME.sub(lambda name: re.sub(r"(?<=[/_:])\b|(?<=_)", "<wbr>", name[0]), html)


def titles(nav: Any) -> Iterator[tuple[str, str]]:
    """Give the path and the title of each page in the navigation."""
    for entry in nav:
        if isinstance(entry, dict):
            for title, target in entry.items():
                if isinstance(target, str):
                    yield target, title
                else:
                    yield from titles(target)


def target_of(link: re.Match[str], path: str) -> str:
    """Return the path of the file to which a link in a page leads."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link[2]))


def linked_sources() -> set[str]:
    """Return the files that pages link to, and that are no pages themselves."""
    found = set()
    for path in pages():
        text = (ROOT / path).read_text(encoding="utf-8")
        prose = "".join(FENCED.split(text)[::2])
        found |= {target_of(link, path) for link in LINK.finditer(prose) if link[2]}
    return {path for path in found if not path.endswith(".md") and (ROOT / path).is_file()}


def source_page(path: str) -> str:
    """Return a page that shows a file."""
    language = {".py": "python", ".pyx": "cython", ".pxd": "cython"}.get(Path(path).suffix, "text")
    text = (ROOT / path).read_text(encoding="utf-8")
    start = f"---\nsearch:\n  exclude: true\n---\n# {posixpath.basename(path)}"
    return f"{start}\n\n``````{language}\n{text}\n``````\n"


def link_titles(text: str, path: str, known: dict[str, str]) -> str:
    """Replace file names by titles in the texts of links."""

    def replaced(link: re.Match[str]) -> str:
        target = target_of(link, path)
        is_name = target.endswith(link[1].strip("`"))
        shown = known.get(target, link[1]) if is_name else link[1]
        is_source = not target.endswith(".md") and (ROOT / target).is_file()
        return f"[{shown}]({link[2]}{'.md' if is_source else ''}{link[3] or ''})"

    return LINK.sub(replaced, text)


def with_plain_bars(text: str) -> str:
    """Remove the backslashes that only the code host needs, before bars of code in tables."""
    return re.sub(
        r"^\|.*", lambda row: re.sub(r"`[^`]+`", lambda code: code[0].replace(r"\|", "|"), row[0]),
        text, flags=re.MULTILINE,
    )


def with_options(text: str) -> str:
    """Add usage and options to the chapter of each command."""
    for name in COMMANDS:
        heading = f"\n## {name}\n"
        if text.count(heading) != 1:
            raise PluginError(f"{COMMAND_LINE}: command {name} needs one chapter")
        shown = "".join(described(name))
        details = f"<details><summary>Usage and options of {name}</summary>{shown}</details>"
        text = text.replace(heading, f"{heading}\n{details}\n")
    return text


def described(name: str) -> Iterator[str]:
    """Give the help of a command, and of the commands below it, as HTML."""
    context = click.Context(cli, info_name="kafkastore")
    command = cli.get_command(context, name)
    assert command is not None
    pending = [(command, click.Context(command, info_name=name, parent=context))]
    while pending:
        command, context = pending.pop(0)
        usage = [context.command_path, *command.collect_usage_pieces(context)]
        yield f"<p><code>{html.escape(' '.join(usage))}</code></p>"
        for paragraph in (command.help or "").split("\n\n"):
            yield f"<p>{html.escape(paragraph)}</p>"
        records = [each.get_help_record(context) for each in command.params]
        yield "<dl>"
        for option, meaning in filter(all, filter(None, records)):
            yield f"<dt><code>{html.escape(option)}</code></dt><dd>{html.escape(meaning)}</dd>"
        yield "</dl>"
        if isinstance(command, click.Group):
            for below in command.list_commands(context):
                subcommand = command.get_command(context, below)
                assert subcommand is not None
                inner = click.Context(subcommand, info_name=below, parent=context)
                pending.append((subcommand, inner))
