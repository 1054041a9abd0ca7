"""The site in a real browser: at a desk and on a phone, light and dark; and its search."""
from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from zlib import crc32

import pytest
from models.built_site import build
from models.chromium import WINDOWS, Browser, Page, Window, luminance
from PIL import Image, ImageStat

pytestmark = pytest.mark.soak

#: One page of each kind.
KINDS = (
    "", "docs/", "docs/restore/", "docs/cli/", "docs/kip-33/", "docs/formats/record_batch/",
    "docs/benchmarks/", "docs/api/stores-logs-and-lookups/", "CONTRIBUTING/", "404.html",
)
#: Elements that stick out of the window and are not in a box that scrolls.
STICKING_OUT = """
[...document.querySelectorAll("article *")].filter(each => {
  const box = each.getBoundingClientRect();
  if (!box.width || box.right <= WIDTH + 1 || each.closest("svg, .md-copy")) return false;
  for (let around = each; around; around = around.parentElement)
    if (["auto", "scroll"].includes(getComputedStyle(around).overflowX)) return false;
  return true;
}).map(each => each.outerHTML.slice(0, 200))
"""


class _Quiet(SimpleHTTPRequestHandler):
    """A server of files without a log."""

    def log_message(self, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def site(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "html"
    build(folder)
    return folder


@pytest.fixture(scope="module")
def origin(site: Path) -> Iterator[str]:
    """The URL of a server of the site."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def faults(page: Page, origin: str, window: Window) -> list[str]:
    """The problems of a page as shown now."""
    errors = page.events_of("Runtime.exceptionThrown", "Log.entryAdded")
    found = [f"error: {each}" for each in errors]
    requested = [each["request"]["url"] for each in page.events_of("Network.requestWillBeSent")]
    found += [f"request: {url}" for url in requested if not url.startswith((origin, "data:"))]
    for needed in ("document.scrollingElement.scrollWidth", "innerWidth"):
        if page.evaluate(needed) > window.width:
            found.append(f"overflow: {page.evaluate(needed)} of {window.width}")
    # A phone shows a page that is too wide smaller than it should be, in a wider window.
    sticking_out = STICKING_OUT.replace("WIDTH", str(window.width))
    found += [f"sticks out: {each}" for each in page.evaluate(sticking_out)]
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind or "home")
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_a_page_can_be_read_at_a_desk_and_on_a_phone(
    chromium: Browser, origin: str, window: Window, kind: str, tmp_path: Path
) -> None:
    width, height, is_phone, is_dark = window
    page = Page(chromium, origin + kind, width, height, is_phone=is_phone, is_dark=is_dark)
    assert page.evaluate("innerWidth") == width
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert faults(page, origin, window) == []
    paper = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert paper < 0.05 if is_dark else paper > 0.9
    (tmp_path / "window.png").write_bytes(page.screenshot())
    with Image.open(tmp_path / "window.png") as image:
        assert image.size == (width, height)
        assert max(ImageStat.Stat(image.convert("RGB")).stddev) > 10
    page.close()


def test_no_page_is_wider_than_a_phone(chromium: Browser, site: Path, origin: str) -> None:
    window, wide = WINDOWS["phone"], {}
    for path in sorted(site.rglob("index.html")):
        name = path.relative_to(site).as_posix()
        page = Page(chromium, origin + name, window.width, window.height, is_phone=True)
        if found := faults(page, origin, window):
            wide[name] = found
        page.close()
    assert wide == {}


@pytest.mark.parametrize("name", ["SECURITY/", "docs/upgrades/", "docs/containers/"])
def test_tables_with_names_of_tests_or_without_headings_fit_a_phone(
    chromium: Browser, origin: str, name: str
) -> None:
    window = WINDOWS["phone"]
    page = Page(chromium, origin + name, window.width, window.height, is_phone=True)
    tables = "[...document.querySelectorAll('.md-typeset table:not([class])')]"
    widths = page.evaluate(f"{tables}.map(each => each.scrollWidth)")
    assert widths
    assert max(widths) < window.width
    empty = "each => each.tHead.offsetHeight && !each.tHead.textContent.trim()"
    assert page.evaluate(f"{tables}.filter({empty}).length") == 0
    page.close()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("transaction index", "docs/formats/transaction_index/"),
        ("tiered topics", "docs/tiered/"),
        ("clock-skew", "docs/cli/"),
        ("offset_for_timestamp", "docs/api/stores-logs-and-lookups/"),
    ],
)
def test_the_search_finds(chromium: Browser, origin: str, words: str, expected: str) -> None:
    page = Page(chromium, origin, 1280, 800)
    page.evaluate("document.querySelector('.md-search__input').focus()")
    page.ask("Input.insertText", text=words)
    results = "[...document.querySelectorAll('.md-search-result__link')].map(each => each.href)"
    deadline = time.monotonic() + 800
    while not (found := page.evaluate(results)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert any(each.startswith(origin + expected) for each in found), found
    page.close()


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        ("<script>nothing.at.all()</script>", "error"),
        ("<img src='http://127.0.0.1:1/x.png' alt='' width=5 height=5>", "request"),
        ("<p style='width: 500px'>wide</p>", "sticks out"),
        ("<p style='position: absolute; left: 300px; width: 200px'>wide</p>", "sticks out"),
    ],
)
def test_a_searched_fault_is_found(
    chromium: Browser, site: Path, origin: str, damage: str, kind: str
) -> None:
    window = WINDOWS["phone"]
    text = (site / "docs/latest/index.html").read_text(encoding="utf-8")
    for added, expected in (("", set()), (damage, {kind})):
        # Each has a new name: the browser keeps pages that it has seen.
        damaged = site / "docs/latest" / f"{kind}-{crc32((damage + added).encode())}.html"
        damaged.write_text(text.replace("</h1>", f"</h1>{added}"), encoding="utf-8")
        url = f"{origin}docs/latest/{damaged.name}"
        page = Page(chromium, url, window.width, window.height, is_phone=True)
        found = {each.partition(":")[0] for each in faults(page, origin, window)}
        assert expected <= found <= expected | {"error", "overflow"}
        assert expected or not found
        page.close()
