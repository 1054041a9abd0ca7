"""Plans that put partitions of a disk into the empty logs of new topics.

A new topic has an id of its own, leader epoch 0 and, on the broker that is stopped, an empty log,
or none yet. The plan replaces the files of that log, or creates its directory with the topic id:
the files of the old log are copied, without its topic id and producers, with leader epoch 0 and
owners of the new directory, and indexes are those that recovery would build. The source is not
changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from kafkastore.migration.convert import UNTIMED, ConvertedPartition, Untimed, convert_log
from kafkastore.migration.new_logs import NewLog, NewLogs, open_new_log_dir
from kafkastore.migration.restored_files import RestoredFiles, unrestorable

from kafkastore.arguments import INT32_MAX, check_choice, thread_count, whole_number
from kafkastore.changes.file_state import FileState, read_state
from kafkastore.changes.inspection import raise_refusals
from kafkastore.changes.plan import NOT_EXECUTABLE, FileChange, Inline, Plan
from kafkastore.errors import ChangeRefusedError
from kafkastore.formats.state.checkpoints import pack_offset_checkpoint
from kafkastore.formats.state.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    TopicPartition,
    parse_segment_file,
)
from kafkastore.log.log_dir import LogDir
from kafkastore.paths import refuse_remote
from kafkastore.runner import Progress, Steps, in_threads, threads_within
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES
from kafkastore.store.cluster_metadata import Metadata
from kafkastore.store.log_store import AnyPartition, Paths, open_paths
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.partition_path import PartitionPath, list_unique_paths, open_partition
from kafkastore.store.unread_partition import count_segments

_JOB = "restore"
_WHY_REMOVED = "the restored log has no such file"


@dataclass(frozen=True, slots=True, eq=False)
class RestorePlan(Plan):
    """A plan of `plan_restore`.

    Parameters
    ----------
    elsewhere : tuple of TopicPartition
        The partitions that other brokers have, which are left out; not saved with the plan.
    """

    elsewhere: tuple[TopicPartition, ...] = ()


def plan_restore(
    source: Paths,
    log_dir: str | os.PathLike[str],
    *,
    leader_epoch: int = 0,
    untimed: Untimed = "none",
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    partitions: Collection[AnyPartition] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    metadata: Metadata = None,
    without_topic_ids: bool = False,
) -> RestorePlan:
    """Plan to put partitions into the empty logs of a stopped broker's new topics.

    Segments and the log start are taken from the source; indexes are rebuilt, and messages of old
    formats become record batches. Of producers, only those with an open transaction are kept,
    because their ids belong to others in the new cluster.
    ``partition.metadata`` stays that of the new topic. Files get the owners of the new ones. A
    missing partition directory is created, with the topic id of the new topic, and with the owners
    and the mode of the directories next to it.

    Parameters
    ----------
    source : path-like, LogStore or list of these
        Log directories, or partition directories, best after `plan_repair`.
    log_dir : path-like
        One of ``log.dirs`` of a broker that was stopped after the topics had been created; also
        one that is empty, or was only formatted, as after a disk was replaced.
    leader_epoch : int
        The leader epoch of every batch: at most that of the new topic.
    untimed : str
        The timestamp of messages of format 0: ``none``, or ``mtime`` for the modification time of
        their segment, as LogAppendTime.
    index_interval_bytes : int
        The topics' ``index.interval.bytes``.
    partitions : collection, optional
        Only these, each as ``("orders", 3)`` or ``"orders-3"``. Default: all but those of topics
        whose names begin with ``__``, which a cluster writes itself. Partitions that the cluster
        has on other brokers are left out, unless there are no others.
    threads : int, optional
        Number of partitions read in parallel; fewer partitions share the threads to convert
        messages. By default the number of processors.
    progress : callable, optional
        Called with the number of segments read and the total, one thread at a time.
    metadata : Cluster, path-like, LogStore or list of these, optional
        The new cluster, or where its metadata is: the ids of its topics. Default: the metadata log
        in `log_dir`, or else the ids of the topic's other partitions there.
    without_topic_ids : bool
        Whether partition directories may be created without topic ids in an empty `log_dir`, as for
        a broker with ZooKeeper.

    Returns
    -------
    RestorePlan
        For `kafkastore.apply`; its root is `log_dir`.

    Raises
    ------
    ChangeRefusedError
        If the broker was not stopped, would not serve a partition whose directory is missing, or a
        partition has records, or a segment is corrupt or replaces others; for several partitions
        `PlanRefusedError`.
    DuplicatePartitionError
        If a partition is in several directories of the source.
    KeyError
        If one of `partitions` does not exist.

    Examples
    --------
    >>> plan = plan_restore("restored/kafka-logs", "kafka-logs")  # doctest: +SKIP
    >>> journal = kafkastore.apply(plan)  # doctest: +SKIP
    """
    leader_epoch = whole_number("leader_epoch", leader_epoch, 0, INT32_MAX)
    check_choice("untimed", untimed, UNTIMED)
    threads = thread_count(threads)
    refuse_remote(log_dir)
    new_logs = NewLogs(open_new_log_dir(log_dir), metadata, without_topic_ids)
    root = new_logs.log_dir
    store = open_paths(source)
    if partitions is None:
        partitions = [each for each in store.partitions if not each.topic.startswith("__")]
    chosen = store.chosen(partitions)
    elsewhere = [each for each in chosen if new_logs.is_elsewhere(each)]
    if len(elsewhere) == len(chosen):
        elsewhere = []  # each is refused, with the reason
    partitions = sorted({*chosen} - {*elsewhere})
    step = None if progress is None else Steps(progress, count_segments(store.logs_of(partitions)))
    convert = partial(
        convert_log, codec=None, untimed=untimed, leader_epoch=leader_epoch,
        index_interval_bytes=index_interval_bytes, step=step,
        threads=threads_within(threads, len(partitions)),
    )
    targets: dict[TopicPartition, NewLog] = {}
    refusals: list[ChangeRefusedError] = []
    places = list_unique_paths(store, partitions)
    for place in places:
        try:
            targets[place.topic_partition] = new_logs.find(place.topic_partition)
        except ChangeRefusedError as error:
            refusals.append(error)
    work = partial(
        _restore_place, targets=targets, convert=convert, leader_epoch=leader_epoch,
        index_interval_bytes=index_interval_bytes,
    )
    known = [place for place in places if place.topic_partition in targets]
    changes: list[FileChange] = []
    starts: dict[TopicPartition, int] = {}
    for found in in_threads(threads)(work, known, weigh=lambda place: place.bytes):
        if isinstance(found, ChangeRefusedError):
            refusals.append(found)
        else:
            changes += found.changes
            starts |= found.log_start
    raise_refusals(refusals)
    changes += _log_starts(root, starts)
    created = (each.created for each in targets.values() if each.created is not None)
    return RestorePlan(
        str(root.path), _JOB, tuple(changes), tuple(elsewhere), directories=tuple(created)
    )


class _Restored(NamedTuple):
    """The changes of one partition, and its log start if it is within a segment."""

    changes: list[FileChange]
    log_start: dict[TopicPartition, int]


def _restore_place(
    place: PartitionPath,
    *,
    targets: Mapping[TopicPartition, NewLog],
    convert: Callable[[PartitionLog], ConvertedPartition],
    leader_epoch: int,
    index_interval_bytes: int,
) -> _Restored | ChangeRefusedError:
    """Plan one partition, or say why it can't be restored."""
    log = open_partition(place)
    try:
        converted = convert(log)
        for log_path, reason in converted.unconverted:
            path = os.path.join(place.path, os.path.basename(log_path))
            raise unrestorable(path, reason)
        files = RestoredFiles(log, converted, leader_epoch, index_interval_bytes)
        changes = list(_changes(files, targets[place.topic_partition]))
    except ChangeRefusedError as error:
        return error
    start = log.log_start_offset
    is_within = bool(log.segments) and start > log.segments[0].base_offset
    return _Restored(changes, {place.topic_partition: start} if is_within else {})


def _changes(files: RestoredFiles, target: NewLog) -> Iterator[FileChange]:
    """Yield the changes of a directory: topic id, restored files, removed files."""
    yield from target.topic_id_change()
    name = target.path.name
    restored = set()
    for file in files.list():
        restored.add(file.name)
        before = read_state(target.path / file.name)
        after = target.state_of(file.state)
        is_dated = file.name.endswith(LOG_SUFFIX)  # brokers use no other file's modification time
        if not (after.same_file(before) if is_dated else after.same_bytes(before)):
            why = f"restored from {files.log.path}"
            yield FileChange(f"{name}/{file.name}", before, after, file.content, why)
    for each in [] if target.created is not None else sorted(os.listdir(target.path)):
        is_of_log = each == LEADER_EPOCH_CHECKPOINT or parse_segment_file(each) is not None
        if is_of_log and each not in restored:
            yield FileChange(
                f"{name}/{each}", read_state(target.path / each), None, None, _WHY_REMOVED
            )


def _log_starts(target: LogDir, starts: Mapping[TopicPartition, int]) -> Iterator[FileChange]:
    """Yield the checkpoint's change, if logs begin within their first segments."""
    if not starts:
        return
    checkpoint = target.checkpoint(LOG_START_OFFSET_CHECKPOINT)
    if checkpoint.error is not None:
        raise checkpoint.error
    data = pack_offset_checkpoint({**checkpoint.offsets, **starts})
    before = read_state(checkpoint.path)
    metadata = target.path / META_PROPERTIES
    if before is not None or metadata.exists():
        after = FileState.of_bytes(data, os.stat(metadata if before is None else checkpoint.path))
    else:
        like = os.stat(target.path)
        after = FileState.of_bytes(data, like)
        after = replace(after, mode=after.mode & NOT_EXECUTABLE)
    if not after.same_bytes(before):
        yield FileChange(
            LOG_START_OFFSET_CHECKPOINT, before, after, Inline(data),
            "a restored log begins within its first segment",
        )
