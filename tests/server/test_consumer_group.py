"""Consumer groups of the new protocol, without a connection."""

from __future__ import annotations

import asyncio

import pytest
from server.group_loop import in_loop, request
from use_cases.stores import record, written

from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.formats.requests.apis import ApiKey
from kafkastore.server.groups import consumer_group, known_groups
from kafkastore.server.groups.consumer_group import GROUP_CONFIG
from kafkastore.server.groups.group_error import GroupRequestError
from kafkastore.server.groups.topic_regex import check_regex, match_topics

GROUP = "readers"
REBALANCE_MS = 300_000


class Member:
    """A consumer, which knows its epoch and its partitions from responses."""

    def __init__(self, coordinator, member_id, instance_id=None):
        self.coordinator, self.member_id, self.instance_id = coordinator, member_id, instance_id
        self.epoch, self.assigned, self.owned = 0, set(), set()

    def heartbeat(self, version=1, **fields):
        asked = request(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **{
            "group_id": GROUP, "member_id": self.member_id, "member_epoch": self.epoch,
            "instance_id": self.instance_id,
        } | fields)
        found = self.coordinator.members.consumer_group_heartbeat(asked, version, "me", "host")
        if not found.get("error_code"):
            self.epoch = found["member_epoch"]
            if found.get("assignment") is not None:
                topics = self.coordinator.groups.catalog.topics_by_id
                self.assigned = {
                    (topics[each["topic_id"]].name, number)
                    for each in found["assignment"]["topic_partitions"]
                    for number in each["partitions"]
                }
        return found

    def join(self, *topics, **fields):
        self.owned = set()
        return self.heartbeat(**{
            "member_epoch": 0, "rebalance_timeout_ms": REBALANCE_MS, "topic_partitions": (),
            "subscribed_topic_names": topics,
        } | fields)

    def acknowledge(self):
        """Have what was assigned, and say so."""
        self.owned = set(self.assigned)
        ids = {each.name: each.topic_id for each in self.coordinator.groups.catalog.topics.values()}
        rows = tuple(
            {"topic_id": ids[topic], "partitions": (number,)} for topic, number in self.owned
        )
        return self.heartbeat(topic_partitions=rows)

    def leave(self, epoch=-1):
        return self.heartbeat(member_epoch=epoch)


def settle(*members):
    """Let members acknowledge until nothing changes."""
    before = None
    while before != (now := [(each.epoch, each.assigned) for each in members]):
        before = now
        for each in members:
            assert not each.acknowledge().get("error_code")


def error_of(answer):
    return answer.get("error_code", ErrorCode.NONE)


def places(*numbers):
    return {("t", number) for number in numbers}


def described(coordinator, group=GROUP):
    asked = request(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=(group,))
    (found,) = coordinator.descriptions.describe_consumer_groups(asked, 1)["groups"]
    return found


@in_loop
async def test_members_revoke_before_others_get_their_partitions(coordinator):
    first, second = Member(coordinator, "first"), Member(coordinator, "second")
    first.join("t")
    assert first.assigned == places(0, 1, 2)
    second.join("t")
    assert second.assigned == set()    # they are not released yet
    first.owned = set(first.assigned)
    first.heartbeat()
    assert len(first.assigned) == 2
    kept, epoch = first.assigned, first.epoch
    assert not second.heartbeat()["assignment"]
    assert first.heartbeat()["member_epoch"] == epoch    # it still has all three
    first.acknowledge()
    assert first.epoch == second.epoch > epoch
    settle(first, second)
    assert second.assigned == places(0, 1, 2) - kept
    assert described(coordinator)["group_state"] == "Stable"
    assert not error_of(second.leave())
    settle(first)
    assert first.assigned == places(0, 1, 2)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_each_partition_has_one_member(coordinator, assignor):
    @in_loop
    async def test(coordinator):
        members = [Member(coordinator, f"m{number}") for number in range(5)]
        for each in members:
            each.join("t", server_assignor=assignor)
        settle(*members)
        assigned = [place for each in members for place in each.assigned]
        assert sorted(assigned) == sorted(places(0, 1, 2))
        assert described(coordinator)["assignor_name"] == assignor

    test(coordinator)


@in_loop
async def test_requests_that_make_no_sense_are_refused(coordinator):
    member = Member(coordinator, "m")
    for fields, error in (
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"subscribed_topic_regex": "a("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": "a)|(b"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": "a" * 10_001}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ):
        assert error_of(member.join("t", **fields)) == error, fields
    assert not error_of(Member(coordinator, "").join("t", version=0))


@in_loop
async def test_members_with_wrong_epochs_are_fenced(coordinator):
    member = Member(coordinator, "m")
    member.join("t")
    epoch = member.epoch
    assert error_of(Member(coordinator, "unknown").heartbeat(member_epoch=epoch)) == (
        ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert error_of(member.heartbeat(member_epoch=epoch + 1)) == ErrorCode.FENCED_MEMBER_EPOCH
    assert error_of(member.heartbeat(member_epoch=epoch - 1)) == ErrorCode.FENCED_MEMBER_EPOCH
    assert not error_of(member.heartbeat())
    other = Member(coordinator, "other")
    other.join("t")
    settle(member, other)
    # The response with the new epoch was lost: the member says the one before again.
    member.epoch = epoch
    assert not error_of(member.acknowledge())


@in_loop
async def test_static_members_keep_their_partitions_while_they_are_away(coordinator):
    first, second = Member(coordinator, "first", "i"), Member(coordinator, "second", "j")
    first.join("t")
    second.join("t")
    settle(first, second)
    had, epoch = first.assigned, first.epoch
    again = Member(coordinator, "again", "i")
    assert error_of(again.join("t")) == ErrorCode.UNRELEASED_INSTANCE_ID
    assert first.leave(-2)["member_epoch"] == -2
    settle(second)
    assert second.assigned == places(0, 1, 2) - had
    assert not error_of(again.join("t"))
    assert (again.assigned, again.epoch) == (had, epoch)
    first.epoch = epoch
    assert error_of(first.heartbeat()) == ErrorCode.FENCED_INSTANCE_ID
    assert error_of(first.leave()) == ErrorCode.FENCED_INSTANCE_ID
    assert error_of(Member(coordinator, "x", "none").leave()) == ErrorCode.UNKNOWN_MEMBER_ID
    asked = request(ApiKey.LEAVE_GROUP, 5, group_id=GROUP, members=(
        {"member_id": "", "group_instance_id": "i"},
        {"member_id": "", "group_instance_id": "none"},
        {"member_id": "unknown"},
    ))
    left = [each["error_code"] for each in coordinator.members.leave_group(asked, 5)["members"]]
    assert left == [0, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    settle(second)
    assert second.assigned == places(0, 1, 2)


@in_loop
async def test_silent_members_are_removed(coordinator):
    silent, away, alive = (
        Member(coordinator, "silent"), Member(coordinator, "away", "i"), Member(coordinator, "m"),
    )
    for each in (silent, away, alive):
        each.join("t")
    settle(silent, away, alive)
    away.leave(-2)
    passed = 0
    while passed < GROUP_CONFIG.session_timeout_ms + 1000:
        await asyncio.sleep(5)
        passed += 5000
        alive.acknowledge()
    settle(alive)
    assert alive.assigned == places(0, 1, 2)
    assert [each["member_id"] for each in described(coordinator)["members"]] == ["m"]


@in_loop
async def test_members_that_do_not_revoke_in_time_are_removed(coordinator):
    slow, new = Member(coordinator, "slow"), Member(coordinator, "new")
    slow.join("t", rebalance_timeout_ms=30_000)
    new.join("t")
    slow.heartbeat()
    await asyncio.sleep(20)
    slow.heartbeat()
    new.heartbeat()
    assert new.assigned == set()
    await asyncio.sleep(11)
    assert error_of(slow.heartbeat()) == ErrorCode.UNKNOWN_MEMBER_ID
    settle(new)
    assert new.assigned == places(0, 1, 2)


@in_loop
async def test_new_partitions_and_topics_are_assigned(coordinator):
    member = Member(coordinator, "m")
    member.join("t", "later")
    settle(member)
    catalog = coordinator.groups.catalog
    with written(catalog.store.paths[0]) as partition:
        for topic, number in (("later", 0), ("t", 3)):
            partition(topic, number).add(record(1))
    catalog.follow()
    settle(member)
    assert member.assigned == {*places(0, 1, 2, 3), ("later", 0)}
    assert not error_of(member.heartbeat(subscribed_topic_names=("later",)))
    settle(member)
    assert member.assigned == {("later", 0)}


def test_no_regular_expression_takes_long():
    """A backtracking engine accepts the first, and never ends with the second."""
    with pytest.raises(GroupRequestError):
        check_regex(r"(a)\1")
    check_regex("(a+)+b")
    assert match_topics("(a+)+b", ["a" * 249, "a" * 200 + "b"]) == {"a" * 200 + "b"}


def test_topics_of_a_regular_expression_are_assigned(coordinator):
    async def test():
        await coordinator.load()
        member, other = Member(coordinator, "m"), Member(coordinator, "other")
        member.join(subscribed_topic_names=None, subscribed_topic_regex="[s-u]")
        assert member.assigned == set()    # until it is matched
        while not member.assigned:
            await asyncio.sleep(0.01)
            member.heartbeat()
        assert member.assigned == places(0, 1, 2)
        other.join(subscribed_topic_names=(), subscribed_topic_regex="[s-u]")
        settle(member, other)
        assert member.assigned | other.assigned == places(0, 1, 2)
        row = described(coordinator)["members"][0]
        assert (row["subscribed_topic_names"], row["subscribed_topic_regex"]) == ([], "[s-u]")
        other.leave()
        member.heartbeat(subscribed_topic_regex="__.*")
        while ("__consumer_offsets", 0) not in member.assigned:
            await asyncio.sleep(0.01)
            member.acknowledge()
        member.heartbeat(subscribed_topic_regex="")
        settle(member)
        assert member.assigned == set()
        await coordinator.close()

    asyncio.run(test())


@in_loop
async def test_groups_with_members_keep_their_protocol(coordinator):
    def join_classic(member_id=""):
        asked = request(
            ApiKey.JOIN_GROUP, 5, group_id=GROUP, session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000, protocol_type="consumer", member_id=member_id,
            protocols=({"name": "range", "metadata": b""},),
        )
        return coordinator.members.join_group(asked, 5, "me", "host")

    member = Member(coordinator, "m")
    member.join("t")
    assert (await join_classic())["error_code"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    asked = request(ApiKey.DESCRIBE_GROUPS, 6, groups=(GROUP,))
    (found,) = coordinator.descriptions.describe_groups(asked, 6)["groups"]
    assert found["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND
    asked = request(ApiKey.LIST_GROUPS, 5, types_filter=("Consumer",))
    (listed,) = coordinator.descriptions.list_groups(asked, 5)["groups"]
    assert (listed["group_type"], listed["group_state"]) == ("consumer", "Stable")
    asked = request(ApiKey.HEARTBEAT, 4, group_id=GROUP, member_id="m", generation_id=member.epoch)
    assert coordinator.members.heartbeat(asked, 4)["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID
    member.leave()
    joined = await join_classic()
    assert joined["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
    joined = await join_classic(joined["member_id"])
    assert joined["error_code"] == ErrorCode.NONE
    assert error_of(member.join("t")) == ErrorCode.GROUP_ID_NOT_FOUND
    assert described(coordinator)["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND


async def commit(coordinator, version=9, group=GROUP, partition=0, metadata="", **fields):
    row = {
        "partition_index": partition, "committed_offset": 5, "committed_leader_epoch": -1,
        "committed_metadata": metadata,
    }
    found = await coordinator.offsets.commit(request(
        ApiKey.OFFSET_COMMIT, version, group_id=group,
        topics=({"name": "t", "partitions": (row,)},), **fields,
    ), version)
    return found["topics"][0]["partitions"][0]["error_code"]


@in_loop
async def test_commits_are_of_members_in_their_epoch(coordinator):
    member, new = Member(coordinator, "m"), Member(coordinator, "new")
    member.join("t")
    ours = {"member_id": "m", "generation_id_or_member_epoch": member.epoch}
    assert await commit(coordinator, **ours) == ErrorCode.NONE
    old = member.epoch
    new.join("t")
    settle(member, new)
    for fields, version, error in (
        ({}, 9, ErrorCode.NONE),
        ({}, 8, ErrorCode.UNSUPPORTED_VERSION),
        ({"member_id": "x"}, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id_or_member_epoch": member.epoch + 1}, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ({"generation_id_or_member_epoch": old - 1}, 9, ErrorCode.STALE_MEMBER_EPOCH),
    ):
        (_, kept), *_ = sorted(member.assigned)
        asked = ours | {"generation_id_or_member_epoch": old} | fields
        assert await commit(coordinator, version, partition=kept, **asked) == error
    ((_, moved),) = new.assigned
    assert await commit(coordinator, partition=moved, **ours) == ErrorCode.STALE_MEMBER_EPOCH
    for epoch, name, error in (
        (member.epoch, "m", ErrorCode.NONE), (old, "m", ErrorCode.STALE_MEMBER_EPOCH),
        (member.epoch, "x", ErrorCode.UNKNOWN_MEMBER_ID), (-1, None, ErrorCode.NONE),
    ):
        asked = request(ApiKey.OFFSET_FETCH, 9, groups=(
            {"group_id": GROUP, "member_id": name, "member_epoch": epoch, "topics": None},
        ))
        (found,) = coordinator.offsets.fetch(asked, 9)["groups"]
        assert found["error_code"] == error
        assert bool(found["topics"]) == (error == ErrorCode.NONE)


@in_loop
async def test_groups_and_offsets_are_deleted(coordinator):
    def names():
        found = coordinator.descriptions.list_groups(request(ApiKey.LIST_GROUPS, 5), 5)["groups"]
        return [each["group_id"] for each in found]

    async def delete(*groups):
        asked = request(ApiKey.DELETE_GROUPS, 2, groups_names=groups)
        found = (await coordinator.offsets.delete_groups(asked, 2))["results"]
        return [each["error_code"] for each in found]

    async def delete_offset(group, number):
        asked = request(ApiKey.OFFSET_DELETE, 0, group_id=group, topics=(
            {"name": "t", "partitions": ({"partition_index": number},)},
        ))
        found = await coordinator.offsets.delete_offsets(asked, 0)
        if found.get("error_code"):
            return found["error_code"]
        return found["topics"][0]["partitions"][0]["error_code"]

    member = Member(coordinator, "m")
    member.join("t")
    ours = {"member_id": "m", "generation_id_or_member_epoch": member.epoch}
    await commit(coordinator, **ours)
    assert names() == [GROUP, "stored"]
    assert await delete_offset(GROUP, 0) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert await delete(GROUP, "none") == [
        ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    member.leave()
    assert await delete_offset(GROUP, 0) == ErrorCode.NONE
    assert await delete_offset("none", 0) == ErrorCode.GROUP_ID_NOT_FOUND
    assert await delete_offset("", 0) == ErrorCode.INVALID_GROUP_ID
    assert await delete_offset("stored", 1) == ErrorCode.NONE
    assert coordinator.groups.offsets.of("stored").keys() == {("t", 0), ("gone", 0)}
    assert await delete(GROUP, "stored") == [ErrorCode.NONE, ErrorCode.NONE]
    assert names() == []


@in_loop
async def test_the_metadata_of_a_commit_has_a_limit(coordinator):
    simple = {"generation_id_or_member_epoch": -1}
    assert await commit(coordinator, metadata="ü" * 4096, **simple) == ErrorCode.NONE
    assert await commit(coordinator, metadata="\U0001f600" * 2049, **simple) == (
        ErrorCode.OFFSET_METADATA_TOO_LARGE
    )


def test_members_can_not_fill_the_memory(coordinator, monkeypatch):
    monkeypatch.setattr(consumer_group, "MAX_MEMBERS", 3)
    monkeypatch.setattr(consumer_group, "MAX_SUBSCRIPTION_BYTES", 9900)
    monkeypatch.setattr(known_groups, "MAX_MEMBER_BYTES", 10_000)

    @in_loop
    async def test(coordinator):
        def join(name, *topics, **fields):
            return error_of(Member(coordinator, name).join(*topics, **fields))

        assert [join(name, "t") for name in "abca"] == [ErrorCode.NONE] * 4
        assert join("d", "t") == ErrorCode.GROUP_MAX_SIZE_REACHED
        other = {"group_id": "other"}
        assert join("a", "t" * 9950, **other) == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert join("a", "t" * 9000, **other) == ErrorCode.NONE
        assert join("a", "t" * 9000, group_id="third") == ErrorCode.GROUP_MAX_SIZE_REACHED

    test(coordinator)


def test_empty_groups_make_room_for_others(coordinator, monkeypatch):
    monkeypatch.setattr(known_groups, "MAX_GROUPS", 2)

    @in_loop
    async def test(coordinator):
        first, second, third = (
            Member(coordinator, "m") for _ in range(3)
        )
        assert not error_of(first.join("t", group_id="a"))
        assert not error_of(second.join("t", group_id="b"))
        assert error_of(third.join("t", group_id="c")) == ErrorCode.GROUP_MAX_SIZE_REACHED
        first.heartbeat(group_id="a", member_epoch=-1)
        assert not error_of(third.join("t", group_id="c"))
        assert coordinator.groups.by_id.keys() == {"b", "c"}

    test(coordinator)
