"""``kafkastore predict``: show what a broker's next start would do to the directories."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from kafkastore.checks.predict import Outcome, Prediction
from kafkastore.cli.change_options import index_interval_option
from kafkastore.cli.failures import FOUND_PROBLEMS
from kafkastore.cli.few_lines import alike, verbose_option
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.on_spark import executor, spark_option
from kafkastore.cli.selection import select, selection_options
from kafkastore.cli.tables import counted
from kafkastore.cli.unfinished import note_unfinished
from kafkastore.cli.visible import visible
from kafkastore.jobs.predict import PredictionSummary, PredictJob

_SAID = {
    Outcome.STOPS_THE_START: "stops the start",
    Outcome.LOSES_RECORDS: "loses bytes of its log",
    Outcome.IS_DELETED: "is deleted",
    Outcome.IS_NOT_READ: "is not read",
    Outcome.IS_CHANGED: "is loaded, and gets other files beside its logs",
    Outcome.IS_LOADED: "is loaded as it is",
}
_ARE = {
    Outcome.STOPS_THE_START: "stop the start",
    Outcome.LOSES_RECORDS: "lose bytes of logs",
    Outcome.IS_DELETED: "are deleted",
    Outcome.IS_NOT_READ: "are not read",
    Outcome.IS_CHANGED: "get other files beside their logs",
    Outcome.IS_LOADED: "are loaded as they are",
}
#: How many files of a list are named; --json has all of them.
_MOST_NAMES = 3
_BAD = (Outcome.STOPS_THE_START, Outcome.LOSES_RECORDS)


@click.command()
@selection_options
@click.option(
    "--broker", default="2.4", show_default=True, metavar="VERSION", help="The broker that starts."
)
@index_interval_option("The topics' setting of that name.")
@spark_option
@verbose_option
@json_option
def command(
    paths: tuple[Path, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    broker: str,
    index_interval_bytes: int,
    master: str | None,
    verbose: bool,
    as_json: bool,
) -> int:
    """Say what the next start of a broker would do to log directories; nothing is altered.

    From where it recovers, which bytes it cuts, which files it deletes or makes, and what stops the
    start. Ends with 1 when records would be lost or the broker would not start.
    """
    selection = select(paths, topics, partitions)
    note_unfinished(paths)
    job = PredictJob(broker, index_interval_bytes)
    items = job.items(
        selection.store, set(selection.topic_partitions), is_weighed=master is not None
    )
    total = PredictionSummary()
    with executor(master, "predicting", while_printing=as_json or verbose) as runner:
        found = _counted(job.results(items, runner), total)
        if as_json:
            for each in found:
                for row in job.rows(each):
                    write_json({**_place(each), **row})
        else:
            _print(found, verbose=verbose)
    if not as_json:
        print(_summary(broker, total))
    return FOUND_PROBLEMS if any(total.outcomes[each] for each in _BAD) else 0


def _counted(found: Iterable[Prediction], total: PredictionSummary) -> Iterator[Prediction]:
    """Yield predictions and count them."""
    for each in found:
        total.add(each)
        yield each


def _place(each: Prediction) -> dict[str, Any]:
    named = each.topic_partition
    return {
        "path": str(each.path),
        "topic": None if named is None else named.topic,
        "partition": None if named is None else named.partition,
    }


def _print(found: Iterable[Prediction], *, verbose: bool) -> None:
    """Print what happens to directories that a broker does not load unchanged."""
    shown = (each for each in found if each.outcome is not Outcome.IS_LOADED)
    if verbose:
        for each in shown:
            print(visible("\n".join(_lines(each))))
        return
    groups = alike(shown, lambda each: each.outcome, verbose=False)
    order = list(Outcome)
    for group in sorted(groups, key=lambda group: order.index(group.shown[0].outcome)):
        for each in group.shown:
            print(visible("\n".join(_lines(each))))
        if group.more:
            are = _ARE[group.shown[0].outcome]
            print(f"... and {group.more:,} more {are}; --verbose lists all")


def _lines(each: Prediction) -> Iterator[str]:
    """Describe what happens to one directory, step by step."""
    why = f": {each.why}" if each.why else ""
    yield f"{each.path} {_SAID[each.outcome]}{why}"
    recovered = each.recovered
    if recovered is None:
        return
    gone_over = [segment for segment in recovered.segments if segment.is_recovered]
    if gone_over and each.recovered_from is not None:
        yield (
            f"    recovers {counted(len(gone_over), 'segment')}, from offset "
            f"{each.recovered_from} on: there is no clean-shutdown marker"
        )
    elif gone_over:
        bases = ", ".join(str(segment.base_offset) for segment in gone_over)
        yield f"    recovers for want of an index: segment {bases}"
    for segment in recovered.segments:
        if segment.cut_bytes:
            yield (
                f"    cuts {segment.base_offset:020}.log at byte {segment.valid_bytes}, "
                f"{counted(segment.cut_bytes, 'byte')} off: {segment.reason}"
            )
    reasons: dict[str, list[str]] = {}
    for name, reason in recovered.deleted.items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        yield f"    deletes {_named(names)}: {reason}"
    if recovered.renamed:
        yield f"    takes the place of what it replaces: {_named(list(recovered.renamed))}"
    if each.made_bytes:
        yield f"    writes {_named(list(each.made_bytes))}"
    yield (
        f"    then has {counted(len(recovered.segments), 'segment')}, log start offset "
        f"{recovered.log_start_offset}, log end offset {recovered.log_end_offset}"
    )


def _named(names: Sequence[str]) -> str:
    """Format the number of files and the first names."""
    if len(names) == 1:
        return names[0]
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return f"{len(names):,} files ({', '.join(names[:_MOST_NAMES])}{more})"


def _summary(broker: str, total: PredictionSummary) -> str:
    parts = []
    for outcome in Outcome:
        if count := total.outcomes[outcome]:
            said = f"{count:,} {(_SAID if count == 1 else _ARE)[outcome]}"
            is_lossy = outcome is Outcome.LOSES_RECORDS
            parts.append(f"{said} ({counted(total.lost_bytes, 'byte')})" if is_lossy else said)
    many = "directory" if total.outcomes.total() == 1 else "directories"
    return (
        f"a broker of {broker} and {total.outcomes.total():,} {many}: "
        f"{'; '.join(parts) or 'nothing'}"
    )
