"""Migrated copies in object stores: either the same bytes, or a copy that can be finished."""
from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

import fsspec
import pyarrow.fs
import pytest
from cli.running import Run, assert_one_sentence
from fsspec.implementations.arrow import ArrowFSWrapper
from models.refused import change_refused
from models.seed import SEED
from remote.conftest import S3

import kafkastore
from kafkastore import (
    ChangeRefusedError,
    RefusalReason,
    RemoteObjectChangedError,
    RemoteStoreError,
    migration,
)
from kafkastore.changes import upload_store as uploads
from kafkastore.changes.upload_store import upload_store
from kafkastore.remote.new_store import PIECE_BYTES, NewStore
from kafkastore.remote.stores import COPYING

CASES = [("0.8.2.2", "codecs", "answers"), ("0.10.0.1", "create-time-out-of-order", "answers")]


@pytest.fixture(params=CASES, ids="-".join)
def logs(
    request: pytest.FixtureRequest, golden: Any, whole_seconds: Callable[[Path], Path]
) -> Path:
    """Return an old directory with modification times in whole seconds."""
    return whole_seconds(golden(*request.param).logs)


@pytest.fixture
def old(golden: Any, whole_seconds: Callable[[Path], Path]) -> Path:
    """Return one of these directories."""
    return whole_seconds(golden(*CASES[0]).logs)


def contents(directory: Path) -> dict[str, bytes]:
    """Return the bytes of every file except the lock, which is not copied."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def planned(source: Path | str) -> Any:
    """Return the plan to migrate a directory."""
    return migration.plan(migration.survey(source), "auto")


def migrated(run: Run, source: object, place: Path) -> dict[str, bytes]:
    """Return the files of a migrated copy on a disk."""
    assert run("migrate", source, "--copy-to", place).code == 0
    return contents(place)


def puts(s3: S3) -> Counter[str]:
    """Return how often each object was sent or copied."""
    return Counter(each.path for each in s3.proxy.requests if each.method == "PUT")


def test_a_copy_at_a_url_equals_a_copy_on_a_disk(
    s3: S3, run: Run, logs: Path, tmp_path: Path
) -> None:
    before = contents(logs)
    url = f"s3://{s3.bucket}/deep/copy"
    ran = run("migrate", logs, "--copy-to", url)
    assert (ran.code, contents(logs)) == (0, before)
    expected = migrated(run, logs, tmp_path / "here")
    assert expected != before
    assert contents(s3.file("deep/copy")) == expected
    assert f"copied {len(expected)} files of {logs} to {url}, changed as planned: " in ran.out
    assert "--save-mtimes FILE" in ran.err
    assert "nothing was changed" not in ran.out
    assert run("verify", url, "--fail-on", "slow").code == 0


def test_a_copy_in_a_store_is_reindexed_like_one_on_a_disk(
    s3: S3, run: Run, logs: Path, tmp_path: Path
) -> None:
    before = contents(logs)
    options = ["--index-interval-bytes", 200]
    assert run("reindex", logs, "--copy-to", f"s3://{s3.bucket}/copy", *options).code == 0
    assert run("reindex", logs, "--copy-to", tmp_path / "here", *options).code == 0
    assert contents(s3.file("copy")) == contents(tmp_path / "here") != before
    assert contents(logs) == before


def test_the_server_copies_unchanged_objects_and_only_changes_are_sent(
    s3: S3, run: Run, logs: Path, tmp_path: Path
) -> None:
    url, copy = s3.put(logs, "old logs, 1"), f"s3://{s3.bucket}/copy"
    before = contents(s3.file("old logs, 1"))
    ran = run("migrate", url, "--copy-to", copy, "--json")
    assert ran.code == 0
    expected = migrated(run, logs, tmp_path / "here")
    assert contents(s3.file("copy")) == expected
    assert contents(s3.file("old logs, 1")) == before
    copied = ran.lines[-1]
    assert copied == {
        "kind": "copied", "root": copy, "files": len(expected),
        "bytes": sum(map(len, expected.values())),
    }
    assert ran.err == ""
    # The plan fetches each byte once; unchanged objects are not fetched again.
    gets = s3.proxy.gets
    assert sum(each.bytes for each in gets) <= sum(map(len, before.values()))
    assert max(puts(s3).values()) == 1
    # In addition to one request for each object: listings, and the mark of an unfinished copy.
    assert len(s3.proxy.requests) <= len(gets) + len(expected) + 12


def test_without_changes_a_copy_is_still_made(s3: S3, run: Run, old: Path, tmp_path: Path) -> None:
    expected = migrated(run, old, tmp_path / "here")
    ran = run("migrate", tmp_path / "here", "--copy-to", f"s3://{s3.bucket}/copy")
    assert ran.code == 0
    assert contents(s3.file("copy")) == expected


def test_one_partition_is_copied(s3: S3, run: Run, old: Path, tmp_path: Path) -> None:
    source = next(path for path in sorted(old.iterdir()) if any(path.glob("*.log")))
    url = f"s3://{s3.bucket}/{source.name}"
    assert run("migrate", source, "--copy-to", url).code == 0
    assert contents(s3.file(source.name)) == migrated(run, source, tmp_path / source.name)
    for place in (f"s3://{s3.bucket}/copy", tmp_path / "copy"):
        message = "must have a partition's name: 'copy' is not topic-partition; use .../"
        assert_one_sentence(run("migrate", url, "--copy-to", place), f"{message}{source.name}")


def test_a_dry_run_sends_nothing(s3: S3, run: Run, old: Path) -> None:
    assert run("migrate", old, "--copy-to", f"s3://{s3.bucket}/copy", "--dry-run").code == 0
    assert {each.method for each in s3.proxy.requests} <= {"GET", "HEAD"}
    assert not s3.file("copy").exists()


def test_modification_times_are_kept_in_a_file(
    s3: S3, run: Run, old: Path, tmp_path: Path
) -> None:
    saved, url = tmp_path / "mtimes.json", f"s3://{s3.bucket}/copy"
    ran = run("migrate", old, "--copy-to", url, "--save-mtimes", saved)
    assert (ran.code, ran.err) == (0, "")
    question = ["--at", "2017-07-14T02:40:00Z", "--json"]
    assert run("compare", url, "--mtimes", saved, *question).out.replace(url, str(old)) == run(
        "compare", old, *question
    ).out


@pytest.mark.parametrize("source", ["directory", "url"])
def test_a_copy_that_fails_at_any_request_is_finished_by_the_same_command(
    s3: S3, run: Run, old: Path, tmp_path: Path, source: str
) -> None:
    given = old if source == "directory" else s3.put(old, "old")
    expected, url = migrated(run, old, tmp_path / "here"), f"s3://{s3.bucket}/copy"
    choose = random.Random(SEED)
    altering = len(expected) + 2  # the mark is created and removed
    for failing in [0, altering - 1, *choose.sample(range(1, altering - 1), 6)]:
        s3.proxy.requests.clear()
        left = [failing]

        def fault(method: str, path: str, left: list[int] = left) -> int | None:
            left[0] -= method in ("PUT", "DELETE", "POST")
            return 403 if left[0] < 0 and method != "GET" else None

        s3.proxy.fault = fault
        ran = run("migrate", given, "--copy-to", url)
        s3.proxy.fault = lambda method, path: None
        assert_one_sentence(ran, url, "can't be written", "check credentials")
        assert ("the same command continues it" in ran.err) == bool(failing)
        there = contents(s3.file("copy")) if failing else {}
        mark = there.pop(COPYING, None)
        assert (mark is not None) == bool(failing)
        assert there.items() <= expected.items()
        if failing:
            assert_one_sentence(run("ls", url), f"{url} can't be read: it is an unfinished copy")
        s3.proxy.requests.clear()
        assert run("migrate", given, "--copy-to", url).code == 0
        assert contents(s3.file("copy")) == expected
        sent = {path.partition("copy/")[2] for path in puts(s3)} - {COPYING}
        assert sent == expected.keys() - there.keys()
        NewStore(url)._library.rm(f"{s3.bucket}/copy", recursive=True)


def test_a_killed_copy_is_finished_by_the_same_command(
    s3: S3, run: Run, old: Path, tmp_path: Path
) -> None:
    expected, url = migrated(run, old, tmp_path / "here"), f"s3://{s3.bucket}/copy"
    command = ["migrate", str(old), "--copy-to", url]
    process = subprocess.Popen(
        [sys.executable, "-m", "kafkastore.cli", *command],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ,
    )

    def kill(method: str, path: str) -> None:
        if sum(puts(s3).values()) >= len(expected) // 3:
            process.send_signal(signal.SIGKILL)

    s3.proxy.fault = kill
    assert process.wait() == -signal.SIGKILL
    s3.proxy.fault = lambda method, path: None
    with pytest.raises(RemoteStoreError):
        kafkastore.open(url)
    assert run(*command).code == 0
    assert contents(s3.file("copy")) == expected


def test_an_interrupted_copy_does_not_wait_for_pending_uploads(s3: S3, tmp_path: Path) -> None:
    for number in range(10):
        directory = tmp_path / "logs" / f"t-{number}"
        directory.mkdir(parents=True)
        for name in range(100 if number else 1):
            (directory / f"{name}").write_bytes(b"some")
    plan = kafkastore.Plan(str(tmp_path / "logs"), "a copy", ())

    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        upload_store(tmp_path / "logs", f"s3://{s3.bucket}/copy", plan, progress=interrupt)
    assert 1 < len(puts(s3)) < 400


def test_a_non_empty_destination_is_refused_before_anything_is_read(
    s3: S3, run: Run, old: Path
) -> None:
    url = s3.put(old, "old")
    s3.file("old/more").mkdir()
    before = contents(s3.root)
    for source, place, *messages in [
        (old, url, f"{url} exists and is not empty"),
        (url, url, "one contains the other"),
        (url, f"{url}/copy", "one contains the other"),
        (url, f"{url.replace('s3', 's3a')}/copy", "one contains the other"),
        (old, f"{url}/a::b", "must not have empty parts"),
        (f"{url}/more", url, "does not exist"),
        (old, "s3://no-such-bucket/copy", "bucket does not exist; create the bucket"),
        (old, "s3://", "a bucket or host is missing"),
        (old, "nonsense://x/y", "nonsense:// is not known"),
    ]:
        assert_one_sentence(run("migrate", source, "--copy-to", place), *messages)
    assert contents(s3.root) == before
    assert s3.proxy.gets == []
    assert_one_sentence(
        run("convert", old, "--copy-to", f"s3://{s3.bucket}/c"), "a local directory is needed"
    )


def test_an_unfinished_copy_of_another_directory_is_not_continued(
    s3: S3, run: Run, old: Path
) -> None:
    url = f"s3://{s3.bucket}/copy"
    NewStore(url).put(COPYING, [b"{}"], 2)
    assert_one_sentence(
        run("migrate", old, "--copy-to", url), f"{url} has an unfinished copy of another directory"
    )
    assert [*contents(s3.file("copy"))] == [COPYING]


def both_begin() -> Callable[[str, str], None]:
    """Return a fault that lets two copies start at the same time."""
    begins = Barrier(2)

    def together(method: str, path: str) -> None:
        if method == "PUT" and path.endswith(COPYING):
            begins.wait(800)

    return together


def test_only_one_of_two_different_copies_to_one_url_is_made(
    s3: S3, old: Path, run: Run, tmp_path: Path
) -> None:
    url = f"s3://{s3.bucket}/copy"
    s3.proxy.fault = both_begin()
    plans = [planned(old), migration.plan(migration.survey(old), "empty")]
    assert plans[0] != plans[1]
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(upload_store, old, url, plan) for plan in plans]
    outcomes = [each.exception() for each in running]
    (lost,) = [each for each in outcomes if each is not None]
    assert isinstance(lost, ChangeRefusedError)
    assert (lost.reason, lost.path) == (RefusalReason.UNFINISHED, url)
    won = plans[outcomes.index(None)]
    copy = shutil.copytree(old, tmp_path / "copy")
    kafkastore.apply(replace(won, root=str(copy)))
    assert contents(s3.file("copy")) == contents(copy)


@pytest.mark.parametrize("removed", ["before it is read", "after it was read"])
def test_the_same_copy_can_be_made_by_two_processes_at_once(
    s3: S3, old: Path, run: Run, tmp_path: Path, removed: str
) -> None:
    url, plan = f"s3://{s3.bucket}/copy", planned(old)
    begin, end = both_begin(), Barrier(2)

    def together(method: str, path: str) -> None:
        begin(method, path)
        awaited = "GET" if removed == "before it is read" else "DELETE"
        if method == awaited and path.endswith(COPYING) and len(puts(s3)) > 10:
            with suppress(BrokenBarrierError):
                end.wait(2)

    s3.proxy.fault = together
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(upload_store, old, url, plan) for _ in range(2)]
    refused = [error for each in running if (error := each.exception()) is not None]
    # One copy may find the mark only after the other has ended.
    assert len(refused) < 2
    assert all(isinstance(each, ChangeRefusedError) for each in refused)
    assert all(each.reason is RefusalReason.NOT_EMPTY for each in refused)
    assert contents(s3.file("copy")) == migrated(run, old, tmp_path / "here")


def test_a_copy_that_begins_after_another_has_ended_is_refused(
    s3: S3, old: Path, run: Run, tmp_path: Path
) -> None:
    url, plan = f"s3://{s3.bucket}/copy", planned(old)

    def other_ends(method: str, path: str) -> None:
        if method == "PUT" and path.endswith(COPYING):
            s3.proxy.fault = remove_mark
            NewStore(url).put_new(COPYING, b'{"copy": "%s"}' % (b"0" * 64))

    def remove_mark(method: str, path: str) -> None:
        if method == "GET" and path.endswith(COPYING):
            s3.proxy.fault = lambda method, path: None
            NewStore(url).put_new("meta.properties", b"")
            NewStore(url).remove(COPYING)

    s3.proxy.fault = other_ends
    with pytest.raises(ChangeRefusedError) as caught:
        upload_store(old, url, plan)
    assert caught.value.reason is RefusalReason.NOT_EMPTY
    assert list(contents(s3.file("copy"))) == ["meta.properties"]


def test_a_mark_may_be_removed_by_the_same_copy_in_another_process(
    s3: S3, old: Path, run: Run, tmp_path: Path
) -> None:
    url = f"s3://{s3.bucket}/copy"

    def twin_ends(method: str, path: str) -> None:
        if method == "GET" and path.endswith(COPYING):
            s3.proxy.fault = lambda method, path: None
            NewStore(url).remove(COPYING)

    s3.proxy.fault = twin_ends
    upload_store(old, url, planned(old))
    assert contents(s3.file("copy")) == migrated(run, old, tmp_path / "here")


def test_removing_an_object_that_another_process_removed_succeeds(
    memory: Any, old: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_parts = NewStore.remove_parts

    def twin_ends(new: NewStore) -> None:
        remove_parts(new)
        memory.rm_file(f"/copy/{COPYING}")

    monkeypatch.setattr(NewStore, "remove_parts", twin_ends)
    upload_store(old, "memory://copy", planned(old))
    memory.get("/copy/", f"{tmp_path}/copy/", recursive=True)
    assert contents(tmp_path / "copy") == migrated(run, old, tmp_path / "here")


def test_the_mark_of_another_copy_is_not_removed(s3: S3, old: Path) -> None:
    url, plan = f"s3://{s3.bucket}/copy", planned(old)

    def replaced(method: str, path: str) -> None:
        if method == "PUT" and not path.endswith(COPYING):
            s3.proxy.fault = lambda method, path: None
            NewStore(url).put(COPYING, [b"another"], 7)

    s3.proxy.fault = replaced
    with change_refused("unfinished", url):
        upload_store(old, url, plan)
    assert contents(s3.file("copy"))[COPYING] == b"another"


def test_a_broker_s_directory_is_refused_before_it_is_read(s3: S3, run: Run, old: Path) -> None:
    with (old / ".lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)  # a process does not see its own lock
        command = [sys.executable, "-m", "kafkastore.cli", "migrate", str(old), "--copy-to"]
        ran = subprocess.run(
            [*command, f"s3://{s3.bucket}/copy"], capture_output=True, text=True, env=os.environ
        )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "broker" in ran.stderr


def test_empty_directories_are_named(s3: S3, run: Run, old: Path, tmp_path: Path) -> None:
    (old / "orders-7").mkdir()
    url = f"s3://{s3.bucket}/copy"
    ran = run("migrate", old, "--copy-to", url)
    assert ran.code == 0
    assert "note: orders-7 is empty; object stores" in ran.err
    assert f"so {url} does not contain it" in ran.err
    assert ran.err.count(" is empty") == 1


def test_file_names_that_no_object_can_have_are_refused(s3: S3, run: Run, old: Path) -> None:
    for name in (b"a?versionId=1", b"\xff"):
        path = old / os.fsdecode(name)
        path.touch()
        message = "can't be an object's name: rename it"
        assert_one_sentence(run("migrate", old, "--copy-to", f"s3://{s3.bucket}/copy"), message)
        path.unlink()
    (old / COPYING).touch()
    message = f"{old} is an unfinished copy: it contains {COPYING}"
    assert_one_sentence(run("migrate", old, "--copy-to", f"s3://{s3.bucket}/copy"), message)
    assert contents(s3.root / s3.bucket) == {}


def test_file_urls_are_local_paths(run: Run, old: Path, tmp_path: Path) -> None:
    assert run("migrate", old, "--copy-to", f"file://{tmp_path}/copy").code == 0
    assert contents(tmp_path / "copy") == migrated(run, old, tmp_path / "here")


def test_incomplete_files_in_hadoop_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hadoop(ArrowFSWrapper):
        """Stands for Arrow's class, which needs a name node."""

        protocol = "hdfs"

    new = NewStore("memory://copy")
    (tmp_path / "copy").mkdir()
    new._library = Hadoop(pyarrow.fs.LocalFileSystem())
    new._root = str(tmp_path / "copy")
    monkeypatch.setattr("kafkastore.remote.new_store.PIECE_BYTES", 10)

    def breaking() -> Iterator[bytes]:
        yield b"some"
        raise ValueError("no more")

    with pytest.raises(ValueError, match="more"):
        new.put("large", breaking(), 100)
    assert contents(tmp_path / "copy") == {}
    new.put("large", [b"some", b" bytes more"], 15)
    assert new.put_new("small", b"here")
    assert not new.put_new("small", b"there")
    new.put("large", [b"other bytes"], 11)
    new.remove_parts()
    assert contents(tmp_path / "copy") == {"large": b"other bytes", "small": b"here"}
    assert sorted(each.name for each in (tmp_path / "copy").iterdir()) == ["large", "small"]


def test_a_directory_that_changes_meanwhile_leaves_an_unfinished_copy(
    s3: S3, run: Run, old: Path
) -> None:
    url = f"s3://{s3.bucket}/copy"
    log = next(path for path in sorted(old.rglob("*.log")) if path.stat().st_size)

    def grow(method: str, path: str) -> None:
        if method == "PUT" and path.endswith(COPYING):
            with log.open("ab") as file:
                file.write(b"more")

    s3.proxy.fault = grow
    assert_one_sentence(run("migrate", old, "--copy-to", url), f"{log} changed while it was copied")
    s3.proxy.fault = lambda method, path: None
    assert_one_sentence(run("ls", url), "it is an unfinished copy")


def test_an_object_that_is_replaced_meanwhile_is_not_copied(s3: S3, old: Path) -> None:
    url = s3.put(old, "old")
    plan, there = planned(url), NewStore(url)
    objects = there.list_objects()
    path = next(path for path, each in objects.items() if path.endswith(".log") and each.size)

    def replace_it(method: str, requested: str) -> None:
        if requested.endswith(COPYING):
            s3.proxy.fault = lambda method, path: None
            there.put(path, [b"another"], 7)

    s3.proxy.fault = replace_it
    with pytest.raises(RemoteObjectChangedError) as caught:
        upload_store(url, f"s3://{s3.bucket}/copy", plan)
    assert caught.value.url.endswith(path)


def test_a_plan_of_another_state_is_refused(s3: S3, old: Path) -> None:
    url, plan = f"s3://{s3.bucket}/copy", planned(old)
    change = plan.changes[0]
    log = old / next(each.path for each in change.relies_on)
    os.utime(log, ns=(1, 1))
    with change_refused("changed", log):
        upload_store(old, url, plan)
    changed = replace(planned(old), changes=(replace(change, relies_on=()),))
    assert change.after is not None
    wrong = replace(change, relies_on=(), after=replace(change.after, sha256="0" * 64))
    with change_refused("changed", old / change.path):
        upload_store(old, url, replace(changed, changes=(wrong,)))
    assert f"copy/{change.path}" not in str(NewStore(url).list_objects())


def test_another_writer_to_the_same_url_is_detected(s3: S3, run: Run, old: Path) -> None:
    url = f"s3://{s3.bucket}/copy"

    def disturb(method: str, path: str) -> None:
        if path.endswith(COPYING):
            s3.proxy.fault = lambda method, path: None
            NewStore(url).put("orders-0/other", [b"!"], 1)

    s3.proxy.fault = disturb
    assert_one_sentence(run("migrate", old, "--copy-to", url), f"another process writes to {url}")


def test_large_files_are_sent_in_parts_and_appear_complete_or_not_at_all(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "BATCH_BYTES", 3 * PIECE_BYTES)
    source = tmp_path / "logs"
    (source / "t-0").mkdir(parents=True)
    for number, size in enumerate([0, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 5]):
        (source / "t-0" / f"{number}").write_bytes(os.urandom(size))
    url, plan = f"s3://{s3.bucket}/copy", kafkastore.Plan(str(source), "a copy", ())
    parts = [0]

    def fault(method: str, path: str) -> int | None:
        parts[0] += "partNumber=" in path
        return 403 if parts[0] == 4 and "partNumber=" in path else None

    s3.proxy.fault = fault
    with pytest.raises(RemoteStoreError) as caught:
        upload_store(source, url, plan)
    assert caught.value.done == "written"
    s3.proxy.fault = lambda method, path: None
    there = contents(s3.file("copy"))
    assert there.pop(COPYING)
    assert there.items() <= contents(source).items()
    assert upload_store(source, url, plan)[:3] == (url, 4, 5 * PIECE_BYTES + 6)
    assert contents(s3.file("copy")) == contents(source)
    library = NewStore(url)._library
    assert library.list_multipart_uploads(s3.bucket) == []


@pytest.fixture
def memory() -> Iterator[Any]:
    """Return fsspec's store in memory."""
    library = fsspec.filesystem("memory")
    yield library
    library.rm("/", recursive=True)


def test_copies_can_be_made_in_other_stores_than_s3(
    memory: Any, run: Run, old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkastore.remote.new_store.PIECE_BYTES", 100)
    monkeypatch.setattr(uploads, "BATCH_BYTES", 1000)
    memory.put(f"{old}/", "/old/", recursive=True)
    for number, source in enumerate([old, "memory://old"]):
        expected, place = migrated(run, source, tmp_path / str(number)), f"memory://copy-{number}"
        assert run("migrate", source, "--copy-to", place).code == 0
        root = place.removeprefix("memory:/")
        there = {name.removeprefix(f"{root}/"): memory.cat(name) for name in memory.find(root)}
        assert there == expected
