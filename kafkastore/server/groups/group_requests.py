"""Requests of members: they join, get partitions, stay and leave.

Source: Kafka 4.3.1 ``GroupCoordinatorService``, ``GroupMetadataManager``.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.server.catalog import Node
from kafkastore.server.groups.assignors import ASSIGNORS
from kafkastore.server.groups.classic_group import SESSION_TIMEOUTS, ClassicGroup
from kafkastore.server.groups.classic_member import error_to_join
from kafkastore.server.groups.consumer_group import ConsumerGroup
from kafkastore.server.groups.consumer_member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_FOR_NOW_EPOCH,
)
from kafkastore.server.groups.group_error import GroupRequestError
from kafkastore.server.groups.known_groups import KnownGroups, is_empty

#: Kinds of keys that have a coordinator: groups and transactional ids.
_COORDINATORS = (0, 1)
#: What brokers say before version 4, of `ErrorCode.NONE`.
_NO_ERROR = "NONE"
_FIRST_VERSION_WITH_KEYS = 4
_FIRST_VERSION_WITH_MEMBERS = 3
_FIRST_HEARTBEAT_WITH_MEMBER_ID = 1
_FIRST_JOIN_WITHOUT_PROTOCOL = 7
_FIRST_SYNC_WITH_PROTOCOL = 5


class GroupRequests:
    """The answers of the group coordinator to members."""

    def __init__(self, groups: KnownGroups, node: Node) -> None:
        self._groups, self._node = groups, node

    def find_coordinator(self, request: Values, version: int) -> Values:
        """Name the one node for every group and transactional id."""
        if request["key_type"] in _COORDINATORS:
            text = _NO_ERROR if version < _FIRST_VERSION_WITH_KEYS else ""
            found = {"error_message": text, **self._node._asdict()}
        else:
            error = ErrorCode.INVALID_REQUEST
            found = {
                "error_code": error, "error_message": error.name,
                "node_id": -1, "host": "", "port": -1,
            }
        if version < _FIRST_VERSION_WITH_KEYS:
            return found
        return {"coordinators": [{"key": key} | found for key in request["coordinator_keys"]]}

    # The new protocol

    def consumer_group_heartbeat(
        self, request: Values, version: int, client_id: str, host: str
    ) -> Values:
        """Let a member join, stay or leave; give it partitions, or take them away."""
        try:
            _check_heartbeat(request, version)
            group_id, epoch = request["group_id"], request["member_epoch"]
            if size := _size(request):
                self._groups.check_room(size)
            if epoch == JOINING_EPOCH:
                group = self._groups.joined_consumer(group_id)
            else:
                group = self._groups.consumer(group_id)
            return group.heartbeat(request, client_id, f"/{host}")
        except GroupRequestError as error:
            return {"error_code": error.error, "error_message": error.problem}

    # The classic protocol

    async def join_group(
        self, request: Values, version: int, client_id: str, host: str
    ) -> Values:
        """Let a member join, when all others have."""
        answer = await self._joined(request, version, client_id, host)
        if version < _FIRST_JOIN_WITHOUT_PROTOCOL and answer["protocol_name"] is None:
            answer["protocol_name"] = ""
        return answer

    async def _joined(
        self, request: Values, version: int, client_id: str, host: str
    ) -> Values:
        group_id, member_id = request["group_id"], request["member_id"]
        if not group_id:
            return error_to_join(ErrorCode.INVALID_GROUP_ID, member_id)
        if request["session_timeout_ms"] not in SESSION_TIMEOUTS:
            return error_to_join(ErrorCode.INVALID_SESSION_TIMEOUT, member_id)
        try:
            self._groups.check_room(sum(len(each["metadata"]) for each in request["protocols"]))
            known = self._groups.by_id.get(group_id)
            is_classic = isinstance(known, ClassicGroup)
            if member_id and not is_classic and (known is None or is_empty(known)):
                is_known = group_id in self._groups.names
                has_protocol = request["protocol_type"] and request["protocols"]
                return error_to_join(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL if is_known and not has_protocol
                    else ErrorCode.UNKNOWN_MEMBER_ID,
                    member_id,
                )
            group = self._groups.joined_classic(group_id)
            return await group.join(request, version, client_id, host)
        except GroupRequestError as error:
            return error_to_join(error.error)

    async def sync_group(self, request: Values, version: int) -> Values:
        """Give a member its assignment, when the leader has sent it."""
        if version >= _FIRST_SYNC_WITH_PROTOCOL and None in (
            request["protocol_type"], request["protocol_name"]
        ):
            return {"error_code": ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
        group = self._groups.classic(request["group_id"])
        if group is None:
            return {"error_code": _unknown_member(request)}
        try:
            self._groups.check_room(
                sum(len(each["assignment"]) for each in request["assignments"])
            )
        except GroupRequestError as error:
            return {"error_code": error.error}
        return await group.sync(request)

    def heartbeat(self, request: Values, _version: int) -> Values:
        """Keep a member alive."""
        group = self._groups.classic(request["group_id"])
        error = _unknown_member(request) if group is None else group.heartbeat(request)
        return {"error_code": error}

    def leave_group(self, request: Values, version: int) -> Values:
        """Let members leave; administrators also name members of the new protocol."""
        if not request["group_id"]:
            return {"error_code": ErrorCode.INVALID_GROUP_ID}
        group = self._groups.by_id.get(request["group_id"])
        if version < _FIRST_VERSION_WITH_MEMBERS:
            return {"error_code": _left(group, request["member_id"], None)}
        return {
            "members": [
                {name: each[name] for name in ("member_id", "group_instance_id")}
                | {"error_code": _left(group, each["member_id"], each["group_instance_id"])}
                for each in request["members"]
            ]
        }


def _unknown_member(request: Values) -> ErrorCode:
    """Return the error for a member of a group that is not here."""
    return ErrorCode.UNKNOWN_MEMBER_ID if request["group_id"] else ErrorCode.INVALID_GROUP_ID


def _left(
    group: ClassicGroup | ConsumerGroup | None, member_id: str, instance_id: str | None
) -> ErrorCode:
    return (
        ErrorCode.UNKNOWN_MEMBER_ID if group is None else group.leave(member_id, instance_id)
    )


def _size(request: Values) -> int:
    """Return about how much of a heartbeat a member keeps."""
    names: Sequence[str] = request["subscribed_topic_names"] or ()
    return sum(map(len, names)) + len(request["subscribed_topic_regex"] or "")


def _check_heartbeat(request: Values, version: int) -> None:
    """Refuse a heartbeat that makes no sense in any group."""
    epoch = request["member_epoch"]
    needs_id = version >= _FIRST_HEARTBEAT_WITH_MEMBER_ID or epoch > 0 or epoch == LEAVING_EPOCH
    if needs_id and not request["member_id"].strip():
        raise _invalid("MemberId can't be empty.")
    for name, value in (
        ("GroupId", request["group_id"]), ("InstanceId", request["instance_id"]),
        ("RackId", request["rack_id"]),
    ):
        if value is not None and not value.strip():
            raise _invalid(f"{name} can't be empty.")
    if epoch == JOINING_EPOCH:
        if request["rebalance_timeout_ms"] == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request["topic_partitions"] is None or request["topic_partitions"]:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request["subscribed_topic_names"] is None and request["subscribed_topic_regex"] is None:
            raise _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    elif epoch == LEAVING_FOR_NOW_EPOCH and request["instance_id"] is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVING_FOR_NOW_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    assignor = request["server_assignor"]
    if assignor is not None and assignor not in ASSIGNORS:
        raise GroupRequestError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: "
            f"{', '.join(ASSIGNORS)}.",
        )


def _invalid(problem: str) -> GroupRequestError:
    return GroupRequestError(ErrorCode.INVALID_REQUEST, problem)
