"""The case about the metadata of a cluster that is upgraded from an old metadata.version."""
from __future__ import annotations

from ..case_context import CaseContext
from ..java import BrokerFailure
from ..kraft_cluster import KraftCluster, NodePlan
from ..kraft_moments import Moments
from .kraft_cluster import SETTINGS, metadata_segments
from .registry import case

# Each changed how something is recorded. The first is the oldest that 3.9 formats with, the second
# the oldest that 4.x does.
_LEVELS = {
    "3.3-IV0": 4,
    "3.3-IV3": 7,
    "3.4-IV0": 8,
    "3.5-IV2": 11,
    "3.7-IV0": 15,
    "3.7-IV2": 17,
    "3.9-IV0": 21,
    "4.0-IV1": 23,
}
_PLANS = (NodePlan(1, ("controller",)), NodePlan(2, ("broker",)), NodePlan(3, ("broker",)))


@case(since="3.9", part="metadata")
def kraft_upgrade(context: CaseContext) -> None:
    """At each level topics are created, changed and deleted, and at some a broker is killed."""
    levels = list(_LEVELS)[1:] if context.since(4) else list(_LEVELS)[:-1]
    settings = SETTINGS | metadata_segments(context)
    root = context.run_directory / "cluster"
    with KraftCluster(context.version, root, _PLANS, settings, context.around.work) as cluster:
        cluster.format("--release-version", levels[0])
        cluster.start()
        cluster.wait_for_brokers(2, 3)
        moments = Moments(cluster)
        moments.ask(levels[0], f"formatted at {levels[0]}")
        for number, level in enumerate(levels):
            if number:
                _upgrade(cluster, level)
            _change(cluster, level)
            moments.ask(f"changed-{level}", f"topics and configs changed at {level}")
            if not number % 3:
                _fence(cluster, moments, level)
        for number in (3, 2, 1):
            cluster.nodes[number].stop()
        moments.save(context, {1: "clean", 2: "clean", 3: "clean"})


def _upgrade(cluster: KraftCluster, level: str) -> None:
    """Upgrade the metadata.version."""
    levels = {"metadata.version": _LEVELS[level]}
    try:
        cluster.admin("update_features", type="UPGRADE", levels=levels)
    except BrokerFailure as error:
        raise BrokerFailure(f"{level}: {error}") from error
    cluster.wait_until(
        f"metadata.version {level}",
        lambda: cluster.admin("features")["features"]["finalized"].get("metadata.version")
        == [_LEVELS[level]] * 2,
    )


def _change(cluster: KraftCluster, level: str) -> None:
    """Create two topics, change one and delete one."""
    admin = cluster.admin
    names = (f"kept-{level}", f"deleted-{level}")
    admin("create_topics", topics=[{"name": n, "partitions": 2, "replicas": 2} for n in names])
    cluster.wait_for_replicas()
    admin("alter_configs", type="TOPIC", name=names[0], set={"retention.ms": "5000"})
    admin("alter_configs", type="TOPIC", name=names[1], set={"retention.ms": "6000"})
    admin("reassign", topic=names[0], partition=0, replicas=[3])
    admin("delete_topic", topic=names[1])
    admin("alter_quotas", entity={"user": level}, values={"producer_byte_rate": 100.0})
    cluster.wait_for_replicas()


def _fence(cluster: KraftCluster, moments: Moments, level: str) -> None:
    """Kill a broker, and start it again."""
    cluster.kill(3)
    cluster.connect()
    cluster.wait_for_brokers(2)
    moments.ask(f"fenced-{level}", f"broker 3 killed at {level}")
    cluster.start(3)
    cluster.wait_for_brokers(2, 3)
    cluster.wait_for_replicas()
    moments.ask(f"returned-{level}", f"broker 3 started at {level}")
