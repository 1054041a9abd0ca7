"""Groups of every kind, as the records of their coordinator have them."""

import pytest
from models import internal_topics
from models.record_format import Batch, Row

import kafkastore
from kafkastore.formats.topics.consumer_offsets import (
    RECORDS,
    OffsetAndMetadata,
    OffsetCommitKey,
)
from kafkastore.use_cases.groups import Assigned, GroupState, GroupType, groups_in

TOPIC_ID = "2P-XnPKnTZG5NwujU8kn6Q"
NUMBERS = {each.name: number for number, each in RECORDS.descriptions.items()}


def record(kind, key, value, version=0):
    """A key and a value; None is a tombstone."""
    number = NUMBERS[kind]
    packed = None
    if value is not None:
        packed = internal_topics.pack_value(RECORDS, number, version, **value)
    return internal_topics.pack_key(RECORDS, number, **key), packed


@pytest.fixture
def read(tmp_path):
    """Return a function that reads the groups of some records."""

    def groups(*records):
        path = tmp_path / "__consumer_offsets-0" / f"{0:020}.log"
        path.parent.mkdir(exist_ok=True)
        rows = (Row(offset, 5, *each) for offset, each in enumerate(records))
        path.write_bytes(Batch(tuple(rows)).data)
        return groups_in(kafkastore.open(tmp_path)["__consumer_offsets-0"])

    return groups


def member(name, group="g", prefix="ConsumerGroup", **fields):
    return record(
        f"{prefix}MemberMetadata", {"group_id": group, "member_id": name},
        {"client_id": "c", "client_host": "/h", "subscribed_topic_names": ("t",), **fields},
    )


def current(name, epoch, state=0, group="g", prefix="ConsumerGroup", **fields):
    assigned = ({"topic_id": TOPIC_ID, "partitions": (0, 2)},)
    return record(
        f"{prefix}CurrentMemberAssignment", {"group_id": group, "member_id": name},
        {"member_epoch": epoch, "previous_member_epoch": 0, "state": state,
         "assigned_partitions": assigned, **fields},
    )


def epochs(group_epoch, target, prefix="ConsumerGroup", group="g"):
    key = {"group_id": group}
    return (
        record(f"{prefix}Metadata", key, {"epoch": group_epoch}),
        record(f"{prefix}TargetAssignmentMetadata", key, {"assignment_epoch": target}),
    )


ASSIGNMENT = bytes.fromhex("0003 00000001 0001 74 00000002 00000000 00000002 ffffffff")
SUBSCRIPTION = bytes.fromhex("0001 00000001 0001 74 ffffffff 00000000")


def classic(*members, **fields):
    return record("GroupMetadata", {"group": "old"}, {
        "protocol_type": "consumer", "generation": 7, "protocol": "range", "leader": "m",
        "members": members, **fields,
    }, version=3)


CLASSIC_MEMBER = {
    "member_id": "m", "group_instance_id": "i", "client_id": "c", "client_host": "/h",
    "rebalance_timeout": 1, "session_timeout": 1, "subscription": SUBSCRIPTION,
    "assignment": ASSIGNMENT,
}


def test_a_classic_group_has_its_members_and_what_they_are_assigned(read):
    (group,) = read(classic(CLASSIC_MEMBER))
    assert (group.type, group.state, group.epoch) == (GroupType.CLASSIC, GroupState.STABLE, 7)
    assert (group.protocol_type, group.protocol) == ("consumer", "range")
    (found,) = group.members
    assert (found.member_id, found.instance_id, found.client_host) == ("m", "i", "/h")
    assert found.subscribed == ("t",)
    assert found.assigned == (Assigned("t", (0, 2)),)


def test_members_of_other_protocols_have_assignments_that_are_not_read(read):
    (group,) = read(classic(CLASSIC_MEMBER, protocol_type="connect"))
    assert group.members[0].assigned == ()
    (group,) = read(classic(CLASSIC_MEMBER | {"assignment": b"?", "subscription": b""}))
    assert (group.members[0].assigned, group.members[0].subscribed) == ((), ())


def test_a_classic_group_without_members_is_empty(read):
    (group,) = read(classic())
    assert (group.state, group.members) == (GroupState.EMPTY, ())


def test_a_group_that_only_commits_is_empty_and_classic(read):
    key, value = OffsetCommitKey("g", "t", 0), OffsetAndMetadata(5, "", 7)
    (group,) = read((
        internal_topics.pack_offset_commit_key(key),
        internal_topics.pack_offset_commit_value(value, 3),
    ))
    assert (group.type, group.state, group.epoch) == (GroupType.CLASSIC, GroupState.EMPTY, None)
    assert group.offsets == {key: value}


@pytest.mark.parametrize(("group_epoch", "target", "member_epoch", "member_state", "state"), [
    (3, 3, 3, 0, GroupState.STABLE),
    (4, 3, 3, 0, GroupState.ASSIGNING),
    (3, 3, 2, 0, GroupState.RECONCILING),
    (3, 3, 3, 1, GroupState.RECONCILING),
])
def test_the_state_of_a_consumer_group_follows_from_its_epochs(
    read, group_epoch, target, member_epoch, member_state, state
):
    (group,) = read(
        *epochs(group_epoch, target), member("m", rack_id="r"),
        current("m", member_epoch, member_state),
    )
    assert (group.type, group.state, group.epoch) == (GroupType.CONSUMER, state, group_epoch)
    (found,) = group.members
    assert (found.epoch, found.rack_id, found.subscribed) == (member_epoch, "r", ("t",))
    assert found.assigned == (Assigned(TOPIC_ID, (0, 2)),)
    assert found.is_reconciled == (state in (GroupState.STABLE, GroupState.ASSIGNING))


def test_a_group_without_members_is_empty(read):
    gone = record("ConsumerGroupMemberMetadata", {"group_id": "g", "member_id": "m"}, None)
    (group,) = read(*epochs(3, 3), member("m"), gone)
    assert (group.state, group.members) == (GroupState.EMPTY, ())


def test_a_member_that_has_not_joined_yet_has_nothing(read):
    (group,) = read(*epochs(3, 3), member("m"))
    assert group.state is GroupState.RECONCILING
    assert (group.members[0].epoch, group.members[0].assigned) == (None, ())


def test_a_share_group_with_members_is_stable(read):
    (group,) = read(
        *epochs(4, 3, "ShareGroup"), member("m", prefix="ShareGroup"),
        current("m", 2, prefix="ShareGroup"),
    )
    assert (group.type, group.state) == (GroupType.SHARE, GroupState.STABLE)


TASKS = ({"subtopology_id": "0", "partitions": (1,)},)


def streams(state=1, configs=(), validated=-1, topology=0, target=TASKS):
    """The records of a group of streams with one member."""
    key, member_key = {"group_id": "g"}, {"group_id": "g", "member_id": "m"}
    return (
        record("StreamsGroupMetadata", key, {
            "epoch": 3, "metadata_hash": 0, "validated_topology_epoch": validated,
            "last_assignment_configs": configs,
        }),
        record("StreamsGroupTargetAssignmentMetadata", key, {"assignment_epoch": 3}),
        record("StreamsGroupTargetAssignmentMember", member_key, {"active_tasks": target}),
        record("StreamsGroupMemberMetadata", member_key, {
            "client_id": "c", "client_host": "/h", "topology_epoch": 1, "process_id": "p",
            "rebalance_timeout_ms": 1,
        }),
        record("StreamsGroupCurrentMemberAssignment", member_key, {
            "member_epoch": 3, "previous_member_epoch": 2, "state": state,
            "active_tasks": TASKS, "standby_tasks": TASKS,
        }),
        record("StreamsGroupTopology", key, None if topology is None else {"epoch": topology}),
    )


CONFIGS = ({"key": "num.standby.replicas", "value": "0"},)


def test_a_streams_group_has_tasks(read):
    (group,) = read(*streams())
    assert (group.type, group.state) == (GroupType.STREAMS, GroupState.STABLE)
    (found,) = group.members
    assert found.assigned == (Assigned("0", (1,), "active"), Assigned("0", (1,), "standby"))
    assert found.target == (Assigned("0", (1,), "active"),)


@pytest.mark.parametrize(("fields", "state"), [
    ({"topology": None}, GroupState.NOT_READY),
    ({"target": ()}, GroupState.NOT_READY),  # as 4.1 writes it
    ({"configs": CONFIGS}, GroupState.NOT_READY),
    ({"configs": CONFIGS, "validated": 0}, GroupState.STABLE),
    ({"configs": CONFIGS, "validated": 0, "topology": 1}, GroupState.NOT_READY),
    ({"state": 2}, GroupState.RECONCILING),
])
def test_a_streams_group_is_ready_once_its_topology_is_validated(read, fields, state):
    (group,) = read(*streams(**fields))
    assert group.state is state


def test_a_member_still_has_what_it_has_to_give_up(read):
    given_up = ({"topic_id": TOPIC_ID, "partitions": (1,)},)
    target = record(
        "ConsumerGroupTargetAssignmentMember", {"group_id": "g", "member_id": "m"},
        {"topic_partitions": given_up},
    )
    (group,) = read(
        *epochs(3, 3), member("m", server_assignor="range"), target,
        current("m", 2, 1, partitions_pending_revocation=given_up),
    )
    assert group.members[0].assigned == (Assigned(TOPIC_ID, (0, 1, 2)),)
    assert group.members[0].target == (Assigned(TOPIC_ID, (1,)),)
    assert (group.protocol_type, group.protocol) == ("consumer", "range")


def test_a_group_that_lost_its_offsets_is_there_until_it_is_deleted(read):
    key = internal_topics.pack_offset_commit_key(OffsetCommitKey("g", "t", 0))
    value = internal_topics.pack_offset_commit_value(OffsetAndMetadata(5, "", 7), 3)
    deleted = internal_topics.pack_group_key("g"), None
    (group,) = read((key, value), (key, None))
    assert (group.group, group.state, group.offsets) == ("g", GroupState.EMPTY, {})
    assert read((key, value), (key, None), deleted) == []
    assert read((key, None)) == []
    assert [each.group for each in read(deleted, (key, value), (key, None))] == ["g"]


def test_groups_are_sorted_and_records_of_newer_brokers_left_out(read):
    newer = (bytes.fromhex("0063 0001 67"), bytes.fromhex("0000 00"))
    found = read(*epochs(1, 1, group="b"), newer, *epochs(1, 1, "ShareGroup", group="a"))
    assert [group.group for group in found] == ["a", "b"]


@pytest.mark.parametrize("records", [
    [(bytes.fromhex("0003 0001 67"), b"\0\0\0")],
    [(bytes.fromhex("0003 0002 67"), None)],
    [(bytes.fromhex("0001 0002 67"), b""), (bytes.fromhex("0001 0002 67"), None)],
])
def test_a_corrupt_record_is_named(read, records):
    with pytest.raises(kafkastore.CorruptionError) as refused:
        read(*records)
    assert refused.value.path is not None
