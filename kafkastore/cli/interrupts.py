"""What Ctrl-C does, from the first moment of a command to its last.

While a command works, the first one raises `KeyboardInterrupt`, so that work is cut short in order.
At any other moment, and the second time, it ends the process at once: what is raised in an import,
in a finalizer or while Python itself ends reaches nobody who could handle it, or as another error.
A process that ends at once leaves what `kill -9` leaves, and all that alters directories is made
for that; an output file that is not finished is removed here.

Imports little: `end_the_process` is called first of all, and what came before it, while the
launcher kept SIGINT blocked (``docs/design/packaging.md``), is handled then.
"""
from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # typing's own takes longer to import than the rest
if TYPE_CHECKING:
    from collections.abc import Iterator
    from sys import UnraisableHookArgs
    from types import FrameType
    from typing import Any

#: The exit code: as a shell reports of a program that SIGINT ended.
INTERRUPTED = 130
#: Files that go when the process ends at once.
temporary_files: set[str] = set()

#: The file of Python's own code of imports.
_IMPORTS = "<frozen importlib._bootstrap>"


class _State:
    """Of this process. Where SIGINT is ignored, as after ``nohup``, it stays so."""

    is_ours = is_working = has_come = False


def end_the_process() -> None:
    """Let Ctrl-C end the process at once, with one sentence."""
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _raise_or_end, _end):
        _State.is_ours = True
        signal.signal(signal.SIGINT, _end)
    # The launcher blocks it while Python starts; no process that we start may inherit that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def raised() -> Iterator[None]:
    """Let the first Ctrl-C raise `KeyboardInterrupt` in the `with` block."""
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


def take_back() -> None:
    """Handle Ctrl-C again, where a library has begun to: PySpark leaves its jobs running."""
    if _State.is_working:
        signal.signal(signal.SIGINT, _raise_or_end)


def have_come() -> bool:
    """Tell whether the command was interrupted."""
    return _State.has_come


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
    """End the process where a finalizer was interrupted: Python only prints what that raises."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        _end(signal.SIGINT, None)
    sys.__unraisablehook__(lost)


def _end(
    number: int, frame: FrameType | None,
    os: Any = os, suppress: Any = suppress, files: set[str] = temporary_files,
) -> None:
    """End the process. Keeps what it needs: Python takes a module's names away while it ends."""
    for name in files:
        with suppress(OSError):
            os.unlink(name)
    # A terminal wrote ^C in the line; a bar that is drawn there has hidden the cursor.
    line = b"\x1b[?25h\n" if os.isatty(2) else b""
    try:
        os.write(2, line + b"kafkastore: interrupted\n")
    finally:
        os._exit(130)
