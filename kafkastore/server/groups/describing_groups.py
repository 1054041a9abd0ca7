"""What administrators see of groups.

Source: Kafka 4.3.1 ``GroupMetadataManager``, ``ConsumerGroupMember``.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.server.groups.assigned_member import Place
from kafkastore.server.groups.classic_group import ClassicState
from kafkastore.server.groups.consumer_group import NOTHING, ConsumerGroup
from kafkastore.server.groups.consumer_member import ConsumerMember, by_topic
from kafkastore.server.groups.group_error import GroupRequestError
from kafkastore.server.groups.known_groups import CLASSIC, CONSUMER, KnownGroups

#: Operations that clients may do, as bits by Kafka's numbers: READ, DELETE, DESCRIBE.
_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8
_DEAD = "Dead"
_FIRST_DESCRIBE_WITH_ERRORS = 6
_NEW_MEMBER = 1


class DescribingGroups:
    """The answers of the group coordinator to administrators."""

    def __init__(self, groups: KnownGroups) -> None:
        self._groups = groups

    def list_groups(self, request: Values, _version: int) -> Values:
        """List the groups of this server, and those that have committed offsets."""
        states = {each.lower().strip() for each in request["states_filter"]}
        types = {each.lower() for each in request["types_filter"]}
        return {
            "groups": [
                row for row in map(self._listed, sorted(self._groups.names))
                if (not states or row["group_state"].lower() in states)
                and (not types or row["group_type"] in types)
            ]
        }

    def _listed(self, name: str) -> Values:
        group = self._groups.by_id.get(name)
        if isinstance(group, ConsumerGroup):
            kind, protocol_type = CONSUMER, CONSUMER
        else:
            kind = CLASSIC
            protocol_type = "" if group is None else group.protocol_type or ""
        return {
            "group_id": name,
            "protocol_type": protocol_type,
            "group_state": ClassicState.EMPTY if group is None else group.state,
            "group_type": kind,
        }

    def describe_groups(self, request: Values, version: int) -> Values:
        """Describe groups of the classic protocol with their members."""
        return {
            "groups": [
                self._classic(name, version) | _operations(request)
                for name in request["groups"]
            ]
        }

    def _classic(self, name: str, version: int) -> Values:
        group = self._groups.classic(name)
        if group is None:
            is_empty = name in self._groups.names and name not in self._groups.by_id
            found: Values = {
                "group_id": name,
                "group_state": ClassicState.EMPTY if is_empty else _DEAD,
                "protocol_type": "",
            }
            if not is_empty and version >= _FIRST_DESCRIBE_WITH_ERRORS:
                is_other = name in self._groups.by_id
                found["error_code"] = ErrorCode.GROUP_ID_NOT_FOUND
                found["error_message"] = (
                    f"Group {name} is not a classic group." if is_other
                    else f"Group {name} not found."
                )
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

    def describe_consumer_groups(self, request: Values, _version: int) -> Values:
        """Describe groups of the new protocol with their members and assignments."""
        return {
            "groups": [
                self._consumer(name) | _operations(request) for name in request["group_ids"]
            ]
        }

    def _consumer(self, name: str) -> Values:
        try:
            group = self._groups.consumer(name)
        except GroupRequestError as error:
            return {
                "group_id": name, "error_code": error.error, "error_message": error.problem,
            }
        return {
            "group_id": name,
            "group_state": group.state,
            "group_epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
            "assignor_name": group.assignor,
            "members": [self._member(group, each) for each in group.members.values()],
        }

    def _member(self, group: ConsumerGroup, member: ConsumerMember) -> Values:
        return {
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "rack_id": member.rack_id,
            "member_epoch": member.epoch,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "subscribed_topic_names": sorted(member.topics),
            "subscribed_topic_regex": member.regex or None,
            "assignment": self._assignment({*member.assigned, *member.revoking}),
            "target_assignment": self._assignment(group.target.get(member.member_id, NOTHING)),
            "member_type": _NEW_MEMBER,
        }

    def _assignment(self, places: Iterable[Place]) -> Values:
        topics = self._groups.catalog.topics_by_id
        return {
            "topic_partitions": [
                each | {"topic_name": topics[each["topic_id"]].name}
                for each in by_topic(places) if each["topic_id"] in topics
            ]
        }


def _operations(request: Values) -> Values:
    """Return what clients may do, if they ask for it."""
    if not request["include_authorized_operations"]:
        return {}
    return {"authorized_operations": _OPERATIONS}
