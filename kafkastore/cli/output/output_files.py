"""Many output files of one command: they appear together when all are complete.

At most `MOST_OPEN` are open at a time; the others are opened again when more is written.
"""
from __future__ import annotations

import os
from collections import OrderedDict
from contextlib import AbstractContextManager, suppress
from io import UnsupportedOperation
from pathlib import Path

from kafkastore.cli import interrupts
from kafkastore.cli.output.output_file import (
    check_output,
    check_outside,
    errors_named,
    mode_of,
    partial_path,
)
from kafkastore.store.log_store import LogStore

#: Descriptors open at a time; systems allow a process at least 256.
MOST_OPEN = 64


class OutputFiles:
    """Files of a command that reads `store`; a context manager.

    At the end of the block all files get their names; after an error none does, and directories
    that were created for them are removed.
    """

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._files: dict[Path, OutputPart] = {}
        self._directories: list[Path] = []
        self._open: OrderedDict[OutputPart, int] = OrderedDict()

    def __enter__(self) -> OutputFiles:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if error is None:
            try:
                self._complete()
            except BaseException:
                self._discard()
                raise
        else:
            self._discard()

    def create(self, path: Path) -> OutputPart:
        """Create a file and its directories; raise ChangeRefusedError in the store."""
        check_outside(path, self._store)
        for directory in reversed(path.parents):
            if not directory.exists():
                directory.mkdir()
                self._directories.append(directory)
        check_output(path, self._store)
        target = Path(os.path.realpath(path))
        part = OutputPart(self, path, partial_path(target))
        # Added before the file exists: an interrupt may come at any moment.
        interrupts.temporary_files.add(str(part.path))
        self._files[target] = part
        with part.errors_named():
            self.descriptor_of(part, os.O_CREAT | os.O_EXCL)
        return part

    def descriptor_of(self, part: OutputPart, flags: int = 0) -> int:
        """Return an open descriptor, at whose end bytes are written."""
        if part in self._open:
            self._open.move_to_end(part)
            return self._open[part]
        while len(self._open) >= MOST_OPEN:
            os.close(self._open.popitem(last=False)[1])
        flags |= os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        descriptor = self._open[part] = os.open(part.path, flags, 0o600)
        return descriptor

    def _complete(self) -> None:
        for target, part in self._files.items():
            with part.errors_named():
                descriptor = self.descriptor_of(part)
                os.fchmod(descriptor, mode_of(target))
                os.fsync(descriptor)
        self._close()
        for target, part in self._files.items():
            os.replace(part.path, target)
            interrupts.temporary_files.discard(str(part.path))

    def _discard(self) -> None:
        self._close()
        for part in self._files.values():
            with suppress(FileNotFoundError):
                os.unlink(part.path)
            interrupts.temporary_files.discard(str(part.path))
        for directory in reversed(self._directories):
            with suppress(OSError):  # it has files by now
                directory.rmdir()

    def _close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])


class OutputPart:
    """One of `OutputFiles`, as a binary file that is written from start to end."""

    def __init__(self, files: OutputFiles, output: Path, path: Path) -> None:
        self._files, self._output, self.path = files, output, path
        self._size = 0
        self.closed = False

    def errors_named(self) -> AbstractContextManager[None]:
        """Name the output in errors, not the temporary file."""
        return errors_named(self._output, str(self.path))

    def isatty(self) -> bool:
        """Return False."""
        return False

    def fileno(self) -> int:
        """Refuse: the file has different descriptors over time, and is for one thread."""
        raise UnsupportedOperation("fileno")

    def writable(self) -> bool:
        """Return True: for PyArrow."""
        return True

    def write(self, data: bytes) -> int:
        """Write all bytes."""
        left = memoryview(data).cast("B")
        size = len(left)
        with self.errors_named():
            while left:
                left = left[os.write(self._files.descriptor_of(self), left) :]
        self._size += size
        return size

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._size

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def close(self) -> None:
        """Mark the file as complete."""
        self.closed = True
