"""``kafkastore verify``: find problems, their severity, and the command that repairs them."""
from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from kafkastore.checks.findings import Finding, Severity, kind_of
from kafkastore.checks.partition_check import CheckedPartition
from kafkastore.cli.failures import (
    FOUND_PROBLEMS,
    UNREADABLE,
    flush_quietly,
    sentence,
    tell,
)
from kafkastore.cli.few_lines import Alike, Groups, verbose_option
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.on_spark import executor, spark_option
from kafkastore.cli.selection import select, selection_options
from kafkastore.cli.tables import counted
from kafkastore.cli.unfinished import note_unfinished
from kafkastore.cli.visible import visible
from kafkastore.jobs.runner import in_threads
from kafkastore.jobs.verify import VerifyJob, VerifySummary, finding_row, with_topic_ids
from kafkastore.log.side_by_side import Stop


def parse_share(context: click.Context, parameter: click.Parameter, text: str) -> float:
    """Parse a fraction such as ``5%`` or ``0.05``, above 0 and up to 1; a callback of options.

    Raises click.BadParameter for any other text.
    """
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0
    if not 0 < share <= 1:
        raise click.BadParameter(f"{text} is no share: write it like 5% or 0.05, up to 100%")
    return share


@click.command()
@selection_options
@click.option(
    "--sample",
    callback=parse_share,
    default="100%",
    metavar="SHARE",
    help="Read the logs of this share of the segments alone, such as 5%, and the last of each "
    "partition; everything else is checked of all.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Partitions checked at once.  [default: as many as there are processors]",
)
@click.option(
    "--fail-on",
    type=click.Choice([severity.value for severity in Severity]),
    default=Severity.WRONG_ANSWERS.value,
    show_default=True,
    help="Exit with 1 when something is as bad as this, or worse.",
)
@spark_option
@verbose_option
@json_option
def command(
    paths: tuple[Path, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    sample: float,
    threads: int | None,
    fail_on: str,
    master: str | None,
    verbose: bool,
    as_json: bool,
) -> int:
    """Check the files of log directories against each other; nothing is altered.

    Severities: data-loss-risk (a broker would cut or delete records), wrong-answers (a lookup or a
    read goes wrong), slow, style.
    """
    if threads is not None and master is not None:
        raise click.UsageError("--threads and --spark contradict each other")
    selection = select(paths, topics, partitions)
    note_unfinished(paths)
    stop, total = Stop(), len(selection.topic_partitions)
    job = VerifyJob(sample, stop)
    chosen = set(selection.topic_partitions) if topics or partitions else None
    items = job.items(selection.store, chosen, is_weighed=master is not None)
    summary = VerifySummary()
    failures: list[str] = []
    groups = Groups(kind_of)
    here = in_threads(1 if total == 1 else threads or os.cpu_count() or 1, stop)
    with (
        _shown(groups),
        executor(
            master, "verifying", here=here, total=total, while_printing=as_json or verbose
        ) as runner,
    ):
        found = _findings(job.results(items, runner), summary, failures)
        if as_json:
            for finding in found:
                write_json({"kind": "finding", **finding_row(finding)})
            write_json(_summary_as_json(summary))
        elif verbose:
            _print_findings(found)
        else:
            for finding in found:
                groups.add(finding)
    if not as_json:
        print(_summary(summary))
    for failure in failures:
        tell(failure)
    if failures:
        return UNREADABLE
    failed_on = any(each.is_at_least(Severity(fail_on)) for each in summary.findings)
    return FOUND_PROBLEMS if failed_on else 0


def _findings(
    checked: Iterable[CheckedPartition], summary: VerifySummary, failures: list[str]
) -> Iterator[Finding]:
    """Yield the findings of all partitions; count them, and collect what could not be opened."""
    for each in with_topic_ids(checked):
        summary.add(each)
        yield from each.findings
        whose = "" if each.topic_partition is None else f"{each.topic_partition}: "
        failures += (f"{whose}{sentence(error)}" for error in each.failures)


def _summary_as_json(summary: VerifySummary) -> dict[str, Any]:
    return {
        "kind": "summary",
        "partitions": summary.partitions,
        "segments": summary.segments,
        "segments_read": summary.segments_read,
        "findings": {each.value: summary.findings[each] for each in reversed(Severity)},
        "failures": summary.failures,
    }


def _print_findings(findings: Iterator[Finding]) -> None:
    """Print findings one by one; common parts of consecutive files only once."""
    for (severity, *texts), group in groupby(findings, key=_common):
        what, consequence, remedy = texts
        print(visible(f"{severity.value}: {what}\n    {consequence}\n    remedy: {remedy}"))
        for finding in group:
            at = "" if finding.position is None else f" at byte {finding.position}"
            print(visible(f"      {finding.path}{at}"))


@contextmanager
def _shown(groups: Groups[Finding]) -> Iterator[None]:
    """Print findings when the work ends, also after Ctrl-C or an error; the worst first."""
    try:
        yield
    finally:
        order = [*reversed(Severity)]
        for group in sorted(groups, key=lambda each: order.index(each.shown[0].severity)):
            _print_group(group)
        flush_quietly()  # an error may discard what is still buffered


def _print_group(group: Alike[Finding]) -> None:
    """Print findings of one kind: the first one's text, and where the others are."""
    first = group.shown[0]
    times = f", {group.count:,} times" if group.more else ""
    # Include the last one: the first ones may all be of one partition.
    remedies = {each.remedy for each in (*group.shown, group.last) if each is not None}
    likewise = ", and likewise for the others" if len(remedies) > 1 else ""
    told = f"{first.severity.value}{times}: {first.what}\n    {first.consequence}\n"
    print(visible(f"{told}    remedy: {first.remedy}{likewise}"))
    for each in group.shown:
        at = "" if each.position is None else f" at byte {each.position}"
        what = "" if each.what == first.what else f": {each.what}"
        print(visible(f"      {each.path}{at}{what}"))
    if group.more:
        print(f"      ... and {group.more:,} more like these; --verbose lists all")


def _common(finding: Finding) -> tuple[Severity, str, str, str]:
    return finding.severity, finding.what, finding.consequence, finding.remedy


def _summary(counts: VerifySummary) -> str:
    read = (
        ""
        if counts.segments_read == counts.segments
        else f" ({counts.segments_read:,} of {counted(counts.segments, 'segment')} read)"
    )
    found = [
        f"{counts.findings[each]:,} {each.value}"
        for each in reversed(Severity)
        if counts.findings[each]
    ]
    checked = counted(counts.partitions, "partition")
    nothing = "all as it should be"
    if counts.failures:
        nothing = "nothing found in what could be opened"
    return f"{checked} verified{read}: {', '.join(found) or nothing}"
