"""The directory that keeps what groups commit, across restarts, crashes and losses of power."""

from __future__ import annotations

import asyncio
import errno
import random
from contextlib import contextmanager, suppress

import pytest
from changes.faults import CountingFileSystem, Crash, CrashingFileSystem, FailingFileSystem
from changes.power_loss import RecordedDisk
from models.protocol_client import ProtocolClient
from models.seed import SEED, some

import kafkastore
from kafkastore.errors import CorruptionError, DirectoryInUseError
from kafkastore.formats.requests.apis import ApiKey
from kafkastore.formats.topics.consumer_offsets import OffsetAndMetadata, OffsetCommitKey
from kafkastore.server import serve
from kafkastore.server.groups import state_directory
from kafkastore.server.groups.committed import CommittedOffsets, NotKeptError
from kafkastore.server.groups.state_directory import StateDirectory, StateDirectoryError
from kafkastore.use_cases.committed_offsets import committed_offsets

CLUSTER = "cluster-1"


@pytest.fixture
def store(grouped_logs):
    return kafkastore.open(grouped_logs)


@contextmanager
def opened(path, store, **options):
    """A state, which is closed even if its file system has crashed."""
    state = StateDirectory(path, store, CLUSTER, **options)
    try:
        yield state
    finally:
        state.close()


def change(number, *, deleted=False, group="g"):
    commit = None if deleted else OffsetAndMetadata(number, "m" * (number % 7), 1000 + number)
    return OffsetCommitKey(group, "t", number % 3), commit


# Restarts


def test_commits_and_deletions_survive_a_restart_of_the_server(grouped_logs, tmp_path):
    def commit(client, group, offset):
        row = {
            "partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1,
            "committed_metadata": "m",
        }
        client.ask(
            ApiKey.OFFSET_COMMIT, 8, group_id=group, generation_id_or_member_epoch=-1,
            topics=({"name": "t", "partitions": (row,)},),
        )

    def fetched(client, group):
        answer = client.ask(ApiKey.OFFSET_FETCH, 8, groups=({"group_id": group, "topics": None},))
        return {
            (topic["name"], row["partition_index"]): row["committed_offset"]
            for topic in answer["groups"][0]["topics"] for row in topic["partitions"]
        }

    state = tmp_path / "state"
    with serve(grouped_logs, state_dir=state) as served, (
        ProtocolClient(served.bootstrap_servers)
    ) as client:
        commit(client, "new", 3)
        commit(client, "stored", 7)
        commit(client, "gone", 1)
        assert client.ask(ApiKey.DELETE_GROUPS, 2, groups_names=("gone",))
        topics = ({"name": "t", "partitions": ({"partition_index": 1},)},)
        client.ask(ApiKey.OFFSET_DELETE, 0, group_id="stored", topics=topics)
        before = {group: fetched(client, group) for group in ("new", "stored", "gone")}
    assert before == {"new": {("t", 0): 3}, "stored": {("t", 0): 7, ("gone", 0): 2}, "gone": {}}
    with serve(grouped_logs, state_dir=state) as served, (
        ProtocolClient(served.bootstrap_servers)
    ) as client:
        assert {group: fetched(client, group) for group in before} == before
        commit(client, "new", 4)
    found = committed_offsets(kafkastore.open(state))
    assert found[OffsetCommitKey("new", "t", 0)].offset == 4


def test_what_holds_is_written_again_and_the_rest_deleted(store, tmp_path, monkeypatch):
    monkeypatch.setattr(state_directory, "_REWRITE_BYTES", 2000)
    expected = {}
    for _ in range(3):
        with opened(tmp_path / "state", store) as state:
            assert state.changes == expected
            for number in range(200):
                state.append([change(number)])
                expected |= [change(number)]
    with opened(tmp_path / "state", store) as state:
        assert state.changes == expected
    assert sum(each.stat().st_size for each in tmp_path.rglob("*.log")) < 10_000


def test_deletions_that_hide_nothing_are_forgotten(store, tmp_path, monkeypatch):
    monkeypatch.setattr(state_directory, "_REWRITE_BYTES", 2000)
    with opened(tmp_path / "state", store) as state:
        stored = OffsetCommitKey("stored", "t", 0)
        state.hidden = {stored}
        state.append([(stored, None)])
        for number in range(100):
            state.append([change(number, group=f"g{number}")])
            state.append([change(number, group=f"g{number}", deleted=True)])
        assert len(state.changes) < 50
        assert stored in state.changes
    with opened(tmp_path / "state", store) as state:
        assert not any(state.changes.values())
        assert stored in state.changes


# What is refused


def test_a_state_in_or_around_the_served_directories_is_refused(grouped_logs, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(grouped_logs, target_is_directory=True)
    (tmp_path / "within").symlink_to(grouped_logs / "t-0", target_is_directory=True)
    before = sorted(grouped_logs.rglob("*"))
    for path, served in (
        (grouped_logs, grouped_logs), (grouped_logs / "state", grouped_logs),
        (link / "state", grouped_logs), (tmp_path / "within", grouped_logs),
        (tmp_path, grouped_logs), (grouped_logs / "state", link),
        (grouped_logs / "state", grouped_logs / "t-0"), (grouped_logs, [grouped_logs / "t-1"]),
    ):
        with pytest.raises(StateDirectoryError), serve(served, state_dir=path):
            pass
    assert sorted(grouped_logs.rglob("*")) == before


def test_the_state_of_a_newer_server_is_refused_and_stays(grouped_logs, tmp_path):
    path = tmp_path / "state"
    with serve(grouped_logs, state_dir=path):
        pass
    (path / state_directory.STATE_FILE).write_bytes(b"version=2\n")
    before = {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}
    with pytest.raises(StateDirectoryError), serve(grouped_logs, state_dir=path):
        pass
    assert {each: each.read_bytes() for each in path.rglob("*") if each.is_file()} == before


def test_other_directories_and_the_states_of_other_clusters_are_refused(store, tmp_path):
    foreign = tmp_path / "foreign"
    with kafkastore.LogDirWriter(foreign):
        pass
    before = sorted(foreign.iterdir())
    with pytest.raises(StateDirectoryError):
        StateDirectory(foreign, store, CLUSTER)
    assert sorted(foreign.iterdir()) == before
    with opened(tmp_path / "state", store) as state:
        state.append([change(1)])
    with pytest.raises(StateDirectoryError):
        StateDirectory(tmp_path / "state", store, "another")
    with pytest.raises(FileNotFoundError):
        StateDirectory(tmp_path / "missing" / "state", store, CLUSTER)


def test_a_state_is_of_one_server_at_a_time(store, tmp_path):
    with opened(tmp_path / "state", store) as state:
        with pytest.raises(DirectoryInUseError):
            StateDirectory(tmp_path / "state", store, CLUSTER)
        state.append([change(1)])
    with opened(tmp_path / "state", store) as state:
        assert state.changes == dict([change(1)])


# Crashes


class Work:
    """Writes a state, and knows what it was told is durable."""

    def __init__(self, store):
        self.store, self.steps, self.done = store, [{}], 0

    def __call__(self, path, fs):
        for count in (4, 3):    # the second opens what the first left
            with opened(path, self.store, fs=fs) as state:
                for _ in range(count):
                    number = len(self.steps)
                    changes = [change(number), change(number + 1, deleted=number % 3 == 0)]
                    self.steps.append(self.steps[-1] | dict(changes))
                    state.append(changes)
                    self.done = number

    def check(self, path):
        """What was durable is there, and nothing that was not said."""
        with opened(path, self.store) as state:
            assert state.changes in self.steps[self.done :]
            state.append([change(99)])
        with opened(path, self.store) as state:
            assert state.changes[change(99)[0]] == change(99)[1]


@pytest.fixture
def small_rewrites(monkeypatch):
    monkeypatch.setattr(state_directory, "_REWRITE_BYTES", 50)
    monkeypatch.setattr(state_directory, "_REWRITE_FACTOR", 1)


@pytest.mark.usefixtures("small_rewrites")
def test_a_crash_at_any_call_loses_nothing_that_was_kept(store, tmp_path):
    fs = CountingFileSystem()
    Work(store)(tmp_path / "all", fs)
    assert any("rename" in each or "unlink" in each for each in fs.calls)
    for at in some(range(len(fs.calls)), 5, __name__):
        for torn in (False, True):
            work, path = Work(store), tmp_path / f"{at}-{torn}"
            with suppress(Crash):
                work(path, CrashingFileSystem(at, torn=torn))
            work.check(path)


@pytest.mark.usefixtures("small_rewrites")
def test_a_loss_of_power_loses_nothing_that_was_kept(store, tmp_path):
    top = tmp_path / "top"
    top.mkdir()
    disk, kept = RecordedDisk(top), [(0, 0)]

    class Noted(Work):
        """Notes from which moment on something is durable."""

        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if name == "done":
                kept.append((len(disk.moments), value))

    work = Noted(store)
    work(top / "state", disk)
    rng = random.Random(SEED)
    for number in some(range(len(disk.moments)), 15, __name__):
        disk.moments[number].outcome(rng).write(tmp_path / "after")
        # The moment before the next call has all that was kept until then.
        after = Work(store)
        after.steps = work.steps
        after.done = max(value for moment, value in kept if moment <= number)
        if after.done or (tmp_path / "after" / "state").exists():
            after.check(tmp_path / "after" / "state")


def test_a_torn_end_is_cut_off_saved_and_said(store, tmp_path, caplog):
    with opened(tmp_path / "state", store) as state:
        state.append([change(1)])
        state.append([change(2)])
    (log,) = (tmp_path / "state").rglob("*.log")
    (tmp_path / "state" / ".kafka_cleanshutdown").unlink()
    data = log.read_bytes()
    log.write_bytes(data[:-3])
    with opened(tmp_path / "state", store) as state:
        assert state.changes == dict([change(1)])
    (said,) = caplog.records
    assert said.args[0] == log
    assert any(data[-20:-3] in each.read_bytes() for each in tmp_path.rglob("*.log*"))


def test_a_corrupt_record_that_was_kept_is_an_error(store, tmp_path):
    with opened(tmp_path / "state", store) as state:
        state.append([change(1)])
        state.append([change(2)])
    (log,) = (tmp_path / "state").rglob("*.log")
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    with pytest.raises(CorruptionError):
        StateDirectory(tmp_path / "state", store, CLUSTER)


# Writing


def test_commits_that_come_together_are_written_together(store, grouped_catalog, tmp_path):
    class Counted(StateDirectory):
        appends = 0

        def append(self, changes):
            self.appends += 1
            super().append(changes)

    async def test(state):
        offsets = CommittedOffsets(grouped_catalog, state)
        await offsets.load()
        await asyncio.gather(*[offsets.change(dict([change(each)])) for each in range(100)])
        assert offsets.of("g").keys() == {("t", number) for number in range(3)}
        assert offsets.of("g")["t", 0].offset == 99
        waiting = asyncio.create_task(offsets.change(dict([change(300)])))
        await asyncio.sleep(0)
        waiting.cancel()    # its client has gone
        await offsets.close()
        assert offsets.of("g")["t", 0].offset == 300

    state = Counted(tmp_path / "state", store, CLUSTER)
    asyncio.run(test(state))
    assert state.appends <= 3
    state.close()
    with opened(tmp_path / "state", store) as state:
        assert state.changes[change(300)[0]].offset == 300


def test_commits_that_can_not_be_written_are_refused(
    store, grouped_catalog, tmp_path, caplog
):
    async def test(state):
        offsets = CommittedOffsets(grouped_catalog, state)
        await offsets.load()
        await offsets.change(dict([change(1)]))
        fs._at = len(fs.calls)
        with pytest.raises(NotKeptError):
            await offsets.change(dict([change(4)]))
        with pytest.raises(NotKeptError):
            await offsets.change(dict([change(7)]))
        assert offsets.of("g")["t", 1].offset == 1
        await offsets.close()

    fs = FailingFileSystem(-1, errno.ENOSPC)
    with opened(tmp_path / "state", store, fs=fs) as state:
        asyncio.run(test(state))
    assert len(caplog.records) == 1
    with opened(tmp_path / "state", store) as state:
        assert state.changes[change(1)[0]].offset == 1
