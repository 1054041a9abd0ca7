"""Batches appended to a segment one by one: kafkastore's side of ``append``."""
from __future__ import annotations

import shutil
import tempfile
import time
import zlib
from pathlib import Path

from kafkastore.formats.records.append_sets import AppendSets, keep_offsets
from kafkastore.fs import FileSystem
from kafkastore.segment.log_file import LogFile
from kafkastore.segment.segment_writer import SegmentLimits, SegmentWriter

# Kafka's defaults, and no limit to roll at.
LIMITS = SegmentLimits(
    segment_bytes=(1 << 31) - 1, roll_ms=1 << 62, segment_index_bytes=10 << 20,
    index_interval_bytes=4096,
)


class Append:
    """Append the batches of a log one by one, into the page cache.

    They are validated before the timed round, as for Kafka's ``LogSegment.append``.
    """

    def __init__(self, log: Path) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="append-", dir=log.parent.parent.parent))
        self.writer: SegmentWriter | None = None
        content = memoryview(log.read_bytes())
        self.batches: list[tuple[memoryview, AppendSets]] = []
        with LogFile(log) as file:
            for batch in file.batches():
                data = content[batch.position : batch.position + batch.size]
                self.batches.append((data, keep_offsets(data, 0)[0]))

    def __del__(self) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)

    def prepare(self) -> None:
        """Begin a segment; delete what the last round wrote."""
        if self.writer is not None:
            self.writer.close_files()
        for path in self.scratch.iterdir():
            path.unlink()
        now = time.time_ns() // 1_000_000
        self.writer = SegmentWriter.create(self.scratch, 0, LIMITS, now=now, fs=FileSystem())

    def round(self) -> int:
        writer = self.writer
        assert writer
        for data, sets in self.batches:
            writer.append(data, sets, now=0)
        return writer.size

    def check(self) -> dict[str, int]:
        self.prepare()
        size = self.round()
        assert self.writer
        self.writer.trim()
        files = {"log": ".log", "offset_index": ".index", "time_index": ".timeindex"}
        found = {
            name: zlib.crc32((self.scratch / f"{0:020}{suffix}").read_bytes())
            for name, suffix in files.items()
        }
        return {"size": size} | found
