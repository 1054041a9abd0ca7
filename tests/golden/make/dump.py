"""The output of a version's ``DumpLogSegments`` for a partition directory."""
from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .brokers import WORK, class_path, version_key
from .java import BrokerFailure, ClassArchive, java_command

_DUMPED_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
_FIRST_WITH_TIME_INDEX = (0, 10, 1)
_FIRST_IN_KAFKA_TOOLS = (4, 3)
_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime", "NoTimestampType")
# The tool's names, some of which changed with the versions, in the words of this project.
_NAMES = {
    "baseOffset": "base_offset",
    "lastOffset": "last_offset",
    "baseSequence": "base_sequence",
    "lastSequence": "last_sequence",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "partitionLeaderEpoch": "partition_leader_epoch",
    "isTransactional": "is_transactional",
    "isControl": "is_control",
    "deleteHorizonMs": "delete_horizon_ms",
    "compresscodec": "compression",
    "compressionCodec": "compression",
    "isvalid": "is_valid",
    "isValid": "is_valid",
    "payloadsize": "payload_size",
    "payloadSize": "payload_size",
    "keysize": "key_size",
    "keySize": "key_size",
}
# The usual values of batches are left out; a missing field has this value.
USUAL_VALUES: dict[str, Any] = {
    "is_valid": True,
    "base_sequence": -1,
    "last_sequence": -1,
    "producer_id": -1,
    "producer_epoch": -1,
    "is_transactional": False,
    "is_control": False,
    "delete_horizon_ms": "OptionalLong.empty",
}


@dataclass
class Dump:
    """The tool's output, by file.

    Attributes
    ----------
    batches : dict
        By name of a ``.log``: one dict per batch, or per message of the formats 0 and 1.
    entries : dict
        By name of an index: one list per entry, or one dict per aborted transaction.
    printed : list of str
        Lines that are neither.
    died_in : str or None
        The file in which an exception ended the tool.
    """

    batches: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    entries: dict[str, list[Any]] = field(default_factory=dict)
    printed: list[str] = field(default_factory=list)
    died_in: str | None = None


def _value(text: str) -> int | bool | str:
    """Read a number, a truth value, or leave the text."""
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return {"true": True, "false": False}.get(text, text)


def _batch(fields: dict[str, Any]) -> dict[str, Any]:
    """Describe a batch in our terms, without the usual values."""
    batch = {_NAMES.get(name, name): value for name, value in fields.items()}
    if "baseOffset" not in fields:  # a message, or a compressed wrapper, of the old formats
        batch["last_offset"] = batch.pop("offset")
    for timestamp_type in _TIMESTAMP_TYPES:
        if timestamp_type in batch:
            batch["max_timestamp"] = batch.pop(timestamp_type)
            batch["timestamp_type"] = timestamp_type
    return {
        name: value
        for name, value in batch.items()
        if name not in USUAL_VALUES or value != USUAL_VALUES[name]
    }


def parse_dump(text: str) -> Dump:
    """Read what the tool prints.

    Parameters
    ----------
    text : str
        Of any version from 0.8.2 to 4.3, without ``--deep-iteration``.
    """
    dump = Dump()
    current: str | None = None
    for line in text.splitlines():
        if heading := re.match(r"Dumping (\S+)", line):
            current = Path(heading[1]).name
            (dump.batches if current.endswith(".log") else dump.entries)[current] = []
            continue
        if current is None or line.startswith(("Starting offset", "Log starting offset")):
            continue
        # "baseOffset: 0 lastOffset: 3 ... CreateTime: 5", "offset: 3 CreateTime: 5 isvalid: true"
        pairs = re.findall(r"(\w+): ?(-?[\w.]+)", line)
        names = [name for name, _ in pairs]
        fields = {name: _value(value) for name, value in pairs}
        if (current.endswith(".index") and names == ["offset", "position"]) or (
            current.endswith(".timeindex") and names == ["timestamp", "offset"]
        ):
            dump.entries[current].append(list(fields.values()))
        elif current.endswith(".txnindex") and "producerId" in fields:
            aborted = {_NAMES.get(name, name): value for name, value in fields.items()}
            dump.entries[current].append(aborted)
        elif current.endswith(".log") and ("baseOffset" in fields or "position" in fields):
            dump.batches[current].append(_batch(fields))
        elif line.strip():
            if line.startswith("Exception in thread"):
                dump.died_in = current
            dump.printed.append(line.strip()[:300])
    return dump


def dump_log_segments(version: str) -> str:
    """Return the name of the tool's class in a version."""
    package = "kafka" if version_key(version) < _FIRST_IN_KAFKA_TOOLS else "org.apache.kafka"
    return f"{package}.tools.DumpLogSegments"


def _run_tool(version: str, directory: Path, names: list[str], work: Path) -> Dump:
    """Run the tool once over some files of a directory."""
    files = ",".join(str(directory / name) for name in names)
    main_class = dump_log_segments(version)
    archive = ClassArchive(f"{version}-{main_class}", work)
    command = java_command(
        class_path(version, work),
        main_class,
        *("--files", files),
        logs_as="client",
        options=archive.options,
    )
    run = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300
    )
    archive.keep()
    dump = parse_dump(run.stdout.decode(errors="replace").replace(f"{directory}/", ""))
    if not dump.batches and not dump.entries:  # it did not run
        raise BrokerFailure(f"{' '.join(command)}: {run.stdout.decode(errors='replace')}")
    return dump


def dump_partition(version: str, partition: Path, work: Path = WORK) -> dict[str, Any]:
    """Run the version's DumpLogSegments on every file of a partition directory.

    Parameters
    ----------
    version : str
        Whose tool is used.
    partition : path
        Left as it is: the tool opens indexes for writing, so it is given a copy.
    work : path
        Where jars are kept.

    Returns
    -------
    dict
        ``batches`` by name of ``.log``, the entries by name of index, ``printed`` if anything
        else was.
    """
    suffixes: tuple[str, ...] = _DUMPED_SUFFIXES
    if version_key(version) < _FIRST_WITH_TIME_INDEX:
        suffixes = (".log", ".index")
    names = sorted(
        path.name
        for path in partition.iterdir()
        if path.name.endswith(suffixes) and re.match(r"\d{20}\.", path.name)
    )
    total = Dump()
    with tempfile.TemporaryDirectory(prefix="golden-dump-") as scratch:
        copy = Path(shutil.copytree(partition, Path(scratch, "partition")))
        while names:
            part = _run_tool(version, copy, names, work)
            total.batches |= part.batches
            total.entries |= part.entries
            total.printed += part.printed
            # An exception in one file (zeros after the last batch, say) ends the tool: continue
            # with the files after it.
            names = names[names.index(part.died_in) + 1 :] if part.died_in in names else []
    dumped: dict[str, Any] = {"batches": total.batches} | total.entries
    if total.printed:
        dumped["printed"] = total.printed[:60]
    return dumped
