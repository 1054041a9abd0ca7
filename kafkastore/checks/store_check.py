"""Check a store outside its partitions: directories, checkpoints, identity.

Source: Kafka 2.4.0 ``LogManager.loadLogs``, ``CheckpointFile``,
``KafkaServer.getBrokerMetadataAndOfflineDirs``; 3.9.0 ``MetaPropertiesEnsemble.verify``,
``LogManager.isStrayKraftReplica``.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kafkastore.checks.findings import Finding, FindingKind
from kafkastore.checks.name_check import TOPIC_ID_REMEDY
from kafkastore.errors import CorruptCheckpointError, NotAFileError
from kafkastore.formats.state.file_names import (
    CLEAN_SHUTDOWN_FILE,
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
from kafkastore.segment.regular_file import stat_regular

#: The remedy for a corrupt checkpoint, with what a broker does without the file.
_WITHOUT_CHECKPOINT = {
    RECOVERY_POINT_CHECKPOINT: "move it away: a broker then recovers every segment at its start",
    LOG_START_OFFSET_CHECKPOINT: (
        "move it away: logs then begin with their first segment, and deleted records reappear"
    ),
    HIGH_WATERMARK_CHECKPOINT: "move it away: replicas then begin at their log start offsets",
    CLEANER_CHECKPOINT: "move it away: logs are then compacted from their start",
}
_WITHOUT_LINE = {
    RECOVERY_POINT_CHECKPOINT: FindingKind.MISSING_RECOVERY_POINTS,
    HIGH_WATERMARK_CHECKPOINT: FindingKind.MISSING_HIGH_WATERMARKS,
}
#: Keys of `meta.properties` that are the same in all of a broker's directories.
_IDENTITIES = (
    (("cluster.id",), "cluster", FindingKind.CLUSTER_MISMATCH),
    (("node.id", "broker.id"), "broker", FindingKind.BROKER_MISMATCH),
)


def check_log_dirs(
    log_dirs: Sequence[LogDir], *, has_cluster: bool = False
) -> Iterator[Finding | OSError]:
    """Check the files and directories that do not belong to one partition.

    Yields findings, and the error of each file that can't be opened. If the cluster is known,
    each topic id is compared with it instead.
    """
    for log_dir in log_dirs:
        for skipped in log_dir.skipped:
            yield _no_partition(skipped)
        for name in _WITHOUT_CHECKPOINT:
            yield from _or_error(_checkpoint(log_dir, name))
        yield from _or_error(_marker(log_dir))
        if not has_cluster:
            yield from _missing_topic_ids(log_dir)
    yield from _identities(log_dirs)


def check_checkpoints(log_dirs: Sequence[LogDir]) -> Iterator[Finding | OSError]:
    """Report the corrupt checkpoints; see `check_log_dirs`."""
    for log_dir in log_dirs:
        for name in _WITHOUT_CHECKPOINT:
            yield from _or_error(_corrupt_checkpoint(log_dir, name))


def _or_error(findings: Iterable[Finding]) -> Iterator[Finding | OSError]:
    """Yield findings, and the error of a file that can't be opened."""
    try:
        yield from findings
    except OSError as error:
        yield error


def _no_partition(skipped: SkippedName) -> Finding:
    """Report a directory that is not read as a partition."""
    kind, remedy = FindingKind.IGNORED_DIRECTORY, "none needed if this is intended"
    if skipped.kind is SkippedKind.STRAY:
        kind = FindingKind.STRAY_DIRECTORY
        remedy = "move it out of the log directory if it is no longer needed"
    elif skipped.kind is SkippedKind.FUTURE:
        kind = FindingKind.FUTURE_DIRECTORY
    elif skipped.kind is SkippedKind.DUPLICATE:
        kind, remedy = FindingKind.DUPLICATE_DIRECTORY, "move it out of the log directory"
    elif (
        skipped.kind is not SkippedKind.DELETED
        and kind_in_log_dir(skipped.path.name, is_directory=True) == "unexpected"
    ):
        kind, remedy = FindingKind.UNEXPECTED_DIRECTORY, "move it out of the log directory"
    return Finding(kind, skipped.path, None, f"not read as a partition: {skipped.reason}", remedy)


def _corrupt_checkpoint(log_dir: LogDir, name: str) -> Iterator[Finding]:
    checkpoint = log_dir.checkpoint(name)
    if (error := checkpoint.error) is not None:
        yield Finding(
            FindingKind.CORRUPT_CHECKPOINT, checkpoint.path, error.position, error.reason,
            _WITHOUT_CHECKPOINT[name],
        )


def _checkpoint(log_dir: LogDir, name: str) -> Iterator[Finding]:
    """Report a corrupt checkpoint, and its missing and extra partitions."""
    yield from _corrupt_checkpoint(log_dir, name)
    checkpoint = log_dir.checkpoint(name)
    gone = [
        each
        for each in checkpoint.offsets
        if each not in log_dir.partition_paths and each not in log_dir.future_paths
    ]
    if gone:
        yield Finding(
            FindingKind.UNKNOWN_PARTITIONS_IN_CHECKPOINT, checkpoint.path, None,
            f"it has a line of {_several(gone)}, which {_be(gone)} not in this directory",
            "none needed if these partitions are not missing",
        )
    if not checkpoint.offsets or name not in _WITHOUT_LINE:
        return
    without = [
        each
        for each in log_dir.partition_paths
        if each not in checkpoint.offsets and each.topic != CLUSTER_METADATA_TOPIC
    ]
    if without:
        what = f"{_several(without)} of this directory {_be(without)} missing from it"
        yield Finding(_WITHOUT_LINE[name], checkpoint.path, None, what)


def _marker(log_dir: LogDir) -> Iterator[Finding]:
    """Report a clean-shutdown marker that is not a regular file.

    Source: Kafka 2.4.0 ``LogManager.loadLogs``, 3.9.0 ``CleanShutdownFileHandler.exists``.
    """
    path = log_dir.path / CLEAN_SHUTDOWN_FILE
    try:
        stat_regular(path)
    except FileNotFoundError:
        return
    except NotAFileError as error:
        outcome = "a clean shutdown" if log_dir.is_clean else "a missing file"
        yield Finding(
            FindingKind.NOT_A_FILE, path, None,
            f"it is {error.kind} and not a regular file; a broker takes it for {outcome}",
            "move it away: a broker then recovers the logs at its start",
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
        what = "the topic id is missing"
        yield Finding(FindingKind.MISSING_TOPIC_ID, path, None, what, TOPIC_ID_REMEDY)


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
        return f"1 partition ({first})"
    return f"{len(partitions)} partitions ({first} and others)"


def _be(partitions: Collection[TopicPartition]) -> str:
    return "is" if len(partitions) == 1 else "are"


def _identities(log_dirs: Sequence[LogDir]) -> Iterator[Finding | OSError]:
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
            yield error
    for identity in _IDENTITIES:
        yield from _differing(read, *identity)
    by_directory_id: dict[str, Path] = {}
    for path, properties in read:
        directory_id = properties.get("directory.id")
        if directory_id is not None and by_directory_id.setdefault(directory_id, path) != path:
            yield Finding(
                FindingKind.DUPLICATE_DIRECTORY_ID, path, None,
                f"directory.id {directory_id} is also used by {by_directory_id[directory_id]}",
                "one is a copy of the other: open each one separately",
            )


def _differing(
    read: Sequence[tuple[Path, Mapping[str, str]]],
    keys: Sequence[str],
    whose: str,
    kind: FindingKind,
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
                kind, path, None,
                f"it belongs to {whose} {value}, and {first[0]} to {whose} {first[1]}",
                "check the directories of each broker separately",
            )


def _damaged_identity(path: Path, position: int | None, reason: str) -> Finding:
    return Finding(
        FindingKind.CORRUPT_META_PROPERTIES, path, position, reason,
        f"copy the values of the broker's other log directories; if no directory has a "
        f"{META_PROPERTIES}, a broker before KRaft creates it",
    )
