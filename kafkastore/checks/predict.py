"""Predict what a broker's next start does, without changing anything.

For each partition: the result of `recover_log`. Also everything that prevents a start: a directory
whose name is not a partition's, a duplicate partition, a log that can't be loaded, a corrupt
checkpoint. Configuration and ``meta.properties`` are not checked, nor whether the cluster still has
a partition.

Source: Kafka 2.4.0 and 3.9.0 ``LogManager.loadLogs``, ``Log.parseTopicPartitionName``,
``CheckpointFile.read``; 3.9.1 ``KafkaMetadataLog``.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from kafkastore.arguments import INT64_MAX, check_collection
from kafkastore.errors import (
    CorruptCheckpointError,
    CorruptIndexError,
    CorruptionError,
    DuplicatePartitionError,
    KafkaStoreError,
    NotAFileError,
)
from kafkastore.formats.state.checkpoints import parse_partition_metadata
from kafkastore.formats.state.file_names import (
    CLEANER_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    REMOTE_INDEX_CACHE,
    TopicPartition,
    kind_in_log_dir,
    parse_segment_file,
    segment_file_name,
)
from kafkastore.log.log_dir import LogDir, SkippedKind, SkippedName
from kafkastore.log.partition_files import read_topic_id
from kafkastore.metadata.strays import Assignments, StrayReason
from kafkastore.paths import describe_error
from kafkastore.recovery.log_recovery import RecoveredLog, recover_log
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES
from kafkastore.segment.regular_file import is_regular, link_kind
from kafkastore.segment.salvage import is_torn_batch, largest_offset
from kafkastore.segment.small_file import has_bytes, read_if_there
from kafkastore.segment.zero_tail import is_zero_from
from kafkastore.store.log_store import (
    AnyPartition,
    LogStore,
    as_topic_partition,
    no_partition,
)
from kafkastore.store.partition_log import PartitionLog
from kafkastore.versions import BrokerRules, rules_of

#: When a broker reads a checkpoint that it does not need to load logs.
_READ_LATER = {
    HIGH_WATERMARK_CHECKPOINT: "when the first partition is led or followed",
    CLEANER_CHECKPOINT: "when the log cleaner first looks for work",
}


class Outcome(StrEnum):
    """The result for a directory, worst first."""

    STOPS_THE_START = "stops-the-start"
    """The broker does not start, or takes the log directory offline."""
    LOSES_RECORDS = "loses-records"
    """Readable bytes of logs are removed, a segment is skipped or treated as empty, or appended
    records cannot be read."""
    IS_NOT_SERVED = "is-not-served"
    """It has the topic id of another topic: it is loaded, and neither renamed nor served. If the
    broker shall serve a partition of its name, it may not serve other partitions either."""
    BECOMES_STRAY = "becomes-stray"
    """The cluster's metadata does not assign it to the broker, which renames it to ``-stray``, and
    does not serve it."""
    IS_DELETED = "is-deleted"
    """It is deleted completely, as intended."""
    IS_NOT_READ = "is-not-read"
    """It is not changed."""
    IS_CHANGED = "is-changed"
    """It is loaded with all records; index or snapshot files are created, rebuilt or deleted, and
    preallocated space or an incomplete last batch is truncated."""
    IS_LOADED = "is-loaded"
    """It is loaded as it is."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The effects of a broker's start on one directory.

    Parameters
    ----------
    path : Path
        A partition directory, or a file or directory that affects the start.
    outcome : Outcome
        The result for it.
    why : str or None
        The reason if it stops the start, is not read, is skipped, or is loaded as empty.
    topic_partition : TopicPartition or None
        None if `path` is not a partition.
    recovered_from : int or None
        The recovery point: the offset from which segments are recovered. None after a clean
        shutdown.
    recovered : RecoveredLog or None
        The partition as it is loaded; None if it is not loaded.
    lost_bytes : int
        Bytes that are removed from logs. Zeros, as of preallocated space, and a last batch that a
        crash left incomplete are not counted.
    lost_offsets : int
        The offsets from the new log end up to that of the last readable batch; in a log that was
        not compacted, the records that are lost.
    made_bytes : mapping of str to int
        Sizes of the files that are created, or rewritten with other bytes.
    reassigned_from : int or None
        The first offset that the broker assigns again, because it skips the last segment or treats
        it as empty.
    stray : StrayReason or None
        Why the cluster's metadata does not assign the log to the broker, or why that does not
        serve it.
    error : KafkaStoreError or OSError or None
        The error that stops the start or skips a segment, with its file and byte position.
    """

    path: Path
    outcome: Outcome
    why: str | None = None
    topic_partition: TopicPartition | None = None
    recovered_from: int | None = None
    recovered: RecoveredLog | None = None
    lost_bytes: int = 0
    lost_offsets: int = 0
    made_bytes: Mapping[str, int] = field(default_factory=dict)
    reassigned_from: int | None = None
    stray: StrayReason | None = None
    error: KafkaStoreError | OSError | None = field(default=None, compare=False)


def predict_obstacles(store: LogStore, version: str) -> Iterator[Prediction]:
    """Yield what a start does to everything that is not a partition.

    These are corrupt checkpoints, directories that are not partitions, and duplicate partitions.
    """
    rules = rules_of(version)
    for log_dir in store.log_dirs:
        yield from _checkpoints(log_dir)
        for skipped in log_dir.skipped:
            yield from _predict_skipped(skipped, rules)
    yield from _duplicates(store)


def logs_to_predict(
    store: LogStore, partitions: Collection[AnyPartition] | None
) -> Iterator[PartitionLog]:
    """Yield the partitions that a broker would load, sorted; future partitions last."""
    chosen = _chosen(store, partitions)
    return (
        logs.copies(topic_partition)[0]
        for logs in (store.partitions, store.future_partitions)
        for topic_partition in logs
        if topic_partition in chosen and topic_partition not in logs.duplicates
    )


def _chosen(
    store: LogStore, partitions: Collection[AnyPartition] | None
) -> Collection[TopicPartition]:
    """Return the partitions to predict; future partitions count."""
    there = {*store.partitions, *store.future_partitions}
    if partitions is None:
        return there
    check_collection("partitions", partitions)
    chosen = {as_topic_partition(each) for each in partitions}
    for topic_partition in sorted(chosen - there):
        raise no_partition(store, topic_partition)
    return chosen


def predict_log(
    log: PartitionLog,
    version: str,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    assignments: Assignments | None = None,
) -> Prediction:
    """Predict what a broker's start does to one partition; see `predict_start`."""
    if rules_of(version).log_may_start_in_remote_storage and log.log_start_if_tiered is not None:
        log.remote_log.check_is_known()  # a broker knows, and starts
    found = _predict_loading(log, version, index_interval_bytes)
    if assignments is None or log.topic == CLUSTER_METADATA_TOPIC or found.recovered is None:
        return found
    reason, why = assignments.why_not_served(log, read_topic_id(log.path))
    if reason is None:
        return found
    is_left = reason is StrayReason.OTHER_TOPIC
    if is_left or rules_of(version).stray_logs_are_renamed:
        outcome = Outcome.IS_NOT_SERVED if is_left else Outcome.BECOMES_STRAY
        outcome = min(found.outcome, outcome, key=list(Outcome).index)
        return replace(found, outcome=outcome, why=found.why or why, stray=reason)
    return replace(
        found,
        outcome=Outcome.LOSES_RECORDS,
        why=f"the broker deletes it: {why}",
        stray=reason,
        lost_bytes=sum(segment.size for segment in log.segments),
        lost_offsets=log.end_offset("skip", skipped=[]) - log.log_start_offset,
    )


def _predict_loading(log: PartitionLog, version: str, index_interval_bytes: int) -> Prediction:
    """Predict what becomes of a log that the broker serves."""
    is_raft = log.topic == CLUSTER_METADATA_TOPIC and rules_of(version).metadata_log_is_recovered
    is_clean = log.is_clean and not is_raft
    recovery_point = 0 if is_raft else log.recovery_point or 0
    try:
        os.stat(log.path)
    except OSError as error:
        if (kind := link_kind(log.path, error)) is not None:
            unseen = f"{kind}: a broker does not find the partition"
            return Prediction(
                log.path, Outcome.IS_NOT_READ, unseen, log.topic_partition, error=error
            )
    if (refusal := _opening_error(log, rules_of(version))) is not None:
        return _predict_no_start(log, refusal)
    try:
        recovered = recover_log(
            log,
            version,
            index_interval_bytes=index_interval_bytes,
            is_clean=is_clean,
            recovery_point=recovery_point,
        )
        lost_bytes = sum(_lost_sizes(log, recovered))
        empty = _why_treated_as_empty(recovered)
        tail = empty or _why_tail_is_a_risk(log, recovered)
        is_lossy = lost_bytes > 0 or tail is not None
        readable_end = log.end_offset("skip", skipped=[]) if is_lossy else 0
        changed = changed_files(recovered)
    except NotAFileError as error:
        return _predict_special_file(log, error)
    except (KafkaStoreError, OSError) as error:
        return _predict_no_start(log, error)
    if is_lossy:
        outcome = Outcome.LOSES_RECORDS
    elif changed:
        outcome = Outcome.IS_CHANGED
    else:
        outcome = Outcome.IS_LOADED
    return Prediction(
        log.path,
        outcome,
        tail,
        log.topic_partition,
        None if is_clean else recovery_point,
        recovered,
        lost_bytes,
        max(readable_end - recovered.log_end_offset, 0),
        {name: len(recovered.written[name]) for name in changed if name in recovered.written},
        None if empty is None else recovered.log_end_offset,
    )


def _predict_no_start(log: PartitionLog, error: KafkaStoreError | OSError) -> Prediction:
    why = describe_error(error)
    if isinstance(error, CorruptIndexError):
        why += "; kafkastore reindex rebuilds it"
    return Prediction(
        log.path, Outcome.STOPS_THE_START, why, log.topic_partition, error=error
    )


def _why_treated_as_empty(recovered: RecoveredLog) -> str | None:
    """Return why a broker loads the last segment as empty, or None."""
    active = recovered.segments[-1]
    if recovered.log_end_offset >= active.next_offset:
        return None
    return (
        f"the index of segment {active.base_offset} points beyond the end of its log: the broker "
        f"treats the segment as empty, and assigns offsets up to {active.next_offset - 1} again; "
        "repair it with kafkastore reindex"
    )


def _why_tail_is_a_risk(log: PartitionLog, recovered: RecoveredLog) -> str | None:
    """Return why records that a broker will append cannot be read, or None.

    After a clean shutdown, a broker appends at the end of the last ``.log``, also after bytes that
    are not a complete batch.
    """
    active = log.segments[-1] if log.segments else None
    loaded = recovered.segments[-1]
    if active is None or active.base_offset != loaded.base_offset or loaded.is_recovered:
        return None
    with active.open_as_broker() as opened:
        position = active.position_before(INT64_MAX, opened)
        with suppress(CorruptionError):
            for run in opened.runs(position):
                position = run.end_position
        rest = opened.size - position
    if not rest:
        return None
    return (
        f"{rest} bytes follow the last complete batch of {active.log_path.name}: the broker "
        "appends after them, and no reader finds those records; kafkastore repair --on-corrupt "
        "skip removes them"
    )


def _opening_error(log: PartitionLog, rules: BrokerRules) -> KafkaStoreError | OSError | None:
    """Return the error of a file next to the segments that stops a start, or None.

    Source: Kafka 2.4.0 ``LeaderEpochCheckpointFile``, 3.9.0 ``PartitionMetadataFile``.
    """
    try:
        read_if_there(log.path / LEADER_EPOCH_CHECKPOINT, CorruptCheckpointError)
        path = log.path / PARTITION_METADATA
        data = None
        if rules.partitions_have_topic_ids:
            data = read_if_there(path, CorruptCheckpointError)
        if data is not None:
            parse_partition_metadata(data)
    except CorruptCheckpointError as error:
        return error if error.path is not None else error.located(path)
    except (NotAFileError, OSError) as error:
        return error
    return None


def _predict_special_file(log: PartitionLog, error: NotAFileError) -> Prediction:
    """Predict the effect of a special file with a segment file's name.

    A broker checks only logs for being regular files. Observed with brokers 2.4.0 to 4.3.1.
    """
    with os.scandir(log.path) as entries:
        odd = [entry.name for entry in entries if not is_regular(entry)]
    files = [file for file in map(parse_segment_file, odd) if file is not None]
    logs = [file for file in files if file.type_suffix == LOG_SUFFIX and not file.temporary]
    if len(logs) < len(files):
        return _predict_no_start(log, error)
    bases = sorted(file.base_offset for file in logs)
    names = ", ".join(segment_file_name(base, LOG_SUFFIX) for base in bases)
    why = f"the broker skips {names}, which is not a regular file, and starts without it"
    skips_the_last = bases[-1] == max(log.files.base_offsets)
    if skips_the_last:
        why += "; it assigns the offsets of that segment again"
    return Prediction(
        log.path,
        Outcome.LOSES_RECORDS,
        f"{why}; move it away to predict the rest of the partition",
        log.topic_partition,
        reassigned_from=bases[-1] if skips_the_last else None,
        error=error,
    )


def changed_files(recovered: RecoveredLog) -> list[str]:
    """List the files that a start deletes, renames, truncates or rewrites."""
    names = {*recovered.deleted, *recovered.renamed, *recovered.cut, *recovered.copied}
    names |= {
        name
        for name, data in recovered.written.items()
        if not has_bytes(recovered.path / name, data, CorruptionError)
    }
    return sorted(names)


def _lost_sizes(log: PartitionLog, recovered: RecoveredLog) -> Iterator[int]:
    """Yield the lost bytes of logs truncated, or deleted without replacement.

    A last batch that a crash left incomplete does not count: it was lost before the start.
    """
    old_names = {new: old for old, new in recovered.renamed.items()}
    replaced = [
        range(segment.base_offset, segment.next_offset)
        for segment in recovered.segments
        if segment_file_name(segment.base_offset, LOG_SUFFIX) in {*old_names, *recovered.copied}
    ]
    for name in recovered.deleted:
        file = parse_segment_file(name)
        if file is None or file.type_suffix != LOG_SUFFIX or file.temporary:
            continue
        if not any(file.base_offset in offsets for offsets in replaced):
            yield _size_after(recovered.path / name, 0)
    for name, size in recovered.cut.items():
        active = log.segments[-1]
        if name == active.log_path.name and name not in old_names:
            with active.open_as_broker() as opened:
                last_offset = largest_offset(active.base_offset, None)
                if is_torn_batch(opened, size, recovered.log_end_offset, last_offset):
                    continue
        yield _size_after(recovered.path / old_names.get(name, name), size)


def _size_after(path: Path, position: int) -> int:
    """Return the bytes from a position to a file's end; 0 if all are zeros."""
    return 0 if is_zero_from(path, position) else path.stat().st_size - position


def _checkpoints(log_dir: LogDir) -> Iterator[Prediction]:
    for checkpoint in log_dir.corrupt_checkpoints:
        when = _READ_LATER.get(checkpoint.path.name, "after loading")
        yield Prediction(
            checkpoint.path,
            Outcome.STOPS_THE_START,
            f"it can't be read ({_reason(checkpoint.error)}): the broker takes this log directory "
            f"offline {when}, and stops if it is the only one",
            error=checkpoint.error,
        )


def _reason(error: CorruptCheckpointError | None) -> str:
    return "" if error is None else error.reason


def _predict_skipped(skipped: SkippedName, rules: BrokerRules) -> Iterator[Prediction]:
    """Predict what happens to a directory that is not read as a partition."""
    name = skipped.path.name
    if not skipped.path.is_dir():
        outcome, why = Outcome.IS_NOT_READ, skipped.reason
    elif name == REMOTE_INDEX_CACHE and rules.remote_index_cache_is_skipped:
        outcome, why = Outcome.IS_NOT_READ, "it caches files of remote storage"
    elif skipped.kind is SkippedKind.STRAY and rules.stray_directories_are_known:
        outcome, why = Outcome.IS_NOT_READ, skipped.reason
    elif (
        skipped.kind is SkippedKind.STRAY
        or kind_in_log_dir(name, is_directory=True) == "unexpected"
    ):
        outcome, why = Outcome.STOPS_THE_START, "its name is not that of a partition; move it away"
    elif skipped.kind is SkippedKind.DELETED:
        outcome, why = Outcome.IS_DELETED, "it was being deleted"
    elif skipped.kind is SkippedKind.FUTURE:
        return  # loaded, and reported as a partition
    else:
        outcome, why = Outcome.STOPS_THE_START, skipped.reason
    yield Prediction(skipped.path, outcome, why)


def _duplicates(store: LogStore) -> Iterator[Prediction]:
    for partitions in (store.partitions, store.future_partitions):
        for topic_partition, paths in partitions.duplicates.items():
            first, *others = paths
            where = " and ".join(map(str, others))
            yield Prediction(
                first,
                Outcome.STOPS_THE_START,
                f"duplicate partition, also in {where}; move all but one away",
                topic_partition,
                error=DuplicatePartitionError({topic_partition: paths}),
            )
