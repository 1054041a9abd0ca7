"""Altering calls that fail name the file."""

import errno
import os
import resource
import signal
import sys
from contextlib import contextmanager

import pytest
from cli.running import assert_one_sentence
from click.testing import CliRunner

from kafkastore import LogDirWriter
from kafkastore.cli.command_list import cli
from kafkastore.formats.records.record_batch import Record, TimestampType
from kafkastore.fs import FileSystem

SMALL = 4096

FAILING = {
    "write": lambda fs, descriptor: fs.write(descriptor, bytes(2 * SMALL)),
    "write_all": lambda fs, descriptor: fs.write_all(descriptor, bytes(2 * SMALL)),
    "pwrite": lambda fs, descriptor: fs.pwrite(descriptor, b"x", 2 * SMALL),
    "pwrite_all": lambda fs, descriptor: fs.pwrite_all(descriptor, bytes(SMALL), SMALL),
    "truncate": lambda fs, descriptor: fs.truncate(descriptor, 2 * SMALL),
}


@contextmanager
def small_files():
    """Let no file grow above a few KiB, as if the disk were full: in this process alone."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python before 3.14 keeps bytecode that was written in part, and later processes import it.
    writes_no_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        sys.dont_write_bytecode = writes_no_bytecode
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("call", FAILING)
def test_a_call_that_fails_names_the_file(tmp_path, call):
    fs = FileSystem()
    path = tmp_path / "full"
    descriptor = fs.create(path)
    fs.write_all(descriptor, bytes(SMALL))
    try:
        with small_files(), pytest.raises(OSError, match="large") as caught:
            FAILING[call](fs, descriptor)
    finally:
        fs.close(descriptor)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(path))


@pytest.mark.parametrize(
    "call",
    [
        lambda fs, descriptor: fs.chmod(descriptor, 0o644),
        lambda fs, descriptor: fs.chown(descriptor, 0, 0),
        lambda fs, descriptor: fs.utime(descriptor, 0),
        lambda fs, descriptor: fs.fsync(descriptor),
    ],
)
def test_the_error_of_an_unknown_descriptor_has_no_number_as_its_file(call):
    with pytest.raises(OSError, match="descriptor") as caught:
        call(FileSystem(), 1 << 20)
    assert (caught.value.errno, caught.value.filename) == (errno.EBADF, None)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such files")
def test_a_refused_change_of_an_open_file_names_the_file():
    with open("/proc/self/status", "rb") as file, pytest.raises(PermissionError) as caught:
        FileSystem().chmod(file.fileno(), 0o777)
    assert caught.value.filename == f"/proc/{os.getpid()}/status"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a full device")
def test_a_full_device_is_named():
    descriptor = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(OSError, match="'/dev/full'") as caught:
            FileSystem().write_all(descriptor, b"x")
    finally:
        os.close(descriptor)
    assert caught.value.errno == errno.ENOSPC


def test_a_writer_s_error_names_the_file_that_could_not_grow(tmp_path):
    record = Record(0, 1, TimestampType.CREATE_TIME, b"k", bytes(3000), (), None)
    with LogDirWriter(tmp_path / "logs", version="3.9") as log_dir:
        writer = log_dir.writer("t", 0)
        log = str(tmp_path / "logs" / "t-0" / f"{0:020}.log")
        with small_files(), pytest.raises(OSError, match="large") as caught:
            for _ in range(3):
                writer.append_records([record])
        assert caught.value.filename == log


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_an_output_file_that_can_not_grow_is_named(tmp_path, golden, form):
    output, logs = tmp_path / "out", golden("2.4.0", "codecs", "answers").logs
    line = ["cat", str(logs), "--format", form, "-o", str(output)]
    with small_files():
        result = CliRunner().invoke(cli, line)
    assert_one_sentence(
        type("Ran", (), {"code": result.exit_code, "err": result.stderr})(), str(output), "large"
    )
    assert list(tmp_path.iterdir()) == []


def test_errors_in_an_open_directory_name_full_paths(tmp_path):
    fs, path, other = FileSystem(), tmp_path / "missing", tmp_path / "other"
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        for call in (fs.unlink, fs.rmdir):
            with pytest.raises(FileNotFoundError) as raised:
                call(path, dir_fd=directory)
            assert raised.value.filename == str(path)
        tmp_path.joinpath("other").touch()
        for call in (fs.create, fs.mkdir):
            with pytest.raises(FileExistsError) as raised:
                call(other, dir_fd=directory)
            assert raised.value.filename == str(other)
        with pytest.raises(FileNotFoundError) as raised:
            fs.rename(path, other, dir_fd=directory)
        assert (raised.value.filename, raised.value.filename2) == (str(path), str(other))
        with pytest.raises(FileNotFoundError) as raised:
            fs.link(path, other, src_dir_fd=directory, dst_dir_fd=directory)
        assert (raised.value.filename, raised.value.filename2) == (str(path), str(other))
    finally:
        os.close(directory)
