"""``kafkastore convert``: messages of old formats as record batches."""
from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click

from kafkastore.arguments import INT32_MAX
from kafkastore.changes.plan import Plan
from kafkastore.cli.copies import make_copy
from kafkastore.cli.failures import FOUND_PROBLEMS
from kafkastore.cli.few_lines import few_lines, verbose_option
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.plan_options import (
    carry_out,
    check_yes,
    index_interval_option,
    refuse_urls,
    rewriting_options,
)
from kafkastore.cli.plans import print_plan
from kafkastore.cli.progress import progress
from kafkastore.cli.selection import paths_argument, select, topic_options
from kafkastore.cli.visible import visible
from kafkastore.formats.compression import Codec
from kafkastore.migration import UNTIMED, UnconvertedSegment, Untimed, plan_convert


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
@rewriting_options("convert")
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
    dry_run: bool,
    copy_to: Path | None,
    in_place: bool,
    yes: bool,
    undo_dir: Path | None,
    verbose: bool,
    as_json: bool,
) -> int:
    """Rewrite messages of the formats 0 and 1 as record batches, which brokers of 4.x serve as is.

    Offsets, keys, values, timestamps and the files' modification times stay; indexes and leader
    epochs are made with the logs. What is replaced is kept, and kafkastore changes undo brings it
    back. No broker should start on a directory before its plan is finished.
    """
    if dry_run and in_place:
        raise click.UsageError("--dry-run goes without --in-place")
    if copy_to is not None and (in_place or len(paths) > 1):
        raise click.UsageError("--copy-to goes with one PATH, without --in-place")
    check_yes(yes, dry_run=dry_run, copy_to=copy_to, in_place=in_place)
    if in_place:
        refuse_urls(paths)
    for path in paths:
        select([path], topics, partitions)  # complains before anything is read or copied
    work = paths
    if copy_to is not None and not dry_run:
        make_copy(paths[0], copy_to, as_json=as_json)
        work = (copy_to,)
    unconverted: list[UnconvertedSegment] = []
    plans = []
    for path in work:
        planned = _plan(
            path, topics, partitions, codec, untimed, leader_epoch, index_interval_bytes,
            unconverted,
        )
        if copy_to is not None:
            planned = replace(planned, root=os.path.abspath(copy_to))
        print_plan(planned, as_json=as_json, verbose=verbose)
        plans.append(planned)
    if as_json:
        for each in unconverted:
            write_json({"kind": "unconverted", **each._asdict()})
    else:
        lines = ((None, f"{each.path} is left as it is: {each.reason}") for each in unconverted)
        for line in few_lines(lines, verbose=verbose):
            print(visible(line))
    code = FOUND_PROBLEMS if unconverted else 0
    changes = sum(len(planned.changes) for planned in plans)
    if not changes or (work is paths and not in_place):
        if changes and not as_json:
            print("nothing was changed; --copy-to DEST converts a copy, --in-place this directory")
        return code
    carry_out(paths, plans, undo_dir, asks=work is paths and not yes, as_json=as_json)
    return code


def _plan(
    path: Path,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    codec: str | None,
    untimed: Untimed,
    leader_epoch: int | None,
    index_interval_bytes: int,
    unconverted: list[UnconvertedSegment],
) -> Plan:
    """Plan one directory, and note what is left as it is."""
    chosen = select([path], topics, partitions)
    segments = sum(len(log.segments) for log in chosen.store.logs_of(chosen.topic_partitions))
    with progress(f"reading {path.name}", segments) as advance:
        planned: Plan = plan_convert(
            path,
            codec,
            untimed=untimed,
            leader_epoch=leader_epoch,
            index_interval_bytes=index_interval_bytes,
            partitions=frozenset(chosen.topic_partitions),
            found=unconverted.append,
            progress=lambda: advance(1),
        )
    return planned
