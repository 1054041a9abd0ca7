"""``kafkastore verify``: find problems and the commands that repair them."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter

import click

from kafkastore.arguments import thread_count
from kafkastore.checks.findings import Finding, Severity
from kafkastore.checks.partition_check import CheckedPartition
from kafkastore.checks.verify import ClusterCheck
from kafkastore.cli.options.on_spark import executor
from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.failures import (
    FOUND_PROBLEMS,
    UNREADABLE,
    flush_output,
    format_error,
    print_problem,
)
from kafkastore.cli.output.grouped_lines import ItemGroup, ItemGroups
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.tables import format_count
from kafkastore.cli.output.unfinished_changes import print_unfinished_changes
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.jobs.verify import (
    VerifyJob,
    VerifySummary,
    finding_row,
    summary_row,
    with_topic_ids,
)
from kafkastore.log.parallel.parallel_map import StopFlag
from kafkastore.runner import in_threads, threads_within


def parse_fraction(context: click.Context, parameter: click.Parameter, text: str) -> float:
    """Parse a fraction above 0 and up to 1, such as ``5%`` or ``0.05``.

    Raises click.BadParameter for any other text.
    """
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0
    if not 0 < share <= 1:
        raise click.BadParameter(f"{text} must be a fraction such as 5% or 0.05, up to 100%")
    return share


@store_command("metadata", "threads", "spark", "verbose")
@click.option(
    "--sample",
    callback=parse_fraction,
    default="100%",
    metavar="FRACTION",
    help="Read the logs of only this fraction of segments, such as 5%, and of the last segment "
    "of each partition. All other files are checked. Default: 100%.",
)
@click.option(
    "--fail-on",
    type=click.Choice([severity.value for severity in Severity]),
    default=Severity.WRONG_ANSWERS.value,
    show_default=True,
    help="Exit with 1 if a finding has this severity or a worse one.",
)
def command(call: StoreCall, sample: float, fail_on: str) -> int:
    """Check the files of log directories against each other; nothing is changed.

    Severities: data-loss-risk (a broker would truncate or delete records), wrong-answers (a lookup
    or a read returns wrong results), slow, style.

    With the metadata of a KRaft cluster, topic ids and replicas are compared with it too, and the
    topics' configurations are taken from it.
    """
    selection = call.selection
    print_unfinished_changes(call.paths)
    stop, total = StopFlag(), len(selection.topic_partitions)
    cluster = ClusterCheck.of(call.cluster, selection.store)
    threads = thread_count(call.threads)
    log_threads = threads_within(threads, total) if call.master is None else 1
    job = VerifyJob(sample, stop, cluster, log_threads)
    chosen = set(selection.topic_partitions) if call.is_narrowed else None
    items = job.items(selection.store, chosen, is_weighed=call.is_weighed)
    compared_with = None if cluster is None else cluster.assignments.cluster
    summary = VerifySummary()
    failures: list[str] = []
    groups = ItemGroups(attrgetter("kind"))

    def print_summary() -> None:
        if not call.as_json:
            print(_summary(summary, compared_with))

    with (
        _printed(groups, print_summary),
        executor(
            call.master,
            "verifying",
            here=in_threads(1 if total == 1 else threads, stop),
            total=total,
            while_printing=call.as_json or call.verbose,
        ) as runner,
    ):
        found = _findings(job.results(items, runner), summary, failures)
        if call.as_json:
            for finding in found:
                write_json({"kind": "finding", **finding_row(finding)})
            write_json({"kind": "summary", **summary_row(summary), "cluster": compared_with})
        elif call.verbose:
            _print_findings(found)
        else:
            for finding in found:
                groups.add(finding)
    for failure in failures:
        print_problem(failure)
    if failures:
        return FOUND_PROBLEMS if summary.partitions else UNREADABLE
    failed_on = any(each.is_at_least(Severity(fail_on)) for each in summary.findings)
    return FOUND_PROBLEMS if failed_on else 0


def _findings(
    checked: Iterable[CheckedPartition], summary: VerifySummary, failures: list[str]
) -> Iterator[Finding]:
    """Yield the findings of all partitions; count them, collect failures."""
    for each in with_topic_ids(checked):
        summary.add(each)
        yield from each.findings
        whose = "" if each.topic_partition is None else f"{each.topic_partition}: "
        failures += (f"{whose}{format_error(error)}" for error in each.failures)


def _print_findings(findings: Iterator[Finding]) -> None:
    """Print findings one by one; common parts of consecutive files only once."""
    for (kind, what, remedy), group in groupby(findings, key=attrgetter("kind", "what", "remedy")):
        print_text(
            f"{kind.severity}: {what}", f"    {kind.consequence}", f"    remedy: {remedy}"
        )
        for finding in group:
            at = "" if finding.position is None else f" at byte {finding.position}"
            print_text(f"      {finding.path}{at}")


@contextmanager
def _printed(groups: ItemGroups[Finding], print_summary: Callable[[], None]) -> Iterator[None]:
    """Print a summary and the findings at the end, the worst first.

    After Ctrl-C or an error, only the findings are printed.
    """
    try:
        yield
        print_summary()
    finally:
        order = [*reversed(Severity)]
        for group in sorted(groups, key=lambda each: order.index(each.shown[0].severity)):
            _print_group(group)
        flush_output()  # an error may discard what is still buffered


def _print_group(group: ItemGroup[Finding]) -> None:
    """Print findings of one kind: the first one's text, and where the others are."""
    first = group.shown[0]
    times = f", {group.count:,} times" if group.more else ""
    # Include the last one: the first ones may all be of one partition.
    remedies = {each.remedy for each in (*group.shown, group.last) if each is not None}
    likewise = ", and likewise for the others" if len(remedies) > 1 else ""
    print_text(
        f"{first.severity.value}{times}: {first.what}",
        f"    {first.consequence}",
        f"    remedy: {first.remedy}{likewise}",
    )
    for each in group.shown:
        at = "" if each.position is None else f" at byte {each.position}"
        what = "" if each.what == first.what else f": {each.what}"
        print_text(f"      {each.path}{at}{what}")
    if group.more:
        print(f"      ... and {group.more:,} more like these; --verbose lists all")


def _summary(counts: VerifySummary, cluster: str | None) -> str:
    read = (
        ""
        if counts.segments_read == counts.segments
        else f" ({counts.segments_read:,} of {format_count(counts.segments, 'segment')} read)"
    )
    found = [
        f"{counts.findings[each]:,} {each.value}"
        for each in reversed(Severity)
        if counts.findings[each]
    ]
    checked = format_count(counts.partitions, "partition")
    compared = "" if cluster is None else f" against {cluster}"
    nothing = "no problems found"
    if counts.failures:
        nothing = "no problems found in the files that could be opened"
    return f"{checked} checked{compared}{read}, {', '.join(found) or nothing}"
