"""``kafkastore dump``: decode any file of a log directory, chosen by its name."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import tzinfo
from pathlib import Path

import click

from kafkastore.cli.dump.indexes import (
    dump_offset_index,
    dump_time_index,
    dump_transaction_index,
)
from kafkastore.cli.dump.log import dump_log
from kafkastore.cli.dump.options import DumpOptions
from kafkastore.cli.dump.small_files import DUMPS_BY_NAME, dump_producer_snapshot
from kafkastore.cli.options.secrets import show_secrets_option
from kafkastore.cli.options.selection import STORE_PATH
from kafkastore.cli.options.times import zone_option
from kafkastore.cli.options.whole_numbers import WholeNumber
from kafkastore.cli.output.failures import FOUND_PROBLEMS, UNREADABLE, format_error, print_problem
from kafkastore.cli.output.json_lines import json_option
from kafkastore.errors import KafkaStoreError
from kafkastore.formats.state import file_names
from kafkastore.shown_text import escape_control_characters

DUMPS_BY_SUFFIX: Mapping[str, Callable[[Path, DumpOptions], int]] = {
    file_names.LOG_SUFFIX: dump_log,
    file_names.OFFSET_INDEX_SUFFIX: dump_offset_index,
    file_names.TIME_INDEX_SUFFIX: dump_time_index,
    file_names.TRANSACTION_INDEX_SUFFIX: dump_transaction_index,
    file_names.PRODUCER_SNAPSHOT_SUFFIX: dump_producer_snapshot,
    file_names.KRAFT_SNAPSHOT_SUFFIX: dump_log,
}


class NotDecodedError(KafkaStoreError):
    """A file that no decoder supports."""


@click.command()
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=STORE_PATH
)
@click.option("--records", is_flag=True, help="Decode the records of a .log too.")
@click.option("--full", is_flag=True, help="Print keys and values in full length.")
@click.option(
    "--max-bytes", type=WholeNumber(min=0), metavar="BYTES",
    help="Decode only the batches within the first BYTES bytes of a .log.",
)
@show_secrets_option
@zone_option
@json_option
def command(
    files: tuple[Path, ...],
    records: bool,
    full: bool,
    max_bytes: int | None,
    show_secrets: bool,
    zone: tzinfo | None,
    as_json: bool,
) -> int:
    """Decode logs, indexes, snapshots, checkpoints and properties of a directory.

    The name of a file decides how it is decoded. With --records, the records of the topics that
    brokers write for themselves are decoded too: __cluster_metadata and its snapshots,
    __consumer_offsets, __transaction_state, __share_group_state, __remote_log_metadata. A corrupt
    file is decoded up to the corrupt byte.
    """
    options = DumpOptions(records, full, zone, as_json, max_bytes, show_secrets)
    problems = failures = 0
    for number, path in enumerate(files):
        if len(files) > 1 and not as_json:
            print(("\n" if number else "") + escape_control_characters(f"{path}:"))
        try:
            problems += _dump_for(path)(path, options)
        except BrokenPipeError:
            raise
        except (KafkaStoreError, OSError) as error:
            failures += 1
            print_problem(format_error(error))
    return UNREADABLE if failures else FOUND_PROBLEMS if problems else 0


def _dump_for(path: Path) -> Callable[[Path, DumpOptions], int]:
    """Return the function that decodes a file and returns its problem count."""
    if path.is_dir():
        raise NotDecodedError(
            f"{path} is a directory, and dump takes files; kafkastore ls {path} lists what it holds"
        )
    if path.name in DUMPS_BY_NAME:
        return DUMPS_BY_NAME[path.name]
    if path.name == file_names.BOOTSTRAP_CHECKPOINT:
        return dump_log
    file = file_names.parse_segment_file(path.name)
    if not path.exists() and not path.is_symlink():
        raise NotDecodedError(f"{path} does not exist; check the path")
    if file is None:
        *others, last = DUMPS_BY_SUFFIX
        raise NotDecodedError(
            f"{path} is not named like a file of a log directory (00000000000000000042.log, "
            f".index or .timeindex, {', '.join(DUMPS_BY_NAME)}); "
            f"copy it to a name that ends in {', '.join(others)} or {last}"
        )
    return DUMPS_BY_SUFFIX[file.type_suffix]
