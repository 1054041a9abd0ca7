"""The context of a case: a cluster, a client, a seeded random generator, the answers so far."""
from __future__ import annotations

import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .answers_file import modified_ms, write_json
from .brokers import version_key
from .cluster import Cluster
from .dump import dump_partition
from .java import BROKER_FAILURES
from .java_client import JavaClient, JavaClients, client_version
from .questions import PartitionQuestions, log_files
from .records import Produced, make_batches
from .server_properties import Mode

_FIRST_TIMESTAMP = 1_500_000_000_000  # 2017-07-14
# Log lines that are stack traces, or about anything but the logs.
_NOISE = re.compile(
    r"^\s|Replayed|fetcher|FetcherManager|ControllerNode|Controller id|starts at [Ll]eader"
    r"|initial high watermark|QuorumController"
)


@dataclass(frozen=True)
class Surroundings:
    """The state that all cases of a run share."""

    seed: str
    work: Path
    clients: JavaClients


class CaseContext:
    """One case of one version while it is being made.

    Parameters
    ----------
    version, name : str
        Kafka version and case.
    out : path
        Gets the directories and answers files; emptied first.
    around : Surroundings
        Seed, work directory and clients.

    Attributes
    ----------
    rng : random.Random
        The same numbers for the same seed, version and case.
    first_timestamp : int
        Where the case's timestamps begin.
    partitions : dict
        Number of partitions by topic.
    answers : dict
        The answers since the last `save`, by ``topic-partition``.
    extra : dict
        Further fields of the next answers file.
    failed : list of str
        Variants that could not be made.
    """

    def __init__(self, version: str, name: str, out: Path, around: Surroundings) -> None:
        self.version, self.name, self.out, self.around = version, name, out, around
        self.rng = random.Random(f"{around.seed}/{version}/{name}")
        self.first_timestamp = _FIRST_TIMESTAMP
        runs = around.work / "run"
        runs.mkdir(parents=True, exist_ok=True)
        self.run_directory = Path(tempfile.mkdtemp(prefix=f"{version}-{name}-", dir=runs))
        self.empty_out()
        self.client: JavaClient = around.clients.of(version)
        self._cluster: Cluster | None = None
        self.topic_configs: dict[str, dict[str, str]] = {}
        self.partitions: dict[str, int] = {}
        self.answers: dict[str, dict[str, Any]] = {}
        self.queried_at_ms: int | None = None
        self.extra: dict[str, Any] = {}
        self.failed: list[str] = []

    def since(self, *version: int) -> bool:
        """Say whether the case's Kafka is this version or a later one."""
        return version_key(self.version) >= version

    def empty_out(self) -> None:
        """Create an empty directory for the results."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)

    # The broker

    @property
    def cluster(self) -> Cluster:
        """The current cluster."""
        if self._cluster is None:
            raise ValueError("the case has not started a broker yet")
        return self._cluster

    @cluster.setter
    def cluster(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def new_cluster(
        self,
        name: str,
        version: str,
        settings: dict[str, str | int] | None = None,
        mode: Mode | None = None,
    ) -> Cluster:
        """Return a cluster under the run directory, not started."""
        work = self.around.work
        return Cluster(version, self.run_directory / name, settings, mode, work=work)

    def start(
        self, settings: dict[str, str | int] | None = None, mode: Mode | None = None
    ) -> None:
        """Start the current cluster, made with these settings at first, and connect the client."""
        if self._cluster is None:
            self._cluster = self.new_cluster("cluster", self.version, settings, mode)
        self._cluster.start()
        self.client("connect", bootstrap=self._cluster.address)
        for topic, partitions in self.partitions.items():
            self._cluster.wait_for_leaders(topic, partitions)

    def stop(self, *, kill: bool = False, zookeeper: bool = True) -> None:
        """Stop the current cluster (`Cluster.stop`)."""
        self.cluster.stop(kill=kill, zookeeper=zookeeper)

    def continue_on_copy(self, name: str, version: str | None = None) -> None:
        """Continue with a copy of the current cluster, which is stopped.

        Parameters
        ----------
        name : str
            Of the copy's directory.
        version : str, optional
            Another Kafka version that takes over, in ZooKeeper mode; the client becomes its.
        """
        old = self.cluster
        shutil.copytree(old.root, self.run_directory / name)
        settings = dict(old.properties.more)
        if version is None:
            copy = self.new_cluster(name, old.version, settings, old.mode)
            copy.starts, copy.ports = old.starts, old.ports
        else:
            if version_key(version) >= (3,):  # the last that may name another protocol
                settings |= {"inter.broker.protocol.version": "2.8"}
            copy = self.new_cluster(name, version, settings, "zk")
            self.client = self.around.clients.of(version)
        self.cluster = copy

    def abandon(self) -> None:
        """Kill what runs and forget the answers."""
        if self._cluster is not None:
            self._cluster.abandon()
        self.answers, self.extra = {}, {}

    def remove_run_directory(self) -> None:
        """Remove the brokers' files."""
        shutil.rmtree(self.run_directory, ignore_errors=True)

    # Topics and records

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, str | int] | None = None,
        *,
        segment_bytes: int = 3000,
    ) -> None:
        """Create a topic of small segments with dense indexes.

        Parameters
        ----------
        name, partitions : str, int
            Of the topic.
        config : mapping, optional
            Further settings, or others than the usual ones.
        segment_bytes : int
            The topic's ``segment.bytes``.
        """
        # 4.x refuses segment.bytes below 1 MB
        segment_setting = "internal.segment.bytes" if self.since(4) else "segment.bytes"
        settings: dict[str, str | int] = {
            "index.interval.bytes": 200,
            "segment.index.bytes": 1024,
            segment_setting: segment_bytes,
        }
        if self.since(0, 9):
            settings["retention.ms"] = -1
        settings |= config or {}
        self.topic_configs[name] = {setting: str(value) for setting, value in settings.items()}
        self.partitions[name] = partitions
        self.cluster.create_topic(self.client, name, partitions, self.topic_configs[name])

    def produce(
        self,
        topic: str,
        batches: Iterable[Iterable[Produced]],
        partition: int = 0,
        *,
        codec: str = "none",
        producer: str | None = None,
        config: Mapping[str, str | int] | None = None,
    ) -> None:
        """Produce batches, each flushed by itself.

        Parameters
        ----------
        topic, partition : str, int
            Where to.
        batches : iterable of iterables of Produced
            One request each.
        codec : str
            The producer's ``compression.type``.
        producer : str, optional
            Name of the producer, which lives until the next start; by default the codec's.
        config : mapping, optional
            The producer's further settings, heeded when it is made.
        """
        self.client(
            "produce",
            id=producer or codec,
            topic=topic,
            partition=partition,
            batches=[[record.as_row() for record in batch] for batch in batches],
            props={**(config or {}), "compression.type": codec},
        )

    def batches(
        self,
        timestamps: Sequence[int],
        sizes: Sequence[int] = (1, 1, 2, 3),
        *,
        size: int | None = None,
        compressible: bool = False,
    ) -> list[list[Produced]]:
        """Make up records with these timestamps (`records.make_batches`)."""
        return make_batches(self.rng, timestamps, sizes, size=size, compressible=compressible)

    def set_mtimes(self, partition: str, values_ms: Sequence[int] | Callable[[int], int]) -> None:
        """Date the partition's ``.log`` files.

        Parameters
        ----------
        partition : str
            ``topic-partition``.
        values_ms : sequence or function
            ms since 1970 by the segment's number; a shorter sequence is begun again.
        """
        for number, path in enumerate(log_files(self.cluster.logs / partition)):
            ms = values_ms(number) if callable(values_ms) else values_ms[number % len(values_ms)]
            os.utime(path, ns=(ms * 1_000_000, ms * 1_000_000))

    # Querying and saving

    def questions(self, topic: str, partition: int = 0) -> PartitionQuestions:
        """Return the object that queries a partition."""
        return PartitionQuestions(self.cluster, self.client, self.rng, topic, partition)

    def ask(
        self,
        topic: str,
        partition: int = 0,
        *,
        committed: bool = False,
        extra_timestamps: Iterable[int] = (),
    ) -> None:
        """Query everything about one partition and keep it for `save`."""
        answers = self.questions(topic, partition).answers(
            committed=committed, extra_timestamps=extra_timestamps
        )
        self.answers[f"{topic}-{partition}"] = answers
        self.queried_at_ms = int(time.time() * 1000)

    def ask_all(self, *, committed: bool = False, extra_timestamps: Sequence[int] = ()) -> None:
        """Query everything about every partition of the case's topics."""
        for topic, partitions in self.partitions.items():
            for partition in range(partitions):
                self.ask(
                    topic, partition, committed=committed, extra_timestamps=extra_timestamps
                )

    def save(
        self,
        answers: str = "answers",
        logs: str = "logs",
        *,
        shutdown: str = "clean",
        dump: bool = True,
    ) -> None:
        """Copy the stopped cluster's log directory, and write the answers with its dump.

        Parameters
        ----------
        answers, logs : str
            Names of the answers file (without ``.json``) and of the directory.
        shutdown : str
            ``clean`` or ``kill``.
        dump : bool
            Run DumpLogSegments too, which starts a JVM for each partition.
        """
        cluster, copy = self.cluster, self.out / logs
        shutil.copytree(cluster.logs, copy)
        content = {
            "kafka": cluster.version,
            "case": self.name,
            "seed": self.around.seed,
            "logs": logs,
            "client": client_version(cluster.version),
            "mode": cluster.mode,
            "broker_config": cluster.recorded_settings(),
            "topic_config": self.topic_configs,
            "shutdown": shutdown,
            "asked_at_ms": self.queried_at_ms,
            "mtimes_ms": modified_ms(copy),
        }
        content |= self.extra | {"partitions": self.answers}
        partitions = (path for path in copy.iterdir() if re.search(r"-\d+$", path.name))
        for directory in sorted(partitions) if dump else ():
            partition_answers = self.answers.setdefault(directory.name, {})
            # Dump only the internal topics that the case queried, and the transaction log.
            internal = directory.name.startswith("__")
            is_transaction_log = "__transaction" in directory.name
            if internal and "records" not in partition_answers and not is_transaction_log:
                continue
            partition_answers["dump"] = dump_partition(cluster.version, directory, self.around.work)
        write_json(self.out / f"{answers}.json", content)
        self.answers, self.extra = {}, {}

    def try_variant(self, name: str, make: Callable[[], None]) -> None:
        """Make a variant of the case that need not work; if it does not, a file says why.

        Parameters
        ----------
        name : str
            The file is ``failed-<name>.json``.
        make : callable
            Ends with `save`.
        """
        try:
            make()
        except BROKER_FAILURES as error:
            self.abandon()
            self.failed.append(name)
            shutil.rmtree(self.out / f"logs-{name}", ignore_errors=True)
            write_json(self.out / f"failed-{name}.json", {"error": str(error)[-4000:]})

    def log_lines(self, *patterns: str) -> list[str]:
        """Return the lines the stopped broker logged about something, without paths of ours."""
        wanted = re.compile("|".join(patterns))
        return [
            line.replace(str(self.cluster.root), "<root>")[:300]
            for line in self.cluster.broker_log.splitlines()
            if wanted.search(line) and not _NOISE.search(line)
        ]

    def wait_until_still(
        self, partition: str, pattern: str = "", *, seconds: float = 25, quiet_seconds: float = 2
    ) -> bool:
        """Wait until the broker logged a pattern and a partition's files have not changed lately.

        Returns
        -------
        bool
            False if that was not so in time.
        """
        directory = self.cluster.logs / partition
        deadline = time.monotonic() + seconds
        sizes, changed_at = _sizes(directory), time.monotonic()
        while time.monotonic() < deadline:
            if (now := _sizes(directory)) != sizes:
                sizes, changed_at = now, time.monotonic()
            logged = self.cluster.broker is not None and re.search(
                pattern, self.cluster.broker.log()
            )
            if logged and time.monotonic() - changed_at > quiet_seconds:
                return True
            time.sleep(0.2)
        return False


def _sizes(directory: Path) -> dict[str, int]:
    """Return the sizes of files, of which any may vanish at any time."""
    sizes = {}
    for path in directory.iterdir():
        try:
            sizes[path.name] = path.stat().st_size
        except FileNotFoundError:
            continue
    return sizes
