"""A log as a list of batches, to compare with a `LogWriter` under random steps and crashes."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import NamedTuple

from kafkastore import KafkaStoreError
from kafkastore.fs import FileSystem


class UnsyncedFileSystem(FileSystem):
    """A file system without syncs: the test chooses which bytes a crash keeps."""

    def fsync(self, descriptor):
        pass

    def fsync_directory(self, path, **where):
        pass


class ModelBatch(NamedTuple):
    """One batch."""

    offsets: tuple[int, ...]
    timestamps: tuple[int, ...]


class ModelLog:
    """The batches in the files, and the offsets between which records are seen."""

    def __init__(self):
        self.batches = []
        self.start = self.end = 0
        self.flushed = 0  # batches that no crash removes

    def append(self, batch):
        self.batches.append(batch)
        self.end = batch.offsets[-1] + 1

    def truncate_to(self, offset):
        if offset >= self.end:
            return
        self.batches = [batch for batch in self.batches if batch.offsets[-1] < offset]
        self.flushed = min(self.flushed, len(self.batches))
        self.end, self.start = offset, min(self.start, offset)

    def begin_at(self, base_offset):
        """Remove the segments before an offset."""
        deleted_count = sum(batch.offsets[-1] < base_offset for batch in self.batches)
        del self.batches[:deleted_count]
        self.flushed = max(0, self.flushed - deleted_count)
        self.start = max(self.start, base_offset)

    def records(self):
        return [
            (offset, timestamp)
            for batch in self.batches
            for offset, timestamp in zip(batch.offsets, batch.timestamps, strict=True)
            if offset >= self.start
        ]

    def offset_for_timestamp(self, target):
        return next(((t, o) for o, t in self.records() if t >= target), None)

    def in_segments(self, base_offsets):
        """Largest timestamp of each segment, and whether it has records."""
        ends = [*base_offsets[1:], 1 << 63]
        for base, end in zip(base_offsets, ends, strict=True):
            stamps = [
                stamp
                for batch in self.batches
                if base <= batch.offsets[0] < end
                for stamp in batch.timestamps
            ]
            yield max(stamps, default=None)


def abandon(log_dir):
    """Abandon a writer as a killed process does: the kernel closes its files."""
    for writer in log_dir.writers.values():
        with suppress(OSError, KafkaStoreError):
            writer._log.local.close_files()
    log_dir._lock.close()


def log_sizes(partition):
    return {path.name: path.stat().st_size for path in partition.glob("*.log")}


def lose_what_was_not_flushed(partition, flushed_sizes, rng: random.Random):
    """Lose power: each log keeps its flushed bytes, and some of those after them."""
    logs = sorted(partition.glob("*.log"))
    created = [path for path in logs if path.name not in flushed_sizes]
    # Directory entries are lost from the last on.
    for path in created[rng.randint(0, len(created)) :] if rng.random() < 0.3 else ():
        for suffix in rng.sample((".log", ".index", ".timeindex", ".txnindex"), 4):
            if suffix == ".log" or rng.random() < 0.5:
                path.with_suffix(suffix).unlink(missing_ok=True)
    for path in partition.glob("*.log"):
        flushed, size = flushed_sizes.get(path.name, 0), path.stat().st_size
        if size > flushed and rng.random() < 0.7:
            kept = rng.randint(flushed, size)
            with path.open("r+b") as file:
                file.truncate(kept)
                if rng.random() < 0.3:
                    file.truncate(size)  # the size was durable, the bytes were not
        for suffix in (".index", ".timeindex") if size > flushed else ():
            index = path.with_suffix(suffix)
            if index.exists() and rng.random() < 0.3:
                content = bytearray(index.read_bytes())
                at = rng.randint(0, len(content))
                content[at:] = bytes(len(content) - at)
                index.write_bytes(content)
