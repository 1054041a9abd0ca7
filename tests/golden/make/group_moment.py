"""What a KRaft node answers about its groups just before it is killed."""
from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from .answers_file import modified_ms, write_json
from .brokers import class_path, group_jars
from .case_context import CaseContext
from .java import BrokerFailure, ClassArchive, java_command
from .java_client import JavaClient, client_version
from .kraft_cluster import KraftCluster

#: Of a case: what was answered.
GROUPS_FILE = "groups.json"
_TOOLS = {
    "consumer-offsets": ("consumer.group.ConsumerGroupCommand", "--offsets"),
    "consumer-state": ("consumer.group.ConsumerGroupCommand", "--state"),
    "share-offsets": ("consumer.group.ShareGroupCommand", "--offsets"),
    "streams-offsets": ("streams.StreamsGroupCommand", "--offsets"),
}
# Of each type of group: the request that describes it, with its version.
_DESCRIBING = {
    "classic": ("DESCRIBE_GROUPS", 6),
    "consumer": ("CONSUMER_GROUP_DESCRIBE", 1),
    "share": ("SHARE_GROUP_DESCRIBE", 1),
    "streams": ("STREAMS_GROUP_DESCRIBE", 0),
}


class GroupMoment:
    """The members of groups of a cluster of one node, and its answers about them.

    Parameters
    ----------
    cluster : KraftCluster
        Runs.
    work : path
        Where jars are kept.
    """

    def __init__(self, cluster: KraftCluster, work: Path) -> None:
        self.cluster, self.work = cluster, work
        self._jars = (group_jars(cluster.version, work) / "*",)
        self.client = self._new_client()
        self.answers: dict[str, Any] = {}
        self._printed: dict[str, str] = {}

    def _new_client(self) -> JavaClient:
        client = JavaClient(self.cluster.version, self.work, "GroupDriver", self._jars)
        client("connect", bootstrap=self.cluster.address())
        return client

    def __enter__(self) -> GroupMoment:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the members; they do not leave."""
        self.client.close()

    def wait_until(self, what: str, is_true: Callable[[], bool]) -> None:
        """Wait for a condition (`KraftCluster.wait_until`)."""
        self.cluster.wait_until(what, is_true)

    def produce(
        self, partition: str, batches: Sequence[Sequence[int]], transactional_id: str | None = None
    ) -> None:
        """Produce records with these timestamps, each list as a batch."""
        if transactional_id is None:
            self.client("produce", id="producer", partition=partition, batches=batches)
            return
        props = {"transactional.id": transactional_id}
        self.client("begin", id=transactional_id, props=props)
        self.client("produce", id=transactional_id, partition=partition, batches=batches)
        self.client("end", id=transactional_id, commit=True)

    def transaction(self, group: str, offsets: Mapping[str, Sequence[Any]]) -> None:
        """Begin the transaction ``txn-<group>``, and add offsets of a group to it."""
        name = f"txn-{group}"
        props = {"transactional.id": name, "transaction.timeout.ms": "900000"}
        self.client("begin", id=name, props=props)
        self.client("offsets", id=name, group=group, offsets=offsets)

    def request(self, api: str, version: int, **body: Any) -> dict[str, Any]:
        """Send a request, with the fields of its JSON definition; return the response."""
        answer = self.client("request", api=api, version=version, body=body)
        response: dict[str, Any] = answer["response"]
        return response

    def run_tools(self) -> None:
        """Keep what Kafka's tools print, for which they need seconds."""
        self._printed = {name: self._tool(*words) for name, words in _TOOLS.items()}

    def ask_and_kill(self, *, seconds: float = 60) -> None:
        """Ask twice, until the answers are the same and no log has grown; kill the node then.

        Raises
        ------
        BrokerFailure
            If it is never at rest.
        """
        node = self.cluster.nodes[1]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            sizes = self._sizes(node.logs)
            answers = self._ask()
            if answers == self._ask() and self._sizes(node.logs) == sizes:
                self.cluster.kill(1)
                if self._sizes(node.logs) != sizes:
                    raise BrokerFailure("a log has grown between the last question and the end")
                self.answers = answers | {"tools": self._printed}
                return
            time.sleep(0.5)
        raise BrokerFailure(f"not at rest within {seconds} s")

    @staticmethod
    def _sizes(logs: Path) -> dict[str, int]:
        """Return the sizes of the logs; the metadata log grows all the time."""
        return {
            str(path.relative_to(logs)): path.stat().st_size
            for path in sorted(logs.glob("*/*.log"))
            if "__cluster_metadata" not in path.parts[-2]
        }

    def ask_after_load(self) -> None:
        """Start the node again without the members; keep which groups and offsets it has loaded."""
        self.client.close()
        self.cluster.start()
        self.cluster.wait_for_brokers(1)
        self.client = self._new_client()
        self.wait_until("the coordinators have loaded", lambda: self._list() != [])
        answers = self._ask()
        self.answers["after_load"] = {name: answers[name] for name in ("listed", "offsets")}

    def _list(self) -> list[dict[str, Any]]:
        answer = self.request("LIST_GROUPS", 5, statesFilter=[], typesFilter=[])
        return sorted(answer["groups"], key=lambda each: str(each["groupId"]))

    def _ask(self) -> dict[str, Any]:
        listed = self._list()
        topics = self.cluster.admin("topics")["topics"]
        described, offsets, shared = {}, {}, {}
        for group in listed:
            name, kind = group["groupId"], group["groupType"].lower()
            api, version = _DESCRIBING[kind]
            field = "groups" if kind == "classic" else "groupIds"
            body = {field: [name], "includeAuthorizedOperations": False}
            (described[name],) = self.request(api, version, **body)["groups"]
            if kind == "share":
                shared[name] = self._share(name, topics)
            else:
                body = {"groupId": name, "memberId": None, "memberEpoch": -1, "topics": None}
                answer = self.request("OFFSET_FETCH", 9, groups=[body], requireStable=False)
                offsets[name] = answer["groups"][0]["topics"]
        ends = {
            f"{name}-{partition}": self._end(name, int(partition))
            for name, topic in topics.items()
            if not name.startswith("__")
            for partition in topic["partitions"]
        }
        ids = {name: topic["topic_id"] for name, topic in topics.items()}
        return {
            "topic_ids": ids, "log_ends": ends, "listed": listed, "described": described,
            "offsets": offsets, "share": shared,
        }

    def _share(self, group: str, topics: Mapping[str, Any]) -> dict[str, Any]:
        """Return the offsets of a share group, and the state that its partitions have."""
        version = 0 if self.cluster.version.startswith("4.1.") else 1
        answer = self.request(
            "DESCRIBE_SHARE_GROUP_OFFSETS", version, groups=[{"groupId": group, "topics": None}]
        )
        (described,) = answer["groups"]
        states = {}
        for topic in described["topics"]:
            for partition in topic["partitions"]:
                number, epoch = partition["partitionIndex"], partition["leaderEpoch"]
                read = self.request(
                    "READ_SHARE_GROUP_STATE", 0, groupId=group,
                    topics=[{"topicId": topic["topicId"],
                             "partitions": [{"partition": number, "leaderEpoch": epoch}]}],
                )
                states[f"{topic['topicName']}-{number}"] = read["results"][0]["partitions"][0]
        return {"offsets": described["topics"], "states": states}

    def _end(self, topic: str, partition: int) -> dict[str, int]:
        """Return the log start, the log end, and the last stable offset."""
        found = {}
        for name, timestamp, isolation in (("start", -2, 0), ("end", -1, 0), ("stable", -1, 1)):
            asked = {"partitionIndex": partition, "currentLeaderEpoch": -1, "timestamp": timestamp}
            answer = self.request(
                "LIST_OFFSETS", 7, replicaId=-1, isolationLevel=isolation,
                topics=[{"name": topic, "partitions": [asked]}],
            )
            found[name] = answer["topics"][0]["partitions"][0]["offset"]
        return found

    def _tool(self, main_class: str, what: str) -> str:
        """Return what one of Kafka's tools prints about all groups."""
        archive = ClassArchive(f"{self.cluster.version}-groups-{main_class}", self.work)
        command = java_command(
            class_path(self.cluster.version, self.work, *self._jars),
            f"org.apache.kafka.tools.{main_class}",
            *("--bootstrap-server", self.cluster.address(), "--describe", "--all-groups", what),
            logs_as="client",
            options=archive.options,
        )
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if run.returncode:
            raise BrokerFailure(f"{main_class}: {run.stdout}{run.stderr}")
        archive.keep()
        return run.stdout

    def save(self, context: CaseContext) -> None:
        """Copy the killed node's log directory, let the node load it, and write the answers."""
        node = self.cluster.nodes[1]
        copy = context.out / "logs"
        shutil.copytree(node.logs, copy)
        for path in copy.glob("__transaction_state-*"):
            shutil.rmtree(path)
        content = {
            "kafka": context.version,
            "case": context.name,
            "seed": context.around.seed,
            "logs": "logs",
            "client": client_version(context.version),
            "mode": "kraft",
            "broker_config": self.cluster.recorded_settings(node),
            "shutdown": "kill",
            "mtimes_ms": modified_ms(copy),
            "partitions": {},
        }
        write_json(context.out / "answers.json", content)
        self.ask_after_load()
        text = json.dumps(self.answers, indent=1)
        (context.out / GROUPS_FILE).write_text(text + "\n")
