"""A headless browser, driven over pipes by its DevTools protocol.

Chromium is taken from ``PATH``, else from the cache: ``python -m models.chromium`` fetches Debian's
packages and unpacks them there, which needs no root.
"""
from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from models import debian_packages

CACHE = Path.home() / ".cache" / "kafkastore" / "chromium"
#: Possible names of a browser on `PATH`.
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PACKAGES = ("chromium-headless-shell", "fonts-dejavu-core", "fontconfig-config")
MOST_SECONDS = 600
FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>
<dir>/usr/share/fonts</dir><dir>{root}/usr/share/fonts</dir><cachedir>{root}/font-cache</cachedir>
<alias><family>sans-serif</family><prefer><family>DejaVu Sans</family></prefer></alias>
<alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>"""
#: The pipe's ends must be descriptors 3 and 4 of the browser.
START = """
import os, sys
for number, wanted in ((sys.argv[1], 3), (sys.argv[2], 4)):
    os.dup2(int(number), wanted)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Window(NamedTuple):
    """How a page is viewed."""

    width: int
    height: int
    is_phone: bool
    is_dark: bool


WINDOWS = {
    "desk": Window(1280, 800, is_phone=False, is_dark=False),
    "desk-dark": Window(1280, 800, is_phone=False, is_dark=True),
    "phone": Window(390, 844, is_phone=True, is_dark=False),
    "phone-dark": Window(390, 844, is_phone=True, is_dark=True),
}


class NoChromiumError(Exception):
    """No browser on ``PATH`` or in the cache; `can_be_fetched` by apt."""

    def __init__(self, *, can_be_fetched: bool) -> None:
        how = "and no apt to fetch it with"
        if can_be_fetched:
            how = "python -m models.chromium fetches it"
        super().__init__(f"no Chromium, {how}")
        self.can_be_fetched = can_be_fetched


class Command(NamedTuple):
    """A browser, the further settings of its environment, and of its fonts."""

    program: str
    environment: dict[str, str]
    fonts: str | None = None


@cache
def command() -> Command:
    """Return how Chromium is started.

    Raises
    ------
    NoChromiumError
        If none is available.
    """
    for name in PROGRAMS:
        if found := shutil.which(name):
            return Command(found, {})
    root = CACHE / "root"
    if not root.is_dir():
        has_apt = shutil.which("apt-get") and shutil.which("dpkg-deb")
        raise NoChromiumError(can_be_fetched=bool(has_apt))
    return Command(
        str(root / "usr/lib/chromium/chromium-headless-shell"),
        {"LD_LIBRARY_PATH": debian_packages.library_path(root)},
        FONTS.format(root=root),
    )


def fetch() -> None:
    """Unpack Chromium and the libraries that this system lacks, by current package lists."""
    debian_packages.fetch(PACKAGES, CACHE / "root")


class Browser:
    """A running Chromium; ends with its block."""

    def __init__(self, profile: Path) -> None:
        program, environment, fonts = command()
        if fonts is not None:
            (profile / "fonts.conf").write_text(fonts)
            environment = environment | {"FONTCONFIG_FILE": str(profile / "fonts.conf")}
        answers, theirs_out = os.pipe()
        theirs_in, questions = os.pipe()
        # Descriptors that do not collide with 3 and 4.
        high = [os.dup(each) for each in (theirs_in, theirs_out)]
        self._log = (profile / "stderr").open("w+b")
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", START, *map(str, high), program),
                *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
                *("--no-first-run", "--disable-background-networking", "--remote-debugging-pipe"),
                "--disable-component-update",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                *("--hide-scrollbars", "--force-color-profile=srgb", f"--user-data-dir={profile}"),
            ],
            pass_fds=high,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        for each in (theirs_in, theirs_out, *high):
            os.close(each)
        self._answers, self._questions = answers, questions
        self._poll = select.poll()  # `select` knows no descriptor above 1023
        self._poll.register(answers, select.POLLIN)
        self._last_id, self._received = 0, b""
        self.events: list[dict[str, Any]] = []

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol; events meanwhile are added to `events`."""
        self._last_id += 1
        question = {"id": self._last_id, "method": method, "params": parameters}
        if session is not None:
            question["sessionId"] = session
        left = json.dumps(question).encode() + b"\0"
        while left:
            left = left[os.write(self._questions, left) :]
        answer = self._until(lambda message: message.get("id") == self._last_id)
        assert "error" not in answer, (method, answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def wait_for(self, method: str, session: str) -> None:
        """Return once an event has arrived, before now or from now on."""

        def is_wanted(message: dict[str, Any]) -> bool:
            return message.get("method") == method and message.get("sessionId") == session

        if not any(is_wanted(each) for each in self.events):
            self._until(is_wanted)

    def _until(self, is_wanted: Any) -> dict[str, Any]:
        deadline = time.monotonic() + MOST_SECONDS
        while True:
            while b"\0" in self._received:
                text, self._received = self._received.split(b"\0", 1)
                message: dict[str, Any] = json.loads(text)
                if "id" not in message:
                    self.events.append(message)
                if is_wanted(message):
                    return message
            ready = self._poll.poll(max(deadline - time.monotonic(), 0) * 1000)
            more = os.read(self._answers, 1 << 20) if ready else b""
            if not more:
                self._log.seek(0)
                raise AssertionError(f"no answer from Chromium: {self._log.read()[-2000:]!r}")
            self._received += more

    def close(self) -> None:
        """End the browser and all of its processes."""
        for each in (self._questions, self._answers):
            os.close(each)  # it ends without them
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


class Page:
    """A file, or a page of a local server, as a browser shows it.

    Parameters
    ----------
    browser : Browser
    place : Path or str
        The file, or the page's URL.
    width, height : int
        Of the window, in CSS pixels.
    is_phone : bool
        Whether the window is one of a phone: it takes the width that the page requests.
    is_dark : bool
        Whether the user likes dark pages.
    """

    def __init__(
        self,
        browser: Browser,
        place: Path | str,
        width: int,
        height: int,
        *,
        is_phone: bool = False,
        is_dark: bool = False,
    ) -> None:
        self._browser = browser
        target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._target, self._session = target, attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=is_phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.url = place if isinstance(place, str) else place.absolute().as_uri()
        self.ask("Page.navigate", url=self.url)
        browser.wait_for("Page.loadEventFired", self._session)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol for this page."""
        return self._browser.ask(method, self._session, **parameters)

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def events_of(self, *methods: str) -> list[dict[str, Any]]:
        """Return the events of some kinds that the browser sent for this page."""
        return [
            event["params"]
            for event in self._browser.events
            if event.get("sessionId") == self._session and event["method"] in methods
        ]

    def screenshot(self, *, is_full_page: bool = False) -> bytes:
        """Return the visible part, or all of the page, as PNG."""
        found = self.ask("Page.captureScreenshot", captureBeyondViewport=is_full_page, **(
            {"clip": self._page_area()} if is_full_page else {}
        ))
        return base64.b64decode(found["data"])

    def _page_area(self) -> dict[str, float]:
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        return size | {"scale": 1}

    def close(self) -> None:
        """Close the page."""
        self._browser.ask("Target.closeTarget", targetId=self._target)


def luminance(colour: str) -> float:
    """The relative luminance of a colour by WCAG 2."""
    parts = [float(each) / 255 for each in colour.strip("rgba()").split(",")[:3]]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@contextmanager
def browser() -> Iterator[Browser]:
    """Give a browser."""
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        running = Browser(Path(profile))
        try:
            yield running
        finally:
            running.close()


if __name__ == "__main__":
    try:
        print(command().program)
    except NoChromiumError as reason:
        if reason.can_be_fetched:
            fetch()
            print(f"Chromium in {CACHE}")
        else:
            print(reason)
