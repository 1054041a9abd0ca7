"""A log directory written from batches: segments, indexes in every state, marker files."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from models.record_format import Batch
from models.segment_indexes import (
    appended_entries,
    pack_offset_entries,
    pack_time_entries,
    recovered_entries,
)

TOPIC_PARTITION = "t-0"


@dataclass(frozen=True)
class Segment:
    """A segment and the bytes of its indexes; None if the file is missing."""

    base_offset: int
    batches: tuple[Batch, ...]
    modified_ms: int = 1_600_000_000_000
    offset_index: bytes | None = b""
    time_index: bytes | None = b""
    tail: bytes = b""

    @property
    def log(self):
        return b"".join(batch.data for batch in self.batches) + self.tail

    @property
    def placed(self):
        """[(position, batch)]."""
        found, position = [], 0
        for batch in self.batches:
            found.append((position, batch))
            position += len(batch.data)
        return found

    def indexed(self, *, interval=0, batches_a_set=1, from_batch=0, **style):
        """The same segment with the indexes that a leader gave it.

        With `from_batch` the indexes were rebuilt when the log already had so many batches, as
        brokers do for a segment whose time index is missing.
        """
        sets = []
        for first in range(from_batch, len(self.batches), batches_a_set):
            placed = self.placed[first : first + batches_a_set]
            size = sum(len(batch.data) for _, batch in placed)
            sets.append((placed[0][0], size, [batch for _, batch in placed]))
        offset_entries, time_entries = appended_entries(sets, interval, **style)
        return replace(
            self,
            offset_index=pack_offset_entries(offset_entries, self.base_offset),
            time_index=pack_time_entries(time_entries, self.base_offset),
        )

    def recovered(self, interval=4096):
        """The same segment with the indexes that recovery makes."""
        offset_entries, time_entries = recovered_entries(
            [(at, batch.last_offset, batch.max_timestamp) for at, batch in self.placed], interval
        )
        return replace(
            self,
            offset_index=pack_offset_entries(offset_entries, self.base_offset),
            time_index=pack_time_entries(time_entries, self.base_offset),
        )

    def write(self, directory):
        stem = directory / f"{self.base_offset:020}"
        stem.with_suffix(".log").write_bytes(self.log)
        for suffix, data in ((".index", self.offset_index), (".timeindex", self.time_index)):
            if data is not None:
                stem.with_suffix(suffix).write_bytes(data)
        os.utime(stem.with_suffix(".log"), ns=(self.modified_ms * 1_000_000,) * 2)


@dataclass(frozen=True)
class Log:
    """A partition's segments, and its entries in the log directory's files."""

    segments: tuple[Segment, ...]
    is_clean: bool = False
    checkpointed_start: int | None = None
    recovery_point: int | None = None

    @property
    def start_offset(self):
        first = self.segments[0].base_offset
        return max(first, self.checkpointed_start or 0)

    @property
    def batches(self):
        return [batch for segment in self.segments for batch in segment.batches]

    def records(self, *, include_control=False):
        """The records from the log start on: tuples as `kafkastore.Record`."""
        return [
            record
            for batch in self.batches
            if include_control or not batch.is_control
            for record in batch.records
            if record[0] >= self.start_offset
        ]

    def write(self, root, name=TOPIC_PARTITION):
        """Write the log directory, or add a partition of another name; return the root."""
        root = Path(root)
        directory = root / name
        directory.mkdir(parents=True)
        (root / "meta.properties").write_text("version=0\nbroker.id=0\n")
        for segment in self.segments:
            segment.write(directory)
        if self.is_clean:
            (root / ".kafka_cleanshutdown").touch()
        for name, offset in (
            ("log-start-offset-checkpoint", self.checkpointed_start),
            ("recovery-point-offset-checkpoint", self.recovery_point),
        ):
            if offset is not None:
                (root / name).write_text(f"0\n1\nt 0 {offset}\n")
        return root
