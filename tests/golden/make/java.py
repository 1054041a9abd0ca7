"""Java processes: how they are started, what they print, how they are ended."""
from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

_LOGGING = Path(__file__).parent / "logging"
# Kafka before 2.x reaches into packages that the JDK has closed since.
_OPENED = ("java.lang", "java.nio", "java.util", "java.util.concurrent", "java.net", "sun.nio.ch")
_OPTIONS = (
    *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    *("-Duser.timezone=UTC", "-Djava.net.preferIPv4Stack=true"),
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)


# The compiler is one more short program: without its second compiler it ends sooner.
_COMPILER_OPTIONS = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-J-Xshare:auto")


class BrokerFailure(RuntimeError):
    """A broker, or a Java client of it, did not complete a request."""


# Errors of a broker rather than of these scripts.
BROKER_FAILURES = (BrokerFailure, OSError, EOFError, subprocess.SubprocessError)


def jdk_program(name: str) -> str:
    """Return the path of ``java`` or ``javac``, from ``JAVA_HOME`` if that is set."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=str(Path(home, "bin")) if home else None)
    if found is None:
        raise BrokerFailure(f"no {name} on the PATH; a JDK is needed")
    return found


def java_command(
    class_path: str,
    main_class: str,
    *arguments: str,
    logs_as: Literal["broker", "client"],
    options: Sequence[str] = (),
) -> list[str]:
    """Return the command line of a Java program.

    Parameters
    ----------
    class_path : str
        As `brokers.class_path` gives it.
    main_class : str
        The class that is run.
    *arguments : str
        Its arguments.
    logs_as : str
        A broker logs everything to standard output, a client only warnings, to standard error.
    options : sequence of str
        Further options of the JVM.
    """
    logging = (
        f"-Dlog4j.configuration=file:{_LOGGING / logs_as}.log4j.properties",
        f"-Dlog4j2.configurationFile={_LOGGING / logs_as}.log4j2.properties",
    )
    java = [jdk_program("java"), *_OPTIONS, *logging, *options, "-cp", class_path]
    return [*java, main_class, *arguments]


def compiled(
    version: str, name: str, text: str, class_path: str, work: Path, more: Sequence[Path] = ()
) -> Path:
    """Return a jar with the classes of a program; compile it, once for each of its texts.

    Parameters
    ----------
    version, name : str
        Kafka's version, and the program's class.
    text : str
        The program.
    class_path : str
        What it is compiled against.
    work : path
        Where classes are kept.
    more : sequence of path
        Sources of other classes that it needs.

    Raises
    ------
    subprocess.CalledProcessError
        If it cannot be compiled; the compiler's output is in the notes.
    """
    texts = text.encode() + b"".join(each.read_bytes() for each in more)
    digest = hashlib.sha256(texts).hexdigest()[:12]
    jar = work / "classes" / f"{version}-{name}-{digest}.jar"
    if jar.is_file():
        return jar
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work, prefix="compiling-") as compiling:
        source, classes = Path(compiling) / f"{name}.java", Path(compiling) / "classes"
        source.write_text(text)
        command = [jdk_program("javac"), *_COMPILER_OPTIONS, "-nowarn", "-XDsuppressNotes"]
        try:
            subprocess.run(
                [*command, "-d", str(classes), "-cp", class_path, str(source), *map(str, more)],
                check=True, capture_output=True, text=True,
            )
        except subprocess.CalledProcessError as error:
            error.add_note(error.stderr[-3000:])
            raise
        # An archive of classes may be of jars only.
        new = Path(compiling) / "classes.jar"
        with zipfile.ZipFile(new, "w") as packed:
            for path in sorted(classes.rglob("*.class")):
                packed.write(path, path.relative_to(classes))
        with suppress(FileExistsError):  # another process was faster: archives are of its jar
            os.link(new, jar)
    return jar


class ClassArchive:
    """The classes of a program as one file: with it a broker starts in half the processor time.

    The first that ends by itself writes it. A Java other than that one's ignores it.

    Parameters
    ----------
    program : str
        Version and main class.
    work : path
        Where classes are kept.
    """

    def __init__(self, program: str, work: Path) -> None:
        self._path = work / "classes" / f"{program}.jsa"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._new = self._path.with_name(f"{program}-{secrets.token_hex(8)}.new")

    @property
    def options(self) -> tuple[str, ...]:
        """Options of the JVM."""
        if self._path.exists():
            return (f"-XX:SharedArchiveFile={self._path}", "-Xlog:disable")
        return (f"-XX:ArchiveClassesAtExit={self._new}", "-Xlog:disable")

    def keep(self) -> None:
        """Let the next process use the archive that this one wrote as it ended."""
        if self._new.exists():
            self._new.replace(self._path)


class LoggedProcess:
    """A child process whose output goes to a file.

    Parameters
    ----------
    command : list of str
        Program and arguments.
    log_file : path
        Gets everything it prints; its directory is the working directory.
    """

    def __init__(self, command: list[str], log_file: Path) -> None:
        self.log_file = log_file
        with log_file.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log_file.parent,
            )

    def log(self) -> str:
        """Return its output."""
        return self.log_file.read_text(errors="replace")

    def wait_for(self, pattern: str, seconds: float = 120) -> None:
        """Wait until it has printed something.

        Parameters
        ----------
        pattern : str
            Regular expression.
        seconds : float
            How long to wait.

        Raises
        ------
        BrokerFailure
            If it ends, or does not print that in time.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if re.search(pattern, self.log()):
                return
            if self.process.poll() is not None:
                status = self.process.returncode
                raise BrokerFailure(f"process ended ({status}): {self.log()[-3000:]}")
            time.sleep(0.1)
        raise BrokerFailure(f"no {pattern!r} within {seconds} s: {self.log()[-3000:]}")

    def end(self, by: signal.Signals = signal.SIGTERM, seconds: float = 40) -> None:
        """End the process and wait for that.

        Parameters
        ----------
        by : signal
            SIGTERM for a clean shutdown, SIGKILL for a crash.
        seconds : float
            How long to wait.

        Raises
        ------
        BrokerFailure
            If it did not end by itself in time; it is killed then.
        """
        if self.process.poll() is not None:
            return
        self.process.send_signal(by)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.abandon()
            raise BrokerFailure(f"had to be killed: {self.log()[-2000:]}") from None

    def abandon(self) -> None:
        """Kill the process, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
