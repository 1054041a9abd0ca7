"""The report: one page of HTML that needs nothing else, for a desk or a phone, light or dark."""
from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from kafkastore.checks.findings import Finding, Severity
from kafkastore.formats.file_names import TopicPartition
from kafkastore.spark.jobs.partition_jobs import AnswerRow, PartitionRow
from kafkastore.spark.pipeline import plots
from kafkastore.spark.pipeline.results import PipelineResult, StoreResult
from kafkastore.time_axes import LAST_DATE_MS

TEMPLATE = "report.html.jinja"
#: Rows of one table, and partitions of one store whose answers are shown; the rest is in JSON.
MOST_ROWS = 100
MOST_TABLES = 20
#: Partitions of one store that are drawn: those with the most segments.
MOST_DRAWN = 6


class FindingGroup(NamedTuple):
    """Findings that say the same of different places."""

    severity: Severity
    what: str
    consequence: str
    before: int
    after: int
    example: Path


class Drawn(NamedTuple):
    """A partition's plots, as markup."""

    name: str
    segments: str
    staircase: str


class AnswerTable(NamedTuple):
    """A partition's answers, before and after the migration."""

    name: str
    rows: list[tuple[AnswerRow, AnswerRow]]
    differing: int


def render(result: PipelineResult) -> str:
    """Write the report.

    Parameters
    ----------
    result : PipelineResult
        A finished run.

    Returns
    -------
    str
        A page of HTML: no script, and no reference to anything outside of it.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def drawings(store: StoreResult) -> list[Drawn]:
        return [
            Drawn(
                _name(row),
                Markup(plots.segments_over_time(row)),
                Markup(plots.staircase(row, result.now)),
            )
            for row in _to_draw(store)
        ]

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        "moment": moment,
        "latest": _latest,
        "size": size,
        "count": lambda number: f"{number:,}",
        "offset": lambda number: "none" if number is None else str(number),
    }
    return environment.get_template(TEMPLATE).render(
        title="Kafka log directories: " + ", ".join(store.name for store in result.stores),
        result=result,
        most=MOST_ROWS,
        longest=max((step.seconds for step in result.steps), default=0) or 1,
        untimed=[store.name for store in result.stores if _is_untimed(store)],
        grouped=grouped,
        drawings=drawings,
        not_drawn=lambda store: len(_drawable(store)) - len(_to_draw(store)),
        answers=answer_tables,
    )


def moment(timestamp: int) -> str:
    """Write a time as a person reads it, to the ms.

    Examples
    --------
    >>> moment(1500000000123)
    '2017-07-14 02:40:00.123 UTC'
    >>> moment(1 << 62)
    '4611686018427387904 ms'
    """
    if not 0 <= timestamp <= LAST_DATE_MS:
        return f"{timestamp} ms"
    when = datetime.fromtimestamp(timestamp // 1000, UTC)
    return f"{when:%Y-%m-%d %H:%M:%S}.{timestamp % 1000:03} UTC"


def size(count: int) -> str:
    """Write a number of bytes.

    Examples
    --------
    >>> size(999), size(20_480), size(3 << 30)
    ('999 B', '20.0 KiB', '3.0 GiB')
    """
    number, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if number < 1000:
            break
        number, unit = number / 1024, larger
    return f"{count} B" if unit == "B" else f"{number:.1f} {unit}"


def _latest(times: Iterable[int | None]) -> str:
    known = [each for each in times if each is not None]
    return moment(max(known)) if known else "none"


def grouped(store: StoreResult) -> list[FindingGroup]:
    """Put findings together that differ in nothing but numbers and places, the worst first.

    Parameters
    ----------
    store : StoreResult

    Returns
    -------
    list of FindingGroup
        A group says what its first finding says.
    """
    groups: dict[tuple[str, str], list[tuple[Finding, bool]]] = {}
    findings = [(each, False) for each in store.findings_before]
    findings += [(each, True) for each in store.findings_after]
    for finding, is_after in findings:
        key = finding.severity, re.sub(r"\d+", "#", finding.what)
        groups.setdefault(key, []).append((finding, is_after))
    order = list(Severity)
    return sorted(
        (
            FindingGroup(
                members[0][0].severity,
                members[0][0].what,
                members[0][0].consequence,
                sum(not is_after for _, is_after in members),
                sum(is_after for _, is_after in members),
                members[0][0].path,
            )
            for members in groups.values()
        ),
        key=lambda group: (-order.index(group.severity), -group.before, group.what),
    )


def answer_tables(store: StoreResult) -> list[AnswerTable]:
    """Set answers before and after the migration side by side, partition by partition.

    Parameters
    ----------
    store : StoreResult

    Returns
    -------
    list of AnswerTable
        At most `MOST_TABLES`.
    """
    tables = []
    for key, rows in store.after.items():
        pairs = list(zip(store.before.get(key, ()), rows, strict=False))
        if pairs:
            differing = sum(len(_answers(*pair)) > 1 for pair in pairs)
            tables.append(AnswerTable(str(TopicPartition(*key)), pairs, differing))
    return tables[:MOST_TABLES]


def _answers(before: AnswerRow, after: AnswerRow) -> set[int | None]:
    return {
        after.correct, after.legacy, before.kip_33, after.kip_33, before.broker, after.broker,
    }


def _name(row: PartitionRow) -> str:
    return f"{row.place.topic}-{row.place.partition}"


def _drawable(store: StoreResult) -> list[PartitionRow]:
    return [row for row in store.partitions if row.records]


def _to_draw(store: StoreResult) -> list[PartitionRow]:
    rows = sorted(_drawable(store), key=lambda row: -len(row.segments))
    return rows[:MOST_DRAWN]


def _is_untimed(store: StoreResult) -> bool:
    """Whether there are records, and none with a timestamp."""
    return store.records > 0 and not any(row.samples for row in store.partitions)
