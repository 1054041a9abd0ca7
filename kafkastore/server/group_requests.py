"""Consumer groups in memory, which begin at the offsets in the directories.

Source: Kafka 4.3.1 ``GroupCoordinatorService``, ``OffsetMetadataManager``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.list_offsets import UNKNOWN_EPOCH, UNKNOWN_OFFSET
from kafkastore.server.catalog import Catalog, Node
from kafkastore.server.classic_group import (
    NO_GENERATION,
    SESSION_TIMEOUTS,
    ClassicGroup,
    ClassicState,
    error_to_join,
)
from kafkastore.use_cases.committed_offsets import NoCommittedOffsetsError, committed_offsets

#: Kinds of keys that have a coordinator: groups and transactional ids.
_COORDINATORS = (0, 1)
#: What brokers say before version 4, of `ErrorCode.NONE`.
_NO_ERROR = "NONE"
_FIRST_VERSION_WITH_KEYS = 4
_FIRST_VERSION_WITH_MEMBERS = 3
_FIRST_VERSION_WITH_GROUPS = 8
_FIRST_VERSION_WITH_TOPIC_IDS = 10
_CLASSIC = "classic"
_READ = 1 << 3 | 1 << 8
_DEAD = "Dead"
_FIRST_DESCRIBE_WITH_ERRORS = 6


def _unknown_member(request: Values) -> ErrorCode:
    """Return the error for a member of a group that is not here."""
    return ErrorCode.UNKNOWN_MEMBER_ID if request["group_id"] else ErrorCode.INVALID_GROUP_ID


class Commit(NamedTuple):
    """A committed offset."""

    offset: int
    leader_epoch: int
    metadata: str | None


_NOT_COMMITTED = Commit(UNKNOWN_OFFSET, UNKNOWN_EPOCH, "")
Commits = dict[tuple[str, int], Commit]


class GroupRequests:
    """The group coordinator of a node."""

    def __init__(self, catalog: Catalog, node: Node) -> None:
        self.catalog, self.node = catalog, node
        self.groups: dict[str, ClassicGroup] = {}
        self._commits: dict[str, Commits] = {}

    @cached_property
    def _stored(self) -> dict[str, Commits]:
        """The offsets in the served directories, by group."""
        found: dict[str, Commits] = {}
        try:
            stored = committed_offsets(self.catalog.store, unreadable={})
        except NoCommittedOffsetsError:
            return found
        for key, value in stored.items():
            if self.catalog.is_hidden(key.topic):
                continue
            commit = Commit(value.offset, value.leader_epoch, value.metadata)
            found.setdefault(key.group, {})[key.topic, key.partition] = commit
        return found

    async def load(self) -> None:
        """Read the offsets in the directories, unless they have been read."""
        if "_stored" not in self.__dict__:
            await asyncio.to_thread(lambda: self._stored)

    def close(self) -> None:
        """End all timers."""
        for group in self.groups.values():
            group.close()

    def find_coordinator(self, request: Values, version: int) -> Values:
        """Name the one node for every group and transactional id."""
        if request["key_type"] in _COORDINATORS:
            text = _NO_ERROR if version < _FIRST_VERSION_WITH_KEYS else ""
            found = {"error_message": text, **self.node._asdict()}
        else:
            error = ErrorCode.INVALID_REQUEST
            found = {
                "error_code": error, "error_message": error.name,
                "node_id": -1, "host": "", "port": -1,
            }
        if version < _FIRST_VERSION_WITH_KEYS:
            return found
        return {"coordinators": [{"key": key} | found for key in request["coordinator_keys"]]}

    # Members

    async def join_group(
        self, request: Values, version: int, client_id: str, host: str
    ) -> Values:
        """Let a member join, when all others have."""
        group_id, member_id = request["group_id"], request["member_id"]
        if not group_id:
            return error_to_join(ErrorCode.INVALID_GROUP_ID, member_id)
        if request["session_timeout_ms"] not in SESSION_TIMEOUTS:
            return error_to_join(ErrorCode.INVALID_SESSION_TIMEOUT, member_id)
        group = self.groups.get(group_id)
        if group is None:
            if member_id:
                is_known = group_id in self._stored or group_id in self._commits
                has_protocol = request["protocol_type"] and request["protocols"]
                return error_to_join(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL if is_known and not has_protocol
                    else ErrorCode.UNKNOWN_MEMBER_ID,
                    member_id,
                )
            group = self.groups[group_id] = ClassicGroup(group_id)
        return await group.join(request, version, client_id, host)

    async def sync_group(self, request: Values) -> Values:
        """Give a member its assignment, when the leader has sent it."""
        group = self.groups.get(request["group_id"])
        if group is None:
            return {"error_code": _unknown_member(request)}
        return await group.sync(request)

    def heartbeat(self, request: Values, _version: int) -> Values:
        """Keep a member alive."""
        group = self.groups.get(request["group_id"])
        error = _unknown_member(request) if group is None else group.heartbeat(request)
        return {"error_code": error}

    def leave_group(self, request: Values, version: int) -> Values:
        """Let members leave."""
        group = self.groups.get(request["group_id"])
        if not request["group_id"]:
            return {"error_code": ErrorCode.INVALID_GROUP_ID}
        if version < _FIRST_VERSION_WITH_MEMBERS:
            if group is None:
                return {"error_code": ErrorCode.UNKNOWN_MEMBER_ID}
            return {"error_code": group.leave(request["member_id"], None)}
        return {
            "members": [
                {name: each[name] for name in ("member_id", "group_instance_id")}
                | {
                    "error_code": ErrorCode.UNKNOWN_MEMBER_ID if group is None else group.leave(
                        each["member_id"], each["group_instance_id"]
                    )
                }
                for each in request["members"]
            ]
        }

    # Offsets

    def offset_commit(self, request: Values, version: int) -> Values:
        """Keep offsets in memory; the directories are not changed."""
        group_id = request["group_id"]
        error = self._commit_error(request)
        topics = []
        for topic, asked in self._named(request["topics"], version):
            rows = []
            for row in asked["partitions"]:
                place = topic or "", row["partition_index"]
                wrong = error
                if not wrong and self.catalog.log(*place) is None:
                    by_id = version >= _FIRST_VERSION_WITH_TOPIC_IDS and topic is None
                    wrong = (
                        ErrorCode.UNKNOWN_TOPIC_ID if by_id
                        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    )
                if not wrong:
                    self._commits.setdefault(group_id, {})[place] = Commit(
                        row["committed_offset"],
                        row["committed_leader_epoch"],
                        row["committed_metadata"],
                    )
                rows.append({"partition_index": row["partition_index"], "error_code": wrong})
            topics.append({
                "name": asked["name"], "topic_id": asked["topic_id"], "partitions": rows,
            })
        return {"topics": topics}

    def _commit_error(self, request: Values) -> ErrorCode:
        group = self.groups.get(request["group_id"])
        generation = request["generation_id_or_member_epoch"]
        is_simple = generation == NO_GENERATION
        if group is None:
            return ErrorCode.NONE if is_simple else ErrorCode.ILLEGAL_GENERATION
        if is_simple and group.state is ClassicState.EMPTY:
            return ErrorCode.NONE
        error = group.check(request["member_id"], request["group_instance_id"], generation)
        if not error:
            group.keep_alive(group.members[request["member_id"]])
            if group.state is ClassicState.COMPLETING_REBALANCE:
                return ErrorCode.REBALANCE_IN_PROGRESS
        return error

    def offset_fetch(self, request: Values, version: int) -> Values:
        """Return committed offsets: of this server, or else those in the directories."""
        if version < _FIRST_VERSION_WITH_GROUPS:
            return {"topics": self._offsets(request["group_id"], request["topics"], version)}
        return {
            "groups": [
                {
                    "group_id": each["group_id"],
                    "topics": self._offsets(each["group_id"], each["topics"], version),
                }
                for each in request["groups"]
            ]
        }

    def _offsets(
        self, group_id: str, asked: tuple[Values, ...] | None, version: int
    ) -> list[Values]:
        commits = self._stored.get(group_id, {}) | self._commits.get(group_id, {})
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
        log = None if topic is None else self.catalog.log(topic, partition)
        is_known = log is not None and found.leader_epoch <= log.leader_epoch
        return {
            "partition_index": partition,
            "committed_offset": found.offset,
            "committed_leader_epoch": found.leader_epoch if is_known else UNKNOWN_EPOCH,
            "metadata": found.metadata,
            "error_code": error,
        }

    def _id_of(self, topic: str) -> str | None:
        found = self.catalog.topics.get(topic)
        return None if found is None else found.topic_id

    def _named(
        self, topics: tuple[Values, ...], version: int
    ) -> Iterator[tuple[str | None, Values]]:
        """Yield the topics of a request with their names; None for an unknown id."""
        for each in topics:
            if version < _FIRST_VERSION_WITH_TOPIC_IDS:
                yield each["name"], each
            else:
                found = self.catalog.topics_by_id.get(each["topic_id"])
                yield (None if found is None else found.name), each

    # What administrators see

    def list_groups(self, request: Values, _version: int) -> Values:
        """List the groups of this server, and those that have offsets in the directories."""
        names = sorted({*self.groups, *self._stored, *self._commits})
        states = {each.lower() for each in request["states_filter"]}
        types = {each.lower() for each in request["types_filter"]}
        return {
            "groups": [
                {
                    "group_id": name,
                    "protocol_type": "" if group is None else group.protocol_type or "",
                    "group_state": state,
                    "group_type": _CLASSIC,
                }
                for name in names
                for group in [self.groups.get(name)]
                for state in [ClassicState.EMPTY if group is None else group.state]
                if (not states or state.lower() in states) and (not types or _CLASSIC in types)
            ]
        }

    def describe_groups(self, request: Values, version: int) -> Values:
        """Describe groups with their members."""
        operations = {}
        if request["include_authorized_operations"]:
            operations["authorized_operations"] = _READ
        return {
            "groups": [
                self._described(name, version) | operations
                for name in request["groups"]
            ]
        }

    def _described(self, name: str, version: int) -> Values:
        group = self.groups.get(name)
        if group is None:
            is_stored = name in self._stored or name in self._commits
            found: Values = {
                "group_id": name,
                "group_state": ClassicState.EMPTY if is_stored else _DEAD,
                "protocol_type": "",
            }
            if not is_stored and version >= _FIRST_DESCRIBE_WITH_ERRORS:
                found["error_code"] = ErrorCode.GROUP_ID_NOT_FOUND
                found["error_message"] = f"Group {name} not found."
            return found
        is_stable = group.state is ClassicState.STABLE
        return {
            "group_id": name,
            "group_state": group.state,
            "protocol_type": group.protocol_type or "",
            "protocol_data": group.protocol or "" if is_stable else "",
            "members": [
                {
                    "member_id": each.member_id,
                    "group_instance_id": each.instance_id,
                    "client_id": each.client_id,
                    "client_host": f"/{each.client_host}",
                    "member_metadata": each.metadata(group.protocol) if is_stable else b"",
                    "member_assignment": each.assignment,
                }
                for each in group.members.values()
            ],
        }
