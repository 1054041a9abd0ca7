"""Partitions put into the empty logs of new topics."""

from __future__ import annotations

import dataclasses
import os
import shutil

import pytest
from changes.small_store import contents
from kafkastore.migration import plan_restore
from models.disk_contents import overwrite
from models.log_directory import Log, Segment
from models.record_format import Batch, Row, marker

import kafkastore
from kafkastore import ChangeRefusedError, LogDirWriter, Plan, RefusalReason
from kafkastore.changes.plan import InvalidPlanError
from kafkastore.checks.predict import Outcome
from kafkastore.checks.reindex import plan_reindex
from kafkastore.errors import PlanRefusedError
from kafkastore.formats.state import producer_snapshot

VERSIONS = ["0.8.2.2", "0.10.0.1", "0.11.0.3", "2.4.0", "3.9.1", "4.1.1"]
TOPIC_ID = "version: 0\ntopic_id: dEYBbYzqQe2ua4s0PmjpMA"


@pytest.fixture
def new_logs(tmp_path):
    """Make the log directory of a broker that was stopped after topics had been created."""

    def make(*names):
        root = tmp_path / "kafka-logs"
        with LogDirWriter(root, "3.9") as log_dir:
            for name in names:
                topic, _, number = name.rpartition("-")
                log_dir.writer(topic, int(number))
        for name in names:
            (root / name / "partition.metadata").write_text(TOPIC_ID)
        return root

    return make


def records_of(log):
    return [
        (each.offset, each.timestamp, each.key, each.value, each.headers)
        for each in log.records(include_control=True)
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_golden_logs_are_restored_with_all_records(golden, new_logs, version):
    source = golden(version, "wide", "answers").logs
    store = kafkastore.open(source)
    names = [str(each) for each in store.partitions if not each.topic.startswith("__")]
    root = new_logs(*names)
    before = contents(root)
    plan = plan_restore(source, root)
    assert Plan.from_json(plan.to_json()) == plan
    journal = kafkastore.apply(plan)
    restored = kafkastore.open(root)
    assert sorted(map(str, restored.partitions)) == sorted(names)
    for log in restored:
        original = store[log.topic_partition]
        assert records_of(log) == records_of(original)
        assert log.log_start_offset == original.log_start_offset
        assert log.log_end_offset == original.log_end_offset
        assert {epoch for epoch, _ in log.leader_epochs} <= {0}
        assert all(batch.magic == 2 for batch in log.batches())
        assert (log.path / "partition.metadata").read_text() == TOPIC_ID
    assert not plan_reindex(root).changes
    kafkastore.undo(journal)
    assert contents(root) == before


def write_source(root, **options):
    """Write a log of two segments; its offset 2 is in the middle of the first."""
    segments = [
        Segment(base, tuple(Batch((Row(base + slot, 100, b"k", b"v"),)) for slot in range(4)))
        for base in (0, 4)
    ]
    return Log(tuple(each.indexed(interval=50) for each in segments), **options).write(root)


def test_deleted_records_stay_deleted_and_other_log_starts_stay(tmp_path, new_logs):
    source = write_source(tmp_path / "source", checkpointed_start=2)
    root = new_logs("t-0", "u-0")
    (root / "log-start-offset-checkpoint").write_text("0\n2\nu 0 7\nt 0 0\n")
    kafkastore.apply(plan_restore(source, root))
    assert kafkastore.open(root)["t", 0].log_start_offset == 2
    assert (root / "log-start-offset-checkpoint").read_text() == "0\n2\nu 0 7\nt 0 2\n"


def test_indexes_of_a_killed_broker_are_not_copied(tmp_path, new_logs):
    source = write_source(tmp_path / "source")
    last = source / "t-0" / f"{4:020}.index"
    last.write_bytes(last.read_bytes() + bytes(800))
    (source / "t-0" / f"{0:020}.timeindex").unlink()
    root = new_logs("t-0")
    kafkastore.apply(plan_restore(source, root, index_interval_bytes=50))
    log = kafkastore.open(root)["t", 0]
    assert not plan_reindex(root, index_interval_bytes=50).changes
    assert all(len(segment.time_index.entries()) for segment in log.segments)


def test_files_get_the_owners_and_the_mode_of_the_new_log(tmp_path, new_logs):
    source = write_source(tmp_path / "source")
    root = new_logs("t-0")
    user, group = (1234, 2345) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    for path in (root / "t-0").iterdir():
        os.chown(path, user, group)
        path.chmod(0o600)
    kafkastore.apply(plan_restore(source, root))
    for path in (root / "t-0").iterdir():
        status = path.stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (user, group, 0o600)


def test_modification_times_of_logs_are_kept(tmp_path, new_logs):
    source = write_source(tmp_path / "source")
    path = source / "t-0" / f"{4:020}.log"
    os.utime(path, ns=(1, 1_456_000_000_123_456_789))
    root = new_logs("t-0")
    kafkastore.apply(plan_restore(source, root))
    assert (root / "t-0" / path.name).stat().st_mtime_ns == 1_456_000_000_123_456_789


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_of_producers_only_open_transactions_are_kept(tmp_path, new_logs, has_snapshot):
    """Their ids are those of other producers in the new cluster."""
    batches = [
        Batch((Row(offset, 100, b"k", b"v"),), producer_id=number, producer_epoch=3,
              base_sequence=offset, is_transactional=number > 7)
        for offset, number in enumerate((7, 8, 9))
    ]
    batches.insert(2, marker(2, 100, producer_id=8))
    batches[3] = dataclasses.replace(batches[3], rows=(Row(3, 100, b"k", b"v"),))
    source = Log((Segment(0, tuple(batches)).indexed(),)).write(tmp_path / "source")
    if has_snapshot:
        (source / "t-0" / f"{1:020}.snapshot").write_bytes(
            producer_snapshot.pack([(7, 3, 0, 0, 0, 100, -1, -1)]))
    root = new_logs("t-0")
    kafkastore.apply(plan_restore(source, root))
    (path,) = (root / "t-0").glob("*.snapshot")
    assert path.name == f"{4:020}.snapshot"
    assert producer_snapshot.parse(path.read_bytes()).tolist() == [(9, 3, -1, -1, 0, 100, -1, 3)]
    committed = kafkastore.open(root)["t", 0].records(isolation="read_committed")
    assert [each.offset for each in committed] == [0, 1]
    assert not [each for each in kafkastore.verify(root) if each.path.suffix == ".snapshot"]


@pytest.mark.parametrize("is_there", [False, True])
def test_transaction_indexes_are_rebuilt(tmp_path, new_logs, is_there):
    """A machine that lost power may have lost them, and a broker trusts them."""
    batches = [
        Batch((Row(offset, 100, b"k", b"v"),), producer_id=offset, producer_epoch=0,
              base_sequence=0, is_transactional=True)
        for offset in (0, 1)
    ]
    ends = [marker(2, 100, is_commit=False, producer_id=0), marker(3, 100, producer_id=1)]
    source = Log((Segment(0, (*batches, *ends)).indexed(),)).write(tmp_path / "source")
    if is_there:
        (source / "t-0" / f"{0:020}.txnindex").write_bytes(bytes(34))
    root = new_logs("t-0")
    kafkastore.apply(plan_restore(source, root))
    (segment,) = kafkastore.open(root)["t", 0].segments
    assert segment.transaction_index.entries().tolist() == [(0, 0, 2, 1)]
    assert not [each for each in kafkastore.verify(root) if each.path.suffix == ".txnindex"]


@pytest.mark.parametrize(("offset", "expected"), [(3, []), (4, [7])])
def test_producers_before_the_first_segment_are_those_of_a_snapshot_there(
    tmp_path, new_logs, offset, expected
):
    """An older one is left over: its transaction may have ended since."""
    batch = Batch((Row(4, 100, b"k", b"v"),))
    source = Log((Segment(4, (batch,)).indexed(),)).write(tmp_path / "source")
    (source / "t-0" / f"{offset:020}.snapshot").write_bytes(
        producer_snapshot.pack([(7, 0, 0, 2, 0, 100, -1, 2)]))
    root = new_logs("t-0")
    kafkastore.apply(plan_restore(source, root))
    (path,) = (root / "t-0").glob("*.snapshot")
    assert path.name == f"{5:020}.snapshot"
    found = producer_snapshot.parse(path.read_bytes())
    assert found["producer_id"].tolist() == expected


@pytest.mark.parametrize("tail", [b"", bytes(500)], ids=["incomplete batch", "preallocated"])
def test_bytes_after_the_last_batch_are_not_restored(tmp_path, new_logs, tail):
    """The new broker was stopped, so it would keep them and append after them."""
    source = write_source(tmp_path / "source")
    path = source / "t-0" / f"{4:020}.log"
    whole = path.read_bytes()
    path.write_bytes(whole + (tail or Batch((Row(8, 100, b"k", b"v"),)).data[:-1]))
    root = new_logs("t-0")
    kafkastore.apply(plan_restore(source, root))
    assert (root / "t-0" / path.name).read_bytes() == whole
    (prediction,) = kafkastore.predict_start(root)
    assert prediction.outcome is Outcome.IS_LOADED


@pytest.mark.parametrize("base_offset", [0, 4])
def test_a_corrupt_batch_is_refused(tmp_path, new_logs, base_offset):
    source = write_source(tmp_path / "source")
    path = source / "t-0" / f"{base_offset:020}.log"
    overwrite(path, (path.stat().st_size - 1, b"!"))
    error = refusal(source, new_logs("t-0"))
    assert (error.reason, error.path) == (RefusalReason.OTHER, path)


def refusal(source, root, **options):
    before = contents(root)
    with pytest.raises(ChangeRefusedError) as caught:
        plan_restore(source, root, **options)
    assert contents(root) == before
    return caught.value


def test_a_broker_that_was_not_stopped_is_refused(tmp_path, new_logs):
    root = new_logs("t-0")
    (root / ".kafka_cleanshutdown").unlink()
    error = refusal(write_source(tmp_path / "source"), root)
    assert (error.reason, error.path) == (RefusalReason.IN_USE, root)


def test_a_log_with_records_is_refused(tmp_path, new_logs):
    source = write_source(tmp_path / "source")
    root = new_logs("t-0")
    kafkastore.apply(plan_restore(source, root))
    error = refusal(source, root)
    assert (error.reason, error.path) == (RefusalReason.NOT_EMPTY, root / "t-0")


def test_a_partition_directory_is_refused_as_target(tmp_path, new_logs):
    root = new_logs("t-0")
    error = refusal(write_source(tmp_path / "source"), root / "t-0")
    assert error.reason == RefusalReason.UNSUITABLE_PLACE


def test_a_segment_that_can_not_be_rewritten_is_refused(tmp_path, new_logs):
    source = write_source(tmp_path / "source")
    path = source / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[12:16] = (3).to_bytes(4, "big")  # a leader epoch that must be rewritten
    data[70] ^= 1  # a wrong checksum
    path.write_bytes(data)
    error = refusal(source, new_logs("t-0"))
    assert error.path == str(path)


def test_each_partition_that_can_not_be_restored_is_named(tmp_path, new_logs):
    source = write_source(tmp_path / "source")
    shutil.copytree(source / "t-0", source / "t-1")
    root = new_logs("t-0", "t-1")
    kafkastore.apply(plan_restore(source, root))
    error = refusal(source, root)
    assert isinstance(error, PlanRefusedError)
    assert [each.path.name for each in error.refusals] == ["t-0", "t-1"]


def test_internal_topics_are_restored_only_if_they_are_named(tmp_path, new_logs):
    source = write_source(tmp_path / "source")
    shutil.copytree(source / "t-0", source / "__consumer_offsets-0")
    root = new_logs("t-0", "__consumer_offsets-0")
    assert {each.path.partition("/")[0] for each in plan_restore(source, root).changes} == {"t-0"}
    named = plan_restore(source, root, partitions=["__consumer_offsets-0"])
    assert {each.path.partition("/")[0] for each in named.changes} == {"__consumer_offsets-0"}


@pytest.mark.parametrize("source", [
    "t-0/00000000000000000000.log", "/etc/shadow", "/t-0/../00000000000000000000.log",
    "/x/.lock", "/log-start-offset-checkpoint", "",
])
def test_a_plan_copies_only_files_of_partitions(tmp_path, new_logs, source):
    plan = plan_restore(write_source(tmp_path / "source"), new_logs("t-0"))
    copied = next(each.content.source for each in plan.changes if each.path.endswith(".log"))
    with pytest.raises(InvalidPlanError):
        Plan.from_json(plan.to_json().replace(copied, source))
