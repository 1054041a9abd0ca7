"""Each job that alters a directory, on a small store: the initial state and the plan."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from changes.small_store import MTIME_NS, Contents, tree
from kafkastore.migration import plan as plan_migration
from kafkastore.migration import plan_convert, plan_restore, survey
from models import metadata_directory as made
from models.log_directory import Log, Segment
from models.record_format import Batch, Row
from models.record_strategies import in_a_row

from kafkastore.changes.plan import Plan
from kafkastore.checks.reindex import plan_reindex
from kafkastore.checks.repair import OnCorruptLog, plan_repair

INDEX_INTERVAL_BYTES = 100


@dataclass(frozen=True)
class Job:
    """A plan, and the files before and after it.

    Parameters
    ----------
    top : Path
        The disk: the root and, next to it, the undo area.
    """

    top: Path
    plan: Plan
    before: Contents

    @property
    def root(self) -> Path:
        return Path(self.plan.root)


def _batches(magic: int, count: int, *, timestamps: bool = True) -> list[Batch]:
    return in_a_row(
        [
            Batch((Row(0, 100 + slot if timestamps else -1, b"k", b"v" * 20),), magic=magic)
            for slot in range(count)
        ]
    )


def _old_store(root: Path) -> None:
    """Write segments with and without timestamps, and no time index."""
    with_times, without = _batches(1, 6), _batches(0, 12, timestamps=False)[6:9]
    last = _batches(1, 12)[9:]
    segments = [
        Segment(base, tuple(batches)).indexed(interval=INDEX_INTERVAL_BYTES)
        for base, batches in ((0, with_times), (6, without), (9, last))
    ]
    Log(tuple(segments), is_clean=True).write(root)
    for path in root.rglob("*.timeindex"):
        path.unlink()


def _new_store(root: Path) -> Path:
    """Write three segments of five batches; return the partition."""
    batches = _batches(2, 15)
    segments = [
        Segment(base, tuple(batches[base : base + 5])).indexed(interval=INDEX_INTERVAL_BYTES)
        for base in (0, 5, 10)
    ]
    Log(tuple(segments), is_clean=True).write(root)
    return root / "t-0"


def _damage(path: Path, batch: int) -> None:
    size = len(_batches(2, 1)[0].data)
    data = bytearray(path.read_bytes())
    data[batch * size + 70] ^= 0x55
    path.write_bytes(data)


def _migrate(mode: str, entry_offset: str = "next") -> Callable[[Path], Plan]:
    def make(root: Path) -> Plan:
        _old_store(root)
        _age(root)
        surveyed = survey(root, index_interval_bytes=INDEX_INTERVAL_BYTES)
        return plan_migration(surveyed, mode, entry_offset=entry_offset)

    return make


def _reindex(root: Path) -> Plan:
    partition = _new_store(root)
    (partition / f"{0:020}.index").unlink()
    (partition / f"{5:020}.timeindex").write_bytes(bytes(120))
    (partition / f"{10:020}.index").write_bytes(b"")
    _age(root)
    return reindexed(root)


def reindexed(root: Path) -> Plan:
    """Plan to rebuild indexes, up to where a log is corrupt."""
    return plan_reindex(root, "2.4", index_interval_bytes=INDEX_INTERVAL_BYTES, up_to_damage=True)


def _repair(on_corrupt: OnCorruptLog, *places: tuple[int, int]) -> Callable[[Path], Plan]:
    def make(root: Path) -> Plan:
        partition = _new_store(root)
        for base_offset, batch in places:
            _damage(partition / f"{base_offset:020}.log", batch)
        _age(root)
        return plan_repair(
            root, "2.4", on_corrupt=on_corrupt, index_interval_bytes=INDEX_INTERVAL_BYTES
        )

    return make


def _repair_topic_ids(root: Path) -> Plan:
    """Plan to write a missing topic id, and one that can't be read, from the metadata."""
    partition = _new_store(root)
    other = shutil.copytree(partition, partition.with_name("t-1"))
    (other / "partition.metadata").write_text("version: 0\n")
    _age(root)
    with TemporaryDirectory() as elsewhere:
        metadata = Path(elsewhere, "__cluster_metadata-0")
        partitions = [made.partition(number, replicas=(0,)) for number in (0, 1)]
        made.write_log(metadata, [made.topic("t"), *partitions])
        return plan_repair(root, metadata=metadata)


def _convert(root: Path) -> Plan:
    _old_store(root)
    _age(root)
    return plan_convert(root, "gzip", index_interval_bytes=INDEX_INTERVAL_BYTES, untimed="mtime")


def _restore(root: Path) -> Plan:
    source = root.parent.with_name(f"{root.parent.name}-source") / root.name
    _old_store(source)
    (source / "log-start-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    Log((Segment(0, ()).indexed(interval=INDEX_INTERVAL_BYTES),), is_clean=True).write(root)
    (root / "log-start-offset-checkpoint").write_text("0\n0\n")
    _age(root)
    return plan_restore(source, root, index_interval_bytes=INDEX_INTERVAL_BYTES)


def _restore_into_new_directories(root: Path) -> Plan:
    """Plan to restore two partitions whose directories are missing, next to another one."""
    source = root.parent.with_name(f"{root.parent.name}-source") / root.name
    _old_store(source)
    (source / "log-start-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    shutil.copytree(source / "t-0", source / "t-1")
    partition = _new_store(root)
    partition.rename(partition.with_name("t-2"))
    (root / "t-2" / "partition.metadata").write_text(f"version: 0\ntopic_id: {made.TOPIC_ID}")
    _age(root)
    return plan_restore(source, root, index_interval_bytes=INDEX_INTERVAL_BYTES)


def _age(root: Path) -> None:
    """Give every file a different modification time and mode."""
    for number, path in enumerate(sorted(root.rglob("*"))):
        if path.is_file():
            os.chmod(path, 0o640 if number % 2 else 0o604)
            os.utime(path, ns=(MTIME_NS + number, MTIME_NS + number))


JOBS: dict[str, Callable[[Path], Plan]] = {
    "migrate auto": _migrate("auto"),
    "migrate kip-33": _migrate("kip-33"),
    "migrate kip-33 first": _migrate("kip-33", "first"),
    "migrate empty": _migrate("empty"),
    "reindex": _reindex,
    # In the middle of a segment the rest becomes a new one; at its start it is renamed.
    "repair skip": _repair("skip", (5, 2)),
    "repair skip from a later batch": _repair("skip", (5, 0)),
    # The log is truncated there, and the next segment is removed.
    "repair truncate": _repair("truncate", (5, 2)),
    "repair topic ids": _repair_topic_ids,
    "convert": _convert,
    "restore": _restore,
    "restore into new directories": _restore_into_new_directories,
}


def make(name: str, top: Path) -> Job:
    """Write a job's store below `top`, and plan the job."""
    root = top / "kafka-logs"
    plan = JOBS[name](root)
    assert plan.changes
    return Job(top, plan, tree(root))


def changed_by_tasks(root: Path) -> int:
    """Return how many files the tasks of a running change have changed so far."""
    found = 0
    # Their folder is removed when the change is complete, perhaps during this search.
    with suppress(FileNotFoundError):
        for path in root.parent.glob("*undo*/parts-*/*.jsonl"):
            found += path.read_bytes().count(b"changed")
    return found
