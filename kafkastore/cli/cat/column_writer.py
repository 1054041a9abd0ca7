"""Write records in Arrow's formats and Parquet."""
from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from kafkastore.cli.cat.parquet_parts import PartsWriter
from kafkastore.cli.output.output_file import is_regular_file, open_columns_writer
from kafkastore.formats.records.record_columns import BATCH_ROWS, HEADERS_COLUMN, KAFKA_COLUMNS
from kafkastore.log.parallel.parallel_map import ParallelMap

if TYPE_CHECKING:
    from pyarrow import Buffer, RecordBatch, Schema, Table

    from kafkastore.store.partition_log import PartitionLog

COLUMN_FORMS = ("arrow", "arrows", "parquet")
#: Size of a Parquet row group; larger than an Arrow batch, because readers skip by row group.
_ROW_GROUP_ROWS = 100_000
_ROW_GROUP_BYTES = 5 * 1024 * 1024
#: The columns whose values repeat, as Parquet names them; the others differ in each record.
_REPEATING = (
    "key", "topic", "partition", "timestampType",
    "headers.list.element.key", "headers.list.element.value",
)  # fmt: skip
#: Room for what a Parquet file has in addition to its values.
_FOOTER_BYTES = 256 * 1024
#: Encoding takes at least four times as long as reading: of so many threads, one reads.
_THREADS_A_READER = 4
#: Row groups that wait for a thread, so that none waits for the owner while that one encodes.
_MOST_WAITING = 2
#: Arrow keeps memory for each thread that encoded, as long as that lives and some time longer.
_IDLE_SECONDS = 0.05


class ColumnWriter:
    """Writes batches as an Arrow IPC file or stream, or in threads as Parquet."""

    in_arrow = True

    def __init__(self, file: BinaryIO, form: str, *, headers: bool, threads: int = 1) -> None:
        from kafkastore.log import records_as_arrow

        self.columns, self.reading = self.reading_of(form, headers=headers)
        columns = records_as_arrow.schema(self.columns)
        self._file = file
        self._writer: Any
        if form == "parquet":
            self._writer = _RowGroups(file, columns, threads)
            if threads > 1:
                self.reading["threads"] = max(threads // _THREADS_A_READER, 1)
        else:
            self._writer = open_columns_writer(file, form, columns)

    @staticmethod
    def reading_of(form: str, *, headers: bool) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Return the columns of a format, and how to read them."""
        columns = (*KAFKA_COLUMNS, HEADERS_COLUMN) if headers else KAFKA_COLUMNS
        return columns, {"batch_rows": _ROW_GROUP_ROWS if form == "parquet" else BATCH_ROWS}

    def write_batch(self, _: PartitionLog, batch: RecordBatch) -> None:
        """Write a batch, for Parquet together with others as one row group."""
        self._writer.write_batch(batch)

    def flush(self) -> None:
        """Hand over what was written to the system."""
        self._file.flush()

    def settle(self) -> None:
        """Free memory: write the row group that is being filled."""
        if isinstance(self._writer, _RowGroups):
            self._writer.settle()

    def close(self) -> None:
        """Complete the file."""
        self._writer.close()


class _Group(NamedTuple):
    """A row group and its number in the file."""

    number: int
    batches: list[RecordBatch]


class _Groups(Iterator[_Group]):
    """Row groups that wait to be encoded; more may follow after the last one."""

    def __init__(self) -> None:
        self.groups: deque[_Group] = deque()

    def __next__(self) -> _Group:
        if not self.groups:
            raise StopIteration
        return self.groups.popleft()


class _RowGroups:
    """Encodes row groups in threads, as Parquet files in memory; joins them.

    The owner fills them, and encodes too while enough of them wait for the other threads. A row
    group is written by the thread that encoded it, or by one that has just written those before;
    to a pipe by the owner, as an interrupt would wait for a thread that a slow reader stops.
    """

    def __init__(self, file: BinaryIO, columns: Schema, threads: int) -> None:
        self._columns = columns
        # Minimum and maximum of values would be copies of values that no reader uses.
        self._dated = [name for name in columns.names if name != "value"]
        self._parts = PartsWriter(file)
        self._pending: list[RecordBatch] = []
        self._rows = self._bytes = 0
        self._groups = _Groups()
        self._encoded = ParallelMap(
            self._process, self._groups, threads, "kafkastore-parquet",
            owner_helps=True, idle_seconds=_IDLE_SECONDS,
        )  # fmt: skip
        self._most_encoding = threads + _MOST_WAITING if threads > 1 else 0
        self._begun = self._encoding = self._written = 0
        self._threads_write, self._writing = is_regular_file(file), Lock()
        self._parts_of: dict[int, tuple[Buffer, int]] = {}  # that wait for those before
        self._rooms: deque[Buffer] = deque()  # memory for encoded row groups, to be used again

    def write_batch(self, batch: RecordBatch) -> None:
        """Add rows, and write what is encoded."""
        if self._rows + batch.num_rows > _ROW_GROUP_ROWS:
            self._end_group()
        self._pending.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._bytes >= _ROW_GROUP_BYTES:
            self._end_group()

    def _end_group(self) -> None:
        if not self._pending:
            return
        self._groups.groups.append(_Group(self._begun, self._pending))
        self._pending, self._rows, self._bytes = [], 0, 0
        self._begun += 1
        self._encoding += 1
        self._encoded.begin()
        self._encoded.help(leave=_MOST_WAITING)
        self._wait_for_all_but(self._most_encoding)

    def _wait_for_all_but(self, count: int) -> None:
        """Write row groups that are encoded, and wait until only some are left."""
        while self._encoding > count or self._encoded.is_next_ready:
            self._encoding -= 1
            try:
                next(self._encoded)
            except StopIteration:  # an error was raised, and this closes what was written before
                return
            self._write_encoded()

    def _process(self, group: _Group) -> None:
        self._parts_of[group.number] = self._encode(group.batches)
        if self._threads_write:
            self._write_encoded()

    def _write_encoded(self) -> None:
        """Write the row groups whose turn it is, unless another thread does."""
        while self._written in self._parts_of and self._writing.acquire(blocking=False):
            try:
                while self._written in self._parts_of:
                    room, size = self._parts_of.pop(self._written)
                    self._parts.write(memoryview(room).cast("B")[:size])
                    self._rooms.append(room)
                    self._written += 1
            finally:
                self._writing.release()

    def _encode(self, batches: list[RecordBatch]) -> tuple[Buffer, int]:
        """Return a Parquet file with one row group, or none without rows, and its size."""
        import pyarrow as pa

        table = pa.Table.from_batches(batches, self._columns)
        enough = table.nbytes + table.nbytes // 8 + _FOOTER_BYTES
        try:
            room = self._rooms.pop()
        except IndexError:
            room = None
        if room is None or room.size < enough:
            pages = mmap.mmap(-1, enough, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            room = pa.py_buffer(pages)  # only what is written takes memory
        with pa.FixedSizeBufferWriter(room) as sink, suppress(pa.ArrowIOError):
            self._encode_to(sink, table)
            return room, sink.tell()
        grown = pa.BufferOutputStream()  # what is encoded became larger than what it was before
        self._encode_to(grown, table)
        return (found := grown.getvalue()), found.size

    def _encode_to(self, sink: Any, table: Table) -> None:
        with open_columns_writer(
            sink, "parquet", self._columns, dated=self._dated, repeating=_REPEATING
        ) as writer:
            if len(table):
                writer.write_table(table, row_group_size=len(table))

    def settle(self) -> None:
        """Write all rows, also those of an incomplete row group."""
        self._end_group()
        while self._encoded.help(leave=0):
            pass
        self._wait_for_all_but(0)

    def close(self) -> None:
        """Complete the file."""
        self.settle()
        self._encoded.close()
        if self._parts.is_empty:
            self._process(_Group(0, []))
            self._write_encoded()
        self._rooms.clear()
        self._parts.close()
