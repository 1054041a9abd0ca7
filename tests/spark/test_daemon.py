"""The daemon that starts Spark's Python workers."""
import os
import socket
import struct
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

RESET_AT_CLOSE = struct.pack("ii", 1, 0)


@contextmanager
def started(module, worker, **environment):
    """Start a daemon as Spark does; yield the process and the port it listens to."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, worker],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHON_WORKER_FACTORY_SECRET": "x", **environment},
    )
    with process:
        (port,) = struct.unpack(">i", process.stdout.read(4))
        yield process, port
        process.stdin.close()


@pytest.fixture
def daemon():
    """The daemon of a session's tasks."""
    with started("kafkastore.spark.daemon", "pyspark.worker") as running:
        yield running


def connected(port):
    to_worker = socket.create_connection(("127.0.0.1", port))
    to_worker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
    return to_worker


def wait_for_the_end_of(worker):
    deadline = time.monotonic() + 800
    while time.monotonic() < deadline:
        try:
            os.kill(worker, 0)
        except ProcessLookupError:  # the daemon has waited for it
            return
        time.sleep(0.01)
    raise TimeoutError


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


@pytest.mark.parametrize("first_import", ["kafkastore.spark.source.data_source", "sys"])
def test_a_planning_worker_that_spark_drops_prints_nothing_once_it_has_read(first_import, tmp_path):
    (tmp_path / "pyspark_planner.py").write_text(
        f"import {first_import}\n"
        "def main(infile, outfile):\n"
        "    outfile.write(b'planned')\n"
        "    outfile.flush()\n"
        "    infile.read(1)\n"
        "    outfile.write(b'end')\n"
    )
    with started(
        "pyspark.daemon", "pyspark_planner", PYTHONPATH=str(tmp_path),
        PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE="true",  # as Spark sets it
    ) as (process, port):
        with connected(port) as to_worker:
            (worker,) = struct.unpack(">i", to_worker.recv(4))
            to_worker.sendall(struct.pack(">i", 1) + b"x")
            while not to_worker.recv(64).endswith(b"planned"):
                pass
        wait_for_the_end_of(worker)
        assert ("Error: [Errno" in printed(process)) == (first_import == "sys")
