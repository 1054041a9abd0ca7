"""What a check of a store consists of: its partitions, and what only several of them show.

`store_check` checks what is next to the partitions, `partition_check` and `segment_check` each
partition and segment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from kafkastore.checks.findings import Finding, Severity
from kafkastore.checks.partition_check import check_partition
from kafkastore.formats.file_names import PARTITION_METADATA, TopicPartition
from kafkastore.store.log_store import LogStore
from kafkastore.store.partition_log import PartitionLog


def check_sample(sample: float) -> None:
    """Refuse a sample that is no share."""
    if not 0 < sample <= 1:
        raise ValueError(f"sample must be above 0 and at most 1, got {sample}")


def verify_log(log: PartitionLog) -> Iterator[Finding]:
    """Yield the findings in one partition; raise what kept a file from being opened after them."""
    checked = check_partition(log)
    yield from checked.findings
    if checked.failures:
        raise checked.failures[0]


def logs_to_check(
    store: LogStore, chosen: Collection[TopicPartition] | None
) -> Iterator[tuple[PartitionLog, Finding | None]]:
    """Yield the partitions in each of their directories, and a finding where there are several.

    Future partitions, which are being moved, come last.
    """
    for logs in (store.partitions, store.future_partitions):
        for topic_partition in logs:
            if chosen is not None and topic_partition not in chosen:
                continue
            copies = logs.copies(topic_partition)
            for log in copies:
                others = ", ".join(str(other.path) for other in copies if other is not log)
                yield log, _twin(log, others) if others else None


def _twin(log: PartitionLog, others: str) -> Finding:
    return Finding(
        Severity.WRONG_ANSWERS,
        log.path,
        None,
        f"partition {log.topic_partition} is once more in {others}",
        "a broker does not start with a partition in two of its log directories",
        "keep the one with the larger log end offset (kafkastore ls), move the other away",
    )


def differing_topic_id(
    topic: str, path: Path, topic_id: str | None, known: dict[str, tuple[str, Path]]
) -> Iterator[Finding]:
    """Yield a finding where a partition before this one has another id of the same topic.

    `known` has the first id of each topic, and where it is; it is added to.
    """
    if topic_id is None:
        return
    first_id, first = known.setdefault(topic, (topic_id, path))
    if topic_id != first_id:
        yield Finding(
            Severity.WRONG_ANSWERS,
            path / PARTITION_METADATA,
            None,
            f"topic {topic} has id {topic_id} here, and {first_id} in {first}",
            "a topic was deleted and made again: a broker sets aside the partition of the old one, "
            "or refuses it",
            "move the partition of the old topic away (kafka-topics.sh --describe shows the id)",
        )
