"""Several replicas of a partition, against a simulation of leaders and followers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.record_strategies import bounded

import kafkastore
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.metadata.topics import PartitionRegistration
from kafkastore.use_cases.replicas import (
    LackReason,
    ReplicaRole,
    choose_best,
    lacking_offsets,
    read_replica,
    role_of,
)

T = TopicPartition("t", 0)


def batch(offset, epoch):
    return Batch((Row(offset, 100, b"k", b"v"),), leader_epoch=epoch)


def replica(root, epochs, *, start=0, damaged=(), role=ReplicaRole.UNKNOWN):
    """Write one batch for each epoch, from the start on, and read the replica."""
    log = Log((Segment(start, tuple(
        batch(start + slot, epoch) for slot, epoch in enumerate(epochs)
    )),)).write(root)
    path = log / "t-0" / f"{start:020}.log"
    data = bytearray(path.read_bytes())
    size = len(batch(0, 0).data)
    for offset in damaged:
        data[(offset - start) * size + size - 2] ^= 1
    path.write_bytes(data)
    return read_replica(kafkastore.open(log)[T], None, role)


class Cluster:
    """Replicas as lists of (offset, epoch), the slow and obvious way."""

    def __init__(self, count):
        self.logs = [[] for _ in range(count)]
        self.leader, self.epoch = 0, 0

    def elect(self, leader):
        self.leader, self.epoch = leader % len(self.logs), self.epoch + 1

    def append(self, count):
        log = self.logs[self.leader]
        log += [(len(log) + slot, self.epoch) for slot in range(count)]

    def replicate(self, follower, count):
        """A follower drops what its leader does not have, then fetches."""
        log, leader = self.logs[follower % len(self.logs)], self.logs[self.leader]
        same = 0
        while same < min(len(log), len(leader)) and log[same] == leader[same]:
            same += 1
        log[same:] = leader[same : max(same, len(log) + count)]


steps = st.lists(
    st.tuples(st.just("elect"), st.integers(0, 2), st.just(0))
    | st.tuples(st.just("append"), st.integers(1, 4), st.just(0))
    | st.tuples(st.just("replicate"), st.integers(0, 2), st.integers(0, 5)),
    max_size=20,
)


@bounded(150)
@given(steps, st.sets(st.integers(0, 12)), st.sets(st.integers(0, 12)))
def test_what_a_replica_lacks_is_what_its_log_does_not_have(
    tmp_path_factory, history, damaged, also_damaged
):
    cluster = Cluster(3)
    for name, first, second in history:
        getattr(cluster, name)(*((first, second) if name == "replicate" else (first,)))
    found, readable = [], []
    for log, corrupt in zip(cluster.logs, (damaged, also_damaged, ()), strict=True):
        # Without a batch after them, corrupt bytes are the log's end.
        end = len(log)
        while end - 1 in corrupt:
            end -= 1
        bad = {each for each in corrupt if each < end}
        found.append(replica(
            tmp_path_factory.mktemp("disk"), [epoch for _, epoch in log[:end]], damaged=bad
        ))
        readable.append({each for each in log[:end] if each[0] not in bad})
    for best, best_has in zip(found, readable, strict=True):
        for other, other_has in zip(found, readable, strict=True):
            lacking = [
                offset
                for each in lacking_offsets(best, other)
                for offset in range(each.start_offset, each.end_offset)
            ]
            assert lacking == sorted(offset for offset, _ in other_has - best_has)


@pytest.mark.parametrize(("epochs", "others", "reasons"), [
    ([0, 0, 0], [0, 0], []),
    ([0, 0], [0, 0, 0], [(2, 3, LackReason.AFTER_END)]),
    ([0, 0, 2], [0, 0, 1, 1], [(2, 4, LackReason.OTHER_LINEAGE)]),
    ([0, 0, 2, 2], [0, 1], [(1, 2, LackReason.OTHER_LINEAGE)]),
    ([3], [2, 2], [(0, 2, LackReason.OTHER_LINEAGE)]),
])
def test_reasons_say_why_records_are_lacking(tmp_path, epochs, others, reasons):
    best, other = replica(tmp_path / "1", epochs), replica(tmp_path / "2", others)
    assert [tuple(each) for each in lacking_offsets(best, other)] == reasons


def test_records_before_the_log_start_and_in_corrupt_bytes_are_named_as_such(tmp_path):
    best = replica(tmp_path / "1", [0] * 8, start=2, damaged=(4, 5))
    other = replica(tmp_path / "2", [0] * 10, damaged=(5,))
    assert [tuple(each) for each in lacking_offsets(best, other)] == [
        (0, 2, LackReason.BEFORE_START), (4, 5, LackReason.UNREADABLE),
    ]
    assert best.unreadable_offsets == 2


def test_the_newest_epoch_wins_over_a_longer_log(tmp_path):
    longer, newer = replica(tmp_path / "1", [0, 0, 0, 0]), replica(tmp_path / "2", [0, 1])
    assert choose_best(T, [longer, newer]).best is newer


def test_of_one_lineage_the_most_readable_offsets_win(tmp_path):
    damaged = replica(tmp_path / "1", [0, 0, 0, 0], damaged=(1, 2))
    shorter = replica(tmp_path / "2", [0, 0, 0])
    chosen = choose_best(T, [damaged, shorter])
    assert chosen.best is shorter
    ((_, lacking),) = chosen.others
    assert [tuple(each) for each in lacking] == [(3, 4, LackReason.AFTER_END)]


def test_a_replica_that_was_in_sync_wins_over_a_newer_one_that_was_not(tmp_path):
    late = replica(tmp_path / "1", [0, 1, 1], role=ReplicaRole.OUT_OF_SYNC)
    eligible = replica(tmp_path / "2", [0, 0], role=ReplicaRole.ELIGIBLE)
    assert choose_best(T, [late, eligible]).best is eligible


def test_a_replica_that_can_not_be_read_is_chosen_only_if_there_is_no_other(tmp_path):
    sound = replica(tmp_path / "1", [0])
    broken = sound._replace(role=ReplicaRole.LEADER, error=OSError(5, "broken"))
    assert choose_best(T, [broken, sound]).best is sound
    assert choose_best(T, [broken]).best is broken


def test_roles_are_those_of_the_registration():
    known = PartitionRegistration(
        (1, 2, 3, 4), (None,) * 4, (1, 2), (), (), 1, 0, 0, 0, (3,), ()
    )
    assert [role_of(each, known) for each in (1, 2, 3, 4, 5, None)] == [
        ReplicaRole.LEADER, ReplicaRole.IN_SYNC, ReplicaRole.ELIGIBLE, ReplicaRole.OUT_OF_SYNC,
        ReplicaRole.NOT_ASSIGNED, ReplicaRole.UNKNOWN,
    ]
    assert role_of(1, None) is ReplicaRole.UNKNOWN
