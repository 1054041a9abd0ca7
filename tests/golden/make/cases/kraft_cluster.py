"""The case about the metadata of a cluster of three brokers and its history."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..case_context import CaseContext
from ..kraft_cluster import KraftCluster, NodePlan
from ..kraft_moments import Moments
from .registry import case

SNAPSHOT_BYTES = "metadata.log.max.record.bytes.between.snapshots"
#: A node with this setting deletes old segments and snapshots, once a minute.
RETENTION = "metadata.max.retention.bytes"
#: Small logs and snapshots; quick fencing; few records without content.
SETTINGS: Mapping[str, str | int] = {
    SNAPSHOT_BYTES: 6000,
    "metadata.max.idle.interval.ms": 5000,
    "broker.session.timeout.ms": 6000,
    "broker.heartbeat.interval.ms": 500,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}
METADATA_SEGMENT_BYTES = 8000
#: The first whose bootstrap records are a transaction; it has no directories of replicas yet.
FIRST_METADATA_VERSION = "3.6-IV2"
# 3.8-IV0, 3.9-IV0
_METADATA_VERSION_3_8, _METADATA_VERSION_3_9 = 20, 21

_PLANS = (
    NodePlan(1, ("controller",), {RETENTION: 10000, SNAPSHOT_BYTES: 2500}),
    NodePlan(2, settings={"broker.rack": "a"}),
    NodePlan(3, settings={"broker.rack": "b", "controlled.shutdown.enable": "true"}),
    NodePlan(4, ("broker",)),
)


def metadata_segments(context: CaseContext) -> dict[str, str | int]:
    """Return the settings of small segments of the metadata log."""
    if context.since(4):
        return {"internal.metadata.log.segment.bytes": METADATA_SEGMENT_BYTES}
    return {
        "metadata.log.segment.bytes": METADATA_SEGMENT_BYTES,
        "metadata.log.segment.min.bytes": METADATA_SEGMENT_BYTES,
    }


@case(since="3.9", part="metadata")
def kraft_cluster(context: CaseContext) -> None:
    """A controller, two nodes that are both, and a broker; each step is described after it."""
    settings = SETTINGS | metadata_segments(context)
    root = context.run_directory / "cluster"
    with KraftCluster(context.version, root, _PLANS, settings, context.around.work) as cluster:
        scram = "SCRAM-SHA-256=[name=alice,password=alice-secret,iterations=4096]"
        cluster.format("--release-version", FIRST_METADATA_VERSION, "--add-scram", scram)
        cluster.start()
        moments = Moments(cluster, ["shoppers"] if context.since(4) else [])
        _History(context, cluster, moments).make()
        cluster.nodes[3].stop(kill=True)
        for number in (1, 2):
            cluster.nodes[number].stop()
        moments.save(context, {1: "clean", 2: "clean", 3: "kill", 4: "clean"})


class _History:
    """What is done to the cluster.

    Parameters
    ----------
    context : CaseContext
        The case.
    cluster : KraftCluster
        Runs.
    moments : Moments
        Gets what it answers.
    """

    def __init__(self, context: CaseContext, cluster: KraftCluster, moments: Moments) -> None:
        self.context, self.cluster, self.moments = context, cluster, moments
        self.admin = cluster.admin

    def make(self) -> None:
        """Do everything."""
        self.cluster.wait_for_brokers(2, 3, 4)
        self.moments.ask("formatted", f"formatted at {FIRST_METADATA_VERSION}, all nodes started")
        self.create_topics()
        self.configure()
        self.remove()
        self.create_again()
        self.upgrade()
        self.reassign()
        self.elect_uncleanly()
        self.unregister()

    def produce(self, topic: str, partition: int = 0, **config: str) -> None:
        """Append a few records."""
        start = self.context.first_timestamp
        batches = self.context.batches([start + delta for delta in range(4)])
        self.context.produce(
            topic, batches, partition, producer="-".join(["some", *config]), config=config
        )

    def create_topics(self) -> None:
        """Create topics with chosen and with any replicas."""
        topics: list[dict[str, Any]] = [
            {
                "name": "orders",
                "partitions": 3,
                "replicas": 3,
                "configs": {"min.insync.replicas": "2", "cleanup.policy": "compact"},
            },
            {"name": "pair", "assignment": [[4, 2]], "configs": {"min.insync.replicas": "2"}},
            {"name": "moved", "assignment": [[2, 3], [3, 4], [4, 2], [3, 2]]},
            {"name": "lone", "assignment": [[4]]},
            {
                "name": "doomed",
                "partitions": 2,
                "replicas": 2,
                "configs": {"retention.ms": "1000000"},
            },
        ]
        self.admin("create_topics", topics=topics)
        self.cluster.wait_for_replicas()
        self.context.client("connect", bootstrap=self.cluster.address())
        for topic in topics:
            self.produce(topic["name"])
        self.context.client(
            "commit_offsets", group="shoppers", topic="orders", partition=0, offset=1
        )
        self.cluster.wait_for_replicas()
        self.moments.ask("topics", "five topics created, records produced, an offset committed")

    def configure(self) -> None:
        """Set configurations, credentials, quotas and access control entries."""
        admin = self.admin
        admin(
            "alter_configs",
            type="TOPIC",
            name="orders",
            set={"retention.ms": "86400000", "max.message.bytes": "123456"},
            append={"cleanup.policy": "delete"},
        )
        admin("alter_configs", type="TOPIC", name="moved", set={"compression.type": "lz4"})
        admin("alter_configs", type="BROKER", name="2", set={"num.io.threads": "3"})
        admin("alter_configs", type="BROKER", name="3", set={"num.network.threads": "3"})
        default = {"message.max.bytes": "2000000", "log.retention.ms": "172800000"}
        admin("alter_configs", type="BROKER", name="", set=default)
        metrics = {"metrics": "org.apache.kafka.producer.", "interval.ms": "60000"}
        for name in ("metrics-1", "metrics-2"):
            admin("alter_configs", type="CLIENT_METRICS", name=name, set=metrics)
        for name in self.moments.groups:
            timeout = {"consumer.session.timeout.ms": "50000"}
            admin("alter_configs", type="GROUP", name=name, set=timeout)
        users = [
            {"user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 8192},
            {"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 4096},
            {"user": "bob", "mechanism": "SCRAM-SHA-512", "iterations": 5000},
        ]
        # One user may be altered once in a request.
        for user in users:
            admin("alter_scram", users=[user])
        for entity, values in _QUOTAS:
            admin("alter_quotas", entity=entity, values=values)
        for acl in _ACLS:
            admin("create_acl", acl=acl)
        self.moments.ask("configured", "configs, credentials, quotas, access control entries set")

    def remove(self) -> None:
        """Remove some of what was set, and a topic."""
        admin = self.admin
        admin("alter_configs", type="TOPIC", name="orders", delete=["retention.ms"])
        admin("alter_configs", type="TOPIC", name="moved", delete=["compression.type"])
        admin("alter_configs", type="BROKER", name="2", delete=["num.io.threads"])
        admin("alter_configs", type="BROKER", name="", delete=["message.max.bytes"])
        names = ["metrics", "interval.ms"]
        admin("alter_configs", type="CLIENT_METRICS", name="metrics-2", delete=names)
        admin("alter_scram", users=[{"user": "bob", "mechanism": "SCRAM-SHA-512"}])
        admin("alter_quotas", entity={"user": "alice"}, values={"producer_byte_rate": None})
        admin("alter_quotas", entity={"ip": "127.0.0.1"}, values={"connection_creation_rate": None})
        admin("delete_acl", acl=_ACLS[0])
        admin("delete_topic", topic="doomed")
        self.moments.ask("removed", "some configs and others removed, the topic doomed deleted")

    def create_again(self) -> None:
        """Create the topic again, add a partition, and let a producer get an id."""
        topic = {"name": "doomed", "partitions": 1, "replicas": 3}
        self.admin("create_topics", topics=[topic])
        self.admin("create_partitions", topic="orders", total=4)
        self.cluster.wait_for_replicas()
        self.context.client("connect", bootstrap=self.cluster.address())
        self.produce("orders", 3, **{"enable.idempotence": "true", "acks": "all"})
        self.moments.ask("created-again", "doomed created again, orders given a partition")

    def upgrade(self) -> None:
        """Upgrade features, by way of a level in between, and downgrade some."""
        admin = self.admin
        between = _METADATA_VERSION_3_9 if self.context.since(4) else _METADATA_VERSION_3_8
        admin("update_features", type="UPGRADE", levels={"metadata.version": between})
        self.cluster.wait_for_replicas()
        self.moments.ask("upgraded-halfway", f"metadata.version upgraded to {between}")
        supported = admin("features")["features"]["supported"]
        levels = {
            name: highest for name, (_, highest) in supported.items() if name != "kraft.version"
        }
        # Other features need the new metadata.version.
        for name in sorted(levels, key=lambda name: (name != "metadata.version", name)):
            if levels[name]:
                admin("update_features", type="UPGRADE", levels={name: levels[name]})
        self.cluster.wait_for_replicas()
        self.moments.ask("upgraded", f"features upgraded to {levels}")
        downgrades = {"transaction.version": 1, "share.version": 0}
        done = {name: level for name, level in downgrades.items() if levels.get(name)}
        for name, level in done.items():
            admin("update_features", type="SAFE_DOWNGRADE", levels={name: level})
        if done:
            self.moments.ask("downgraded", f"features downgraded to {done}")

    def reassign(self) -> None:
        """Reassign partitions while a new replica's broker is down, and when it is up."""
        admin, cluster = self.admin, self.cluster
        cluster.kill(4)
        cluster.connect()
        cluster.wait_for_brokers(2, 3)
        admin("reassign", topic="moved", partition=0, replicas=[4, 3])
        # The version decides whether this completes without broker 4.
        admin("reassign", topic="moved", partition=1, replicas=[2, 4])
        admin("reassign", topic="moved", partition=3, replicas=[4, 2])
        admin("reassign", topic="orders", partition=1, replicas=[3, 2])
        self.moments.ask("reassigning", "broker 4 killed, partitions reassigned")
        admin("reassign", topic="moved", partition=3, replicas=None)
        self.moments.ask("cancelled", "the reassignment of moved-3 cancelled")
        # Eligible leader replicas are forgotten when this changes.
        admin("alter_configs", type="TOPIC", name="pair", set={"min.insync.replicas": "1"})
        self.moments.ask("lowered", "min.insync.replicas of pair set to 1")
        admin("alter_configs", type="TOPIC", name="pair", set={"min.insync.replicas": "2"})
        cluster.start(4)
        cluster.wait_for_brokers(2, 3, 4)
        cluster.wait_for_replicas()
        self.moments.ask("reassigned", "broker 4 started, reassignments completed")

    def elect_uncleanly(self) -> None:
        """Make a replica that is not in sync the leader."""
        admin, cluster = self.admin, self.cluster
        cluster.kill(4)
        cluster.connect()
        cluster.wait_for_brokers(2, 3)
        self.context.client("connect", bootstrap=cluster.address())
        self.produce("pair", acks="1")  # there are fewer replicas than min.insync.replicas
        self.moments.ask("shrunk", "broker 4 killed, records produced to pair")
        cluster.kill(2)
        cluster.connect()
        cluster.wait_for_brokers(3)
        self.moments.ask("leaderless", "broker 2 killed")
        cluster.start(4)
        cluster.wait_for_brokers(3, 4)
        self.moments.ask("returned", "broker 4 started, which lacks records of pair")
        election = admin("elect_leader", type="UNCLEAN", topic="pair", partition=0)
        self.moments.ask("elected", f"unclean election for pair-0: {election or 'done'}")
        cluster.start(2)
        cluster.wait_for_brokers(2, 3, 4)
        cluster.wait_for_replicas()
        admin("elect_leader", type="PREFERRED", topic="moved", partition=2)
        self.moments.ask("complete", "broker 2 started, preferred leader of moved-2 elected")

    def unregister(self) -> None:
        """Shut a broker down, and unregister another."""
        cluster = self.cluster
        cluster.nodes[3].stop()
        cluster.connect()
        cluster.wait_for_brokers(2, 4)
        self.moments.ask("shut-down", "broker 3 shut down by itself")
        cluster.start(3)
        cluster.wait_for_brokers(2, 3, 4)
        cluster.wait_for_replicas()
        self.moments.ask("restarted", "broker 3 started")
        cluster.nodes[4].stop()
        cluster.connect()
        cluster.wait_for_brokers(2, 3)
        self.admin("unregister_broker", broker=4)
        self.moments.ask("unregistered", "broker 4 stopped and unregistered")


_QUOTAS: tuple[tuple[dict[str, str | None], dict[str, float]], ...] = (
    ({"user": "alice"}, {"producer_byte_rate": 1024.0, "consumer_byte_rate": 2048.0}),
    ({"user": None}, {"request_percentage": 75.5}),
    ({"client-id": "reader"}, {"consumer_byte_rate": 4096.0}),
    ({"user": "alice", "client-id": None}, {"producer_byte_rate": 512.0}),
    ({"ip": "127.0.0.1"}, {"connection_creation_rate": 100.0}),
)
_ACLS: tuple[dict[str, str], ...] = tuple(
    {
        "resource_type": resource_type,
        "resource_name": resource_name,
        "pattern_type": pattern_type,
        "principal": principal,
        "host": host,
        "operation": operation,
        "permission": permission,
    }
    for resource_type, resource_name, pattern_type, principal, host, operation, permission in (
        ("TOPIC", "doomed", "LITERAL", "User:alice", "*", "READ", "ALLOW"),
        ("TOPIC", "ord", "PREFIXED", "User:alice", "127.0.0.1", "WRITE", "ALLOW"),
        ("GROUP", "*", "LITERAL", "User:*", "*", "READ", "DENY"),
        ("CLUSTER", "kafka-cluster", "LITERAL", "User:bob", "*", "DESCRIBE_CONFIGS", "ALLOW"),
    )
)
