"""Cases of brokers that were killed, and of another start after damage."""
from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from ..case_context import CaseContext
from ..questions import log_files
from .registry import case

_BATCH_HEADER_BYTES = 12  # base offset and size, common to all formats


def recover(context: CaseContext, topics: Sequence[str], *, look_ups: bool = True) -> None:
    """Start the same broker on its directory as it is now, and save what became of it.

    Parameters
    ----------
    context : CaseContext
        With a stopped cluster.
    topics : sequence of str
        The ones that are queried.
    look_ups : bool
        Keep what ListOffsets answers.
    """
    if context.cluster.mode == "zk":  # the ZooKeeper session of a killed broker must run out first
        context.cluster.start_zookeeper()
        time.sleep(1 if context.since(0, 10) else 8)
    context.start()
    for topic in topics:
        for partition in range(context.partitions[topic]):
            context.ask(topic, partition)
    context.stop()
    if not look_ups:
        for answers in context.answers.values():
            answers.pop("list_offsets", None)
            answers.pop("list_offsets_v0", None)
    context.extra["broker_log"] = context.log_lines(*topics)[:40]
    context.save("answers-recovered", "logs-recovered")


def _kill(context: CaseContext, count: int = 60, config: dict[str, str] | None = None) -> None:
    """Produce to ``crash``, query, and kill the broker."""
    context.start()
    context.create_topic("crash", 1, config)
    start = context.first_timestamp
    stamps = [start + number * 100 - (number % 7) * 333 for number in range(count)]
    context.produce("crash", context.batches(stamps, (1, 2, 3)))
    context.ask_all()
    context.stop(kill=True)


def _last_batch(path: Path) -> tuple[int, int]:
    """Return where the last batch of a ``.log`` begins and ends, without preallocated zeros."""
    data = path.read_bytes()
    begin = end = 0
    while end + _BATCH_HEADER_BYTES <= len(data):
        size = int.from_bytes(data[end + 8 : end + _BATCH_HEADER_BYTES], "big")
        if size == 0 or end + _BATCH_HEADER_BYTES + size > len(data):
            break
        begin, end = end, end + _BATCH_HEADER_BYTES + size
    return begin, end


@case()
def crash(context: CaseContext) -> None:
    """A killed broker."""
    _kill(context)
    context.save(shutdown="kill")
    recover(context, ["crash"])


@case()
def crash_torn(context: CaseContext) -> None:
    """A killed broker's last batch, cut in the middle."""
    _kill(context, 70)
    log = log_files(context.cluster.logs / "crash-0")[-1]
    begin, end = _last_batch(log)
    cut = begin + (end - begin) // 2
    os.truncate(log, cut)
    context.extra["made"] = (
        f"after kill -9, {log.name} cut to {cut} bytes (its last batch began at {begin} and ended"
        f" at {end}); the partitions below were asked before the kill"
    )
    context.save(shutdown="kill")
    recover(context, ["crash"])


@case()
def crash_bad_crc(context: CaseContext) -> None:
    """A killed broker's last batch, with one byte changed."""
    _kill(context, 64)
    log = log_files(context.cluster.logs / "crash-0")[-1]
    _, end = _last_batch(log)
    data = bytearray(log.read_bytes())
    data[end - 3] ^= 0x55
    log.write_bytes(data)
    context.extra["made"] = (
        f"after kill -9, one byte of the last batch (at {end - 3}) of {log.name} was changed"
    )
    context.save(shutdown="kill")
    recover(context, ["crash"])


@case(since="0.9")
def preallocate_killed(context: CaseContext) -> None:
    """A killed broker that preallocates its segments: zeros after the data."""
    _kill(context, config={"preallocate": "true"})
    context.save(shutdown="kill")
    recover(context, ["crash"])
