"""``kafkastore serve``: directories as a read-only Kafka cluster."""
from __future__ import annotations

import ipaddress
import logging
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import click

from kafkastore.cli.options.rules import check_rules
from kafkastore.cli.options.selection import ANY_PATH
from kafkastore.cli.options.whole_numbers import WholeNumber
from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.failures import FOUND_PROBLEMS, print_note
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.tables import format_count
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.errors import ArgumentValueError, KafkaStoreError
from kafkastore.lookup.rules import CORRECT
from kafkastore.server.catalog import Catalog
from kafkastore.server.client import DEFAULT_LIMITS, ClientLimits
from kafkastore.server.connections import CONNECTION_LOG
from kafkastore.server.groups.state_directory import STATE_LOG
from kafkastore.server.served_log import READING_LOG, Reading
from kafkastore.server.serving import (
    Address,
    ServedCluster,
    parse_address,
    parse_addresses,
    serve_catalog,
)
from kafkastore.shown_text import escape_control_characters


@store_command("metadata", "verbose")
@click.option(
    "--listen", metavar="HOST:PORT", default="127.0.0.1:9092", show_default=True,
    help="Where to accept clients; port 0 is a free one.",
)
@click.option(
    "--advertise", metavar="HOST:PORT",
    help="Where clients reach it, if that is another address.",
)
@click.option(
    "--rules", metavar="RULES", default=CORRECT, show_default=True,
    callback=lambda _context, _parameter, name: check_rules(name, others=""),
    help="For offsets by time: correct, a version of Kafka, kip-33 or legacy.",
)
@click.option(
    "--tls", nargs=2, type=ANY_PATH, metavar="CERTIFICATE KEY",
    help="Files in PEM: clients connect by TLS.",
)
@click.option(
    "--users", type=ANY_PATH, metavar="FILE",
    help="A line name:password for each user: clients authenticate, by SASL PLAIN or SCRAM.",
)
@click.option(
    "--on-corrupt", type=click.Choice(("error", "skip")), default="error", show_default=True,
    help="At a corrupt batch, consumers get the error CORRUPT_MESSAGE; or skip continues at the "
    "next valid batch. The exit code is then not 0.",
)
@click.option(
    "--as-v2", is_flag=True, help="Send messages of formats 0 and 1 as record batches (magic 2)."
)
@click.option(
    "--state", "state_dir", type=ANY_PATH, metavar="DIR",
    help="A directory outside of the served ones, which keeps what consumers commit.",
)
@click.option("--no-groups", is_flag=True, help="Refuse consumer groups and commits.")
@click.option(
    "--max-connections", metavar="N", type=WholeNumber(1), default=DEFAULT_LIMITS.connections,
    show_default=True, help="More connections are closed at once.",
)
@click.option(
    "--metrics", metavar="HOST:PORT",
    help="Where Prometheus scrapes metrics; port 0 is a free one.",
)
def command(
    call: StoreCall,
    listen: str,
    advertise: str | None,
    rules: str,
    tls: tuple[Path, Path] | None,
    users: Path | None,
    state_dir: Path | None,
    on_corrupt: str,
    as_v2: bool,
    no_groups: bool,
    max_connections: int,
    metrics: str | None,
) -> int:
    """Serve partitions to Kafka clients, as a read-only cluster of one node.

    Nothing in the directories is changed: what consumers commit is kept in memory until the command
    ends, or in the directory of --state. Directories that grow are followed. SIGHUP lists them and
    reads the files of --tls and --users again. SIGTERM finishes the responses under way and ends
    it, Ctrl-C ends it at once.
    """
    if no_groups and state_dir is not None:
        raise click.UsageError("--state can't be used together with --no-groups")
    if call.verbose:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_OneLine())
        CONNECTION_LOG.addHandler(handler)
        CONNECTION_LOG.setLevel(logging.INFO)
    try:
        address, _ = parse_addresses(listen, advertise)
        scraped = None if metrics is None else parse_address("metrics", metrics)
    except ArgumentValueError as error:
        raise click.UsageError(f"--{error}") from error
    reading = Reading("skip" if on_corrupt == "skip" else "raise", as_v2)
    catalog = Catalog(lambda: call.select(*call.paths), call.metadata, reading)
    exit_code = call.problems.exit_code    # at the end, the directories may be gone
    _allow_open_files()
    with _noted(), _Signals() as signals, serve_catalog(
        catalog,
        listen=listen, advertise=advertise, rules=rules, with_groups=not no_groups, tls=tls,
        users=users, metrics=metrics, limits=ClientLimits(max_connections), state_dir=state_dir,
    ) as served:
        signals.receive()
        _warn_if_exposed(
            address, is_encrypted=tls is not None, has_users=users is not None
        )
        if scraped is not None and not _is_loopback(scraped):
            print_note(f"who reaches {scraped} can read the names of topics and groups")
        _show(call, served)
        _wait(served, signals)
    if catalog.skipped:
        print_note(f"skipped corrupt bytes at {format_count(len(catalog.skipped), 'place')}")
        return exit_code or FOUND_PROBLEMS
    return exit_code


def _allow_open_files() -> None:
    """Allow as many open files as this user may have: connections are files too."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):    # macOS has a limit of its own
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _Notes(logging.Handler):
    """Prints what operators should know."""

    def emit(self, record: logging.LogRecord) -> None:
        print_note(record.getMessage())


@contextmanager
def _noted() -> Iterator[None]:
    """Print notes while the block runs."""
    notes, logs = _Notes(), (READING_LOG, STATE_LOG)
    for each in logs:
        each.addHandler(notes)
    try:
        yield
    finally:
        for each in logs:
            each.removeHandler(notes)


def _warn_if_exposed(listen: Address, *, is_encrypted: bool, has_users: bool) -> None:
    """Say what it means if others than this machine can connect."""
    if _is_loopback(listen) or (is_encrypted and has_users):
        return
    missing = [
        option for option, is_given in (("--users", has_users), ("--tls", is_encrypted))
        if not is_given
    ]
    print_note(
        f"who reaches {listen} or the network before it can read these partitions: there is no "
        f"{' and no '.join(missing)}"
    )


def _is_loopback(address: Address) -> bool:
    try:
        return ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        return address.host == "localhost"


def _show(call: StoreCall, served: ServedCluster) -> None:
    """Say what is served, and where."""
    catalog = served.catalog
    partitions = sum(len(topic.partitions) for topic in catalog.topics.values())
    if call.as_json:
        write_json({
            "kind": "serving",
            "bootstrap_servers": served.bootstrap_servers,
            "cluster_id": catalog.cluster_id,
            "node_id": catalog.node_id,
            "topics": len(catalog.topics),
            "partitions": partitions,
            "metrics": served.metrics,
        })
    else:
        print_text(
            f"serving {format_count(len(catalog.topics), 'topic')} with "
            f"{format_count(partitions, 'partition')} at {served.bootstrap_servers}"
        )
        if served.metrics is not None:
            print_text(f"metrics at http://{served.metrics}/metrics")
    sys.stdout.flush()


class _OneLine(logging.Formatter):
    """Keep what clients say of themselves in their line."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_control_characters(super().format(record))


_DRAINED = 0


class _Signals:
    """What the main thread waits for: signals, and what other threads put."""

    # A wait for a lock or a queue would sleep on if another thread, or this one a moment before,
    # received the signal. A byte in a pipe stays there.

    def __enter__(self) -> Self:
        self._arrived, self._sent = os.pipe()
        os.set_blocking(self._sent, False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)
        os.close(self._arrived)
        os.close(self._sent)

    def receive(self) -> None:
        """Receive the signals that arrive from now on."""
        signal.set_wakeup_fd(self._sent, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: None)

    def put(self, number: int) -> None:
        """Let `get` return a number."""
        os.write(self._sent, bytes([number]))

    def get(self) -> int:
        """Wait for the next number; Ctrl-C raises `KeyboardInterrupt`, as in any command."""
        return os.read(self._arrived, 1)[0]


def _wait(served: ServedCluster, signals: _Signals) -> None:
    """Do what signals say, until SIGTERM."""
    while signals.get() == signal.SIGHUP:
        try:
            served.reload()
        except (KafkaStoreError, OSError) as error:
            print_note(f"not everything was read again: {error}")
    served.drain().add_done_callback(lambda _: signals.put(_DRAINED))
    while signals.get() == signal.SIGHUP:
        pass
