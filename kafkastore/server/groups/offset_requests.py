"""Requests about committed offsets.

Source: Kafka 4.3.1 ``OffsetMetadataManager``, ``KafkaApis``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kafkastore.clock import clock
from kafkastore.errors import KafkaStoreError
from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.list_offsets import UNKNOWN_EPOCH, UNKNOWN_OFFSET
from kafkastore.formats.topics.consumer_offsets import OffsetAndMetadata, OffsetCommitKey
from kafkastore.formats.topics.consumer_protocol import parse_subscription
from kafkastore.server.catalog import Catalog
from kafkastore.server.groups.classic_group import NO_GENERATION, ClassicGroup, ClassicState
from kafkastore.server.groups.committed import Commits, NotKeptError
from kafkastore.server.groups.consumer_group import ConsumerGroup
from kafkastore.server.groups.group_error import MAX_COMMIT_METADATA, MAX_COMMITS
from kafkastore.server.groups.known_groups import CONSUMER, KnownGroups, is_empty

_FIRST_VERSION_WITH_GROUPS = 8
_FIRST_VERSION_WITH_TOPIC_IDS = 10
#: Since then clients know the errors of the new protocol.
_FIRST_VERSION_WITH_MEMBER_EPOCHS = 9
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_NOT_COMMITTED = OffsetAndMetadata(UNKNOWN_OFFSET, "", -1)


class OffsetRequests:
    """The answers of the group coordinator about committed offsets."""

    def __init__(self, groups: KnownGroups) -> None:
        self._groups = groups

    @property
    def _catalog(self) -> Catalog:
        return self._groups.catalog

    # Commits

    async def commit(self, request: Values, version: int) -> Values:
        """Keep offsets; the served directories are not changed."""
        group_id, now = request["group_id"], clock()
        changes: dict[OffsetCommitKey, OffsetAndMetadata] = {}
        topics = []
        for topic, asked in self._named(request["topics"], version):
            rows = []
            for row in asked["partitions"]:
                error = self._place_error(topic, row, version)
                if not error:
                    key = OffsetCommitKey(group_id, topic or "", row["partition_index"])
                    changes[key] = OffsetAndMetadata(
                        row["committed_offset"], row["committed_metadata"] or "", now,
                        row["committed_leader_epoch"],
                    )
                rows.append({"partition_index": row["partition_index"], "error_code": error})
            topics.append({
                "name": asked["name"], "topic_id": asked["topic_id"], "partitions": rows,
            })
        if failure := await self._keep(request, version, changes):
            for row in (row for each in topics for row in each["partitions"]):
                if row["error_code"] not in _UNKNOWN:
                    row["error_code"] = failure
        return {"topics": topics}

    def _place_error(self, topic: str | None, row: Values, version: int) -> ErrorCode:
        """Return the error of a partition, whatever its group is."""
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if self._catalog.log(topic, row["partition_index"]) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if _characters(row["committed_metadata"] or "") > MAX_COMMIT_METADATA:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    async def _keep(
        self, request: Values, version: int, changes: Mapping[OffsetCommitKey, OffsetAndMetadata]
    ) -> ErrorCode:
        """Check the member and keep its offsets."""
        error = self._commit_error(request, version, changes)
        if error or not changes:
            return error
        if self._groups.offsets.count + len(changes) > MAX_COMMITS:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        try:
            await self._groups.offsets.change(changes)
        except NotKeptError:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    def _commit_error(
        self, request: Values, version: int, changes: Mapping[OffsetCommitKey, OffsetAndMetadata]
    ) -> ErrorCode:
        group = self._groups.by_id.get(request["group_id"])
        epoch = request["generation_id_or_member_epoch"]
        if group is None or is_empty(group):
            if epoch < 0:
                return ErrorCode.NONE
            if group is None and request["group_id"] not in self._groups.names:
                return (
                    ErrorCode.GROUP_ID_NOT_FOUND if version >= _FIRST_VERSION_WITH_MEMBER_EPOCHS
                    else ErrorCode.ILLEGAL_GENERATION
                )
        if isinstance(group, ConsumerGroup):
            return self._consumer_error(group, request, version, changes)
        return ErrorCode.UNKNOWN_MEMBER_ID if group is None else _classic_error(group, request)

    def _consumer_error(
        self, group: ConsumerGroup, request: Values, version: int,
        changes: Mapping[OffsetCommitKey, OffsetAndMetadata],
    ) -> ErrorCode:
        member = group.members.get(request["member_id"])
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if version < _FIRST_VERSION_WITH_MEMBER_EPOCHS:
            return ErrorCode.UNSUPPORTED_VERSION
        epoch = request["generation_id_or_member_epoch"]
        can_commit = epoch == member.epoch or (epoch < member.epoch and all(
            member.has_had((self._catalog.topics[key.topic].topic_id, key.partition), epoch)
            for key in changes
        ))
        return ErrorCode.NONE if can_commit else ErrorCode.STALE_MEMBER_EPOCH

    # What is committed

    def fetch(self, request: Values, version: int) -> Values:
        """Return committed offsets."""
        if version < _FIRST_VERSION_WITH_GROUPS:
            return {"topics": self._offsets(request["group_id"], request["topics"], version)}
        found = []
        for each in request["groups"]:
            error = self._fetch_error(each)
            topics = [] if error else self._offsets(each["group_id"], each["topics"], version)
            found.append({"group_id": each["group_id"], "topics": topics, "error_code": error})
        return {"groups": found}

    def _fetch_error(self, asked: Values) -> ErrorCode:
        """Return the error of a member of the new protocol; others give no epoch."""
        group = self._groups.by_id.get(asked["group_id"])
        is_member = asked["member_id"] is not None or asked["member_epoch"] >= 0
        if not isinstance(group, ConsumerGroup) or not is_member:
            return ErrorCode.NONE
        member = group.members.get(asked["member_id"] or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_current = member.epoch == asked["member_epoch"]
        return ErrorCode.NONE if is_current else ErrorCode.STALE_MEMBER_EPOCH

    def _offsets(
        self, group_id: str, asked: tuple[Values, ...] | None, version: int
    ) -> list[Values]:
        commits = self._groups.offsets.of(group_id)
        rows: list[tuple[str | None, Values, Sequence[int]]]
        if asked is None:
            wanted: dict[str, list[int]] = {}
            for topic, partition in sorted(commits):
                wanted.setdefault(topic, []).append(partition)
            rows = [
                (topic, {"name": topic, "topic_id": self._id_of(topic)}, numbers)
                for topic, numbers in wanted.items()
                if version < _FIRST_VERSION_WITH_TOPIC_IDS or self._id_of(topic) is not None
            ]
        else:
            rows = [
                (topic, {"name": each["name"], "topic_id": each.get("topic_id")},
                 each["partition_indexes"])
                for topic, each in self._named(asked, version)
            ]
        return [
            names | {
                "partitions": [
                    self._committed(topic, number, commits) for number in numbers
                ]
            }
            for topic, names, numbers in rows
        ]

    def _committed(self, topic: str | None, partition: int, commits: Commits) -> Values:
        """Return a row; an epoch above the leader's would make consumers wait for it."""
        if topic is None:
            error, found = ErrorCode.UNKNOWN_TOPIC_ID, _NOT_COMMITTED
        else:
            error, found = ErrorCode.NONE, commits.get((topic, partition), _NOT_COMMITTED)
        log = None if topic is None else self._catalog.log(topic, partition)
        is_known = log is not None and found.leader_epoch <= log.leader_epoch
        return {
            "partition_index": partition,
            "committed_offset": found.offset,
            "committed_leader_epoch": found.leader_epoch if is_known else UNKNOWN_EPOCH,
            "metadata": found.metadata,
            "error_code": error,
        }

    def _id_of(self, topic: str) -> str | None:
        found = self._catalog.topics.get(topic)
        return None if found is None else found.topic_id

    def _named(
        self, topics: tuple[Values, ...], version: int
    ) -> Iterator[tuple[str | None, Values]]:
        """Yield the topics of a request with their names; None for an unknown id."""
        for each in topics:
            if version < _FIRST_VERSION_WITH_TOPIC_IDS:
                yield each["name"], each
            else:
                found = self._catalog.topics_by_id.get(each["topic_id"])
                yield (None if found is None else found.name), each

    # Deleting

    async def delete_offsets(self, request: Values, _version: int) -> Values:
        """Delete offsets of topics that no member subscribes to."""
        group_id = request["group_id"]
        group = self._groups.by_id.get(group_id)
        if not group_id:
            return {"error_code": ErrorCode.INVALID_GROUP_ID}
        if group_id not in self._groups.names:
            return {"error_code": ErrorCode.GROUP_ID_NOT_FOUND}
        is_other = isinstance(group, ClassicGroup) and group.protocol_type != CONSUMER
        if group is not None and is_other and not is_empty(group):
            return {"error_code": ErrorCode.NON_EMPTY_GROUP}
        commits = self._groups.offsets.of(group_id)
        deleted: dict[OffsetCommitKey, None] = {}
        topics = []
        for topic in request["topics"]:
            name, rows = topic["name"], []
            is_subscribed = group is not None and _subscribes(group, name)
            for number in (row["partition_index"] for row in topic["partitions"]):
                error = ErrorCode.NONE
                if self._catalog.log(name, number) is None:
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif is_subscribed:
                    error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                elif (name, number) in commits:
                    deleted[OffsetCommitKey(group_id, name, number)] = None
                rows.append({"partition_index": number, "error_code": error})
            topics.append({"name": name, "partitions": rows})
        try:
            await self._groups.offsets.change(deleted)
        except NotKeptError:
            return {"error_code": ErrorCode.UNKNOWN_SERVER_ERROR}
        return {"topics": topics}

    async def delete_groups(self, request: Values, _version: int) -> Values:
        """Delete groups without members, with their offsets."""
        return {
            "results": [
                {"group_id": name, "error_code": await self._delete(name)}
                for name in request["groups_names"]
            ]
        }

    async def _delete(self, group_id: str) -> ErrorCode:
        if group_id not in self._groups.names:
            return ErrorCode.GROUP_ID_NOT_FOUND
        group = self._groups.by_id.get(group_id)
        if group is not None and not is_empty(group):
            return ErrorCode.NON_EMPTY_GROUP
        commits = self._groups.offsets.of(group_id)
        try:
            await self._groups.offsets.change(
                {OffsetCommitKey(group_id, *place): None for place in commits}
            )
        except NotKeptError:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if group is not None:
            group.close()
            self._groups.by_id.pop(group_id, None)
        return ErrorCode.NONE


def _classic_error(group: ClassicGroup, request: Values) -> ErrorCode:
    generation = request["generation_id_or_member_epoch"]
    is_member = (
        generation != NO_GENERATION or request["member_id"]
        or request["group_instance_id"] is not None
    )
    if not is_member:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check(request["member_id"], request["group_instance_id"], generation)
    if not error:
        group.keep_alive(group.members[request["member_id"]])
        if group.state is ClassicState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
    return error


def _characters(text: str) -> int:
    """Return the length of a text as Java counts it, in units of UTF-16."""
    return len(text) + sum(character > "\uffff" for character in text)


def _subscribes(group: ClassicGroup | ConsumerGroup, topic: str) -> bool:
    """Whether a member subscribes to a topic; if a subscription is malformed, to all."""
    if isinstance(group, ConsumerGroup):
        return any(
            topic in each.topics or topic in group.resolved.get(each.regex, ())
            for each in group.members.values()
        )
    try:
        return any(
            topic in parse_subscription(each.metadata(group.protocol))["topics"]
            for each in group.members.values()
        )
    except KafkaStoreError:
        return True
