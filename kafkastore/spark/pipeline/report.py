"""The report: one self-contained HTML page, for desktop or phone, light or dark."""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from heapq import nlargest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.jobs.compare import AnswerRow
from kafkastore.jobs.inventory import PartitionInventory
from kafkastore.segment.recovery import INDEX_INTERVAL_BYTES
from kafkastore.spark.pipeline import digest, plots
from kafkastore.spark.pipeline.results import RULES, PipelineResult, StoreResult
from kafkastore.time_axes import LAST_DATE_MS

if TYPE_CHECKING:
    from markupsafe import Markup

TEMPLATE = "report.html.jinja"
#: Rows of a table, bars of a list, and rows of a partition's answers; JSON has the rest.
MOST_ROWS, MOST_SIZES, MOST_ANSWERS = 100, 12, 60
#: Problems that are visible at first.
FEW_ROWS = 10
#: Stores that are shown, partitions of each that are drawn, and that have a table of answers;
#: with many stores, fewer of each.
MOST_STORES, MOST_DRAWN, MOST_TABLES = 12, 6, 20


class Drawn(NamedTuple):
    """The plots of a partition."""

    name: str
    segments: Markup
    answers: Markup


class AnswerTable(NamedTuple):
    """A partition's answers before and after the migration.

    If there are too many, those that differ are preferred.
    """

    name: str
    rows: list[tuple[AnswerRow, AnswerRow]]
    times: int
    differing: int


class SizeList(NamedTuple):
    """The largest topics or partitions, and the total of all others."""

    unit: str
    shown: list[digest.Size]
    rest: digest.Size | None


class Section(NamedTuple):
    """The parts of the page about one store."""

    store: StoreResult
    severities: list[digest.SeverityRow]
    groups: list[digest.FindingGroup]
    densities: tuple[digest.Density, digest.Density]
    sizes: list[SizeList]
    differences: list[digest.Differences]
    partitions: list[PartitionInventory]
    timeline: Markup | None
    density: Markup | None
    distances: Markup | None
    drawn: list[Drawn]
    not_drawn: int
    answers: list[AnswerTable]


def render(result: PipelineResult) -> str:
    """Return a finished run's report as HTML, without scripts or external references.

    Its size is bounded, however many partitions, segments and findings there are.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        "moment": moment,
        "latest": _latest,
        "size": size,
        "count": lambda number: f"{number:,}",
        "offset": lambda number: "none" if number is None else str(number),
        "spacing": lambda number: "none" if number is None else f"{number:,.0f}",
    }
    shown = result.stores[:MOST_STORES]
    names = ", ".join(store.name for store in shown[:3])
    more = f" and {len(result.stores) - 3} more" if len(result.stores) > 3 else ""
    return environment.get_template(TEMPLATE).render(
        version=RULES["broker"],
        title=f"Kafka log directories: {names}{more}",
        result=result,
        problems=result.problems,
        summary=result.summary(),
        sections=[_section(store, result.now, len(shown)) for store in shown],
        most=MOST_ROWS,
        few=FEW_ROWS,
        interval=INDEX_INTERVAL_BYTES,
        longest=max((step.seconds for step in result.steps), default=0) or 1,
        untimed=[store.name for store in shown if _is_untimed(store)],
        name_of=digest.name_of,
    )


def _section(store: StoreResult, now: int, stores: int) -> Section:
    from markupsafe import Markup

    drawable = [row for row in store.partitions if row.records]
    to_draw = _most_segments(drawable)[: max(1, MOST_DRAWN // stores)]
    timeline, density, distances = (
        None if svg is None else Markup(svg)
        for svg in (
            plots.timeline(store), plots.density(store), plots.differences_over_time(store),
        )
    )
    return Section(
        store,
        digest.severities(store),
        digest.grouped(store),
        digest.densities(store.partitions),
        [
            _size_list("topic", store, digest.sizes_by_topic(store)),
            _size_list("partition", store, digest.sizes_by_partition(store)),
        ],
        digest.differences(store),
        digest.largest(store, MOST_ROWS),
        timeline,
        density,
        distances,
        [
            Drawn(
                digest.name_of(row),
                Markup(plots.segments_over_time(row)),
                Markup(
                    plots.answers_over_time(
                        row, store.before.get(row.place.topic_partition, ()), now
                    )
                ),
            )
            for row in to_draw
        ],
        len(drawable) - len(to_draw),
        answer_tables(store, max(1, MOST_TABLES // stores)),
    )


def _most_segments(rows: Iterable[PartitionInventory]) -> list[PartitionInventory]:
    return sorted(rows, key=lambda row: -len(row.segments))


def drop_samples(store: StoreResult) -> None:
    """Drop all sampled records but the first of each partition that is not drawn."""
    drawn = _most_segments(row for row in store.partitions if row.records)[:MOST_DRAWN]
    kept = {row.place for row in drawn}
    store.partitions[:] = [
        row if row.place in kept else row._replace(samples=row.samples[:1])
        for row in store.partitions
    ]


def _size_list(unit: str, store: StoreResult, sizes: list[digest.Size]) -> SizeList:
    shown, others = sizes[:MOST_SIZES], {each.name for each in sizes[MOST_SIZES:]}
    rows = [
        row
        for row in store.partitions
        if (row.place.topic if unit == "topic" else digest.name_of(row)) in others
    ]
    more = f"{len(others):,} more {unit}{'' if len(others) == 1 else 's'}"
    return SizeList(unit, shown, digest.size_of(more, rows) if others else None)


def moment(timestamp: int) -> str:
    """Format a time for people, to the ms.

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
    """Format a number of bytes.

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


def answer_tables(store: StoreResult, most: int = MOST_TABLES) -> list[AnswerTable]:
    """Compare answers before and after the migration, partition by partition.

    Returns at most `most` partitions, those with the most differing answers, in the order of the
    store.
    """
    tables = nlargest(most, enumerate(_tables(store)), key=lambda each: each[1].differing)
    return [table for _, table in sorted(tables, key=lambda each: each[0])]


def _tables(store: StoreResult) -> Iterator[AnswerTable]:
    """Yield a table for each partition."""
    for key, rows in store.after.items():
        pairs = list(zip(store.before.get(key, ()), rows, strict=False))
        if pairs:
            differs = [len(_answers(*pair)) > 1 for pair in pairs]
            # The sort is stable: the first ones of those that differ, then the first of the others.
            order = sorted(range(len(pairs)), key=lambda at: not differs[at])[:MOST_ANSWERS]
            shown = [pairs[at] for at in sorted(order)]
            yield AnswerTable(str(TopicPartition(*key)), shown, len(pairs), sum(differs))


def _answers(before: AnswerRow, after: AnswerRow) -> set[int | None]:
    return {
        after.correct, after.legacy, before.kip_33, after.kip_33, before.broker, after.broker,
    }


def _is_untimed(store: StoreResult) -> bool:
    """Return whether there are records, but none with a timestamp."""
    return store.records > 0 and not any(row.samples for row in store.partitions)
