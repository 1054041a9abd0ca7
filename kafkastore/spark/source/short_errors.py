"""Errors as Spark's users see them: a sentence, without the way it took through this package."""
from __future__ import annotations

from contextlib import ContextDecorator
from types import TracebackType

from kafkastore.errors import KafkaStoreError
from kafkastore.paths import name_url


class short_errors(ContextDecorator):
    """Let errors that are raised within name URLs, and leave their frames and causes out.

    Spark prints a worker's whole traceback with each error, once in its log and once in the
    exception. Errors that are no `KafkaStoreError` keep theirs.
    """

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Shorten what was raised."""
        if error is not None:
            name_url(error)
        if isinstance(error, KafkaStoreError):
            raise error.with_traceback(None) from None
