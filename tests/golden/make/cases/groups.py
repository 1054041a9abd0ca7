"""The case about groups of every kind, whose node is killed while their members are alive."""
from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ..case_context import CaseContext
from ..group_moment import GroupMoment
from ..kraft_cluster import KraftCluster, NodePlan
from ..server_properties import Settings
from .registry import case

_SETTINGS: Settings = {
    "group.coordinator.rebalance.protocols": "classic,consumer,share,streams",
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.share.min.heartbeat.interval.ms": 200,
    "group.share.heartbeat.interval.ms": 300,
    "group.streams.min.heartbeat.interval.ms": 200,
    "group.streams.heartbeat.interval.ms": 300,
    # Members without a client stay, and acquired records acquired, until the end.
    "group.consumer.max.session.timeout.ms": 900000,
    "group.consumer.session.timeout.ms": 900000,
    "group.streams.max.session.timeout.ms": 900000,
    "group.streams.session.timeout.ms": 900000,
    "group.share.max.record.lock.duration.ms": 900000,
    "group.share.record.lock.duration.ms": 900000,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.snapshot.update.records.per.snapshot": 3,
    "log.segment.bytes": 1048576,
    "transaction.max.timeout.ms": 900000,
    "log.flush.start.offset.checkpoint.interval.ms": 500,
    "log.initial.task.delay.ms": 500,
}
_FEATURES = ("group.version=1", "share.version=1", "streams.version=1", "transaction.version=2")
_CLASSIC, _CONSUMER = {"group.protocol": "classic"}, {"group.protocol": "consumer"}


@case(since="4.1", part="groups")
def groups(context: CaseContext) -> None:
    """Live and empty groups of all protocols, with offsets of every origin."""
    root = context.run_directory / "cluster"
    # 4.1 has groups of streams as an early access.
    unstable: Settings = {} if context.since(4, 2) else {
        "unstable.feature.versions.enable": "true", "unstable.api.versions.enable": "true",
    }
    plans = (NodePlan(1, settings={"broker.rack": "east"}),)
    settings = _SETTINGS | unstable
    with KraftCluster(context.version, root, plans, settings, context.around.work) as cluster:
        cluster.format(*(word for each in _FEATURES for word in ("--feature", each)))
        cluster.start()
        cluster.wait_for_brokers(1)
        with GroupMoment(cluster, context.around.work) as moment:
            _make(context, cluster, moment)
            moment.ask_and_kill()
            moment.save(context)


def _make(context: CaseContext, cluster: KraftCluster, moment: GroupMoment) -> None:
    """Make the groups; streams begin first, because they need the longest to join."""
    names = {"orders": 3, "events": 1, "trimmed": 1, "doomed": 1, "again": 1, "counts": 1}
    topics = [{"name": name, "partitions": number, "replicas": 1} for name, number in names.items()]
    cluster.admin("create_topics", topics=topics)
    cluster.wait_for_replicas()
    start = context.first_timestamp
    for partition, batches in (("orders-0", 10), ("orders-1", 4), ("doomed-0", 3), ("again-0", 5)):
        moment.produce(partition, [[start + number] * 2 for number in range(batches)])
    _streams(moment, "streams", "orders")
    _classic(moment)
    _consumer(moment)
    _transactions(cluster, moment)
    _share(context, cluster, moment)
    moment.wait_until(
        "streams", lambda: moment.client("streams_state", id="streams")["state"] == "RUNNING"
    )
    moment.run_tools()
    _heartbeats(moment)


def _heartbeats(moment: GroupMoment) -> None:
    """Let members join whose clients would not stay as they are: requests, without a client."""
    _keep_too_much(moment, "consumer-reconciling", pause_seconds=2)
    # Within a second of the last assignment, from 4.3 on.
    _keep_too_much(moment, "consumer-assigning", pause_seconds=0)
    waiting = {
        "subtopologyId": "0", "sourceTopics": ["not-there"], "sourceTopicRegex": [],
        "stateChangelogTopics": [], "repartitionSinkTopics": [], "repartitionSourceTopics": [],
        "copartitionGroups": [],
    }
    moment.request(
        "STREAMS_GROUP_HEARTBEAT", 0, groupId="streams-waiting", memberId=_member_id(3),
        memberEpoch=0, endpointInformationEpoch=0, instanceId=None, rackId=None,
        rebalanceTimeoutMs=300000, topology={"epoch": 0, "subtopologies": [waiting]},
        activeTasks=[], standbyTasks=[], warmupTasks=[], processId="process",
        userEndpoint=None, clientTags=[], taskOffsets=None, taskEndOffsets=None,
        shutdownApplication=False,
    )


def _keep_too_much(moment: GroupMoment, group: str, *, pause_seconds: float) -> None:
    """Let a second member join, and the first keep what it should give up."""
    options = {
        "groupId": group, "instanceId": None, "rackId": None, "rebalanceTimeoutMs": 300000,
        "subscribedTopicNames": ["orders"], "subscribedTopicRegex": None, "serverAssignor": None,
    }
    first, second = _member_id(1), _member_id(2)

    def beat(member: str, epoch: int, has: list[Any]) -> dict[str, Any]:
        return moment.request(
            "CONSUMER_GROUP_HEARTBEAT", 1, memberId=member, memberEpoch=epoch,
            topicPartitions=has, **options,
        )

    joined = beat(first, 0, [])
    has = joined["assignment"]["topicPartitions"]
    beat(second, 0, [])
    time.sleep(pause_seconds)
    beat(first, joined["memberEpoch"], has)


def _member_id(number: int) -> str:
    return f"{'A' * 21}{'AQgw'[number]}"


def _streams(moment: GroupMoment, group: str, source: str) -> None:
    props = {
        "group.protocol": "streams", "application.id": group, "num.stream.threads": "2",
        "state.dir": str(moment.cluster.nodes[1].root / group),
    }
    moment.client("streams", id=group, props=props, source=source, sink="counts")


def _join(moment: GroupMoment, group: str, members: dict[str, dict[str, Any]]) -> None:
    """Let consumers join, and poll until each has something."""
    for member, options in members.items():
        chosen = {"topics": ["orders"]} if "regex" not in options else {}
        props = options.pop("props") | {"group.id": group}
        moment.client("consumer", id=member, props=props, **chosen, **options)
    _poll(moment, group, list(members), all)


def _poll(
    moment: GroupMoment, group: str, members: Sequence[str],
    enough: Callable[[list[list[str]]], bool],
) -> None:
    def is_done() -> bool:
        found = [moment.client("poll", id=each, ms=100)["assigned"] for each in members]
        return enough(found)

    moment.wait_until(f"members of {group}", is_done)


def _commit(moment: GroupMoment, member: str, **offsets: int) -> None:
    moment.client("commit", id=member, offsets={
        name.replace("_", "-"): [offset, None if offset % 2 else 0, f"by {member}"]
        for name, offset in offsets.items()
    })


def _classic(moment: GroupMoment) -> None:
    _join(moment, "classic", {
        "c-1": {"props": _CLASSIC},
        "c-2": {"props": _CLASSIC | {"group.instance.id": "static", "client.rack": "east"}},
    })
    _poll(moment, "classic", ["c-1", "c-2"], all)
    _commit(moment, "c-1", orders_0=7, orders_1=8)
    _join(moment, "classic-left", {"c-3": {"props": _CLASSIC}})
    _commit(moment, "c-3", orders_0=20, orders_2=0)
    moment.client("close", id="c-3")
    for group, offsets in (
        ("assigned", {"orders_0": 3, "events_0": 0}), ("again-assigned", {"again_0": 4}),
        ("offsets-deleted", {"orders_1": 5}), ("group-deleted", {"orders_1": 2}),
    ):
        member = f"a-{group}"
        moment.client("consumer", id=member, props=_CLASSIC | {"group.id": group}, assign=[])
        _commit(moment, member, **offsets)
        moment.client("close", id=member)
    moment.request("OFFSET_DELETE", 0, groupId="offsets-deleted", topics=[
        {"name": "orders", "partitions": [{"partitionIndex": 1}]},
    ])
    moment.request("DELETE_GROUPS", 2, groupsNames=["group-deleted"])


def _consumer(moment: GroupMoment) -> None:
    _join(moment, "consumer", {
        "n-1": {"props": _CONSUMER | {"group.remote.assignor": "range"}},
        "n-2": {"props": _CONSUMER | {"group.instance.id": "static-new", "client.rack": "west"}},
    })
    _commit(moment, "n-1", orders_0=9, orders_1=6, orders_2=0)
    _commit(moment, "n-1", orders_0=11)
    _join(moment, "consumer-regex", {"n-3": {"props": _CONSUMER, "regex": "(ord|ev).*"}})
    _commit(moment, "n-3", events_0=0, orders_0=1)
    for group in ("consumer-left", "consumer-deleted"):
        _join(moment, group, {f"n-{group}": {"props": _CONSUMER}})
        _commit(moment, f"n-{group}", orders_0=18)
        moment.client("close", id=f"n-{group}")
    moment.request("DELETE_GROUPS", 2, groupsNames=["consumer-deleted"])
    _join(moment, "consumer-mixed", {"m-1": {"props": _CLASSIC}})
    moment.client("consumer", id="m-2", topics=["orders"],
                  props=_CONSUMER | {"group.id": "consumer-mixed"})
    _poll(moment, "consumer-mixed", ["m-1", "m-2"], all)


def _transactions(cluster: KraftCluster, moment: GroupMoment) -> None:
    """Commit, abort and leave open the offsets of transactions; delete topics meanwhile."""
    offsets = {"orders-0": [5, 0, "in a transaction"], "orders-1": [3, None, ""]}
    again = {"again-0": [2, 0, ""]}
    for group, ends, committed in (
        ("txn-committed", True, offsets), ("txn-aborted", False, offsets),
        ("txn-open", None, offsets), ("assigned", None, offsets), ("txn-deleted", None, offsets),
        ("txn-again", None, again),
    ):
        moment.transaction(group, committed)
        if ends is not None:
            moment.client("end", id=f"txn-{group}", commit=ends)
    moment.request("OFFSET_DELETE", 0, groupId="txn-deleted", topics=[
        {"name": "orders", "partitions": [{"partitionIndex": 0}]},
    ])
    moment.client("end", id="txn-txn-deleted", commit=True)
    moment.client("consumer", id="a-doomed", props=_CLASSIC | {"group.id": "assigned"}, assign=[])
    _commit(moment, "a-doomed", doomed_0=1)
    for topic in ("doomed", "again"):
        cluster.admin("delete_topic", topic=topic)
    time.sleep(1)
    cluster.admin("create_topics", topics=[{"name": "again", "partitions": 1, "replicas": 1}])
    cluster.wait_for_replicas()
    moment.client("end", id="txn-txn-again", commit=True)
    moment.produce("again-0", [[1_500_000_000_000]])


def _share(context: CaseContext, cluster: KraftCluster, moment: GroupMoment) -> None:
    """Acknowledge, release and reject records, and keep others acquired."""
    start = context.first_timestamp
    moment.produce("events-0", [[start + number] * 3 for number in range(10)])
    moment.produce("events-0", [[start + 20] * 3], transactional_id="t")
    moment.produce("events-0", [[start + number] * 3 for number in range(30, 33)])
    moment.produce("trimmed-0", [[start + number] * 3 for number in range(6)])
    groups = ("share", "share-left", "share-trimmed", "share-nothing")
    for group in groups:
        earliest = {"share.auto.offset.reset": "earliest"}
        cluster.admin("alter_configs", type="GROUP", name=group, set=earliest)
    accepted = {"*": "ACCEPT"}
    odd = {str(offset): "ACCEPT" for offset in range(5)}
    odd |= {"5": "RELEASE", "6": "RELEASE", "7": "REJECT", "8": "ACCEPT", "10": "REJECT"}
    odd |= {"12": "ACCEPT", "13": "ACCEPT"}
    _share_join(moment, "share", "s-1", "events", odd, rack="east")
    moment.client("share", id="s-2", props={"group.id": "share"}, topics=["events", "orders"])
    again = {"5": "RELEASE", "6": "ACCEPT"}
    _share_poll(moment, "s-2", {"events-0": again, "orders-0": {"1": "ACCEPT"}})
    _share_join(moment, "share-left", "s-3", "events", accepted)
    moment.client("close", id="s-3")
    _share_join(moment, "share-trimmed", "s-4", "trimmed", {"0": "ACCEPT", "9": "ACCEPT"})
    moment.request("DELETE_RECORDS", 2, timeoutMs=10000, topics=[
        {"name": "trimmed", "partitions": [{"partitionIndex": 0, "offset": 5}]},
    ])
    checkpoint = cluster.nodes[1].logs / "log-start-offset-checkpoint"
    moment.wait_until("log start", lambda: "trimmed 0 5" in checkpoint.read_text())
    moment.client("share", id="s-5", props={"group.id": "share-nothing"}, topics=["counts"])
    moment.client("share_poll", id="s-5", ms=2000, acknowledge={})


def _share_join(
    moment: GroupMoment, group: str, member: str, topic: str, acknowledge: dict[str, str],
    rack: str | None = None,
) -> None:
    props = {"group.id": group} | ({"client.rack": rack} if rack else {})
    moment.client("share", id=member, props=props, topics=[topic])
    _share_poll(moment, member, {f"{topic}-0": acknowledge})


def _share_poll(moment: GroupMoment, member: str, acknowledge: dict[str, dict[str, str]]) -> None:
    def is_done() -> bool:
        found = moment.client("share_poll", id=member, ms=200, acknowledge=acknowledge)
        return any(found["found"].values())

    moment.wait_until(f"records for {member}", is_done)
