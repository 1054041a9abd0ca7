import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from changes.faults import (
    Crash,
    CrashingFileSystem,
    FailingFileSystem,
    FullDisk,
    ShortWrites,
    count_calls,
)
from changes.small_store import MTIME_NS, contents, write
from models.no_regular_file import KINDS
from models.refused import change_refused, os_error
from models.unprivileged import as_nobody, give_to_nobody

from kafkastore.changes import copy_store as copy_store_module
from kafkastore.changes.copy_file import copy_file
from kafkastore.changes.copy_store import COPYING_SUFFIX, copy_store
from kafkastore.errors import ChangeRefusedError, NotAFileError
from kafkastore.fs import FileSystem, LockFile


class NoReflinks(FileSystem):
    def clone(self, descriptor, source):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")


class OnlyWrites(NoReflinks):
    def copy_range(self, descriptor, source, position, size):
        raise OSError(errno.EXDEV, "Invalid cross-device link")


class NothingCopied(NoReflinks):
    def copy_range(self, descriptor, source, position, size):
        return 0


class ShortPositionedWrites(OnlyWrites):
    def pwrite(self, descriptor, data, position):
        return super().pwrite(descriptor, data[: (len(data) + 1) // 2], position)


def expected(root):
    return {path: each for path, each in contents(root).items() if path != ".lock"}


@pytest.fixture
def destination(tmp_path):
    return tmp_path / "elsewhere" / "copy"


@pytest.fixture(autouse=True)
def _parent(destination):
    destination.parent.mkdir()


@pytest.mark.parametrize(
    "fs",
    [
        FileSystem(),
        NoReflinks(),
        OnlyWrites(),
        NothingCopied(),
        ShortPositionedWrites(),
        ShortWrites(),
    ],
    ids=lambda fs: type(fs).__name__,
)
def test_a_copy_has_the_same_files_times_and_modes_but_no_lock(root, destination, fs):
    before = contents(root)
    copy = copy_store(root, destination, fs=fs)
    assert contents(destination) == expected(root)
    assert contents(root) == before
    assert copy.destination == destination
    assert copy.files == len(expected(root))
    assert copy.bytes == sum(len(data) for data, _, _ in expected(root).values())
    assert copy.skipped == (".lock",)
    assert sorted(os.listdir(destination.parent)) == ["copy"]


def test_no_file_of_a_copy_is_linked_to_the_original(root, destination):
    copy_store(root, destination)
    for path in destination.rglob("*"):
        if path.is_file():
            assert path.stat().st_nlink == 1
            path.write_bytes(b"a broker writes")
    assert b"a broker writes" not in {data for data, _, _ in contents(root).values()}


def test_directory_times_and_modes_are_kept(root, destination):
    os.chmod(root / "orders-0", 0o750)
    os.utime(root / "orders-0", ns=(1, MTIME_NS))
    copy_store(root, destination)
    status = (destination / "orders-0").stat()
    assert (status.st_mode & 0o777, status.st_mtime_ns) == (0o750, MTIME_NS)


def test_preallocated_zeros_stay_holes(root, destination):
    path = root / "orders-0" / "00000000000000000042.timeindex"
    write(path, b"entry", MTIME_NS)
    os.truncate(path, 10_485_756)
    if path.stat().st_blocks * 512 > 1 << 20:
        pytest.skip("this file system has no holes")
    copy_store(root, destination, fs=NoReflinks())
    copied = destination / "orders-0" / path.name
    assert copied.read_bytes() == path.read_bytes()
    assert copied.stat().st_blocks * 512 < 1 << 20


@pytest.mark.parametrize("fs", [NoReflinks(), OnlyWrites()], ids=["in the kernel", "by writes"])
def test_data_after_and_between_holes_is_copied(root, destination, fs):
    path = root / "orders-0" / "00000000000000000042.timeindex"
    with open(path, "wb") as file:
        for position in (1 << 20, 3 << 20, 5_000_001):
            file.seek(position)
            file.write(b"data" * 5000)
        file.truncate(8 << 20)
    copy_store(root, destination, fs=fs)
    assert (destination / "orders-0" / path.name).read_bytes() == path.read_bytes()


def test_an_empty_destination_is_used_and_a_non_empty_one_refused(root, destination):
    destination.mkdir()
    copy_store(root, destination)
    with change_refused("not-empty", destination):
        copy_store(root, destination)
    assert contents(destination) == expected(root)


@pytest.mark.parametrize(
    "place", ["disk/kafka-logs-1", "disk/kafka-logs-1/copy", "disk", "no/where"]
)
def test_a_copy_is_never_in_the_original_or_a_missing_directory(root, tmp_path, place):
    before = contents(root)
    with pytest.raises(ChangeRefusedError):
        copy_store(root, tmp_path / place)
    assert contents(root) == before


def test_a_mount_point_is_refused(root, destination, monkeypatch):
    destination.mkdir()
    monkeypatch.setattr("pathlib.Path.is_mount", lambda self: self == destination)
    with change_refused("unsuitable-place", destination):
        copy_store(root, destination)


def test_a_directory_in_use_by_a_broker_is_not_copied(root, destination):
    lock = LockFile(root / ".lock")
    try:
        with change_refused("in-use", root / ".lock"):
            copy_store(root, destination)
    finally:
        lock.close()
    assert not destination.exists()


def test_a_source_that_changes_during_the_copy_is_refused(root, destination):
    def change(done, total):
        if done == total - 1:
            write(root / "orders-0" / "00000000000000000000.log", b"appended" * 60, MTIME_NS + 99)

    with change_refused("changed", root / "orders-0" / "00000000000000000000.log"):
        copy_store(root, destination, progress=change)
    assert not destination.exists()
    copy_store(root, destination)
    assert contents(destination) == expected(root)


def test_a_file_that_vanished_since_an_interrupted_copy_is_not_in_the_copy(root, destination):
    with pytest.raises(KeyboardInterrupt):
        copy_store(root, destination, progress=stop_at_the_last)
    (root / "orders-0" / "00000000000000000042.log").unlink()
    copy_store(root, destination)
    assert contents(destination) == expected(root)


def stop_at_the_last(done, total):
    if done == total - 1:
        raise KeyboardInterrupt


def test_an_interrupted_copy_continues_where_it_stopped(root, destination, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        copy_store(root, destination, progress=stop_at_the_last)
    assert not destination.exists()
    seen, copied = [], []

    def copy_file(source, target, fs):
        copied.append(source.relative_to(root))
        return real(source, target, fs)

    real = copy_store_module.copy_file
    monkeypatch.setattr(copy_store_module, "copy_file", copy_file)
    copy_store(root, destination, progress=lambda *counts: seen.append(counts))
    assert len(copied) == 1
    assert seen == [(done, len(expected(root))) for done in range(1, len(expected(root)) + 1)]
    assert contents(destination) == expected(root)


def test_a_crash_at_any_call_leaves_no_destination_and_a_rerun_finishes(
    root, destination, tmp_path
):
    calls = count_calls(lambda fs: copy_store(root, tmp_path / "counted", fs=fs))
    for at in range(calls):
        here = destination.with_name(f"copy-{at}")
        with pytest.raises(Crash):
            copy_store(root, here, fs=CrashingFileSystem(at, torn=True))
        if at < calls - 1:
            assert not here.exists()
            copy_store(root, here)
        assert contents(here) == expected(root)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EINTR])
def test_an_error_at_any_call_is_raised_or_handled(root, destination, tmp_path, error):
    before = contents(root)
    calls = count_calls(lambda fs: copy_store(root, tmp_path / "counted", fs=fs))
    for at in range(calls):
        here = destination.with_name(f"copy-{at}")
        with suppress(OSError):
            copy_store(root, here, fs=FailingFileSystem(at, error))
        if not here.exists():
            copy_store(root, here)
        assert contents(here) == expected(root)
    assert contents(root) == before


def test_a_full_disk_raises_an_error_and_leaves_no_copy(root, destination):
    class Full(FullDisk, OnlyWrites):
        def pwrite(self, descriptor, data, position):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with os_error(errno.ENOSPC):
        copy_store(root, destination, fs=Full(0))
    assert not destination.exists()
    assert destination.with_name("copy" + COPYING_SUFFIX).exists()


def test_a_file_system_with_coarse_times_is_refused(root, destination):
    class WholeSeconds(FileSystem):
        def utime(self, path, modified_ns):
            super().utime(path, modified_ns // 10**9 * 10**9)

    with change_refused("unsupported"):
        copy_store(root, destination, fs=WholeSeconds())
    assert not destination.exists()


def test_links_are_followed_and_loops_refused(root, destination, tmp_path):
    (root / "orders-1").rename(tmp_path / "another disk")
    (root / "orders-1").symlink_to(tmp_path / "another disk")
    copy_store(root, destination)
    assert not (destination / "orders-1").is_symlink()
    assert (destination / "orders-1" / "00000000000000000042.log").read_bytes() == b"LOG" * 50
    (root / "orders-1" / "back").symlink_to(root)
    with change_refused("overlap", root / "orders-1" / "back"):
        copy_store(root, destination.with_name("another"))


def test_sockets_and_lost_and_found_are_skipped_and_named(root, destination):
    (root / "lost+found").mkdir(mode=0o700)
    os.mkfifo(root / "orders-0" / "pipe")
    assert copy_store(root, destination).skipped == (".lock", "lost+found", "orders-0/pipe")
    assert contents(destination) == expected(root)


def test_a_copied_file_has_permission_bits_only(root, destination):
    (root / "orders-0" / "00000000000000000000.log").chmod(0o6755)
    copy_store(root, destination)
    copied = destination / "orders-0" / "00000000000000000000.log"
    assert copied.stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "a directory"])
def test_a_partition_with_a_special_file_is_completely_left_out_and_named(root, destination, kind):
    path = root / "orders-0" / "00000000000000000000.log"
    path.unlink()
    KINDS[kind](path)
    copied = copy_store(root, destination)
    assert [*copied.left_out] == ["orders-0"]
    assert (copied.left_out["orders-0"].path, copied.left_out["orders-0"].kind) == (path, kind)
    assert contents(destination) == {
        path: each for path, each in expected(root).items() if not path.startswith("orders-0")
    }


@pytest.mark.parametrize("name", ["", "00000000000000000000.log", "leader-epoch-checkpoint"])
def test_a_partition_without_read_permission_is_left_out_and_the_others_copied(root, name):
    with TemporaryDirectory() as place:  # readable for every user, unlike those of pytest
        logs = Path(place, "logs")
        shutil.copytree(root, logs)
        (logs / "orders-0" / "leader-epoch-checkpoint").touch()
        give_to_nobody(Path(place))
        locked = logs / "orders-0" / name
        locked.chmod(0)
        copied = as_nobody(lambda: copy_store(logs, Path(place, "copy")))
        assert [*copied.left_out] == ["orders-0"]
        assert copied.left_out["orders-0"].filename == str(locked).rstrip("/")
        assert not Path(place, "copy", "orders-0").exists()
        assert any(Path(place, "copy").glob("*/*.log"))
        locked.chmod(0o700)


def test_nothing_is_copied_if_no_partition_or_a_file_next_to_them_is_unreadable(
    root, destination
):
    (root / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    (root / "recovery-point-offset-checkpoint").symlink_to("nowhere")
    with pytest.raises(NotAFileError):
        copy_store(root, destination)
    (root / "recovery-point-offset-checkpoint").unlink()
    for partition in root.glob("orders-*"):
        log = next(partition.glob("*.log"))
        log.unlink()
        log.symlink_to("nowhere")
    with pytest.raises(NotAFileError):
        copy_store(root, destination)
    assert not any(destination.parent.iterdir())


def test_a_copy_that_fails_leaves_no_part(tmp_path):
    class Full(FileSystem):
        def fsync(self, descriptor):
            raise OSError(errno.ENOSPC, "No space left on device")

    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"bytes")
    with pytest.raises(OSError, match="space"):
        copy_file(source, target, Full())
    assert not list(tmp_path.glob("target*"))
