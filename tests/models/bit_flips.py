"""Flips single bits of a log directory, and collects all answers, slowly.

`cut_out` makes a small private log directory of one real partition. `bytes_of` names the field that
each byte of a file is in, from Kafka 2.4.0 ``DefaultRecordBatch``, ``LegacyRecord``,
``OffsetIndex``, ``TimeIndex``, ``TransactionIndex``. `Answers` is what readers and brokers make of
the directory.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import NamedTuple

import kafkastore
from kafkastore.errors import KafkaStoreError
from kafkastore.recovery.log_recovery import recover_log
from kafkastore.segment import index_trust
from kafkastore.store import partition_path

CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
)
MARKER = ".kafka_cleanshutdown"

#: Fields in the order of their bytes: name, size.
HEADS = {
    0: (("offset", 8), ("length", 4), ("crc", 4), ("magic", 1), ("attributes", 1)),
    1: (("offset", 8), ("length", 4), ("crc", 4), ("magic", 1), ("attributes", 1),
        ("timestamp", 8)),
    2: (("base_offset", 8), ("length", 4), ("partition_leader_epoch", 4), ("magic", 1), ("crc", 4),
        ("attributes", 2), ("last_offset_delta", 4), ("base_timestamp", 8), ("max_timestamp", 8),
        ("producer_id", 8), ("producer_epoch", 2), ("base_sequence", 4), ("count", 4)),
}
#: The words of a line of a small text file; its first two lines are its version and a count.
LINES = {
    "leader-epoch-checkpoint": ("epoch", "start_offset"),
    "recovery-point-offset-checkpoint": ("topic", "partition", "recovery_point"),
    "replication-offset-checkpoint": ("topic", "partition", "high_watermark"),
    "log-start-offset-checkpoint": ("topic", "partition", "log_start_offset"),
}
#: The first byte of a batch that its checksum covers.
GUARDED_FROM = {0: 18, 1: 18, 2: 21}
ENTRIES = {
    ".index": (("relative_offset", 4), ("position", 4)),
    ".timeindex": (("timestamp", 8), ("relative_offset", 4)),
    ".txnindex": (("version", 2), ("producer_id", 8), ("first_offset", 8), ("last_offset", 8),
                  ("last_stable_offset", 8)),
}
RULES = ("correct", "2.4", "3.9", "4.1")
EXTREMES = (-(2**63), -1, 0, 1, 2**63 - 1)


class Byte(NamedTuple):
    """The place of a bit, the field it is in, and whether it is one of many alike.

    Those are what a checksum covers, zeros set aside in an index, and the letters of a topic id.
    """

    position: int
    format: str
    field: str
    is_one_of_many: bool


def cut_out(logs, partition, destination, *, state="clean", first_segment=0):
    """Copy one partition with its broker's checkpoints: the log directory, or the partition alone.

    `state` "unclean": without the marker; "alone": the partition directory by itself.
    `first_segment`: those of lower base offsets are left out, as if retention had deleted them.
    """
    destination.mkdir(parents=True)
    shutil.copytree(logs / partition, destination / partition)
    for path in (destination / partition).glob("*.*"):
        if path.stem.isdigit() and int(path.stem) < first_segment:
            path.unlink()
    if state == "alone":
        return destination / partition
    topic, _, number = partition.rpartition("-")
    for name in CHECKPOINTS:
        if (logs / name).exists():
            lines = [line for line in (logs / name).read_text().splitlines()[2:]
                     if line.split()[:2] == [topic, number]]
            (destination / name).write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    for name in (MARKER, "meta.properties"):
        if (logs / name).exists() and not (name == MARKER and state == "unclean"):
            shutil.copy2(logs / name, destination / name)
    return destination


def files_of(root):
    """The files whose bits are flipped, by name."""
    return sorted(
        path for path in root.rglob("*")
        if path.is_file() and path.name not in (MARKER, "meta.properties")
    )


def bytes_of(path):
    """Name each byte of a file."""
    data = path.read_bytes()
    if path.suffix == ".log":
        return [byte for at, magic, size in batches(data) for byte in _of_batch(at, magic, size)]
    if path.suffix in ENTRIES:
        names = _names(ENTRIES[path.suffix])
        size = len(names)
        used = -(-len(data.rstrip(b"\0")) // size) * size
        return [
            Byte(at, path.suffix, names[at % size], at >= used + size) for at in range(len(data))
        ]
    if path.suffix == ".snapshot":
        names = _names((("version", 2), ("crc", 4))) + ["producers"] * len(data)
        return [Byte(at, ".snapshot", names[at], at >= 6) for at in range(len(data))]
    return [
        Byte(at, path.name, name, path.name == "partition.metadata")
        for at, name in enumerate(_of_text(path.name, data))
    ]


def batches(data):
    """(position, magic, size) of each batch of a log."""
    at = 0
    while at < len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if size < 26:
            return    # zeros that were set aside
        yield at, data[at + 16], size
        at += size


def offsets_of(data):
    """(position, first offset, last offset) of each batch; of a wrapper the last one twice."""
    for at, magic, _ in batches(data):
        base = int.from_bytes(data[at : at + 8], "big", signed=True)
        delta = int.from_bytes(data[at + 23 : at + 27], "big", signed=True) if magic == 2 else 0
        yield at, base, base + delta


def _of_batch(at, magic, size):
    names = _names(HEADS[magic])
    names += ["records"] * (size - len(names))
    return [
        Byte(at + i, f"v{magic}", name, i >= GUARDED_FROM[magic]) for i, name in enumerate(names)
    ]


def _of_text(name, data):
    """Name each byte of a small text file, by lines and words."""
    lines = data.decode().splitlines(keepends=True)
    for at, line in enumerate(lines):
        if name in LINES:
            words = ("version",) if at == 0 else ("count",) if at == 1 else LINES[name]
        else:
            words = ("name", "version" if at == 0 else "topic_id")
        word = 0
        for letter in line:
            word += letter == " "
            is_end = letter == "\n"
            yield "last_line_end" if is_end and at == len(lines) - 1 else (
                "separator" if letter in " \n" else words[word]
            )


def _names(fields):
    return [name for name, size in fields for _ in range(size)]


class OpenFile:
    """A file in which bits are flipped, and restored, with its modification time kept."""

    def __init__(self, path):
        self.path = path
        self.data = path.read_bytes()
        self._times = path.stat().st_atime_ns, path.stat().st_mtime_ns
        self._descriptor = os.open(path, os.O_RDWR)

    @contextmanager
    def flipped(self, position, bit):
        """Flip one bit within the block."""
        self._put(position, self.data[position] ^ (1 << bit))
        try:
            yield
        finally:
            self._put(position, self.data[position])

    def _put(self, position, value):
        os.pwrite(self._descriptor, bytes([value]), position)
        os.utime(self.path, ns=self._times)
        # By size and modification time the file is the same.
        index_trust._cache.clear()
        partition_path._log_dir.cache_clear()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        os.close(self._descriptor)


class Answers:
    """Results of readers and brokers for a log directory of one partition, or the errors' texts."""

    def __init__(self, root, times):
        self.root, self.times = root, times

    def given(self):
        """(question, answer), the quick ones first."""
        store = kafkastore.open(self.root)
        (log,) = store.partitions.values()
        yield "bounds", _result_of(lambda: (
            log.log_start_offset, log.log_end_offset, log.last_stable_offset,
            log.checkpointed_high_watermark,
        ))
        yield "epochs", _result_of(lambda: log.leader_epochs)
        yield "batches", _result_of(lambda: [batch.header.tobytes() for batch in log.batches()])
        for isolation in ("read_uncommitted", "read_committed"):
            yield f"records {isolation}", _result_of(lambda isolation=isolation: [
                tuple(record) for record in log.records(isolation=isolation, include_control=True)
            ])
        # A new time could split others: it counts as a change.
        yield "times", _result_of(lambda: times_of_interest(self.root))
        yield "log end by the index", _result_of(lambda: log_end_by_index(log))
        yield "aborted", _result_of(lambda: aborted_transactions(log))
        for segment in log.segments:
            for offset in range(segment.base_offset, segment.next_offset + 2):
                yield f"position of {offset}", _result_of(
                    lambda segment=segment, offset=offset: segment.translate_offset(offset)
                )
        for rules in RULES:
            yield f"times by {rules}", _result_of(
                lambda rules=rules: log.offsets_for_timestamps(self.times, rules).tolist()
            )
            for special in (-1, -2, -3):
                yield f"{special} by {rules}", _result_of(
                    lambda rules=rules, special=special: log.list_offset(special, rules)
                )
        for version in RULES[1:]:
            yield f"start of {version}", _result_of(lambda version=version: start_of(log, version))

    def first_difference(self, before):
        """The first question whose answer has changed; None if none has."""
        given = self.given()
        for question, answer in before:
            if next(given, None) != (question, answer):
                return question
        return next(given, (None,))[0]


def times_of_interest(root):
    """Each timestamp in a log, those just before and after it, and extremes."""
    (log,) = kafkastore.open(root).partitions.values()
    found = {record.timestamp for record in log.records(include_control=True)}
    found |= {int(batch.header["max_timestamp"].item()) for batch in log.batches()}
    for segment in log.segments:
        found.add(segment.last_modified_ms)
        if segment.time_index is not None:
            found |= {int(entry["timestamp"]) for entry in segment.time_index.entries()}
    near = {time + step for time in found for step in (-1, 0, 1)} | set(EXTREMES)
    return sorted(time for time in near if -(2**63) <= time < 2**63)


def log_end_by_index(log):
    """The log end that a broker takes after a clean shutdown.

    It reads from the last offset in the index on; where nothing is, the segment counts as empty.
    Source: Kafka 2.4.0 ``LogSegment.readNextOffset``.
    """
    segment = log.segments[-1]
    entries = [] if segment.offset_index is None else segment.offset_index.entries()
    if not log.is_clean or not len(entries):
        return None
    offsets = [last for _, _, last in offsets_of(segment.log_path.read_bytes())]
    return offsets[-1] + 1 if offsets[-1] >= entries[-1]["offset"] else segment.base_offset


def aborted_transactions(log):
    """The aborted transactions that consumers of committed records get, by start offset.

    Source: Kafka 2.4.0 ``Log.collectAbortedTransactions``.
    """
    found = []
    for at, segment in enumerate(log.segments):
        for offset in range(segment.base_offset, segment.next_offset):
            aborted = []
            for each in log.segments[at:]:
                result = each.transaction_index.collect_aborted_txns(offset, segment.next_offset)
                # A start before the range that is read makes no difference to the consumer.
                aborted += [(int(txn["producer_id"]), max(int(txn["first_offset"]), offset))
                         for txn in result.aborted_txns]
                if result.is_complete:
                    break
            found.append(aborted)
    return found


def start_of(log, version):
    """The state of a broker after it loaded the partition."""
    loaded = recover_log(log, version)
    segments = [(segment.base_offset, segment.size) for segment in loaded.segments]
    producers = loaded.producers
    return (
        segments, loaded.log_start_offset, loaded.log_end_offset, loaded.leader_epochs,
        sorted(loaded.deleted), dict(loaded.cut),
        producers.entries().tolist(), producers.first_undecided_offset,
    )


def _result_of(question):
    try:
        return question()
    except (KafkaStoreError, OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
