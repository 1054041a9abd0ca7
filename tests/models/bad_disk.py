"""A disk with sectors that can't be read: reads up to them are short, reads of them are EIO."""

import errno
import os


class BadDisk:
    """Stands in for the reads of `os`; `harm` says which bytes of which file are lost."""

    def __init__(self, monkeypatch):
        self._lost = {}
        self._preadv, self._pread = os.preadv, os.pread
        monkeypatch.setattr(os, "preadv", self.preadv)
        monkeypatch.setattr(os, "pread", self.pread)

    def harm(self, path, start=0, end=1 << 62):
        """Lose the bytes of a file from one to another; exclusive."""
        found = os.stat(path)
        self._lost[found.st_dev, found.st_ino] = start, end

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
