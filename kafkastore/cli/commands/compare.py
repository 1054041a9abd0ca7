"""``kafkastore compare``: compare legacy and time index answers."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

import click

from kafkastore.cli.options.mtimes import (
    load_mtimes,
    mtimes_options,
    note_unused_mtimes,
    save_mtimes_option,
    write_mtimes,
)
from kafkastore.cli.options.rules import check_rules
from kafkastore.cli.options.selection import ANY_PATH, Selection
from kafkastore.cli.options.whole_numbers import WholeNumber
from kafkastore.cli.output.failures import print_note
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.output_file import check_output, open_columns_writer, open_output
from kafkastore.cli.output.progress import progress
from kafkastore.cli.output.tables import StreamedTable, format_count, print_table
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.clock import clock
from kafkastore.formats.indexes.entries import IN_REMOTE_STORAGE
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.jobs.compare import CompareJob, comparison_rows
from kafkastore.jobs.job import skipped_column, skipped_rows
from kafkastore.legacy import ComparisonSummary, summarize
from kafkastore.lookup.rules import CORRECT, KIP_33, LEGACY
from kafkastore.store.partition_log import PartitionLog
from kafkastore.store.sample_times import MOST_SAMPLES, SAMPLES
from kafkastore.versions import NEWEST_VERSION

if TYPE_CHECKING:
    from kafkastore.jobs.compare import ComparedPartition

    Compared = Iterable[tuple[TopicPartition, ComparedPartition]]

_DRAWINGS: Mapping[str, Literal["svg", "png"]] = {".svg": "svg", ".png": "png"}


def _check_rules(context: click.Context, parameter: click.Parameter, name: str) -> str:
    if name in ("all", CORRECT, KIP_33, LEGACY):
        raise click.BadParameter(f"rules must be a Kafka version with time indexes, got {name}")
    return check_rules(name, others="")


@store_command("relative-to", "tz", "on-corrupt", "spark")
@click.option(
    "--at", "times", multiple=True, metavar="TIME",
    help="A time: ms since 1970, ISO 8601 (2024-03-01T14:05:00Z) or -2h; may be repeated.",
)
@click.option(
    "--samples", type=WholeNumber(0, MOST_SAMPLES), default=SAMPLES,
    show_default=True, metavar="N",
    help="Without --at: the number of times, half of them spread over each partition's records, "
    "the others where answers can differ.",
)
@click.option(
    "--rules", callback=_check_rules, default=NEWEST_VERSION, show_default=True, metavar="VERSION",
    help="The Kafka version of the broker with time indexes.",
)
@mtimes_options
@save_mtimes_option
@click.option("--summary", is_flag=True, help="One row for each partition, not for each time.")
@click.option(
    "--plot", type=ANY_PATH, metavar="FILE",
    help="Draw the answers over time, as .svg or .png; one file for each partition. Needs "
    "matplotlib.",
)
@click.option(
    "--format", "form", type=click.Choice(["arrow", "parquet"]),
    help="Write the rows as an Arrow IPC file or as Parquet; needs -o.",
)
@click.option(
    "-o", "--output", type=ANY_PATH, metavar="FILE",
    help="The file for --format; it appears when it is complete.",
)
def command(
    call: StoreCall,
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
) -> int:
    """Compare answers of OffsetRequest v0, of time indexes, and the correct ones.

    A consumer that starts at the legacy answer reads redelivered records before the correct offset,
    and never reads missed records.
    """
    _check_form(form, output, call.as_json or summary)
    drawing = None if plot is None else _check_plot(plot)
    moments = [call.parse_moment(text) for text in times]
    selection = call.selection
    for file in (output, plot, save_mtimes):
        if file is not None:
            check_output(file, selection.store)
    job = CompareJob(
        call.resolve_times(moments),
        samples,
        clock(),
        load_mtimes(mtimes_file, selection),
        rules,
        whole_seconds=whole_seconds,
        on_corrupt=call.problems.on_corrupt,
    )
    if save_mtimes is not None:
        for each in write_mtimes(save_mtimes, _logs(selection)):
            call.problems.add(each.topic_partition, each.error)
    is_streamed = output is None and (call.as_json or not summary)
    items = call.items(job)
    with call.executor("comparing", is_streamed=is_streamed) as runner:
        compared: Compared = (
            (TopicPartition(path.topic, path.partition), each)
            for (path, *_), each in call.readable(job, items, runner)
        )
        if not is_streamed and output is None:  # the bar ends before the results are printed
            compared = list(compared)
        elif form is not None and output is not None:
            with open_output(output) as stream:
                total = _write_columns(stream, form, compared)
        elif call.as_json:
            _write_json(job, compared, summary=summary)
        else:
            total = _print_rows(call, compared, rules)
    note_unused_mtimes(selection, mtimes_file, job.mtimes)
    if not is_streamed and output is None:
        total = _print_summaries(compared, rules)
    if not call.as_json:
        _print_total(total, rules)
    if plot is not None and drawing is not None:
        _draw_all(plot, drawing, selection, job)
    return call.problems.exit_code


def _check_form(form: str | None, output: Path | None, is_other: bool) -> None:
    """Refuse incompatible options for an Arrow or Parquet file."""
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
        raise click.UsageError(f"--plot must end in .svg or .png, got {path}")
    if find_spec("matplotlib") is None:
        raise click.ClickException("--plot needs matplotlib; install it: pip install matplotlib")
    return drawing


def _logs(selection: Selection) -> Iterator[PartitionLog]:
    """Open the selected partitions one by one, so that memory use is constant."""
    for log in selection.logs():
        yield PartitionLog(log.path, log.topic_partition, log.log_dir)


def _write_json(job: CompareJob, compared: Compared, *, summary: bool) -> None:
    total = ComparisonSummary()
    for topic_partition, each in compared:
        place = topic_partition._asdict()
        if summary:
            found = summarize(each.compared)
            write_json(place | found._asdict())
            total = total.combined(found)
            continue
        for row in job.rows(each):
            write_json({**place, **row})
    if summary:
        write_json({"topic": None, "partition": None} | total._asdict())


def _write_columns(file: BinaryIO, form: str, compared: Compared) -> ComparisonSummary:
    import pyarrow as pa

    from kafkastore.legacy.comparison_as_arrow import as_record_batch, schema

    total, skipped = ComparisonSummary(), pa.field(*skipped_column())
    with open_columns_writer(file, form, schema().append(skipped)) as writer:
        for topic_partition, each in compared:
            batch = as_record_batch(topic_partition, each.compared, each.remote)
            values = pa.array([skipped_rows(each.skipped)] * batch.num_rows, skipped.type)
            writer.write_batch(batch.append_column(skipped, values))
            total = total.combined(summarize(each.compared))
    return total


def _print_rows(call: StoreCall, compared: Compared, rules: str) -> ComparisonSummary:
    total = ComparisonSummary()
    longest = max((len(str(each)) for each in call.selection.topic_partitions), default=0)
    table = StreamedTable(
        partition=-max(longest, len("partition")),
        time=-len(call.format_time(0)),
        legacy=10,
        **{rules: 10},
        correct=10,
        redelivered=11,
        missed=10,
    )
    for topic_partition, each in compared:
        columns = (each.compared[name]["offset"].tolist() for name in ("broker", "correct"))
        rows = comparison_rows(each.compared)
        for row, *offsets in zip(rows, *columns, strict=True):
            target, legacy, *_, redelivered, missed = row.values()
            table.add(
                topic_partition,
                call.format_time(target),
                "none" if legacy is None else legacy,
                *map(_show_offset, offsets),
                *("-" if count is None else f"{count:,}" for count in (redelivered, missed)),
            )
        total = total.combined(summarize(each.compared))
    return total


def _show_offset(offset: int) -> int | str:
    """Return an offset, or why there is none."""
    if offset == IN_REMOTE_STORAGE:
        return "remote"
    return "none" if offset < 0 else offset


def _print_summaries(compared: Compared, rules: str) -> ComparisonSummary:
    rows, total = [], ComparisonSummary()
    for topic_partition, each in compared:
        found = summarize(each.compared)
        total = total.combined(found)
        rows.append([str(topic_partition), *(f"{number:,}" for number in found)])
    is_tiered = total.remote_times > 0
    columns = [
        "times", "unanswered", "too low", "too high", "redelivered", "missed",
        "most redelivered", "most missed", f"{rules} wrong", *(["remote"] if is_tiered else []),
    ]
    rows = [row[: 1 + len(columns)] for row in rows]
    print_table(["partition", *columns], rows, right=",".join(columns))
    return total


def _print_total(total: ComparisonSummary, rules: str) -> None:
    print(
        f"{format_count(total.times, 'lookup')}: legacy answers redeliver "
        f"{format_count(total.redelivered, 'record')}, miss {total.missed:,} and find nothing for "
        f"{total.unanswered_times:,}; {rules} differs from correct for {total.broker_differs:,}"
        + (f"; {total.remote_times:,} are in remote storage" if total.remote_times else "")
    )


def _draw_all(
    path: Path, drawing: Literal["svg", "png"], selection: Selection, job: CompareJob
) -> None:
    """Plot each partition, into a file of its own if there are several."""
    from kafkastore.legacy.answer_plot import NothingToDrawError

    count = len(selection.topic_partitions)
    with progress("drawing", count) as advance:
        for log in _logs(selection):
            own = path.with_name(f"{path.stem}.{log.topic_partition}{path.suffix}")
            try:
                _draw(path if count == 1 else own, drawing, log, job)
            except NothingToDrawError as error:
                if count == 1:
                    raise
                print_note(f"{log.topic_partition} is not drawn: {error}")
            advance(1)


def _draw(path: Path, drawing: Literal["svg", "png"], log: PartitionLog, job: CompareJob) -> None:
    """Plot one partition's answers, from its first to its last timestamp."""
    from kafkastore.legacy.answer_plot import draw_answers, plot_answers

    drawn = plot_answers(
        log,
        job.times_for(log),
        now=job.now,
        mtimes=job.mtimes,
        rules=job.rules,
        whole_seconds=job.whole_seconds,
    )
    with open_output(path) as stream:
        draw_answers(stream, drawing, drawn, job.rules)
