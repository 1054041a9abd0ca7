"""The errors of kafkastore, named by what the caller can do about them.

An incomplete batch at the end of a log is a value, ``valid_bytes``, and never an error.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from enum import StrEnum
from os import PathLike
from typing import Any, Self


class KafkaStoreError(Exception):
    """The base of every error that this package raises on purpose."""


class _ArgumentError(Exception):
    """An argument that is refused, with its name as a field."""

    def __init__(self, argument: str, requirement: str, value: object) -> None:
        super().__init__(argument, requirement, value)
        self.argument, self.requirement, self.value = argument, requirement, value

    def __str__(self) -> str:
        return f"{self.argument} must be {self.requirement}, got {self.value!r}"


class ArgumentTypeError(_ArgumentError, TypeError):
    """An argument of another type than the one required.

    Parameters
    ----------
    argument
        The name of the argument.
    requirement
        What the argument must be, such as ``an int``.
    value
        What it is.
    """


class ArgumentValueError(_ArgumentError, ValueError):
    """An argument whose value is not among those allowed.

    Parameters
    ----------
    argument
        The name of the argument.
    requirement
        What the argument must be, such as ``at least 0``.
    value
        What it is.
    """


class FieldValueError(KafkaStoreError, ValueError):
    """A value that a message's field, or this version of the message, cannot hold.

    Parameters
    ----------
    field : str
        The field's name.
    problem : str
        What the value must be, and what it is.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field, self.problem = field, problem

    def __str__(self) -> str:
        return f"{self.field} {self.problem}"


class CorruptionError(KafkaStoreError):
    """Bytes on disk that break their format.

    Parameters
    ----------
    reason : str
        What is wrong: what was expected, and what was found.
    path : path-like, optional
        The file, if known (`formats` does not know it, `segment` adds it).
    position : int, optional
        Byte position in the file at which the format is broken.
    """

    def __init__(
        self,
        reason: str,
        *,
        path: str | PathLike[str] | None = None,
        position: int | None = None,
    ) -> None:
        self.reason, self.path, self.position = reason, path, position
        file = f" in {path}" if path is not None else ""
        byte = f" at byte {position}" if position is not None else ""
        super().__init__(reason + file + byte)

    def located(self, path: str | PathLike[str], position: int = 0) -> CorruptionError:
        """Return the same error with the file in which it occurred.

        Parameters
        ----------
        path : path-like
            The file.
        position : int
            Position in the file of the first byte that the parser received.
        """
        at = None if self.position is None else position + self.position
        return type(self)(self.reason, path=path, position=at)

    def again(self) -> Self:
        """Return a copy, to raise an error that is kept.

        An error gathers a traceback, and with it the frames on the stack, each time it is raised.
        """
        other = copy(self)
        other.__cause__ = copy(self.__cause__)  # says whether the disk failed
        return other

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickled, (type(self), self.reason, self.path, self.position)


def _unpickled(
    kind: type[CorruptionError], reason: str, path: str | None, position: int | None
) -> CorruptionError:
    """Rebuild an error in another process: Spark's workers raise them."""
    return kind(reason, path=path, position=position)


class CorruptIndexError(CorruptionError):
    """An index that breaks its format; rebuild it from the log."""


class CorruptBatchError(CorruptionError):
    """A batch that breaks its format or checksum; recovery truncates here."""


class ChecksumError(CorruptBatchError):
    """A record batch whose stored checksum does not match its bytes."""


class DecompressionError(CorruptBatchError):
    """Compressed records that can't be decompressed."""


class DecompressedSizeError(DecompressionError):
    """Compressed records that are larger than `max_decompressed_bytes`."""


class CorruptCheckpointError(CorruptionError):
    """A checkpoint, snapshot or properties file that breaks its format."""


class UnsupportedFormatError(CorruptionError):
    """A magic, a codec or a version that this package does not support."""


class NotALogDirectoryError(KafkaStoreError):
    """A path that is neither a log directory nor a partition directory."""


class DuplicatePartitionError(KafkaStoreError):
    """A partition that is in several directories; a broker does not start with them.

    Parameters
    ----------
    places : mapping of TopicPartition to sequence of path-like
        The directories of each such partition.
    """

    def __init__(self, places: Mapping[Any, Sequence[str | PathLike[str]]]) -> None:
        super().__init__(places)
        self.places = places

    def __str__(self) -> str:
        counts = ["two" if len(paths) == 2 else len(paths) for paths in self.places.values()]
        which = "; ".join(
            f"partition {topic_partition} is in {count} directories, "
            f"{' and '.join(map(str, paths))}"
            for count, (topic_partition, paths) in zip(counts, self.places.items(), strict=True)
        )
        one = f"one of the {counts[0]} directories" if len(counts) == 1 else "one directory of each"
        return f"{which}; a broker does not start with them: open {one} by itself"


class UnknownTopicError(KafkaStoreError, KeyError):
    """A topic of which a store has no partition.

    Parameters
    ----------
    topic : str
        The name that was asked for.
    nearest : sequence of str
        Similar names of topics in the store.
    paths : sequence of path-like
        The directories that were opened.
    others : sequence of str
        If no name is similar: the first topics in the store.
    """

    def __init__(
        self,
        topic: str,
        nearest: Sequence[str],
        paths: Sequence[str | PathLike[str]],
        others: Sequence[str] = (),
    ) -> None:
        super().__init__(topic, nearest, paths, others)
        self.topic, self.nearest, self.paths, self.others = topic, nearest, paths, others

    def __str__(self) -> str:
        missing = f"no topic {self.topic!r} in {' and '.join(map(str, self.paths))}"
        if self.nearest:
            return f"{missing}; did you mean {' or '.join(self.nearest)}?"
        there = f"among its topics are {', '.join(self.others)}" if self.others else "it has none"
        return f"{missing}; {there}"


class SeveralClustersError(KafkaStoreError):
    """Log directories of several clusters, of which one question is asked.

    Parameters
    ----------
    paths : mapping of str to path-like
        A log directory of each cluster, by its ``cluster.id``.
    """

    def __init__(self, paths: Mapping[str, str | PathLike[str]]) -> None:
        super().__init__(paths)
        self.paths = paths

    def __str__(self) -> str:
        named = ", ".join(f"{path} belongs to cluster {name}" for name, path in self.paths.items())
        return f"{named}; name the log directories of one cluster only"


class NotAFileError(KafkaStoreError):
    """A FIFO, a directory or a device with the name of a file of a log directory.

    Parameters
    ----------
    path : path-like
        Its path.
    kind : str
        What it is, such as ``a FIFO``.
    """

    def __init__(self, path: str | PathLike[str], kind: str) -> None:
        super().__init__(path, kind)
        self.path, self.kind = path, kind

    def __str__(self) -> str:
        return f"{self.path} is {self.kind} and not a regular file; move it away"


class SegmentGoneError(KafkaStoreError):
    """A segment that was deleted after it was listed; call `PartitionLog.refresh`.

    Parameters
    ----------
    path : path-like
        The ``.log`` file.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path} is gone: deleted, truncated or compacted after it was listed"


class OffsetOverflowError(KafkaStoreError):
    """Offsets too large: too far above their segment, or as a sum for all partitions.

    The relative offset in a segment must be at most 2^31 - 1: roll or split it.
    """


class OffsetOutOfRangeError(KafkaStoreError, ValueError):
    """An offset below the log start offset or above the log end offset."""


class OutOfOrderAppendError(KafkaStoreError, ValueError):
    """An offset or a timestamp that goes back."""


class ProducerStateError(KafkaStoreError, ValueError):
    """A batch that does not fit the state of its producer; a leader refuses it."""


class OutOfOrderSequenceError(ProducerStateError):
    """A batch whose sequence does not follow that of its producer's last batch."""


class UnknownProducerIdError(ProducerStateError):
    """A batch in the middle of a sequence of a producer that is not known."""


class InvalidProducerEpochError(ProducerStateError):
    """A batch with an older producer epoch than the last: its producer was replaced."""


class TransactionCoordinatorFencedError(ProducerStateError):
    """A transaction marker with an older coordinator epoch than the last."""


class InvalidTxnStateError(ProducerStateError):
    """A batch in a transaction that is neither transactional nor a marker.

    A plain batch during its producer's transaction, or a control batch that is not a marker.
    """


class InvalidLeaderEpochError(KafkaStoreError, ValueError):
    """A leader epoch or a start offset that is negative."""


class UnsupportedTimestampError(KafkaStoreError, ValueError):
    """A negative timestamp that a broker of this version refuses.

    Kafka's error 35, UNSUPPORTED_VERSION.
    """


class InRemoteSegmentError(KafkaStoreError):
    """A lookup whose answer depends on a segment that is in remote storage.

    Parameters
    ----------
    partition : str
        The partition, such as ``orders-3``.
    target_timestamp : int
        The requested time, ms since 1970, or the special timestamp.
    start_offset, end_offset : int
        The first and the last offset of the segment, in which a broker searches.
    segment_id : str
        Its id, as ``__remote_log_metadata`` has it.
    """

    def __init__(
        self,
        partition: str,
        target_timestamp: int,
        start_offset: int,
        end_offset: int,
        segment_id: str,
    ) -> None:
        super().__init__(partition, target_timestamp, start_offset, end_offset, segment_id)
        self.partition, self.target_timestamp = partition, target_timestamp
        self.start_offset, self.end_offset = start_offset, end_offset
        self.segment_id = segment_id

    def __str__(self) -> str:
        return (
            f"the answer for timestamp {self.target_timestamp} in {self.partition} is in remote "
            f"storage, segment {self.segment_id} with offsets {self.start_offset} to "
            f"{self.end_offset}; query a broker for it"
        )


class UnknownRemoteSegmentsError(KafkaStoreError):
    """A lookup in a tiered log whose remote segments are not known here.

    Parameters
    ----------
    partition : str
        The partition, such as ``orders-3``.
    reason : str
        ``"no-metadata"``: there is no ``__remote_log_metadata``. ``"no-metadata-partition"``: the
        partition of it that has the records is not here. ``"no-configuration"``: only the topic's
        configuration says whether it has remote storage.
    """

    def __init__(self, partition: str, reason: str) -> None:
        super().__init__(partition, reason)
        self.partition, self.reason = partition, reason

    def __str__(self) -> str:
        why = {
            "no-metadata": "there is no __remote_log_metadata next to it; open it in the log "
            "directory of a broker",
            "no-metadata-partition": "the partition of __remote_log_metadata with its records is "
            "not here; open the log directory of a broker that has it",
            "no-configuration": "only the topic's configuration says whether it has remote "
            "storage; name the cluster's metadata",
        }
        return (
            f"the segments of {self.partition} in remote storage are not known: "
            f"{why.get(self.reason, self.reason)}"
        )


class UnsupportedForMessageFormatError(KafkaStoreError, ValueError):
    """A lookup by time in a topic whose messages have no timestamps.

    Kafka's error 43, by the topic's message.format.version.
    """


class RecordValueError(KafkaStoreError, ValueError):
    """A record that does not fit a batch of the given magic and size.

    Parameters
    ----------
    offset : int
        The record's offset.
    problem : str
        Why it does not fit.
    """

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(offset, problem)
        self.offset, self.problem = offset, problem

    def __str__(self) -> str:
        return f"record at offset {self.offset}: {self.problem}"


class IndexFullError(KafkaStoreError):
    """An index without a free slot; roll the segment."""


class InvalidRecordError(KafkaStoreError, ValueError):
    """Records that a leader refuses; none of them is appended."""


class InvalidColumnError(InvalidRecordError):
    """A column of records that is missing, double, or of another type.

    Parameters
    ----------
    column : str
        Its name.
    problem : str
        What is wrong with it.
    """

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(column, problem)
        self.column, self.problem = column, problem

    def __str__(self) -> str:
        return f"column {self.column!r} {self.problem}"


class InvalidTimestampError(InvalidRecordError):
    """A timestamp too far from the clock, or of a type that producers must not use."""


class RecordTooLargeError(InvalidRecordError):
    """A batch larger than the topic's max.message.bytes, or than a segment."""


class WriterFailedError(KafkaStoreError):
    """A writer that was closed, or that ended after an error of the file system."""


class InvalidConfigError(KafkaStoreError, ValueError):
    """A topic configuration that Kafka does not have, or an invalid value of one.

    Parameters
    ----------
    option : str
        Kafka's name of the configuration.
    problem : str
        What it must be, and what it is.
    """

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(option, problem)
        self.option, self.problem = option, problem

    def __str__(self) -> str:
        return f"{self.option} {self.problem}"


class RefusalReason(StrEnum):
    """Why a change is refused."""

    IN_USE = "in-use"
    """A broker or another writer has the directory open, or may have it open."""
    OTHER_JOB = "other-job"
    """Another job of this package works there now."""
    UNFINISHED = "unfinished"
    """An earlier job there, or a copy, was interrupted; finish or undo it first."""
    CHANGED = "changed"
    """A file differs from the one that was planned, applied or listed."""
    KEPT_FILE_LOST = "kept-file-lost"
    """A replaced file in the undo area is missing or corrupt."""
    NOT_A_FILE = "not-a-file"
    """A path is a symbolic link, a directory or a device, and not a regular file."""
    TOO_LARGE = "too-large"
    """A sparse file is larger than any valid one with its name."""
    NOT_A_DIRECTORY = "not-a-directory"
    """A path is missing, or is not a directory."""
    NOT_EMPTY = "not-empty"
    """The destination has files."""
    OVERLAP = "overlap"
    """One directory contains the other."""
    UNSUITABLE_PLACE = "unsuitable-place"
    """A mount point, a log directory, or another place where the files must not be."""
    UNKNOWN_AREA = "unknown-area"
    """A directory is not an undo area, or not that of the log directory next to it."""
    UNTRUSTED_AREA = "untrusted-area"
    """Other users can have written the undo area."""
    FILE_ACCESS = "file-access"
    """A file can't have, or must not get, the planned owners or mode."""
    NO_SPACE = "no-space"
    """The disk is too small."""
    UNSUPPORTED = "unsupported"
    """The file system or the storage can't do what the change needs."""
    NOT_SERVED = "not-served"
    """A broker would not serve the partition: the cluster does not have it there."""
    OTHER_REPLICAS = "other-replicas"
    """Other brokers have the partition too, and may become its leader without these records."""
    OTHER = "other"
    """Another reason; the text has it."""


class ChangeRefusedError(KafkaStoreError):
    """A change that is not safe: a running broker, changed files, an old plan.

    Parameters
    ----------
    problem : str
        What is wrong, and what to do about it.
    reason : RefusalReason
        The kind of problem.
    path : path-like, optional
        The file or directory that has the problem.
    """

    def __init__(
        self,
        problem: str,
        reason: RefusalReason = RefusalReason.OTHER,
        path: str | PathLike[str] | None = None,
    ) -> None:
        super().__init__(problem, reason, path)
        self.problem, self.reason, self.path = problem, reason, path

    def __str__(self) -> str:
        return self.problem


class PlanRefusedError(ChangeRefusedError):
    """A plan that does not match several files; none was changed.

    Parameters
    ----------
    refusals : sequence of ChangeRefusedError
        One for each file; `reason` and `path` are those of the first.
    """

    def __init__(self, refusals: Sequence[ChangeRefusedError]) -> None:
        shown = "; ".join(each.problem for each in refusals[:3])
        more = f"; and {len(refusals) - 3} more" if len(refusals) > 3 else ""
        super().__init__(shown + more, refusals[0].reason, refusals[0].path)
        self.args, self.refusals = (refusals,), refusals


class DirectoryInUseError(ChangeRefusedError):
    """A directory that a broker or another writer has open.

    Parameters
    ----------
    root : path-like
        The directory.
    path : path-like
        The ``.lock`` file.
    holder : int or None
        The process that has locked it; None, or 0 or less, if that is not known.
    """

    def __init__(
        self, root: str | PathLike[str], path: str | PathLike[str], holder: int | None
    ) -> None:
        who = f"process {holder}" if holder and holder > 0 else "another process"
        problem = f"{who} holds {path}: stop the broker that has {root} open"
        super().__init__(problem, RefusalReason.IN_USE, path)
        self.args, self.root, self.holder = (root, path, holder), root, holder


class NoSpaceError(ChangeRefusedError):
    """A disk without enough space for a change.

    Parameters
    ----------
    path : path-like
        A directory on the disk.
    free, needed : int
        The free space and the space needed, in bytes.
    files : str
        What needs the space, such as ``the new files``.
    """

    def __init__(self, path: str | PathLike[str], free: int, needed: int, files: str) -> None:
        problem = f"{path} has {free} bytes left, {files} need {needed}; free some space"
        super().__init__(problem, RefusalReason.NO_SPACE, path)
        self.args = path, free, needed, files
        self.free, self.needed = free, needed


class NoUndoPlaceError(ChangeRefusedError):
    """An undo area that can't be created at its default place; give `undo_dir`.

    Parameters
    ----------
    problem : str
        Why it can't be created there.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem, RefusalReason.UNSUITABLE_PLACE)
        self.args = (problem,)

    def __str__(self) -> str:
        return f"{self.problem}; choose another directory for replaced files with undo_dir"


class LogWouldBeCutError(ChangeRefusedError):
    """A log that recovery would truncate; ``recover=True`` allows that.

    Parameters
    ----------
    path : path-like
        The partition directory.
    cuts : mapping of str to int
        Names of the ``.log`` files to truncate, and the first byte that each would lose.
    log_end_offset : int
        Where the log would end.
    """

    def __init__(
        self, path: str | PathLike[str], cuts: Mapping[str, int], log_end_offset: int
    ) -> None:
        name, position = next(iter(cuts.items()))
        others = f" (and {len(cuts) - 1} more)" if len(cuts) > 1 else ""
        problem = (
            f"{path}: a recovery would truncate {name} at byte {position}{others}, so that "
            f"the log ends at offset {log_end_offset}; nothing was changed: recover=True "
            "truncates it, and keeps the truncated bytes next to the log directory"
        )
        super().__init__(problem, path=path)
        self.args = path, cuts, log_end_offset
        self.cuts, self.log_end_offset = cuts, log_end_offset


class RemoteStoreError(KafkaStoreError):
    """A failure of an object store or a remote file system.

    Parameters
    ----------
    url : str
        The URL of the object or directory.
    reason : str
        What is wrong, and what to do about it.
    start, end : int, optional
        The requested bytes, inclusive and exclusive.
    done : str
        What failed: ``read`` or ``written``.
    """

    def __init__(
        self,
        url: str,
        reason: str,
        start: int | None = None,
        end: int | None = None,
        done: str = "read",
    ) -> None:
        super().__init__(url, reason, start, end, done)
        self.url, self.reason, self.start, self.end, self.done = url, reason, start, end, done

    def __str__(self) -> str:
        what = "" if self.start is None else f", bytes {self.start} to {self.end},"
        return f"{self.url}{what} can't be {self.done}: {self.reason}"


class RemoteObjectChangedError(RemoteStoreError):
    """An object replaced or deleted after it was listed; open the store again."""

    def __str__(self) -> str:
        return f"{self.url} {self.reason}: it was replaced or deleted; open the store again"
