"""Opening log directories: their possible forms, and paths that are not log directories."""

import pickle
import shutil
import tempfile
from pathlib import Path

import pytest
from models.iteration import until_error
from models.log_directory import Log, Segment
from models.open_files import open_files
from models.record_format import Batch, Row
from models.unprivileged import as_nobody, give_to_nobody

import kafkastore
from kafkastore import (
    CorruptCheckpointError,
    NotALogDirectoryError,
    TopicPartition,
)
from kafkastore.errors import DuplicatePartitionError
from kafkastore.formats.state.file_names import InvalidNameError
from kafkastore.log.log_dir import SkippedKind

BATCHES = tuple(Batch((Row(number, 10 * number, b"k", b"v"),)) for number in range(20))
LOG = Log((Segment(0, BATCHES[:10]).indexed(), Segment(10, BATCHES[10:]).indexed()))


@pytest.fixture
def logs(tmp_path):
    """A log directory with the partition t-0."""
    return LOG.write(tmp_path / "logs")


def add_partition(root, name):
    shutil.copytree(root / "t-0", root / name)
    return root / name


def offsets(store, key="t-0"):
    return [record.offset for record in store[key].records()]


def test_a_log_directory_is_a_mapping_of_partitions_in_their_order(logs):
    for name in ("t-10", "t-9", "a.b_c-d-0", "t-1-0"):
        add_partition(logs, name)
    store = kafkastore.open(logs)
    names = [("a.b_c-d", 0), ("t", 0), ("t", 9), ("t", 10), ("t-1", 0)]
    assert list(store.partitions) == names
    assert [log.topic_partition for log in store] == names
    assert len(store.partitions) == 5
    assert ("t", 9) in store.partitions
    assert TopicPartition("t", 11) not in store.partitions


@pytest.mark.parametrize("key", ["t-0", ("t", 0), TopicPartition("t", 0)])
def test_a_partition_is_found_by_each_kind_of_key(logs, key):
    store = kafkastore.open(logs)
    assert store[key] is store["t", 0]
    assert offsets(store, key) == list(range(20))


@pytest.mark.parametrize(
    ("key", "is_here"),
    [(("t", 0), True), ("t-0", True), (TopicPartition("t", 0), True), (("t", 1), False),
     ("t-1", False), ("nothing", False), (("t", "0"), False), (7, False), (None, False)],
)  # fmt: skip
def test_a_store_reports_which_partitions_are_in_it(logs, key, is_here):
    store = kafkastore.open(logs)
    assert (key in store) == is_here
    assert all(log in store for log in store)
    assert next(iter(store)) not in kafkastore.open(logs)


@pytest.mark.parametrize("key", ["t-1", ("x", 0)])
def test_a_partition_that_is_not_here_is_a_key_error_that_names_it(logs, key):
    name = key if isinstance(key, str) else "x-0"
    with pytest.raises(KeyError) as caught:
        kafkastore.open(logs)[key]
    assert name in caught.value.args[0].split()


@pytest.mark.parametrize("key", ["t", "", "t-x", "-1"])
def test_a_key_that_names_no_partition_is_an_error(logs, key):
    with pytest.raises(InvalidNameError):
        kafkastore.open(logs)[key]


def test_several_log_directories_are_one_store(logs, tmp_path):
    other = LOG.write(tmp_path / "other")
    (other / "t-0").rename(other / "t-1")
    store = kafkastore.open([logs, str(other)])
    assert list(store.partitions) == [("t", 0), ("t", 1)]
    assert [log_dir.path for log_dir in store.log_dirs] == [logs, other]
    assert store["t-1"].log_dir is store.log_dirs[1]


def test_a_partition_in_two_directories_is_an_error_when_requested(logs, tmp_path):
    other = LOG.write(tmp_path / "other")
    add_partition(other, "t-1")
    store = kafkastore.open((logs, other))
    assert offsets(store, "t-1") == list(range(20))
    with pytest.raises(DuplicatePartitionError) as caught:
        store["t-0"]
    assert caught.value.places == {("t", 0): [logs / "t-0", other / "t-0"]}


def test_partitions_of_one_directory_are_iterated_before_others_are_reported(logs, tmp_path):
    other = LOG.write(tmp_path / "other")
    add_partition(other, "a-0")
    add_partition(other, "z-0")
    store = kafkastore.open((logs, other))
    found, error = until_error(iter(store))
    assert [str(log.topic_partition) for log in found] == ["a-0", "z-0"]
    assert isinstance(error, DuplicatePartitionError)
    assert error.places == {("t", 0): (logs / "t-0", other / "t-0")}
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert [log.path for log in store.partitions.copies("t-0")] == [logs / "t-0", other / "t-0"]
    assert [log.path for log in store.partitions.copies(("a", 0))] == [other / "a-0"]
    with pytest.raises(KeyError):
        store.partitions.copies("b-0")


def test_a_directory_that_is_given_twice_counts_once(logs, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(logs)
    for paths in ((logs, logs), (logs, link), (logs, logs / "t-0"), (logs / "t-0", link)):
        store = kafkastore.open(paths)
        assert dict(store.partitions.duplicates) == {}
        assert [log.log_dir for log in store] == list(store.log_dirs)


def test_a_partition_directory_alone_can_be_opened(logs, monkeypatch):
    store = kafkastore.open(logs / "t-0")
    assert store.log_dirs == ()
    assert offsets(store) == list(range(20))
    assert (store["t-0"].recovery_point, store["t-0"].checkpointed_high_watermark) == (None, None)
    assert not store["t-0"].is_clean
    monkeypatch.chdir(logs / "t-0")
    assert offsets(kafkastore.open(".")) == list(range(20))


@pytest.mark.parametrize("kind", [str, Path, lambda path: f"{path}/", lambda path: [path]])
def test_a_path_may_be_of_any_path_type(logs, kind):
    assert offsets(kafkastore.open(kind(logs))) == list(range(20))


def test_marks_of_a_broker_are_read(logs):
    (logs / ".kafka_cleanshutdown").touch()
    for name, offset in (
        ("recovery-point-offset-checkpoint", 7), ("log-start-offset-checkpoint", 3),
        ("replication-offset-checkpoint", 19),
    ):
        (logs / name).write_text(f"0\n1\nt 0 {offset}\n")
    log = kafkastore.open(logs)["t-0"]
    assert log.is_clean
    assert (log.recovery_point, log.log_start_offset) == (7, 3)
    assert (log.checkpointed_high_watermark, log.high_watermark) == (19, 20)
    assert log.log_dir.meta_properties == {"version": "0", "broker.id": "0"}


def test_a_broken_leader_epoch_checkpoint_is_reported_with_its_path(logs):
    path = logs / "t-0" / "leader-epoch-checkpoint"
    path.write_bytes(b"0\n1\nnonsense\n")
    log = kafkastore.open(logs)["t-0"]
    with pytest.raises(CorruptCheckpointError) as caught:
        log.leader_epochs  # noqa: B018
    assert caught.value.path == path
    assert len(list(log.records())) == 20


UUID = "0123456789abcdef0123456789abcdef"
# Directories next to the partitions, and why they are not read; None if they are.
OTHER_DIRECTORIES = {
    "t-1": None,
    "__cluster_metadata-0": None,
    f"t-2.{UUID}-delete": SkippedKind.DELETED,
    f"t-3.{UUID}-future": SkippedKind.FUTURE,
    f"t-4.{UUID}-stray": SkippedKind.STRAY,
    "remote-log-index-cache": SkippedKind.NO_PARTITION,
    "lost+found": SkippedKind.NO_PARTITION,
    "snapshot": SkippedKind.NO_PARTITION,
    "t-2147483648": SkippedKind.NO_PARTITION,
    ".hidden": SkippedKind.NO_PARTITION,
}


@pytest.mark.parametrize(("name", "kind"), OTHER_DIRECTORIES.items())
def test_directories_that_are_not_partitions_are_skipped_and_reported(logs, name, kind):
    path = add_partition(logs, name)
    store = kafkastore.open(logs)
    assert (path in [log.path for log in store]) == (kind is None)
    skipped = {skipped.path: skipped for skipped in store.log_dirs[0].skipped}
    assert (path in skipped) == (kind is not None)
    if kind is not None:
        assert skipped[path].kind is kind
        assert skipped[path].reason


def test_links_are_followed_and_dangling_ones_are_reported_when_they_are_read(logs, tmp_path):
    shutil.move(logs / "t-0", tmp_path / "elsewhere")
    (logs / "t-0").symlink_to(tmp_path / "elsewhere")
    (logs / "t-1").symlink_to(tmp_path / "nowhere")
    (logs / "t-2").symlink_to("t-2")
    (logs / "notes").symlink_to(tmp_path / "nowhere")
    store = kafkastore.open(logs)
    assert list(store.partitions) == [("t", 0), ("t", 1), ("t", 2)]
    assert [record.offset for record in store["t-0"].records()] == list(range(20))
    for name in ("t-1", "t-2"):
        with pytest.raises(NotALogDirectoryError):
            list(store[name].records())


def file(path):
    path.write_text("text")
    return path


def directory_of_text(path):
    (path / "directory").mkdir()
    file(path / "directory" / "notes.txt")
    return path / "directory"


def badly_named_partition(path):
    root = LOG.write(path / "logs")
    (root / "t-0").rename(root / "copy of t")
    return root / "copy of t"


def parent_of_log_directories(path):
    LOG.write(path / "parent" / "disk1")
    return path / "parent"


# Paths that are not log directories, and the error's text.
NO_LOG_DIRECTORIES = {
    "nothing": lambda path: path / "nothing",
    "a file": lambda path: file(path / "a-0"),
    "below a file": lambda path: file(path / "a-0") / "x",
    "an empty directory": lambda path: path,
    "a directory of something else": directory_of_text,
    "a partition with another name": badly_named_partition,
    "the parent of a log directory": parent_of_log_directories,
}


@pytest.mark.parametrize("make", NO_LOG_DIRECTORIES.values(), ids=NO_LOG_DIRECTORIES)
def test_a_path_that_is_not_a_log_directory_is_one_clear_error(tmp_path, make):
    path = make(tmp_path)
    with pytest.raises(NotALogDirectoryError) as caught:
        kafkastore.open(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


# Damage to the files next to the log: none changes what is read.
DAMAGES = {
    "an index with odd bytes": ("00000000000000000000.index", lambda data: data + b"odd"),
    "a time index with odd bytes": ("00000000000000000000.timeindex", lambda data: data[:-5]),
    "an index of three bytes": ("00000000000000000010.index", lambda _: b"abc"),
    "a time index of one byte": ("00000000000000000010.timeindex", lambda _: b"\xff"),
    "an index of nonsense": ("00000000000000000000.index", lambda data: b"~" * len(data)),
    "a time index of nonsense": ("00000000000000000000.timeindex", lambda data: b"~" * len(data)),
    "an index of zeros": ("00000000000000000000.index", lambda data: bytes(len(data))),
    "blanks": ("00000000000000000000.timeindex", lambda data: b"  "),
}


@pytest.mark.parametrize(("name", "damage"), DAMAGES.values(), ids=DAMAGES)
def test_corrupt_index_files_change_nothing_that_is_read(logs, name, damage):
    path = logs / "t-0" / name
    path.write_bytes(damage(path.read_bytes()))
    log = kafkastore.open(logs)["t-0"]
    assert [record.offset for record in log.records()] == list(range(20))
    assert [record.offset for record in log.records(15)] == [15, 16, 17, 18, 19]
    for target in range(0, 200, 7):
        found = log.offset_for_timestamp(target)
        assert (found and found.offset) == (-(-target // 10) if target <= 190 else None)


@pytest.fixture
def logs_of_nobody():
    """A log directory owned by, and reachable for, the user of `as_nobody`."""
    root = Path(tempfile.mkdtemp())
    LOG.write(root / "logs")
    give_to_nobody(root)
    yield root / "logs"
    for path in (root, *root.rglob("*")):
        path.chmod(0o700)
    shutil.rmtree(root)


def everything(root):
    store = kafkastore.open(root)
    log = store["t-0"]
    return (
        offsets(store),
        log.to_arrow(["offset"]).read_all()["offset"].to_pylist(),
        tuple(log.offset_for_timestamp(55)),
        tuple(log.offset_for_timestamp(55, rules="2.4")),
        log.segments[0].rebuilt_indexes().next_offset,
    )


def test_a_directory_without_write_permission_is_read_and_not_changed(logs_of_nobody):
    for path in (*logs_of_nobody.rglob("*"), logs_of_nobody):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = sorted((path, path.stat().st_mtime_ns) for path in logs_of_nobody.rglob("*"))
    wanted = list(range(20)), list(range(20)), (60, 6, 0), (60, 6, 0), 10
    assert as_nobody(lambda: everything(logs_of_nobody)) == wanted
    after = sorted((path, path.stat().st_mtime_ns) for path in logs_of_nobody.rglob("*"))
    assert after == before


# Paths without read permission, and the error's text.
FORBIDDEN = {
    "the log directory": ("", NotALogDirectoryError, "no permission"),
    "the partition": ("t-0", NotALogDirectoryError, "t-0"),
    "a log": ("t-0/00000000000000000010.log", OSError, "00000000000000000010.log"),
    "an index": ("t-0/00000000000000000000.timeindex", OSError, "00000000000000000000.timeindex"),
}


@pytest.mark.parametrize(("name", "kind", "message"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_an_unreadable_file_is_an_error_that_names_it(logs_of_nobody, name, kind, message):
    (logs_of_nobody / name).chmod(0)
    error = as_nobody(lambda: everything(logs_of_nobody))
    assert isinstance(error, kind)
    assert message in str(error)


def test_a_log_directory_that_can_t_be_reached_is_not_a_log_directory(logs_of_nobody):
    logs_of_nobody.parent.chmod(0)
    error = as_nobody(lambda: everything(logs_of_nobody))
    assert isinstance(error, NotALogDirectoryError)
    assert str(logs_of_nobody) in str(error)


def test_no_file_stays_open(logs):
    everything(logs)
    store = kafkastore.open(logs)
    next(store["t-0"].records())
    next(iter(store["t-0"].to_arrow()))
    del store
    assert open_files(logs) == []
