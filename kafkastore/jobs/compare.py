"""Comparison of legacy and time index answers for the same times."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkastore.arguments import whole_number
from kafkastore.formats.unknown_numbers import none_if_negative
from kafkastore.jobs.error_fields import ErrorFields
from kafkastore.jobs.job import (
    Job,
    PartitionJob,
    Row,
    columns_of,
    skipped_column,
    skipped_rows,
)
from kafkastore.legacy import RemoteOutcomes, compare_columns, segment_times
from kafkastore.legacy.comparison import columns_by_name
from kafkastore.legacy.comparison_as_arrow import schema as comparison_schema
from kafkastore.log.damage import OnCorrupt, SkippedBytes
from kafkastore.lookup.remote import remote_segment_row
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.partition_path import FAILURES, Copies, PartitionPath, open_copies, weight
from kafkastore.store.sample_times import MOST_SAMPLES, SAMPLES, sample_times
from kafkastore.versions import NEWEST_LEGACY_VERSION, NEWEST_VERSION

if TYPE_CHECKING:
    import pyarrow as pa


class ComparedPartition(NamedTuple):
    """The answers of one partition, the corrupt bytes skipped, and remote segments."""

    compared: NDArray[np.void]
    skipped: tuple[SkippedBytes, ...]
    remote: RemoteOutcomes


@dataclass(frozen=True)
class CompareJob(PartitionJob[ComparedPartition]):
    """Look up times in each partition in three ways; see `legacy.compare`.

    Without `timestamps`, `samples` times are chosen for each partition.
    """

    timestamps: Sequence[int] = ()
    samples: int = SAMPLES
    now: int | None = None
    mtimes: Mapping[str, int] | None = None
    rules: str = NEWEST_VERSION
    legacy_rules: str = NEWEST_LEGACY_VERSION
    whole_seconds: bool = False
    on_corrupt: OnCorrupt = "raise"

    def __post_init__(self) -> None:
        whole_number("samples", self.samples, 0, MOST_SAMPLES)

    @staticmethod
    def columns() -> list[tuple[str, pa.DataType]]:
        """Return the columns of one time, and the bytes skipped in its partition."""
        known = ("topic", "partition")
        columns = [(each.name, each.type) for each in comparison_schema() if each.name not in known]
        return [*columns, skipped_column()]

    def run(self, item: Copies) -> ComparedPartition:
        """Look up the times in one partition."""
        log = open_copies(item)
        skipped: list[SkippedBytes] = []
        remote = RemoteOutcomes({}, {})
        compared = compare_columns(
            log,
            self.times_for(log),
            now=self.now,
            mtimes=self.mtimes,
            rules=self.rules,
            legacy_rules=self.legacy_rules,
            whole_seconds=self.whole_seconds,
            on_corrupt=self.on_corrupt,
            skipped=skipped,
            remote=remote,
        )
        return ComparedPartition(compared, tuple(skipped), remote)

    def times_for(self, log: PartitionLog) -> Sequence[int]:
        """Return the given times, or some between the first and largest timestamp.

        Half of these are spread over its records; the others are where answers can differ.
        """
        if self.timestamps:
            return self.timestamps
        modified = [mtime for _, mtime in segment_times(log, self.mtimes)]
        differing = self.samples // 2
        return sample_times(log, self.samples - differing, differing, modified)

    def rows(self, result: ComparedPartition) -> Iterator[Row]:
        """Yield a row for each time."""
        skipped = skipped_rows(result.skipped)
        for row in comparison_rows(result.compared):
            segment = result.remote.segment_of(row["target_timestamp"])
            yield {**row, "remote_segment": remote_segment_row(segment), "skipped": skipped}


def comparison_rows(compared: NDArray[np.void]) -> Iterator[dict[str, Any]]:
    """Yield a row for each time of a comparison."""
    columns = columns_by_name(compared)
    for numbers in zip(*(each.tolist() for each in columns.values()), strict=True):
        yield dict(zip(columns, map(none_if_negative, numbers), strict=True))


class AnswerRow(NamedTuple):
    """The answers for one time: a comparison row, and KIP-33's answer."""

    target_timestamp: int
    legacy: int | None
    kip_33: int | None
    broker: int | None
    correct: int | None
    redelivered: int | None
    missed: int | None


class PartitionAnswers(NamedTuple):
    """The answers of one partition, or its error."""

    place: PartitionPath
    rows: tuple[AnswerRow, ...]
    error: ErrorFields | None


class AskedPartition(NamedTuple):
    """A partition and the times to look up in it, in ms since 1970."""

    place: PartitionPath
    times: Sequence[int]


@dataclass(frozen=True)
class AnswersJob(Job[AskedPartition, PartitionAnswers]):
    """Look up each partition's own times by each of the rules."""

    now: int

    @staticmethod
    def columns() -> list[tuple[str, pa.DataType]]:
        """Return the columns of one time."""
        import pyarrow as pa

        return [(name, pa.int64()) for name in AnswerRow._fields]

    def run(self, item: AskedPartition) -> PartitionAnswers:
        """Look up the times in one partition; its error is in the result."""
        try:
            log = open_copies([item.place])
            remote = RemoteOutcomes({}, {})
            compared = compare_columns(log, item.times, now=self.now, remote=remote)
            for error in (*remote.broker.values(), *remote.correct.values()):
                raise error
            kip_33 = log.offsets_for_timestamps(compared["target_timestamp"], "kip-33")
        except FAILURES as failure:
            return PartitionAnswers(item.place, (), ErrorFields.of(failure))
        rows = zip(comparison_rows(compared), kip_33["offset"].tolist(), strict=True)
        answers = (AnswerRow(**row, kip_33=none_if_negative(offset)) for row, offset in rows)
        return PartitionAnswers(item.place, tuple(answers), None)

    def rows(self, result: PartitionAnswers) -> Iterator[Row]:
        """Yield a row for each time, or one for an error."""
        if result.error is not None:
            yield {"error": result.error.text}
        for row in result.rows:
            yield row._asdict()

    def place(self, item: AskedPartition) -> Row:
        """Return the columns that name the partition."""
        return columns_of([item.place])

    def weigh(self, item: AskedPartition) -> int:
        """Return the size of the partition's logs."""
        return weight([item.place])
