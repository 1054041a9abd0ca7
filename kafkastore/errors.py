"""What can go wrong, named by what the caller can do about it.

A torn tail (bytes after the last whole batch) is a value, ``valid_bytes``, and never an error.
"""
from __future__ import annotations

from os import PathLike


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


class OffsetOverflowError(KafkaStoreError):
    """An offset lies outside the 31 bits above the segment's base offset; roll or split."""


class OffsetOutOfRangeError(KafkaStoreError, ValueError):
    """An offset outside [log start offset, log end offset]."""


class OutOfOrderAppendError(KafkaStoreError, ValueError):
    """An offset or a timestamp that goes back."""


class IndexFullError(KafkaStoreError):
    """An index without a free slot; roll the segment."""


class ChangeRefusedError(KafkaStoreError):
    """A change that is not safe now: a live broker, files that change, an outdated plan."""
