"""Writes that do not wait for the disk, in tests that crash nothing but themselves."""
import pytest
from models.written_log import UnsyncedFileSystem

from kafkastore.fs import FileSystem


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch):
    """Nothing in this process waits until bytes are on the disk."""
    monkeypatch.setattr(FileSystem, "fsync", UnsyncedFileSystem.fsync)
    monkeypatch.setattr(FileSystem, "fsync_directory", UnsyncedFileSystem.fsync_directory)
