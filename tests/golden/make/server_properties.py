"""The settings of a standalone broker on this machine."""
from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from .brokers import version_key

Mode = Literal["zk", "kraft"]
Settings = dict[str, str | int]

# A setting of ours, not Kafka's: the metadata log is stored with the partitions.
METADATA_WITH_LOGS = "_metadata_with_logs"
# Depends on the machine, so that answers files leave it out.
_LOCAL = re.compile(r"(dir|dirs|listeners|connect|voters|port|host\.name)$")


@dataclass(frozen=True)
class Ports:
    """Where a cluster's processes listen on 127.0.0.1."""

    broker: int
    controller: int
    zookeeper: int | None = None


@dataclass(frozen=True)
class ServerProperties:
    """One broker's settings.

    Attributes
    ----------
    version : str
        Kafka's.
    mode : str
        ``zk`` or ``kraft``.
    root : path
        Of the cluster; ``root/logs`` is ``log.dirs``.
    more : mapping
        Added to, or instead of, what every broker here is given.
    """

    version: str
    mode: Mode
    root: Path
    more: Mapping[str, str | int] = field(default_factory=dict)

    def settings(self, ports: Ports) -> Settings:
        """Return everything in ``server.properties``."""
        own = self._zookeeper(ports) if self.mode == "zk" else self._kraft(ports)
        more = {name: value for name, value in self.more.items() if not name.startswith("_")}
        return self._storage() | self._transactions() | own | more

    def recorded(self, ports: Ports) -> dict[str, str]:
        """Return what answers files record: without ports and directories."""
        settings = self.settings(ports)
        return {name: str(settings[name]) for name in sorted(settings) if not _LOCAL.search(name)}

    def _storage(self) -> Settings:
        """Return the settings of the logs; small indexes, one internal partition, no retention."""
        return {
            "log.dirs": str(self.root / "logs"),
            "num.partitions": 1,
            "auto.create.topics.enable": "false",
            "controlled.shutdown.enable": "false",
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.segment.bytes": 1048576,
            "log.index.size.max.bytes": 10240,
            # 0.8.2 knows no "never"
            "log.retention.hours": -1 if version_key(self.version) >= (0, 9) else 1000000,
            "num.network.threads": 2,
            "num.io.threads": 2,
            "num.recovery.threads.per.data.dir": 1,
            "log.cleaner.dedupe.buffer.size": 2097152,
            "num.replica.fetchers": 1,
        }

    def _transactions(self) -> Settings:
        """Return the settings of the coordinators, from 0.11 on."""
        if version_key(self.version) < (0, 11):
            return {}
        return {
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.segment.bytes": 1048576,
            "group.initial.rebalance.delay.ms": 0,
        }

    def _zookeeper(self, ports: Ports) -> Settings:
        """Return the settings of listeners and of ZooKeeper."""
        register: Settings = {
            "broker.id": 0,
            "zookeeper.connect": f"127.0.0.1:{ports.zookeeper}",
            "zookeeper.session.timeout.ms": 6000,
            "zookeeper.connection.timeout.ms": 20000,
        }
        if version_key(self.version) < (0, 9):
            host = "127.0.0.1"
            return register | {
                "host.name": host, "port": ports.broker, "advertised.host.name": host
            }
        listener = f"PLAINTEXT://127.0.0.1:{ports.broker}"
        return register | {"listeners": listener, "advertised.listeners": listener}

    def _kraft(self, ports: Ports) -> Settings:
        """Return the settings of a combined broker and controller."""
        listener = f"PLAINTEXT://127.0.0.1:{ports.broker}"
        settings: Settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{ports.controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listeners": f"{listener},CONTROLLER://127.0.0.1:{ports.controller}",
            "advertised.listeners": listener,
        }
        if not self.more.get(METADATA_WITH_LOGS):
            settings["metadata.log.dir"] = str(self.root / "metadata")
        return settings
