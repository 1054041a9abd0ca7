"""The daemon that starts Spark's Python workers."""
import os
import socket
import struct
import subprocess
import sys

import pytest

RESET_AT_CLOSE = struct.pack("ii", 1, 0)


@pytest.fixture
def daemon():
    """The daemon as Spark starts it, and the port it listens to."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kafkastore.spark.daemon", "pyspark.worker"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHON_WORKER_FACTORY_SECRET": "x"},
    )
    with process:
        (port,) = struct.unpack(">i", process.stdout.read(4))
        yield process, port
        process.stdin.close()


def connected(port):
    to_worker = socket.create_connection(("127.0.0.1", port))
    to_worker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
    return to_worker


def printed(process):
    """Return what the daemon and its workers print until all have ended."""
    process.stdin.close()
    return process.stderr.read().decode()


def test_a_worker_that_spark_drops_before_it_is_started_prints_nothing(daemon):
    process, port = daemon
    for _ in range(3):
        connected(port).close()
    with connected(port) as last:  # the others have their turn before it
        assert len(last.recv(4)) == 4
    assert printed(process) == ""


def test_a_worker_that_spark_drops_before_it_answers_prints_nothing(daemon):
    process, port = daemon
    with connected(port) as to_worker:
        to_worker.recv(4)
        to_worker.sendall(struct.pack(">i", 1) + b"x")
        assert to_worker.recv(6)
    assert printed(process) == ""
