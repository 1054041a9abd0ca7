"""PySpark's daemon, with workers that end without a word when Spark closes their pipe first.

When a session stops, a worker may still be about to answer; PySpark's own daemon then prints a
traceback about a broken pipe, at the end of work that went well.  Spark starts this module where
the option ``spark.python.daemon.module`` names it, as `session` does.

Source: Spark 4.2 ``PythonWorkerFactory``, ``pyspark.daemon``.
"""
from __future__ import annotations

import os
import socket

from pyspark import daemon

_worker = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Serve one worker's socket; the answer is PySpark's."""
    try:
        return _worker(sock, authenticated)
    except BrokenPipeError:
        os._exit(1)  # this process is a fork of the daemon, for this worker alone


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
