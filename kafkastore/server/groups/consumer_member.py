"""A member of a group of the new protocol, and its way to its target assignment.

A member first gives up what it is not to read any more, then gets what other members have given
up. Its epoch is that of the last target assignment for which it had nothing more to give up.

Source: Kafka 4.3.1 ``ConsumerGroupMember``, ``CurrentAssignmentBuilder``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.server.groups.assigned_member import Assignment, Place
from kafkastore.server.groups.assignors import ASSIGNORS
from kafkastore.server.groups.group_error import GroupRequestError

JOINING_EPOCH, LEAVING_EPOCH, LEAVING_FOR_NOW_EPOCH = 0, -1, -2
Epochs = Mapping[Place, int]
"""Partitions, each with the member epoch in which the member got it."""


class MemberState(Enum):
    """What a member is waiting for."""

    STABLE = auto()
    UNREVOKED_PARTITIONS = auto()
    UNRELEASED_PARTITIONS = auto()


@dataclass(frozen=True)
class ConsumerMember:
    """A member; `revoking` are partitions that it must give up."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Epochs = field(default_factory=dict)
    revoking: Epochs = field(default_factory=dict)

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it has all of the target assignment of an epoch, and nothing else."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def has_had(self, place: Place, epoch: int) -> bool:
        """Whether it had a partition in an earlier epoch, and has it still."""
        since = self.assigned.get(place, self.revoking.get(place))
        return since is not None and since <= epoch

    def left_for_now(self) -> ConsumerMember:
        """Return it as a static member whose instance will be back."""
        return replace(
            self, epoch=LEAVING_FOR_NOW_EPOCH, revoking={}, assigned=dict.fromkeys(self.assigned, 0)
        )

    def replaced_by(self, member_id: str) -> ConsumerMember:
        """Return the member that continues its instance."""
        return replace(self, member_id=member_id, epoch=0, previous_epoch=0)


@dataclass(frozen=True)
class Reconciliation:
    """The next step of a member towards a target assignment.

    `owned` are the partitions that it says it has; None if it does not say.
    """

    target_epoch: int
    target: Assignment
    topic_ids: frozenset[str]
    owned: Assignment | None
    is_free: Callable[[Place], bool]
    has_subscription_changed: bool

    def next(self, member: ConsumerMember) -> ConsumerMember:
        """Return the member after the step; itself if nothing changes."""
        if member.is_reconciled_to(self.target_epoch) or (
            member.state is MemberState.UNREVOKED_PARTITIONS and self._owns(member.revoking)
        ):
            return self._unsubscribe(member) if self.has_subscription_changed else member
        return self._advance(member)

    def _owns(self, revoked: Epochs) -> bool:
        """Whether the member may still read a partition that it must give up."""
        return self.owned is None or not self.owned.isdisjoint(revoked)

    def _unsubscribe(self, member: ConsumerMember) -> ConsumerMember:
        """Revoke topics that the member no longer subscribes to."""
        kept = {place: each for place, each in member.assigned.items() if self._subscribes(place)}
        if len(kept) == len(member.assigned):
            return member
        revoking = {**member.revoking, **{
            place: each for place, each in member.assigned.items() if place not in kept
        }}
        changed = replace(member, previous_epoch=member.epoch, assigned=kept)
        if not self._owns(revoking):
            return changed
        return replace(changed, state=MemberState.UNREVOKED_PARTITIONS, revoking=revoking)

    def _subscribes(self, place: Place) -> bool:
        return place[0] in self.topic_ids

    def _advance(self, member: ConsumerMember) -> ConsumerMember:
        """Revoke what is not in the target, or else assign what is free of it."""
        target = {place for place in self.target if self._subscribes(place)}
        kept = {place: each for place, each in member.assigned.items() if place in target}
        revoking = {p: each for p, each in member.assigned.items() if p not in target}
        changed = replace(member, previous_epoch=member.epoch, assigned=kept)
        if revoking and self._owns(revoking):
            return replace(changed, state=MemberState.UNREVOKED_PARTITIONS, revoking=revoking)
        missing = target - kept.keys()
        free = {each for each in missing if each in member.revoking or self.is_free(each)}
        return replace(
            changed,
            epoch=self.target_epoch,
            state=(
                MemberState.UNRELEASED_PARTITIONS if free != missing else MemberState.STABLE
            ),
            assigned={**kept, **dict.fromkeys(free, self.target_epoch)},
            revoking={},
        )


def by_topic(places: Iterable[Place]) -> list[Values]:
    """Return partitions as messages have them."""
    found: dict[str, list[int]] = {}
    for topic_id, partition in sorted(places):
        found.setdefault(topic_id, []).append(partition)
    return [{"topic_id": name, "partitions": each} for name, each in found.items()]


def owned_partitions(request: Values) -> Assignment | None:
    """Return the partitions that a member says it has; None if it does not say."""
    topics = request["topic_partitions"]
    return None if topics is None else frozenset(
        (each["topic_id"], number) for each in topics for number in each["partitions"]
    )


def updated_member(
    member: ConsumerMember, request: Values, client_id: str, host: str
) -> ConsumerMember:
    """Return a member with what its request says; null means as before."""
    said = {
        "instance_id": request["instance_id"],
        "rack_id": request["rack_id"],
        "topics": None if request["subscribed_topic_names"] is None
        else frozenset(request["subscribed_topic_names"]),
        "regex": request["subscribed_topic_regex"],
        "assignor": request["server_assignor"],
        "rebalance_timeout_ms": (
            None if request["rebalance_timeout_ms"] == -1 else request["rebalance_timeout_ms"]
        ),
    }
    known = {name: value for name, value in said.items() if value is not None}
    return replace(member, client_id=client_id, client_host=host, **known)


def check_epoch(member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
    """Refuse another epoch than the member's, unless its last response was lost."""
    if epoch == member.epoch:
        return
    was_lost = epoch == member.previous_epoch and owned is not None and (
        owned <= member.assigned.keys()
    )
    if epoch > member.epoch or not was_lost:
        raise GroupRequestError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {'greater' if epoch > member.epoch else 'smaller'} "
            f"member epoch ({epoch}) than the one known by the group coordinator "
            f"({member.epoch}). The member must abandon all its partitions and rejoin.",
        )


def preferred_assignor(members: Iterable[ConsumerMember]) -> str:
    """Return the assignor that most members ask for."""
    wanted = Counter(each.assignor for each in members)
    return max(ASSIGNORS, key=lambda name: wanted[name])


def is_homogeneous(members: Iterable[ConsumerMember]) -> bool:
    """Whether all members subscribe alike, by names or by an expression."""
    subscriptions = {(each.topics, each.regex) for each in members}
    return len(subscriptions) == 1 and not all(next(iter(subscriptions)))
