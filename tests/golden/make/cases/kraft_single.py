"""The case about the metadata of a single node, whose log names its voters."""
from __future__ import annotations

from ..case_context import CaseContext
from ..kraft_cluster import KraftCluster, NodePlan
from ..kraft_moments import Moments
from .kraft_cluster import SETTINGS, SNAPSHOT_BYTES, metadata_segments
from .registry import case


@case(since="3.9", part="metadata")
def kraft_single(context: CaseContext) -> None:
    """A node formatted alone with the version's features, and started again."""
    settings = SETTINGS | metadata_segments(context)
    root = context.run_directory / "cluster"
    plans = (NodePlan(1, settings={"broker.rack": "only"}),)
    with KraftCluster(context.version, root, plans, settings, context.around.work) as cluster:
        cluster.format(dynamic=True)
        cluster.start()
        cluster.wait_for_brokers(1)
        moments = Moments(cluster)
        moments.ask("formatted", "formatted with --standalone, started")
        _change(context, cluster, moments)
        cluster.nodes[1].stop()
        # It has written no snapshot yet: it starts on everything that was done before.
        cluster.set(**{SNAPSHOT_BYTES: 500})
        cluster.start()
        cluster.wait_for_brokers(1)
        cluster.wait_for_replicas()
        moments.ask("restarted", "the node stopped and started")
        cluster.nodes[1].stop(kill=True)
        cluster.start()
        cluster.wait_for_brokers(1)
        cluster.wait_for_replicas()
        moments.ask("recovered", "the node killed and started")
        cluster.nodes[1].stop()
        moments.save(context, {1: "clean"})


def _change(context: CaseContext, cluster: KraftCluster, moments: Moments) -> None:
    """Create topics, change and remove configurations, and delete a topic."""
    admin = cluster.admin
    topics = [
        {"name": name, "partitions": partitions, "replicas": 1}
        for name, partitions in (("one", 1), ("four", 4), ("doomed", 2), ("Unusual.na_me-", 1))
    ]
    admin("create_topics", topics=topics)
    cluster.wait_for_replicas()
    context.client("connect", bootstrap=cluster.address())
    start = context.first_timestamp
    for name in ("one", "doomed"):
        context.produce(name, context.batches([start + delta for delta in range(4)]))
    moments.ask("topics", "four topics created, records produced")
    admin("alter_configs", type="TOPIC", name="one", set={"retention.ms": "1000"})
    admin("alter_configs", type="TOPIC", name="doomed", set={"retention.ms": "2000"})
    admin("alter_configs", type="BROKER", name="1", set={"num.io.threads": "3"})
    admin("alter_configs", type="BROKER", name="", set={"log.retention.ms": "3000000"})
    user = {"user": "zoë", "mechanism": "SCRAM-SHA-256"}
    admin("alter_scram", users=[user | {"iterations": 4096}])
    admin("alter_quotas", entity={"user": "zoë"}, values={"producer_byte_rate": 5.0})
    moments.ask("configured", "configs, a credential and a quota set")
    admin("alter_configs", type="TOPIC", name="one", delete=["retention.ms"])
    admin("alter_configs", type="BROKER", name="", delete=["log.retention.ms"])
    admin("alter_scram", users=[user])
    admin("alter_quotas", entity={"user": "zoë"}, values={"producer_byte_rate": None})
    admin("delete_topic", topic="doomed")
    moments.ask("removed", "what was set removed, but of broker 1; doomed deleted")
    admin("create_topics", topics=[{"name": "doomed", "partitions": 1, "replicas": 1}])
    cluster.wait_for_replicas()
    moments.ask("created-again", "doomed created again")
