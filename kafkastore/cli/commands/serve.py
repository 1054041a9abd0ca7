"""``kafkastore serve``: directories as a read-only Kafka cluster."""
from __future__ import annotations

import ipaddress
import logging
import signal
import sys
import threading
from types import FrameType

import click

from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.failures import print_note
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.tables import format_count
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.errors import ArgumentValueError
from kafkastore.lookup.rules import CORRECT
from kafkastore.server.catalog import Catalog
from kafkastore.server.connections import CONNECTION_LOG
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
@click.option("--no-groups", is_flag=True, help="Refuse consumer groups and commits.")
def command(
    call: StoreCall, listen: str, advertise: str | None, rules: str, no_groups: bool
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
    catalog = Catalog(lambda: call.select(*call.paths), call.metadata)
    with serve_catalog(
        catalog, listen=listen, advertise=advertise, rules=rules, with_groups=not no_groups
    ) as served:
        _warn_if_exposed(address)
        _show(call, served.bootstrap_servers, catalog)
        _wait()
    return call.problems.exit_code


def _warn_if_exposed(listen: Address) -> None:
    """Say what it means if others than this machine can connect."""
    try:
        is_loopback = ipaddress.ip_address(listen.host).is_loopback
    except ValueError:
        is_loopback = listen.host == "localhost"
    if not is_loopback:
        print_note(
            f"all who reach {listen} can read these partitions: there is neither encryption nor "
            "authentication"
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
