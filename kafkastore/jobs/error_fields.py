"""The fields of an error, for results that are saved as JSON or compared."""
from __future__ import annotations

import os
from typing import NamedTuple, Self

from kafkastore.errors import CorruptionError
from kafkastore.paths import describe_error


class ErrorFields(NamedTuple):
    """An error as values.

    `reason` is what is wrong with the file `path`, or None if only `text` has it.
    """

    type: str
    text: str
    path: str | None = None
    position: int | None = None
    reason: str | None = None

    @classmethod
    def of(cls, error: Exception) -> Self:
        """Return the fields of an error of this package or of the operating system."""
        name, text = type(error).__name__, describe_error(error)
        if isinstance(error, CorruptionError):
            path = None if error.path is None else str(error.path)
            return cls(name, text, path, error.position, error.reason)
        if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
            return cls(name, text, os.fsdecode(error.filename), None, error.strerror.lower())
        path = getattr(error, "path", None)
        return cls(name, text, None if path is None else str(path))

    def __str__(self) -> str:
        """Return the sentence for people, with the path as it is now."""
        if self.reason is None or self.path is None:
            return self.text
        where = "" if self.position is None else f" at byte {self.position}"
        return f"{self.path}: {self.reason}{where}"
