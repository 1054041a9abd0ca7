"""The assignors `range` and `uniform`, which divide partitions among members.

Source: Kafka 4.3.1 ``RangeAssignor``, ``UniformAssignor``, ``UniformHomogeneousAssignmentBuilder``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kafkastore.server.groups.assigned_member import AssignedMember, Assignment, Place
from kafkastore.server.groups.uneven_assignment import UnevenAssignment

RANGE, UNIFORM = "range", "uniform"


@dataclass(frozen=True)
class Assigning:
    """What an assignor divides: the partitions of topics, among members in order.

    `is_homogeneous`: all members subscribe to the same topics.
    """

    members: Sequence[AssignedMember]
    partitions: Mapping[str, Sequence[int]]
    is_homogeneous: bool


Assignor = Callable[[Assigning], Mapping[str, Assignment]]


@dataclass
class _Ranges:
    """The ranges of a topic's partitions, one for each of its members."""

    partitions: Sequence[int]
    members: int = 0
    _given: int = field(default=0, init=False)
    _members_given: int = field(default=0, init=False)

    def next(self) -> Sequence[int]:
        """Return the next member's range; the first ones are larger by one."""
        quota, extra = divmod(len(self.partitions), self.members)
        start = self._given
        self._given += quota + (self._members_given < extra)
        self._members_given += 1
        return self.partitions[start : self._given]


def assign_ranges(asked: Assigning) -> Mapping[str, Assignment]:
    """Give each member a range of each of its topics."""
    ordered = sorted(
        asked.members, key=lambda each: (each.instance_id is None, each.instance_id or each[0])
    )
    topics: dict[str, _Ranges] = {}
    for member in ordered:
        for topic_id in member.topic_ids:
            topics.setdefault(topic_id, _Ranges(asked.partitions[topic_id])).members += 1
    return {
        member.member_id: frozenset(
            (topic_id, number)
            for topic_id in member.topic_ids
            for number in topics[topic_id].next()
        )
        for member in ordered
    }


def assign_uniformly(asked: Assigning) -> Mapping[str, Assignment]:
    """Give all members as many partitions as possible alike; each keeps what it can."""
    if not asked.members:
        return {}
    if asked.is_homogeneous:
        return _assign_evenly(asked)
    return UnevenAssignment(asked.members, asked.partitions).build()


def _assign_evenly(asked: Assigning) -> Mapping[str, Assignment]:
    """Divide partitions among members that all subscribe to the same topics."""
    topic_ids = sorted(asked.members[0].topic_ids)
    places = [(each, number) for each in topic_ids for number in asked.partitions[each]]
    owned = {place for member in asked.members for place in member.assigned}
    free = [place for place in places if place not in owned]
    quota, extra = divmod(len(places), len(asked.members))
    found: dict[str, set[Place]] = {}
    unfilled: list[tuple[str, int]] = []
    for index, member in enumerate(asked.members):
        room, has_extra = (quota + 1, True) if extra > 0 else (quota, False)
        kept = found[member.member_id] = set()
        for place in sorted(member.assigned):
            if place[0] not in topic_ids:
                continue
            if room > 0:
                kept.add(place)
                room -= 1
            else:
                free.append(place)
        # The larger quotas go to members that fill them, if there are enough of these.
        if room > 0 and has_extra and len(asked.members) - index > extra:
            room, has_extra = room - 1, False
        if room > 0:
            unfilled.append((member.member_id, room))
        extra -= has_extra
    at = 0
    for member_id, room in unfilled:
        found[member_id].update(free[at : at + room])
        at += room
    return {member_id: frozenset(each) for member_id, each in found.items()}


ASSIGNORS: Mapping[str, Assignor] = {UNIFORM: assign_uniformly, RANGE: assign_ranges}
"""The assignors by name; the first is the default."""
