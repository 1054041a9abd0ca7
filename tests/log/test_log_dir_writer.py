"""A log directory is locked, opened, recovered and shut down cleanly."""

import os
import struct
import subprocess
import sys

import pytest
from models.refused import refused
from models.written_log import UnsyncedFileSystem, abandon

import kafkastore
from kafkastore.checks.findings import Severity
from kafkastore.errors import (
    ChangeRefusedError,
    CorruptCheckpointError,
    InvalidConfigError,
    LogWouldBeCutError,
    OutOfOrderAppendError,
    OutOfOrderSequenceError,
    WriterFailedError,
)
from kafkastore.formats.state.checkpoints import (
    parse_meta_properties,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from kafkastore.formats.state.file_names import InvalidNameError, TopicPartition
from kafkastore.versions import UnknownVersionError
from kafkastore.writing import CUT_MARK
from kafkastore.writing.log_dir_writer import LogDirWriter

from .written_logs import FIRST_TIMESTAMP, Clock, TransactionalProducer, batch_of, new_records

MARKER = ".kafka_cleanshutdown"
METADATA = "partition.metadata"
SMALL = {"segment.bytes": 1000, "index.interval.bytes": 100}


@pytest.fixture
def root(tmp_path):
    return tmp_path / "logs"


def open_dir(root, version="4.1", **options):
    return LogDirWriter(root, version, clock=Clock(), fs=UnsyncedFileSystem(), **options)


def write_some(root, topic="t", count=50):
    with open_dir(root) as log_dir:
        log_dir.writer(topic, 0, SMALL).append_records(new_records(count), batch_bytes=200)


def checkpoint(root, name):
    return parse_offset_checkpoint((root / name).read_bytes())


def kept(root):
    """The bytes that recoveries cut off, by name."""
    areas = root.parent.glob(f"{root.name}{CUT_MARK}*")
    return {path.name: path.read_bytes() for area in areas for path in area.rglob("*.*")}


def offsets(root):
    (log,) = kafkastore.open(root)
    return [record.offset for record in log.records()]


def test_a_directory_that_was_closed_has_what_a_broker_leaves(root):
    with open_dir(root) as log_dir:
        first, second = log_dir.writer("a", 0, SMALL), log_dir.writer("b-c.d", 12)
        first.append_records(new_records(30), batch_bytes=200)
        second.append_records(new_records(5))
        second.delete_records(2)
        assert set(log_dir.writers) == {TopicPartition("a", 0), TopicPartition("b-c.d", 12)}
        assert not (root / MARKER).exists()
    assert (root / MARKER).read_bytes() == b""
    assert checkpoint(root, "recovery-point-offset-checkpoint") == {("a", 0): 30, ("b-c.d", 12): 5}
    assert checkpoint(root, "replication-offset-checkpoint") == {("a", 0): 30, ("b-c.d", 12): 5}
    assert checkpoint(root, "log-start-offset-checkpoint") == {("b-c.d", 12): 2}
    assert (root / "a-0" / f"{30:020d}.snapshot").exists()
    store = kafkastore.open(root)
    assert store["b-c.d-12"].log_start_offset == 2
    assert store["a-0"].is_clean


@pytest.mark.parametrize(
    ("version", "named"),
    [
        ("2.4", {"version", "broker.id", "cluster.id"}),
        ("4.1", {"version", "node.id", "directory.id", "cluster.id"}),
    ],
)
def test_a_new_directory_gets_its_ids_and_existing_ids_are_kept(root, version, named):
    for _ in range(2):
        LogDirWriter(root, version, node_id=3, cluster_id="c" * 22).close()
    found = parse_meta_properties((root / "meta.properties").read_bytes())
    assert found.keys() == named
    assert found["cluster.id"] == "c" * 22
    assert "3" in (found.get("node.id"), found.get("broker.id"))
    text = (root / "meta.properties").read_bytes()
    LogDirWriter(root, version, node_id=4).close()
    assert (root / "meta.properties").read_bytes() == text


def test_only_one_writer_at_a_time_in_this_process_or_another(root):
    with open_dir(root):
        with pytest.raises(ChangeRefusedError):
            open_dir(root)
        script = (
            "import sys; from kafkastore.writing.log_dir_writer import LogDirWriter;"
            " LogDirWriter(sys.argv[1])"
        )
        other = subprocess.run(
            [sys.executable, "-c", script, str(root)], check=False, capture_output=True, text=True
        )
        assert "DirectoryInUseError" in other.stderr
    open_dir(root).close()


def test_a_partition_has_one_writer_and_a_name_that_kafka_allows(root):
    with open_dir(root) as log_dir:
        log_dir.writer("t", 0)
        with pytest.raises(ChangeRefusedError):
            log_dir.writer("t", 0)
        for topic, partition in (("a/b", 0), ("", 0), (".", 0), ("..", 0), ("t", -1), ("ä", 0)):
            with pytest.raises(InvalidNameError):
                log_dir.writer(topic, partition)
        with pytest.raises(InvalidConfigError):
            log_dir.writer("u", 0, {"segment.bytes": "x"})
    assert sorted(path.name for path in root.iterdir() if path.is_dir()) == ["t-0"]
    with pytest.raises(WriterFailedError, match="closed"):
        log_dir.writer("v", 0)


@pytest.mark.parametrize("partition", ["0", None, 1.0, 0.5, True, 2**31, 2**63])
def test_an_invalid_partition_number_creates_no_directory(root, partition):
    with open_dir(root) as log_dir, pytest.raises(InvalidNameError):
        log_dir.writer("t", partition)
    assert not [path for path in root.iterdir() if path.is_dir()]


@pytest.mark.parametrize("topic", [None, 5, b"t", "t\n", "t" * 250])
def test_an_invalid_topic_name_is_reported_in_one_line(root, topic):
    with open_dir(root) as log_dir, pytest.raises(InvalidNameError) as raised:
        log_dir.writer(topic, 0)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "wrong",
    [{"node_id": each} for each in ("x", -1, 2**31, 1.5, None, True)]
    + [{"cluster_id": each} for each in ("", "a\nlog.dirs=b", "a b", "ä", 5)],
)
def test_invalid_broker_ids_are_not_written(root, wrong):
    with refused(*wrong):
        open_dir(root, **wrong)
    assert not (root / "meta.properties").exists()
    open_dir(root).close()  # the lock was released


def test_a_closed_directory_gets_no_checkpoints(root):
    closed = open_dir(root)
    closed.writer("t", 0)
    closed.close()
    with open_dir(root) as log_dir:
        log_dir.writer("t", 0).append_records(new_records(3))
        log_dir.checkpoint()
        before = (root / "replication-offset-checkpoint").read_bytes()
        with pytest.raises(WriterFailedError, match="closed"):
            closed.checkpoint()
        assert (root / "replication-offset-checkpoint").read_bytes() == before


@pytest.mark.parametrize("version", [4.1, None, 2])
def test_a_version_is_a_text(root, version):
    with pytest.raises(UnknownVersionError):
        LogDirWriter(root, version)


def test_a_version_before_2_0_is_refused(root):
    with refused("version"):
        LogDirWriter(root, "1.1")


def test_a_clean_directory_continues_where_it_ended(root):
    write_some(root)
    files = {path.name: path.read_bytes() for path in (root / "t-0").iterdir()}
    with open_dir(root) as log_dir:
        writer = log_dir.writer("t", 0, SMALL)
        assert writer.log_end_offset == writer.recovery_point == 50
    assert {path.name: path.read_bytes() for path in (root / "t-0").iterdir()} == files
    write_some(root, count=10)
    assert offsets(root) == list(range(60))
    assert not list(kafkastore.verify(root))


def test_producers_are_known_again(root):
    def send(writer, sequence):
        return writer.append(
            batch_of(0, [FIRST_TIMESTAMP], producer_id=4, producer_epoch=0, base_sequence=sequence)
        )

    with open_dir(root) as log_dir:
        writer = log_dir.writer("t", 0)
        send(writer, 0)
        producer = TransactionalProducer(writer, 9)
        producer.send(FIRST_TIMESTAMP)
    with open_dir(root) as log_dir:
        writer = log_dir.writer("t", 0)
        assert writer.last_stable_offset == 1
        assert send(writer, 0).is_duplicate
        with pytest.raises(OutOfOrderSequenceError):
            send(writer, 5)
        again = TransactionalProducer(writer, 9)
        again.end(FIRST_TIMESTAMP, is_commit=False)
        assert writer.last_stable_offset == writer.log_end_offset == 3


def damaged(root):
    """A killed writer's log of 50 records, with a wrong byte in the second segment's last batch."""
    log_dir = open_dir(root)
    writer = log_dir.writer("t", 0, SMALL)
    writer.append_records(new_records(50), batch_bytes=200)
    base = writer.base_offsets[1]
    abandon(log_dir)
    broken = root / "t-0" / f"{base:020d}.log"
    broken.write_bytes(broken.read_bytes()[:-1] + b"\xff")
    return broken


def every_file(root):
    """Bytes and modification times, without the lock file."""
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def test_a_log_that_a_recovery_would_cut_is_not_opened_by_default(root):
    broken = damaged(root)
    before = every_file(root)
    with open_dir(root) as log_dir, pytest.raises(LogWouldBeCutError) as raised:
        log_dir.writer("t", 0, SMALL)
    error = raised.value
    assert error.path == broken.parent
    assert 0 < error.cuts[broken.name] < broken.stat().st_size
    assert error.log_end_offset < 50
    assert every_file(root) == before
    assert not kept(root)
    with open_dir(root) as log_dir:
        writer = log_dir.writer("t", 0, SMALL, recover=True)
        assert writer.log_end_offset == error.log_end_offset
    assert kept(root).keys() == {
        f"{name}.from-{position}" if position else name for name, position in error.cuts.items()
    }


def test_nothing_is_touched_before_the_first_append(root):
    write_some(root, "t")
    write_some(root, "u")
    before = every_file(root)
    with open_dir(root) as log_dir:
        t, u = log_dir.writer("t", 0, SMALL), log_dir.writer("u", 0, SMALL)
        assert (t.log_start_offset, t.log_end_offset, t.recovery_point) == (0, 50, 50)
        assert t.last_stable_offset == t.high_watermark == 50
        assert len(t.base_offsets) > 1
        assert [epoch.epoch for epoch in t.leader_epochs] == [0]
        log_dir.checkpoint()
        assert every_file(root) == before
    assert every_file(root) == before
    with open_dir(root) as log_dir:
        t, u = log_dir.writer("t", 0, SMALL), log_dir.writer("u", 0, SMALL)
        t.append_records(new_records(1))
        assert not (root / MARKER).exists()
        assert u.log_end_offset == 50
    assert (root / MARKER).exists()
    after = every_file(root)
    assert all(after[path] == before[path] for path in before if path.parent.name == "u-0")


def test_bytes_that_a_recovery_cuts_are_kept_next_to_the_directory(root):
    log_dir = open_dir(root)
    writer = log_dir.writer("t", 0, SMALL)
    writer.append_records(new_records(50), batch_bytes=200)
    bases = writer.base_offsets
    abandon(log_dir)
    broken, missing = (root / "t-0" / f"{base:020d}.log" for base in bases[1:3])
    content = broken.read_bytes()
    broken.write_bytes(content[:-1] + b"\xff")
    lost = missing.read_bytes()
    with open_dir(root) as log_dir:
        writer = log_dir.writer("t", 0, SMALL, recover=True)
        end = writer.log_end_offset
        assert bases[1] < end < bases[2]
    cut = broken.stat().st_size
    found = kept(root)
    assert found[f"{broken.name}.from-{cut}"] == content[cut:-1] + b"\xff"
    assert found[missing.name] == lost
    assert offsets(root) == list(range(end))
    assert not list(kafkastore.verify(root))


@pytest.mark.parametrize("tail", [bytes(300), bytes(10), b"\xff" * 40, "torn"])
def test_nothing_is_appended_after_corrupt_bytes_despite_a_clean_shutdown_marker(
    root, tail
):
    with open_dir(root) as log_dir:
        log_dir.writer("t", 0).append_records(new_records(20), batch_bytes=200)
    (log,) = (root / "t-0").glob("*.log")
    complete = log.read_bytes()
    log.write_bytes(complete + (complete[:100] if tail == "torn" else tail))
    before = every_file(root)
    with open_dir(root) as log_dir:
        if any(log.read_bytes()[len(complete) :]):
            with pytest.raises(LogWouldBeCutError) as raised:
                log_dir.writer("t", 0)
            assert raised.value.cuts == {log.name: len(complete)}
            assert raised.value.log_end_offset == 20
        else:
            log_dir.writer("t", 0)
    assert every_file(root) == before
    with open_dir(root) as log_dir:
        writer = log_dir.writer("t", 0, recover=True)
        assert writer.append_records(new_records(3)).first_offset == 20
    assert offsets(root) == list(range(23))
    if tail == "torn":
        assert kept(root) == {f"{log.name}.from-{len(complete)}": complete[:100]}


def test_cut_bytes_are_kept_where_the_caller_says(root, tmp_path):
    log_dir = open_dir(root)
    log_dir.writer("t", 0, SMALL).append_records(new_records(3))
    abandon(log_dir)
    log = root / "t-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes() + b"torn" + bytes(2 << 20))
    kept_in = tmp_path / "elsewhere"
    kept_in.mkdir()
    with LogDirWriter(root, clock=Clock(), cut_dir=kept_in) as log_dir:
        assert log_dir.writer("t", 0, SMALL, recover=True).log_end_offset == 3
    (cut,) = kept_in.rglob("*.from-*")
    assert cut.read_bytes() == b"torn" + bytes(2 << 20)
    assert not kept(root)


def test_cut_bytes_are_kept_with_their_holes(root, tmp_path):
    log_dir = open_dir(root)
    log_dir.writer("t", 0, SMALL).append_records(new_records(3))
    abandon(log_dir)
    log = root / "t-0" / f"{0:020d}.log"
    size, end = log.stat().st_size, 1 << 40
    with log.open("r+b") as file:
        os.pwrite(file.fileno(), b"torn", size)
        os.pwrite(file.fileno(), b"island", end // 2)
        file.truncate(end)
    with LogDirWriter(root, clock=Clock(), cut_dir=tmp_path) as log_dir:
        assert log_dir.writer("t", 0, SMALL, recover=True).log_end_offset == 3
    (cut,) = tmp_path.rglob("*.from-*")
    with cut.open("rb") as file:
        assert os.fstat(file.fileno()).st_size == end - size
        assert os.pread(file.fileno(), 5, 0) == b"torn\0"
        assert os.pread(file.fileno(), 7, end // 2 - size) == b"island\0"
        assert os.fstat(file.fileno()).st_blocks * 512 < 1 << 20


def test_an_unclean_directory_stays_unclean_until_all_of_it_was_opened(root):
    write_some(root, "t")
    write_some(root, "u")
    log_dir = open_dir(root)
    log_dir.writer("t", 0, SMALL).append_records(new_records(3))
    abandon(log_dir)
    assert not (root / MARKER).exists()
    with open_dir(root) as log_dir:
        log_dir.writer("t", 0, SMALL)
    assert not (root / MARKER).exists(), "the other partition was not checked"
    with open_dir(root) as log_dir:
        log_dir.writer("t", 0, SMALL, recover=True)
        log_dir.writer("u", 0, SMALL, recover=True)
    assert (root / MARKER).exists()
    points = checkpoint(root, "recovery-point-offset-checkpoint")
    assert points == {("t", 0): 53, ("u", 0): 50}


def test_checkpoints_of_partitions_that_are_not_opened_are_kept(root):
    write_some(root, "t")
    write_some(root, "u", 20)
    with open_dir(root) as log_dir:
        log_dir.writer("t", 0, SMALL).append_records(new_records(1))
    points = checkpoint(root, "recovery-point-offset-checkpoint")
    assert points == {("t", 0): 51, ("u", 0): 20}
    assert (root / MARKER).exists()


def test_corrupt_checkpoints_report_nothing(root):
    write_some(root)
    (root / MARKER).unlink()
    for name in ("recovery-point", "log-start", "replication"):
        for path in root.glob(f"{name}*"):
            path.write_text("nonsense\n")
    write_some(root, count=5)
    assert offsets(root) == list(range(55))


def test_a_truncation_below_the_recovery_point_is_saved_before_any_append(root):
    log_dir = open_dir(root)
    writer = log_dir.writer("t", 0, SMALL)
    writer.append_records(new_records(50), batch_bytes=200)
    writer.flush()
    log_dir.checkpoint()
    writer.truncate_to(20)
    assert checkpoint(root, "recovery-point-offset-checkpoint") == {("t", 0): 20}
    writer.append_records(new_records(10), batch_bytes=200)
    active = root / "t-0" / f"{writer.base_offsets[-1]:020d}.log"
    abandon(log_dir)
    active.write_bytes(active.read_bytes()[:-1] + b"\xff")
    with open_dir(root) as log_dir:
        assert 20 <= log_dir.writer("t", 0, SMALL, recover=True).log_end_offset < 30
    assert not list(kafkastore.verify(root))


def test_offsets_are_not_given_again_where_an_index_leads_beyond_the_end(root):
    write_some(root, count=50)
    index = max((root / "t-0").glob("*.index"))
    index.write_bytes(index.read_bytes() + struct.pack(">ii", 1000, 1 << 20))
    (damage,) = (each for each in kafkastore.verify(root) if each.path == index)
    assert damage.severity is Severity.DATA_LOSS_RISK
    write_some(root, count=5)
    assert offsets(root) == list(range(55))
    assert not list(kafkastore.verify(root))


def test_leftovers_and_padded_indexes_of_a_killed_broker_are_put_in_order(golden, writable_copy):
    case = golden("3.9.1", "crash", "answers-recovered")
    logs = writable_copy(case.root / "logs")
    (logs / ".lock").touch()
    with LogDirWriter(logs, "3.9", fs=UnsyncedFileSystem()) as log_dir:
        for topic_partition, path in kafkastore.open(logs).log_dirs[0].partition_paths.items():
            topic = topic_partition.topic
            config = case.answers["topic_config"].get(topic, {})
            writer = log_dir.writer(*topic_partition, config, recover=True)
            recovered = kafkastore.open(case.logs)[topic_partition]
            assert writer.log_end_offset == recovered.log_end_offset, path
    for log in kafkastore.open(case.logs):
        if log.topic in case.answers["topic_config"]:
            for segment in log.segments:
                for each in (segment.log_path, segment.offset_index_path, segment.time_index_path):
                    ours = logs / log.path.name / each.name
                    assert ours.read_bytes() == each.read_bytes(), ours


TOPIC_ID = "2P-XnPKnTZG5NwujU8kn6Q"


def test_a_partition_has_a_topic_id_if_the_caller_gives_one(root):
    with open_dir(root, "3.9") as log_dir:
        log_dir.writer("t", 0, topic_id=TOPIC_ID)
        log_dir.writer("t", 1)
    assert parse_partition_metadata((root / "t-0" / METADATA).read_bytes()) == TOPIC_ID
    assert not (root / "t-1" / METADATA).exists()
    with open_dir(root) as log_dir:
        log_dir.writer("t", 1, topic_id=TOPIC_ID)
        log_dir.writer("t", 0, topic_id=TOPIC_ID)
    assert (root / "t-1" / METADATA).read_bytes() == (root / "t-0" / METADATA).read_bytes()


@pytest.mark.parametrize("wrong", ["", "x", "A" * 22, 5, TOPIC_ID + "\n", TOPIC_ID + "=="])
def test_an_invalid_topic_id_creates_no_partition(root, wrong):
    with open_dir(root) as log_dir, refused("topic_id"):
        log_dir.writer("t", 0, topic_id=wrong)
    assert not (root / "t-0").exists()


def test_a_partition_of_another_topic_of_that_name_is_not_written(root):
    with open_dir(root) as log_dir:
        log_dir.writer("t", 0, topic_id=TOPIC_ID)
    with open_dir(root) as log_dir, refused("topic_id"):
        log_dir.writer("t", 0, topic_id="3" + TOPIC_ID[1:])
    with open_dir(root, "2.7") as log_dir, refused("topic_id"):
        log_dir.writer("t", 1, topic_id=TOPIC_ID)
    (root / "t-0" / METADATA).write_bytes(b"version: 0")
    with open_dir(root) as log_dir, pytest.raises(CorruptCheckpointError) as caught:
        log_dir.writer("t", 0, topic_id=TOPIC_ID)
    assert caught.value.path == root / "t-0" / METADATA


@pytest.mark.parametrize("version", ["2.4", "2.7", "2.8", "4.1"])
def test_a_checkpoint_leaves_the_snapshots_that_a_broker_leaves(root, version):
    """Before 2.8 those of the last two segments, and of what a recovery would read."""
    with open_dir(root, version) as log_dir:
        writer = log_dir.writer("t", 0, SMALL)
        writer.append_records(new_records(60), batch_bytes=200)
        bases = writer.base_offsets
        assert len(bases) > 5
        before = snapshots(root / "t-0")
        assert before == [*bases[1:]]
        log_dir.checkpoint()
        # A roll flushes: the recovery point is the active segment's base offset.
        expected = before if version in ("2.8", "4.1") else [*bases[-2:]]
        assert snapshots(root / "t-0") == expected
        writer.truncate_to(bases[3])
    if version in ("2.4", "2.7"):
        assert snapshots(root / "t-0") == [bases[3]]


def snapshots(partition):
    """The offsets at which there are producer snapshots."""
    return sorted(int(path.stem) for path in partition.glob("*.snapshot"))


def test_all_writers_are_closed_even_if_one_can_t_be(root, monkeypatch):
    log_dir = open_dir(root)
    writers = [log_dir.writer("t", number) for number in range(3)]
    for writer in writers:
        writer.append_records(new_records(1))
    closed = []

    def close(writer):
        closed.append(writer)
        if writer is writers[0]:
            raise OutOfOrderAppendError("an entry of the index")

    monkeypatch.setattr(type(writers[0]), "close", close)
    with pytest.raises(OutOfOrderAppendError):
        log_dir.close()
    assert closed == writers
