"""The list of commands, and their group."""
from __future__ import annotations

import click

from kafkastore import __version__
from kafkastore.cli.command_line import CommandLine

#: Every command and its help line; its module, `cli.commands.<name>`, is imported when it runs, or
#: `cli.altering.<name>`.
COMMANDS = {
    "ls": "List partitions or segments: offsets, times, sizes, missing indexes.",
    "dump": "Decode any file of a log directory.",
    "cat": "Print, filter, count or follow records; write them to files.",
    "cluster": "Show brokers, topics and configurations from a cluster's metadata log.",
    "offsets": "Find the offsets for times, by one or several rules.",
    "compare": "Compare offset lookups by modification time and by time index.",
    "verify": "Check the files of a log directory against each other.",
    "predict": "Show what a broker's next start would truncate, delete or write.",
    "reindex": "Rebuild indexes that do not match their logs.",
    "migrate": "Build time indexes for directories of Kafka before 0.10.1.",
    "repair": "Repair corrupt logs and indexes; removed bytes are kept.",
    "convert": "Rewrite messages of old formats as record batches.",
    "serve": "Serve directories to Kafka clients as a read-only cluster.",
    "restore": "Put partitions into the empty logs of new topics, before a broker's start.",
    "changes": "List, resume, undo or remove the changes of other commands.",
    "lag": "Show consumer lag in offsets, records and time.",
    "latency": "Show append latency (LogAppendTime - CreateTime) by topic.",
    "groups": "Show groups of every kind: state, members, committed offsets.",
    "transactions": "Show open transactions, and the commands that abort them.",
    "failover": "Translate consumer positions from one cluster to another.",
    "retention": "Show which segments a broker's retention would delete.",
    "sizing": "Compute index sizes by interval, for a directory or a broker.",
    "pipeline": "Run all steps on Spark, from inventory to report.",
    "sample": "Unpack sample log directories.",
    "completion": "Print a script that completes commands, topics and paths in a shell.",
}
#: The commands that alter directories.
ALTERING = frozenset(("changes", "convert", "migrate", "reindex", "repair", "restore"))


def package_of(name: str) -> str:
    """Return the package of a command's module."""
    return "kafkastore.cli.altering" if name in ALTERING else "kafkastore.cli.commands"


@click.command(
    cls=CommandLine,
    commands_by_name=COMMANDS,
    package_of=package_of,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Commands that only read files change nothing and need no write permission. "
    "kafkastore COMMAND --help describes each command.",
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Read, check, repair and migrate Kafka log directories without a broker."""
