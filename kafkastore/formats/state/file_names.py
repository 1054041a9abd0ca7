"""The names of files and directories in a log directory, parsed as a broker does.

::

    <log.dirs root>/
        <topic>-<partition>/                          a partition
        <topic>-<partition>.<uuid>-delete/            to be deleted; the topic may be shortened
        <topic>-<partition>.<uuid>-future/            being moved here from another log directory
        <topic>-<partition>.<uuid>-stray/             not assigned to this broker (from 3.6.1 on)
            <base offset, 20 digits>.log              also .index .timeindex .txnindex .snapshot
            <base offset, 20 digits>.log.deleted      also .cleaned .swap, on any of them
            <end offset, 20 digits>-<epoch, 10 digits>.checkpoint   KRaft snapshot, also .deleted
            <end offset>-<epoch>-<random number>.checkpoint.part    KRaft snapshot being written

``docs/formats/file_names.md`` has the rules and the odd cases.

Source: Kafka 2.4.0 ``Log.parseTopicPartitionName``, ``Log.offsetFromFileName``; 3.9.0
``LocalLog.parseTopicPartitionName``, ``LogFileUtils``, ``Snapshots``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from kafkastore.arguments import INT32_MAX, INT64_MAX
from kafkastore.errors import KafkaStoreError
from kafkastore.formats.primitives.java_text import parse_int32

if TYPE_CHECKING:
    from collections.abc import Iterable

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
INDEX_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
PRODUCER_SNAPSHOT_SUFFIX = ".snapshot"
KRAFT_SNAPSHOT_SUFFIX = ".checkpoint"

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
QUORUM_STATE = "quorum-state"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"

REMOTE_INDEX_CACHE = "remote-log-index-cache"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"
#: Topics that brokers list as internal, or do not list.
INTERNAL_TOPICS = (
    "__consumer_offsets", "__transaction_state", "__share_group_state", CLUSTER_METADATA_TOPIC
)

_MARKED_DIRECTORY = re.compile(
    r"([^ \t\n\x0b\f\r]+)-([^ \t\n\x0b\f\r]+)\.([^ \t\n\x0b\f\r]+)-(delete|future|stray)"
)
_OFFSET_DIGITS = 20
_SEGMENT_FILE = re.compile(
    r"([0-9]{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.deleted|\.cleaned|\.swap|)"
)
_KRAFT_SNAPSHOT = re.compile(
    r"([0-9]{20})-([0-9]{10})(-[0-9]+)?(\.checkpoint)((?(3)\.part|(?:\.deleted)?))"
)

DirectorySuffix = Literal["", "delete", "future", "stray"]
TypeSuffix = Literal[".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint"]
TemporarySuffix = Literal["", ".deleted", ".cleaned", ".swap", ".part"]


class InvalidNameError(KafkaStoreError, ValueError):
    """A name that does not have the required form."""


class TopicPartition(NamedTuple):
    """A topic and a partition number; as a string ``topic-partition``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: object) -> bool:
    """Return whether Kafka allows a topic of that name.

    Source: Kafka 2.4.0 ``Topic.validate``.
    """
    return isinstance(name, str) and _TOPIC.fullmatch(name) is not None and name not in (".", "..")


class PartitionDirectory(NamedTuple):
    """The parts of a partition directory's name.

    | part              | value                                                             |
    | ----------------- | ----------------------------------------------------------------- |
    | `topic_partition` | the topic of a ``delete`` or ``stray`` directory may be shortened |
    | `uuid`            | text between the last dot and the suffix; None without a suffix   |
    """

    topic_partition: TopicPartition
    suffix: DirectorySuffix = ""
    uuid: str | None = None


class SegmentFile(NamedTuple):
    """The parts of the name of a segment's file.

    | part           | value                                                                      |
    | -------------- | -------------------------------------------------------------------------- |
    | `base_offset`  | of a producer or KRaft snapshot: the first offset that it does not contain |
    | `temporary`    | ``.part`` for a KRaft snapshot                                             |
    | `leader_epoch` | of a KRaft snapshot, else None                                             |
    """

    base_offset: int
    type_suffix: TypeSuffix
    temporary: TemporarySuffix = ""
    leader_epoch: int | None = None


def parse_partition_directory(name: str) -> PartitionDirectory:
    """Parse the name of a partition directory as a broker does.

    The topic is not checked against the rules for topic names. Raises `InvalidNameError` if a
    broker would refuse the name, and therefore not start. Brokers before 3.6.1 refuse ``-stray``.

    Source: Kafka 3.9.0 ``LocalLog.parseTopicPartitionName``.

    >>> str(parse_partition_directory("page-views-12").topic_partition)
    'page-views-12'
    >>> parse_partition_directory("t--1").topic_partition
    TopicPartition(topic='t-', partition=1)
    """
    uuid = None
    suffix: DirectorySuffix = ""
    topic_and_partition = name
    for marked in ("delete", "future", "stray"):
        if name.endswith("-" + marked):
            if _MARKED_DIRECTORY.fullmatch(name) is None:
                raise InvalidNameError(
                    f"{name!r} ends in -{marked} but is not topic-partition.uuid-{marked}"
                )
            suffix = marked
            topic_and_partition, _, marked_part = name.rpartition(".")
            uuid = marked_part[: -len(marked) - 1]
    topic, dash, digits = topic_and_partition.rpartition("-")
    if not dash or not topic or not digits:
        raise InvalidNameError(f"{name!r} is not topic-partition")
    try:
        partition = parse_int32(digits)
    except ValueError:
        raise InvalidNameError(
            f"{name!r} is not topic-partition: {digits!r} is not an int of 32 bits"
        ) from None
    return PartitionDirectory(TopicPartition(topic, partition), suffix, uuid)


def parse_segment_file(name: str) -> SegmentFile | None:
    """Parse the name of a segment's file; None if brokers do not write such a name.

    A broker also opens ``42.log``, under the name with 20 digits; such names return None here.

    Source: Kafka 3.9.0 ``LogFileUtils``, ``Snapshots``.

    >>> parse_segment_file("00000000000000000042.timeindex.swap")[:3]
    (42, '.timeindex', '.swap')
    """
    leader_epoch = None
    match = _SEGMENT_FILE.fullmatch(name)
    if match is not None:
        digits, type_suffix, temporary = match.groups()
    else:
        match = _KRAFT_SNAPSHOT.fullmatch(name)
        if match is None:
            return None
        digits, epoch_digits, _, type_suffix, temporary = match.groups()
        leader_epoch = int(epoch_digits)
    base_offset = int(digits)
    if base_offset > INT64_MAX or (leader_epoch or 0) > INT32_MAX:
        return None
    return SegmentFile(base_offset, type_suffix, temporary, leader_epoch)  # type: ignore[arg-type]


def offsets_in_names(names: Iterable[str], suffix: str) -> list[int]:
    """Return the sorted offsets of the names that are 20 digits and the suffix.

    `suffix` starts at the first dot. This is faster than parsing each name.

    >>> offsets_in_names(["00000000000000000042.log", "42.log", "lost+found"], ".log")
    [42]
    """
    size = _OFFSET_DIGITS + len(suffix)
    offsets = [
        int(name[:_OFFSET_DIGITS])
        for name in names
        if len(name) == size
        and name.endswith(suffix)
        and name.isascii()
        and name[:_OFFSET_DIGITS].isdigit()
    ]
    return sorted(offset for offset in offsets if offset <= INT64_MAX)


def segment_file_name(base_offset: int, suffix: str) -> str:
    """Return the name of a segment's file; `suffix` starts at the first dot.

    Raises `InvalidNameError` if the base offset is not from 0 to 2**63 - 1.

    >>> segment_file_name(42, ".log")
    '00000000000000000042.log'
    """
    if not 0 <= base_offset <= INT64_MAX:
        raise InvalidNameError(f"base offset must be from 0 to {INT64_MAX}, got {base_offset}")
    return f"{base_offset:020d}{suffix}"


def snapshot_name(offset: int) -> str:
    """Return the name of the producer snapshot at an offset."""
    return segment_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX)


def kind_in_log_dir(
    name: str, *, is_directory: bool
) -> Literal["partition", "skipped", "unexpected"]:
    """Return how a broker treats an entry of its log directory.

    Files and the index cache of tiered storage are ``skipped``; ``unexpected`` directories, such as
    ``lost+found``, stop a broker's start. `is_directory` follows links.

    Source: Kafka 3.9.0 ``LogManager.loadLogs``.
    """
    if not is_directory or name == REMOTE_INDEX_CACHE:
        return "skipped"
    try:
        parse_partition_directory(name)
    except InvalidNameError:
        return "unexpected"
    return "partition"
