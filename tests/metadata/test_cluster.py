"""The cluster that a metadata log describes, at its end and at earlier moments."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import message_strategies
from models import metadata_directory as made
from models.metadata_directory import DIRECTORY, TOPIC_ID
from models.record_strategies import bounded

import kafkastore
from kafkastore import MetadataSource, NoMetadataError, ReplayError
from kafkastore.errors import CorruptionError, KafkaStoreError
from kafkastore.metadata.cluster_rows import rows_of

FRAMES = [
    made.feature("metadata.version", 27),  # 0
    made.broker(1, 1),
    made.broker(2, 2, rack="r"),
    made.frame("UnfenceBroker", id=1, epoch=1),  # 3
    made.topic(),
    made.partition(0),
    made.partition(1, leader=2),
    made.config("retention.ms", "1000"),  # 7
    made.config("cleanup.policy", "compact"),
    made.config("retention.ms", None),  # 9
    made.change(0, leader=2, isr=(2,), eligible_leader_replicas=(1,)),
    made.change(1, replicas=(4,), directories=(DIRECTORY,)),
    made.frame("NoOp"),  # 12
    made.config("min.insync.replicas", "2", resource="", kind=4),
    made.topic("u", DIRECTORY),
    made.frame("RemoveTopic", topic_id=DIRECTORY),  # 15
    made.frame("ClientQuota", entity=({"entity_type": "user", "entity_name": None},),
               key="producer_byte_rate", value=1.5),
    made.frame("ProducerIds", broker_id=1, broker_epoch=1, next_producer_id=4000),
]


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "__cluster_metadata-0"


def state(cluster):
    """Everything but the moment and the source."""
    return [row for row in rows_of(cluster) if row["kind"] != "cluster"]


def test_a_log_alone_gives_the_cluster_at_its_end(directory):
    made.write_log(directory, FRAMES)
    found = kafkastore.cluster(directory)
    assert found.source is MetadataSource.METADATA_LOG
    assert (found.end_offset, found.epoch, found.timestamp) == (len(FRAMES), 1, 1017)
    assert found.features == {"metadata.version": 27}
    assert {number: broker.is_fenced for number, broker in found.brokers.items()} == {
        1: False, 2: True
    }
    assert found.brokers[2].rack == "r"
    assert found.topics.keys() == {"t"}
    assert found.topics["t"].topic_id == TOPIC_ID
    first, second = found.topics["t"].partitions.values()
    assert (first.leader, first.leader_epoch, first.partition_epoch) == (2, 1, 1)
    assert (first.isr, first.elr, first.replicas) == ((2,), (1,), (1, 2, 3))
    assert (second.leader, second.leader_epoch, second.partition_epoch) == (2, 0, 1)
    assert (second.replicas, second.directories) == ((4,), (DIRECTORY,))
    assert found.configs == {
        (2, "t"): {"cleanup.policy": "compact"}, (4, ""): {"min.insync.replicas": "2"}
    }
    assert found.client_quotas == {frozenset({("user", None)}): {"producer_byte_rate": 1.5}}
    assert found.next_producer_id == 4000


def test_every_earlier_offset_is_the_end_of_a_shorter_log(tmp_path):
    whole = tmp_path / "whole" / "__cluster_metadata-0"
    made.write_log(whole, FRAMES)
    for end in range(len(FRAMES) + 1):
        cut = tmp_path / str(end) / "__cluster_metadata-0"
        made.write_log(cut, FRAMES[:end])
        found, shorter = kafkastore.cluster(whole, as_of=end), kafkastore.cluster(cut)
        assert state(found) == state(shorter)
        assert found.end_offset == shorter.end_offset == end


def test_a_time_means_all_records_up_to_it(directory):
    made.write_log(directory, FRAMES)
    start = datetime(1970, 1, 1, tzinfo=UTC)
    for end in range(len(FRAMES)):
        found = kafkastore.cluster(directory, as_of=start + timedelta(milliseconds=1000 + end))
        assert state(found) == state(kafkastore.cluster(directory, as_of=end + 1))
    assert state(kafkastore.cluster(directory, as_of=start)) == []


def test_a_snapshot_and_the_log_after_it_give_the_same_as_the_log(tmp_path, directory):
    made.write_log(tmp_path / "whole" / "__cluster_metadata-0", FRAMES)
    whole = kafkastore.cluster(tmp_path / "whole" / "__cluster_metadata-0")
    at_10 = [
        *FRAMES[:3], made.frame("UnfenceBroker", id=1, epoch=1), made.topic(), made.partition(0),
        made.partition(1, leader=2), made.config("cleanup.policy", "compact"),
    ]
    snapshot = made.write_snapshot(directory, 10, at_10, timestamp=1009)
    made.write_log(directory, FRAMES[10:], start=10)
    found = kafkastore.cluster(directory)
    assert state(found) == state(whole)
    assert (found.snapshot.end_offset, found.snapshot.path) == (10, snapshot)
    assert kafkastore.cluster(directory, as_of=10).end_offset == 10
    with pytest.raises(NoMetadataError):
        kafkastore.cluster(directory, as_of=9)
    with pytest.raises(NoMetadataError):
        kafkastore.cluster(directory, as_of=datetime(1970, 1, 1, tzinfo=UTC))


def test_a_snapshot_alone_is_enough(directory):
    path = made.write_snapshot(directory, 99, FRAMES[:9], epoch=7, timestamp=555)
    for place in (path, directory):
        found = kafkastore.cluster(place)
        assert (found.end_offset, found.epoch, found.timestamp) == (99, 7, 555)
        assert found.topics.keys() == {"t"}
    with pytest.raises(NoMetadataError):
        kafkastore.cluster(path, as_of=5)


def test_a_bootstrap_checkpoint_has_what_a_cluster_begins_with(directory):
    path = made.write_snapshot(directory, 99, FRAMES[:1])
    begun = kafkastore.cluster(path.rename(directory / "bootstrap.checkpoint"))
    assert (begun.features, begun.end_offset) == ({"metadata.version": 27}, 0)
    assert begun.timestamp == -1


def test_a_file_that_is_no_snapshot_is_refused(directory):
    directory.mkdir()
    for name in ("1-1.checkpoint", f"{9:020}-{1:010}.checkpoint", "x.checkpoint"):
        with pytest.raises((NoMetadataError, OSError)):
            kafkastore.cluster(directory / name)


def test_the_newest_snapshot_before_a_moment_is_read(directory):
    for end in (5, 8):
        made.write_snapshot(directory, end, FRAMES[:end], timestamp=999 + end)
    made.write_log(directory, FRAMES)
    for as_of, end in ((8, 8), (7, 5), (5, 5), (4, None)):
        snapshot = kafkastore.cluster(directory, as_of=as_of).snapshot
        assert (None if snapshot is None else snapshot.end_offset) == end
    assert kafkastore.cluster(directory).snapshot.end_offset == 8


def test_a_metadata_transaction_counts_whole_or_not_at_all(directory):
    begin, end = made.frame("BeginTransaction", name="x"), made.frame("EndTransaction")
    abort = made.frame("AbortTransaction", reason="no")
    frames = [begin, made.topic(), made.partition(0), end, begin, made.topic("u", DIRECTORY), abort,
              begin, made.topic("v", DIRECTORY)]
    made.write_log(directory, frames)
    names = [sorted(kafkastore.cluster(directory, as_of=end).topics) for end in range(10)]
    assert names == [[], [], [], [], ["t"], ["t"], ["t"], ["t"], ["t"], ["t"]]
    opened = [kafkastore.cluster(directory, as_of=end).open_transaction for end in range(10)]
    assert opened == [None, 0, 0, 0, None, 4, 4, None, 7, 7]


@pytest.mark.parametrize("frames", [
    [made.frame("EndTransaction")],
    [made.frame("AbortTransaction")],
    [made.frame("BeginTransaction"), made.frame("BeginTransaction")],
    [made.partition(0)],
    [made.topic(), made.change(0, leader=1)],
    [made.frame("FenceBroker", id=1, epoch=1)],
    [made.broker(1, 5), made.frame("FenceBroker", id=1, epoch=6)],
    [made.frame("RemoveTopic", topic_id=TOPIC_ID)],
    [made.frame("RemoveAccessControlEntry", id=TOPIC_ID)],
])
def test_a_record_that_does_not_fit_is_named_with_its_offset(directory, frames):
    made.write_log(directory, frames)
    with pytest.raises(ReplayError) as refused:
        kafkastore.cluster(directory)
    assert refused.value.offset == len(frames) - 1
    assert kafkastore.cluster(directory, as_of=len(frames) - 1).end_offset == len(frames) - 1


def test_unknown_records_are_counted_and_the_rest_counts(directory):
    frames = [bytes((1, 99, 0)) + b"what", made.topic(), bytes((1, 2, 9)) + b"newer"]
    made.write_log(directory, frames)
    found = kafkastore.cluster(directory)
    assert found.topics.keys() == {"t"}
    assert found.unknown_records == {(99, 0): 1, (2, 9): 1}


def test_a_corrupt_record_is_named_and_what_comes_before_it_can_be_read(directory):
    for harm in (b"", b"\x02\x02\x00", made.topic()[:-3], made.topic() + b"x"):
        made.write_log(directory, [made.topic("u", DIRECTORY), harm, made.topic()])
        with pytest.raises(CorruptionError) as refused:
            kafkastore.cluster(directory)
        assert str(refused.value.path).endswith(".log")
        assert kafkastore.cluster(directory, as_of=1).topics.keys() == {"u"}


def test_a_corrupt_batch_is_named_and_what_comes_before_it_can_be_read(directory):
    path = made.write_log(directory, FRAMES)
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError) as refused:
        kafkastore.cluster(directory)
    assert refused.value.position is not None
    before = kafkastore.cluster(directory, as_of=len(FRAMES) - 1)
    assert before.topics.keys() == {"t"}


@pytest.mark.parametrize("harm", [
    lambda data: data[:75] + bytes((data[75] ^ 1,)) + data[76:],
    lambda data: data[:-5] + bytes((data[-5] ^ 1,)) + data[-4:],
    lambda data: data[:300] + bytes((data[300] ^ 1,)) + data[301:],
    lambda data: data[:-1],
    lambda data: data[:-80],
    lambda data: data[:300],
    lambda data: data[300:],
    lambda data: b"",
])
def test_a_corrupt_snapshot_is_named(directory, harm):
    path = made.write_snapshot(directory, 9, FRAMES[:9])
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(CorruptionError) as refused:
        kafkastore.cluster(directory)
    assert str(refused.value.path) == str(path)


def outcome(path):
    """The state; None if the reader refuses it with an error of the package."""
    try:
        return state(kafkastore.cluster(path))
    except KafkaStoreError:
        return None


def record_type(frame):
    """The second of the varints that a frame begins with, which damage may have made longer."""
    varints = re.findall(rb"[\x80-\xff]*[\x00-\x7f]", frame)
    if len(varints) < 2:
        return None
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(varints[1])) & 0xFFFFFFFF


@bounded(300)
@given(st.data())
def test_damaged_records_are_refused_or_give_another_cluster(data):
    frames = list(FRAMES)
    index = data.draw(st.integers(0, len(frames) - 1))
    frames[index] = data.draw(message_strategies.damaged(st.just(frames[index])))
    with TemporaryDirectory() as name:
        directory = Path(name, "__cluster_metadata-0")
        made.write_log(directory, frames)
        found = outcome(directory)
        for end in range(index + 1):
            assert state(kafkastore.cluster(directory, as_of=end)) is not None
        (directory / f"{0:020}.log").unlink()
        path = made.write_snapshot(directory, 99, frames)
        is_transaction = record_type(frames[index]) in (23, 24, 25)  # not in snapshots
        assert outcome(path) == found or is_transaction


@bounded(200)
@given(st.data())
def test_damaged_files_are_refused_or_give_another_cluster(data):
    with TemporaryDirectory() as name:
        directory = Path(name, "__cluster_metadata-0")
        if data.draw(st.booleans()):
            path = made.write_log(directory, FRAMES)
        else:
            path = made.write_snapshot(directory, 9, FRAMES[:9])
        path.write_bytes(data.draw(message_strategies.damaged(st.just(path.read_bytes()))))
        outcome(directory)


def test_missing_offsets_are_named_and_what_comes_before_them_can_be_read(directory):
    first, last = FRAMES[:5], FRAMES[8:]
    made.write_log(directory, first)
    made.write_log(directory, last, start=8)
    one_file = directory.with_name("whole") / directory.name
    data = made.write_log(one_file, first).read_bytes()
    path = made.write_log(one_file, last, start=8)
    (one_file / f"{0:020}.log").write_bytes(data + path.read_bytes())
    path.unlink()
    for place, file, position in (
        (directory, path.name, 0), (one_file, f"{0:020}.log", len(data)),
    ):
        for as_of in (None, 6, len(FRAMES)):
            with pytest.raises(CorruptionError) as refused:
                kafkastore.cluster(place, as_of=as_of)
            assert (refused.value.path, refused.value.position) == (place / file, position)
        assert kafkastore.cluster(place, as_of=5).end_offset == 5
        before = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=1003)
        assert kafkastore.cluster(place, as_of=before).end_offset == 4
        made.write_snapshot(place, 8, FRAMES[:8])
        assert kafkastore.cluster(place).end_offset == len(FRAMES)


def test_a_moment_after_the_end_is_refused(directory):
    made.write_log(directory, FRAMES)
    with pytest.raises(NoMetadataError):
        kafkastore.cluster(directory, as_of=len(FRAMES) + 1)


@pytest.mark.parametrize("as_of", [-1, "5", 1.5, True, datetime(2026, 1, 1)])
def test_a_moment_of_another_kind_is_refused(directory, as_of):
    made.write_log(directory, FRAMES)
    with pytest.raises((TypeError, ValueError)):
        kafkastore.cluster(directory, as_of=as_of)


def test_of_several_copies_the_newest_is_read(tmp_path):
    disks = [tmp_path / name / "__cluster_metadata-0" for name in "abc"]
    for disk, count, epoch in zip(disks, (7, 9, 8), (2, 2, 1), strict=True):
        made.write_log(disk, FRAMES[:count], epoch=epoch)
        (disk / "leader-epoch-checkpoint").write_text(f"0\n1\n{epoch} 0\n")
    found = kafkastore.cluster(disks)
    assert (found.path, found.end_offset) == (disks[1], 9)


def test_a_copy_may_be_the_newest_by_its_snapshot(tmp_path):
    """A node has fetched a snapshot, and nothing after it: its log is empty."""
    old, new = (tmp_path / name / "__cluster_metadata-0" for name in "ab")
    made.write_log(old, FRAMES[:4], epoch=2)
    (old / "leader-epoch-checkpoint").write_text("0\n1\n2 0\n")
    made.write_snapshot(new, len(FRAMES), FRAMES[:9], epoch=3)
    made.write_log(new, [], start=len(FRAMES))
    for disks in ([old, new], [new, old]):
        found = kafkastore.cluster(disks)
        assert (found.path, found.end_offset) == (new, len(FRAMES))


def test_control_records_say_who_leads_and_votes(directory):
    directory.mkdir()
    data = made.leader_change(0, 5, 2, 3).data + made.leader_change(1, 6, 3, 4).data
    (directory / f"{0:020}.log").write_bytes(data)
    quorum = kafkastore.cluster(directory).quorum
    assert (quorum.leader_id, quorum.leader_epoch, sorted(quorum.voters)) == (3, 4, [1, 2, 3])
    quorum = kafkastore.cluster(directory, as_of=1).quorum
    assert (quorum.leader_id, quorum.leader_epoch) == (2, 3)


def test_the_leader_of_an_epoch_whose_first_record_is_deleted_is_in_the_quorum_state(directory):
    made.write_snapshot(directory, 99, FRAMES[:9], epoch=7)
    made.write_log(directory, FRAMES[9:10], start=99, epoch=7)
    state = '{"leaderId":3,"leaderEpoch":%d,"votedId":-1,"currentVoters":[],"data_version":0}'
    for epoch, leader in ((7, 3), (8, None), (6, None)):
        (directory / "quorum-state").write_text(state % epoch)
        quorum = kafkastore.cluster(directory).quorum
        assert (quorum.leader_id, quorum.leader_epoch) == (leader, 7)


def test_without_a_metadata_log_directories_show_what_they_can(tmp_path):
    for disk, broker_id, numbers in (("a", 7, (0, 1)), ("b", 8, (1,))):
        root = tmp_path / disk
        for number in numbers:
            made.write_log(root / f"orders-{number}", [b"x"])
            (root / f"orders-{number}" / "leader-epoch-checkpoint").write_text(
                f"0\n1\n{broker_id} 0\n"
            )
        (root / "meta.properties").write_text(f"version=0\nbroker.id={broker_id}\ncluster.id=C\n")
    (tmp_path / "b" / "orders-1" / "partition.metadata").write_text(
        f"version: 0\ntopic_id: {TOPIC_ID}\n"
    )
    found = kafkastore.cluster([tmp_path / "a", tmp_path / "b"])
    assert found.source is MetadataSource.LOG_DIRECTORIES
    assert (found.cluster_id, sorted(found.brokers)) == ("C", [7, 8])
    orders = found.topics["orders"]
    assert orders.topic_id == TOPIC_ID
    assert {number: each.replicas for number, each in orders.partitions.items()} == {
        0: (7,), 1: (7, 8)
    }
    assert [each.leader_epoch for each in orders.partitions.values()] == [7, 8]
    assert {each.leader for each in orders.partitions.values()} == {-1}
    with pytest.raises(NoMetadataError):
        kafkastore.cluster(tmp_path / "a", as_of=3)
