"""Log directories by the writer, with a partition for each way to create a segment."""

from types import SimpleNamespace

from models.written_log import UnsyncedFileSystem

import kafkastore
from kafkastore import Record, TimestampType
from kafkastore.formats.records.compression import Codec
from kafkastore.formats.records.record_builder import build_batch, build_end_transaction_marker
from kafkastore.writing.log_dir_writer import LogDirWriter

FIRST_TIMESTAMP = 1_600_000_000_000
#: Defaults of each topic; brokers get the same interval.
DENSE = {"segment.bytes": 3000, "index.interval.bytes": 200}


class Clock:
    """A wall clock that a test sets."""

    def __init__(self, now=FIRST_TIMESTAMP):
        self.now = now

    def __call__(self):
        return self.now


def new_record(timestamp, key=b"key", value=b"value", headers=()):
    return SimpleNamespace(timestamp=timestamp, key=key, value=value, headers=headers)


def new_records(count, *, first=FIRST_TIMESTAMP, step=100, size=60):
    """Records whose timestamps sometimes decrease."""
    return [
        new_record(
            first + number * step - (450 if number % 7 == 3 else 0),
            b"k%d" % (number % 13),
            (b"value %d " % number) * (size // 8),
            (("h", b"%d" % number), ("none", None)) if number % 5 == 0 else (),
        )
        for number in range(count)
    ]


def batch_of(offset, timestamps, **fields):
    """One batch, as a leader made it."""
    records = [
        Record(offset + number, stamp, TimestampType.CREATE_TIME, b"k", b"v" * 50, (), None)
        for number, stamp in enumerate(timestamps)
    ]
    return build_batch(records, **fields)


ONE = len(batch_of(0, [FIRST_TIMESTAMP]))


def append_one(writer, timestamp=-1, **fields):
    return writer.append(batch_of(0, [timestamp]), **fields)


def read(writer):
    return kafkastore.open(writer.path)


def segments(writer):
    writer.flush()  # index entries are written in portions
    (log,) = read(writer)
    return log.segments


def offsets(writer):
    (log,) = read(writer)
    return [record.offset for record in log.records()]


def append_one_at(writer, offset, epoch=0):
    batch = batch_of(offset, [FIRST_TIMESTAMP], leader_epoch=epoch)
    return writer.append(batch, as_follower=True)


class TransactionalProducer:
    """One that writes transactions of small batches."""

    def __init__(self, writer, producer_id):
        self._writer, self._id, self._sequence = writer, producer_id, 0

    def send(self, *timestamps):
        batch = batch_of(
            0,
            timestamps,
            producer_id=self._id,
            producer_epoch=0,
            base_sequence=self._sequence,
            is_transactional=True,
        )
        self._sequence += len(timestamps)
        return self._writer.append(batch)

    def end(self, timestamp, *, is_commit):
        marker = build_end_transaction_marker(
            0, timestamp, self._id, 0, is_commit=is_commit, coordinator_epoch=0
        )
        return self._writer.append(marker)


def write_transactions(writer):
    """Commits, aborts, interleaved and over several segments, one left open."""
    first, second, third = (TransactionalProducer(writer, number) for number in (7, 8, 9))
    stamp = FIRST_TIMESTAMP
    for turn in range(12):
        for producer in (first, second):
            producer.send(stamp, stamp + 1)
            stamp += 10
        if turn % 3 == 0:
            writer.append_records([new_record(stamp)])
        first.end(stamp + 1, is_commit=turn % 2 == 0)
        if turn % 4 == 3:
            second.end(stamp + 2, is_commit=turn % 8 == 3)
        stamp += 50
    third.send(stamp)
    writer.append_records([new_record(stamp + 1)])


def write_everything(root, version):
    """Write a log directory, with a clean shutdown; return the partitions' names."""
    clock = Clock()
    with LogDirWriter(root, version, clock=clock, fs=UnsyncedFileSystem()) as log_dir:

        def topic(name, **options):
            config = DENSE | {option.replace("_", "."): value for option, value in options.items()}
            return log_dir.writer(name, 0, config)

        for codec in Codec:
            writer = topic(f"codec.{codec.name.lower()}")
            writer.append_records(new_records(200), batch_bytes=400, codec=codec)
        writer = topic("recompressed", compression_type="zstd")
        for number in range(40):
            stamps = [FIRST_TIMESTAMP + 9 * number + each for each in range(9)]
            writer.append(batch_of(0, stamps, codec=Codec(number % len(Codec))))
        topic("empty")
        writer = topic("by.time", segment_ms=1000, segment_jitter_ms=300)
        writer.append_records(new_records(100), batch_bytes=150)
        writer = topic("by.clock", segment_ms=1000)
        for number in range(12):
            clock.now += 400
            writer.append_records([new_record(-1, value=b"%d" % number)])
        clock.now = FIRST_TIMESTAMP + 10_000_000
        topic("by.index", segment_index_bytes=48).append_records(new_records(150), batch_bytes=150)
        writer = topic("by.overflow")
        for offset in (0, 5, 2**31 + 4, 2**31 + 9, 2**33):
            writer.append(batch_of(offset, [FIRST_TIMESTAMP + offset % 1000]), as_follower=True)
        writer = topic("append.time", message_timestamp_type="LogAppendTime")
        for number in range(40):
            clock.now += 70 if number % 5 else -20
            writer.append_records(new_records(3), leader_epoch=number // 10)
        writer = topic("follower")
        offset = 0
        for epoch in range(6):
            batches = b""
            for _ in range(4):
                stamps = [FIRST_TIMESTAMP + offset, FIRST_TIMESTAMP + offset - 5]
                batches += batch_of(offset, stamps, leader_epoch=epoch)
                offset += 3
            writer.append(batches, as_follower=True)
        writer = topic("truncated")
        writer.append_records(new_records(120), batch_bytes=300)
        writer.truncate_to(50)
        writer.append_records(new_records(60, first=FIRST_TIMESTAMP + 99), leader_epoch=2)
        topic("preallocated", preallocate=True).append_records(new_records(90), batch_bytes=300)
        write_transactions(topic("transactions", segment_bytes=1500))
    return sorted(path.name for path in root.iterdir() if path.is_dir())
