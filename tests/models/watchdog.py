"""End the process of a test that makes no progress or passes its time limit, and name the test.

Progress is processor time, of this process and of all that it started: a limit of time alone would
measure what else the machine does. A thread that waits for ever uses none. The time limit is of
pytest-timeout, which would start a thread for each of thousands of tests. Neither counts the time
in which this process is stopped, or its machine sleeps.
"""
from __future__ import annotations

import faulthandler
import os
import sys
import threading
import tracemalloc
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from time import monotonic  # tests replace that of the module
from typing import Any

import pytest
import pytest_timeout

#: A working test gets more than this share of a processor, even on a busy machine; an
#: idle JVM gets less.
LEAST_SHARE = 1 / 40
#: Tests with these marks wait for brokers, which wait for their timers.
WAITING = {"kafka", "soak"}
#: Time between two looks at the time limit.
LOOK_SECONDS = 0.5
#: Held while the files of all processes are read; what counts this one's files or bytes holds it.
LOOKING = threading.Lock()


def processor_seconds(root: int) -> dict[int, float]:
    """Return the processor time of a process and of its descendants, by process id (Linux)."""
    ticks, children = {}, defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(stat.parent.name)
        ticks[pid] = int(fields[11]) + int(fields[12])
        children[int(fields[1])].append(pid)
    found, ahead = {}, [root]
    while ahead:
        pid = ahead.pop()
        found[pid] = ticks.get(pid, 0) / os.sysconf("SC_CLK_TCK")
        ahead += children[pid]
    return found


class Watchdog:
    """A plugin that ends this process if a test makes no progress for `seconds`."""

    def __init__(self, config: pytest.Config, seconds: float) -> None:
        self.config, self.seconds = config, seconds
        self._now = 0.0  # seconds that this process was watched
        self._watched: tuple[str, float] | None = None
        self._limited: tuple[float, pytest.Item, pytest_timeout.Settings] | None = None
        self._ended = threading.Event()

    def pytest_sessionstart(self) -> None:
        if sys.platform == "linux":
            threading.Thread(target=self._watch, daemon=True).start()

    def pytest_sessionfinish(self) -> None:
        self._ended.set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        waits = any(mark.name in WAITING for mark in item.iter_markers())
        self._watched = item.nodeid, self.seconds * (5 if waits else 1)
        try:
            return (yield)
        finally:
            self._watched = None

    def pytest_timeout_set_timer(
        self, item: pytest.Item, settings: pytest_timeout.Settings
    ) -> bool | None:
        """Take over the limit of a test from pytest-timeout, where the thread runs."""
        if sys.platform != "linux" or settings.method != "thread":
            return None
        self._limited = self._now + settings.timeout, item, settings
        return True

    def pytest_timeout_cancel_timer(self) -> None:
        self._limited = None

    def _watch(self) -> None:
        """Compare the time used since the last progress with the least of a working test."""
        pause, woken = min(LOOK_SECONDS, self.seconds / 12), monotonic()
        watched, since, used, looked = None, 0.0, {}, 0.0
        while not self._ended.wait(pause):
            # After a stop, it would find that much time has passed and nothing was done.
            before, woken = woken, monotonic()
            self._now += min(woken - before, 2 * pause)
            now, limited = self._now, self._limited
            if limited is not None and now > limited[0]:
                pytest_timeout.timeout_timer(*limited[1:])
            # What a look allocates would be counted as the test's.
            is_due = now - looked >= self.seconds / 12 and not tracemalloc.is_tracing()
            if not is_due or not LOOKING.acquire(blocking=False):
                continue
            try:
                looked, now_used = now, processor_seconds(os.getpid())
            finally:
                LOOKING.release()
            enough = (now - since) * LEAST_SHARE
            spent = sum(now_used.values()) - sum(used.values())
            if self._watched is not watched or now_used.keys() != used.keys() or spent > enough:
                watched, since, used = self._watched, now, now_used
            elif watched is not None and now - since > watched[1]:
                self.config.pluginmanager.getplugin("capturemanager").suspend(in_=True)
                print(f"\nno progress for {now - since:.0f} s: {watched[0]}", file=sys.__stderr__)
                faulthandler.dump_traceback(sys.__stderr__)
                os._exit(1)
