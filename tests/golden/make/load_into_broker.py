"""Load partition directories into a real broker, and query the result.

usage, from tests/golden:
    python -m make.load_into_broker --version 3.9.1 --out OUT [--recover] TOPIC-PARTITION ...

The topics are created first and the broker is stopped; then the partitions' files are replaced by
the given ones, and the broker is started again. OUT gets ``answers.json`` and ``logs`` in the form
of the golden data, without a dump.
"""
from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .brokers import BROKERS, WORK
from .case_context import CaseContext, Surroundings
from .java_client import JavaClients

# Says which topic a directory belongs to; a broker ignores or renames one that it does not know.
_KEPT = "partition.metadata"
_MARKER = ".kafka_cleanshutdown"
_RECOVERY_POINTS = "recovery-point-offset-checkpoint"
_LOG_START_OFFSETS = "log-start-offset-checkpoint"


@dataclass(frozen=True)
class LoadOptions:
    """How a broker is started on the directories, and further queries.

    Attributes
    ----------
    recover : bool
        Start it without the clean-shutdown marker and with recovery points of 0, so that it
        rebuilds every index, rather than trusting what it finds.
    topic_config : mapping
        The topics' settings; they extend or replace an ``index.interval.bytes`` of 200 and
        segments of 1 MB.
    recovery_points : mapping
        By ``topic-partition``, where `recover` is not to begin at 0.
    log_start_offsets : mapping
        By ``topic-partition``, for logs whose records were deleted up to an offset.
    extra_timestamps : iterable of int
        Looked up in addition to those around the records'.
    committed : bool
        Also what a read_committed consumer gets, and every look-up with both isolations.
    appended_timestamps : sequence of int
        Of records that are produced to each partition once it has been queried.
    prepare : callable, optional
        Called with the log directory when the files are in it, before the broker starts there.
    """

    recover: bool = False
    topic_config: Mapping[str, str | int] = field(default_factory=dict)
    recovery_points: Mapping[str, int] = field(default_factory=dict)
    log_start_offsets: Mapping[str, int] = field(default_factory=dict)
    extra_timestamps: Iterable[int] = ()
    committed: bool = False
    appended_timestamps: Sequence[int] = ()
    prepare: Callable[[Path], object] | None = None


def load_into_broker(
    partitions: Iterable[Path],
    version: str,
    out: Path,
    options: LoadOptions | None = None,
    *,
    work: Path = WORK,
) -> dict[str, Any]:
    """Have a real broker load partition directories, and query everything.

    Parameters
    ----------
    partitions : iterable of path
        Directories named ``topic-partition``; left as they are.
    version : str
        The broker's, a key of `brokers.BROKERS`.
    out : path
        Emptied; gets ``answers.json``, and ``logs`` as the broker left it.
    options : LoadOptions, optional
        How it is started, and further queries.
    work : path
        Where jars are kept.

    Returns
    -------
    dict
        The content of ``answers.json``, with the lines the broker logged about the topics.

    Raises
    ------
    java.BrokerFailure
        If the broker does not start or answer; it is killed then.
    """
    options = options or LoadOptions()
    partitions = list(partitions)
    topics = _partitions_by_topic(path.name for path in partitions)
    with broker_on(partitions, version, out, options, work=work) as context:
        for topic, numbers in topics.items():
            for number in numbers:
                context.ask(
                    topic,
                    number,
                    committed=options.committed,
                    extra_timestamps=options.extra_timestamps,
                )
                if options.appended_timestamps:
                    batches = context.batches(options.appended_timestamps)
                    context.produce(topic, batches, number)
        context.stop()
        lines = context.log_lines(*(re.escape(topic) for topic in topics))
        kept = [line for line in lines if "Completed request" not in line]
        context.extra["broker_log"] = kept[:2000]
        context.save(dump=False)
    answers: dict[str, Any] = json.loads((out / "answers.json").read_text())
    return answers


@contextmanager
def broker_on(
    partitions: Iterable[Path],
    version: str,
    out: Path,
    options: LoadOptions | None = None,
    *,
    work: Path = WORK,
) -> Iterator[CaseContext]:
    """Start a real broker on partition directories; its files are deleted after the ``with``.

    Parameters
    ----------
    partitions, version, out, options, work
        As `load_into_broker` takes them. Nothing is queried and nothing saved.

    Yields
    ------
    CaseContext
        With the broker running.

    Raises
    ------
    java.BrokerFailure
        If the broker does not start.
    """
    options = options or LoadOptions()
    sources = {path.name: path for path in partitions}
    with JavaClients(work) as clients:
        context = CaseContext(version, "load", out, Surroundings("load", work, clients))
        try:
            context.start()
            for topic, numbers in _partitions_by_topic(sources).items():
                config = dict(options.topic_config)
                context.create_topic(topic, max(numbers) + 1, config, segment_bytes=1048576)
            context.stop()
            for name, source in sources.items():
                _replace_files(source, context.cluster.logs / name)
            _set_checkpoints(context.cluster.logs, sources, options)
            if options.prepare is not None:
                options.prepare(context.cluster.logs)
            context.start()
            yield context
        finally:
            context.abandon()
            context.remove_run_directory()


def _partitions_by_topic(names: Iterable[str]) -> dict[str, list[int]]:
    """Parse the names of partition directories."""
    topics: dict[str, list[int]] = {}
    for name in sorted(names):
        parts = re.fullmatch(r"(.+)-(\d+)", name)
        if parts is None:
            raise ValueError(f"{name} is no topic-partition")
        topics.setdefault(parts[1], []).append(int(parts[2]))
    return topics


def _replace_files(source: Path, target: Path) -> None:
    """Replace a partition directory's files by those of another, with mtimes."""
    for path in target.iterdir():
        if path.name != _KEPT:
            path.unlink()
    for path in source.iterdir():
        if path.name != _KEPT:
            shutil.copy2(path, target / path.name)


def _set_checkpoints(logs: Path, names: Iterable[str], options: LoadOptions) -> None:
    """Write the checkpoints that the broker reads about the partitions."""
    _update_checkpoint(logs / _LOG_START_OFFSETS, options.log_start_offsets)
    if options.recover:
        (logs / _MARKER).unlink(missing_ok=True)
        points = dict.fromkeys(names, 0) | dict(options.recovery_points)
        _update_checkpoint(logs / _RECOVERY_POINTS, points)


def _update_checkpoint(path: Path, offsets: Mapping[str, int]) -> None:
    """Set offsets by ``topic-partition`` in a checkpoint (``topic partition offset`` by line)."""
    if not offsets:
        return
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    known = {tuple(line.split()[:2]): line.split()[2] for line in lines if line}
    for name, offset in offsets.items():
        topic, _, partition = name.rpartition("-")
        known[topic, partition] = str(offset)
    rows = "".join(f"{' '.join(name)} {offset}\n" for name, offset in known.items())
    path.write_text(f"0\n{len(known)}\n{rows}")


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", choices=BROKERS, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--recover", action="store_true", help="let it rebuild every index")
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("directory", type=Path, nargs="+", help="named topic-partition")
    arguments = parser.parse_args()
    answers = load_into_broker(
        [directory.resolve() for directory in arguments.directory],
        arguments.version,
        arguments.out.absolute(),
        LoadOptions(recover=arguments.recover),
        work=arguments.work.absolute(),
    )
    for name, found in answers["partitions"].items():
        if "records" in found:
            print(
                f"{name}: {len(found['records'])} records, offsets {found['log_start_offset']} to"
                f" {found['log_end_offset']}, {len(found.get('list_offsets', []))} look-ups"
            )
    for line in answers["broker_log"]:
        print("log:", line)


if __name__ == "__main__":
    main()
