"""``kafkastore convert``: rewrite messages of old formats as record batches."""
from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import click

from kafkastore.arguments import INT32_MAX
from kafkastore.cli.apply_plans import apply_plans, plan_directories
from kafkastore.cli.options.change_options import (
    ChangeOptions,
    change_options,
    index_interval_option,
)
from kafkastore.cli.options.whole_numbers import WholeNumber
from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.failures import FOUND_PROBLEMS
from kafkastore.cli.output.grouped_lines import group_lines
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.partition_errors import Problems
from kafkastore.cli.output.plans import print_plans
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.formats.records.compression import Codec
from kafkastore.migration import UNTIMED, ConvertPlan, UnconvertedSegment, Untimed, plan_convert


@store_command("threads", "spark", "verbose")
@click.option(
    "--codec", type=click.Choice([each.name.lower() for each in Codec]),
    help="How records are compressed. Default: unchanged.",
)
@click.option(
    "--untimed", type=click.Choice(UNTIMED), default="none", show_default=True,
    help="The timestamp of messages of format 0: none, or their log file's modification time.",
)
@click.option(
    "--leader-epoch", type=WholeNumber(min=0, max=INT32_MAX), metavar="N",
    help="Give every batch this leader epoch, those of the newest format too: 0 for a new topic. "
    "Default: unchanged.",
)
@index_interval_option("The topics' index.interval.bytes.")
@change_options("convert")
def command(
    call: StoreCall,
    codec: str | None,
    untimed: Untimed,
    leader_epoch: int | None,
    index_interval_bytes: int,
    options: ChangeOptions,
) -> int:
    """Rewrite messages of formats 0 and 1 as record batches, for brokers of 4.x.

    Offsets, keys, values, timestamps and modification times do not change; indexes and leader
    epochs are rebuilt. Replaced files are kept; kafkastore changes undo restores them. Do not start
    a broker before the conversion is finished.
    """
    options.check(call.paths)
    make = partial(
        plan_convert,
        codec=codec,
        untimed=untimed,
        leader_epoch=leader_epoch,
        index_interval_bytes=index_interval_bytes,
    )
    plans: list[ConvertPlan] = []
    problems = Problems()
    with call.session():
        for planned in plan_directories(call, options, make, problems):
            plans.append(planned)
            problems.add_unread(planned.unread)
        print_plans(plans, as_json=call.as_json, verbose=call.verbose)
        unconverted = [each for planned in plans for each in planned.unconverted]
        _show(unconverted, as_json=call.as_json, verbose=call.verbose)
        apply_plans(call, options, plans, problems)
    return problems.exit_code or (FOUND_PROBLEMS if unconverted else 0)


def _show(unconverted: Sequence[UnconvertedSegment], *, as_json: bool, verbose: bool) -> None:
    """Print the segments that are not converted, and why."""
    if as_json:
        for each in unconverted:
            write_json({"kind": "unconverted", **each._asdict()})
        return
    lines = ((None, f"{each.path} is not converted: {each.reason}") for each in unconverted)
    for line in group_lines(lines, verbose=verbose):
        print_text(line)
