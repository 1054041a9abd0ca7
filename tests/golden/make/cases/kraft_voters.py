"""The case about voters that are added, changed and removed, and about delegation tokens."""
from __future__ import annotations

from ..case_context import CaseContext
from ..cluster import free_ports
from ..kraft_cluster import KraftCluster, NodePlan
from ..kraft_moments import Moments
from ..server_properties import Ports
from .kraft_cluster import SETTINGS, SNAPSHOT_BYTES, metadata_segments
from .registry import case

_DAY_MS = 86_400_000
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_USERS = {"alice": "alice-secret", "bob": "bob-secret"}


def _jaas(user: str, *, knows: bool = False) -> str:
    """Return the login of a user; a broker's knows all users."""
    known = "".join(f' user_{name}="{word}"' for name, word in _USERS.items()) if knows else ""
    return f'{_LOGIN} username="{user}" password="{_USERS[user]}"{known};'


@case(since="3.9", part="metadata")
def kraft_voters(context: CaseContext) -> None:
    """Controllers 1 and 3, of which 1 begins alone, and broker 2."""
    settings = SETTINGS | metadata_segments(context) | {
        "delegation.token.secret.key": "golden-secret", "super.users": "User:ANONYMOUS;User:alice",
        "metadata.max.idle.interval.ms": 60000,
    }
    of_broker: dict[str, str | int] = {
        "listener.security.protocol.map":
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": _jaas("alice", knows=True),
    }
    plans = (
        NodePlan(1, ("controller",)), NodePlan(2, ("broker",), of_broker),
        NodePlan(3, ("controller",), {SNAPSHOT_BYTES: 2000}),
    )
    root = context.run_directory / "cluster"
    with KraftCluster(context.version, root, plans, settings, context.around.work) as cluster:
        (port,) = free_ports(1)
        listeners = f"PLAINTEXT://{cluster.nodes[2].address},SASL://127.0.0.1:{port}"
        of_broker |= {"listeners": listeners, "advertised.listeners": listeners}
        cluster.format(dynamic=True)
        cluster.start()
        cluster.wait_for_brokers(2)
        cluster.admin("connect_sasl", bootstrap=f"127.0.0.1:{port}", jaas=_jaas("alice"))
        moments = Moments(cluster)
        _change_tokens(cluster, moments)
        # 3.9.1 had not written the new port of a voter after a minute.
        _change_voters(cluster, moments, moves=context.since(4))
        for number in (3, 2, 1):
            cluster.nodes[number].stop()
        moments.save(context, {1: "clean", 2: "clean", 3: "clean"})


def _change_tokens(cluster: KraftCluster, moments: Moments) -> None:
    """Create delegation tokens, renew one and let one expire."""
    admin = cluster.admin
    admin("create_topics", topics=[{"name": "one", "partitions": 2, "replicas": 1}])
    cluster.wait_for_replicas()
    moments.ask("formatted", "formatted with controller 1 alone, a topic created")
    admin("create_token", name="own", lifetime_ms=7 * _DAY_MS, renewers=["bob", "carol"])
    admin("create_token", name="other", lifetime_ms=_DAY_MS, renewers=["alice"], owner="bob")
    moments.ask("tokens", "a delegation token for alice, and one that she requested for bob")
    admin("renew_token", name="own", period_ms=2 * _DAY_MS)
    admin("expire_token", name="other")
    moments.ask("renewed", "alice's token renewed, bob's expired")


def _change_voters(cluster: KraftCluster, moments: Moments, *, moves: bool) -> None:
    """Let controller 3 vote, if it moves at another port then, and no longer in the end."""
    node = cluster.nodes[3]
    lines = (node.logs / "meta.properties").read_text().splitlines()
    directory = dict(line.split("=", 1) for line in lines if "=" in line)["directory.id"]

    def port_of_voter() -> int | None:
        """Return where controller 3 listens, if it votes."""
        endpoints = cluster.admin("quorum")["quorum"]["nodes"].get("3")
        return endpoints[0]["port"] if endpoints else None

    cluster.wait_until("controller 3 follows", lambda: any(
        each["id"] == 3 for each in cluster.admin("quorum")["quorum"]["observers"]
    ))
    cluster.admin(
        "add_voter", id=3, directory_id=directory, host="127.0.0.1", port=node.ports.controller
    )
    cluster.wait_until("controller 3 votes", lambda: port_of_voter() == node.ports.controller)
    moments.ask("added", "controller 3 added to the voters")
    if moves:
        node.stop()
        node.ports = Ports(*free_ports(2))
        cluster.set()
        cluster.start(3)
        cluster.wait_until("voter 3 updated", lambda: port_of_voter() == node.ports.controller)
        moments.ask("updated", "controller 3 restarted at another port, which it tells the leader")
    cluster.admin("remove_voter", id=3, directory_id=directory)
    cluster.wait_until("controller 3 does not vote", lambda: port_of_voter() is None)
    moments.ask("removed", "controller 3 removed from the voters")
