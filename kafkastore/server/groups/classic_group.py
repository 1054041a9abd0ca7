"""A consumer group of the classic protocol.

Members join, their leader assigns partitions, heartbeats keep them alive.

Everything runs in one event loop, so nothing here has a lock.

Source: Kafka 4.3.1 ``ClassicGroup``, ``GroupMetadataManager.classicGroupJoin`` and what follows it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from kafkastore.formats.messages.message_table import Values
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.server.groups.classic_member import (
    ClassicMember,
    answer,
    call_later,
    cancel,
    error_to_join,
    protocols_of,
    rebalance_timeout_of,
)
from kafkastore.server.groups.group_error import MAX_MEMBERS

NO_GENERATION = -1
SESSION_TIMEOUTS = range(1, 1_800_001)
"""The session timeouts that are accepted, ms."""
_FIRST_VERSION_WITH_REQUIRED_ID = 4
_FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT = 9


class ClassicState(StrEnum):
    """The state of a group; the values are what clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(eq=False)
class ClassicGroup:
    """The members of a group and their state."""

    group_id: str
    state: ClassicState = ClassicState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, ClassicMember] = field(default_factory=dict)
    by_instance: dict[str, str] = field(default_factory=dict)
    pending: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    unsynced: set[str] = field(default_factory=set)
    _timer: asyncio.TimerHandle | None = None
    _sync_timer: asyncio.TimerHandle | None = None

    @property
    def size(self) -> int:
        """How many bytes its members sent that it keeps."""
        return sum(
            len(each.assignment) + sum(len(metadata) for _, metadata in each.protocols)
            for each in self.members.values()
        )

    # Joining

    async def join(self, request: Values, version: int, client_id: str, host: str) -> Values:
        """Answer JoinGroup: at once with an error, or when all members have joined."""
        member_id, instance_id = request["member_id"], request["group_instance_id"]
        is_new = member_id not in self.members and member_id not in self.pending
        if is_new and len(self.members) + len(self.pending) >= MAX_MEMBERS:
            return error_to_join(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if not self._supports(request):
            return error_to_join(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        if not member_id:
            made = f"{instance_id or client_id}-{uuid.uuid4()}"
            if instance_id is None and version >= _FIRST_VERSION_WITH_REQUIRED_ID:
                self._expect(made, request["session_timeout_ms"])
                return error_to_join(ErrorCode.MEMBER_ID_REQUIRED, made)
            if instance_id in self.by_instance:
                return await self._replace(instance_id, made, request, version)
            return await self._add(made, request, client_id, host)
        if member_id in self.pending:
            self.pending.pop(member_id).cancel()
            return await self._add(member_id, request, client_id, host)
        if error := self.check_member(member_id, instance_id):
            return error_to_join(error, member_id)
        member = self.members[member_id]
        is_same = member.protocols == protocols_of(request)
        is_settled = self.state is ClassicState.COMPLETING_REBALANCE or (
            self.state is ClassicState.STABLE and member_id != self.leader
        )
        if is_same and is_settled:
            return self._joined(member)  # its last response was lost, or it has nothing new
        return await self._join(member, request)

    def _supports(self, request: Values) -> bool:
        """Return whether a member's protocols have one in common with the others."""
        if not request["protocol_type"] or not request["protocols"]:
            return False
        if not self.members:
            return True
        names = {name for name, _ in protocols_of(request)}
        return request["protocol_type"] == self.protocol_type and any(
            all(name in dict(each.protocols) for each in self.members.values()) for name in names
        )

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return the error for a member that is not, or no longer, in the group."""
        if instance_id is not None:
            known = self.by_instance.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _expect(self, member_id: str, session_timeout_ms: int) -> None:
        """Keep an id for a member that is to join with it."""
        self.pending[member_id] = call_later(session_timeout_ms, self._forget_pending, member_id)

    def _forget_pending(self, member_id: str) -> None:
        self.pending.pop(member_id, None)
        self._complete_if_all_joined()

    async def _add(self, member_id: str, request: Values, client_id: str, host: str) -> Values:
        member = ClassicMember(member_id, request["group_instance_id"], client_id, host, 0, 0)
        self.members[member_id] = member
        if member.instance_id is not None:
            self.by_instance[member.instance_id] = member_id
        self.protocol_type = request["protocol_type"]
        if self.leader is None:
            self.leader = member_id
        return await self._join(member, request)

    async def _replace(
        self, instance_id: str, member_id: str, request: Values, version: int
    ) -> Values:
        """Let a static member that started again take its old place."""
        old = self.members.pop(self.by_instance[instance_id])
        answer(old.joining, error_to_join(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
        answer(old.syncing, {"error_code": ErrorCode.FENCED_INSTANCE_ID})
        cancel(old.timer)
        was_leader = self.leader == old.member_id
        if was_leader:
            self.leader = member_id
        member = ClassicMember(
            member_id, instance_id, old.client_id, old.client_host,
            request["session_timeout_ms"], rebalance_timeout_of(request), old.protocols,
            old.assignment,
        )
        self.members[member_id] = member
        self.by_instance[instance_id] = member_id
        protocols = dict(protocols_of(request))
        is_same = old.metadata(self.protocol) == protocols.get(self.protocol or "")
        if self.state is ClassicState.STABLE and is_same:
            member.protocols = protocols_of(request)
            self.keep_alive(member)
            if was_leader and version < _FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT:
                # The response names another leader, because it must not assign partitions again.
                return self._joined(member) | {"leader": old.member_id, "members": []}
            return self._joined(member, skip_assignment=was_leader)
        return await self._join(member, request)

    async def _join(self, member: ClassicMember, request: Values) -> Values:
        """Note what a member supports, and wait until all have joined."""
        member.session_timeout_ms = request["session_timeout_ms"]
        member.rebalance_timeout_ms = rebalance_timeout_of(request)
        member.protocols = protocols_of(request)
        answer(member.joining, error_to_join(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        joining: asyncio.Future[Values] = asyncio.get_running_loop().create_future()
        member.joining = joining
        cancel(member.timer)
        self._prepare_rebalance()
        self._complete_if_all_joined()
        return await joining

    def _prepare_rebalance(self) -> None:
        """Ask all members to join again."""
        if self.state is ClassicState.PREPARING_REBALANCE:
            return
        self.state = ClassicState.PREPARING_REBALANCE
        self._forget_unsynced()
        for member in self.members.values():
            member.assignment = b""
            answer(member.syncing, {"error_code": ErrorCode.REBALANCE_IN_PROGRESS})
            member.syncing = None
        self._schedule()

    def _schedule(self) -> None:
        self._timer = call_later(self._rebalance_timeout, self._complete)

    def _complete_if_all_joined(self) -> None:
        is_waiting = self.pending or any(each.joining is None for each in self.members.values())
        if self.state is ClassicState.PREPARING_REBALANCE and not is_waiting:
            self._complete()

    def _complete(self) -> None:
        """Begin a generation of the members that have joined."""
        cancel(self._timer)
        self._timer = None
        for member in list(self.members.values()):
            if member.joining is None and member.instance_id is None:
                self._drop(member)
        if self.members and all(each.joining is None for each in self.members.values()):
            self._schedule()    # until those that are there expire
            return
        self.generation += 1
        if not self.members:
            self.state, self.protocol, self.leader = ClassicState.EMPTY, None, None
            return
        self.state = ClassicState.COMPLETING_REBALANCE
        self.protocol = self._chosen_protocol()
        if self.leader not in self.members or self.members[self.leader].joining is None:
            self.leader = next(
                each.member_id for each in self.members.values() if each.joining is not None
            )
        for member in self.members.values():
            joining, member.joining = member.joining, None
            self.keep_alive(member)
            answer(joining, self._joined(member))
        self.unsynced = set(self.members)
        self._sync_timer = call_later(self._rebalance_timeout, self._expire_unsynced)

    @property
    def _rebalance_timeout(self) -> int:
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def _forget_unsynced(self) -> None:
        cancel(self._sync_timer)
        self.unsynced, self._sync_timer = set(), None

    def _expire_unsynced(self) -> None:
        """Remove the members that joined, and did not ask for their assignment."""
        for member_id in self.unsynced & self.members.keys():
            self._drop(self.members[member_id])
        self._prepare_rebalance()
        self._complete_if_all_joined()

    def _chosen_protocol(self) -> str:
        """Return the protocol that most members prefer, of those that all support."""
        names = [[name for name, _ in each.protocols] for each in self.members.values()]
        common = set.intersection(*map(set, names))
        votes = Counter(next(name for name in each if name in common) for each in names)
        return votes.most_common(1)[0][0]

    def _joined(self, member: ClassicMember, *, skip_assignment: bool = False) -> Values:
        """Return a response to JoinGroup; the leader gets all members."""
        is_leader = member.member_id == self.leader
        return {
            "error_code": ErrorCode.NONE,
            "generation_id": self.generation,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol,
            "leader": self.leader or "",
            "skip_assignment": skip_assignment,
            "member_id": member.member_id,
            "members": [
                {
                    "member_id": each.member_id,
                    "group_instance_id": each.instance_id,
                    "metadata": each.metadata(self.protocol),
                }
                for each in self.members.values()
            ] if is_leader else [],
        }

    # Assignments

    async def sync(self, request: Values) -> Values:
        """Answer SyncGroup when the leader has sent the assignments."""
        error = self.check(
            request["member_id"], request["group_instance_id"], request["generation_id"]
        )
        wrong_protocol = any(
            request[name] not in (None, mine)
            for name, mine in (
                ("protocol_type", self.protocol_type), ("protocol_name", self.protocol)
            )
        )
        if not error and wrong_protocol:
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not error and self.state is ClassicState.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error:
            return {"error_code": error}
        member = self.members[request["member_id"]]
        self.keep_alive(member)
        self.unsynced.discard(member.member_id)
        if not self.unsynced:
            self._forget_unsynced()
        if self.state is ClassicState.STABLE:
            return self._synced(member)
        if member.member_id != self.leader:
            answer(member.syncing, {"error_code": ErrorCode.REBALANCE_IN_PROGRESS})
            member.syncing = asyncio.get_running_loop().create_future()
            cancel(member.timer)
            return await member.syncing
        assigned = {each["member_id"]: each["assignment"] for each in request["assignments"]}
        self.state = ClassicState.STABLE
        for each in self.members.values():
            each.assignment = assigned.get(each.member_id, b"")
            syncing, each.syncing = each.syncing, None
            self.keep_alive(each)
            answer(syncing, self._synced(each))
        return self._synced(member)

    def _synced(self, member: ClassicMember) -> Values:
        return {
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol,
            "assignment": member.assignment,
        }

    # Staying and leaving

    def check(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Return the error for a request of a member in a generation."""
        if error := self.check_member(member_id, instance_id):
            return error
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def heartbeat(self, request: Values) -> ErrorCode:
        """Keep a member alive; tell it if the group rebalances."""
        error = self.check(
            request["member_id"], request["group_instance_id"], request["generation_id"]
        )
        if error:
            return error
        self.keep_alive(self.members[request["member_id"]])
        is_preparing = self.state is ClassicState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if is_preparing else ErrorCode.NONE

    def keep_alive(self, member: ClassicMember) -> None:
        """Expect the member's next request within its session timeout."""
        cancel(member.timer)
        member.timer = call_later(member.session_timeout_ms, self._expire, member)

    def _expire(self, member: ClassicMember) -> None:
        if self.members.get(member.member_id) is member and member.joining is None:
            self._remove(member)

    def leave(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Remove a member; a static one is named by its instance id."""
        if instance_id is not None and not member_id:
            member_id = self.by_instance.get(instance_id, "")
        if member_id in self.pending:
            self.pending.pop(member_id).cancel()
            self._complete_if_all_joined()
            return ErrorCode.NONE
        if error := self.check_member(member_id, instance_id):
            return error
        self._remove(self.members[member_id])
        return ErrorCode.NONE

    def _remove(self, member: ClassicMember) -> None:
        """Drop a member, and let the others rebalance."""
        self._drop(member)
        if self.state is not ClassicState.EMPTY:
            self._prepare_rebalance()
            self._complete_if_all_joined()

    def _drop(self, member: ClassicMember) -> None:
        del self.members[member.member_id]
        self.unsynced.discard(member.member_id)
        if member.instance_id is not None:
            self.by_instance.pop(member.instance_id, None)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        cancel(member.timer)
        answer(member.joining, error_to_join(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        answer(member.syncing, {"error_code": ErrorCode.UNKNOWN_MEMBER_ID})

    def close(self) -> None:
        """End all timers."""
        for timer in (self._timer, self._sync_timer, *self.pending.values()):
            cancel(timer)
        for member in self.members.values():
            cancel(member.timer)
