"""``kafkastore compare``: compare legacy answers with time index answers, and their cost."""
from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import tzinfo
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

import click

from kafkastore.cli.failures import note
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.mtimes import (
    LegacyView,
    load_mtimes,
    mtimes_options,
    save_mtimes_option,
    watched,
    write_mtimes,
)
from kafkastore.cli.offsets import LEGACY, check_rules
from kafkastore.cli.on_spark import executor, spark_option
from kafkastore.cli.output_file import check_output, written_whole
from kafkastore.cli.problems import Problems, on_corrupt_option
from kafkastore.cli.progress import progress
from kafkastore.cli.selection import ANY_PATH, Selection, select, selection_options
from kafkastore.cli.tables import StreamedTable, counted, print_table
from kafkastore.cli.times import parse_moment, relative_option, resolve, show_time, zone_option
from kafkastore.formats.file_names import TopicPartition
from kafkastore.jobs.compare import ComparedPartition, CompareJob, comparison_rows
from kafkastore.jobs.places import Copies
from kafkastore.jobs.runner import Failed
from kafkastore.legacy import (
    ComparisonSummary,
    summarise,
)
from kafkastore.log.damage import OnCorrupt
from kafkastore.lookup.rules import CORRECT
from kafkastore.store.partition_log import PartitionLog

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pyarrow.ipc import RecordBatchFileWriter
    from pyarrow.parquet import ParquetWriter

    Compared = Iterable[tuple[TopicPartition, NDArray[np.void]]]

_DRAWINGS: Mapping[str, Literal["svg", "png"]] = {".svg": "svg", ".png": "png"}


def _check_rules(context: click.Context, parameter: click.Parameter, name: str) -> str:
    if name in ("all", CORRECT, LEGACY):
        raise click.BadParameter(f"{name} is no broker with time indexes; name a version")
    return check_rules(name)


@click.command()
@selection_options
@click.option(
    "--at", "times", multiple=True, metavar="TIME",
    help="A time: ms since 1970, ISO 8601 (2024-03-01T14:05:00Z) or -2h; may be repeated.",
)
@click.option(
    "--samples", type=click.IntRange(min=1), default=10, show_default=True, metavar="N",
    help="Without --at: so many times, half of them spread over each partition's records, the "
    "others where answers can differ.",
)
@click.option(
    "--rules", callback=_check_rules, default="2.4", show_default=True, metavar="VERSION",
    help="The broker with time indexes.",
)
@mtimes_options
@save_mtimes_option
@click.option("--summary", is_flag=True, help="One row for each partition, not for each time.")
@click.option(
    "--plot", type=ANY_PATH, metavar="FILE",
    help="Draw the answers over time, as .svg or .png, of each partition a FILE of its own where "
    "there are several; needs matplotlib.",
)
@click.option(
    "--format", "form", type=click.Choice(["arrow", "parquet"]),
    help="Write the rows as an Arrow IPC file or as Parquet; needs -o.",
)
@click.option(
    "-o", "--output", type=ANY_PATH, metavar="FILE",
    help="The file for --format, which appears when it is whole.",
)
@relative_option
@zone_option
@spark_option
@on_corrupt_option
@json_option
def command(
    paths: tuple[Path, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    times: tuple[str, ...],
    samples: int,
    rules: str,
    mtimes_file: Path | None,
    whole_seconds: bool,
    save_mtimes: Path | None,
    summary: bool,
    plot: Path | None,
    form: str | None,
    output: Path | None,
    relative_to: str,
    zone: tzinfo | None,
    master: str | None,
    as_json: bool,
    on_corrupt: OnCorrupt,
) -> int:
    """Compare what OffsetRequest v0, a broker with time indexes, and the truth answer for times.

    Redelivered are the records that a consumer reads although they come before the right offset,
    missed are those it never sees, if it begins where the legacy answer says.
    """
    _check_form(form, output, as_json or summary)
    drawing = None if plot is None else _check_plot(plot)
    moments = [parse_moment(text, zone) for text in times]
    selection = select(paths, topics, partitions)
    for file in (output, plot, save_mtimes):
        if file is not None:
            check_output(file, selection.store)
    job = CompareJob(
        resolve(moments, selection, relative_to),
        samples,
        broker_rules=rules,
        on_corrupt=on_corrupt,
        **LegacyView(
            time.time_ns() // 1_000_000, load_mtimes(mtimes_file, selection), whole_seconds
        )._asdict(),
    )
    if save_mtimes is not None:
        write_mtimes(save_mtimes, _logs(selection))
    problems = Problems(len(selection.topic_partitions), on_corrupt)
    is_streamed = output is None and (as_json or not summary)
    items = job.items(
        selection.store, selection.topic_partitions, is_weighed=master is not None
    )
    with executor(master, "comparing", while_printing=is_streamed) as runner:
        compared = _compared(job, job.outcomes(items, runner), selection, mtimes_file, problems)
        if not is_streamed and output is None:  # the bar ends before the results are printed
            compared = iter(list(compared))
        elif form is not None and output is not None:
            with written_whole(output) as stream:
                total = _write_columns(stream, form, compared)
        elif as_json:
            _write_json(compared, summary=summary)
        else:
            total = _print_rows(compared, selection, rules, zone)
    if not is_streamed and output is None:
        total = _print_summaries(compared, selection, rules, zone)
    if not as_json:
        _print_total(total, rules)
    if plot is not None and drawing is not None:
        _draw_all(plot, drawing, selection, job)
    return problems.exit_code


def _check_form(form: str | None, output: Path | None, is_other: bool) -> None:
    """Refuse contradicting options for an Arrow or Parquet file."""
    if form is not None and output is None:
        raise click.UsageError(f"--format {form} needs a file: -o FILE")
    if form is None and output is not None:
        raise click.UsageError("-o needs --format arrow or --format parquet")
    if form is not None and is_other:
        raise click.UsageError(f"--format {form} is a row for each time, without --json, --summary")


def _check_plot(path: Path) -> Literal["svg", "png"]:
    """Return the image format of a plot."""
    drawing = _DRAWINGS.get(path.suffix)
    if drawing is None:
        raise click.UsageError(f"--plot writes .svg or .png, and {path} is neither")
    if find_spec("matplotlib") is None:
        raise click.ClickException("--plot needs matplotlib; install it: pip install matplotlib")
    return drawing


def _logs(selection: Selection) -> Iterator[PartitionLog]:
    """Open the selected partitions one by one and keep none, so that memory use is constant."""
    for log in selection.logs():
        yield PartitionLog(log.path, log.topic_partition, log.log_dir)


def _compared(
    job: CompareJob,
    outcomes: Iterable[tuple[Copies, ComparedPartition | Failed]],
    selection: Selection,
    mtimes_file: Path | None,
    problems: Problems,
) -> Compared:
    """Yield the answers of each partition; report those that cannot be read."""
    for copies, each in outcomes:
        partition = TopicPartition(copies[0].topic, copies[0].partition)
        if isinstance(each, Failed):
            problems.add(partition, each.error)
        else:
            problems.add_skipped(partition, each.skipped)
            yield partition, each.compared
    for _ in watched(_logs(selection), mtimes_file, job.mtimes):
        pass


def _write_json(compared: Compared, *, summary: bool) -> None:
    total = ComparisonSummary()
    for topic_partition, each in compared:
        place = topic_partition._asdict()
        if summary:
            found = summarise(each)
            write_json(place | found._asdict())
            total = total.combined(found)
            continue
        for row in comparison_rows(each):
            write_json({**place, **row})
    if summary:
        write_json({"topic": None, "partition": None} | total._asdict())


def _write_columns(file: BinaryIO, form: str, compared: Compared) -> ComparisonSummary:
    from kafkastore.legacy.comparison_as_arrow import as_record_batch

    total = ComparisonSummary()
    with _open_writer(file, form) as writer:
        for topic_partition, each in compared:
            writer.write_batch(as_record_batch(topic_partition, each))
            total = total.combined(summarise(each))
    return total


def _open_writer(file: BinaryIO, form: str) -> RecordBatchFileWriter | ParquetWriter:
    from kafkastore.legacy.comparison_as_arrow import schema

    if form == "arrow":
        from pyarrow.ipc import new_file

        return new_file(file, schema())
    from pyarrow.parquet import ParquetWriter

    return ParquetWriter(file, schema(), compression="zstd")


def _print_rows(
    compared: Compared, selection: Selection, rules: str, zone: tzinfo | None
) -> ComparisonSummary:
    total = ComparisonSummary()
    longest = max((len(str(each)) for each in selection.topic_partitions), default=0)
    table = StreamedTable(
        partition=-max(longest, len("partition")),
        asked=-len(show_time(0, zone)),
        legacy=10,
        **{rules: 10},
        correct=10,
        redelivered=11,
        missed=10,
    )
    for topic_partition, each in compared:
        for row in comparison_rows(each):
            asked, *offsets, redelivered, missed = row.values()
            table.add(
                topic_partition,
                show_time(asked, zone),
                *("none" if offset is None else offset for offset in offsets),
                *("-" if count is None else f"{count:,}" for count in (redelivered, missed)),
            )
        total = total.combined(summarise(each))
    return total


def _print_summaries(
    compared: Compared, selection: Selection, rules: str, zone: tzinfo | None
) -> ComparisonSummary:
    rows, total = [], ComparisonSummary()
    for topic_partition, each in compared:
        found = summarise(each)
        total = total.combined(found)
        rows.append([str(topic_partition), *(f"{number:,}" for number in found)])
    columns = [
        "times", "unanswered", "redelivering", "missing", "redelivered", "missed",
        "most redelivered", "most missed", f"{rules} wrong",
    ]
    print_table(["partition", *columns], rows, right=",".join(columns))
    return total


def _print_total(total: ComparisonSummary, rules: str) -> None:
    print(
        f"{counted(total.times, 'question')}: legacy answers redeliver "
        f"{counted(total.redelivered, 'record')}, miss {total.missed:,} and give nothing "
        f"{total.unanswered:,} times; {rules} differs from correct {total.broker_differs:,} times"
    )


def _draw_all(
    path: Path, drawing: Literal["svg", "png"], selection: Selection, job: CompareJob
) -> None:
    """Plot each partition; if there are several, the file name includes the partition."""
    from kafkastore.legacy.staircase import NothingToDrawError

    count = len(selection.topic_partitions)
    with progress("drawing", count) as advance:
        for log in _logs(selection):
            own = path.with_name(f"{path.stem}.{log.topic_partition}{path.suffix}")
            try:
                _draw(path if count == 1 else own, drawing, log, job)
            except NothingToDrawError as error:
                if count == 1:
                    raise
                note(f"{log.topic_partition} is not drawn: {error}")
            advance(1)


def _draw(path: Path, drawing: Literal["svg", "png"], log: PartitionLog, job: CompareJob) -> None:
    """Plot one partition's answers, from its first to its last timestamp."""
    from kafkastore.legacy.staircase import draw_staircase, staircase

    drawn = staircase(
        log,
        job.times_for(log),
        now=job.now,
        mtimes=job.mtimes,
        broker_rules=job.broker_rules,
        whole_seconds=job.whole_seconds,
    )
    with written_whole(path) as stream:
        draw_staircase(stream, drawing, drawn, job.broker_rules)
