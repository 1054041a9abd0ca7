"""Divide records among files by topic, partition and date."""
from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click
import numpy as np
from numpy.typing import NDArray

from kafkastore.arguments import INT64_MIN
from kafkastore.cli.cat.record_filter import filter_rows
from kafkastore.cli.cat.record_writer import RecordWriter
from kafkastore.cli.output.output_files import OutputFiles
from kafkastore.errors import ChangeRefusedError
from kafkastore.formats.indexes.entries import NO_TIMESTAMP
from kafkastore.formats.primitives.record_buffers import RecordBuffers
from kafkastore.log.time_text import format_time

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from kafkastore.formats.state.file_names import TopicPartition
    from kafkastore.store.partition_log import PartitionLog

_FIELDS = ("topic", "partition", "date")
_FIELD = re.compile(r"\{(" + "|".join(_FIELDS) + r")\}")
#: Any other use of a brace.
_OTHER_BRACES = re.compile(r"\{[^{}]*\}?|\}")
#: Writers that may keep rows or buffers in memory at a time.
_MOST_UNSETTLED = 8
#: In place of the date of a record without a timestamp, or with one outside the years 1 to 9999.
UNDATED = "undated"


def fields_of(output: Path) -> frozenset[str]:
    """Return the fields in the name of an output; raise for other braces."""
    between = _FIELD.split(str(output))[::2]
    for text in between:
        if (other := _OTHER_BRACES.search(text)) is not None:
            what = f"unknown field {other[0]}"
            if other[0] == "}" or not other[0].endswith("}"):
                what = f"unmatched {other[0][0]} in {output}"
            known = ", ".join(f"{{{each}}}" for each in _FIELDS)
            raise click.UsageError(
                f"-o: {what}; the fields are {known}; for a file with other braces in its name, "
                f"redirect standard output"
            )
    return frozenset(_FIELD.findall(str(output)))


class PatternWriter:
    """Writes the records of each topic, partition or date to a file of its own.

    With `returns`, a partition may have more records after those of others.
    """

    def __init__(
        self,
        output: Path,
        files: OutputFiles,
        open_writer: Callable[[BinaryIO], RecordWriter],
        zone: tzinfo | None,
        columns: tuple[str, ...],
        reading: dict[str, Any],
        *,
        in_arrow: bool,
        returns: bool,
    ) -> None:
        self._output, self._files, self._open_writer = output, files, open_writer
        self._returns = returns
        self._fields, self._zone = fields_of(output), zone
        self._writers: dict[Path, RecordWriter] = {}
        self._unsettled: OrderedDict[Path, RecordWriter] = OrderedDict()
        self._owners: dict[Path, tuple[object, ...] | None] = {}
        self._place: tuple[object, ...] | None = None
        self.columns, self.reading, self.in_arrow = columns, reading, in_arrow

    def write_batch(self, log: PartitionLog, batch: RecordBatch | RecordBuffers) -> None:
        """Write each row to the file of its partition and date."""
        which = log.topic_partition
        self._enter(which)
        for date, rows in self._by_date(batch):
            path = self._path(which, date)
            if self._owners.setdefault(path, self._place) != self._place:
                raise ChangeRefusedError(
                    f"{path} would have records of {which} and of another partition; separate "
                    "{topic} and {partition}"
                )
            if path not in self._writers:
                file = cast(BinaryIO, self._files.create(path))
                self._writers[path] = self._open_writer(file)
            self._settle_others(path)
            self._writers[path].write_batch(log, rows)

    def _settle_others(self, path: Path) -> None:
        """Keep in memory what the last few writers keep."""
        self._unsettled[path] = self._writers[path]
        self._unsettled.move_to_end(path)
        if len(self._unsettled) > _MOST_UNSETTLED:
            self._unsettled.popitem(last=False)[1].settle()

    def _enter(self, which: TopicPartition) -> None:
        """Complete the files that get no more records, because the partition is another."""
        if "topic" not in self._fields:
            return
        place = (which.topic, which.partition if "partition" in self._fields else None)
        if self._place not in (None, place) and not self._returns:
            self.close()
        self._place = place

    def _path(self, which: TopicPartition, date: str) -> Path:
        if which.topic in (".", ".."):
            raise ChangeRefusedError(f"topic {which.topic} can't be the name of a file")
        values = {"topic": which.topic, "partition": str(which.partition), "date": date}
        return Path(_FIELD.sub(lambda found: values[found[1]], str(self._output)))

    def _by_date(
        self, batch: RecordBatch | RecordBuffers
    ) -> Iterator[tuple[str, RecordBatch | RecordBuffers]]:
        if "date" not in self._fields:
            yield "", batch
            return
        dates = _dates(_millis(batch), self._zone)
        for date in dict.fromkeys(dates.tolist()):
            rows = dates == date
            yield date, batch if rows.all() else filter_rows(batch, rows)

    def flush(self) -> None:
        """Hand over what was written to the system."""
        for writer in self._writers.values():
            writer.flush()

    def settle(self) -> None:
        """Free memory: the next rows are for other writers."""
        while self._unsettled:
            self._unsettled.popitem()[1].settle()

    def close(self) -> None:
        """Complete all files."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
        self._unsettled.clear()


def _millis(batch: RecordBatch | RecordBuffers) -> NDArray[np.int64]:
    """Return the timestamps in ms; -1 for one that Arrow's type cannot hold."""
    if isinstance(batch, RecordBuffers):
        return batch.numbers("timestamp")
    micros: NDArray[np.int64] = batch["timestamp"].cast("int64").fill_null(-1).to_numpy()
    return micros // 1000


def _dates(numbers: NDArray[np.int64], zone: tzinfo | None) -> NDArray[np.str_]:
    """Return the date of each timestamp in ms."""
    if zone is None:  # the same day has the same text
        numbered = np.where(numbers == NO_TIMESTAMP, INT64_MIN, numbers // 86_400_000)
        days, place = np.unique(numbered, return_inverse=True)
        texts = np.array([_date(86_400_000 * day, None) for day in days.tolist()])
        found: NDArray[np.str_] = texts[place]
        return found
    return np.array([_date(each, zone) for each in numbers.tolist()])


def _date(timestamp: int, zone: tzinfo | None) -> str:
    text = format_time(timestamp, zone)
    return text[:10] if text[4:5] == "-" and text[10:11] == "T" else UNDATED
