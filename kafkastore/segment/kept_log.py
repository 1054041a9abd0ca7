"""A log that stays open for those who read from it all the time."""
from __future__ import annotations

from collections.abc import Callable

from kafkastore.segment import open_file_limit
from kafkastore.segment.log_file import LogFile


class KeptLog:
    """A ``.log`` file that stays open between its uses; threads may share it.

    `open_log` opens it, again when it was closed because it was not used for a while.
    """

    def __init__(self, open_log: Callable[[], LogFile]) -> None:
        self._open_log = open_log
        self._log: LogFile | None = None
        self._was_used = False

    def copy(self) -> LogFile:
        """Return the log, with a descriptor that the caller closes."""
        log = self._log
        if log is None:
            log = self._log = self._open_log()
            open_file_limit.register(self)
        self._was_used = True
        return log.copy()    # also if the log is closed meanwhile: that waits for this reference

    def clear_used(self) -> bool:
        """Return whether the log was used since the last call."""
        was_used, self._was_used = self._was_used, False
        return was_used

    def close_log(self) -> None:
        """Close the log; the copies stay open."""
        self._log = None
