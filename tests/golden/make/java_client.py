"""The Java clients: producers, consumers and admin clients of a chosen Kafka version.

A client is a long-lived process (`Driver.java`, and `OldDriver.java` for versions before 0.10.2)
that reads one JSON command per line and prints one JSON answer per line. `AdminDriver.java` does
what only an administrator of a KRaft cluster does, `GroupDriver.java` has members of groups, and
`Conversation.java` is their common loop.
"""
from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from .brokers import WORK, class_path
from .java import BrokerFailure, ClassArchive, compiled, java_command

# Spoken to by the producer and the SimpleConsumer of the broker's own version.
OLD_CLIENTS = ("0.8.2.2", "0.9.0.1", "0.10.0.1")
# Spoken to with a client of another version: their own has no admin client that does all this.
CLIENT_OF = {"0.10.2.2": "2.4.0", "0.11.0.3": "2.4.0"}


def client_version(broker_version: str) -> str:
    """Return the version of the client that speaks to a broker."""
    return CLIENT_OF.get(broker_version, broker_version)


class JavaClient:
    """The client process of one version.

    Parameters
    ----------
    version : str
        Version of the client's jars.
    work : path
        Where jars and classes are kept.
    driver : str, optional
        The program, a ``.java`` file next to this one; by default the version's.
    more : sequence of path
        Goes before the jars of the version.

    Attributes
    ----------
    is_old : bool
        It can only produce and consume; topics are made by the broker's command line tool.
    """

    def __init__(
        self,
        version: str,
        work: Path = WORK,
        driver: str | None = None,
        more: Sequence[Path] = (),
    ) -> None:
        self.version = version
        self.is_old = version in OLD_CLIENTS
        name = driver or ("OldDriver" if self.is_old else "Driver")
        sources = Path(__file__).parent
        text = (sources / f"{name}.java").read_text()
        jar = compiled(
            version, name, text, class_path(version, work, *more), work,
            [sources / "Conversation.java"],
        )
        self._archive = ClassArchive(jar.stem, work)
        command = java_command(
            class_path(version, work, jar, *more),
            name,
            logs_as="client",
            options=self._archive.options,
        )
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )

    def __call__(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Run a command.

        Parameters
        ----------
        operation : str
            A case of ``handle`` in the driver.
        **arguments
            What it takes.

        Returns
        -------
        dict
            Its answer.

        Raises
        ------
        BrokerFailure
            If it threw an exception or has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(arguments | {"op": operation}).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise BrokerFailure(f"client ended: {self._errors.read()[-3000:].decode()}")
        answer: dict[str, Any] = json.loads(line)
        if "exception" in answer:
            raise BrokerFailure(answer["exception"])
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
            self._archive.keep()
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


class JavaClients:
    """One client process per version, started on first use.

    Parameters
    ----------
    work : path
        Where jars and classes are kept.
    """

    def __init__(self, work: Path = WORK) -> None:
        self.work = work
        self._running: dict[str, JavaClient] = {}

    def of(self, broker_version: str) -> JavaClient:
        """Return the client that speaks to a broker of this version."""
        version = client_version(broker_version)
        if version not in self._running:
            self._running[version] = JavaClient(version, self.work)
        return self._running[version]

    def close(self) -> None:
        """End all processes; the next question starts new ones."""
        for client in self._running.values():
            client.close()
        self._running.clear()

    def __enter__(self) -> JavaClients:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End all processes."""
        self.close()
