"""``kafkastore verify``: what is not as it should be, how bad it is, and what mends it."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import click

from kafkastore.checks.findings import Finding, Severity
from kafkastore.checks.verify import verify, verify_partition
from kafkastore.cli.failures import FOUND_PROBLEMS, UNREADABLE, sentence, tell
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.progress import progress
from kafkastore.cli.selection import Selection, select, selection_options
from kafkastore.cli.tables import counted
from kafkastore.formats.file_names import TopicPartition


@click.command()
@selection_options
@click.option(
    "--fail-on",
    type=click.Choice([severity.value for severity in Severity]),
    default=Severity.WRONG_ANSWERS.value,
    show_default=True,
    help="Exit with 1 when something is as bad as this, or worse.",
)
@json_option
def command(
    paths: tuple[Path, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    fail_on: str,
    as_json: bool,
) -> int:
    """Check the files of log directories against each other; nothing is altered.

    Severities: data-loss-risk (a broker would cut or delete records), wrong-answers (a lookup or a
    read goes wrong), slow, style.
    """
    selection = select(paths, topics, partitions)
    worst_allowed = Severity(fail_on)
    counts: Counter[Severity] = Counter()
    failures: list[str] = []
    with progress("verifying", None, while_printing=True):
        findings = _findings(selection, paths, failures, chosen=bool(topics or partitions))
        if as_json:
            for finding in findings:
                counts[finding.severity] += 1
                write_json(_as_json(finding))
        else:
            _print_findings(findings, counts)
            _print_summary(selection, counts, len(failures))
    for failure in failures:
        tell(failure)
    if failures:
        return UNREADABLE
    failed = any(each.is_at_least(worst_allowed) for each in counts)
    return FOUND_PROBLEMS if failed else 0


def _findings(
    selection: Selection, paths: tuple[Path, ...], failures: list[str], *, chosen: bool
) -> Iterator[Finding]:
    """Check the directories as wholes, or only the partitions chosen in them."""

    def failed(topic_partition: TopicPartition, error: OSError) -> None:
        failures.append(f"{topic_partition}: {sentence(error)}")

    if not chosen:
        yield from verify(list(paths), failed=failed)
        return
    for topic_partition in selection.topic_partitions:
        yield from verify_partition(selection.store, topic_partition, failed=failed)


def _as_json(finding: Finding) -> dict[str, str | int | None]:
    return {
        "severity": finding.severity.value,
        "path": str(finding.path),
        "position": finding.position,
        "what": finding.what,
        "consequence": finding.consequence,
        "remedy": finding.remedy,
    }


def _print_findings(findings: Iterator[Finding], counts: Counter[Severity]) -> None:
    """Print findings one by one; what several files in a row have in common only once."""
    for (severity, *texts), group in groupby(findings, key=_common):
        what, consequence, remedy = texts
        print(f"{severity.value}: {what}\n    {consequence}\n    remedy: {remedy}")
        for finding in group:
            counts[finding.severity] += 1
            at = "" if finding.position is None else f" at byte {finding.position}"
            print(f"      {finding.path}{at}")


def _common(finding: Finding) -> tuple[Severity, str, str, str]:
    return finding.severity, finding.what, finding.consequence, finding.remedy


def _print_summary(selection: Selection, counts: Counter[Severity], failed: int) -> None:
    checked = counted(len(selection.topic_partitions) - failed, "partition")
    found = [f"{counts[each]:,} {each.value}" for each in reversed(Severity) if counts[each]]
    print(f"{checked} verified: {', '.join(found) or 'all as it should be'}")
