"""The names in a log directory: what they say, and how a broker reads them.

::

    <log.dirs root>/
        <topic>-<partition>/                          a partition
        <topic>-<partition>.<uuid>-delete/            waits to be deleted; the topic may be cut
        <topic>-<partition>.<uuid>-future/            is being moved here from another log directory
        <topic>-<partition>.<uuid>-stray/             not assigned to this broker (from 3.7.0 on)
            <base offset, 20 digits>.log              also .index .timeindex .txnindex .snapshot
            <base offset, 20 digits>.log.deleted      also .cleaned .swap, on any of them
            <end offset, 20 digits>-<epoch, 10 digits>.checkpoint   KRaft snapshot, also .deleted
            <end offset>-<epoch>-<random number>.checkpoint.part    one that is being written

``docs/formats/file_names.md`` has the rules and the odd cases.

Source: Kafka 2.4.0 ``Log.parseTopicPartitionName``, ``Log.offsetFromFileName``; 3.9.0
``LocalLog.parseTopicPartitionName``, ``LogFileUtils``, ``Snapshots``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from kafkastore.arguments import INT32_MAX, INT64_MAX
from kafkastore.errors import KafkaStoreError
from kafkastore.formats.java_text import parse_int32

if TYPE_CHECKING:
    from collections.abc import Iterable

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX = ".snapshot"
KRAFT_SNAPSHOT_SUFFIX = ".checkpoint"

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
PART_SUFFIX = ".part"

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
    """A name that is not of the form asked for."""


class TopicPartition(NamedTuple):
    """A topic and the number of one of its partitions; as a string ``topic-partition``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: object) -> bool:
    """Answer whether Kafka allows a topic of that name.

    Source: Kafka 2.4.0 ``Topic.validate``.
    """
    return isinstance(name, str) and _TOPIC.fullmatch(name) is not None and name not in (".", "..")


class PartitionDirectory(NamedTuple):
    """What a partition directory's name says.

    Parameters
    ----------
    topic_partition : TopicPartition
        Of a ``delete`` or ``stray`` directory the topic may be cut: those names have at most 255
        characters.
    suffix : str
        Empty, ``delete``, ``future`` or ``stray``.
    uuid : str or None
        What stands between the last dot and the suffix, 32 hexadecimal digits where a broker
        named the directory; None without a suffix.
    """

    topic_partition: TopicPartition
    suffix: DirectorySuffix = ""
    uuid: str | None = None


class SegmentFile(NamedTuple):
    """What the name of a file of a segment says.

    Parameters
    ----------
    base_offset : int
        Of the segment; of a producer or KRaft snapshot the first offset that is not in it.
    type_suffix : str
        ``.log``, ``.index``, ``.timeindex``, ``.txnindex``, ``.snapshot`` or ``.checkpoint``.
    temporary : str
        Empty, ``.deleted``, ``.cleaned``, ``.swap``; ``.part`` of a KRaft snapshot.
    leader_epoch : int or None
        The epoch in a KRaft snapshot's name.
    """

    base_offset: int
    type_suffix: TypeSuffix
    temporary: TemporarySuffix = ""
    leader_epoch: int | None = None


def parse_partition_directory(name: str) -> PartitionDirectory:
    """Parse the name of a partition directory as a broker does.

    Parameters
    ----------
    name : str
        The last part of the path.

    Returns
    -------
    PartitionDirectory
        Topic, partition and suffix. The topic is not checked against the rules for topic names.

    Raises
    ------
    InvalidNameError
        If a broker would refuse the name, and its start with it.

    Notes
    -----
    Source: Kafka 3.9.0 ``LocalLog.parseTopicPartitionName``. Brokers before 3.7.0 do not know
    ``-stray``, and refuse it.

    Examples
    --------
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
            f"{name!r} is not topic-partition: {digits!r} is not a number of 32 bits"
        ) from None
    return PartitionDirectory(TopicPartition(topic, partition), suffix, uuid)


def parse_segment_file(name: str) -> SegmentFile | None:
    """Parse the name of a file in a partition directory.

    Parameters
    ----------
    name : str
        The last part of the path.

    Returns
    -------
    SegmentFile or None
        None if the name is not one that brokers give to a file of a segment.

    Notes
    -----
    Source: Kafka 3.9.0 ``LogFileUtils``, ``Snapshots``. A broker looks at the end of a name and
    takes the digits before its first dot, however many; a name that it would not write itself,
    such as ``42.log``, it opens under the name with 20 digits. Such names give None here.

    Examples
    --------
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
    """Find the segments' files with one suffix among many names; quicker than to parse each.

    Parameters
    ----------
    names : iterable of str
        Last parts of paths, in any order.
    suffix : str
        From the first dot on.

    Returns
    -------
    list of int
        The offsets in the names that are 20 digits and the suffix, ascending.

    Examples
    --------
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
    """Build the name of a file of a segment.

    Parameters
    ----------
    base_offset : int
        Base offset of the segment, 0 to 2**63 - 1.
    suffix : str
        From the first dot on.

    Returns
    -------
    str
        20 digits and the suffix.

    Raises
    ------
    InvalidNameError
        If the base offset is no offset.

    Examples
    --------
    >>> segment_file_name(42, ".log")
    '00000000000000000042.log'
    """
    if not 0 <= base_offset <= INT64_MAX:
        raise InvalidNameError(f"base offset {base_offset} is not within 0 to {INT64_MAX}")
    return f"{base_offset:020d}{suffix}"


def kind_in_log_dir(
    name: str, *, is_directory: bool
) -> Literal["partition", "skipped", "unexpected"]:
    """Tell what a broker makes of something in its log directory.

    Parameters
    ----------
    name : str
        The last part of the path.
    is_directory : bool
        Whether it is a directory, links followed.

    Returns
    -------
    str
        ``partition``; ``skipped`` for files and for the tiered storage's index cache;
        ``unexpected`` for directories, such as ``lost+found``, that stop a broker's start.

    Notes
    -----
    Source: Kafka 3.9.0 ``LogManager.loadLogs``. The directory of ``__cluster_metadata`` is a
    partition here; in a broker the KRaft code loads it.
    """
    if not is_directory or name == REMOTE_INDEX_CACHE:
        return "skipped"
    try:
        parse_partition_directory(name)
    except InvalidNameError:
        return "unexpected"
    return "partition"
