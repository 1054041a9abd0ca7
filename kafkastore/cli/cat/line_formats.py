"""The text formats of ``kafkastore cat``, as the parts of a line."""
from __future__ import annotations

from collections.abc import Callable
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from kafkastore.cli.cat.record_lines import Field, RecordLines
from kafkastore.formats.records.record_columns import HEADERS_COLUMN
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.time_text import format_time
from kafkastore.shown_text import escape_control_characters

if TYPE_CHECKING:
    from kafkastore.formats.primitives.record_buffers import RecordBuffers
    from kafkastore.store.partition_log import PartitionLog

Parts = tuple[bytes | Field, ...]

#: Numbers of colours for terminals (ECMA-48).
_GREEN, _YELLOW, _BLUE, _CYAN, _GREY = 32, 33, 34, 36, 90

#: Columns that a field needs beyond offset and timestamp.
_COLUMN_BY_FIELD = {
    **dict.fromkeys((Field.JSON_KEY, Field.CSV_KEY, Field.LINE_KEY, Field.RAW_KEY,
                     Field.KEY_LENGTH), "key"),
    **dict.fromkeys((Field.JSON_VALUE, Field.CSV_VALUE, Field.LINE_VALUE, Field.RAW_VALUE,
                     Field.VALUE_LENGTH, Field.VALUE_LENGTH_BYTES), "value"),
    **dict.fromkeys((Field.JSON_HEADERS, Field.CSV_HEADERS, Field.LINE_HEADERS,
                     Field.RAW_HEADERS), HEADERS_COLUMN),
    **dict.fromkeys((Field.JSON_EPOCH, Field.CSV_EPOCH), "leader_epoch"),
    Field.TIMESTAMP_TYPE: "timestampType",
}  # fmt: skip


class LineFormat(NamedTuple):
    """A text format: the parts of a partition's lines, and a `head` before all."""

    parts_of: Callable[[TopicPartition], Parts]
    columns: tuple[str, ...]
    head: bytes = b""
    zone: tzinfo | None = None
    for_terminal: bool = False


def json_format(*, headers: bool, for_terminal: bool = False) -> LineFormat:
    """Return the format of ``--json``."""

    def parts_of(which: TopicPartition) -> Parts:
        end: Parts = (b', "headers": ', Field.JSON_HEADERS) if headers else ()
        return (
            b'{"topic": ', Field.JSON_TOPIC, b', "partition": %d, "offset": ' % which.partition,
            Field.OFFSET, b', "timestamp": ', Field.TIMESTAMP, b', "timestamp_type": "',
            Field.TIMESTAMP_TYPE, b'", "leader_epoch": ', Field.JSON_EPOCH, b", ",
            Field.JSON_KEY, b", ", Field.JSON_VALUE, *end, b"}\n",
        )  # fmt: skip

    return line_format(parts_of, for_terminal=for_terminal)


def csv_format(*, headers: bool, for_terminal: bool = False) -> LineFormat:
    """Return the format of CSV: the fields of JSON, after a line with their names."""
    names = (
        "topic", "partition", "offset", "timestamp", "timestamp_type", "leader_epoch", "key",
        "key_base64", "value", "value_base64", *(["headers"] if headers else []),
    )  # fmt: skip

    def parts_of(which: TopicPartition) -> Parts:
        topic = _csv_cell(visible(which.topic) if for_terminal else as_bytes(which.topic))
        end: Parts = (b",", Field.CSV_HEADERS) if headers else ()
        return (
            topic + b",%d," % which.partition, Field.OFFSET, b",", Field.TIMESTAMP, b",",
            Field.TIMESTAMP_TYPE, b",", Field.CSV_EPOCH, b",", Field.CSV_KEY, b",",
            Field.CSV_VALUE, *end, b"\n",
        )  # fmt: skip

    head = ",".join(names).encode() + b"\n"
    return line_format(parts_of, head=head, for_terminal=for_terminal)


def _csv_cell(text: bytes) -> bytes:
    if any(mark in text for mark in (b",", b'"', b"\n", b"\r")):
        return b'"' + text.replace(b'"', b'""') + b'"'
    return text


def text_format(*, headers: bool, zone: tzinfo | None, in_colour: bool = False) -> LineFormat:
    """Return the format of lines for people: fields separated by tabs."""

    def coloured(part: bytes | Field, colour: int) -> Parts:
        return (b"\x1b[%dm" % colour, part, b"\x1b[0m") if in_colour else (part,)

    def parts_of(which: TopicPartition) -> Parts:
        end: Parts = (b"\t", *coloured(Field.LINE_HEADERS, _GREY)) if headers else ()
        return (
            *coloured(visible(str(which)), _CYAN), b"\t", *coloured(Field.OFFSET, _YELLOW), b"\t",
            *coloured(Field.TIME, _GREEN), b"\t", *coloured(Field.LINE_KEY, _BLUE), b"\t",
            Field.LINE_VALUE, *end, b"\n",
        )  # fmt: skip

    return line_format(parts_of, zone=zone)


def visible(text: str) -> bytes:
    """Return text without characters that a terminal may obey."""
    return escape_control_characters(text).encode("utf-8", "backslashreplace")


def as_bytes(text: str) -> bytes:
    """Return the bytes of a name in a directory."""
    return text.encode("utf-8", "surrogateescape")


def line_format(parts_of: Callable[[TopicPartition], Parts], **options: Any) -> LineFormat:
    """Return a format with the columns that its fields need."""
    fields = [part for part in parts_of(TopicPartition("", 0)) if not isinstance(part, bytes)]
    needed = {_COLUMN_BY_FIELD[field] for field in fields if field in _COLUMN_BY_FIELD}
    return LineFormat(parts_of, ("offset", "timestamp", *sorted(needed)), **options)


class LineWriter:
    """Writes records as lines."""

    in_arrow = False

    def __init__(self, file: BinaryIO, form: LineFormat) -> None:
        self._file, self._form = file, form
        self.columns = form.columns
        self.reading: dict[str, Any] = {}
        self._lines: tuple[TopicPartition, RecordLines] | None = None
        if form.head:
            file.write(form.head)

    def write_batch(self, log: PartitionLog, batch: RecordBuffers) -> None:
        """Write rows with the columns of the format."""
        which = log.topic_partition
        if self._lines is None or self._lines[0] != which:
            parts, topic = self._form.parts_of(which), as_bytes(which.topic)
            made = RecordLines(self._file.write, parts, topic, self._form.for_terminal)
            self._lines = which, made
        columns = _columns_of(batch)
        numbers: dict[str, Any] = {
            name: np.frombuffer(batch.columns[column], np.int32)
            for name, column in (("types", "timestampType"), ("epochs", "leader_epoch"))
            if column in self._form.columns
        }
        if self._form.zone is not None:
            numbers["times"] = _times(columns["timestamp"], self._form.zone)
        if batch.chosen is not None:
            numbers["chosen"] = batch.chosen.view(np.uint8)
        self._lines[1].write_rows(batch.end, columns, batch.first, **numbers)

    def flush(self) -> None:
        """Hand over what was written to the system."""
        self._file.flush()

    def settle(self) -> None:
        """Free the buffer, which is empty after each batch."""
        self._lines = None

    def close(self) -> None:
        """Do nothing: lines need no end."""


def _times(timestamps: Any, zone: tzinfo) -> tuple[bytes, Any]:
    """Return the texts of timestamps in a time zone, and where each ends."""
    texts = [
        format_time(each, zone).encode() for each in np.frombuffer(timestamps, np.int64).tolist()
    ]
    return b"".join(texts), np.cumsum(list(map(len, texts)), dtype=np.int32)


def _columns_of(batch: RecordBuffers) -> dict[str, Any]:
    """Return the buffers of a batch, as `record_rows.RecordRows` takes them."""
    found = batch.columns
    columns: dict[str, Any] = {"offset": found["offset"], "timestamp": found["timestamp"][2]}
    for name in ("key", "value"):
        columns[name] = found[name] if name in found else _nulls(batch.end)
    if HEADERS_COLUMN in found:
        columns[HEADERS_COLUMN] = found[HEADERS_COLUMN]
    return columns


def _nulls(rows: int) -> tuple[Any, ...]:
    """Return a column whose values are all null."""
    return rows, bytes((rows + 7) // 8), bytes(4 * (rows + 1)), b""
