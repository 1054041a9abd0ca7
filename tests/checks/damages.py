"""Every kind of damage that verification finds: how to cause it, and the expected finding.

Each damage is a function that alters a copy of a golden ``log.dirs`` root. It returns the paths to
check if there are more than the root. Its row has the expected finding, and a function that repairs
the damage if the remedy is not a command.
"""
from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import kafkastore
from kafkastore.checks.findings import FindingKind
from kafkastore.formats.indexes import transaction_index
from kafkastore.formats.state import producer_snapshot
from kafkastore.formats.state.checkpoints import pack_offset_checkpoint
from kafkastore.formats.state.file_names import TopicPartition

DAY_NS = 86_400 * 10**9

INDEXES = ("2.4.0", "broken-index")
TRANSACTIONS = ("2.4.0", "transactions")
EPOCHS = ("2.4.0", "leader-epochs")
OLD = ("2.4.0", "old-formats")
KRAFT = ("4.1.1", "transactions")


@dataclass(frozen=True)
class Damage:
    """One damage.

    Attributes
    ----------
    name : str
        Name of the test case.
    case : (str, str)
        Version and name of the golden directory.
    do : callable
        Damages a copy of that directory.
    kind : FindingKind
        Kind of the expected finding.
    file : str
        Pattern of the finding's path, relative to the root.
    position : int or None
        Byte position of the finding; -1 for any.
    repair : callable or None
        Does by hand what the remedy describes; None if the remedy is a command.
    """

    name: str
    case: tuple[str, str]
    do: Callable[[Path], object]
    kind: FindingKind
    file: str
    position: int | None = None
    repair: Callable[[Path], object] | None = field(default=None)


def repair_nothing(root: Path) -> None:
    """Repair nothing: the damage needs no repair."""


def segments(root: Path, pattern: str = "broken-0/*", suffix: str = ".log") -> list[Path]:
    return sorted(root.glob(f"{pattern}{suffix}"))


def flip(path: Path, position: int, mask: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    rewrite(path, bytes(data))


def rewrite(path: Path, data: bytes) -> None:
    """Replace the bytes of a file, and keep its modification time."""
    status = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def second_file(root: Path, suffix: str, pattern: str = "broken-0/*") -> Path:
    return segments(root, pattern, suffix)[1]


def delete_file(suffix: str) -> Callable[[Path], None]:
    return lambda root: second_file(root, suffix).unlink()


def empty(suffix: str) -> Callable[[Path], None]:
    return lambda root: rewrite(second_file(root, suffix), b"")


def pad(suffix: str, entries: int, size: int) -> Callable[[Path], None]:
    def do(root: Path) -> None:
        path = second_file(root, suffix)
        rewrite(path, path.read_bytes() + bytes(entries * size))

    return do


def truncate_file(suffix: str, size: int) -> Callable[[Path], None]:
    def do(root: Path) -> None:
        path = second_file(root, suffix)
        rewrite(path, path.read_bytes() + b"\x01" * size)

    return do


def fifo(root: Path) -> None:
    path = second_file(root, ".index")
    path.unlink()
    os.mkfifo(path)


def torn_tail(root: Path, *, clean: bool) -> None:
    log, (partition,) = segments(root)[-1], kafkastore.open(root / "broken-0")
    next_offset = partition.log_end_offset.to_bytes(8, "big")
    rewrite(log, log.read_bytes() + next_offset + log.read_bytes()[8:50])
    if not clean:
        (root / ".kafka_cleanshutdown").unlink()


def garbage_tail(root: Path) -> None:
    log = segments(root)[-1]
    rewrite(log, log.read_bytes() + b"GET /index.html HTTP/1.1\r\n\r\n")
    (root / ".kafka_cleanshutdown").unlink()


def snapshot(root: Path) -> Path:
    """Return the first producer snapshot at a segment's start that has entries."""
    path = segments(root, "txn-0/*", ".snapshot")[0]
    assert len(producer_snapshot.parse(path.read_bytes()))
    return path


def other_snapshot(**fields: int) -> Callable[[Path], None]:
    def do(root: Path) -> None:
        path = snapshot(root)
        entries = producer_snapshot.parse(path.read_bytes())
        for name, value in fields.items():
            entries[0][name] += value
        rewrite(path, producer_snapshot.pack(entries))

    return do


def move_snapshot(offset: int) -> Callable[[Path], None]:
    def do(root: Path) -> None:
        path = snapshot(root)
        shutil.copy2(path, path.with_name(f"{offset:020}.snapshot"))

    return do


def epochs(*entries: tuple[int, int]) -> Callable[[Path], None]:
    def do(root: Path) -> None:
        path = root / "epochs-0" / "leader-epoch-checkpoint"
        lines = b"".join(b"%d %d\n" % each for each in entries)
        path.write_bytes(b"0\n%d\n" % len(entries) + lines)

    return do


def write(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda root: (root / name).write_bytes(data)


def remove(name: str) -> Callable[[Path], None]:
    return lambda root: (root / name).unlink()


def checkpoint(name: str, partition: tuple[str, int], offset: int) -> Callable[[Path], None]:
    lines = {TopicPartition(*partition): offset}
    return write(name, pack_offset_checkpoint(lines))


def directory(name: str) -> Callable[[Path], None]:
    return lambda root: (root / name).mkdir()


def duplicate_log_dir(root: Path) -> list[Path]:
    copy = root.with_name("twin")
    shutil.copytree(root, copy)
    (copy / "meta.properties").unlink()
    return [root, copy]


def add_log_dir(key: bytes, value: bytes) -> Callable[[Path], list[Path]]:
    """Add a second log directory without partitions, with another value of one property."""

    def do(root: Path) -> list[Path]:
        other = root.with_name("other")
        other.mkdir()
        lines = (root / "meta.properties").read_bytes().splitlines()
        lines = [key + b"=" + value if line.startswith(key + b"=") else line for line in lines]
        if key != b"directory.id":
            lines = [line for line in lines if not line.startswith(b"directory.id")]
        (other / "meta.properties").write_bytes(b"\n".join(lines))
        return [root, other]

    return do


def remove_other_log_dir(root: Path) -> None:
    shutil.rmtree(root.with_name("other"))


def age(pattern: str, days: int) -> Callable[[Path], None]:
    """Set modification times back."""

    def do(root: Path) -> None:
        for log in segments(root, pattern):
            status = log.stat()
            os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns - days * DAY_NS))

    return do


def remove_last_segments(root: Path) -> None:
    """Lose the last two segments of a partition."""
    for log in segments(root)[-2:]:
        for path in log.parent.glob(f"{log.stem}.*"):
            path.unlink()
    (root / "broken-0" / "00000000000000000100.snapshot").unlink()


def start_beyond_end(root: Path) -> None:
    checkpoint("log-start-offset-checkpoint", ("broken", 0), 500)(root)


def high_watermark_before_start(root: Path) -> None:
    checkpoint("log-start-offset-checkpoint", ("broken", 0), 50)(root)
    checkpoint("replication-offset-checkpoint", ("broken", 0), 9)(root)


def lose_aborted(root: Path) -> None:
    path = next(each for each in segments(root, "txn-0/*", ".txnindex") if each.stat().st_size)
    rewrite(path, path.read_bytes()[: -transaction_index.ENTRY_SIZE])


def open_transaction(root: Path) -> None:
    """End a log before the first marker that follows transactional records."""
    log = kafkastore.open(root)["txn-0"]
    markers = [batch.base_offset for batch in log.batches() if batch.is_control]
    begun = next(batch.base_offset for batch in log.batches() if batch.is_transactional)
    end = next(offset for offset in markers if offset > begun)
    *_, last = [each for each in log.segments if each.base_offset <= end]
    found = last.translate_offset(end)
    assert found is not None
    for path in log.path.iterdir():
        if path.name[:20].isdigit() and int(path.name[:20]) > last.base_offset:
            path.unlink()
    os.truncate(last.log_path, found.position)
    kafkastore.apply(kafkastore.plan_reindex(log.path))


def move_away(name: str) -> Callable[[Path], None]:
    def do(root: Path) -> None:
        path = next(iter(root.glob(name)))
        path.rename(root.parent / f"away-{path.name}")

    return do


def temporary_file(root: Path) -> None:
    (root / "broken-0" / "kafkastore-8a5e.00000000000000000022.timeindex.new").write_bytes(b"")


def other_topic_id(root: Path) -> None:
    write("txn-1/partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")(root)


def copy_topic_id(root: Path) -> None:
    shutil.copy(root / "txn-0" / "partition.metadata", root / "txn-1" / "partition.metadata")


def do_nothing(root: Path) -> None:
    """Do nothing: the golden directory already has the fault."""


def snapshot_of_others(root: Path) -> None:
    """Give a partition the last snapshot of another, which has unknown producers."""
    source = segments(root, "__transaction_state-0/*", ".snapshot")[-1]
    entries = producer_snapshot.parse(segments(root, "txn-0/*", ".snapshot")[-1].read_bytes())
    entries["last_offset"] = 5
    rewrite(source, producer_snapshot.pack(entries))


def damaged_swap(root: Path) -> None:
    log = second_file(root, ".log")
    data = log.read_bytes()
    swap = log.with_name(f"{log.name}.swap")
    swap.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))


CHECKPOINT_NAMES = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
ENTRIES_AT = producer_snapshot.ENTRIES_AT

DAMAGES = [
    # Segments.
    Damage(
        "index missing", INDEXES, delete_file(".index"),
        FindingKind.MISSING_OFFSET_INDEX, "broken-0/*22.index",
    ),
    Damage(
        "time index missing", INDEXES, delete_file(".timeindex"),
        FindingKind.MISSING_TIME_INDEX, "broken-0/*22.timeindex",
    ),
    Damage(
        "time index empty", INDEXES, empty(".timeindex"),
        FindingKind.EMPTY_TIME_INDEX, "broken-0/*22.timeindex",
    ),
    Damage(
        "index torn", INDEXES, truncate_file(".index", 3),
        FindingKind.INCOMPLETE_INDEX_ENTRY, "broken-0/*22.index", -1,
    ),
    Damage(
        "time index torn", INDEXES, truncate_file(".timeindex", 5),
        FindingKind.INCOMPLETE_INDEX_ENTRY, "broken-0/*22.timeindex", -1,
    ),
    Damage(
        "index false", INDEXES, lambda root: flip(second_file(root, ".index"), 7),
        FindingKind.OFFSET_INDEX_MISMATCH,
        "broken-0/*22.index", 0,
    ),
    Damage(
        "time index false", INDEXES, lambda root: flip(second_file(root, ".timeindex"), 7),
        FindingKind.TIME_INDEX_MISMATCH,
        "broken-0/*22.timeindex", -1,
    ),
    Damage(
        "time index padded", INDEXES, pad(".timeindex", 50, 12),
        FindingKind.ZERO_TIME_INDEX_ENTRIES, "broken-0/*22.timeindex", -1,
    ),
    Damage(
        "index padded", INDEXES, pad(".index", 50, 8),
        FindingKind.ZERO_OFFSET_INDEX_ENTRIES, "broken-0/*22.index", -1,
    ),
    Damage(
        "index a FIFO", INDEXES, fifo,
        FindingKind.NOT_A_FILE, "broken-0/*22.index", None, move_away("broken-0/*22.index"),
    ),
    Damage(
        "bad checksum", INDEXES, lambda root: flip(second_file(root, ".log"), 100),
        FindingKind.CHECKSUM_MISMATCH,
        "broken-0/*22.log", 0,
    ),
    Damage(
        "torn tail of a clean log", INDEXES, lambda root: torn_tail(root, clean=True),
        FindingKind.BYTES_AFTER_CLEAN_SHUTDOWN,
        "broken-0/*81.log", -1,
    ),
    Damage(
        "zeros after a clean log", INDEXES,
        lambda root: os.truncate(segments(root)[-1], 4096),
        FindingKind.BYTES_AFTER_CLEAN_SHUTDOWN, "broken-0/*81.log", 2297,
    ),
    Damage(
        "torn tail of a killed broker", INDEXES, lambda root: torn_tail(root, clean=False),
        FindingKind.INCOMPLETE_LAST_BATCH, "broken-0/*81.log", -1, repair_nothing,
    ),
    Damage(
        "garbage after a killed broker's log", INDEXES, garbage_tail,
        FindingKind.CORRUPT_BATCH, "broken-0/*81.log", 2297,
    ),
    Damage(
        "aborted transaction lost", TRANSACTIONS, lose_aborted,
        FindingKind.MISSING_ABORTED_TRANSACTIONS, "txn-0/*.txnindex",
    ),
    # Producers.
    Damage(
        "snapshot damaged", TRANSACTIONS, lambda root: flip(snapshot(root), ENTRIES_AT),
        FindingKind.CORRUPT_PRODUCER_SNAPSHOT,
        "txn-0/*.snapshot", producer_snapshot.CRC_AT,
    ),
    Damage(
        "snapshot offset too low", TRANSACTIONS, other_snapshot(last_offset=-1),
        FindingKind.PRODUCER_SNAPSHOT_MISMATCH, "txn-0/*.snapshot", -1,
    ),
    Damage(
        "snapshot offset too high", TRANSACTIONS, other_snapshot(last_offset=5000),
        FindingKind.PRODUCER_SNAPSHOT_MISMATCH,
        "txn-0/*.snapshot", ENTRIES_AT,
    ),
    Damage(
        "snapshot of another sequence", TRANSACTIONS, other_snapshot(last_sequence=1),
        FindingKind.PRODUCER_SNAPSHOT_MISMATCH,
        "txn-0/*.snapshot", -1,
    ),
    Damage(
        "snapshot of another epoch", TRANSACTIONS, other_snapshot(producer_epoch=7),
        FindingKind.PRODUCER_SNAPSHOT_MISMATCH,
        "txn-0/*.snapshot", -1,
    ),
    Damage(
        "snapshot of another partition", TRANSACTIONS, snapshot_of_others,
        FindingKind.PRODUCER_SNAPSHOT_MISMATCH,
        "__transaction_state-0/*.snapshot", ENTRIES_AT,
    ),
    Damage(
        "snapshot beyond the log", TRANSACTIONS, move_snapshot(5000),
        FindingKind.PRODUCER_SNAPSHOT_OUTSIDE_LOG,
        "txn-0/*5000.snapshot", None, repair_nothing,
    ),
    Damage(
        "open transaction", TRANSACTIONS, open_transaction,
        FindingKind.OPEN_TRANSACTIONS, "txn-0/*21.log", None, repair_nothing,
    ),
    # Leader epochs.
    Damage(
        "epochs damaged", EPOCHS, write("epochs-0/leader-epoch-checkpoint", b"0\n1\nmany 0\n"),
        FindingKind.CORRUPT_LEADER_EPOCH_CHECKPOINT, "epochs-0/leader-epoch-checkpoint", 4,
    ),
    Damage(
        "epochs out of order", EPOCHS, epochs((0, 0), (6, 12), (2, 24)),
        FindingKind.LEADER_EPOCH_MISMATCH,
        "epochs-0/leader-epoch-checkpoint", 13,
    ),
    Damage(
        "epoch begins early", EPOCHS, epochs((0, 0), (2, 6), (6, 24)),
        FindingKind.LEADER_EPOCH_MISMATCH,
        "epochs-0/leader-epoch-checkpoint", 8,
    ),
    Damage(
        "epoch begins late", EPOCHS, epochs((0, 0), (2, 18), (6, 24)),
        FindingKind.LEADER_EPOCH_MISMATCH,
        "epochs-0/leader-epoch-checkpoint", 4,
    ),
    Damage(
        "epoch without batches", EPOCHS, epochs((0, 0), (2, 12), (4, 15), (6, 24)),
        FindingKind.LEADER_EPOCH_MISMATCH,
        "epochs-0/leader-epoch-checkpoint", 13,
    ),
    Damage(
        "epoch unknown", EPOCHS, epochs((0, 0), (6, 24)), FindingKind.LEADER_EPOCH_MISMATCH,
        "epochs-0/leader-epoch-checkpoint", 4,
    ),
    Damage(
        "epoch beyond the log", EPOCHS, epochs((0, 0), (2, 12), (6, 24), (9, 5000)),
        FindingKind.LEADER_EPOCH_BEYOND_LOG_END,
        "epochs-0/leader-epoch-checkpoint", 18, repair_nothing,
    ),
    Damage(
        "first epochs lost", EPOCHS, epochs((6, 24)), FindingKind.MISSING_LEADER_EPOCH,
        "epochs-0/leader-epoch-checkpoint", 4,
        repair_nothing,
    ),
    Damage(
        "epochs lost", EPOCHS, remove("epochs-0/leader-epoch-checkpoint"),
        FindingKind.NO_LEADER_EPOCHS,
        "epochs-0/leader-epoch-checkpoint", None, repair_nothing,
    ),
    # Names.
    Damage(
        "log lost", INDEXES, lambda root: second_file(root, ".log").rename(root.parent / "lost"),
        FindingKind.LOST_LOG, "broken-0/*22.log", None,
        lambda root: (root.parent / "lost").rename(root / "broken-0" / f"{22:020}.log"),
    ),
    Damage(
        "deletion interrupted", INDEXES,
        lambda root: second_file(root, ".log").rename(root / "broken-0" / f"{22:020}.log.deleted"),
        FindingKind.INDEX_WITHOUT_LOG, "broken-0/*22.index", None, repair_nothing,
    ),
    Damage(
        "segment lost", INDEXES, lambda root: [p.unlink() for p in root.glob("broken-0/*22.*")],
        FindingKind.MISSING_OFFSETS, "broken-0", None, repair_nothing,
    ),
    Damage(
        "leftover", INDEXES, write("broken-0/00000000000000000000.log.deleted", b""),
        FindingKind.TEMPORARY_FILE,
        "broken-0/*.deleted", None, repair_nothing,
    ),
    Damage(
        "swap", INDEXES, write("broken-0/00000000000000000000.log.swap", b""),
        FindingKind.SWAP_FILE, "broken-0/*.swap", None, repair_nothing,
    ),
    Damage(
        "swap damaged", INDEXES, damaged_swap,
        FindingKind.CORRUPT_SWAP_FILE, "broken-0/*22.log.swap",
        -1, move_away("broken-0/*.swap"),
    ),
    Damage(
        "temporary file", INDEXES, temporary_file,
        FindingKind.UNFINISHED_JOB_FILE, "broken-0/kafkastore-8a5e.*.new", None, repair_nothing,
    ),
    Damage(
        "odd name", INDEXES, write("broken-0/7.log", b""),
        FindingKind.INVALID_FILE_NAME, "broken-0/7.log", None, move_away("broken-0/7.log"),
    ),
    Damage(
        "odd directory", INDEXES, directory("lost+found"),
        FindingKind.UNEXPECTED_DIRECTORY, "lost+found", None, move_away("lost+found"),
    ),
    Damage(
        "duplicate partition directory", INDEXES, directory("broken-00"),
        FindingKind.DUPLICATE_DIRECTORY, "broken-00",
        None, move_away("broken-00"),
    ),
    Damage(
        "deleted partition", INDEXES, directory(f"old-0.{'a' * 32}-delete"),
        FindingKind.IGNORED_DIRECTORY, "old-0.*", None, repair_nothing,
    ),
    Damage(
        "moved partition", INDEXES, directory(f"old-0.{'a' * 32}-future"),
        FindingKind.FUTURE_DIRECTORY, "old-0.*", None, repair_nothing,
    ),
    Damage(
        "stray partition", INDEXES, directory(f"old-0.{'a' * 32}-stray"),
        FindingKind.STRAY_DIRECTORY, "old-0.*", None, repair_nothing,
    ),
    Damage(
        "twin", INDEXES, duplicate_log_dir, FindingKind.DUPLICATE_PARTITION, "broken-0", None,
        lambda root: shutil.rmtree(root.with_name("twin")),
    ),
    # Topic ids and identities.
    Damage(
        "topic id damaged", KRAFT,
        write("txn-1/partition.metadata", b"version: 0\ntopic_id: nonsense"),
        FindingKind.CORRUPT_PARTITION_METADATA,
        "txn-1/partition.metadata", 11, copy_topic_id,
    ),
    Damage(
        "topic id lost", KRAFT, remove("txn-1/partition.metadata"), FindingKind.MISSING_TOPIC_ID,
        "txn-1/partition.metadata", None, copy_topic_id,
    ),
    Damage(
        "two topic ids", KRAFT, other_topic_id,
        FindingKind.TOPIC_ID_MISMATCH, "txn-1/partition.metadata", None, move_away("txn-1"),
    ),
    Damage(
        "identity damaged", KRAFT, write("meta.properties", b"\\u00"),
        FindingKind.CORRUPT_META_PROPERTIES, "meta.properties", -1,
        write("meta.properties", b"version=1\nnode.id=1\n"),
    ),
    Damage(
        "identity zeroed", KRAFT, write("meta.properties", bytes(90)),
        FindingKind.CORRUPT_META_PROPERTIES, "meta.properties", None,
        write("meta.properties", b"version=1\nnode.id=1\n"),
    ),
    Damage(
        "two clusters", KRAFT, add_log_dir(b"cluster.id", b"other"), FindingKind.CLUSTER_MISMATCH,
        "../other/meta.properties", None, remove_other_log_dir,
    ),
    Damage(
        "two brokers", KRAFT, add_log_dir(b"node.id", b"7"),
        FindingKind.BROKER_MISMATCH, "../other/meta.properties", None, remove_other_log_dir,
    ),
    Damage(
        "duplicate directory id", KRAFT, add_log_dir(b"directory.id", b"C8Mh_Djhkg5pqH9A7KgMSw"),
        FindingKind.DUPLICATE_DIRECTORY_ID, "../other/meta.properties", None, remove_other_log_dir,
    ),
    # Checkpoints.
    *(
        Damage(
            f"{name} damaged", INDEXES, write(name, b"0\n1\nt 0 many\n"),
            FindingKind.CORRUPT_CHECKPOINT, name, 4, move_away(name),
        )
        for name in CHECKPOINT_NAMES
    ),
    Damage(
        "start beyond the end", INDEXES, start_beyond_end,
        FindingKind.LOG_END_BELOW_LOG_START, "broken-0",
        None, move_away("log-start-offset-checkpoint"),
    ),
    Damage(
        "closed before its end", INDEXES,
        checkpoint("recovery-point-offset-checkpoint", ("broken", 0), 9),
        FindingKind.LOG_END_AFTER_CLEAN_SHUTDOWN,
        "broken-0", None,
        move_away("recovery-point-offset-checkpoint"),
    ),
    Damage(
        "recovery point beyond the end", INDEXES, remove_last_segments,
        FindingKind.RECOVERY_POINT_BEYOND_LOG_END, "broken-0", None, repair_nothing,
    ),
    Damage(
        "high watermark beyond the end", INDEXES, remove_last_segments,
        FindingKind.HIGH_WATERMARK_BEYOND_LOG_END, "broken-0", None, repair_nothing,
    ),
    Damage(
        "high watermark before the start", INDEXES,
        high_watermark_before_start, FindingKind.HIGH_WATERMARK_BELOW_LOG_START, "broken-0", None,
        repair_nothing,
    ),
    Damage(
        "lines of no partition", INDEXES,
        checkpoint("replication-offset-checkpoint", ("gone", 3), 9),
        FindingKind.UNKNOWN_PARTITIONS_IN_CHECKPOINT,
        "replication-offset-checkpoint", None,
        repair_nothing,
    ),
    Damage(
        "partition without a line", INDEXES,
        checkpoint("recovery-point-offset-checkpoint", ("gone", 3), 9),
        FindingKind.MISSING_RECOVERY_POINTS,
        "recovery-point-offset-checkpoint", None,
        repair_nothing,
    ),
    Damage(
        "partition without a high watermark", INDEXES,
        checkpoint("replication-offset-checkpoint", ("gone", 3), 9),
        FindingKind.MISSING_HIGH_WATERMARKS, "replication-offset-checkpoint", None, repair_nothing,
    ),
    # Times.
    Damage(
        "modification times lost", OLD, age("formats-0/*", 30),
        FindingKind.LOST_MODIFICATION_TIMES, "formats-0", None, age("formats-0/*", -30),
    ),
    Damage(
        "modification times lost, not needed", INDEXES, age("broken-0/*", 30),
        FindingKind.LOST_UNUSED_MODIFICATION_TIMES, "broken-0", None, repair_nothing,
    ),
    Damage(
        "records of the future", ("2.4.0", "create-time-out-of-order"), do_nothing,
        FindingKind.FUTURE_TIMESTAMP,
        "ooo-0/*.log", -1, repair_nothing,
    ),
]
