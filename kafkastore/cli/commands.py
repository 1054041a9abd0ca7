"""The list of commands, and their group."""
from __future__ import annotations

import click

from kafkastore.cli.command_line import CommandLine

#: Every command and its help line. Its module `kafkastore.cli.<name>` is imported when it runs.
COMMANDS = {
    "ls": "List partitions or segments: offsets, times, sizes, missing indexes.",
    "dump": "Decode any file of a log directory.",
    "cat": "Print records of partitions, or write them to a file.",
    "offsets": "Find the offsets for times, by one or several rules.",
    "compare": "Compare legacy answers by file times with time index answers.",
    "verify": "Check the files of a log directory against each other.",
    "predict": "Tell what a broker's next start would cut, delete or make.",
    "reindex": "Rebuild indexes that do not match their logs.",
    "migrate": "Give a directory from before the time index its time indexes.",
    "repair": "Repair damaged logs and indexes, and keep all bytes that leave.",
    "convert": "Rewrite messages of old formats as record batches.",
    "changes": "List, finish, undo or remove what other commands changed.",
    "lag": "Tell how far consumer groups are behind, in records and in time.",
    "latency": "Measure the time from creation to append of records, by topic.",
    "failover": "Find where consumers of one cluster go on in another.",
    "retention": "Tell which segments a broker would delete, and what keeps the others.",
    "sizing": "Size indexes by interval and by time bucket, for a directory or a whole broker.",
    "pipeline": "Go the whole way on Spark: survey to report.",
    "sample": "Unpack small real log directories to try things on.",
}


@click.command(
    cls=CommandLine,
    commands_by_name=COMMANDS,
    package="kafkastore.cli",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Reading never alters anything and needs no write permission. "
    "kafkastore COMMAND --help describes each command.",
)
@click.version_option(package_name="kafkastore", message="%(prog)s %(version)s")
def cli() -> None:
    """Kafka's log store without the broker: read, search, verify and migrate log directories."""
