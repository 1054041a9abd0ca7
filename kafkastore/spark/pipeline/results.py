"""The results of a pipeline run, for the report, the terminal and JSON."""
from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from kafkastore.arguments import INT64_MIN
from kafkastore.checks.findings import Finding, Severity
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.jobs.compare import AnswerRow
from kafkastore.jobs.error_fields import ErrorFields
from kafkastore.jobs.inventory import PartitionInventory
from kafkastore.jobs.verify import finding_row
from kafkastore.paths import to_path
from kafkastore.versions import NEWEST_VERSION

if TYPE_CHECKING:
    from kafkastore.migration.plan import Mode

#: Represents None in columns of numbers.
NOTHING = INT64_MIN

#: The rules to compare: fields of `AnswerRow`, and names for people.
RULES: Mapping[str, str] = {
    "legacy": "legacy",
    "kip_33": "kip-33",
    "broker": NEWEST_VERSION,
    "correct": "correct",
}


class AnswerColumns(Sequence[AnswerRow]):
    """Answers of one partition, stored compactly as columns.

    `numbers` is an int64 array of shape (n, 7) with the fields of each answer; `NOTHING` is None.
    """

    def __init__(self, rows: Sequence[AnswerRow]) -> None:
        numbers = [[NOTHING if each is None else each for each in row] for row in rows]
        self.numbers = np.array(numbers, np.int64).reshape(-1, len(AnswerRow._fields))

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, at: int) -> AnswerRow: ...
    @overload
    def __getitem__(self, at: slice) -> list[AnswerRow]: ...
    def __getitem__(self, at: int | slice) -> AnswerRow | list[AnswerRow]:
        if isinstance(at, slice):
            return [_answer_row(numbers) for numbers in self.numbers[at].tolist()]
        return _answer_row(self.numbers[at].tolist())

    def __iter__(self) -> Iterator[AnswerRow]:
        return map(_answer_row, self.numbers.tolist())


def _answer_row(numbers: Iterable[int]) -> AnswerRow:
    return AnswerRow._make(None if each == NOTHING else each for each in numbers)


def column(answers: Iterable[Sequence[AnswerRow]], name: str) -> NDArray[np.int64]:
    """Return the field `name` of the answers of some partitions; `NOTHING` is None."""
    at = AnswerRow._fields.index(name)
    columns = [
        (rows if isinstance(rows, AnswerColumns) else AnswerColumns(rows)).numbers[:, at]
        for rows in answers
    ]
    return np.concatenate([np.zeros(0, np.int64), *columns])


class Step(NamedTuple):
    """A step of the run, its duration, and a summary of its result."""

    name: str
    seconds: float
    summary: str


class Agreement(NamedTuple):
    """How many of the requested times have the correct answer by each rule."""

    times: int
    legacy: int
    kip_33: int
    broker: int


class SummaryRow(NamedTuple):
    """One store in numbers.

    Attributes
    ----------
    store : str
        Its name.
    partitions, segments, bytes, records : int
        Its contents.
    corrupt_partitions, partitions_without_answers : int
        Partitions that cannot be read to their ends, and partitions without lookups.
    findings_before, findings_after : int
        Findings above ``style``.
    files_made, bytes_made : int
        Files that the migration wrote, and their size in bytes.
    before, after : Agreement
        Correct answers before the migration and after it.
    problems : int
        Number of problems during the run.
    """

    store: str
    partitions: int
    segments: int
    bytes: int
    records: int
    corrupt_partitions: int
    partitions_without_answers: int
    findings_before: int
    findings_after: int
    files_made: int
    bytes_made: int
    before: Agreement
    after: Agreement
    problems: int

    def as_json(self) -> dict[str, Any]:
        """Return the fields, with objects for the agreements."""
        agreements = {"before": self.before._asdict(), "after": self.after._asdict()}
        return self._asdict() | agreements


class FailedStep(StrEnum):
    """A step that may fail for a partition or a directory; the values end a sentence."""

    COPY = "copied"
    READ = "read to its end"
    VERIFY = "verified"
    SURVEY = "surveyed for the migration"
    LOOKUP = "searched by time"
    WRITE = "written as it was read"


class Problem(NamedTuple):
    """An error in a store, and the steps that failed by it.

    Parameters
    ----------
    whose : str
        The partition or directory.
    steps : tuple of FailedStep
        What could not be done.
    store : str
        The path of the store.
    error : ErrorFields
        The error; its path is relative to the store if the file is in it.
    """

    whose: str
    steps: tuple[FailedStep, ...]
    store: str
    error: ErrorFields

    @property
    def key(self) -> tuple[str, str, str | None, int | None]:
        """The common part of problems that have the same cause in several steps."""
        return self.whose, self.error.type, self.error.path, self.error.position

    def __str__(self) -> str:
        """Return the problem as a sentence."""
        error = self.error
        if error.path is not None:
            error = error._replace(path=str(to_path(self.store) / error.path))
        return f"{self.whose} could not be {' or '.join(self.steps)}: {error}"


@dataclass
class StoreResult:
    """One store during a run.

    Parameters
    ----------
    name : str
        Its name in the output.
    path : str
        Its source.
    migrated : str
        Where it is with time indexes: a copy in the output, or `path` itself.
    undo_area : str or None
        The undo area with the replaced files, if it was migrated in place and changed.
    partitions : list of PartitionInventory
        The inventory.
    findings_before, findings_after : list of Finding
        Findings before the migration and after it.
    warnings : list of str
        Caveats of the migration.
    files_made, bytes_made : int
        Files that the migration wrote, and their size in bytes.
    before, after : dict of TopicPartition to answers
        Offsets for times, before the migration and after it.
    rows_written : dict of TopicPartition to int
        Rows in Parquet.
    problems : list of Problem
        What could not be done.
    """

    name: str
    path: str
    migrated: str = ""
    undo_area: str | None = None
    partitions: list[PartitionInventory] = field(default_factory=list)
    findings_before: list[Finding] = field(default_factory=list)
    findings_after: list[Finding] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    files_made: int = 0
    bytes_made: int = 0
    before: dict[TopicPartition, Sequence[AnswerRow]] = field(default_factory=dict)
    after: dict[TopicPartition, Sequence[AnswerRow]] = field(default_factory=dict)
    rows_written: dict[TopicPartition, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    @property
    def records(self) -> int:
        """Number of readable records."""
        return sum(row.records for row in self.partitions)

    @property
    def bytes(self) -> int:
        """Size of the ``.log`` files in bytes."""
        return sum(row.place.bytes for row in self.partitions)

    @property
    def segments(self) -> int:
        """Number of segments."""
        return sum(len(row.segments) for row in self.partitions)

    def _is_without_answers(self, row: PartitionInventory) -> bool:
        """Return whether a partition cannot be read, or gave no answers."""
        answers = self.after.get(row.place.topic_partition)
        return row.error is not None or (bool(row.segments) and not answers)

    def summary(self) -> SummaryRow:
        """Return the store in numbers."""
        return SummaryRow(
            self.name,
            len(self.partitions),
            self.segments,
            self.bytes,
            self.records,
            sum(row.error is not None for row in self.partitions),
            sum(self._is_without_answers(row) for row in self.partitions),
            _above_style(self.findings_before),
            _above_style(self.findings_after),
            self.files_made,
            self.bytes_made,
            agreement(self.before.values()),
            agreement(self.after.values()),
            len(self.problems),
        )


@dataclass
class PipelineResult:
    """One run.

    Parameters
    ----------
    out : Path
        The output directory: ``report.html``, ``result.json``, ``records/``, and, unless the
        migration was in place, ``migrated/``.
    mode : str
        The mode of the migration.
    now : int
        The clock of the legacy rules, ms since 1970.
    stores : list of StoreResult
        The stores, in the order of the paths.
    steps : list of Step
        The steps, in order.
    """

    out: Path
    mode: Mode
    now: int
    stores: list[StoreResult] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    @property
    def report(self) -> Path:
        """The report, one page of HTML."""
        return self.out / "report.html"

    @property
    def records(self) -> Path:
        """The records as Parquet, by store, topic and partition."""
        return self.out / "records"

    @property
    def is_in_place(self) -> bool:
        """Whether the directories themselves were migrated instead of copies."""
        return all(store.path == store.migrated for store in self.stores)

    @property
    def problems(self) -> list[str]:
        """The problems of all stores, one sentence for each."""
        return [f"{store.name}: {problem}" for store in self.stores for problem in store.problems]

    def summary(self) -> list[SummaryRow]:
        """Return each store in numbers."""
        return [store.summary() for store in self.stores]

    def to_json(self) -> str:
        """Return everything as JSON: numbers for offsets and times, null for no answer."""
        return "".join(self.json_parts())

    def json_parts(self) -> Iterator[str]:
        """Yield the JSON in pieces, because it can be much larger than its values."""
        whole = {
            "out": str(self.out),
            "mode": self.mode,
            "now": self.now,
            "steps": [step._asdict() for step in self.steps],
        }
        yield from _with_list(
            whole,
            "stores",
            (
                _with_list(
                    _store_to_json(store),
                    "partitions",
                    (
                        (json.dumps(_partition_to_json(store, row)),)
                        for row in store.partitions
                    ),
                )
                for store in self.stores
            ),
        )


def agreement(answers: Iterable[Sequence[AnswerRow]]) -> Agreement:
    """Count the correct answers of some partitions; `correct` is always right."""
    listed = list(answers)
    correct = column(listed, "correct")
    right = (column(listed, rule) == correct for rule in ("legacy", "kip_33", "broker"))
    return Agreement(len(correct), *(int(each.sum()) for each in right))


def by_severity(findings: Iterable[Finding]) -> dict[Severity, int]:
    """Count findings by severity, worst first, without severities that have none."""
    counts = dict.fromkeys(reversed(Severity), 0)
    for finding in findings:
        counts[finding.severity] += 1
    return {severity: count for severity, count in counts.items() if count}


def _above_style(findings: Iterable[Finding]) -> int:
    return sum(finding.severity != Severity.STYLE for finding in findings)


def _with_list(
    whole: Mapping[str, Any], name: str, items: Iterable[Iterable[str]]
) -> Iterator[str]:
    """Yield a JSON object whose last member is a list with items in pieces."""
    yield f'{json.dumps(whole)[:-1]}, "{name}": ['
    for number, item in enumerate(items):
        yield ", " if number else ""
        yield from item
    yield "]}"


def _store_to_json(store: StoreResult) -> dict[str, Any]:
    return {
        "name": store.name,
        "path": store.path,
        "migrated": store.migrated,
        "undo_area": store.undo_area,
        "summary": store.summary().as_json(),
        "warnings": store.warnings,
        "problems": list(map(str, store.problems)),
        "findings_before": [finding_row(each) for each in store.findings_before],
        "findings_after": [finding_row(each) for each in store.findings_after],
    }


def _partition_to_json(store: StoreResult, row: PartitionInventory) -> dict[str, Any]:
    """Return a partition, its segments and its answers, by the columns of their jobs."""
    key = row.place.topic_partition
    return {
        **key._asdict(),
        **row.bounds(),
        "records": row.records,
        "rows_written": store.rows_written.get(key, 0),
        "error": None if row.error is None else row.error.text,
        "segments": [segment._asdict() for segment in row.segments],
        "answers_before": [each._asdict() for each in store.before.get(key, ())],
        "answers_after": [each._asdict() for each in store.after.get(key, ())],
    }
