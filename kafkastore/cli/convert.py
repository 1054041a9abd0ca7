"""``kafkastore convert``: rewrite messages of old formats as record batches."""
from __future__ import annotations

from pathlib import Path

import click

from kafkastore.arguments import INT32_MAX
from kafkastore.cli.apply_plans import apply_plans
from kafkastore.cli.change_options import ChangeOptions, change_options, index_interval_option
from kafkastore.cli.failures import FOUND_PROBLEMS
from kafkastore.cli.few_lines import few_lines, verbose_option
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.plans import print_plan
from kafkastore.cli.progress import counting, progress
from kafkastore.cli.selection import paths_argument, select, topic_options
from kafkastore.cli.visible import visible
from kafkastore.formats.compression import Codec
from kafkastore.migration import UNTIMED, ConvertPlan, Untimed, plan_convert


@click.command()
@paths_argument()
@topic_options
@click.option(
    "--codec", type=click.Choice([each.name.lower() for each in Codec]),
    help="How records are compressed. Default: as they were.",
)
@click.option(
    "--untimed", type=click.Choice(UNTIMED), default="none", show_default=True,
    help="The timestamp of messages of format 0: none, or their log file's modification time.",
)
@click.option(
    "--leader-epoch", type=click.IntRange(min=0, max=INT32_MAX), metavar="N",
    help="Give every batch this leader epoch, those of the newest format too: 0 for a new topic. "
    "Default: as they were.",
)
@index_interval_option("Kafka's setting of that name.")
@change_options("convert")
@verbose_option
@json_option
def command(
    paths: tuple[Path, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    codec: str | None,
    untimed: Untimed,
    leader_epoch: int | None,
    index_interval_bytes: int,
    options: ChangeOptions,
    verbose: bool,
    as_json: bool,
) -> int:
    """Rewrite messages of the formats 0 and 1 as record batches, which brokers of 4.x serve as is.

    Offsets, keys, values, timestamps and the files' modification times stay; indexes and leader
    epochs are made with the logs. What is replaced is kept, and kafkastore changes undo brings it
    back. No broker should start on a directory before its plan is finished.
    """
    options.check(paths)
    for path in paths:
        select([path], topics, partitions)  # raises before anything is read or copied
    plans = []
    for path in options.directories(paths, as_json=as_json):
        planned = _plan(
            path, topics, partitions, codec, untimed, leader_epoch, index_interval_bytes
        )
        plans.append(options.rooted(planned))
        print_plan(plans[-1], as_json=as_json, verbose=verbose)
    unconverted = [each for planned in plans for each in planned.unconverted]
    if as_json:
        for each in unconverted:
            write_json({"kind": "unconverted", **each._asdict()})
    else:
        lines = ((None, f"{each.path} is left as it is: {each.reason}") for each in unconverted)
        for line in few_lines(lines, verbose=verbose):
            print(visible(line))
    apply_plans(options, paths, plans, as_json=as_json)
    return FOUND_PROBLEMS if unconverted else 0


def _plan(
    path: Path,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    codec: str | None,
    untimed: Untimed,
    leader_epoch: int | None,
    index_interval_bytes: int,
) -> ConvertPlan:
    """Plan one directory."""
    chosen = select([path], topics, partitions)
    segments = sum(len(log.segments) for log in chosen.store.logs_of(chosen.topic_partitions))
    with progress(f"reading {path.name}", segments) as advance:
        planned: ConvertPlan = plan_convert(
            path,
            codec,
            untimed=untimed,
            leader_epoch=leader_epoch,
            index_interval_bytes=index_interval_bytes,
            partitions=frozenset(chosen.topic_partitions),
            progress=counting(advance),
        )
    return planned
