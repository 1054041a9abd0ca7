"""Small log directories with groups in them, written by `LogDirWriter`."""
from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

from models.internal_topics import (
    pack_key,
    pack_offset_commit_key,
    pack_offset_commit_value,
    pack_value,
)
from models.written_log import UnsyncedFileSystem

from kafkastore import LogDirWriter
from kafkastore.formats.records.record_builder import build_batch, build_end_transaction_marker
from kafkastore.formats.topics.consumer_offsets import (
    OffsetAndMetadata,
    OffsetCommitKey,
)
from kafkastore.formats.topics.share_group_state import RECORDS as SHARE_RECORDS

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


def share_state(group, topic_id, partition, start_offset, *batches, **fields):
    """Return a snapshot of ``__share_group_state``; a batch is first, last, state and count."""
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    value = pack_value(
        SHARE_RECORDS, 0, 0, snapshot_epoch=0, state_epoch=0, leader_epoch=0,
        start_offset=start_offset, create_timestamp=T0, write_timestamp=T0,
        state_batches=[dict(zip(names, each, strict=True)) for each in batches], **fields,
    )
    key = pack_key(SHARE_RECORDS, 0, group_id=group, topic_id=topic_id, partition=partition)
    return record(T0, value, key)


def set_topic_id(directory, topic_id):
    """Write the ``partition.metadata`` of a partition."""
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")


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
