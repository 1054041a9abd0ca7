"""Check a store outside its partitions: unexpected directories, checkpoints, broker identity.

Source: Kafka 2.4.0 ``LogManager.loadLogs``, ``CheckpointFile``,
``KafkaServer.getBrokerMetadataAndOfflineDirs``; 3.9.0 ``MetaPropertiesEnsemble.verify``,
``LogManager.isStrayKraftReplica``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from kafkastore.checks.findings import Finding, Severity
from kafkastore.checks.name_check import TOPIC_ID_REMEDY
from kafkastore.errors import CorruptCheckpointError, NotAFileError
from kafkastore.formats.file_names import (
    CLEANER_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
    kind_in_log_dir,
)
from kafkastore.log.log_dir import LogDir, SkippedKind, SkippedName

#: The remedy for a corrupt checkpoint, with what a broker does without the file.
_WITHOUT_CHECKPOINT = {
    RECOVERY_POINT_CHECKPOINT: "move it away: a broker then recovers every segment at its start",
    LOG_START_OFFSET_CHECKPOINT: (
        "move it away: logs then begin with their first segment, and deleted records come back"
    ),
    HIGH_WATERMARK_CHECKPOINT: "move it away: replicas then begin at their log start offsets",
    CLEANER_CHECKPOINT: "move it away: logs are then compacted from their start on",
}
_WITHOUT_LINE = {
    RECOVERY_POINT_CHECKPOINT: "unless it was closed in order a broker recovers them whole",
    HIGH_WATERMARK_CHECKPOINT: "a broker begins at their log start offsets, and raises them",
}
#: Keys of `meta.properties` that are the same in all of a broker's directories.
_IDENTITIES = (
    (("cluster.id",), "cluster"),
    (("node.id", "broker.id"), "broker"),
)


def check_log_dirs(
    log_dirs: Sequence[LogDir], failed: Callable[[OSError], None]
) -> Iterator[Finding]:
    """Check the files and directories that do not belong to one partition.

    `failed` is called with the error if a file can't be opened; the check continues.
    """
    for log_dir in log_dirs:
        for skipped in log_dir.skipped:
            yield _no_partition(skipped)
        for name in _WITHOUT_CHECKPOINT:
            try:
                yield from _checkpoint(log_dir, name)
            except OSError as error:
                failed(error)
        yield from _missing_topic_ids(log_dir)
    yield from _identities(log_dirs, failed)


def _no_partition(skipped: SkippedName) -> Finding:
    """Report a directory that is not read as a partition."""
    severity, consequence, remedy = (
        Severity.STYLE,
        "its records, if any, are not seen",
        "none is needed if that is meant",
    )
    if skipped.kind is SkippedKind.STRAY:
        consequence = "a broker passes it over; one before 3.6.1 does not start"
        remedy = "move it out of the log directory if it is not needed any more"
    elif skipped.kind is SkippedKind.FUTURE:
        consequence = "a broker goes on with the move; it is checked like a partition"
    elif skipped.kind is SkippedKind.DUPLICATE or (
        skipped.kind is not SkippedKind.DELETED
        and kind_in_log_dir(skipped.path.name, is_directory=True) == "unexpected"
    ):
        severity = Severity.WRONG_ANSWERS
        consequence = "a broker does not start with it in its log directory"
        remedy = "move it out of the log directory"
    return Finding(
        severity,
        skipped.path,
        None,
        f"not read as a partition: {skipped.reason}",
        consequence,
        remedy,
    )


def _checkpoint(log_dir: LogDir, name: str) -> Iterator[Finding]:
    """Report whether a checkpoint is corrupt, and which partitions it has too many or too few."""
    checkpoint = log_dir.checkpoint(name)
    if (error := checkpoint.error) is not None:
        yield Finding(
            Severity.WRONG_ANSWERS,
            checkpoint.path,
            error.position,
            error.reason,
            "a broker gives up this log directory, and stops if it is the only one",
            _WITHOUT_CHECKPOINT[name],
        )
        return
    gone = [
        each
        for each in checkpoint.offsets
        if each not in log_dir.partition_paths and each not in log_dir.future_paths
    ]
    if gone:
        yield Finding(
            Severity.STYLE,
            checkpoint.path,
            None,
            f"it has lines of {_several(gone)} not here",
            "a broker passes them over, and leaves them out when it writes the file again",
            "none is needed if they are not missed",
        )
    if not checkpoint.offsets or name not in _WITHOUT_LINE:
        return
    without = [
        each
        for each in log_dir.partition_paths
        if each not in checkpoint.offsets and each.topic != CLUSTER_METADATA_TOPIC
    ]
    if without:
        yield Finding(
            Severity.STYLE,
            checkpoint.path,
            None,
            f"it has no lines of {_several(without)} here",
            _WITHOUT_LINE[name],
            "none is needed",
        )


def _missing_topic_ids(log_dir: LogDir) -> Iterator[Finding]:
    """Report partitions of a KRaft broker without a topic id, if others have one."""
    if _properties(log_dir).get("version") != "1":
        return
    paths = {
        path / PARTITION_METADATA
        for partition, path in log_dir.partition_paths.items()
        if partition.topic != CLUSTER_METADATA_TOPIC
    }
    missing = {path for path in paths if not os.path.lexists(path)}
    if missing == paths:
        return  # no broker has used the directory yet
    for path in sorted(missing):
        yield Finding(
            Severity.WRONG_ANSWERS,
            path,
            None,
            "the topic id is missing",
            "a broker of a KRaft cluster takes the partition for a stray one, and sets it aside",
            TOPIC_ID_REMEDY,
        )


def _properties(log_dir: LogDir) -> Mapping[str, str]:
    """Return a directory's `meta.properties`; empty if unreadable."""
    try:
        return log_dir.meta_properties
    except (CorruptCheckpointError, NotAFileError, OSError):
        return {}


def _several(partitions: Collection[TopicPartition]) -> str:
    """Return the number of partitions with the name of the first."""
    first = min(partitions)
    if len(partitions) == 1:
        return f"1 partition ({first}) that is"
    return f"{len(partitions)} partitions ({first} and others) that are"


def _identities(
    log_dirs: Sequence[LogDir], failed: Callable[[OSError], None]
) -> Iterator[Finding]:
    """Check that the directories belong to one broker of one cluster."""
    read = []
    for log_dir in log_dirs:
        path = log_dir.path / META_PROPERTIES
        try:
            properties = log_dir.meta_properties
            if "version" not in properties and os.path.lexists(path):
                yield _damaged_identity(path, None, f"{META_PROPERTIES} has no version")
            read.append((path, properties))
        except CorruptCheckpointError as error:
            yield _damaged_identity(path, error.position, error.reason)
        except NotAFileError as error:
            yield _damaged_identity(path, None, f"it is {error.kind} and not a regular file")
        except OSError as error:
            failed(error)
    for keys, whose in _IDENTITIES:
        yield from _differing(read, keys, whose)
    by_directory_id: dict[str, Path] = {}
    for path, properties in read:
        directory_id = properties.get("directory.id")
        if directory_id is not None and by_directory_id.setdefault(directory_id, path) != path:
            yield Finding(
                Severity.WRONG_ANSWERS,
                path,
                None,
                f"directory.id {directory_id} is also that of {by_directory_id[directory_id]}",
                "a broker does not start with two log directories of one id",
                "one is a copy of the other: open each by itself",
            )


def _differing(
    read: Sequence[tuple[Path, Mapping[str, str]]], keys: Sequence[str], whose: str
) -> Iterator[Finding]:
    """Report each directory whose broker or cluster differs from the first one's."""
    first: tuple[Path, str] | None = None
    for path, properties in read:
        value = next((properties[key] for key in keys if key in properties), None)
        if value is None:
            continue
        if first is None:
            first = path, value
        elif value != first[1]:
            yield Finding(
                Severity.WRONG_ANSWERS,
                path,
                None,
                f"it is of {whose} {value}, and {first[0]} of {whose} {first[1]}",
                "a broker does not start with log directories of several brokers or clusters",
                "check each broker's directories by themselves",
            )


def _damaged_identity(path: Path, position: int | None, reason: str) -> Finding:
    return Finding(
        Severity.WRONG_ANSWERS,
        path,
        position,
        reason,
        "a broker does not start",
        f"write it anew as the broker's other log directories have it; a broker before KRaft makes "
        f"it itself where no directory has a {META_PROPERTIES}",
    )
