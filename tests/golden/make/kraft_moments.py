"""What a KRaft cluster answers about itself, with the offset of its metadata log at that time.

A moment is kept only if the log did not grow while the cluster was asked, and every broker had
applied it to its end: the state before `offset` is exactly the one described.
"""
from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from typing import Any

from .answers_file import modified_ms, write_json
from .case_context import CaseContext
from .java import BROKER_FAILURES, BrokerFailure
from .java_client import client_version
from .kraft_cluster import KraftCluster

#: Of a case: all moments, which every answers file of its nodes goes with.
MOMENTS_FILE = "cluster.json"
_SETTLING_SECONDS = 0.5


class Moments:
    """The moments of a case.

    Parameters
    ----------
    cluster : KraftCluster
        Runs.
    groups : sequence of str
        Names of groups whose configuration is asked for; needs Kafka 4.0.
    """

    def __init__(self, cluster: KraftCluster, groups: Sequence[str] = ()) -> None:
        self.cluster, self.groups = cluster, groups
        self.asked: list[dict[str, Any]] = []

    def ask(self, name: str, done: str, *, seconds: float = 60) -> dict[str, Any]:
        """Ask the cluster everything, when it is at rest, and keep that.

        Parameters
        ----------
        name : str
            Of the moment.
        done : str
            What was done since the last one.
        seconds : float
            How long to wait for rest.

        Returns
        -------
        dict
            The moment.
        """
        deadline = time.monotonic() + seconds
        failure: BaseException | None = None
        while time.monotonic() < deadline:
            try:
                moment = self._ask_at_rest()
            except BROKER_FAILURES as error:
                moment, failure = None, error
            if moment is not None:
                self.asked.append({"name": name, "done": done} | moment)
                return moment
            time.sleep(0.2)
        raise BrokerFailure(f"{name}: not at rest within {seconds} s") from failure

    def _ask_at_rest(self) -> dict[str, Any] | None:
        """Ask twice; return the answers if nothing happened meanwhile."""
        before = self._offset()
        if before is None:
            return None
        offset, quorum = before
        running = [node.plan.node_id for node in self.cluster.running]
        brokers = [str(node.plan.node_id) for node in self.cluster.running_brokers]
        first, at_ms = None, 0
        for _ in range(2):
            at_ms = int(time.time() * 1000)
            answers = self.cluster.admin("ask", brokers=brokers, groups=list(self.groups))
            if first is not None and answers != first:
                return None
            first = answers
            time.sleep(_SETTLING_SECONDS)
        after = self._offset()
        if after is None or (after[0], after[1]["leader_id"]) != (offset, quorum["leader_id"]):
            return None
        return {
            "at_ms": at_ms,
            "offset": offset,
            "running": running,
            "quorum": quorum,
            "answers": first,
        }

    def _offset(self) -> tuple[int, dict[str, Any]] | None:
        """Return the end of the log with the quorum, if every broker has applied it."""
        quorum = self.cluster.admin("quorum")["quorum"]
        ends = {voter["id"]: voter["log_end_offset"] for voter in quorum["voters"]}
        end = ends[quorum["leader_id"]]
        applied = {node.metadata_offset() for node in self.cluster.running_brokers}
        at_rest = quorum["high_watermark"] == end and applied == {end - 1}
        return (end, quorum) if at_rest else None

    def save(self, context: CaseContext, shutdowns: dict[int, str]) -> None:
        """Copy the stopped nodes' log directories, and write the moments and an answers file each.

        Parameters
        ----------
        context : CaseContext
            The case.
        shutdowns : dict of int to str
            How each node ended: ``clean`` or ``kill``.
        """
        common = {
            "kafka": context.version,
            "case": context.name,
            "seed": context.around.seed,
            "client": client_version(context.version),
            "mode": "kraft",
        }
        for number, node in self.cluster.nodes.items():
            copy = context.out / node.logs.name
            shutil.copytree(node.logs, copy)
            answers = common | {
                "logs": copy.name,
                "node_id": number,
                "roles": list(node.plan.roles),
                "broker_config": self.cluster.recorded_settings(node),
                "shutdown": shutdowns[number],
                "mtimes_ms": modified_ms(copy),
                "partitions": {},
            }
            write_json(context.out / f"answers-{number}.json", answers)
        moments = json.dumps(common | {"moments": self.asked}, indent=1)
        (context.out / MOMENTS_FILE).write_text(moments + "\n")
