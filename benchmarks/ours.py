"""Kafkastore's side of each measure.

usage:  ours.py MEASURE SEGMENT.log [TARGETS]

Each line ``check`` or ``time`` on stdin prints one JSON object: the full results, or the seconds of
one round. TARGETS is a file of little-endian int64, the targets of lookups.
"""
from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from append import Append
from numpy.typing import NDArray

import kafkastore
from kafkastore.changes.new_bytes import chunks_of
from kafkastore.checks.findings import Severity
from kafkastore.checks.reindex import plan_reindex
from kafkastore.cli.cat.column_writer import ColumnWriter
from kafkastore.cli.output.failures import FOUND_PROBLEMS
from kafkastore.formats.indexes.entries import TIMESTAMP_AND_OFFSET
from kafkastore.formats.indexes.index_format import offset_index, time_index
from kafkastore.formats.primitives.crc import crc32c
from kafkastore.formats.requests.apis import (
    ApiKey,
    RequestHeader,
    pack_request,
    parse_response,
)
from kafkastore.formats.state.leader_epochs import LeaderEpochs
from kafkastore.formats.state.producer_state import ProducerState
from kafkastore.log.log_view import LogView
from kafkastore.metadata.cluster import Cluster, read_cluster, read_snapshot_alone
from kafkastore.segment.log_file import LogFile
from kafkastore.segment.recovery import RebuiltIndexes, rebuild_indexes
from kafkastore.store.cluster_metadata import METADATA_PARTITION

PIECE_BYTES = 16 * 1024


class Measure(Protocol):
    """`round` is timed and must return the same value each time; `check` is not timed."""

    def round(self) -> int: ...

    def check(self) -> dict[str, int]: ...


class Scan:
    """Batch headers, with checksums."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def round(self) -> int:
        with LogFile(self.log) as log:
            return sum(len(run.headers) for run in log.runs(verify_crc=True))

    def check(self) -> dict[str, int]:
        batches, valid_bytes, last_offsets, max_timestamps = 0, 0, 0, 0
        with LogFile(self.log) as log:
            for run in log.runs(verify_crc=True):
                if not (run.headers["crc_valid"] == 1).all():
                    raise SystemExit("a checksum is wrong")
                batches += len(run.headers)
                valid_bytes += len(run.data)
                last_offsets = _add(last_offsets, run.headers["last_offset"])
                max_timestamps = _add(max_timestamps, run.headers["max_timestamp"])
        return {
            "batches": batches,
            "valid_bytes": valid_bytes,
            "last_offsets": last_offsets,
            "max_timestamps": max_timestamps,
        }


class Recover(Scan):
    """Batch headers, with checksums; both indexes rebuilt, producers and epochs tracked."""

    def _recover(self) -> RebuiltIndexes:
        return rebuild_indexes(self.log, 0, producers=ProducerState(), epochs=LeaderEpochs())

    def round(self) -> int:
        return self._recover().next_offset

    def check(self) -> dict[str, int]:
        rebuilt = self._recover()
        if rebuilt.reason:
            raise SystemExit(rebuilt.reason)
        indexes = {
            "offset_index": zlib.crc32(rebuilt.offset_index),
            "time_index": zlib.crc32(rebuilt.time_index),
        }
        return super().check() | {"valid_bytes": rebuilt.valid_bytes} | indexes


class Reindex:
    """Plan a partition's indexes: rebuild them and compare with the existing ones."""

    def __init__(self, log: Path) -> None:
        self.directory = log.parent

    def round(self) -> int:
        return plan_reindex(self.directory, threads=1).new_bytes

    def check(self) -> dict[str, int]:
        names = {".index": "offset_index", ".timeindex": "time_index"}
        found = {}
        for change in plan_reindex(self.directory, threads=1).changes:
            path = self.directory / change.path
            data = b"".join(chunks_of(change.content, path))
            found[names[path.suffix]] = zlib.crc32(data)
        return found


class Decode:
    """Records as Arrow, with checksums, store opened and closed."""

    def __init__(self, log: Path, **options: Any) -> None:
        self.root = log.parent.parent
        self.options = options

    def batches(self) -> Iterator[pa.RecordBatch]:
        store = kafkastore.open(self.root)
        (partition,) = store.partitions.values()
        yield from partition.to_arrow(**self.options)

    def round(self) -> int:
        return sum(batch.num_rows for batch in self.batches())

    def check(self) -> dict[str, int]:
        found = {"records": 0}
        for batch in self.batches():
            found["records"] += batch.num_rows
            for name, values in _columns(batch):
                found[name] = _add(found.get(name, 0), values)
        return found


class ToArrow:
    """All columns of a log, by a number of threads, each with a core."""

    def __init__(self, log: Path, threads: int) -> None:
        (self.log,) = kafkastore.open(log.parent)
        self.threads = threads
        if hasattr(os, "sched_setaffinity"):  # the driver allows one
            os.sched_setaffinity(0, range(os.cpu_count() or 1)[-threads:])

    def round(self) -> int:
        return sum(batch.num_rows for batch in self.log.to_arrow(threads=self.threads))

    def check(self) -> dict[str, int]:
        return {"records": self.round()}


class Latest(ToArrow):
    """The last record of each key."""

    def round(self) -> int:
        return sum(batch.num_rows for batch in self.log.latest(threads=self.threads))


class VerifyLog(ToArrow):
    """Every file of a partition, checked in this process."""

    def round(self) -> int:
        return len(list(kafkastore.verify(self.log.path, threads=self.threads)))

    def check(self) -> dict[str, int]:
        return {"findings": self.round()}


class CatParquet(ToArrow):
    """What ``cat`` does for Parquet, but for the file: that is ``/dev/null``."""

    def round(self) -> int:
        count = 0
        with open(os.devnull, "wb") as file:
            writer = ColumnWriter(file, "parquet", headers=False, threads=self.threads)
            options = {"threads": self.threads, **writer.reading}
            for batch in self.log.to_arrow(writer.columns, **options):
                writer.write_batch(self.log, batch)
                count += batch.num_rows
            writer.close()
        return count


class Lookup:
    """All targets in one call, on the bytes of an index."""

    def __init__(self, index: Path, index_format: Any, targets: Path) -> None:
        self.entries = index.read_bytes()
        self.format = index_format
        self.targets = np.fromfile(targets, "<i8")

    def _found(self) -> Any:
        return self.format.lookup_many(self.entries, 0, self.targets)

    def round(self) -> int:
        return len(self._found())

    def check(self) -> dict[str, int]:
        found = self._found()
        columns = {f"{name}s": _add(0, found[name]) for name in found.dtype.names}
        return {"entries": self.format.entry_count(self.entries), **columns}


class FindTime:
    """Times one by one in a log; at once, with ``at_once``. Indexes are trusted, as by brokers."""

    def __init__(self, log: Path, targets: Path, *, at_once: bool = False) -> None:
        (opened,) = kafkastore.open(log.parent.parent)
        self.log = opened
        self.targets = np.fromfile(targets, "<i8")
        self.times = self.targets.tolist()
        self.at_once = at_once

    def round(self) -> int:
        if self.at_once:
            return int(self.find_many()["offset"].sum())
        find, total = self.log.offset_for_timestamp, 0
        for target in self.times:
            total += find(target, indexes="trust").offset  # type: ignore[union-attr]
        return total

    def find_many(self) -> NDArray[np.void]:
        return self.log.offsets_for_timestamps(self.targets, indexes="trust")

    def check(self) -> dict[str, int]:
        if self.at_once:
            return {"answers": _add(0, self.find_many())}
        found = [self.log.offset_for_timestamp(each, indexes="trust") for each in self.times]
        return {"answers": _add(0, np.array(found, TIMESTAMP_AND_OFFSET))}


class Command:
    """A kafkastore command on a store, as a user runs it: a new process each round."""

    def __init__(self, log: Path, *words: str) -> None:
        program = str(Path(sys.executable).with_name("kafkastore"))
        self.command = [program, words[0], str(log.parent.parent), *words[1:], "--json"]

    def lines(self) -> list[dict[str, Any]]:
        done = subprocess.run(self.command, text=True, capture_output=True, check=False)
        if done.returncode > FOUND_PROBLEMS:
            raise SystemExit(done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def round(self) -> int:
        return len(self.lines())


class FindTimeInStore(Command):
    """One time in all partitions of a store."""

    def __init__(self, log: Path) -> None:
        index = sorted(log.parent.glob("*.timeindex"))[10]
        target = int(np.fromfile(index, ">i8,>i4")["f0"][0])
        super().__init__(log, "offsets", "--at", str(target), "--indexes", "trust")

    def check(self) -> dict[str, int]:
        offsets = [line["offset"] for line in self.lines()]
        return {"partitions": len(offsets), "offset": min(offsets), "largest": max(offsets)}


class Verify(Command):
    """Check every file of a store against the others; ignore findings of style."""

    def __init__(self, log: Path) -> None:
        super().__init__(log, "verify")

    def check(self) -> dict[str, int]:
        findings = [line for line in self.lines() if line["kind"] == "finding"]
        bad = {line["file"] for line in findings if line["severity"] != Severity.STYLE.value}
        return {"bad_files": len(bad)}


class CatJson(Command):
    """All records as lines of JSON, from the start of a process to its end."""

    def __init__(self, log: Path) -> None:
        super().__init__(log, "cat")

    def round(self) -> int:
        return subprocess.run(self.command, stdout=subprocess.DEVNULL, check=True).returncode

    def check(self) -> dict[str, int]:
        records = 0
        with subprocess.Popen(self.command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            while piece := process.stdout.read(1 << 20):
                records += piece.count(b"\n")
        return {"records": records}


class ReindexCommand(Command):
    """`Reindex` as a command, which alters nothing."""

    def __init__(self, log: Path) -> None:
        super().__init__(log, "reindex", "--dry-run")

    def check(self) -> dict[str, int]:
        lines = [line for line in self.lines() if line["kind"] in ("change", "unindexed")]
        return {"bad_files": len({line["path"] for line in lines})}


class Open:
    """A log directory opened, and of each partition all segments and the log end offset."""

    def __init__(self, log: Path) -> None:
        self.root = log.parent.parent

    def round(self) -> int:
        return self.check()["partitions"]

    def check(self) -> dict[str, int]:
        logs = kafkastore.open(self.root).partitions.values()
        return {
            "partitions": len(logs),
            "segments": sum(len(log.segments) for log in logs),
            "log_end_offsets": sum(log.log_end_offset for log in logs),
        }


class ServeStart:
    """The command `kafkastore serve` up to its first answer, which names all partitions."""

    def __init__(self, log: Path) -> None:
        self.root = log.parent.parent

    def round(self) -> int:
        return self.check()["partitions"]

    def check(self) -> dict[str, int]:
        program = Path(sys.executable).with_name("kafkastore")
        header = RequestHeader(ApiKey.METADATA, 12, 1, "benchmark")
        with subprocess.Popen(
            [program, "serve", self.root, "--listen", "127.0.0.1:0", "--json"],
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            try:
                address = json.loads(process.stdout.readline())["bootstrap_servers"]
                host, _, port = address.rpartition(":")
                with socket.create_connection((host, int(port))) as sock:
                    sock.sendall(pack_request(header, {"topics": None}))
                    received = sock.makefile("rb")
                    frame = received.read(int.from_bytes(received.read(4), "big"))
            finally:
                process.kill()
        topics = parse_response(header, frame)["topics"]
        return {"partitions": sum(len(topic["partitions"]) for topic in topics)}


class Replay:
    """The cluster that a metadata log, or a snapshot, describes."""

    def __init__(self, log: Path, *, is_snapshot: bool = False) -> None:
        self.log, self.is_snapshot = log, is_snapshot

    def _cluster(self) -> Cluster:
        if self.is_snapshot:
            (path,) = (self.log.parent / "snapshot").iterdir()
            return read_snapshot_alone(path)
        return read_cluster(LogView(self.log.parent, METADATA_PARTITION))

    def round(self) -> int:
        return len(self._cluster().topics_by_id)

    def check(self) -> dict[str, int]:
        topics = self._cluster().topics.values()
        partitions = [each for topic in topics for each in topic.partitions.values()]
        return {
            "partitions": len(partitions),
            "leader_epochs": sum(each.leader_epoch for each in partitions),
            "partition_epochs": sum(each.partition_epoch for each in partitions),
            "in_sync_replicas": sum(sum(each.isr) * each.leader for each in partitions),
        }


class Crc:
    """CRC-32C of a file, in pieces of 16 KiB."""

    def __init__(self, log: Path) -> None:
        data = memoryview(log.read_bytes())
        self.bytes = len(data)
        self.pieces = [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]

    def round(self) -> int:
        mixed = 0
        for piece in self.pieces:
            mixed ^= crc32c(piece)
        return mixed

    def check(self) -> dict[str, int]:
        return {"bytes": self.bytes, "mixed": self.round()}


def _add(crc: int, values: Any) -> int:
    """Continue the CRC-32 with a column: numbers in little-endian order, or bytes."""
    return zlib.crc32(np.ascontiguousarray(values).data, crc)


def _columns(batch: pa.RecordBatch) -> Iterator[tuple[str, Any]]:
    """Return the columns of a batch in the form of every reader's check."""
    for name in ("key", "value"):
        if name in batch.schema.names:
            column = batch.column(name).cast(pa.binary())
            yield f"{name}_lengths", pc.binary_length(column).to_numpy()
            _, offsets, data = column.buffers()
            ends = np.frombuffer(offsets, np.int32)[column.offset :][: len(column) + 1]
            yield f"{name}s", np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    yield "offsets", batch.column("offset").to_numpy()
    yield "timestamps", batch.column("timestamp").cast(pa.int64()).to_numpy() // 1000


MEASURES: dict[str, Callable[..., Measure]] = {
    "scan": Scan,
    "recover": Recover,
    "reindex": Reindex,
    "decode": Decode,
    "decode-two-columns": lambda log: Decode(log, columns=["offset", "timestamp"]),
    "decode-views": lambda log: Decode(log, binary_view=True),
    "to-arrow-threads": lambda log: ToArrow(log, 2),
    "to-arrow-one": lambda log: ToArrow(log, 1),
    "verify-threads": lambda log: VerifyLog(log, 2),
    "verify-one": lambda log: VerifyLog(log, 1),
    "latest": lambda log: Latest(log, 1),
    "cat-parquet-threads": lambda log: CatParquet(log, 2),
    "cat-parquet-one": lambda log: CatParquet(log, 1),
    "lookup-offset": lambda log, targets: Lookup(
        log.with_suffix(".index"), offset_index, targets
    ),
    "lookup-time": lambda log, targets: Lookup(log.with_suffix(".timeindex"), time_index, targets),
    "append": Append,
    "find-time": FindTime,
    "find-times": lambda log, targets: FindTime(log, targets, at_once=True),
    "find-time-store": FindTimeInStore,
    "cat-json": CatJson,
    "verify": Verify,
    "dry-run": ReindexCommand,
    "open": Open,
    "open-unclean": Open,
    "serve-start": ServeStart,
    "replay": Replay,
    "replay-snapshot": lambda log: Replay(log, is_snapshot=True),
    "crc": Crc,
}


def _cpu() -> float:
    """CPU time so far, including child processes that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def _time(measure: Measure) -> dict[str, float]:
    if isinstance(measure, Append):
        measure.prepare()
    wall, cpu = time.perf_counter(), _cpu()
    answer = measure.round()
    cpu, wall = _cpu() - cpu, time.perf_counter() - wall
    return {"cpu": cpu, "wall": wall, "sum": answer}


def main() -> None:
    name, *paths = sys.argv[1:]
    measure = MEASURES[name](*map(Path, paths))
    for line in sys.stdin:
        answer = measure.check() if line == "check\n" else _time(measure)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
