"""Log directories that tests of streams write, and what is read of them."""
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
    """How much each read of a log got."""
    sizes = []
    preadv = os.preadv

    def counted(descriptor, buffers, position):
        got = preadv(descriptor, buffers, position)
        sizes.append(got)
        return got

    monkeypatch.setattr(log_file.os, "preadv", counted)
    return sizes
