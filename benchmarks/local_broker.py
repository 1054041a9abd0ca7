"""A broker on this machine alone, with data sets as its topics."""
from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from build_peers import CannotRun, kafka
from data import FIRST_PARTITION

TOPIC = FIRST_PARTITION.rpartition("-")[0]
MOST_SECONDS = 120
PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{client}
controller.listener.names=CONTROLLER
log.dirs={logs}
offsets.topic.replication.factor=1
# Old records are kept, in their segment.
log.retention.ms=-1
log.segment.bytes=2147483647
"""


@contextmanager
def broker_with(partition: Path, work: Path) -> Iterator[tuple[str, int]]:
    """Give the address and the process id of a broker that has a copy of a partition's files.

    Parameters
    ----------
    partition : path
        The partition's directory; it is copied.
    work : path
        What is built is found there; the broker's files go to its folder ``broker``.
    """
    with (
        broker_of({FIRST_PARTITION: partition}, work) as broker,
        broker.running() as process,
    ):
        yield broker.address, process.pid


@contextmanager
def broker_of(partitions: Mapping[str, Path], work: Path) -> Iterator[Broker]:
    """Give a broker that has copies of the files of partitions, by the names that it has for them.

    It is stopped. `work` is as for `broker_with`; the broker's files are deleted afterwards.
    """
    java, folder = kafka(work), work.absolute() / "broker"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        broker = Broker(java, folder)
        broker.take(partitions)
        yield broker
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Broker:
    """A broker's folder and address; `java` is the command to run its classes."""

    def __init__(self, java: list[str], folder: Path) -> None:
        self.java, self.folder, self.logs = java, folder, folder / "logs"
        self.logs.mkdir(parents=True)
        self._port, controller = _free_port(), _free_port()
        self.address = f"127.0.0.1:{self._port}"
        self._properties = folder / "server.properties"
        self._properties.write_text(
            PROPERTIES.format(client=self._port, controller=controller, logs=self.logs)
        )
        identity = ["-t", "kafkastorebenchmark000", "-c", str(self._properties)]
        _run([*java, "kafka.tools.StorageTool", "format", *identity])

    def take(self, partitions: Mapping[str, Path]) -> None:
        """Copy partitions' files; the next start recovers them."""
        topics = [
            *self.java, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.address
        ]
        # The broker creates the directories; their files are replaced while it is stopped.
        with self.running():
            for topic, count in Counter(name.rpartition("-")[0] for name in partitions).items():
                _run([*topics, "--create", "--topic", topic, "--partitions", str(count)])
        for name, partition in partitions.items():
            for file in partition.iterdir():
                if file.suffix in (".log", ".index", ".timeindex"):
                    shutil.copy2(file, self.logs / name)
        # Its checkpoints are outdated.
        (self.logs / ".kafka_cleanshutdown").unlink(missing_ok=True)
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            (self.logs / name).unlink(missing_ok=True)

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the broker until the block ends; it takes clients when the block begins."""
        with self.starting() as process:
            deadline = time.monotonic() + MOST_SECONDS
            while not _answers(self._port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise CannotRun(f"no broker: see {self.folder / 'output'}")
                time.sleep(0.2)
            yield process

    @contextmanager
    def starting(self) -> Iterator[subprocess.Popen[bytes]]:
        """Start the broker, and end it after the block."""
        command = [
            self.java[0], "-Xmx1g", *self.java[1:], "kafka.Kafka", str(self._properties)
        ]
        with (self.folder / "output").open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            try:
                yield process
            finally:
                process.terminate()
                process.wait(MOST_SECONDS)


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def _run(command: list[str]) -> None:
    done = subprocess.run(command, text=True, capture_output=True, env=os.environ, check=False)
    if done.returncode:
        raise CannotRun(f"{command[3]} failed: {(done.stderr or done.stdout).strip()}")
