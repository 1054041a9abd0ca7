"""Serve directories as a read-only Kafka cluster of one node."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kafkastore.arguments import whole_number
from kafkastore.errors import ArgumentValueError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.damage import OnCorrupt
from kafkastore.lookup.rules import CORRECT, broker_rules
from kafkastore.segment.open_file_limit import close_all_logs
from kafkastore.server.authentication import read_users
from kafkastore.server.catalog import Catalog, Node
from kafkastore.server.client import DEFAULT_LIMITS, ClientLimits
from kafkastore.server.connections import Connections
from kafkastore.server.groups.state_directory import StateDirectory
from kafkastore.server.log_metrics import LogMetrics
from kafkastore.server.metrics import ServerMetrics, metrics_endpoint
from kafkastore.server.node import ServedNode
from kafkastore.server.served_log import Reading, check_served
from kafkastore.store.cluster_metadata import Metadata
from kafkastore.store.log_store import AnyPartition, AnyPath, LogStore, Paths, open_store

FREE_PORT = "127.0.0.1:0"
Tls = tuple[AnyPath, AnyPath]
_ALL_ADDRESSES = ("0.0.0.0", "::")
ResultT = TypeVar("ResultT")


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(name: str, text: str) -> Address:
    """Parse ``host:port``; `name` is that of the argument, for the error."""
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isascii() and port.isdigit() and int(port) < 2**16):
        raise ArgumentValueError(name, "host:port", text)
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def parse_addresses(listen: str, advertise: str | None) -> tuple[Address, Address | None]:
    """Parse where to listen and where clients connect, which needs one address."""
    address = parse_address("listen", listen)
    known = None if advertise is None else parse_address("advertise", advertise)
    advertised = known or address
    if advertised.host in _ALL_ADDRESSES:
        raise ArgumentValueError("advertise", "an address that clients reach", str(advertised))
    return address, known


class ServedCluster:
    """A running server.

    Parameters
    ----------
    bootstrap_servers : str
        What clients take as ``bootstrap.servers``.
    catalog : Catalog
        What is served.
    metrics : str or None
        Where Prometheus scrapes it, ``host:port``; None if it was not asked for.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        catalog: Catalog,
        metrics: str | None,
        thread: _LoopThread,
        reload: Callable[[], None],
    ) -> None:
        self.bootstrap_servers, self.catalog, self.metrics = bootstrap_servers, catalog, metrics
        self._thread, self._reload = thread, reload

    def reload(self) -> None:
        """List the directories and read the certificate and the users file again.

        Raises
        ------
        KafkaStoreError or OSError
            If one of them can't be read; it stays as it was, and so do those after it.
        """
        self._reload()

    def drain(self) -> Future[None]:
        """Stop accepting clients; finish responses under way, for at most 10 s.

        Returns
        -------
        Future
            It is done when no client is left or the time is over.
        """
        return self._thread.run_in_loop(self._thread.connections.drain())


@contextmanager
def serve(
    path: Paths,
    partitions: Iterable[AnyPartition] | None = None,
    *,
    listen: str = FREE_PORT,
    advertise: str | None = None,
    rules: str = CORRECT,
    metadata: Metadata = None,
    with_groups: bool = True,
    tls: Tls | None = None,
    users: AnyPath | None = None,
    state_dir: AnyPath | None = None,
    max_connections: int = DEFAULT_LIMITS.connections,
    metrics: str | None = None,
    on_corrupt: OnCorrupt = "raise",
    as_v2: bool = False,
) -> Iterator[ServedCluster]:
    """Serve directories to Kafka clients, as a cluster of one node, in a block.

    Nothing in the directories is changed. Consumers may join groups and commit; both live in memory
    and are gone afterwards, unless a `state_dir` keeps the commits. Directories that grow are
    followed.

    Parameters
    ----------
    path : path-like, sequence of path-like, or LogStore
        The log directories or partition directories.
    partitions : iterable, optional
        Each as ``("orders", 3)`` or ``"orders-3"``. Default: all.
    listen : str
        Where to accept clients, ``host:port``; port 0 is a free one.
    advertise : str, optional
        Where clients reach it, ``host:port``, if that is another address. Required to listen on
        all addresses, such as ``0.0.0.0:9092``.
    rules : str
        For offsets by time: ``correct``, a version of Kafka, ``kip-33`` or ``legacy``.
    metadata : path-like, optional
        Where the cluster's metadata is, for topic ids and leader epochs. Default: the directories,
        if they have it.
    with_groups : bool
        Whether consumers may join groups and commit.
    tls : pair of path-like, optional
        The files of a certificate chain and of its private key, in PEM: clients then connect by
        TLS.
    users : path-like, optional
        A file with a line ``name:password`` for each user: clients then authenticate, by SASL
        PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
    state_dir : path-like, optional
        A directory outside of the served ones that keeps what groups commit. It is created if
        missing; its parent must exist.
    max_connections : int
        More connections are closed at once.
    metrics : str, optional
        Where Prometheus scrapes metrics, ``host:port``.
    on_corrupt : "raise" or "skip"
        At a corrupt batch, give consumers the error CORRUPT_MESSAGE; or continue at the next valid
        batch. `ServedCluster.catalog` has what was `skipped`.
    as_v2 : bool
        Whether messages of formats 0 and 1 are sent as record batches (magic 2).

    Yields
    ------
    ServedCluster

    Raises
    ------
    ArgumentValueError
        If an address is not ``host:port``, or the advertised one stands for all addresses; the
        certificate can't be used; or `on_corrupt` is another choice.
    UsersFileError
        If the users file can't be used.
    StateDirectoryError
        If `state_dir` is in or around a served directory, is not a state, or that of another
        cluster.
    DirectoryInUseError
        If another server uses `state_dir`.
    MissingExtraError
        If the metrics need a library that is not installed.
    OSError
        If the host is not known, or the address can't be used.
    UnknownRulesError
        If the rules are unknown.
    NotALogDirectoryError
        If a path is not a log directory.
    KeyError
        If a partition is not in the directories.

    Examples
    --------
    >>> with serve("kafka-logs") as cluster:    # doctest: +SKIP
    ...     consumer = KafkaConsumer("orders", bootstrap_servers=cluster.bootstrap_servers)
    """
    def list_partitions() -> tuple[LogStore, list[TopicPartition]]:
        store = open_store(path)
        return store, store.chosen(partitions)

    with serve_catalog(
        Catalog(list_partitions, metadata, Reading(check_served(on_corrupt), as_v2)),
        listen=listen, advertise=advertise, rules=rules, with_groups=with_groups, tls=tls,
        users=users, metrics=metrics, state_dir=state_dir,
        limits=ClientLimits(whole_number("max_connections", max_connections, 1)),
    ) as served:
        yield served


@contextmanager
def serve_catalog(
    catalog: Catalog,
    *,
    listen: str,
    advertise: str | None = None,
    rules: str = CORRECT,
    with_groups: bool = True,
    tls: Tls | None = None,
    users: AnyPath | None = None,
    state_dir: AnyPath | None = None,
    limits: ClientLimits = DEFAULT_LIMITS,
    metrics: str | None = None,
) -> Iterator[ServedCluster]:
    """Serve what a catalog lists, while the block runs; see `serve`."""
    broker_rules(rules)
    address, known = parse_addresses(listen, advertise)
    scraped = None if metrics is None else parse_address("metrics", metrics)
    context = None if tls is None else _tls_context(*tls)
    known_users = None if users is None else read_users(Path(users))
    counters = None if scraped is None else ServerMetrics()
    with ExitStack() as stack:
        sock = stack.enter_context(_bound(address))
        state = stack.enter_context(_opened(state_dir, catalog))
        at = known or Address(address.host, sock.getsockname()[1])
        served_node = ServedNode(
            catalog,
            Node(catalog.node_id, at.host, at.port),
            rules,
            with_groups=with_groups, users=known_users, metrics=counters,
            state=state,
        )
        thread = _LoopThread(Connections(served_node, limits, counters), sock, context)
        thread.start()
        stack.callback(close_all_logs)
        stack.callback(thread.end)
        metrics_at = None
        if scraped is not None and counters is not None:
            counters.watch_connections(thread.connections.__len__)
            counters.registry.register(LogMetrics(
                catalog, lambda: thread.run_in_loop(served_node.positions()).result()
            ))
            with _naming(scraped):
                port = stack.enter_context(metrics_endpoint(counters, *scraped))
            metrics_at = str(Address(scraped.host, port))

        def reload() -> None:
            catalog.list_again()
            if context is not None and tls is not None:
                _load_certificate(context, *tls)
            if known_users is not None and users is not None:
                known_users.replace(read_users(Path(users)))
            served_node.reload()

        yield ServedCluster(str(at), catalog, metrics_at, thread, reload)


@contextmanager
def _opened(state_dir: AnyPath | None, catalog: Catalog) -> Iterator[StateDirectory | None]:
    """Open the state of a server, if it has one, and close it."""
    if state_dir is None:
        yield None
        return
    state = StateDirectory(Path(state_dir), catalog.store, catalog.cluster_id)
    try:
        yield state
    finally:
        state.close()


def _tls_context(certificate: AnyPath, key: AnyPath) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load_certificate(context, certificate, key)
    return context


def _load_certificate(context: ssl.SSLContext, certificate: AnyPath, key: AnyPath) -> None:
    """Present a certificate to the clients that connect from now on."""
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        problem = f"a certificate and its key in PEM ({error})"
        raise ArgumentValueError("tls", problem, f"{certificate}, {key}") from error


def _bound(listen: Address) -> socket.socket:
    """Return a socket that is bound to an address."""
    with _naming(listen):
        family, _, _, _, where = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM
        )[0]
        return socket.create_server(where[:2], family=family)


@contextmanager
def _naming(address: Address) -> Iterator[None]:
    """Name the address in the error of one that can't be used."""
    try:
        yield
    except socket.gaierror as error:
        raise OSError(error.errno, error.strerror, str(address)) from error
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), str(address)) from error


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report what no connection caught."""
    # asyncio gives a connection that is reset while it sends a file its end twice.
    if not isinstance(context.get("exception"), asyncio.InvalidStateError):
        loop.default_exception_handler(context)


class _LoopThread(threading.Thread):
    """An event loop with the connections, in a thread."""

    def __init__(
        self, connections: Connections, sock: socket.socket, tls: ssl.SSLContext | None
    ) -> None:
        super().__init__(name="kafkastore-serve", daemon=True)
        self.connections = connections
        self._sock, self._tls = sock, tls
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()

    def start(self) -> None:
        super().start()
        self._ready.wait()

    def run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(_report)
        try:
            self._loop.run_until_complete(self.connections.listen(self._sock, self._tls))
            self._ready.set()
            self._loop.run_forever()
            self._loop.run_until_complete(self.connections.close())
        finally:
            self._ready.set()
            self._loop.close()

    def run_in_loop(self, coroutine: Coroutine[Any, Any, ResultT]) -> Future[ResultT]:
        """Run a coroutine in the thread's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def end(self) -> None:
        """End the connections, and wait for the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self.join()
