"""PySpark's daemon without tracebacks of workers whose socket Spark closed.

Spark reads what it needs and then closes the socket: at the end of a session, of a cancelled task,
of `limit`. A worker that is starting, or about to answer, then fails to write, and PySpark's own
daemon prints a traceback although nothing went wrong. Spark starts this module because `session`
names it in the option ``spark.python.daemon.module``. But planning always has PySpark's own daemon,
and Spark closes the socket of a worker that has had no work for a minute.

Source: Spark 4.2 ``PythonWorkerFactory``, ``pyspark.daemon``.
"""
from __future__ import annotations

import os
import sys
import traceback
from typing import Any

from pyspark import daemon


class _Traceback:
    """The part of `traceback` that PySpark's daemon calls before a worker exits."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        """Print the current exception, unless Spark closed the connection."""
        if not isinstance(sys.exception(), ConnectionError):
            traceback.print_exc()


def hide_closed_connections() -> None:
    """Let a worker of PySpark's own daemon end without a traceback too."""
    program: Any = sys.modules["__main__"]
    if getattr(program.__spec__, "name", None) == daemon.__name__:
        program.traceback = _Traceback


if __name__ == "__main__":
    # Otherwise a worker prints the traceback of a failed flush itself, and waits for more work.
    os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "true"
    daemon.traceback = _Traceback  # type: ignore[assignment, attr-defined]
    daemon.manager()
