"""Small log directories with groups in them, written by `LogDirWriter`."""
from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

from models.internal_topics import pack_offset_commit_key, pack_offset_commit_value
from models.written_log import UnsyncedFileSystem

from kafkastore import LogDirWriter
from kafkastore.formats.records.record_builder import build_batch, build_end_transaction_marker
from kafkastore.formats.topics.consumer_offsets import (
    OffsetAndMetadata,
    OffsetCommitKey,
)

T0 = 1_600_000_000_000


def record(timestamp, value=b"v", key=b"k", headers=(), offset=0):
    return SimpleNamespace(
        timestamp=timestamp, key=key, value=value, headers=headers, offset=offset
    )


def commit(group, topic, partition, offset, version=3):
    """Return a record of ``__consumer_offsets``; a tombstone if the offset is None."""
    value = None
    if offset is not None:
        value = pack_offset_commit_value(OffsetAndMetadata(offset, "", T0), version)
    return record(T0, value, pack_offset_commit_key(OffsetCommitKey(group, topic, partition)))


class Writer:
    """Appends records, transactions and markers to one partition."""

    def __init__(self, log):
        self.log = log
        self._sequences = {}

    def add(self, *records, **options):
        self.log.append_records(records, **options)

    def send(self, producer, *records):
        """Append records within a producer's transaction."""
        sequence = self._sequences.get(producer, 0)
        placed = [
            record(each.timestamp, each.value, each.key, each.headers, number)
            for number, each in enumerate(records)
        ]
        self._sequences[producer] = sequence + len(records)
        self.log.append(
            build_batch(
                placed,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
        )

    def end(self, producer, *, is_commit, timestamp=T0):
        self.log.append(
            build_end_transaction_marker(
                0, timestamp, producer, 0, is_commit=is_commit, coordinator_epoch=0
            )
        )


@contextmanager
def written(root, **options):
    """Yield a function that opens a partition for writing; all have a clean shutdown."""
    opened = {}
    with LogDirWriter(root, "3.9", fs=UnsyncedFileSystem(), **options) as log_dir:

        def open_partition(topic, partition=0, **config):
            if (topic, partition) not in opened:
                named = {name.replace("_", "."): value for name, value in config.items()}
                opened[topic, partition] = Writer(log_dir.writer(topic, partition, named))
            return opened[topic, partition]

        yield open_partition
