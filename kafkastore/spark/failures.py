"""Errors of Java, gRPC and Spark: their causes and their reason, found by type."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

#: The Java classes of the error that Spark gets when the process of a Python worker ends.
_CLOSED_SOCKET = ("java.io.EOFException", "java.net.SocketException")
_SPARK_EXCEPTION = "org.apache.spark.SparkException"
#: Spark's condition for an error that a Python worker raised.
_PYTHON_EXCEPTION = "PYTHON_EXCEPTION"


def java_causes(error: BaseException) -> Iterator[Any]:
    """Yield the Java exception of an error and its causes, if it has one."""
    exception = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while exception is not None:
        yield exception
        exception = exception.getCause()


def is_worker_lost(error: BaseException) -> bool:
    """Return whether a Python worker ended without an answer; False on Spark Connect."""
    classes = [each.getClass().getName() for each in java_causes(error)]
    return classes[-1:] != [] and classes[-1] in _CLOSED_SOCKET and _SPARK_EXCEPTION in classes


def reason(error: BaseException) -> str:
    """Return one line, without a full stop, that says why Spark failed.

    It is the message of the innermost cause that has one.
    """
    from pyspark.errors import PySparkException

    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    messages = [each.getMessage() for each in java_causes(error)] or [_details(error)]
    if not any(messages) and isinstance(error, PySparkException):
        messages = [error.getMessage()]
    lines = [*filter(None, map(str.strip, _last(messages, str(error)).splitlines()))]
    if not lines:
        return type(error).__name__
    if isinstance(error, PySparkException) and error.getCondition() == _PYTHON_EXCEPTION:
        lines = _traceback(error) or lines
        return lines[-1].rstrip(".")
    return lines[0].rstrip(".")


def _last(messages: list[str | None], default: str) -> str:
    """Return the last message that is not empty."""
    return next(filter(None, reversed(messages)), default)


def _details(error: BaseException | None) -> str | None:
    """Return the details of the gRPC error that an error was raised for."""
    while error is not None:
        details = getattr(error, "details", None)
        if callable(details):
            return str(details())
        error = error.__cause__ or error.__context__
    return None


def _traceback(error: Any) -> list[str]:
    """Return the lines of a Python worker's traceback."""
    found = (error.getMessageParameters() or {}).get("traceback") or ""
    return [line.strip() for line in found.splitlines() if line.strip()]
