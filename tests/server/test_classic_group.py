"""Consumer groups of the classic protocol, without a connection."""

from __future__ import annotations

import asyncio

import pytest
from server.group_loop import in_loop, request, ticks

from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.apis import ApiKey
from kafkastore.server.groups.classic_group import ClassicState

NEVER_MS = 600_000
SOON_MS = 150
GROUP = "readers"


class Member:
    """A consumer; its last response tells its id and generation."""

    def __init__(self, coordinator, instance_id=None, protocols=("range",), **options):
        self.coordinator, self.instance_id, self.protocols = coordinator, instance_id, protocols
        self.session_timeout_ms = options.pop("session_timeout_ms", NEVER_MS)
        self.rebalance_timeout_ms = options.pop("rebalance_timeout_ms", NEVER_MS)
        self.version = options.pop("version", 9)
        self.protocol_type = options.pop("protocol_type", "consumer")
        self.subscription = b""
        self.member_id, self.generation = "", -1
        self.joined = {}

    async def join_once(self):
        """Send JoinGroup once."""
        fields = {
            "group_id": GROUP,
            "session_timeout_ms": self.session_timeout_ms,
            "member_id": self.member_id,
            "protocol_type": self.protocol_type,
            "protocols": tuple(
                {"name": name, "metadata": name.encode() + self.subscription}
                for name in self.protocols
            ),
        }
        if self.version >= 1:
            fields["rebalance_timeout_ms"] = self.rebalance_timeout_ms
        if self.version >= 5:
            fields["group_instance_id"] = self.instance_id
        return await self.coordinator.members.join_group(
            request(ApiKey.JOIN_GROUP, self.version, **fields), self.version, "client", "host"
        )

    async def join(self):
        """Join, with the id that the coordinator gives; return the response."""
        found = await self.join_once()
        if found["error_code"] == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = found["member_id"]
            found = await self.join_once()
        if not found["error_code"]:
            self.joined, self.member_id = found, found["member_id"]
            self.generation = found["generation_id"]
        return found

    def start(self, *, sync=False):
        """Join in the background; with `sync`, also get an assignment."""
        return asyncio.create_task(self.join_and_sync() if sync else self.join())

    async def join_and_sync(self):
        await self.join()
        return await self.sync()

    @property
    def is_leader(self):
        return self.joined["leader"] == self.member_id

    def _fields(self):
        return {
            "group_id": GROUP, "generation_id": self.generation, "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }

    async def sync(self, **fields):
        """Send SyncGroup: the leader gives each member its own id to read."""
        assignments = tuple(
            {"member_id": each["member_id"], "assignment": each["member_id"].encode()}
            for each in self.joined.get("members", ())
        )
        return await self.coordinator.members.sync_group(request(
            ApiKey.SYNC_GROUP, 5, assignments=assignments,
            **{
                "protocol_type": "consumer",
                "protocol_name": self.joined.get("protocol_name", "range"),
            } | self._fields() | fields,
        ), 5)

    def heartbeat(self, **fields):
        asked = request(ApiKey.HEARTBEAT, 4, **self._fields() | fields)
        return self.coordinator.members.heartbeat(asked, 4)["error_code"]

    def leave(self):
        asked = request(ApiKey.LEAVE_GROUP, 5, group_id=GROUP, members=(
            {"member_id": self.member_id, "group_instance_id": self.instance_id},
        ))
        (found,) = self.coordinator.members.leave_group(asked, 5)["members"]
        return found["error_code"]

    async def commit(self, offset=1, partition=0, **fields):
        ours = {
            "group_id": GROUP, "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id, "group_instance_id": self.instance_id,
        } | fields
        return await commit_of(self.coordinator, ours, partition, offset)


async def commit_of(coordinator, fields, partition, offset, epoch=-1, topic="t"):
    row = {
        "partition_index": partition, "committed_offset": offset, "committed_leader_epoch": epoch,
        "committed_metadata": "m",
    }
    found = await coordinator.offsets.commit(request(
        ApiKey.OFFSET_COMMIT, 9, **fields, topics=({"name": topic, "partitions": (row,)},),
    ), 9)
    return found["topics"][0]["partitions"][0]["error_code"]


def committed(coordinator, group=GROUP, topics=None, version=9):
    """Return {(topic, partition): (offset, leader epoch)} of a group."""
    asked = request(
        ApiKey.OFFSET_FETCH, version, groups=({"group_id": group, "topics": topics},)
    )
    (found,) = coordinator.offsets.fetch(asked, version)["groups"]
    return {
        (topic["name"], row["partition_index"]):
            (row["committed_offset"], row["committed_leader_epoch"])
        for topic in found["topics"] for row in topic["partitions"]
    }


def listed(coordinator, **filters):
    asked = request(ApiKey.LIST_GROUPS, 5, **filters)
    return coordinator.descriptions.list_groups(asked, 5)["groups"]


async def stable(*members):
    """Let members form a group, one after the other; return their assignments."""
    await joined(*members)
    return await asyncio.gather(*[member.sync() for member in members])


async def joined(*members):
    """Let members join a group, one after the other."""
    tasks = []
    for member in members:
        tasks.append(member.start())
        await ticks()
        for other in members:    # those that are told so join again
            if other is not member and other.generation >= 0 and (
                other.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
            ):
                tasks.append(other.start())
                await ticks()
    await asyncio.gather(*tasks)


def state(coordinator):
    return coordinator.groups.by_id[GROUP].state


# Joining


@in_loop
async def test_a_new_member_needs_an_id_from_the_coordinator(coordinator):
    member = Member(coordinator)
    found = await member.join_once()
    assert found["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
    assert found["member_id"]
    assert state(coordinator) is ClassicState.EMPTY
    member.member_id = found["member_id"]
    found = await member.join()
    assert (found["error_code"], found["member_id"]) == (ErrorCode.NONE, member.member_id)
    assert member.is_leader
    old = Member(coordinator, version=3)
    joining = old.start()
    await ticks()
    assert member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    await member.join()
    assert (await joining)["error_code"] == ErrorCode.NONE


@in_loop
async def test_unknown_members_and_wrong_requests_are_refused(coordinator):
    unknown = Member(coordinator)
    unknown.member_id = "unknown"
    assert (await unknown.join())["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID
    assert unknown.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert unknown.leave() == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await unknown.sync())["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID
    known = Member(coordinator)
    await stable(known)
    assert (await unknown.join())["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID
    assert unknown.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert unknown.leave() == ErrorCode.UNKNOWN_MEMBER_ID
    for wrong, error in (
        (Member(coordinator, session_timeout_ms=0), ErrorCode.INVALID_SESSION_TIMEOUT),
        (Member(coordinator, session_timeout_ms=1_800_001), ErrorCode.INVALID_SESSION_TIMEOUT),
        (Member(coordinator, protocols=()), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (Member(coordinator, protocols=("sticky",)), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (Member(coordinator, protocol_type="connect"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (Member(coordinator, protocol_type=""), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ):
        assert (await wrong.join())["error_code"] == error
    asked = request(ApiKey.JOIN_GROUP, 5, session_timeout_ms=NEVER_MS)
    found = await coordinator.members.join_group(asked, 5, "client", "host")
    assert found["error_code"] == ErrorCode.INVALID_GROUP_ID
    assert known.heartbeat() == ErrorCode.NONE


@in_loop
async def test_three_members_share_a_generation_and_its_assignments(coordinator):
    members = [Member(coordinator) for _ in range(3)]
    answers = await stable(*members)
    assert len({member.generation for member in members}) == 1
    assert [answer["assignment"].decode() for answer in answers] == (
        [member.member_id for member in members]
    )
    assert sum(member.is_leader for member in members) == 1
    for member in members:
        told = {each["member_id"] for each in member.joined["members"]}
        assert told == ({each.member_id for each in members} if member.is_leader else set())
        assert member.heartbeat() == ErrorCode.NONE
    assert state(coordinator) is ClassicState.STABLE


@in_loop
async def test_the_protocol_is_one_that_all_have_and_most_prefer(coordinator):
    members = [
        Member(coordinator, protocols=("only-mine", "sticky", "range")),
        Member(coordinator, protocols=("range", "sticky")),
        Member(coordinator, protocols=("range", "other", "sticky")),
    ]
    await stable(*members)
    assert {member.joined["protocol_name"] for member in members} == {"range"}
    (leader,) = [member for member in members if member.is_leader]
    assert {each["metadata"] for each in leader.joined["members"]} == {b"range"}


@in_loop
async def test_members_that_leave_make_the_others_join_again(coordinator):
    members = [Member(coordinator) for _ in range(3)]
    await stable(*members)
    first, *others = members
    generation = first.generation
    assert first.leave() == ErrorCode.NONE
    assert first.leave() == ErrorCode.UNKNOWN_MEMBER_ID
    assert [each.heartbeat() for each in others] == 2 * [ErrorCode.REBALANCE_IN_PROGRESS]
    await asyncio.gather(*[each.join() for each in others])
    answers = await asyncio.gather(*[each.sync() for each in others])
    assert [each["assignment"].decode() for each in answers] == [each.member_id for each in others]
    assert {each.generation for each in others} == {generation + 1}
    for each in others:
        each.leave()
    assert state(coordinator) is ClassicState.EMPTY


@in_loop
async def test_members_that_do_not_answer_expire(coordinator):
    silent = Member(coordinator, session_timeout_ms=SOON_MS)
    others = [Member(coordinator) for _ in range(2)]
    await stable(*others, silent)
    while others[0].heartbeat() == ErrorCode.NONE:
        await asyncio.sleep(0.02)
    await asyncio.gather(*[each.join() for each in others])
    assert silent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    (leader,) = [each for each in others if each.is_leader]
    assert len(leader.joined["members"]) == 2


@in_loop
async def test_heartbeats_keep_a_member(coordinator):
    alive = Member(coordinator, session_timeout_ms=1000)
    await stable(alive)
    for _ in range(25):
        await asyncio.sleep(0.06)
        assert alive.heartbeat() == ErrorCode.NONE


@in_loop
async def test_members_that_do_not_join_again_in_time_are_left_out(coordinator):
    slow = Member(coordinator, rebalance_timeout_ms=SOON_MS)
    await stable(slow)
    new = Member(coordinator, rebalance_timeout_ms=SOON_MS)
    await new.join()
    assert new.is_leader
    assert [each["member_id"] for each in new.joined["members"]] == [new.member_id]
    assert slow.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@in_loop
async def test_members_that_do_not_ask_for_their_assignment_in_time_are_left_out(coordinator):
    members = [Member(coordinator, rebalance_timeout_ms=SOON_MS) for _ in range(2)]
    await joined(*members)
    leader = next(each for each in members if each.is_leader)
    silent = next(each for each in members if not each.is_leader)
    await leader.sync()
    await asyncio.sleep(SOON_MS / 2000)
    assert silent.heartbeat() == ErrorCode.NONE    # which does not suffice
    await asyncio.sleep(SOON_MS / 1000)
    assert silent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    await leader.join()
    await leader.sync()
    await asyncio.sleep(NEVER_MS / 2000)
    assert leader.heartbeat() == ErrorCode.NONE
    assert state(coordinator) is ClassicState.STABLE


@in_loop
async def test_a_leader_that_assigns_nothing_in_time_is_left_out(coordinator):
    members = [Member(coordinator, rebalance_timeout_ms=SOON_MS) for _ in range(2)]
    await joined(*members)
    leader = next(each for each in members if each.is_leader)
    follower = next(each for each in members if not each.is_leader)
    answer = await follower.sync()
    assert answer["error_code"] == ErrorCode.REBALANCE_IN_PROGRESS
    assert leader.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    await follower.join()
    assert follower.is_leader
    assert not (await follower.sync()).get("error_code")


@in_loop
async def test_an_id_that_nobody_joins_with_is_forgotten(coordinator):
    member = Member(coordinator)
    await stable(member)
    pending = Member(coordinator, session_timeout_ms=SOON_MS)
    assert (await pending.join_once())["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
    await member.join()    # the leader: the others are waited for
    assert not coordinator.groups.by_id[GROUP].pending
    left = Member(coordinator)
    left.member_id = (await left.join_once())["member_id"]
    assert left.leave() == ErrorCode.NONE
    assert not coordinator.groups.by_id[GROUP].pending


@in_loop
async def test_a_member_that_asks_again_gets_the_same_generation(coordinator):
    leader, follower = Member(coordinator), Member(coordinator)
    await stable(leader, follower)
    if follower.is_leader:
        leader, follower = follower, leader
    generation = leader.generation
    assert (await follower.join())["generation_id"] == generation
    assert (await follower.sync())["assignment"].decode() == follower.member_id
    follower.subscription = b"changed"
    joining = follower.start()
    await ticks()
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    await leader.join()
    await joining
    assert leader.generation == follower.generation == generation + 1
    assert (await follower.join())["generation_id"] == generation + 1    # before SyncGroup
    assert {each["metadata"] for each in leader.joined["members"]} == {b"range", b"rangechanged"}


# Assignments


@in_loop
async def test_assignments_are_for_the_members_of_a_generation(coordinator):
    leader, follower = Member(coordinator), Member(coordinator)
    await stable(leader, follower)
    for fields, error in (
        ({"generation_id": leader.generation - 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": leader.generation + 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": None}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert (await follower.sync(**fields)).get("error_code", 0) == error, fields
    assert follower.heartbeat(generation_id=0) == ErrorCode.ILLEGAL_GENERATION


@in_loop
async def test_members_that_wait_for_an_assignment_are_told_of_a_rebalance(coordinator):
    members = [Member(coordinator), Member(coordinator)]
    await stable(*members)
    joining = [each.start() for each in sorted(members, key=lambda each: not each.is_leader)]
    await asyncio.gather(*joining)
    (follower,) = [each for each in members if not each.is_leader]
    waiting = asyncio.create_task(follower.sync())
    await ticks()
    new = Member(coordinator)
    new_joins = new.start()
    assert (await waiting)["error_code"] == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await follower.sync())["error_code"] == ErrorCode.REBALANCE_IN_PROGRESS
    await asyncio.gather(*[each.join() for each in members], new_joins)
    assert len({each.generation for each in (*members, new)}) == 1


# Static members


@in_loop
async def test_a_static_member_that_comes_back_takes_its_place(coordinator):
    members = [Member(coordinator, instance_id=f"i{number}") for number in range(2)]
    await stable(*members)
    generation = members[0].generation
    for before in members:
        again = Member(coordinator, instance_id=before.instance_id)
        found = await again.join()
        assert (found["error_code"], found["generation_id"]) == (ErrorCode.NONE, generation)
        assert again.member_id != before.member_id
        assert found["skip_assignment"] == before.is_leader
        assert len(found["members"]) == 2 * before.is_leader
        assert (await again.sync())["assignment"].decode() == before.member_id
        assert before.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
        assert await before.commit() == ErrorCode.FENCED_INSTANCE_ID
        assert before.leave() == ErrorCode.FENCED_INSTANCE_ID
        assert (await before.sync())["error_code"] == ErrorCode.FENCED_INSTANCE_ID
        assert (await before.join())["error_code"] == ErrorCode.FENCED_INSTANCE_ID
    assert state(coordinator) is ClassicState.STABLE


@in_loop
async def test_a_static_leader_of_an_old_client_is_not_asked_to_assign_again(coordinator):
    before = Member(coordinator, instance_id="i", version=8)
    await stable(before)
    again = Member(coordinator, instance_id="i", version=8)
    found = await again.join()
    assert (found["leader"], found["members"]) == (before.member_id, [])
    assert (await again.sync())["assignment"].decode() == before.member_id


@in_loop
async def test_a_static_member_with_another_subscription_makes_a_rebalance(coordinator):
    first, second = (Member(coordinator, instance_id=f"i{number}") for number in range(2))
    await stable(first, second)
    again = Member(coordinator, instance_id="i1", protocols=("range", "sticky"))
    assert (await again.join())["generation_id"] == first.generation
    changed = Member(coordinator, instance_id="i1")
    changed.subscription = b"changed"
    joining = changed.start()
    await ticks()
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    await first.join()
    assert (await joining)["generation_id"] == first.generation


@in_loop
async def test_a_rebalance_waits_for_static_members_and_keeps_them(coordinator):
    away = Member(coordinator, instance_id="away", rebalance_timeout_ms=SOON_MS)
    await stable(away)
    new = Member(coordinator, rebalance_timeout_ms=SOON_MS)
    await new.join()
    assert new.is_leader
    told = {each["group_instance_id"] for each in new.joined["members"]}
    assert told == {"away", None}
    await new.sync()
    away.generation = new.generation
    assert (await away.sync())["assignment"].decode() == away.member_id


@in_loop
async def test_a_generation_begins_only_with_a_member_that_joined(coordinator):
    away = Member(coordinator, instance_id="away", rebalance_timeout_ms=SOON_MS)
    dynamic = Member(coordinator, rebalance_timeout_ms=SOON_MS)
    await stable(away, dynamic)
    generation = away.generation
    dynamic.leave()
    await asyncio.sleep(4 * SOON_MS / 1000)
    assert state(coordinator) is ClassicState.PREPARING_REBALANCE
    assert away.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await away.join())["generation_id"] == generation + 1
    assert away.is_leader


@in_loop
async def test_an_instance_is_removed_by_its_name_alone(coordinator):
    member = Member(coordinator, instance_id="i")
    await stable(member)
    administrator = Member(coordinator, instance_id="other")
    assert administrator.leave() == ErrorCode.UNKNOWN_MEMBER_ID
    administrator.instance_id = "i"
    assert administrator.leave() == ErrorCode.NONE
    assert state(coordinator) is ClassicState.EMPTY
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


# Offsets


@in_loop
async def test_commits_are_of_the_members_of_a_generation(coordinator):
    alone = Member(coordinator)
    alone.generation = 3
    assert await alone.commit() == ErrorCode.GROUP_ID_NOT_FOUND
    first, second = Member(coordinator), Member(coordinator)
    await stable(first, second)
    assert await first.commit(5) == ErrorCode.NONE
    assert committed(coordinator) == {("t", 0): (5, -1)}
    for fields, error in (
        ({"generation_id_or_member_epoch": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id_or_member_epoch": -1, "member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert await first.commit(6, **fields) == error
    new = Member(coordinator)
    joining = new.start()
    await ticks()
    assert await first.commit(7) == ErrorCode.NONE    # before it joins again
    await asyncio.gather(first.join(), second.join(), joining)
    assert await first.commit(8) == ErrorCode.REBALANCE_IN_PROGRESS
    await asyncio.gather(first.sync(), second.sync(), new.sync())
    assert await first.commit(9) == ErrorCode.NONE
    for each in (first, second, new):
        each.leave()
    assert await first.commit(10) == ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(coordinator) == {("t", 0): (9, -1)}
    simple = {"group_id": GROUP, "generation_id_or_member_epoch": -1}
    assert await commit_of(coordinator, simple, 0, 2) == ErrorCode.NONE
    assert committed(coordinator) == {("t", 0): (2, -1)}


@in_loop
async def test_groups_begin_at_the_offsets_of_the_directory(coordinator):
    stored = {("gone", 0): (2, -1), ("t", 0): (4, -1), ("t", 1): (6, -1)}
    assert {place: found[0] for place, found in committed(coordinator, "stored").items()} == {
        place: found[0] for place, found in stored.items()
    }
    simple = {"group_id": "stored", "generation_id_or_member_epoch": -1}
    assert await commit_of(coordinator, simple, 1, 9) == ErrorCode.NONE
    asked = ({"name": "t", "partition_indexes": (0, 1, 2)},)
    found = committed(coordinator, "stored", asked)
    assert [offset for offset, _ in found.values()] == [4, 9, -1]
    assert committed(coordinator, "other") == {}
    assert [each["group_id"] for each in listed(coordinator)] == ["stored"]


@in_loop
async def test_unknown_partitions_can_not_be_committed(coordinator):
    simple = {"group_id": GROUP, "generation_id_or_member_epoch": -1}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await commit_of(coordinator, simple, 9, 2) == unknown
    assert await commit_of(coordinator, simple, 0, 2, topic="gone") == unknown
    assert committed(coordinator) == {}


@in_loop
async def test_committed_leader_epochs_are_none_that_the_log_does_not_have(coordinator):
    simple = {"group_id": GROUP, "generation_id_or_member_epoch": -1}
    newest = coordinator.groups.catalog.log("t", 0).leader_epoch
    for epoch in (-1, 0, newest, newest + 1):
        assert await commit_of(coordinator, simple, 0, 2, epoch) == ErrorCode.NONE
        expected = epoch if epoch <= newest else -1
        assert committed(coordinator) == {("t", 0): (2, expected)}


# What administrators see


@in_loop
async def test_groups_are_described_with_their_members(coordinator):
    def described(name, version=6):
        asked = request(ApiKey.DESCRIBE_GROUPS, version, groups=(name,))
        (found,) = coordinator.descriptions.describe_groups(asked, version)["groups"]
        return found

    member = Member(coordinator, instance_id="i")
    await stable(member)
    found = described(GROUP)
    assert (found["group_state"], found["protocol_data"]) == ("Stable", "range")
    (row,) = found["members"]
    assert (row["member_id"], row["group_instance_id"]) == (member.member_id, "i")
    assert row["member_assignment"].decode() == member.member_id
    assert described("stored")["group_state"] == "Empty"
    assert described("missing", 5)["group_state"] == "Dead"
    assert described("missing")["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND
    states = {
        each["group_id"]: each["group_state"]
        for each in listed(coordinator)
    }
    assert states == {GROUP: "Stable", "stored": "Empty"}
    assert [each["group_id"] for each in listed(coordinator, states_filter=("stable",))] == [GROUP]


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_of_every_group_and_transactional_id_is_the_node(coordinator, version):
    asked = {"coordinator_keys": ("a", "b")} if version >= 4 else {"key": "a"}

    def coordinators(key_type):
        fields = asked | ({"key_type": key_type} if version else {})
        found = coordinator.members.find_coordinator(
            request(ApiKey.FIND_COORDINATOR, version, **fields), version
        )
        return found.get("coordinators", [found])

    groups, transactions, share_groups = range(3)
    for key_type in (groups, transactions) if version else (groups,):
        for each in coordinators(key_type):
            assert (each["node_id"], each["host"], each["port"]) == (1, "localhost", 9092)
    if version:
        for each in coordinators(share_groups):
            assert each["error_code"] == ErrorCode.INVALID_REQUEST
