"""A broker on this machine alone, with a data set as its topic."""
from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
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
    java, folder = kafka(work), work.absolute() / "broker"
    shutil.rmtree(folder, ignore_errors=True)
    logs = folder / "logs"
    logs.mkdir(parents=True)
    client, controller = _free_port(), _free_port()
    properties = folder / "server.properties"
    properties.write_text(PROPERTIES.format(client=client, controller=controller, logs=logs))
    identity = ["-t", "kafkastorebenchmark000", "-c", str(properties)]
    _run([*java, "kafka.tools.StorageTool", "format", *identity])
    address = f"127.0.0.1:{client}"
    topics = [*java, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", address]
    try:
        # The broker creates the directory; its files are replaced while it is stopped.
        with _running(java, properties, client):
            _run([*topics, "--create", "--topic", TOPIC, "--partitions", "1"])
        for file in partition.iterdir():
            if file.suffix in (".log", ".index", ".timeindex"):
                shutil.copy2(file, logs / FIRST_PARTITION)
        (logs / ".kafka_cleanshutdown").unlink(missing_ok=True)  # its checkpoints are outdated
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            (logs / name).unlink(missing_ok=True)
        with _running(java, properties, client) as process:
            yield address, process.pid
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(
    java: list[str], properties: Path, port: int
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a broker until the block ends; it takes clients when the block begins."""
    command = [java[0], "-Xmx1g", *java[1:], "kafka.Kafka", str(properties)]
    with (properties.parent / "output").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + MOST_SECONDS
            while not _answers(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise CannotRun(f"no broker: see {output.name}")
                time.sleep(0.2)
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
