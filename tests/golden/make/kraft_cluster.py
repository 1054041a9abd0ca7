"""Start, stop and kill the nodes of a KRaft cluster, and wait for what they do.

Every node is a process of its own under one directory, and listens on 127.0.0.1.
"""
from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from .brokers import WORK, class_path
from .cluster import CLUSTER_ID, STARTED, free_ports
from .java import BROKER_FAILURES, BrokerFailure, ClassArchive, LoggedProcess, java_command
from .java_client import JavaClient
from .server_properties import METADATA_WITH_LOGS, Ports, ServerProperties, Settings
from .wire import Wire

_BROKER, _CONTROLLER = "broker", "controller"


@dataclass(frozen=True)
class NodePlan:
    """A node of a cluster: its id, its roles, and settings that only it has."""

    node_id: int
    roles: tuple[str, ...] = (_BROKER, _CONTROLLER)
    settings: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def is_broker(self) -> bool:
        """Whether clients can connect to it."""
        return _BROKER in self.roles

    @property
    def is_controller(self) -> bool:
        """Whether it votes."""
        return _CONTROLLER in self.roles


class Node:
    """One process of a cluster.

    Parameters
    ----------
    version : str
        Kafka's.
    root : path
        Of the cluster; gets ``logs-<id>``, the node's settings and what it prints.
    plan : NodePlan
        What it is.
    work : path
        Where jars are kept.
    """

    def __init__(self, version: str, root: Path, plan: NodePlan, work: Path) -> None:
        self.version, self.root, self.plan, self.work = version, root, plan, work
        self.ports = Ports(*free_ports(2))
        self.logs = root / f"logs-{plan.node_id}"
        self.starts = 0
        self.process: LoggedProcess | None = None
        self._archive = ClassArchive(f"{version}-broker", work)

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return f"127.0.0.1:{self.ports.broker}"

    @property
    def properties_file(self) -> Path:
        """Its settings."""
        return self.root / f"server-{self.plan.node_id}.properties"

    def properties(self, quorum: Settings, more: Mapping[str, str | int]) -> ServerProperties:
        """Describe its settings; `quorum` names the controllers, `more` is for all nodes."""
        broker = f"PLAINTEXT://{self.address}"
        controller = f"CONTROLLER://127.0.0.1:{self.ports.controller}"
        listeners = [broker] * self.plan.is_broker + [controller] * self.plan.is_controller
        own: dict[str, str | int] = {
            METADATA_WITH_LOGS: 1,
            "node.id": self.plan.node_id,
            "process.roles": ",".join(self.plan.roles),
            "log.dirs": str(self.logs),
            "listeners": ",".join(listeners),
            **quorum,
            **more,
            **self.plan.settings,
        }
        return ServerProperties(self.version, "kraft", self.root, own)

    def write(self, properties: ServerProperties) -> None:
        """Write its settings."""
        settings = properties.settings(self.ports)
        if "controller.quorum.bootstrap.servers" in settings:
            del settings["controller.quorum.voters"]
        if not self.plan.is_broker:
            del settings["advertised.listeners"]
        lines = (f"{name}={value}\n" for name, value in settings.items())
        self.properties_file.write_text("".join(lines))

    def format(self, *options: str) -> None:
        """Format its log directory."""
        self.logs.mkdir(parents=True)
        main_class = "kafka.tools.StorageTool"
        archive = ClassArchive(f"{self.version}-{main_class}", self.work)
        arguments = ("format", "-t", CLUSTER_ID, "-c", str(self.properties_file), *options)
        command = java_command(
            class_path(self.version, self.work),
            main_class,
            *arguments,
            logs_as="client",
            options=archive.options,
        )
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=self.root)
        if run.returncode:
            raise BrokerFailure(f"{' '.join(arguments)}: {run.stdout}{run.stderr}")
        archive.keep()

    def start(self) -> None:
        """Start the process, without waiting for it."""
        self.starts += 1
        self._archive = ClassArchive(f"{self.version}-broker", self.work)
        command = java_command(
            class_path(self.version, self.work),
            "kafka.Kafka",
            str(self.properties_file),
            logs_as="broker",
            options=self._archive.options,
        )
        log_file = self.root / f"node-{self.plan.node_id}-{self.starts}.log"
        self.process = LoggedProcess(command, log_file)

    def wait(self) -> None:
        """Wait until it has started."""
        if self.process is not None:
            self.process.wait_for(STARTED)

    def stop(self, *, kill: bool = False) -> None:
        """End the process, by a clean shutdown or with SIGKILL."""
        if self.process is not None:
            self.process.end(signal.SIGKILL if kill else signal.SIGTERM)
            self.process = None
            self._archive.keep()

    def abandon(self) -> None:
        """Kill the process, if it runs."""
        if self.process is not None:
            self.process.abandon()
            self.process = None

    def metadata_offset(self) -> int:
        """Return the offset of the last metadata record that it has applied."""
        wire = Wire(self.ports.broker)
        try:
            return wire.metadata_offset()
        finally:
            wire.close()


class KraftCluster:
    """Nodes with one metadata log, and their administrator.

    Parameters
    ----------
    version : str
        Kafka's.
    root : path
        Gets the nodes' directories.
    plans : sequence of NodePlan
        The nodes.
    settings : mapping
        Of all nodes.
    work : path
        Where jars are kept.

    Attributes
    ----------
    nodes : dict
        By id.
    admin : JavaClient
        Runs an operation of ``AdminDriver.java``.
    """

    def __init__(
        self,
        version: str,
        root: Path,
        plans: Sequence[NodePlan],
        settings: Mapping[str, str | int],
        work: Path = WORK,
    ) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.version, self.settings = version, dict(settings)
        self._quorum: Settings = {}
        self.nodes = {plan.node_id: Node(version, root, plan, work) for plan in plans}
        self.admin = JavaClient(version, work, "AdminDriver")

    def __enter__(self) -> KraftCluster:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Kill what runs."""
        self.admin.close()
        for node in self.nodes.values():
            node.abandon()

    @property
    def running(self) -> list[Node]:
        """The nodes that run."""
        return [node for node in self.nodes.values() if node.process is not None]

    @property
    def running_brokers(self) -> list[Node]:
        """The nodes that run and have clients."""
        return [node for node in self.running if node.plan.is_broker]

    def address(self) -> str:
        """Return where clients reach the cluster."""
        brokers = self.running_brokers or list(self.nodes.values())
        return ",".join(node.address for node in brokers if node.plan.is_broker)

    def format(self, *options: str, dynamic: bool = False) -> None:
        """Format all nodes.

        Parameters
        ----------
        *options : str
            Of the storage tool.
        dynamic : bool
            The metadata log names the controllers, not the settings: at first only the first one.
        """
        addresses = self._name_voters()
        if dynamic:
            self._quorum = {"controller.quorum.bootstrap.servers": ",".join(addresses.values())}
        self.set()
        for node in self.nodes.values():
            more: tuple[str, ...] = ()
            if dynamic and node.plan.is_controller:
                is_first = node.plan.node_id == next(iter(addresses))
                more = ("--standalone" if is_first else "--no-initial-controllers",)
            node.format(*options, *more)

    def _name_voters(self) -> dict[int, str]:
        """Let the settings name the controllers; return their addresses by id."""
        voters = [node for node in self.nodes.values() if node.plan.is_controller]
        addresses = {node.plan.node_id: f"127.0.0.1:{node.ports.controller}" for node in voters}
        named = ",".join(f"{number}@{address}" for number, address in addresses.items())
        self._quorum = {"controller.quorum.voters": named}
        return addresses

    def mount(self, directories: Mapping[int, Path]) -> None:
        """Use log directories that are formatted, by node."""
        for number, path in directories.items():
            self.nodes[number].logs = path
        self._name_voters()
        self.set()

    def set(self, **settings: str | int) -> None:
        """Write the settings of all nodes, with some changed; a node reads them when it starts."""
        self.settings |= settings
        for node in self.nodes.values():
            node.write(node.properties(self._quorum, self.settings))

    def recorded_settings(self, node: Node) -> dict[str, str]:
        """Return a node's settings without ports and directories."""
        return node.properties({}, self.settings).recorded(node.ports)

    def start(self, *node_ids: int) -> None:
        """Start nodes, all by default, and wait until they run; connect the administrator."""
        starting = [self.nodes[number] for number in node_ids or self.nodes]
        for node in starting:
            node.start()
        for node in starting:
            node.wait()
        self.connect()

    def connect(self) -> None:
        """Let the administrator know the brokers that run."""
        self.admin("connect", bootstrap=self.address())

    def kill(self, *node_ids: int) -> None:
        """Kill nodes, all at the same time."""
        for number in node_ids:
            process = self.nodes[number].process
            if process is not None:
                process.process.send_signal(signal.SIGKILL)
        for number in node_ids:
            self.nodes[number].stop(kill=True)

    def wait_until(
        self, what: str, is_true: Callable[[], bool], *, seconds: float = 60
    ) -> None:
        """Wait for a condition, during which questions may fail.

        Raises
        ------
        BrokerFailure
            If it does not become true in time.
        """
        deadline = time.monotonic() + seconds
        failure: BaseException | None = None
        while time.monotonic() < deadline:
            try:
                if is_true():
                    return
            except BROKER_FAILURES as error:
                failure = error
            time.sleep(0.2)
        raise BrokerFailure(f"not within {seconds} s: {what}") from failure

    def wait_for_brokers(self, *node_ids: int) -> None:
        """Wait until exactly these brokers are not fenced."""
        wanted = sorted(node_ids)
        self.wait_until(
            f"brokers {wanted}", lambda: sorted(self.admin("brokers")["brokers"]) == wanted
        )

    def wait_for_topics(self, what: str, is_true: Callable[[dict[str, Any]], bool]) -> None:
        """Wait for something in the description of topics and reassignments."""
        self.wait_until(what, lambda: is_true(self.admin("topics")))

    def wait_for_replicas(self) -> None:
        """Wait until every replica is in sync and no reassignment goes on."""
        self.wait_for_topics("all replicas in sync", all_in_sync)


def all_in_sync(described: Mapping[str, Any]) -> bool:
    """Say whether every replica of every topic is in sync."""
    partitions = (
        partition
        for topic in described["topics"].values()
        for partition in topic["partitions"].values()
    )
    return not described["reassignments"] and all(
        sorted(partition["isr"]) == sorted(partition["replicas"]) and partition["leader"] >= 0
        for partition in partitions
    )
