"""The producers' state of a log being written, and its ``.snapshot`` files.

Source: Kafka 2.4.0 and 3.9.0 ``ProducerStateManager``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from kafkastore.formats.records.append_sets import AppendSets
from kafkastore.formats.records.batch_header import is_control
from kafkastore.formats.records.control_records import ControlRecord, first_control_record
from kafkastore.formats.records.record_batch import RecordBatch
from kafkastore.formats.state import producer_snapshot
from kafkastore.formats.state.file_names import PRODUCER_SNAPSHOT_SUFFIX, segment_file_name
from kafkastore.formats.state.producer_state import Origin, ProducerAppend, ProducerState
from kafkastore.fs import FileSystem
from kafkastore.log.partition_files import PartitionFiles


class ProducerSnapshots:
    """The producers' state at the log end, and the ``.snapshot`` files."""

    def __init__(self, directory: Path, producers: ProducerState, fs: FileSystem) -> None:
        self._directory, self._producers, self._fs = directory, producers, fs
        self._offsets = PartitionFiles(directory).producer_snapshots

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that is open or not yet replicated."""
        return self._producers.first_unstable_offset

    def prepare(
        self,
        data: memoryview,
        sets: AppendSets,
        *,
        as_follower: bool,
        transaction_version: int = 0,
    ) -> ProducerAppend:
        """Check batches against the producers' state, without changing it.

        Batches that may not be appended raise `ProducerStateError`. `as_follower`: a leader has
        already checked them. See `ProducerState.prepare`.
        """
        headers = sets.headers
        controls: list[ControlRecord | None] = []
        for slot in is_control(headers).nonzero()[0].tolist():
            position, size = int(headers["position"][slot]), int(headers["size"][slot])
            batch = RecordBatch(data[position : position + size], position)
            controls.append(first_control_record(batch))
        origin: Origin = "coordinator" if controls else "client"
        return self._producers.prepare(
            headers,
            controls,
            origin="replication" if as_follower else origin,
            transaction_version=transaction_version,
        )

    def update(self, prepared: ProducerAppend) -> NDArray[Any]:
        """Apply appended batches; return the aborted transactions."""
        return self._producers.update(prepared)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Note the high watermark: transactions that end below it are decided."""
        self._producers.on_high_watermark(high_watermark)

    def take(self, offset: int, log_start_offset: int) -> None:
        """Write a snapshot at `offset`, exclusive, unless there is one at or after it.

        At the log start offset nothing is known, so no snapshot is written there.
        """
        if offset <= max(self._offsets, default=log_start_offset):
            return
        self._fs.replace_content(
            self._path(offset), producer_snapshot.pack(self._producers.entries())
        )
        self._offsets.append(offset)

    def reload(self, producers: ProducerState, deleted: Iterable[str]) -> None:
        """Replace the state after a truncation, and remove the `deleted` snapshot files."""
        for name in deleted:
            if name.endswith(PRODUCER_SNAPSHOT_SUFFIX):
                self._fs.unlink(self._directory / name)
        self._producers = producers
        self._offsets = PartitionFiles(self._directory).producer_snapshots

    def drop_with(self, base_offsets: Iterable[int]) -> None:
        """Remove the snapshots at the base offsets of deleted segments."""
        self._drop(set(base_offsets) & set(self._offsets))

    def drop_below(self, offset: int) -> None:
        """Remove the snapshots below an offset."""
        self._drop({each for each in self._offsets if each < offset})

    def _drop(self, offsets: set[int]) -> None:
        for offset in sorted(offsets):
            self._fs.unlink(self._path(offset))
            self._offsets.remove(offset)

    def _path(self, offset: int) -> Path:
        return self._directory / segment_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX)
