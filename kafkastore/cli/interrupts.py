"""Handling of Ctrl-C, from the start of a command to its end.

While a command works, the first Ctrl-C raises `KeyboardInterrupt`, so that the work stops cleanly.
At any other time, and the second time, Ctrl-C ends the process immediately: an exception raised in
an import, in a finalizer or while Python shuts down is lost or becomes another error. A process
that ends immediately leaves the same files as `kill -9`; all jobs that change directories can
resume from that. Unfinished output files are removed here.

This module imports little, because `end_the_process` is called before everything else. A Ctrl-C
before that call is handled in it: the launcher keeps SIGINT blocked (``docs/design/packaging.md``).
"""
from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # importing `typing` takes longer than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from sys import UnraisableHookArgs
    from types import FrameType
    from typing import Any

#: The exit code that a shell reports for a program that SIGINT ended.
INTERRUPTED = 130
#: What service managers, `timeout` and closed terminals send.
_ENDING = (signal.SIGTERM, signal.SIGHUP)
#: Files to remove when the process ends immediately.
temporary_files: set[str] = set()

#: The file name of Python's import code.
_IMPORTS = "<frozen importlib._bootstrap>"


class _State:
    """State of this process; an ignored SIGINT, as after ``nohup``, stays so."""

    is_program = is_ours = is_working = has_come = False


def end_the_process() -> None:
    """Make Ctrl-C end the process immediately, with one sentence."""
    _State.is_program = True
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _raise_or_end, _end):
        _State.is_ours = True
        signal.signal(signal.SIGINT, _end)
    # The launcher blocks SIGINT while Python starts; child processes must not inherit that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def raised() -> Iterator[None]:
    """Make the first Ctrl-C raise `KeyboardInterrupt` in the `with` block."""
    if not _State.is_ours:
        yield
        return
    before, sys.unraisablehook = sys.unraisablehook, _end_if_lost
    _State.is_working = True
    signal.signal(signal.SIGINT, _raise_or_end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _end)
        _State.is_working = False
        sys.unraisablehook = before


@contextmanager
def noted() -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C, SIGTERM or SIGHUP in the `with` block be only noted.

    Yields a function that returns whether one has come.
    """
    numbers = [signal.SIGINT] if _State.is_ours else []
    if _State.is_program:  # a shell's script ignores SIGINT for what it starts in the background
        numbers += [each for each in _ENDING if signal.getsignal(each) is signal.SIG_DFL]
    before = {each: signal.signal(each, _note_or_end) for each in numbers}
    try:
        yield have_come
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def reinstall() -> None:
    """Install our handler again: PySpark's leaves its jobs running."""
    if _State.is_working:
        signal.signal(signal.SIGINT, _raise_or_end)


def have_come() -> bool:
    """Return whether the command was interrupted."""
    return _State.has_come


def _note_or_end(number: int, frame: FrameType | None) -> None:
    is_second, _State.has_come = _State.has_come, True
    if is_second:
        _end(number, frame)


def _raise_or_end(number: int, frame: FrameType | None) -> None:
    is_second, _State.has_come = _State.has_come, True
    if is_second or _is_importing(frame):
        _end(number, frame)
    raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTS:
            return True
        frame = frame.f_back
    return False


def _end_if_lost(lost: UnraisableHookArgs) -> None:
    """End the process if a finalizer was interrupted; Python only prints that."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        _end(signal.SIGINT, None)
    sys.__unraisablehook__(lost)


def _end(
    number: int, frame: FrameType | None,
    os: Any = os, suppress: Any = suppress, files: set[str] = temporary_files,
) -> None:
    """End the process; module globals may be gone, so it keeps what it needs."""
    for name in files:
        with suppress(OSError):
            os.unlink(name)
    # The terminal has written ^C on this line, and a progress bar has hidden the cursor.
    line = b"\x1b[?25h\n" if os.isatty(2) else b""
    try:
        os.write(2, line + b"kafkastore: interrupted\n")
    finally:
        os._exit(130)
