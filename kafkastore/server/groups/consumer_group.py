"""A consumer group of the new protocol, in which the server assigns partitions.

Each change of members, subscriptions or topics raises the group's epoch, and the next heartbeat
makes a target assignment for it. `Reconciliation` leads each member there.

Everything runs in one event loop, so nothing here has a lock.

Source: Kafka 4.3.1 ``ConsumerGroup``, ``GroupMetadataManager.consumerGroupHeartbeat`` and what
follows it, with ``group.consumer.assignment.interval.ms=0``.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.state.checkpoints import encode_id
from kafkastore.server.catalog import Catalog, ServedTopic
from kafkastore.server.groups.assigned_member import AssignedMember, Assignment, Place
from kafkastore.server.groups.assignors import ASSIGNORS, Assigning
from kafkastore.server.groups.consumer_member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_FOR_NOW_EPOCH,
    ConsumerMember,
    MemberState,
    Reconciliation,
    by_topic,
    check_epoch,
    is_homogeneous,
    owned_partitions,
    preferred_assignor,
    updated_member,
)
from kafkastore.server.groups.group_error import (
    MAX_MEMBERS,
    MAX_SUBSCRIPTION_BYTES,
    GroupRequestError,
)
from kafkastore.server.groups.topic_regex import check_regex, match_topics

NOTHING: Assignment = frozenset()
_FIRST_EPOCH = 1


@dataclass
class ConsumerGroupConfig:
    """Kafka's configurations ``group.consumer.*``, ms."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5000


GROUP_CONFIG = ConsumerGroupConfig()


class ConsumerGroupState(StrEnum):
    """The state of a group; the values are what clients see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(eq=False)
class ConsumerGroup:
    """The members of a group, their target assignment and their way to it.

    `resolved` are the topics that each regular expression matches.
    """

    group_id: str
    catalog: Catalog
    epoch: int = _FIRST_EPOCH
    assignment_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    target: dict[str, Assignment] = field(default_factory=dict)
    resolved: dict[str, frozenset[str]] = field(default_factory=dict)
    _owners: dict[Place, str] = field(default_factory=dict)
    _metadata: frozenset[object] = frozenset()
    _topics: Mapping[str, ServedTopic] | None = None
    _resolved_for: Mapping[str, ServedTopic] | None = None
    _resolving: asyncio.Task[None] | None = None
    _sessions: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    _rebalances: dict[str, asyncio.TimerHandle] = field(default_factory=dict)

    @property
    def state(self) -> ConsumerGroupState:
        """What the group is doing."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(each.is_reconciled_to(self.assignment_epoch) for each in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for."""
        return preferred_assignor(self.members.values())

    @property
    def size(self) -> int:
        """How many bytes its members sent that it keeps."""
        return sum(
            len(each.regex) + sum(map(len, each.topics)) for each in self.members.values()
        )

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the member of an instance."""
        if instance_id is None:
            return None
        return next(
            (each for each in self.members.values() if each.instance_id == instance_id), None
        )

    # Heartbeats

    def heartbeat(self, request: Values, client_id: str, host: str) -> Values:
        """Answer a member; raise `GroupRequestError`."""
        if request["member_epoch"] in (LEAVING_EPOCH, LEAVING_FOR_NOW_EPOCH):
            return self._leave(request)
        member_id = request["member_id"] or encode_id(uuid.uuid4().bytes)
        self._check_room(request, member_id)
        old, replaced = self._found(request, member_id)
        owned = owned_partitions(request)
        member = updated_member(old, request, client_id, host)
        members = {name: each for name, each in self.members.items() if each is not replaced}
        members[member_id] = member
        has_new_topics, has_new_regex = member.topics != old.topics, member.regex != old.regex
        if has_new_regex and member.regex:
            check_regex(member.regex)
        is_resolved = has_new_regex and (not member.regex or member.regex in self.resolved)
        if replaced is not None:
            self._replace(replaced, old)
        self._raise_epoch(members, is_changed=has_new_topics or is_resolved)
        self._assign(members)
        step = Reconciliation(
            self.assignment_epoch, self.target.get(member_id, NOTHING), self._topic_ids(member),
            owned, lambda place: place not in self._owners, has_new_topics or has_new_regex,
        )
        reconciled = step.next(member)
        self._put(old, reconciled)
        self._watch_rebalance(member, reconciled)
        self._forget_regexes()
        self._resolve_regexes()
        self.keep_alive(member_id)
        is_full = (
            request["rebalance_timeout_ms"] != -1
            and (
                request["subscribed_topic_names"] is not None
                or request["subscribed_topic_regex"] is not None
            )
            and owned is not None
        )
        has_news = reconciled.assigned != old.assigned
        return {
            "member_id": member_id,
            "member_epoch": reconciled.epoch,
            "heartbeat_interval_ms": GROUP_CONFIG.heartbeat_interval_ms,
            "assignment": {"topic_partitions": by_topic(reconciled.assigned)}
            if request["member_epoch"] == JOINING_EPOCH or is_full or has_news else None,
        }

    def _check_room(self, request: Values, member_id: str) -> None:
        """Refuse a member, or a subscription, that would be too much."""
        names: Iterable[str] = request["subscribed_topic_names"] or ()
        is_full = member_id not in self.members and len(self.members) >= MAX_MEMBERS
        if is_full or (names and sum(map(len, names)) + self.size > MAX_SUBSCRIPTION_BYTES):
            raise GroupRequestError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {MAX_MEMBERS} members or "
                f"{MAX_SUBSCRIPTION_BYTES} bytes of topics.",
            )

    def _found(
        self, request: Values, member_id: str
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """Return the member before the request, and the one that it replaces."""
        instance_id, epoch = request["instance_id"], request["member_epoch"]
        known = self.members.get(member_id)
        if instance_id is not None:
            known = self.static_member(instance_id)
            if epoch == JOINING_EPOCH and known is not None:
                if known.epoch != LEAVING_FOR_NOW_EPOCH:
                    raise GroupRequestError(
                        ErrorCode.UNRELEASED_INSTANCE_ID,
                        f"Static member {member_id} with instance id {instance_id} cannot join "
                        f"the group because the instance id is owned by {known.member_id} member.",
                    )
                return known.replaced_by(member_id), known
            if epoch != JOINING_EPOCH:
                known = self._check_instance(member_id, instance_id)
        if epoch == JOINING_EPOCH:
            return known or self.members.get(member_id) or ConsumerMember(member_id), None
        known = known or self._known(member_id)
        check_epoch(known, epoch, owned_partitions(request))
        return known, None

    def _known(self, member_id: str) -> ConsumerMember:
        if member_id in self.members:
            return self.members[member_id]
        raise GroupRequestError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member_id} is not a member of group {self.group_id}.",
        )

    def _check_instance(self, member_id: str, instance_id: str) -> ConsumerMember:
        known = self.static_member(instance_id)
        if known is None:
            raise GroupRequestError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown."
            )
        if known.member_id != member_id:
            raise GroupRequestError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{known.member_id}.",
            )
        return known

    def _put(self, old: ConsumerMember, member: ConsumerMember) -> None:
        """Keep a member's new state, and what it owns now."""
        for place in (*old.assigned, *old.revoking):
            if self._owners.get(place) == old.member_id:
                del self._owners[place]
        for place in (*member.assigned, *member.revoking):
            self._owners[place] = member.member_id
        self.members[member.member_id] = member

    def _replace(self, old: ConsumerMember, new: ConsumerMember) -> None:
        """Give a static member's place to its next instance."""
        del self.members[old.member_id]
        self._cancel_timers(old.member_id)
        self.target[new.member_id] = self.target.pop(old.member_id, NOTHING)
        self._put(old, new)

    # Epochs and target assignments

    def _raise_epoch(
        self, members: Mapping[str, ConsumerMember], *, is_changed: bool
    ) -> None:
        """Raise the group's epoch if subscriptions or their topics have changed."""
        if not is_changed and self._topics is self.catalog.topics:
            return
        self._topics = self.catalog.topics
        metadata = self._metadata_of(members)
        if is_changed or metadata != self._metadata:
            self.epoch, self._metadata = self.epoch + 1, metadata

    def _metadata_of(self, members: Mapping[str, ConsumerMember]) -> frozenset[object]:
        """Return what a target assignment depends on, apart from the members."""
        regexes = {each.regex for each in members.values()}
        names = frozenset().union(
            *(each.topics for each in members.values()),
            *(topics for regex, topics in self.resolved.items() if regex in regexes),
        )
        return frozenset(
            (topic.topic_id, *topic.partitions)
            for topic in map(self.catalog.topics.get, names) if topic is not None
        )

    def _assign(self, members: Mapping[str, ConsumerMember]) -> None:
        """Make a target assignment for the group's epoch, unless there is one."""
        if self.assignment_epoch >= self.epoch:
            return
        partitions = {
            topic.topic_id: sorted(topic.partitions) for topic in self.catalog.topics.values()
        }
        there = {(name, each) for name, numbers in partitions.items() for each in numbers}
        assigning = Assigning(
            [
                AssignedMember(
                    name, each.instance_id, self._topic_ids(each),
                    self.target.get(name, NOTHING) & there,
                )
                for name, each in sorted(members.items())
            ],
            partitions,
            is_homogeneous(members.values()),
        )
        found = ASSIGNORS[preferred_assignor(members.values())](assigning)
        self.target = {name: found.get(name, NOTHING) for name in members}
        self.assignment_epoch = self.epoch

    def _topic_ids(self, member: ConsumerMember) -> frozenset[str]:
        """Return the ids of the topics that a member subscribes to, and that exist."""
        names = member.topics | self.resolved.get(member.regex, frozenset())
        topics = map(self.catalog.topics.get, names)
        return frozenset(each.topic_id for each in topics if each is not None)

    def _resolve_regexes(self) -> None:
        """Match regular expressions soon, if one is new or topics have changed."""
        regexes = {each.regex for each in self.members.values() if each.regex}
        is_current = self._resolved_for is self.catalog.topics and regexes <= self.resolved.keys()
        if regexes and not is_current and self._resolving is None:
            self._resolving = asyncio.create_task(self._resolve(regexes, self.catalog.topics))

    async def _resolve(self, regexes: set[str], topics: Mapping[str, ServedTopic]) -> None:
        """Match in a thread, because it may take long; later heartbeats use it."""
        try:
            found = await asyncio.to_thread(
                lambda: {each: match_topics(each, topics) for each in regexes}
            )
        finally:
            self._resolving = None
        self._resolved_for = topics
        has_changed = any(self.resolved.get(each, frozenset()) != found[each] for each in found)
        self.resolved |= found
        self._forget_regexes()
        self._raise_epoch(self.members, is_changed=has_changed)

    def _forget_regexes(self) -> None:
        regexes = {each.regex for each in self.members.values()}
        self.resolved = {name: each for name, each in self.resolved.items() if name in regexes}

    # Leaving

    def _leave(self, request: Values) -> Values:
        member_id, instance_id = request["member_id"], request["instance_id"]
        if instance_id is not None:
            member = self._check_instance(member_id, instance_id)
        else:
            member = self._known(member_id)
        if instance_id is not None and request["member_epoch"] == LEAVING_FOR_NOW_EPOCH:
            self._put(member, member.left_for_now())
        else:
            self.remove(member_id)
        return {"member_id": member_id, "member_epoch": request["member_epoch"]}

    def leave(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Remove a member that an administrator names; a static one by its instance id."""
        try:
            if instance_id is None:
                member = self._known(member_id)
            else:
                known = self.static_member(instance_id)
                named = member_id or (known.member_id if known is not None else "")
                member = self._check_instance(named, instance_id)
        except GroupRequestError as error:
            return error.error
        self.remove(member.member_id)
        return ErrorCode.NONE

    def remove(self, member_id: str) -> None:
        """Remove a member; the others get its partitions with their next heartbeats."""
        member = self.members[member_id]
        self._put(member, replace(member, assigned={}, revoking={}))
        del self.members[member_id]
        self.target.pop(member_id, None)
        self._cancel_timers(member_id)
        self._forget_regexes()
        self.epoch, self._metadata = self.epoch + 1, self._metadata_of(self.members)

    # Timers

    def keep_alive(self, member_id: str) -> None:
        """Expect the member's next heartbeat within the session timeout."""
        if member_id in self._sessions:
            self._sessions[member_id].cancel()
        self._sessions[member_id] = asyncio.get_running_loop().call_later(
            GROUP_CONFIG.session_timeout_ms / 1000, self.remove, member_id
        )

    def _watch_rebalance(self, before: ConsumerMember, member: ConsumerMember) -> None:
        """Expect that a member gives up its partitions within its rebalance timeout."""
        if member == before:
            return
        timer = self._rebalances.pop(member.member_id, None)
        if timer is not None:
            timer.cancel()
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self._rebalances[member.member_id] = asyncio.get_running_loop().call_later(
                member.rebalance_timeout_ms / 1000, self._expire_rebalance, member
            )

    def _expire_rebalance(self, before: ConsumerMember) -> None:
        member = self.members.get(before.member_id)
        if member is not None and member.epoch == before.epoch:
            self.remove(member.member_id)

    def _cancel_timers(self, member_id: str) -> None:
        for timers in (self._sessions, self._rebalances):
            timer = timers.pop(member_id, None)
            if timer is not None:
                timer.cancel()

    def close(self) -> None:
        """End all timers."""
        for member_id in {*self._sessions, *self._rebalances}:
            self._cancel_timers(member_id)
        if self._resolving is not None:
            self._resolving.cancel()
