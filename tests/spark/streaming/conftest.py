"""Log directories that tests of streams write, and the sizes of reads."""
import os

import pytest

from kafkastore import LogDirWriter
from kafkastore.segment import log_file


@pytest.fixture
def log_dir(tmp_path):
    with LogDirWriter(tmp_path / "logs") as writer:
        yield writer


@pytest.fixture
def read_bytes(monkeypatch):
    """The size of each read of a log."""
    sizes = []
    preadv = os.preadv

    def counted(descriptor, buffers, position):
        got = preadv(descriptor, buffers, position)
        sizes.append(got)
        return got

    monkeypatch.setattr(log_file.os, "preadv", counted)
    return sizes
