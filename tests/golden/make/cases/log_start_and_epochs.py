"""Cases about a log's start offset and its leader epochs."""
from __future__ import annotations

import time

from ..case_context import CaseContext
from ..cluster import Cluster
from .registry import case

_STARTS = 4
_START_WITHOUT_RECORDS = 2


@case(since="0.11")
def leader_epochs(context: CaseContext) -> None:
    """Restarts that raise the leader epoch, one of them without records.

    A broker alone keeps its epoch over restarts unless its absence is noticed: in KRaft a
    controlled shutdown does; with ZooKeeper a second broker, without partitions, becomes the
    controller when the first stops.
    """
    kraft = context.since(3, 9)
    second: Cluster | None = None
    try:
        for start in range(_STARTS):
            context.start({"controlled.shutdown.enable": "true"} if kraft else {})
            if start == 0:
                context.create_topic("epochs", 2, segment_bytes=1500)
                if not kraft:
                    second = context.new_cluster("second", context.version, {"broker.id": 1}, "zk")
                    second.share_zookeeper(context.cluster)
                    second.start()
            if start != _START_WITHOUT_RECORDS:
                _produce_in_epoch(context, start)
            if start == _STARTS - 1:
                context.ask_all()
                _query_with_leader_epochs(context)
            context.stop(zookeeper=False)
            if not kraft:
                time.sleep(1)
        if second is not None:
            second.stop(zookeeper=False)
    finally:
        if second is not None and second.broker is not None:
            second.broker.abandon()
    context.cluster.stop_zookeeper()
    context.save()


def _produce_in_epoch(context: CaseContext, start: int) -> None:
    """Produce after one of the starts, to partition 1 only after every other."""
    timestamp = context.first_timestamp + start * 100_000
    for partition, count in ((0, 12), (1, 5)):
        if partition == 0 or start % 2:
            stamps = [timestamp + number * 10 for number in range(count)]
            batches = context.batches(stamps)
            context.produce("epochs", batches, partition, producer=f"p{start}")


def _query_with_leader_epochs(context: CaseContext) -> None:
    """Query the end with every current leader epoch that may be right or wrong."""
    if context.cluster.list_offsets_versions[1] < 4:
        return
    context.extra["list_offsets_with_current_leader_epoch"] = [
        {"timestamp": -1, "version": 4, "current_leader_epoch": epoch}
        | context.cluster.wire.list_offsets(
            "epochs", 0, -1, version=4, current_leader_epoch=epoch
        )
        for epoch in range(-1, 12)
    ]


@case(since="0.11")
def delete_records(context: CaseContext) -> None:
    """The log start inside a segment, at the end, and where it was."""
    context.start()
    context.create_topic("deleted", 3, {"file.delete.delay.ms": 1000}, segment_bytes=2000)
    start = context.first_timestamp
    stamps = [start + number * 100 for number in range(70)]
    for partition in (0, 1, 2):
        context.produce("deleted", context.batches(stamps, (1, 2, 5)), partition)
        context.set_mtimes(f"deleted-{partition}", lambda number: start + 60_000 * number)
    for partition, offset in ((0, 25), (1, 70)):
        context.client("delete_records", topic="deleted", partition=partition, offset=offset)
    extra = [
        start + number * 100 + delta
        for number in (0, 24, 25, 26, 40, 41, 42, 69)
        for delta in (-1, 0, 1)
    ]
    context.ask_all(extra_timestamps=extra)
    context.stop()
    context.save()
