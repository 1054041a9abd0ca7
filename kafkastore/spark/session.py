"""A Spark session with the settings that the data source and the jobs need."""
from __future__ import annotations

import atexit
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from kafkastore.errors import ArgumentValueError, KafkaStoreError
from kafkastore.spark.failures import reason
from kafkastore.spark.java import find_java, java_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONGEST_SOCKET_FOLDER = 60
"""Bytes. A socket's whole path has at most 103 (macOS), its name here is 42."""

GIBIBYTE = 1 << 30

OF_ANY_SESSION = {
    "spark.sql.session.timeZone": "UTC",
    # Off by default, and a data source whose reader accepts filters then fails.
    "spark.sql.python.filterPushdown.enabled": "true",
}


class NoSparkError(KafkaStoreError):
    """PySpark is not installed."""


_MASTER = re.compile(
    r"local(\[(\*|[1-9]\d*)(, *\d+)?\])?|local-cluster\[.+\]|(spark|k8s|sc)://.+|yarn"
)
#: Default ports, by URL scheme of the master.
_PORTS = {"spark": 7077, "sc": 15002}
_SECONDS_TO_ANSWER = 5.0
_MASTERS = "local[*], local[4], spark://host:7077 or sc://host:15002"


class SparkStartError(KafkaStoreError):
    """Spark does not start, or its master cannot be reached."""


def session(
    master: str = "local[*]", app_name: str = "kafkastore", **conf: str | int | bool
) -> SparkSession:
    """Start a Spark session, or return the running one.

    Parameters
    ----------
    master : str
        ``local[*]``, ``local[4]``, ``local-cluster[2,1,1024]``, ``spark://host:7077``, or
        ``sc://host:15002``, a Spark Connect server, whose own Python must have this package.
    app_name : str
        The application's name.
    **conf
        Spark options by their own names; they override those set here:
        ``session(**{"spark.driver.memory": "8g"})``.

    Returns
    -------
    SparkSession
        Its time zone is UTC, its user interface and progress bar are off, it logs errors only, and
        its Python workers run this Python. A local session listens on 127.0.0.1 only. A session
        that was already running keeps its Java, its master and its other static options.

    Raises
    ------
    NoSparkError
        If PySpark is not installed.
    NoJavaError
        If there is no Java that Spark can run on.
    SparkStartError
        If `master` cannot be reached.
    ArgumentValueError
        If `master` is not like those above.

    Notes
    -----
    The environment of this process does not change; only Spark's own processes get the environment
    variables that they need.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as missing:
        raise NoSparkError(
            f"Spark is not installed (no module {missing.name}): pip install 'kafkastore[spark]'"
        ) from missing
    if not _MASTER.fullmatch(master):
        raise ArgumentValueError("master", f"like {_MASTERS}", master)
    if master.startswith("sc://"):
        return _remote_session(master, app_name, conf)
    is_local = master.startswith("local")
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in _options(is_local, {name: _text(value) for name, value in conf.items()}):
        builder = builder.config(name, value)
    with _environment(java_environment(find_java()) | _python_environment(is_local)):
        started = _started(builder, master)
    # A thread that listens to Java prints a traceback when Java ends; callers that wait for Java
    # get an exception anyway.
    listener = getattr(started.sparkContext, "_accumulatorServer", None)
    if listener is not None:
        listener.handle_error = _ignore_error
    return started


def _ignore_error(*_: object) -> None:
    """Ignore an error."""


def _started(builder: SparkSession.Builder, master: str) -> SparkSession:
    """Start a session; raise a `SparkStartError` with one sentence if that fails."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException, PySparkImportError

    try:
        _check_answers(master)
        return builder.getOrCreate()
    except PySparkImportError:
        raise
    except (PySparkException, Py4JError, OSError, ValueError) as error:
        raise SparkStartError(
            f"Spark could not be started at {master!r}: {reason(error)}; "
            f"the master must be like {_MASTERS}"
        ) from error


def _check_answers(master: str) -> None:
    """Raise an `OSError` if nothing listens at the master.

    Spark itself would retry for minutes.
    """
    from pyspark import SparkContext

    scheme, _, places = master.partition("://")
    if scheme not in _PORTS or (scheme == "spark" and SparkContext._active_spark_context):
        return
    failures = []
    for place in places.partition("/")[0].split(","):
        url = urlsplit(f"//{place}")
        host, port = url.hostname or "", url.port or _PORTS[scheme]
        if scheme == "sc" and getproxies() and not proxy_bypass(host):
            return  # gRPC connects through the proxy
        try:
            socket.create_connection((host, port), _SECONDS_TO_ANSWER).close()
        except OSError as error:
            failures.append(error)
        else:
            return
    raise failures[0]


def _remote_session(
    master: str, app_name: str, conf: Mapping[str, str | int | bool]
) -> SparkSession:
    """Connect to a server with the options of clients, and register the format."""
    from pyspark.errors import PySparkImportError
    from pyspark.sql import SparkSession

    from kafkastore.spark.source.registration import register

    builder = SparkSession.builder.remote(master).appName(app_name)
    for name, value in {**OF_ANY_SESSION, **conf}.items():
        builder = builder.config(name, _text(value))
    try:
        connected = _started(builder, master)
    except PySparkImportError as missing:
        raise NoSparkError(f"{missing}: pip install 'pyspark[connect]'") from missing
    register(connected)
    return connected


def _options(is_local: bool, chosen: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the options to set: ours, then the caller's."""
    yield from OF_ANY_SESSION.items()
    yield "spark.python.daemon.module", "kafkastore.spark.daemon"
    yield "spark.ui.enabled", "false"
    yield "spark.ui.showConsoleProgress", "false"
    if is_local:
        yield from _local_options()
    quiet = f'"-Dlog4j2.configurationFile={Path(__file__).with_name("log4j2.properties")}"'
    of_driver = "spark.driver.extraJavaOptions"
    yield from chosen.items()
    yield of_driver, f"{quiet} {chosen.get(of_driver, '')}".strip()


def _local_options() -> Iterator[tuple[str, str]]:
    """Yield the options for a session in which everything runs on this machine."""
    yield "spark.driver.host", "127.0.0.1"
    yield "spark.driver.bindAddress", "127.0.0.1"
    # In local mode all tasks share the driver's heap; Spark's own default is 1 GiB.
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    heap = min(max(memory // 4, GIBIBYTE), 4 * GIBIBYTE)
    yield "spark.driver.memory", f"{heap >> 20}m"
    # Without these a temporary table leaves spark-warehouse/ in the user's directory, and also
    # metastore_db/ and derby.log if Hive's classes are on the path.
    scratch = _scratch_folder()
    yield "spark.sql.catalogImplementation", "in-memory"
    yield "spark.sql.warehouse.dir", str(scratch / "warehouse")
    # TCP between JVM and Python worker loses 40 ms a task to delayed acknowledgements. Only this
    # user may access the folder, because workers trust every process that reaches their socket.
    if len(os.fsencode(scratch)) <= LONGEST_SOCKET_FOLDER:
        yield "spark.python.unix.domain.socket.enabled", "true"
        yield "spark.python.unix.domain.socket.dir", str(scratch)


def _scratch_folder() -> Path:
    """Create a folder for this process only, deleted when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="kafkastore-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _python_environment(is_local: bool) -> dict[str, str]:
    """Return the environment of the workers' Python, and a local driver's address."""
    # Otherwise workers run python3 from PATH, which may lack our packages. On a cluster this path
    # may not exist, so an existing setting is kept there.
    python = sys.executable
    if is_local:
        return {
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
    return {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", python)}


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables in the `with` block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _text(value: str | int | bool) -> str:
    """Format an option as Spark does: ``true``, not ``True``."""
    return str(value).lower() if isinstance(value, bool) else str(value)
