"""Start, stop and kill real brokers, one node each.

Everything listens on 127.0.0.1 and lives under a directory that the caller names.
"""
from __future__ import annotations

import re
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from .brokers import REFERENCE, WORK, class_path, version_key
from .java import BrokerFailure, ClassArchive, LoggedProcess, java_command
from .java_client import JavaClient
from .server_properties import Mode, Ports, ServerProperties
from .wire import LIST_OFFSETS, NEWEST_LIST_OFFSETS, Wire

CLUSTER_ID = "Z29sZGVuLWthZmthc3RvcmU"
STARTED = r"started \(kafka\.server\.Kafka(Raft)?Server(Startable)?\)"
# A broker killed a moment ago may still own its ephemeral node in ZooKeeper.
_STILL_REGISTERED = "NodeExists|already registered|already exists"


def free_ports(count: int) -> list[int]:
    """Return different ports of 127.0.0.1 that no process listens on now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _start_zookeeper(
    root: Path, port: int, work: Path, archive: ClassArchive
) -> LoggedProcess:
    """Start a ZooKeeper whose data is in ``root/zk`` and wait until it listens."""
    data = root / "zk"
    data.mkdir(exist_ok=True)
    config = root / "zk.cfg"
    config.write_text(
        f"tickTime=2000\ndataDir={data}\nmaxClientCnxns=0\n"
        f"clientPort={port}\nclientPortAddress=127.0.0.1\n"
    )
    command = java_command(
        class_path(REFERENCE, work),
        "org.apache.zookeeper.server.ZooKeeperServerMain",
        str(config),
        logs_as="broker",
        options=["-Dzookeeper.admin.enableServer=false", *archive.options],
    )
    zookeeper = LoggedProcess(command, root / "zk.log")
    for _ in range(400):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return zookeeper
    zookeeper.abandon()
    raise BrokerFailure(f"ZooKeeper did not start: {zookeeper.log()}")


class Cluster:
    """One broker with its ZooKeeper, or one that is its own controller (KRaft).

    Parameters
    ----------
    version : str
        Kafka's.
    root : path
        Gets ``logs`` (``log.dirs``), ``zk``, the settings and what the processes print.
    settings : mapping, optional
        Added to the broker's settings.
    mode : str, optional
        ``zk`` or ``kraft``; by default what the version is for.
    work : path
        Where jars are kept.

    Attributes
    ----------
    broker_log : str
        What the broker had printed when it was stopped last.
    list_offsets_versions : tuple of int
        Lowest and highest version of ListOffsets that broker and `Wire` know.
    """

    def __init__(
        self,
        version: str,
        root: Path,
        settings: Mapping[str, str | int] | None = None,
        mode: Mode | None = None,
        *,
        work: Path = WORK,
    ) -> None:
        self.version, self.root, self.work = version, root, work
        self.mode: Mode = mode or ("kraft" if version_key(version) >= (3, 9) else "zk")
        self.properties = ServerProperties(version, self.mode, root, settings or {})
        self.logs = root / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.ports: Ports | None = None
        self.starts = 0
        self.zookeeper: LoggedProcess | None = None
        self.broker: LoggedProcess | None = None
        self.broker_log = ""
        self.api_versions: dict[int, tuple[int, int]] = {}
        self.list_offsets_versions = (0, 0)
        self._wire: Wire | None = None
        self._archives = {
            "zookeeper": ClassArchive(f"{REFERENCE}-zookeeper", work),
            "broker": ClassArchive(f"{version}-broker", work),
        }

    @property
    def wire(self) -> Wire:
        """The raw connection to the running broker."""
        if self._wire is None:
            raise BrokerFailure("the broker is not running")
        return self._wire

    @property
    def port(self) -> int:
        """Where the broker listens on 127.0.0.1."""
        return self._known_ports().broker

    @property
    def address(self) -> str:
        """Where clients reach the broker."""
        return f"127.0.0.1:{self.port}"

    @property
    def zookeeper_address(self) -> str:
        """Where ZooKeeper listens."""
        return f"127.0.0.1:{self._known_ports().zookeeper}"

    def _known_ports(self) -> Ports:
        """Return the ports, chosen at the first start and kept from then on."""
        if self.ports is None:
            self.ports = Ports(*free_ports(2))
        return self.ports

    def recorded_settings(self) -> dict[str, str]:
        """Return the broker's settings without ports and directories."""
        return self.properties.recorded(self._known_ports())

    def start_zookeeper(self) -> None:
        """Start ZooKeeper."""
        ports = self._known_ports()
        (port,) = free_ports(1)
        self.ports = Ports(ports.broker, ports.controller, port)
        archive = self._archives["zookeeper"]
        self.zookeeper = _start_zookeeper(self.root, port, self.work, archive)

    def share_zookeeper(self, other: Cluster) -> None:
        """Use the running ZooKeeper of another cluster, which stays its owner."""
        ports = self._known_ports()
        self.ports = Ports(ports.broker, ports.controller, other._known_ports().zookeeper)
        self.zookeeper = other.zookeeper

    def start(self) -> None:
        """Start the broker, with its ZooKeeper if that does not run, and connect to it.

        Raises
        ------
        BrokerFailure
            If it does not start.
        """
        if self.mode == "zk" and self.zookeeper is None:
            self.start_zookeeper()
        settings = self.properties.settings(self._known_ports())
        lines = (f"{name}={value}\n" for name, value in settings.items())
        properties_file = self.root / "server.properties"
        properties_file.write_text("".join(lines))
        if self.mode == "kraft" and not (self.logs / "meta.properties").exists():
            self.tool(
                *("kafka.tools.StorageTool", "format"),
                *("-t", CLUSTER_ID, "-c", str(properties_file)),
                check=True,
            )
        self.starts += 1
        self._start_broker(properties_file)
        self._wire = Wire(self._known_ports().broker)
        self.api_versions = self._wire.api_versions()
        lowest, highest = self.api_versions.get(LIST_OFFSETS, (0, 0))
        self.list_offsets_versions = (lowest, min(highest, NEWEST_LIST_OFFSETS))

    def _start_broker(self, properties_file: Path, attempts: int = 3) -> None:
        """Start the broker process; again, while ZooKeeper still believes in the last one."""
        command = java_command(
            class_path(self.version, self.work),
            "kafka.Kafka",
            str(properties_file),
            logs_as="broker",
            options=self._archives["broker"].options,
        )
        self.broker = LoggedProcess(command, self.root / f"broker-{self.starts}.log")
        try:
            self.broker.wait_for(STARTED)
        except BrokerFailure:
            if attempts == 1 or not re.search(_STILL_REGISTERED, self.broker.log()):
                raise
            time.sleep(4)
            self._start_broker(properties_file, attempts - 1)

    def stop(self, *, kill: bool = False, zookeeper: bool = True) -> None:
        """Stop the broker.

        Parameters
        ----------
        kill : bool
            With SIGKILL instead of a clean shutdown.
        zookeeper : bool
            Stop ZooKeeper too.
        """
        self.wire.close()
        self._wire = None
        if self.broker is not None:
            self.broker.end(signal.SIGKILL if kill else signal.SIGTERM)
            self.broker_log = self.broker.log()
            self.broker = None
            self._archives["broker"].keep()
        if zookeeper:
            self.stop_zookeeper()

    def stop_zookeeper(self) -> None:
        """Stop ZooKeeper, if it runs."""
        if self.zookeeper is not None:
            self.zookeeper.end()
            self.zookeeper = None
            self._archives["zookeeper"].keep()

    def abandon(self) -> None:
        """Kill what runs."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        for process in (self.broker, self.zookeeper):
            if process is not None:
                process.abandon()

    def tool(self, main_class: str, *arguments: str, check: bool = False) -> str:
        """Run one of the version's command line tools and return what it prints.

        Parameters
        ----------
        main_class : str
            Its class.
        *arguments : str
            Its arguments.
        check : bool
            Raise `subprocess.CalledProcessError` if it fails.
        """
        archive = ClassArchive(f"{self.version}-{main_class}", self.work)
        command = java_command(
            class_path(self.version, self.work),
            main_class,
            *arguments,
            logs_as="client",
            options=archive.options,
        )
        try:
            run = subprocess.run(
                command,
                check=check,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=120,
                cwd=self.root,
            )
        except subprocess.CalledProcessError as error:
            error.add_note(error.output.decode(errors="replace"))
            raise
        archive.keep()
        return run.stdout.decode(errors="replace")

    def create_topic(
        self, client: JavaClient, topic: str, partitions: int, config: Mapping[str, str]
    ) -> None:
        """Create a topic and wait until its partitions answer."""
        if client.is_old:
            self._create_topic_by_tool(topic, partitions, config)
        else:
            description = {"name": topic, "partitions": partitions, "configs": dict(config)}
            client("create", topics=[description])
        self.wait_for_leaders(topic, partitions)

    def _create_topic_by_tool(
        self, topic: str, partitions: int, config: Mapping[str, str], attempts: int = 5
    ) -> None:
        """Create a topic with the version's TopicCommand, which writes to ZooKeeper."""
        settings = [part for name in config for part in ("--config", f"{name}={config[name]}")]
        printed = self.tool(
            *("kafka.admin.TopicCommand", "--zookeeper", self.zookeeper_address),
            *("--create", "--topic", topic, "--partitions", str(partitions)),
            *("--replication-factor", "1", *settings),
        )
        if "Created topic" in printed:
            return
        # On a busy machine the broker's session may expire; it registers again by itself.
        if attempts == 1 or "larger than available brokers: 0" not in printed:
            raise BrokerFailure(printed)
        time.sleep(3)
        self._create_topic_by_tool(topic, partitions, config, attempts - 1)

    def wait_for_leaders(self, topic: str, partitions: int) -> None:
        """Wait until the broker answers for a topic's partitions."""
        version = min(1, self.list_offsets_versions[1])
        for partition in range(partitions):
            self.wire.wait_for_leader(topic, partition, version=version)
