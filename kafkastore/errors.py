"""The errors of kafkastore, named by what the caller can do about them.

A torn tail (bytes after the last complete batch) is a value, ``valid_bytes``, and never an error.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any


class KafkaStoreError(Exception):
    """The base of every error that this package raises on purpose."""


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

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickled, (type(self), self.reason, self.path, self.position)


def _unpickled(
    kind: type[CorruptionError], reason: str, path: str | None, position: int | None
) -> CorruptionError:
    """Rebuild an error in another process: Spark's workers raise them."""
    return kind(reason, path=path, position=position)


class CorruptIndexError(CorruptionError):
    """An offset, time or transaction index that breaks its format; rebuild it from the log."""


class CorruptBatchError(CorruptionError):
    """A record batch that breaks its format or checksum; a broker's recovery truncates here."""


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
            f"partition {topic_partition} is in {count} places, {' and '.join(map(str, paths))}"
            for count, (topic_partition, paths) in zip(counts, self.places.items(), strict=True)
        )
        one = f"one of the {counts[0]} directories" if len(counts) == 1 else "one directory of each"
        return f"{which}; a broker does not start with them: open {one} by itself"


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
    """An offset more than 2^31 - 1 above the segment's base offset; roll or split the segment."""


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
    """A plain batch during its producer's transaction, or a control batch that is not a marker."""


class InvalidLeaderEpochError(KafkaStoreError, ValueError):
    """A leader epoch or a start offset that is negative."""


class UnsupportedTimestampError(KafkaStoreError, ValueError):
    """A negative timestamp that a broker of this version refuses: error 35, UNSUPPORTED_VERSION."""


class UnsupportedForMessageFormatError(KafkaStoreError, ValueError):
    """A lookup by time in a topic whose message.format.version has no timestamps: error 43."""


class IndexFullError(KafkaStoreError):
    """An index without a free slot; roll the segment."""


class InvalidRecordError(KafkaStoreError, ValueError):
    """Records that a leader refuses; none of them is appended."""


class InvalidTimestampError(InvalidRecordError):
    """A timestamp too far from the clock, or of a type that producers must not use."""


class RecordTooLargeError(InvalidRecordError):
    """A batch larger than the topic's max.message.bytes, or than a segment."""


class WriterFailedError(KafkaStoreError):
    """A writer that was closed, or that ended after an error of the file system."""


class InvalidConfigError(KafkaStoreError, ValueError):
    """A topic configuration that Kafka does not have, or an invalid value of one."""


class ChangeRefusedError(KafkaStoreError):
    """A change that is not safe: a running broker, files that change, an outdated plan."""


class NoUndoPlaceError(ChangeRefusedError):
    """An undo area that can't be created at its default place; give `undo_dir`.

    Parameters
    ----------
    problem : str
        Why it can't be created there.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.problem}; choose another directory for replaced files with undo_dir"


class LogWouldBeCutError(ChangeRefusedError):
    """A log that a recovery would truncate; opening it for writing needs ``recover=True``.

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
        super().__init__(path, cuts, log_end_offset)
        self.path, self.cuts, self.log_end_offset = path, cuts, log_end_offset

    def __str__(self) -> str:
        name, position = next(iter(self.cuts.items()))
        others = f" (and {len(self.cuts) - 1} more)" if len(self.cuts) > 1 else ""
        return (
            f"{self.path}: a recovery would truncate {name} at byte {position}{others}, so that "
            f"the log ends at offset {self.log_end_offset}; nothing was changed: recover=True "
            "truncates it, and keeps the truncated bytes next to the log directory"
        )


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
    """An object that was replaced or deleted after it was listed; open the store again."""

    def __str__(self) -> str:
        return f"{self.url} {self.reason}: it was replaced or deleted; open the store again"
