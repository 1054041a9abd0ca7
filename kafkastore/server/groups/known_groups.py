"""All groups of a server, of both protocols, with their bounds.

A group that has no members is of the protocol of its next member. A group with members is not
converted, as in a broker with ``group.consumer.migration.policy=disabled``.

Source: Kafka 4.3.1 ``GroupMetadataManager``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.server.catalog import Catalog
from kafkastore.server.groups.classic_group import ClassicGroup, ClassicState
from kafkastore.server.groups.committed import CommittedOffsets
from kafkastore.server.groups.consumer_group import ConsumerGroup, ConsumerGroupState
from kafkastore.server.groups.group_error import (
    MAX_GROUPS,
    MAX_MEMBER_BYTES,
    GroupRequestError,
)

Group = ClassicGroup | ConsumerGroup
GroupT = TypeVar("GroupT", ClassicGroup, ConsumerGroup)
CLASSIC, CONSUMER = "classic", "consumer"


@dataclass
class KnownGroups:
    """The groups that have had members, and the committed offsets of all."""

    catalog: Catalog
    offsets: CommittedOffsets
    by_id: dict[str, Group] = field(default_factory=dict)

    def classic(self, group_id: str) -> ClassicGroup | None:
        """Return a group of the classic protocol, if it is one."""
        found = self.by_id.get(group_id)
        return found if isinstance(found, ClassicGroup) else None

    def consumer(self, group_id: str) -> ConsumerGroup:
        """Return a group of the new protocol; raise `GroupRequestError`."""
        found = self.by_id.get(group_id)
        if isinstance(found, ConsumerGroup):
            return found
        is_known = group_id in self.names
        raise GroupRequestError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {group_id} is not a consumer group." if is_known
            else f"Group {group_id} not found.",
        )

    def joined_classic(self, group_id: str) -> ClassicGroup:
        """Return the group that a member joins by the classic protocol."""
        return self._joined(
            group_id, ClassicGroup, lambda: ClassicGroup(group_id), GroupRequestError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Cannot join the consumer group {group_id} with the classic protocol because the "
                "group migration is disabled.",
            ),
        )

    def joined_consumer(self, group_id: str) -> ConsumerGroup:
        """Return the group that a member joins by the new protocol."""
        return self._joined(
            group_id, ConsumerGroup, lambda: ConsumerGroup(group_id, self.catalog),
            GroupRequestError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade classic group {group_id} to consumer group because online "
                "upgrade is disabled.",
            ),
        )

    def _joined(
        self, group_id: str, kind: type[GroupT], new: Callable[[], GroupT],
        other: GroupRequestError,
    ) -> GroupT:
        found = self.by_id.get(group_id)
        if isinstance(found, kind):
            return found
        if found is not None:
            if not is_empty(found):
                raise other
            found.close()
        elif len(self.by_id) >= MAX_GROUPS:
            self._make_room()
        made = self.by_id[group_id] = new()
        return made

    def _make_room(self) -> None:
        """Forget a group that has neither members nor offsets, or refuse a new one."""
        for group_id, group in self.by_id.items():
            if is_empty(group) and not self.offsets.of(group_id):
                group.close()
                del self.by_id[group_id]
                return
        raise GroupRequestError(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"There are {MAX_GROUPS} groups already."
        )

    def check_room(self, size: int) -> None:
        """Refuse a member's request of a size if all members together hold too much."""
        if size + sum(each.size for each in self.by_id.values()) > MAX_MEMBER_BYTES:
            raise GroupRequestError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The members of all groups hold {MAX_MEMBER_BYTES} bytes already.",
            )

    @property
    def names(self) -> set[str]:
        """The ids of all groups."""
        return {*self.by_id, *self.offsets.groups}

    def close(self) -> None:
        """End all timers."""
        for group in self.by_id.values():
            group.close()


def is_empty(group: Group) -> bool:
    """Whether a group has no members."""
    return group.state in (ClassicState.EMPTY, ConsumerGroupState.EMPTY)
