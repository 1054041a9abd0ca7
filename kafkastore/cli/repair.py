"""``kafkastore repair``: damaged logs and indexes mended, with everything kept that leaves."""
from __future__ import annotations

from pathlib import Path

import click

from kafkastore.changes.plan import Plan
from kafkastore.checks.repair import Damage, plan_repair
from kafkastore.cli.confirm import check_can_confirm
from kafkastore.cli.json_lines import json_option, write_json
from kafkastore.cli.plan_options import carry_out, index_interval_option, mending_options
from kafkastore.cli.plans import print_plan
from kafkastore.cli.progress import progress
from kafkastore.cli.selection import paths_argument, select, topic_options
from kafkastore.cli.tables import counted


@click.command()
@paths_argument()
@topic_options
@click.option(
    "--like", required=True, metavar="keep|VERSION",
    help="keep: keep every batch that can be read. A version such as 2.4: end each damaged log "
    "where that broker would end it.",
)
@index_interval_option("Kafka's setting of that name.")
@mending_options
@json_option
def command(
    paths: tuple[Path, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    like: str,
    index_interval_bytes: int,
    dry_run: bool,
    yes: bool,
    undo_dir: Path | None,
    as_json: bool,
) -> None:
    """Mend damaged logs, and the indexes that are not what their logs say.

    With --like keep just the broken bytes leave, and what can be read behind them becomes a segment
    of its own. With --like 2.4 a log ends at its first broken batch, and later segments go. The old
    files are kept first, and kafkastore changes undo brings them back.
    """
    if not dry_run and not yes:
        check_can_confirm("repair")
    damages: list[Damage] = []
    plans = [
        _plan(path, like, topics, partitions, index_interval_bytes, damages) for path in paths
    ]
    for each in damages:
        _show(each, as_json=as_json)
    for planned in plans:
        print_plan(planned, as_json=as_json)
    if not dry_run:
        carry_out(paths, plans, undo_dir, asks=not yes, as_json=as_json)


def _plan(
    path: Path,
    like: str,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    index_interval_bytes: int,
    damages: list[Damage],
) -> Plan:
    """Plan one directory, and note its damage."""
    chosen = select([path], topics, partitions)
    with progress(f"reading {path.name}", len(chosen.topic_partitions)) as advance:
        return plan_repair(
            path,
            like,
            index_interval_bytes=index_interval_bytes,
            partitions=frozenset(chosen.topic_partitions),
            found=damages.append,
            progress=lambda: advance(1),
        )


def _show(damage: Damage, *, as_json: bool) -> None:
    """Say what is broken, and what becomes of it."""
    if as_json:
        write_json({"kind": "damage", **damage._asdict()})
        return
    missing = damage.end_offset - damage.first_offset
    offsets = f", {counted(missing, 'offset')} from {damage.first_offset} on" if missing else ""
    print(
        f"{damage.path}: {counted(damage.size, 'byte')} from byte {damage.position:,} on{offsets}: "
        f"{damage.what}"
    )
