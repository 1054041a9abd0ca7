"""Choose the partitions to check, and compare topic ids across partitions.

`store_check` checks the files outside partitions; `partition_check` and `segment_check` check
partitions and segments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from kafkastore.checks.findings import Finding, FindingKind
from kafkastore.checks.partition_check import check_partition
from kafkastore.errors import ArgumentValueError
from kafkastore.formats.state.file_names import PARTITION_METADATA, TopicPartition
from kafkastore.store.log_store import LogStore
from kafkastore.store.partition_log import PartitionLog


def check_sample(sample: float) -> None:
    """Raise ArgumentValueError unless `sample` is above 0 and at most 1."""
    if not 0 < sample <= 1:
        raise ArgumentValueError("sample", "above 0 and at most 1", sample)


def verify_log(log: PartitionLog) -> Iterator[Finding]:
    """Yield the findings in one partition, then raise the first error that occurred.

    The error is the one that kept a file from being opened.
    """
    checked = check_partition(log)
    yield from checked.findings
    if checked.failures:
        raise checked.failures[0]


def logs_to_check(
    store: LogStore, chosen: Collection[TopicPartition] | None
) -> Iterator[tuple[PartitionLog, Finding | None]]:
    """Yield each directory of each partition, with a finding if there are several.

    Future partitions, which a broker is moving, come last.
    """
    for logs in (store.partitions, store.future_partitions):
        for topic_partition in logs:
            if chosen is not None and topic_partition not in chosen:
                continue
            copies = logs.copies(topic_partition)
            for log in copies:
                others = ", ".join(str(other.path) for other in copies if other is not log)
                yield log, _duplicate(log, others) if others else None


def _duplicate(log: PartitionLog, others: str) -> Finding:
    return Finding(
        FindingKind.DUPLICATE_PARTITION, log.path, None,
        f"partition {log.topic_partition} is also in {others}",
        "keep the one with the larger log end offset (kafkastore ls), and move the other away",
    )


def differing_topic_id(
    topic: str, path: Path, topic_id: str | None, known: dict[str, tuple[str, Path]]
) -> Iterator[Finding]:
    """Yield a finding if an earlier partition of the topic has another topic id.

    `known` maps each topic to its first id and the path it was read from; a new topic is added.
    """
    if topic_id is None:
        return
    first_id, first = known.setdefault(topic, (topic_id, path))
    if topic_id != first_id:
        yield Finding(
            FindingKind.TOPIC_ID_MISMATCH, path / PARTITION_METADATA, None,
            f"topic {topic} has id {topic_id} here, and {first_id} in {first}",
            "move the partition of the old topic away (kafka-topics.sh --describe shows the id)",
        )
