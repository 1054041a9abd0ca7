"""The case about tiered storage: segments in remote storage, and what the broker says of them."""
from __future__ import annotations

import random
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..answers_file import modified_ms, write_json
from ..brokers import storage_test_jar
from ..case_context import CaseContext
from ..java import BrokerFailure
from ..java_client import client_version
from ..kraft_cluster import KraftCluster, NodePlan
from ..wire import LIST_OFFSETS, NEWEST_LIST_OFFSETS, Wire
from .registry import case

SEGMENT_BYTES = 1500
TIMES = 200
_DELTAS = (-1, 0, 1, 250, 500, 750)
#: Log start, local log start, highest remote offset, log end.
_BOUNDS = (-2, -4, -5, -1)
_QUIET_SECONDS = 4
_REQUEST_TIMED_OUT = 7
_REMOTE = "org.apache.kafka.server.log.remote"

_TIERED = {"remote.storage.enable": "true"}
_TAIL = _TIERED | {"local.retention.bytes": "1"}
_TOPICS: Mapping[str, Mapping[str, str]] = {
    # everything is remote but the active segment
    "tail": _TAIL,
    # three leader epochs; the newest segments are remote and local
    "epochs": _TIERED | {"local.retention.bytes": "4000"},
    # records deleted inside the remote part, and inside the local part
    "deleted": _TAIL,
    "deleted-local": _TIERED | {"local.retention.bytes": "4000"},
    # random timestamps
    "random": _TIERED | {"local.retention.bytes": "5000"},
    # all remote segments are local, too
    "kept": _TIERED,
    # nothing is uploaded: one segment
    "fresh": _TIERED,
    "empty": _TIERED,
    # remote segments that were deleted again, some and all
    "shortened": _TAIL | {"retention.bytes": "4000"},
    "emptied": _TAIL,
    # not tiered, with and without deleted records; tiered once
    "plain": {},
    "plain-deleted": {},
    "turned-off": _TAIL,
    "copy-disabled": _TAIL,
}


@case(since="3.9", part="tiered")
def tiered(context: CaseContext) -> None:
    """Topics with and without remote storage, of a node that was started three times."""
    root, work = context.run_directory / "cluster", context.around.work
    # The leader resigns when it stops: each start is another leader epoch.
    plans = (NodePlan(1, settings={"controlled.shutdown.enable": "true"}),)
    settings = tiered_settings(context.version, root, work)
    with KraftCluster(context.version, root, plans, settings, work) as cluster:
        cluster.format()
        history = _History(context, cluster)
        history.make()
        cluster.nodes[1].stop()
        history.save()


def tiered_settings(version: str, root: Path, work: Path) -> dict[str, str | int]:
    """Return the settings of a node with remote storage in ``root/remote``, and quick tasks."""
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": f"{_REMOTE}.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": str(storage_test_jar(version, work)),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "remote.log.manager.task.interval.ms": 500,
        "rsm.config.dir": str(root / "remote"),
        "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
        "rlmm.config.remote.log.metadata.topic.min.isr": 1,
        "rlmm.config.remote.log.metadata.topic.num.partitions": 3,
        "log.retention.check.interval.ms": 500,
        "log.initial.task.delay.ms": 500,
        "file.delete.delay.ms": 1000,
    }


class _History:
    """What is done to the topics.

    Parameters
    ----------
    context : CaseContext
        The case.
    cluster : KraftCluster
        Of one node.
    """

    def __init__(self, context: CaseContext, cluster: KraftCluster) -> None:
        self.context, self.cluster = context, cluster
        self.node = cluster.nodes[1]
        self.times: dict[str, list[int]] = {}
        self.answers: dict[str, Any] = {}

    def make(self) -> None:
        """Create the topics, fill and change them, and ask after a restart."""
        self._start()
        for name, config in _TOPICS.items():
            self._create(name, config)
        for name in _TOPICS:
            self._produce(name, 0 if name == "empty" else 6 if name == "fresh" else 40)
        self._settle()
        for name, offset in (("deleted", 11), ("plain-deleted", 11)):
            self.context.client("delete_records", topic=name, partition=0, offset=offset)
        self._configure("emptied", {"retention.ms": "1000", "local.retention.ms": "1000"})
        self._configure("turned-off", {
            "remote.storage.enable": "false", "remote.log.delete.on.disable": "true"
        })
        self._configure("copy-disabled", {
            "remote.log.copy.disable": "true", "local.retention.bytes": "-2",
        })
        self._settle()
        for _ in range(2):
            self._restart()
            self._produce("epochs", 30)
            self._produce("random", 10)
            self._settle()
        end = self._answer("deleted-local", -1)["offset"]
        self.context.client("delete_records", topic="deleted-local", partition=0, offset=end - 3)
        self._settle()
        self._restart()
        self._settle()
        for name in _TOPICS:
            self.answers[f"{name}-0"] = self._ask(name)

    def save(self) -> None:
        """Copy the stopped node's log directory, and write the answers."""
        copy = self.context.out / "logs"
        shutil.copytree(self.node.logs, copy)
        shutil.rmtree(copy / "remote-log-index-cache", ignore_errors=True)
        write_json(self.context.out / "answers.json", {
            "kafka": self.context.version,
            "case": self.context.name,
            "seed": self.context.around.seed,
            "logs": copy.name,
            "client": client_version(self.context.version),
            "mode": "kraft",
            "broker_config": self.cluster.recorded_settings(self.node),
            "topic_config": self.context.topic_configs,
            "shutdown": "clean",
            "mtimes_ms": modified_ms(copy),
            "partitions": self.answers,
        })

    def _start(self) -> None:
        self.cluster.start()
        self.context.client("connect", bootstrap=self.cluster.address())

    def _restart(self) -> None:
        self.node.stop()
        self._start()

    def _create(self, name: str, config: Mapping[str, str]) -> None:
        name_of_size = "internal.segment.bytes" if self.context.since(4) else "segment.bytes"
        configs = {
            name_of_size: str(SEGMENT_BYTES),
            "index.interval.bytes": "200",
            "segment.index.bytes": "1024",
            "file.delete.delay.ms": "1000",
            "retention.ms": "-1",
            **config,
        }
        self.context.topic_configs[name] = configs
        self.context.client("create", topics=[{"name": name, "partitions": 1, "configs": configs}])
        wire = Wire(self.node.ports.broker)
        wire.wait_for_leader(name, 0, version=1)
        wire.close()

    def _configure(self, name: str, configs: Mapping[str, str]) -> None:
        self.context.topic_configs[name] = {**self.context.topic_configs[name], **configs}
        self.context.client("config", topic=name, configs=configs)

    def _produce(self, name: str, count: int) -> None:
        first = self.context.first_timestamp
        known = self.times.setdefault(name, [])
        chance = random.Random(f"{self.context.around.seed}/{name}/{len(known)}")
        start = len(known)
        times = [
            first + 1000 * (chance.randrange(80) if name == "random" else start + number)
            for number in range(count)
        ]
        known += times
        if times:
            self.context.produce(name, self.context.batches(times, size=100))

    def _answer(self, name: str, timestamp: int, version: int | None = None) -> dict[str, Any]:
        wire = Wire(self.node.ports.broker)
        try:
            newest = min(wire.api_versions()[LIST_OFFSETS][1], NEWEST_LIST_OFFSETS)
            return wire.list_offsets(name, 0, timestamp, version=version or newest)
        finally:
            wire.close()

    def _bounds(self) -> dict[str, list[tuple[int, int]]]:
        answers = {
            name: [self._answer(name, each) for each in _BOUNDS] for name in _TOPICS
        }
        return {
            name: [(each["error"], each["offset"]) for each in found]
            for name, found in answers.items()
        }

    def _settle(self, seconds: float = 120) -> None:
        """Wait until the bounds of all topics, and their files, have not changed for a while."""
        deadline = time.monotonic() + seconds
        known, since = None, time.monotonic()
        while time.monotonic() < deadline:
            now = (self._bounds(), sorted(_segments(self.node.logs)))
            if now != known:
                known, since = now, time.monotonic()
            is_done = all(_is_done(name, bounds) for name, bounds in now[0].items())
            if is_done and time.monotonic() - since > _QUIET_SECONDS:
                return
            time.sleep(0.3)
        raise BrokerFailure(f"not at rest within {seconds} s: {known}")

    def _ask(self, name: str) -> dict[str, Any]:
        """Ask for every special timestamp, and for times around those of the records."""
        wire = Wire(self.node.ports.broker)
        newest = min(wire.api_versions()[LIST_OFFSETS][1], NEWEST_LIST_OFFSETS)
        around = sorted({each + delta for each in self.times[name] for delta in _DELTAS})
        chance = random.Random(f"{self.context.around.seed}/{name}/questions")
        times = sorted(chance.sample(around, min(len(around), TIMES - 3)))
        last = max(around, default=self.context.first_timestamp)
        questions = [*range(-6, 0), 0, *times, last + 10**9, 2**63 - 1]
        rows = [
            {"timestamp": each, "version": newest, "isolation": 0}
            | _answered(wire, name, each, newest)
            for each in questions
        ]
        wire.close()
        return {"list_offsets": rows}


def _answered(wire: Wire, name: str, timestamp: int, version: int) -> dict[str, Any]:
    """Ask until the answer is not a time-out, as 4.3.1 sometimes gives one after 10 s."""
    for _ in range(5):
        answer = wire.list_offsets(name, 0, timestamp, version=version)
        if answer["error"] != _REQUEST_TIMED_OUT:
            return answer
    raise BrokerFailure(f"{name}: {answer} for {timestamp}")


def _is_done(name: str, bounds: list[tuple[int, int]]) -> bool:
    """Say whether a topic has got as far as it will, by its bounds."""
    if any(error for error, _ in bounds):
        return False
    if name in ("fresh", "empty", "emptied") or name.startswith(("plain", "turned", "copy")):
        return True
    (_, start), (_, local), (_, remote), (_, end) = bounds
    return remote >= 0 and start <= local <= end


def _segments(logs: Path) -> list[str]:
    return [path.relative_to(logs).as_posix() for path in logs.glob("*-0/*.log*")]
