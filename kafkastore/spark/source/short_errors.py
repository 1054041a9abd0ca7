"""Errors for Spark's users: one sentence without this package's traceback."""
from __future__ import annotations

import os
from contextlib import ContextDecorator
from types import TracebackType

from kafkastore.errors import KafkaStoreError
from kafkastore.paths import name_url

#: Set in a worker if its session wants short tracebacks, as it does by default.
SIMPLIFIED = "SPARK_SIMPLIFIED_TRACEBACK"


class short_errors(ContextDecorator):
    """Report a `KafkaStoreError` raised in the block as one sentence.

    Spark prints a worker's whole traceback twice. Other errors keep theirs; errors of the operating
    system name the URL instead of a local file. The worker ends with the error.

    Source: Spark 4.3 ``pyspark.util.handle_worker_exception``.
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
            if SIMPLIFIED in os.environ:
                os.environ["SPARK_HIDE_TRACEBACK"] = "1"
            raise error.with_traceback(None) from None
