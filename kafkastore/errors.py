"""What can go wrong, named by what the caller can do about it.

A torn tail (bytes after the last whole batch) is a value, ``valid_bytes``, and never an error.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any


class KafkaStoreError(Exception):
    """Base of every error this package raises on purpose."""


class CorruptionError(KafkaStoreError):
    """Bytes on disk break their format.

    Parameters
    ----------
    reason : str
        What is wrong: what was wanted, what was found.
    path : path-like, optional
        The file, when known (`formats` never knows it, `segment` adds it).
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
        """Return the same error with the file it came from.

        Parameters
        ----------
        path : path-like
            The file.
        position : int
            Byte position in the file of the first byte the parser was given.
        """
        at = None if self.position is None else position + self.position
        return type(self)(self.reason, path=path, position=at)

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickled, (type(self), self.reason, self.path, self.position)


def _unpickled(
    kind: type[CorruptionError], reason: str, path: str | None, position: int | None
) -> CorruptionError:
    """Rebuild a corruption error in another process (Spark's workers raise them)."""
    return kind(reason, path=path, position=position)


class CorruptIndexError(CorruptionError):
    """An offset, time or transaction index breaks its format; rebuild it from the log."""


class CorruptBatchError(CorruptionError):
    """A record batch breaks its format or its checksum; a broker's recovery truncates here."""


class CorruptCheckpointError(CorruptionError):
    """A checkpoint, snapshot or properties file breaks its format."""


class UnsupportedFormatError(CorruptionError):
    """A magic, a codec or a version that this package does not know."""


class NotALogDirectoryError(KafkaStoreError):
    """The path is neither a log.dirs root nor a partition directory."""


class DuplicatePartitionError(KafkaStoreError):
    """A partition that lies in several directories; a broker does not start on them.

    Parameters
    ----------
    places : mapping of TopicPartition to sequence of path-like
        Where each such partition is.
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
        several = f"the {counts[0]}" if len(counts) == 1 else "each one's directories"
        return f"{which}; a broker does not start so: open one of {several} by itself"


class NotAFileError(KafkaStoreError):
    """A name of a log directory's file that stands for something else: a FIFO, a directory.

    Parameters
    ----------
    path : path-like
        The name.
    kind : str
        What it is.
    """

    def __init__(self, path: str | PathLike[str], kind: str) -> None:
        super().__init__(path, kind)
        self.path, self.kind = path, kind

    def __str__(self) -> str:
        return f"{self.path} is {self.kind} and not a regular file; move it away"


class SegmentGoneError(KafkaStoreError):
    """A segment that was listed is not there any more; list anew (`PartitionLog.refresh`).

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
    """An offset lies outside the 31 bits above the segment's base offset; roll or split."""


class OffsetOutOfRangeError(KafkaStoreError, ValueError):
    """An offset outside [log start offset, log end offset]."""


class OutOfOrderAppendError(KafkaStoreError, ValueError):
    """An offset or a timestamp that goes back."""


class ProducerStateError(KafkaStoreError, ValueError):
    """A batch that does not fit what is known of its producer: a leader refuses it."""


class OutOfOrderSequenceError(ProducerStateError):
    """A batch whose sequence does not follow that of its producer's last one."""


class UnknownProducerIdError(ProducerStateError):
    """A batch in the middle of a producer's sequence, of which nothing is known before."""


class InvalidProducerEpochError(ProducerStateError):
    """A batch of an older producer epoch than the last one seen: its producer was replaced."""


class TransactionCoordinatorFencedError(ProducerStateError):
    """A marker of an older coordinator epoch than the last one seen."""


class InvalidTxnStateError(ProducerStateError):
    """A batch outside of transactions while its producer has one open, or no marker at all."""


class InvalidLeaderEpochError(KafkaStoreError, ValueError):
    """A leader epoch or its start offset is negative."""


class UnsupportedTimestampError(KafkaStoreError, ValueError):
    """A negative timestamp that a broker of this version refuses: error 35, UNSUPPORTED_VERSION."""


class UnsupportedForMessageFormatError(KafkaStoreError, ValueError):
    """A search by time where a topic's message.format.version has no timestamps: error 43."""


class IndexFullError(KafkaStoreError):
    """An index without a free slot; roll the segment."""


class InvalidRecordError(KafkaStoreError, ValueError):
    """Records that a leader does not take; nothing of them is appended."""


class InvalidTimestampError(InvalidRecordError):
    """A timestamp too far from the clock, or of a type that is not a producer's to give."""


class RecordTooLargeError(InvalidRecordError):
    """A batch larger than the topic's max.message.bytes, or than a segment."""


class WriterFailedError(KafkaStoreError):
    """A writer that takes nothing more, after an error of the file system or its close."""


class InvalidConfigError(KafkaStoreError, ValueError):
    """A topic option that Kafka does not have, or a value that it does not take."""


class ChangeRefusedError(KafkaStoreError):
    """A change that is not safe now: a live broker, files that change, an outdated plan."""


class NoUndoPlaceError(ChangeRefusedError):
    """What is replaced cannot be kept where it would be; `undo_dir` names another place.

    Parameters
    ----------
    problem : str
        Why not there.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.problem}: name another place for what is replaced (undo_dir)"


class LogWouldBeCutError(ChangeRefusedError):
    """A log that can't be written before a recovery has cut it, which nobody has asked for.

    Parameters
    ----------
    path : path-like
        The partition directory.
    cuts : mapping of str to int
        Names of the ``.log`` files that bytes would leave, and the first byte of each that would.
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
        others = f" and {len(self.cuts) - 1} other logs" if len(self.cuts) > 1 else ""
        return (
            f"{self.path}: a recovery would cut {name} at byte {position}{others}, so that "
            f"the log ends at offset {self.log_end_offset}; nothing was changed: recover=True cuts "
            "it, and keeps what is cut beside the log directory"
        )


class RemoteStoreError(KafkaStoreError):
    """An object store or a remote file system that does not answer as it should.

    Parameters
    ----------
    url : str
        Of the object, or of what was to be listed.
    reason : str
        What is wrong, and what to do about it.
    start, end : int, optional
        The bytes that were asked for, inclusive and exclusive.
    done : str
        What could not be done: ``read`` or ``written``.
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
    """An object that is another one than was listed, or is gone: open the store anew."""

    def __str__(self) -> str:
        return f"{self.url} {self.reason}: it was replaced or deleted; open the store again"
