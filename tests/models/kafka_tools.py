"""Kafka's command line tools; those of one call run in one Java process."""

from __future__ import annotations

import base64
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from golden.make import brokers
from golden.make.java import ClassArchive, java_command
from models import kafka_classes

VERSIONS = ["3.9.1", "4.1.1", "4.3.1"]
_TOOLS = "org.apache.kafka.tools"
MAIN_CLASSES = {
    "kafka-cluster.sh": f"{_TOOLS}.ClusterTool",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-console-consumer.sh": f"{_TOOLS}.consumer.ConsoleConsumer",
    "kafka-consumer-groups.sh": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-delete-records.sh": f"{_TOOLS}.DeleteRecordsCommand",
    "kafka-get-offsets.sh": f"{_TOOLS}.GetOffsetShell",
    "kafka-log-dirs.sh": f"{_TOOLS}.LogDirsCommand",
    "kafka-metadata-quorum.sh": f"{_TOOLS}.MetadataQuorumCommand",
    "kafka-topics.sh": f"{_TOOLS}.TopicCommand",
    "kafka-transactions.sh": f"{_TOOLS}.TransactionsCommand",
    "kafka-verifiable-consumer.sh": f"{_TOOLS}.VerifiableConsumer",
}


class Printed(NamedTuple):
    """What a tool printed, and its exit code."""

    code: int
    text: str


def run_tools(version: str, commands: Sequence[str]) -> list[Printed]:
    """Run command lines such as ``kafka-topics.sh --list ...`` one after the other."""
    requests = [
        (MAIN_CLASSES[program], *arguments)
        for program, *arguments in map(shlex.split, commands)
    ]
    answers = kafka_classes.ask(
        version, requests, program="KafkaTools",
        more_jars=sorted(brokers.group_jars(version).glob("kafka-tools-*.jar")),
    )
    return [
        Printed(int(code), base64.b64decode(text).decode(errors="replace"))
        for code, text in (each.split(" ") for each in answers)
    ]


def write_tools_of_the_script(folder: Path, version: str, address: str) -> None:
    """Write the programs that ``cluster --recreate`` runs; `address` is a running broker's."""
    folder.mkdir()
    more = brokers.group_jars(version).glob("kafka-tools-*")
    classes = brokers.class_path(version, brokers.WORK, *more)
    for name, what in (
        ("kafka-topics.sh", ("--list",)),
        ("kafka-configs.sh", ("--describe", "--entity-type", "brokers")),
    ):
        main_class = MAIN_CLASSES[name]
        archive = ClassArchive(f"{version}-{main_class}", brokers.WORK)
        arguments = ("--bootstrap-server", address, *what)
        if any("ArchiveClassesAtExit" in option for option in archive.options):
            command = java_command(
                classes, main_class, *arguments, logs_as="client", options=archive.options)
            subprocess.run(command, check=True, capture_output=True, timeout=120)
            archive.keep()
        options = ClassArchive(f"{version}-{main_class}", brokers.WORK).options
        command = java_command(classes, main_class, logs_as="client", options=options)
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        (folder / name).chmod(0o755)
