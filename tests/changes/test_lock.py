import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from changes.held_locks import can_lock, hold

from kafkastore.fs import LockFile, lock_holder


@pytest.fixture
def path(tmp_path):
    path = tmp_path / ".lock"
    path.touch()
    return path


def test_a_missing_or_free_lock_has_no_holder_and_is_not_created(tmp_path, path):
    assert lock_holder(path) is None
    assert lock_holder(tmp_path / "missing") is None
    assert not (tmp_path / "missing").exists()


def test_another_process_s_lock_is_detected_and_refused(path):
    with hold(path) as process:
        assert lock_holder(path) == process.pid
        with pytest.raises(BlockingIOError) as refusal:
            LockFile(path)
        assert refusal.value.filename == str(path)
        assert lock_holder(path) == process.pid
        process.communicate()
    assert lock_holder(path) is None


def test_our_own_lock_survives_every_query(path):
    lock = LockFile(path)
    assert lock_holder(path) == os.getpid()
    with pytest.raises(BlockingIOError) as refusal:
        LockFile(path)
    assert refusal.value.filename == str(path)
    assert not can_lock(path)
    lock.close()
    lock.close()
    assert lock_holder(path) is None
    assert can_lock(path)


def test_a_lock_file_is_created_only_on_request(tmp_path):
    with pytest.raises(FileNotFoundError):
        LockFile(tmp_path / ".lock")
    LockFile(tmp_path / ".lock", create=True).close()
    assert (tmp_path / ".lock").read_bytes() == b""


@pytest.fixture
def often_switched():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_of_several_threads_one_gets_the_lock(path, often_switched):
    def take(_):
        try:
            return LockFile(path)
        except BlockingIOError:
            lock_holder(path)
            return None

    with ThreadPoolExecutor(8) as pool:
        for _ in range(100):
            taken = [lock for lock in pool.map(take, range(8)) if lock is not None]
            assert len(taken) == 1
            assert lock_holder(path) == os.getpid()
            taken[0].close()
