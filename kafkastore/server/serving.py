"""Serve directories as a read-only Kafka cluster of one node."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kafkastore.errors import ArgumentValueError
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.lookup.rules import CORRECT, broker_rules
from kafkastore.server.authentication import read_users
from kafkastore.server.catalog import Catalog, Node
from kafkastore.server.connections import Connections
from kafkastore.server.groups.state_directory import StateDirectory
from kafkastore.server.node import ServedNode
from kafkastore.store.cluster_metadata import Metadata
from kafkastore.store.log_store import AnyPartition, AnyPath, LogStore, Paths, open_paths

FREE_PORT = "127.0.0.1:0"
Tls = tuple[AnyPath, AnyPath]
_ALL_ADDRESSES = ("0.0.0.0", "::")


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


class ServedCluster(NamedTuple):
    """A running server.

    Parameters
    ----------
    bootstrap_servers : str
        What clients take as ``bootstrap.servers``.
    catalog : Catalog
        What is served.
    """

    bootstrap_servers: str
    catalog: Catalog


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

    Yields
    ------
    ServedCluster

    Raises
    ------
    ArgumentValueError
        If an address is not ``host:port``, or the advertised one stands for all addresses; or
        the certificate can't be used.
    UsersFileError
        If the users file can't be used.
    StateDirectoryError
        If `state_dir` is in or around a served directory, is not a state, or that of another
        cluster.
    DirectoryInUseError
        If another server uses `state_dir`.
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
        store = open_paths(path)
        return store, store.chosen(partitions)

    with serve_catalog(
        Catalog(list_partitions, metadata),
        listen=listen, advertise=advertise, rules=rules, with_groups=with_groups, tls=tls,
        users=users, state_dir=state_dir,
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
) -> Iterator[ServedCluster]:
    """Serve what a catalog lists, while the block runs; see `serve`."""
    broker_rules(rules)
    address, known = parse_addresses(listen, advertise)
    context = None if tls is None else _tls_context(*tls)
    known_users = None if users is None else read_users(Path(users))
    with _bound(address) as sock, _opened(state_dir, catalog) as state:
        at = known or Address(address.host, sock.getsockname()[1])
        node = Node(catalog.node_id, at.host, at.port)
        served_node = ServedNode(
            catalog, node, rules, with_groups=with_groups, users=known_users, state=state
        )
        thread = _LoopThread(Connections(served_node), sock, context)
        thread.start()
        try:
            yield ServedCluster(str(at), catalog)
        finally:
            thread.end()


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
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        problem = f"a certificate and its key in PEM ({error})"
        raise ArgumentValueError("tls", problem, f"{certificate}, {key}") from error
    return context


def _bound(listen: Address) -> socket.socket:
    """Return a socket that is bound to an address."""
    try:
        family, _, _, _, where = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM
        )[0]
        return socket.create_server(where[:2], family=family)
    except socket.gaierror as error:
        raise OSError(error.errno, error.strerror, str(listen)) from error
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), str(listen)) from error


class _LoopThread(threading.Thread):
    """An event loop with the connections, in a thread."""

    def __init__(
        self, connections: Connections, sock: socket.socket, tls: ssl.SSLContext | None
    ) -> None:
        super().__init__(name="kafkastore-serve", daemon=True)
        self._connections, self._sock, self._tls = connections, sock, tls
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()

    def start(self) -> None:
        super().start()
        self._ready.wait()

    def run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._connections.listen(self._sock, self._tls))
            self._ready.set()
            self._loop.run_forever()
            self._loop.run_until_complete(self._connections.close())
        finally:
            self._ready.set()
            self._loop.close()

    def end(self) -> None:
        """End the connections, and wait for the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self.join()
