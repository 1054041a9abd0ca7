"""Errors for Spark's users: one sentence without this package's traceback."""
from __future__ import annotations

from contextlib import ContextDecorator
from types import TracebackType

from kafkastore.errors import KafkaStoreError
from kafkastore.paths import name_url


class short_errors(ContextDecorator):
    """Remove the frames and causes of a `KafkaStoreError` raised in the block.

    Spark prints a worker's whole traceback twice. Other errors keep theirs; errors of the operating
    system name the URL instead of a local file.
    """

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Shorten the error."""
        if error is not None:
            name_url(error)
        if isinstance(error, KafkaStoreError):
            raise error.with_traceback(None) from None
