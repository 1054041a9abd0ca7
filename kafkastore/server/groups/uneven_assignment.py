"""The uniform assignment to members that subscribe to different topics.

Source: Kafka 4.3.1 ``UniformHeterogeneousAssignmentBuilder``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from kafkastore.server.groups.assigned_member import AssignedMember, Assignment, Place

_MOST_ROUNDS = 16


class UnevenAssignment:
    """The owners of partitions while they are balanced, by the members' numbers."""

    def __init__(
        self, members: Sequence[AssignedMember], partitions: Mapping[str, Sequence[int]]
    ) -> None:
        self._members, self._partitions = members, partitions
        self._subscribers: dict[str, list[int]] = defaultdict(list)
        self.sizes = [0] * len(members)
        self._owners: dict[str, dict[int, int]] = defaultdict(dict)
        for number, member in enumerate(members):
            for topic_id in member.topic_ids:
                self._subscribers[topic_id].append(number)

    def build(self) -> dict[str, Assignment]:
        """Keep what members may keep, assign the rest, balance."""
        for number, member in enumerate(self._members):
            for topic_id, partition in member.assigned:
                if topic_id in member.topic_ids:
                    self._give(topic_id, partition, number)
        for topic_id in self._sorted(self._subscribers):
            members = Balancer(self._subscribers[topic_id], self.sizes)
            for partition in self._partitions[topic_id]:
                if partition not in self._owners[topic_id]:
                    self._give(topic_id, partition, members.next_least_loaded())
        self._balance()
        found: list[set[Place]] = [set() for _ in self._members]
        for topic_id, owners in self._owners.items():
            for partition, number in owners.items():
                found[number].add((topic_id, partition))
        return {
            member.member_id: frozenset(places)
            for member, places in zip(self._members, found, strict=True)
        }

    def _sorted(self, topic_ids: Mapping[str, object] | list[str]) -> list[str]:
        """Sort topics: those with the most partitions for a subscriber first."""
        def order(topic_id: str) -> tuple[float, int, str]:
            subscribers = len(self._subscribers[topic_id])
            return -len(self._partitions[topic_id]) / subscribers, subscribers, topic_id

        return sorted(topic_ids, key=order)

    def _give(self, topic_id: str, partition: int, member: int) -> None:
        owners = self._owners[topic_id]
        if partition in owners:
            self.sizes[owners[partition]] -= 1
        owners[partition] = member
        self.sizes[member] += 1

    def _balance(self) -> None:
        """Balance topic after topic until a round changes nothing."""
        topic_ids = self._sorted([
            topic_id for topic_id, each in self._subscribers.items() if len(each) > 1
        ])
        last = -1
        for _ in range(_MOST_ROUNDS):
            for index, topic_id in enumerate(topic_ids):
                if index == last:
                    return
                if self._balance_topic(topic_id) or last == -1:
                    last = index

    def _balance_topic(self, topic_id: str) -> int:
        """Move partitions of a topic to the least loaded members; return how many."""
        members = Balancer(self._subscribers[topic_id], self.sizes)
        if members.imbalance <= 1:
            return 0
        owned: dict[int, list[int]] = defaultdict(list)
        for partition in self._partitions[topic_id]:
            owned[self._owners[topic_id][partition]].append(partition)
        moved = 0
        while not members.is_balanced:
            while (most := members.next_most_loaded()) is not None and not owned.get(most):
                members.exclude_most_loaded()
            if most is None:
                break
            partition = owned[most].pop()
            least = members.next_least_loaded()
            if members.is_balanced:
                break
            self._give(topic_id, partition, least)
            moved += 1
        return moved


class Balancer:
    """The members of a topic by load: who gets the next partition, and who gives it.

    Both ends are ranges of members with one load, which widen as partitions move.
    """

    def __init__(self, members: Sequence[int], sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._sorted = sorted(members, key=lambda each: (sizes[each], each))
        least, most = sizes[self._sorted[0]], sizes[self._sorted[-1]]
        self.imbalance = most - least
        self._least_end, self._least_load, self._next_least = 0, least - 1, 0
        self._most_start = self._most_end = len(self._sorted)
        self._most_load, self._next_most = most + 1, len(self._sorted) - 1

    @property
    def is_balanced(self) -> bool:
        """Whether no move would make the loads more equal."""
        return self._most_load - self._least_load <= 1

    def next_least_loaded(self) -> int:
        """Return the member that gets the next partition."""
        if self._next_least >= self._least_end:
            self._least_load += 1
            while (
                self._least_end < len(self._sorted)
                and self._sizes[self._sorted[self._least_end]] == self._least_load
            ):
                self._least_end += 1
            self._next_least = 0
        found = self._sorted[self._next_least]
        self._next_least += 1
        return found

    def next_most_loaded(self) -> int | None:
        """Return the member that gives the next partition; None if there is none."""
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                self._most_load = self._sizes[self._sorted[self._most_start - 1]]
            else:
                self._most_load -= 1
            while (
                self._most_start > 0
                and self._sizes[self._sorted[self._most_start - 1]] == self._most_load
            ):
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return None
        found = self._sorted[self._next_most]
        self._next_most -= 1
        return found

    def exclude_most_loaded(self) -> None:
        """Take the member that was returned last out of those that give."""
        at, last = self._next_most + 1, self._most_end - 1
        self._sorted[at], self._sorted[last] = self._sorted[last], self._sorted[at]
        self._most_end -= 1
