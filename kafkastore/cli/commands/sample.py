"""``kafkastore sample``: unpack small real log directories to try commands on."""
from __future__ import annotations

import shlex
from pathlib import Path

import click

from kafkastore.cli.options.selection import ANY_PATH
from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.json_lines import json_option, write_json
from kafkastore.cli.output.tables import format_count, print_table
from kafkastore.samples import unpack
from kafkastore.store.log_store import open_store


@click.command()
@click.argument("directory", metavar="DIR", type=ANY_PATH)
@json_option
def command(directory: Path, as_json: bool) -> None:
    """Unpack log directories of real brokers into DIR, an empty or new directory.

    None has time indexes. Records of Kafka 0.8.2.2 and 0.9.0.1 have no timestamps; those of
    0.10.0.1 have.
    """
    roots = unpack(directory)
    if as_json:
        for root in roots:
            write_json({"kafka": root.name, "path": str(root)})
        return
    print_table(
        ["directory", "written by", "holds"],
        ([str(root), f"Kafka {root.name}", _contents(root)] for root in roots),
    )
    newest = shlex.quote(str(roots[-1]))
    print("\nTry:")
    for line in (
        f"kafkastore ls {newest}",
        f"kafkastore cat {newest} --topic up --limit 5",
        f"kafkastore offsets {newest} --topic up --at 2017-07-14T02:40:30Z --rules all",
        f"kafkastore verify {newest}",
        f"kafkastore migrate {newest} --dry-run",
        f"kafkastore pipeline {shlex.quote(str(directory))}/* --out kafkastore-out",
    ):
        print_text(f"  {line}")


def _contents(root: Path) -> str:
    logs = list(open_store(root))
    return (
        f"{format_count(sum(log.log_end_offset for log in logs), 'record')} "
        f"in {format_count(len(logs), 'partition')}"
    )
