"""versitygw, an S3 server in its own process over a directory; built with Go at the first use.

usage, from tests/:  python -m remote.s3_server
"""
from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VERSION = "v1.8.0"
WORK = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kafkastore", "s3")
PROGRAM = WORK / f"versitygw-{VERSION}"

ACCESS_KEY, SECRET_KEY = "kafkastore", "a secret of the tests"


def fetch() -> Path:
    """Return the program, and build it if it does not exist yet.

    Raises
    ------
    subprocess.CalledProcessError
        If Go cannot fetch or build it.
    """
    if PROGRAM.exists():
        return PROGRAM
    WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORK, prefix="building-") as building:
        subprocess.run(
            ["go", "install", f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"],
            env=os.environ | {"GOBIN": building},
            check=True,
        )
        Path(building, "versitygw").rename(PROGRAM)
    return PROGRAM


@contextmanager
def serving(directory: Path) -> Iterator[int]:
    """Serve a directory whose subdirectories are buckets; yield the port on 127.0.0.1.

    Parameters
    ----------
    directory : path
        Must be on a file system with extended attributes.
    """
    port = free_port()
    with (directory.parent / "s3-server.log").open("wb") as log:
        process = subprocess.Popen(
            [PROGRAM, "--port", f"127.0.0.1:{port}", "--quiet", "posix", directory],
            env={"ROOT_ACCESS_KEY_ID": ACCESS_KEY, "ROOT_SECRET_ACCESS_KEY": SECRET_KEY},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_for(port, process)
            yield port
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 800
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"{PROGRAM} ended with {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5):
                return
        except urllib.error.HTTPError as error:  # it refuses the anonymous request: it is running
            error.close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"{PROGRAM} does not answer")


if __name__ == "__main__":
    print(fetch())
