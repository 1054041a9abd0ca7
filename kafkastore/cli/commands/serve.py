"""``kafkastore serve``: directories as a read-only Kafka cluster."""
from __future__ import annotations

import ipaddress
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from kafkastore.cli.options.selection import ANY_PATH
from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.failures import print_note
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.tables import format_count
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.errors import ArgumentValueError
from kafkastore.lookup.rules import CORRECT
from kafkastore.server.catalog import Catalog
from kafkastore.server.connections import CONNECTION_LOG
from kafkastore.server.served_log import READING_LOG, Reading
from kafkastore.server.serving import Address, parse_addresses, serve_catalog


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
@click.option("--no-groups", is_flag=True, help="Refuse consumer groups and commits.")
def command(
    call: StoreCall,
    listen: str,
    advertise: str | None,
    rules: str,
    tls: tuple[Path, Path] | None,
    users: Path | None,
    on_corrupt: str,
    as_v2: bool,
    no_groups: bool,
) -> int:
    """Serve partitions to Kafka clients, as a read-only cluster of one node.

    Nothing in the directories is changed: what consumers commit is kept in memory until the command
    ends. Directories that grow are followed. Ctrl-C or SIGTERM ends it.
    """
    if call.verbose:
        CONNECTION_LOG.addHandler(logging.StreamHandler(sys.stderr))
        CONNECTION_LOG.setLevel(logging.INFO)
    try:
        address, _ = parse_addresses(listen, advertise)
    except ArgumentValueError as error:
        raise click.UsageError(f"--{error}") from error
    reading = Reading("skip" if on_corrupt == "skip" else "raise", as_v2)
    catalog = Catalog(lambda: call.select(*call.paths), call.metadata, reading)
    with _noted(), serve_catalog(
        catalog,
        listen=listen, advertise=advertise, rules=rules, with_groups=not no_groups, tls=tls,
        users=users,
    ) as served:
        _warn_if_exposed(
            address, is_encrypted=tls is not None, has_users=users is not None
        )
        _show(call, served.bootstrap_servers, catalog)
        _wait()
    if catalog.skipped:
        call.problems.count += len(catalog.skipped)
        print_note(f"skipped corrupt bytes at {format_count(len(catalog.skipped), 'place')}")
    return call.problems.exit_code


class _Notes(logging.Handler):
    """A note for what can't be read."""

    def emit(self, record: logging.LogRecord) -> None:
        print_note(record.getMessage())


@contextmanager
def _noted() -> Iterator[None]:
    """Print notes while the block runs."""
    notes = _Notes()
    READING_LOG.addHandler(notes)
    try:
        yield
    finally:
        READING_LOG.removeHandler(notes)


def _warn_if_exposed(listen: Address, *, is_encrypted: bool, has_users: bool) -> None:
    """Say what it means if others than this machine can connect."""
    try:
        is_loopback = ipaddress.ip_address(listen.host).is_loopback
    except ValueError:
        is_loopback = listen.host == "localhost"
    if is_loopback or (is_encrypted and has_users):
        return
    missing = [
        option for option, is_given in (("--users", has_users), ("--tls", is_encrypted))
        if not is_given
    ]
    print_note(
        f"who reaches {listen} or the network before it can read these partitions: there is no "
        f"{' and no '.join(missing)}"
    )


def _show(call: StoreCall, bootstrap_servers: str, catalog: Catalog) -> None:
    """Say what is served, and where."""
    partitions = sum(len(topic.partitions) for topic in catalog.topics.values())
    if call.as_json:
        write_json({
            "kind": "serving",
            "bootstrap_servers": bootstrap_servers,
            "cluster_id": catalog.cluster_id,
            "node_id": catalog.node_id,
            "topics": len(catalog.topics),
            "partitions": partitions,
        })
    else:
        print_text(
            f"serving {format_count(len(catalog.topics), 'topic')} with "
            f"{format_count(partitions, 'partition')} at {bootstrap_servers}"
        )
    sys.stdout.flush()


def _wait() -> None:
    """Wait for SIGTERM, or Ctrl-C, which interrupts this as any command."""
    is_over = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        is_over.set()

    signal.signal(signal.SIGTERM, end)
    is_over.wait()
