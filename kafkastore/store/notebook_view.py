"""HTML for notebooks: ranges, sizes and ten records of a store, a topic or a log.

It is made of directory listings, indexes, and the last and the first batches of the shown logs,
whatever the sizes of the logs. What can't be read is shown as its error.
"""
from __future__ import annotations

import html
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter

from kafkastore.errors import KafkaStoreError
from kafkastore.formats.records.record_batch import Record
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.log.batch_reading import read_records
from kafkastore.log.log_dir import UnknownLogStartWarning
from kafkastore.log.log_view import LogView
from kafkastore.log.time_text import format_time
from kafkastore.segment.log_segment import LogSegment
from kafkastore.shown_text import (
    SHORTENED,
    escape_control_characters,
    format_bytes,
    format_size,
)

#: A larger store is shown by topics, and only the first of these.
MOST_ROWS = 20
#: Records of the preview.
SHOWN_RECORDS = 10
#: The preview looks for them in so many batches: compaction leaves empty ones, thousands in a row.
MOST_BATCHES = 1000
#: A batch of the preview that needs more memory is shown as an error.
_LARGEST_BATCH_BYTES = 16 << 20
#: The end of a larger segment is not searched without an index: every header would be read.
_LARGEST_UNINDEXED_BYTES = 16 << 20
#: The sizes of topics with more partitions are not added up.
_MOST_SIZED_PARTITIONS = 100
_UNREADABLE = (KafkaStoreError, OSError, LookupError)
_PARTITION_COLUMNS = (
    "partition", "start", "end", "segments", "size", "newest time in the last index"
)
_RECORD_COLUMNS = ("partition", "offset", "timestamp", "key", "value")

OpenLog = Callable[[TopicPartition], LogView]


def show_partitions(title: str, partitions: Sequence[TopicPartition], open_log: OpenLog) -> str:
    """Return a store or a topic as HTML, made of its first logs."""
    topics = {name: [*each] for name, each in groupby(partitions, attrgetter("topic"))}
    counts = f"{_count(len(topics), 'topic')}, {_count(len(partitions), 'partition')}"
    if len(partitions) <= MOST_ROWS or len(topics) == 1:
        return _show(title, counts, partitions, open_log)
    names = [*topics][:MOST_ROWS]
    rows = [(each, f"{len(topics[each]):,}", _size(topics[each], open_log)) for each in names]
    # Internal topics have binary records, and the names that come first.
    own = [each[0] for name, each in topics.items() if not name.startswith("__")]
    problems: list[Exception] = []
    shown = _preview(own[:MOST_ROWS], open_log, problems)
    table = _table(("topic", "partitions", "size"), rows, len(topics))
    return _joined(_heading(title, counts), table, shown, *map(_paragraph, problems))


def show_log(log: LogView) -> str:
    """Return a log as HTML; the log itself still has not read anything."""
    shown = log.topic_partition
    fresh = LogView(log.path, shown, log.log_dir)
    fresh.remote_storage = log.remote_storage
    return _show(str(shown), str(log.path), [shown], lambda _: fresh)


def _show(
    title: str, what: str, partitions: Sequence[TopicPartition], open_log: OpenLog
) -> str:
    """Return the first partitions with their ranges, and the first records of one."""
    problems: list[Exception] = []
    shown = partitions[:MOST_ROWS]
    rows = [_partition(each, open_log, problems) for each in shown]
    table = _table(_PARTITION_COLUMNS, rows, len(partitions))
    records = _preview(shown, open_log, problems)
    return _joined(_heading(title, what), table, records, *map(_paragraph, problems))


def _partition(
    partition: TopicPartition, open_log: OpenLog, problems: list[Exception]
) -> Sequence[str]:
    """Return the row of a partition, or its error after its name."""
    try:
        log = open_log(partition)
        return str(partition), *log.retry_if_changed(lambda: _ranges(log, problems))
    except _UNREADABLE as error:
        return str(partition), _sentence(error)


def _ranges(log: LogView, problems: list[Exception]) -> Sequence[str]:
    """Return offsets, number of segments, size and newest time of a log."""
    bounds = [log.start_bound]
    newest = None
    if not log.segments or _is_quick(log.segments[-1]):
        bounds.append(log.end_bound)
    if log.segments and len(bounds) > 1:
        newest = log.segments[-1].largest_timestamp_by_index
    problems += [each.error for each in bounds if each.error is not None]
    return (
        str(bounds[0].offset),
        str(bounds[1].offset) if len(bounds) > 1 else "not read",
        f"{len(log.segments):,}",
        format_size(sum(segment.size for segment in log.segments)),
        format_time(newest),
    )


def _is_quick(segment: LogSegment) -> bool:
    """Return whether little has to be read to find the end of a segment."""
    if segment.size <= _LARGEST_UNINDEXED_BYTES:
        return True
    index = segment.offset_index
    return index is not None and index.used_entry_count > 0


def _size(partitions: Sequence[TopicPartition], open_log: OpenLog) -> str:
    """Return the size of a topic, from directory listings."""
    if len(partitions) > _MOST_SIZED_PARTITIONS:
        return "not read"
    try:
        logs = (open_log(each) for each in partitions)
        return format_size(sum(segment.size for log in logs for segment in log.segments))
    except _UNREADABLE as error:
        return _sentence(error)


def _preview(
    partitions: Iterable[TopicPartition], open_log: OpenLog, problems: list[Exception]
) -> str:
    """Return the first records of the first partition that has any."""
    for partition in partitions:
        rows: list[Sequence[str]] = []
        try:
            for record in _first_records(open_log(partition)):
                key, value = (format_bytes(each, SHORTENED) for each in (record.key, record.value))
                time = format_time(record.timestamp)
                rows.append((str(partition), str(record.offset), time, key, value))
        except _UNREADABLE as error:
            problems.append(error)
        if rows:
            return _table(_RECORD_COLUMNS, rows, len(rows))
    return f"<p>no records in the first {MOST_BATCHES:,} batches</p>"


def _first_records(log: LogView) -> Iterator[Record]:
    """Yield the first records, without a warning: the view has its text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownLogStartWarning)
        start = log.log_start_offset
    records = read_records(
        log, start, max_decompressed_bytes=_LARGEST_BATCH_BYTES, most_batches=MOST_BATCHES
    )
    return islice(records, SHOWN_RECORDS)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _paragraph(error: Exception) -> str:
    return f"<p>{_escaped(_sentence(error))}</p>"


def _sentence(error: Exception) -> str:
    """Return the text of an error; that of a `KeyError` is in quotes."""
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])
    return str(error)


def _heading(name: str, what: str) -> str:
    return f"<p><b>{_escaped(name)}</b>: {_escaped(what)}</p>"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], count: int) -> str:
    """Return a table; the last cell of a short row goes to its end."""
    lines = ["<tr>" + "".join(f"<th>{_escaped(each)}</th>" for each in columns) + "</tr>"]
    for row in rows:
        cells = [f"<td>{_escaped(each)}</td>" for each in row]
        if missing := len(columns) - len(row):
            cells[-1] = f'<td colspan="{missing + 1}">{_escaped(row[-1])}</td>'
        lines.append(f"<tr>{''.join(cells)}</tr>")
    rest = f"<p>and {count - len(rows):,} more</p>" if count > len(rows) else ""
    return f"<table>{''.join(lines)}</table>{rest}"


def _escaped(text: str) -> str:
    """Escape what a browser or a terminal would obey."""
    return html.escape(escape_control_characters(text))


def _joined(*parts: str) -> str:
    """Return one element; notebooks would typeset ``$...$`` in keys and values."""
    return f'<div class="tex2jax_ignore mathjax_ignore">{"".join(parts)}</div>'
