"""Groups of every kind, as their coordinators wrote them.

Source: Kafka 4.3.1 ``GroupMetadataManager.replay``, ``ConsumerGroup.maybeUpdateGroupState``,
``ShareGroup``, ``StreamsGroup``, ``ClassicGroup``; 2.4.0 ``GroupMetadataManager``.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from kafkastore.errors import CorruptionError
from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.messages.record_tables import TopicRecord
from kafkastore.formats.topics.consumer_offsets import (
    OFFSET_COMMITS,
    RECORDS,
    OffsetAndMetadata,
    OffsetCommitKey,
    parse_offset_commit,
)
from kafkastore.formats.topics.consumer_protocol import parse_assignment, parse_subscription
from kafkastore.store.partition_log import PartitionLog
from kafkastore.use_cases.last_records import LastRecord, Latest, about_record, last_records

_CONSUMER_PROTOCOL = "consumer"
# A member's own state: ``modern.MemberState.STABLE``, ``streams.MemberState.STABLE``.
_STABLE, _STABLE_STREAMS = 0, 1
_NOT_VALIDATED = -1
# Records that exist once per group; their tombstone deletes it.
_GROUP_RECORDS = frozenset(
    ("GroupMetadata", "ConsumerGroupMetadata", "ShareGroupMetadata", "StreamsGroupMetadata")
)


class GroupType(StrEnum):
    """The protocol of a group."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class GroupState(StrEnum):
    """The state of a group after its coordinator has loaded it."""

    EMPTY = "empty"
    STABLE = "stable"
    ASSIGNING = "assigning"
    RECONCILING = "reconciling"
    NOT_READY = "not-ready"


class Assigned(NamedTuple):
    """Partitions of a topic that a member has.

    `topic` is a name, a topic id, or the subtopology of a streams group; `kind` is the kind of its
    tasks there, else None.
    """

    topic: str
    partitions: tuple[int, ...]
    kind: str | None = None


class GroupMember(NamedTuple):
    """A member of a group.

    Parameters
    ----------
    member_id, client_id, client_host : str
        The member, and its client.
    instance_id, rack_id : str or None
        Of a static member; where it is.
    epoch : int or None
        The member's epoch; None in a classic group.
    is_reconciled : bool
        Whether it has what it is assigned to have.
    subscribed : tuple of str
        The names of the topics; empty if they can't be read.
    subscribed_regex : str or None
        The regular expression instead.
    assigned : tuple of Assigned
        The partitions that it has, also those that it has to give up.
    target : tuple of Assigned
        The partitions that it should have.
    """

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    rack_id: str | None
    epoch: int | None
    is_reconciled: bool
    subscribed: tuple[str, ...]
    subscribed_regex: str | None
    assigned: tuple[Assigned, ...]
    target: tuple[Assigned, ...]


class Group(NamedTuple):
    """A group.

    Parameters
    ----------
    group : str
        Its name.
    type : GroupType
        Its protocol.
    state : GroupState
        As the coordinator has it before any member answers.
    epoch : int or None
        The generation of a classic group, else the group epoch; None if it only has offsets.
    assignment_epoch : int or None
        The epoch of the last assignment; None in a classic group, or without one.
    protocol_type : str or None
        The kind of its members; None if it only has offsets.
    protocol : str or None
        The assignor that the members chose; None if they left it to the broker.
    members : tuple of GroupMember
        By member id.
    offsets : dict of OffsetCommitKey to OffsetAndMetadata
        Committed offsets. Share groups have none.
    """

    group: str
    type: GroupType
    state: GroupState
    epoch: int | None
    assignment_epoch: int | None
    protocol_type: str | None
    protocol: str | None
    members: tuple[GroupMember, ...]
    offsets: dict[OffsetCommitKey, OffsetAndMetadata]


class _Records:
    """The records of one group, by their names."""

    def __init__(self) -> None:
        self.of_group: dict[str, Values] = {}
        self.of_members: dict[str, dict[str, Values]] = {}
        self.offsets: dict[OffsetCommitKey, OffsetAndMetadata] = {}

    def member_ids(self, name: str) -> list[str]:
        return sorted(self.of_members.get(name, ()))

    def member(self, name: str, member_id: str) -> Values | None:
        return self.of_members.get(name, {}).get(member_id)


def groups_in(log: PartitionLog) -> list[Group]:
    """Return the groups of one ``__consumer_offsets`` partition, by name.

    Raises `CorruptionError` if the log or a record can't be read.
    """
    groups: dict[str, _Records] = {}
    written: dict[bytes, int] = {}
    latest = last_records(log, written=written)
    for key, last in latest.items():
        if last.value is not None:
            with about_record(log, last.offset):
                _add(groups, key, last)
    for name in _without_offsets(log, latest, written):
        groups.setdefault(name, _Records())
    return [_group(name, groups[name]) for name in sorted(groups)]


def _without_offsets(
    log: PartitionLog, latest: Latest, written: Mapping[bytes, int]
) -> Iterator[str]:
    """Yield groups whose offsets were deleted, or are in no committed transaction.

    They are there until a tombstone of the group itself.
    """
    deleted: dict[str, int] = {}
    commits: dict[str, int] = {}
    for key, last in latest.items():
        if last.value is None and RECORDS.name(int.from_bytes(key[:2], "big")) in _GROUP_RECORDS:
            with about_record(log, last.offset):
                deleted[_group_of(key)] = last.offset
    for key, offset in written.items():
        if int.from_bytes(key[:2], "big") in OFFSET_COMMITS:
            with about_record(log, offset):
                name = _group_of(key)
            commits[name] = max(commits.get(name, -1), offset)
    for name, offset in commits.items():
        if deleted.get(name, -1) < offset:
            yield name


def _group_of(key: bytes) -> str:
    """Return the group in a record's key, its first field."""
    fields = RECORDS.parse_keyed(key, None).key or {}
    name: str = fields["group" if "group" in fields else "group_id"]
    return name


def _add(groups: dict[str, _Records], key: bytes, last: LastRecord) -> None:
    """Add the last record of a key to its group."""
    if (commit := parse_offset_commit(key, last.value)) is not None:
        committed, value = commit
        if value is not None:
            groups.setdefault(committed.group, _Records()).offsets[committed] = value
        return
    record: TopicRecord = RECORDS.parse_keyed(key, last.value)
    if record.name is None or record.key is None or record.value is None:
        return  # of a newer broker
    name = record.key["group" if "group" in record.key else "group_id"]
    found = groups.setdefault(name, _Records())
    if "member_id" in record.key:
        found.of_members.setdefault(record.name, {})[record.key["member_id"]] = record.value
    else:
        found.of_group[record.name] = record.value


def _group(name: str, records: _Records) -> Group:
    for prefix, kind in (
        ("ConsumerGroup", GroupType.CONSUMER), ("ShareGroup", GroupType.SHARE),
        ("StreamsGroup", GroupType.STREAMS),
    ):
        if f"{prefix}Metadata" in records.of_group:
            return _newer_group(name, prefix, kind, records)
    return _classic_group(name, records)


def _classic_group(name: str, records: _Records) -> Group:
    value = records.of_group.get("GroupMetadata")
    if value is None:
        return Group(
            name, GroupType.CLASSIC, GroupState.EMPTY, None, None, None, None, (), records.offsets
        )
    is_consumer = value["protocol_type"] == _CONSUMER_PROTOCOL
    members = tuple(
        _classic_member(each, is_consumer=is_consumer)
        for each in sorted(value["members"], key=lambda each: str(each["member_id"]))
    )
    return Group(
        name,
        GroupType.CLASSIC,
        GroupState.STABLE if members else GroupState.EMPTY,
        value["generation"],
        None,
        value["protocol_type"] or None,
        value["protocol"],
        members,
        records.offsets,
    )


def _classic_member(value: Values, *, is_consumer: bool) -> GroupMember:
    subscribed: tuple[str, ...] = ()
    assigned: tuple[Assigned, ...] = ()
    if is_consumer:
        try:
            subscribed = parse_subscription(value["subscription"])["topics"]
            assigned = tuple(
                Assigned(each["topic"], each["partitions"])
                for each in parse_assignment(value["assignment"])["assigned_partitions"]
            )
        except CorruptionError:  # another client's own form
            pass
    return GroupMember(
        value["member_id"],
        value["client_id"],
        value["client_host"],
        value["group_instance_id"],
        None,
        None,
        True,
        tuple(subscribed),
        None,
        assigned,
        assigned,
    )


def _newer_group(name: str, prefix: str, kind: GroupType, records: _Records) -> Group:
    epoch: int = records.of_group[f"{prefix}Metadata"]["epoch"]
    target = records.of_group.get(f"{prefix}TargetAssignmentMetadata")
    target_epoch: int | None = None if target is None else target["assignment_epoch"]
    members = tuple(
        _newer_member(prefix, kind, member_id, target_epoch, records)
        for member_id in records.member_ids(f"{prefix}MemberMetadata")
    )
    return Group(
        name,
        kind,
        _state(kind, epoch, target_epoch, members, records),
        epoch,
        target_epoch,
        kind.value,
        _chosen_assignor(records.of_members.get(f"{prefix}MemberMetadata", {})),
        members,
        records.offsets,
    )


def _chosen_assignor(members: Mapping[str, Values]) -> str | None:
    """Return the assignor that most members name."""
    named = [each["server_assignor"] for each in members.values() if each.get("server_assignor")]
    return Counter(named).most_common(1)[0][0] if named else None


def _state(
    kind: GroupType,
    epoch: int,
    target_epoch: int | None,
    members: tuple[GroupMember, ...],
    records: _Records,
) -> GroupState:
    if not members:
        return GroupState.EMPTY
    if kind is GroupType.SHARE:
        return GroupState.STABLE
    if kind is GroupType.STREAMS and not _is_topology_ready(members, records):
        return GroupState.NOT_READY
    if target_epoch is None or epoch > target_epoch:
        return GroupState.ASSIGNING
    is_stable = all(each.is_reconciled for each in members)
    return GroupState.STABLE if is_stable else GroupState.RECONCILING


def _is_topology_ready(members: tuple[GroupMember, ...], records: _Records) -> bool:
    """Return whether a streams group has its topology and that topology's topics."""
    topology = records.of_group.get("StreamsGroupTopology")
    if topology is None:
        return False
    metadata = records.of_group["StreamsGroupMetadata"]
    validated: int = metadata["validated_topology_epoch"]
    if validated == _NOT_VALIDATED and not metadata["last_assignment_configs"]:
        # 4.1 writes neither, and assigns no task until the topics are there. After a load it knows
        # the topics again once a member answers.
        return any(each.target for each in members)
    epoch: int = topology["epoch"]
    return validated == epoch


def _newer_member(
    prefix: str, kind: GroupType, member_id: str, target_epoch: int | None, records: _Records
) -> GroupMember:
    metadata = records.member(f"{prefix}MemberMetadata", member_id) or {}
    current = records.member(f"{prefix}CurrentMemberAssignment", member_id) or {}
    target = records.member(f"{prefix}TargetAssignmentMember", member_id) or {}
    epoch = current.get("member_epoch")
    stable = _STABLE_STREAMS if kind is GroupType.STREAMS else _STABLE
    partitions = {
        each["topic_id"]: set(each["partitions"]) for each in current.get("assigned_partitions", ())
    }
    for each in current.get("partitions_pending_revocation", ()):
        partitions.setdefault(each["topic_id"], set()).update(each["partitions"])
    return GroupMember(
        member_id,
        metadata["client_id"],
        metadata["client_host"],
        metadata.get("instance_id"),
        metadata["rack_id"],
        epoch,
        epoch is not None and epoch == target_epoch and current.get("state") == stable,
        tuple(metadata.get("subscribed_topic_names", ())),
        metadata.get("subscribed_topic_regex") or None,
        (
            *(Assigned(topic, tuple(sorted(each))) for topic, each in partitions.items()),
            *_tasks(current),
        ),
        (
            *(
                Assigned(each["topic_id"], each["partitions"])
                for each in target.get("topic_partitions", ())
            ),
            *_tasks(target),
        ),
    )


def _tasks(assignment: Values) -> Iterator[Assigned]:
    """Yield the tasks of a member of a streams group."""
    for kind in ("active", "standby", "warmup"):
        for each in assignment.get(f"{kind}_tasks", ()):
            yield Assigned(each["subtopology_id"], each["partitions"], kind)
