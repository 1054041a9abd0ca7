"""PySpark's daemon, silent about workers whose socket Spark has closed first.

Spark takes what it needs and closes: at the end of a session, of a cancelled task, of `limit`. A
worker that is just being started, or about to answer, then fails to write; PySpark's own daemon
prints a traceback of that, amid work that goes well. Spark starts this module where the option
``spark.python.daemon.module`` names it, as `session` does.

Source: Spark 4.2 ``PythonWorkerFactory``, ``pyspark.daemon``.
"""
from __future__ import annotations

import os
import sys
import traceback

from pyspark import daemon


class _Traceback:
    """`traceback`, as PySpark's daemon uses it before a worker exits."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        """Print what is being handled, unless Spark is gone: nobody lacks the answer."""
        if not isinstance(sys.exception(), ConnectionError):
            traceback.print_exc()


if __name__ == "__main__":
    # Else a worker prints the traceback of a failed flush itself, and waits for other work.
    os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "true"
    daemon.traceback = _Traceback  # type: ignore[assignment, attr-defined]
    daemon.manager()
