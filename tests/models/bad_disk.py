"""A disk with sectors that can't be read: reads up to them are short, reads of them are EIO.

Python's reads are replaced. Compiled code has its own, so that the process is started with a
library (`bad_disk.c`) that stands before the system's: see `run_with_bad_disks`.
"""

import ctypes
import errno
import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path


class BadDisk:
    """Stands in for the reads of `os`, and of C; `damage` says which bytes of a file are lost."""

    def __init__(self, monkeypatch):
        self._lost = {}
        self._preadv, self._pread = os.preadv, os.pread
        monkeypatch.setattr(os, "preadv", self.preadv)
        monkeypatch.setattr(os, "pread", self.pread)
        # Only there where the library was loaded before all others.
        self._preloaded = ctypes.CDLL(None)
        self._preloaded.bad_disk_forget()

    def damage(self, path, start=0, end=1 << 62):
        """Lose the bytes of a file from one to another; exclusive."""
        found = os.stat(path)
        self._lost[found.st_dev, found.st_ino] = start, end
        numbers = map(ctypes.c_longlong, (found.st_dev, found.st_ino, start, end))
        assert self._preloaded.bad_disk_damage(*numbers) == 0

    def _readable(self, descriptor, size, position):
        found = os.fstat(descriptor)
        start, end = self._lost.get((found.st_dev, found.st_ino), (1 << 62, 1 << 62))
        if start <= position < end:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return min(size, start - position) if position < start else size

    def pread(self, descriptor, size, position):
        return self._pread(descriptor, self._readable(descriptor, size, position), position)

    def preadv(self, descriptor, buffers, position):
        (buffer,) = buffers
        size = self._readable(descriptor, len(buffer), position)
        return self._preadv(descriptor, [buffer[:size]], position)


def run_with_bad_disks(test_file, directory):
    """Run a file of tests in a separate process whose C code reads by way of `bad_disk.c`."""
    library = Path(directory, "bad_disk.so")
    source = Path(__file__).with_suffix(".c")
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    preloaded = [os.environ.get("LD_PRELOAD"), str(library)]
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            f"--basetemp={directory}/tmp", str(test_file),
        ],
        env=os.environ | {"LD_PRELOAD": ":".join(filter(None, preloaded))},
        text=True, capture_output=True, check=False,
    )
