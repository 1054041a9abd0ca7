"""The report in a real browser: at a desk and on a phone, light and dark."""
from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from models.chromium import WINDOWS, Browser, Page, Window, luminance
from models.pipeline_results import made_up_store, result_with, store_of
from PIL import Image, ImageStat

from kafkastore.spark.pipeline.report import render

pytestmark = pytest.mark.soak

VOID = {"meta", "link", "br", "hr", "img", "input"}
#: The least contrast and size of readable text.
LEAST_CONTRAST = 4.5
#: Elements as the browser understood them, with their depth.
ELEMENTS = """
(function walk(element, depth) {
  return [[depth, element.tagName.toLowerCase()]].concat(
    ...[...element.children].map(each => walk(each, depth + 1)));
})(document.documentElement, 0)
"""
#: Visible texts: content, colours, place, and whether they are in a box that scrolls.
TEXTS = """
(() => {
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (!node.data.trim() || !box.width) continue;
    const style = getComputedStyle(element), svg = element.closest("svg");
    let backdrop = element;
    while (getComputedStyle(backdrop).backgroundColor == "rgba(0, 0, 0, 0)")
      backdrop = backdrop.parentElement;
    found.push({
      text: node.data.trim(),
      colour: svg ? style.fill : style.color,
      paper: getComputedStyle(backdrop).backgroundColor,
      box: [box.left, box.top, box.right, box.bottom],
      scrolls: !!element.closest(".wide"),
      svg: svg && (svg.getAttribute("aria-label") || "svg"),
      frame: svg && (b => [b.left, b.top, b.right, b.bottom])(svg.getBoundingClientRect()),
    });
  }
  return found;
})()
"""
BOXES = """
[...document.querySelectorAll("svg, img, table, h1, h2, h3, h4, .bar")]
  .filter(each => !each.closest("details:not([open])"))
  .map(each => [each.tagName, each.getBoundingClientRect().width,
                each.getBoundingClientRect().height])
"""


@pytest.fixture(scope="module", params=["real", "large"])
def report(request: pytest.FixtureRequest, golden: Any, tmp_path_factory: Any) -> Path:
    """A report of two real directories, or of 2,000 partitions of 20 segments."""
    if request.param == "real":
        result = result_with(
            store_of(golden("0.10.0.1", "upgrade", "answers").logs, "kafka-logs-of-disk-1"),
            store_of(golden("0.8.2.2", "upgrade", "answers").logs, "0.8.2.2"),
        )
    else:
        result = result_with(made_up_store(2000, 20, 20))
    path: Path = tmp_path_factory.mktemp(request.param) / "report.html"
    path.write_text(render(result), encoding="utf-8")
    return path


def open_report(chromium: Browser, path: Path, window: Window) -> Page:
    width, height, is_phone, is_dark = window
    return Page(chromium, path, width, height, is_phone=is_phone, is_dark=is_dark)


def faults(page: Page, width: int) -> list[str]:
    """The problems of a page as shown now, in a window of some width."""
    found = [f"console: {each}" for each in page.events_of("Runtime.consoleAPICalled")]
    errors = page.events_of("Runtime.exceptionThrown", "Log.entryAdded")
    found += [f"error: {each}" for each in errors]
    requested = [each["request"]["url"] for each in page.events_of("Network.requestWillBeSent")]
    found += [f"request: {url}" for url in requested if url != page.url]
    # A phone shows a page that is too wide smaller than it should be: it has more pixels then.
    for needed in ("document.scrollingElement.scrollWidth", "innerWidth"):
        if page.evaluate(needed) > width:
            found.append(f"overflow: {page.evaluate(needed)} of {width}")
    for name, *sides in page.evaluate(BOXES):
        if min(sides) <= 0:
            found.append(f"box: {name} of {sides}")
    texts = page.evaluate(TEXTS)
    for text in texts:
        found += text_faults(text, width)
    found += overlaps([each for each in texts if each["svg"] is not None])
    levels = [int(name[1]) for name, *_ in page.evaluate(BOXES) if name[0] == "H"]
    if levels.count(1) != 1 or any(b > a + 1 for a, b in zip([0, *levels], levels, strict=False)):
        found.append(f"headings: {levels}")
    return found


def text_faults(text: dict[str, Any], width: int) -> list[str]:
    """The problems of one text: its place and its colours."""
    found, (left, top, right, bottom), frame = [], text["box"], text["frame"]
    if not text["scrolls"] and (left < 0 or right > width + 0.5):
        found.append(f"clipped: {text['text']}")
    if frame is not None:
        beyond = (frame[0] - left, frame[1] - top, right - frame[2], bottom - frame[3])
        if max(beyond) > 1:
            found.append(f"clipped: {text['text']} in {text['svg']}")
    contrast = contrast_of(text["colour"], text["paper"])
    if contrast < LEAST_CONTRAST:
        found.append(f"contrast: {contrast:.1f} of {text['text']}")
    return found


def overlaps(texts: list[dict[str, Any]]) -> list[str]:
    """Texts of one drawing that overlap."""
    found = []
    for at, one in enumerate(texts):
        for other in texts[at + 1 :]:
            if one["svg"] != other["svg"]:
                break
            a, b = one["box"], other["box"]
            across, down = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
            if across > 1 and down > 2:
                found.append(f"overlap: {one['text']} and {other['text']} in {one['svg']}")
    return found


def contrast_of(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


class Elements(HTMLParser):
    """Elements as they are written, with their depth."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[list[int | str]] = []
        self._depth = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append([self._depth, tag])
        self._depth += tag not in VOID

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.found.append([self._depth, tag])

    def handle_endtag(self, tag: str) -> None:
        self._depth -= 1


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_the_report_can_be_read_at_a_desk_and_on_a_phone(
    chromium: Browser, report: Path, window: Window, tmp_path: Path
) -> None:
    page = open_report(chromium, report, window)
    assert page.evaluate("innerWidth") == window.width
    assert faults(page, window.width) == []
    paper = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert paper < 0.05 if window.is_dark else paper > 0.9
    if not window.is_dark:
        (tmp_path / "full-page.png").write_bytes(page.screenshot(is_full_page=True))
    (tmp_path / "window.png").write_bytes(page.screenshot())
    with Image.open(tmp_path / "window.png") as image:
        assert image.size == (window.width, window.height)
        assert max(ImageStat.Stat(image.convert("RGB")).stddev) > 10
        assert len(image.convert("RGB").getcolors(1 << 24) or ()) > 50
    page.close()


def test_at_a_desk_every_table_is_fully_visible(chromium: Browser, report: Path) -> None:
    page = open_report(chromium, report, WINDOWS["desk"])
    clipped = page.evaluate("""[...document.querySelectorAll(".wide")]
        .filter(each => !each.closest("details:not([open])"))
        .filter(each => each.scrollWidth > each.clientWidth).map(each => each.ariaLabel)""")
    assert clipped == []
    page.close()


def test_opened_to_the_last_answer_the_report_still_fits(chromium: Browser, report: Path) -> None:
    page = open_report(chromium, report, WINDOWS["phone"])
    shown = page.evaluate("document.scrollingElement.scrollHeight")
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.scrollingElement.scrollHeight") > shown
    assert faults(page, WINDOWS["phone"].width) == []
    page.close()


def test_a_wide_table_scrolls_in_its_own_box_by_keyboard_too(
    chromium: Browser, report: Path
) -> None:
    page = open_report(chromium, report, WINDOWS["phone"])
    wide = """[...document.querySelectorAll(".wide")].filter(
        each => each.scrollWidth > each.clientWidth)"""
    assert page.evaluate(f"{wide}.length") > 3
    assert page.evaluate(f"{wide}.every(each => each.tabIndex == 0 && each.ariaLabel)")
    page.evaluate(f"{wide}[0].focus()")
    for kind in ("keyDown", "keyUp"):
        page.ask("Input.dispatchKeyEvent", type=kind, key="ArrowRight", code="ArrowRight",
                 windowsVirtualKeyCode=39)  # fmt: skip
    arrived = "new Promise(done => setTimeout(() => done(document.activeElement.scrollLeft), 500))"
    found = page.ask("Runtime.evaluate", expression=arrived, awaitPromise=True)
    assert found["result"]["value"] > 0
    page.close()


def test_the_browser_understands_the_elements_as_they_are_written(
    chromium: Browser, report: Path
) -> None:
    page = open_report(chromium, report, WINDOWS["desk"])
    assert page.evaluate("document.compatMode") == "CSS1Compat"
    assert page.evaluate(ELEMENTS) == Elements(report.read_text(encoding="utf-8")).found
    page.close()


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        ("<script>console.warn('x')</script>", "console"),
        ("<script>nothing.at.all()</script>", "error"),
        ("<img src='http://127.0.0.1:1/x.png' alt='' width=5 height=5>", "request"),
        ("<p style='width: 500px'>wide</p>", "overflow"),
        ("<svg width='0' height='9'></svg>", "box"),
        ("<h4>too deep</h4>", "headings"),
        ("<p style='color: #bbb'>pale</p>", "contrast"),
        ("<p style='position: fixed; left: -40px'>off the page</p>", "clipped"),
        ("<svg width='40' height='20'><text y='9'>longer than that</text></svg>", "clipped"),
        (f"<svg width='90' height='20'>{2 * '<text y=15>one</text>'}</svg>", "overlap"),
    ],
)
def test_searched_text_is_found(
    chromium: Browser, tmp_path: Path, damage: str, kind: str
) -> None:
    window, path = WINDOWS["phone"], tmp_path / "page.html"
    start = "<!doctype html><meta name=viewport content='width=device-width'><body bgcolor=white>"
    for text, expected in (("", set()), (damage, {kind})):
        path.write_text(f"{start}<h1>a</h1>{text}")
        page = open_report(chromium, path, window)
        found = {each.partition(":")[0] for each in faults(page, window.width)}
        assert expected <= found <= expected | {"error", "clipped"}
        assert expected or not found
        page.close()
