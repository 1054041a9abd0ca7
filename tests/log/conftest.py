"""Writers for the tests of written logs, and logs for those of recovery."""

import pytest
from models.written_log import UnsyncedFileSystem

import kafkastore
from kafkastore.writing.log_dir_writer import LogDirWriter

from .written_logs import Clock


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def open_writer(tmp_path, clock):
    """A function of topic options: a writer on a fresh directory, closed afterwards."""
    opened = []

    def open_one(version="4.1", **options):
        log_dir = LogDirWriter(tmp_path / "logs", version, clock=clock, fs=UnsyncedFileSystem())
        opened.append(log_dir)
        return log_dir.writer("t", 0, {name.replace("_", "."): v for name, v in options.items()})

    yield open_one
    for log_dir in opened:
        log_dir.close()


@pytest.fixture
def written(tmp_path):
    """A function that writes a log directory, with further files, and opens its partition."""

    def write(log, files=None, without=()):
        root = log.write(tmp_path / "logs")
        for name, data in (files or {}).items():
            (root / "t-0" / name).write_bytes(data)
        for name in without:
            (root / "t-0" / name).unlink()
        return kafkastore.open(root)["t", 0]

    return write
