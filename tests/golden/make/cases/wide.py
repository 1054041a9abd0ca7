"""The case of everything that a log directory may contain."""
from __future__ import annotations

import shutil
import time
from functools import partial
from pathlib import Path

from ..case_context import CaseContext
from .compaction import ALWAYS_DIRTY, CLEANED, EAGER_CLEANER
from .crashes import recover
from .registry import case

_TOPICS = (
    *("a", "a-1", "a-1-2", "with.dots", "with_underscore", "with-dash", "UPPER.lower-1_2"),
    *("0", "00-0", "x" * 60, "a.b-c_d.0", "deleted", "swap.log", "index-delete-me"),
)


@case()
def wide(context: CaseContext) -> None:
    """Odd topic names, a deleted topic, leftovers of the cleaner; then a restart."""
    context.start(EAGER_CLEANER | {"delete.topic.enable": "true"})
    _produce_to_odd_names(context)
    start = context.first_timestamp
    context.create_topic("doomed", 2, segment_bytes=1000)
    context.produce("doomed", context.batches([start + delta for delta in range(20)]))
    context.create_topic("cleaned", 1, ALWAYS_DIRTY, segment_bytes=1000)
    for _ in range(2):
        context.produce("cleaned", context.batches([start + delta for delta in range(40)]))
    context.wait_until_still("cleaned-0", CLEANED, seconds=15)
    _delete_topic(context, "doomed")
    context.ask_all()
    if context.since(0, 10, 1):
        context.ask("__consumer_offsets")
    context.stop(zookeeper=False)
    _keep_few_look_ups(context)
    _leave_files(context)
    context.save()
    topics = list(context.partitions)
    context.try_variant("recovered", partial(recover, context, topics, look_ups=False))


def _produce_to_odd_names(context: CaseContext) -> None:
    """Create the topics, of one to three partitions with 0, 1 or 12 records."""
    for number, topic in enumerate(_TOPICS):
        partitions = 3 if number == 0 else 2 if number % 5 == 4 else 1
        context.create_topic(topic, partitions, segment_bytes=1500)
        for partition in range(partitions):
            start = context.first_timestamp + number * 1000
            stamps = [start + delta for delta in range(context.rng.choice((0, 1, 12)))]
            context.produce(topic, context.batches(stamps), partition)


def _delete_topic(context: CaseContext, topic: str) -> None:
    """Delete a topic, so that its directories are renamed; commit an offset on the way."""
    if context.since(0, 10, 1):
        context.client(
            "commit_offsets", group="golden-group", topic=_TOPICS[0], partition=0, offset=0
        )
        context.client("delete_topic", topic=topic)
    else:
        context.cluster.tool(
            *("kafka.admin.TopicCommand", "--zookeeper", context.cluster.zookeeper_address),
            *("--delete", "--topic", topic),
        )
    del context.partitions[topic]
    time.sleep(2)


def _keep_few_look_ups(context: CaseContext) -> None:
    """Keep the lowest and the highest version of ListOffsets: twenty partitions have many rows."""
    kept = {1, context.cluster.list_offsets_versions[1]}
    for answers in context.answers.values():
        if rows := answers.get("list_offsets"):
            answers["list_offsets"] = [row for row in rows if row["version"] in kept]


def _leave_files(context: CaseContext) -> None:
    """Copy real files to names that only an interrupted cleaner or delete would leave."""
    logs = context.cluster.logs
    cleaned, other = logs / "cleaned-0", logs / f"{_TOPICS[0]}-0"
    left = sorted(path.name for path in cleaned.iterdir() if path.name.endswith(".deleted"))
    segment = min(path.stem for path in cleaned.iterdir() if path.name.endswith(".log"))
    copies: list[Path] = []
    for suffix in (".log", ".index", ".timeindex"):
        path = cleaned / f"{segment}{suffix}"
        if path.exists():
            copies += [_copy_with_suffix(path, ending) for ending in (".cleaned", ".swap")]
    for suffix in (".log", ".index"):
        copies.append(_copy_with_suffix(other / f"{0:020}{suffix}", ".deleted"))
    context.extra["made_by_copying"] = [path.relative_to(logs).as_posix() for path in copies]
    context.extra["deleted_left_by_broker"] = left
    deleted = (path.name for path in logs.iterdir() if path.name.endswith("-delete"))
    context.extra["delete_dirs"] = sorted(deleted)


def _copy_with_suffix(path: Path, ending: str) -> Path:
    """Copy a file, with its mtime, to its name with a suffix."""
    copy = path.with_name(path.name + ending)
    shutil.copy2(path, copy)
    return copy
