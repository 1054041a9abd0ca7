"""Every altering call of a writer fails in every way: flushed records stay."""

import errno
import os
from contextlib import suppress

import pytest
from changes import faults
from changes.faults import Crash
from models.seed import some
from models.written_log import UnsyncedFileSystem

import kafkastore
from kafkastore.errors import WriterFailedError
from kafkastore.writing.log_dir_writer import LogDirWriter

from .written_logs import FIRST_TIMESTAMP, Clock, TransactionalProducer, batch_of, new_records

CONFIG = {"segment.bytes": 700, "index.interval.bytes": 100, "segment.index.bytes": 400}


class CountingFileSystem(faults.CountingFileSystem, UnsyncedFileSystem):
    """Counts the calls, syncs nothing."""


class CrashingFileSystem(faults.CrashingFileSystem, UnsyncedFileSystem):
    """Crashes before a call."""


class FailingFileSystem(faults.FailingFileSystem, UnsyncedFileSystem):
    """Answers one call with an error."""


class TornFileSystem(CrashingFileSystem):
    """Crashes in the middle of a write by position."""

    def at_call(self, number, name, arguments):
        if number == self._at and name == "pwrite":
            descriptor, data, position = arguments
            os.pwrite(descriptor, bytes(data)[: len(data) // 2], position)
        super().at_call(number, name, arguments)


class ShortWrites(UnsyncedFileSystem):
    """Writes a few bytes a call, every other call interrupted by a signal."""

    def __init__(self):
        self._interrupt = False

    def pwrite(self, descriptor, data, position):
        self._interrupt = not self._interrupt
        if self._interrupt:
            raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))
        return super().pwrite(descriptor, bytes(data)[:37], position)


class FullDisk(CountingFileSystem):
    """Accepts a number of bytes, and then fails."""

    def __init__(self, free):
        super().__init__()
        self.free = free

    def pwrite(self, descriptor, data, position):
        count = min(len(data), self.free, 50)
        if count == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.free -= count
        return super().pwrite(descriptor, bytes(data)[:count], position)


class Work:
    """The steps of a writer, and the offsets that it must keep."""

    def __init__(self):
        self.kept = self.written = 0

    def __call__(self, root, fs):
        with LogDirWriter(root, clock=Clock(), fs=fs) as log_dir:
            writer = log_dir.writer("t", 0, CONFIG)
            try:
                self.write(log_dir, writer)
            except OSError:
                if writer.has_failed:
                    self.check_refusal(writer)
                raise
            self.kept = writer.log_end_offset

    def write(self, log_dir, writer):
        writer.append_records(new_records(14), batch_bytes=150)
        self.flush(writer)
        producer = TransactionalProducer(writer, 7)
        producer.send(FIRST_TIMESTAMP)
        producer.end(FIRST_TIMESTAMP, is_commit=False)
        writer.append_records(new_records(5), leader_epoch=2)
        self.kept = min(self.kept, 9)
        writer.truncate_to(9)
        log_dir.checkpoint()
        writer.append_records(new_records(6), batch_bytes=150, leader_epoch=3)
        writer.delete_records(5)
        writer.delete_old_segments()
        self.flush(writer)
        log_dir.checkpoint()
        writer.roll()
        writer.append_records(new_records(3))

    def flush(self, writer):
        writer.flush()
        self.kept = writer.log_end_offset

    def check_refusal(self, writer):
        before = {path.name: path.stat().st_size for path in writer.path.iterdir()}
        for refused in (
            lambda: writer.append(batch_of(0, [1])),
            lambda: writer.append_records(new_records(1)),
            writer.flush,
            writer.roll,
            lambda: writer.truncate_to(0),
        ):
            with pytest.raises(WriterFailedError):
                refused()
        assert {path.name: path.stat().st_size for path in writer.path.iterdir()} == before


def check_found(root, work):
    """Check what the next writer finds, and that it and a reader can continue."""
    with LogDirWriter(root, clock=Clock(), fs=UnsyncedFileSystem()) as log_dir:
        writer = log_dir.writer("t", 0, CONFIG, recover=True)
        end = writer.log_end_offset
        assert work.kept <= end <= 30
        writer.append_records(new_records(4))
    (log,) = kafkastore.open(root)
    found = [record.offset for record in log.records(include_control=True)]
    assert found == list(range(log.log_start_offset, end + 4))
    severities = {finding.severity for finding in kafkastore.verify(root)}
    assert severities <= {kafkastore.Severity.STYLE}


def contents(root):
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name != "meta.properties"
    }


@pytest.fixture
def calls(tmp_path):
    """Numbers and names of some of the altering calls."""
    fs = CountingFileSystem()
    Work()(tmp_path / "counted", fs)
    assert len(fs.calls) > 150
    return some(list(enumerate(fs.calls)), len(fs.calls) // 3)


def test_an_error_at_any_call_is_raised_and_the_next_writer_finds_what_was_flushed(
    tmp_path, calls
):
    for at, name in calls:
        root, work = tmp_path / str(at), Work()
        try:
            work(root, FailingFileSystem(at, errno.EIO))
        except (OSError, WriterFailedError):
            pass
        else:
            assert name == "close", "only a file that was synced may fail to close"
        check_found(root, work)


@pytest.mark.parametrize("kind", [CrashingFileSystem, TornFileSystem])
def test_a_crash_at_any_call_loses_nothing_that_was_flushed(tmp_path, calls, kind):
    for at, _ in calls:
        root, work = tmp_path / str(at), Work()
        with suppress(Crash):
            work(root, kind(at))
        check_found(root, work)


def test_a_full_disk_is_an_error_and_flushed_records_stay(tmp_path):
    for free in some(range(0, 3000, 130), 8):
        root, work = tmp_path / str(free), Work()
        with pytest.raises(OSError) as caught:  # noqa: PT011
            work(root, FullDisk(free))
        assert caught.value.errno == errno.ENOSPC
        check_found(root, work)


def test_short_and_interrupted_writes_make_the_same_files(tmp_path):
    Work()(tmp_path / "plain", UnsyncedFileSystem())
    Work()(tmp_path / "short", ShortWrites())
    assert contents(tmp_path / "plain") == contents(tmp_path / "short")
