"""``kafkastore predict``: show what a broker's next start would do."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kafkastore.checks.predict import Outcome, Prediction
from kafkastore.cli.options.change_options import index_interval_option
from kafkastore.cli.options.kafka_version import kafka_version_option
from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.failures import FOUND_PROBLEMS
from kafkastore.cli.output.grouped_lines import ItemGroup, group_items
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.tables import format_count
from kafkastore.cli.output.unfinished_changes import print_unfinished_changes
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.formats.state.file_names import CLUSTER_METADATA_TOPIC
from kafkastore.jobs.predict import PredictionSummary, predict_job
from kafkastore.versions import rules_of

_TEXT_FOR_ONE = {
    Outcome.STOPS_THE_START: "stops the start",
    Outcome.LOSES_RECORDS: "loses records",
    Outcome.IS_NOT_SERVED: "is not served",
    Outcome.BECOMES_STRAY: "becomes stray",
    Outcome.IS_DELETED: "is deleted",
    Outcome.IS_NOT_READ: "is not read",
    Outcome.IS_CHANGED: "loads with all records; index or snapshot files are rewritten",
    Outcome.IS_LOADED: "loads unchanged",
}
_TEXT_FOR_MANY = {
    Outcome.STOPS_THE_START: "stop the start",
    Outcome.LOSES_RECORDS: "lose records",
    Outcome.IS_NOT_SERVED: "are not served",
    Outcome.BECOMES_STRAY: "become stray",
    Outcome.IS_DELETED: "are deleted",
    Outcome.IS_NOT_READ: "are not read",
    Outcome.IS_CHANGED: "load with all records; index or snapshot files are rewritten",
    Outcome.IS_LOADED: "load unchanged",
}
#: How many files of a list are named; --json has all of them.
_MAX_NAMES = 3
_PROBLEMS = (
    Outcome.STOPS_THE_START, Outcome.LOSES_RECORDS, Outcome.IS_NOT_SERVED, Outcome.BECOMES_STRAY
)


@store_command("metadata", "spark", "verbose")
@kafka_version_option("The version of the broker that starts.")
@index_interval_option(
    "The topics' index.interval.bytes. Default: that of the metadata, or 4096.", default=None
)
def command(call: StoreCall, version: str, index_interval_bytes: int | None) -> int:
    """Show what the next start of a broker would do; nothing is changed.

    Shows from which offset it recovers, which bytes it truncates, which files it deletes or
    writes, and what stops the start. With the metadata of a KRaft cluster, also which logs become
    stray. The exit code is 1 if records would be lost or not served, or the broker would not start.
    """
    rules_of(version)
    job = predict_job(call.cluster, call.selection.store, version, index_interval_bytes)
    items = call.items(job)
    print_unfinished_changes(call.paths)
    total = PredictionSummary()
    with call.executor("predicting", is_streamed=call.as_json or call.verbose) as runner:
        found = _count_outcomes(job.results(items, runner), total)
        if call.as_json:
            for item, each in zip(items, found, strict=True):
                for row in job.rows(each):
                    write_json({**job.place(item), **row})
        elif call.verbose:
            _print_all(found)
        else:
            groups = group_items(_changed(found), lambda each: each.outcome, verbose=False)
    if not call.as_json:
        print(_summary(version, total))
    if not (call.as_json or call.verbose):
        _print_groups(groups)
    return FOUND_PROBLEMS if any(total.outcomes[each] for each in _PROBLEMS) else 0


def _count_outcomes(found: Iterable[Prediction], total: PredictionSummary) -> Iterator[Prediction]:
    """Yield predictions and count them."""
    for each in found:
        total.add(each)
        yield each


def _changed(found: Iterable[Prediction]) -> Iterator[Prediction]:
    """Yield the directories that a broker does not load unchanged."""
    return (each for each in found if each.outcome is not Outcome.IS_LOADED)


def _print_all(found: Iterable[Prediction]) -> None:
    """Print what happens to each directory, when it is known."""
    for each in _changed(found):
        print_text(*_lines(each))


def _print_groups(groups: Sequence[ItemGroup[Prediction]]) -> None:
    """Print what happens to some directories of each outcome, the worst first."""
    order = list(Outcome)
    for group in sorted(groups, key=lambda group: order.index(group.shown[0].outcome)):
        for each in group.shown:
            print_text(*_lines(each))
        if group.more:
            are = _TEXT_FOR_MANY[group.shown[0].outcome]
            print(f"... and {group.more:,} more {are}; --verbose lists all")


def _lines(each: Prediction) -> Iterator[str]:
    """Describe what happens to one directory, step by step."""
    why = f": {each.why}" if each.why else ""
    yield f"{each.path} {_TEXT_FOR_ONE[each.outcome]}{why}"
    recovered = each.recovered
    if recovered is None:
        return
    recovered_segments = [segment for segment in recovered.segments if segment.is_recovered]
    if recovered_segments and each.recovered_from is not None:
        yield (
            f"    recovers {format_count(len(recovered_segments), 'segment')}, from offset "
            f"{each.recovered_from} on: {_why_recovered(each)}"
        )
    elif recovered_segments:
        bases = ", ".join(str(segment.base_offset) for segment in recovered_segments)
        yield f"    recovers segment {bases}: an index is missing or fails the broker's check"
    for segment in recovered.segments:
        if segment.cut_bytes:
            yield (
                f"    truncates {segment.base_offset:020}.log at byte {segment.valid_bytes} and "
                f"removes {format_count(segment.cut_bytes, 'byte')}: {segment.reason}"
            )
    reasons: dict[str, list[str]] = {}
    for name, (reason, _) in recovered.deleted.items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        yield f"    deletes {_named(names)}: {reason}"
    if recovered.renamed:
        yield f"    replaces segments with .swap segments: {_named(list(recovered.renamed))}"
    if each.lost_offsets:
        readable = recovered.log_end_offset + each.lost_offsets - recovered.log_start_offset
        yield f"    {each.lost_offsets:,} of {format_count(readable, 'offset')} are lost"
    if each.made_bytes:
        yield f"    writes {_named(list(each.made_bytes))}"
    yield (
        f"    then has {format_count(len(recovered.segments), 'segment')}, log start offset "
        f"{recovered.log_start_offset}, log end offset {recovered.log_end_offset}"
    )


def _why_recovered(each: Prediction) -> str:
    topic_partition = each.topic_partition
    if topic_partition is not None and topic_partition.topic == CLUSTER_METADATA_TOPIC:
        return "a broker recovers the metadata log at every start"
    return "there is no clean-shutdown marker"


def _named(names: Sequence[str]) -> str:
    """Format the number of files and the first names."""
    if len(names) == 1:
        return names[0]
    more = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
    return f"{len(names):,} files ({', '.join(names[:_MAX_NAMES])}{more})"


def _summary(version: str, total: PredictionSummary) -> str:
    parts = []
    for outcome in Outcome:
        if count := total.outcomes[outcome]:
            said = f"{count:,} {(_TEXT_FOR_ONE if count == 1 else _TEXT_FOR_MANY)[outcome]}"
            if outcome is Outcome.LOSES_RECORDS and total.lost_bytes:
                said += f" ({format_count(total.lost_bytes, 'byte')})"
            parts.append(said)
    many = "directory" if total.outcomes.total() == 1 else "directories"
    return (
        f"a broker of {version} and {total.outcomes.total():,} {many}: "
        f"{'; '.join(parts) or 'nothing'}"
    )
