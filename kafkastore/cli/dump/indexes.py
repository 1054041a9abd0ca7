"""Print the entries of index files, for ``kafkastore dump``."""
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.tables import StreamedTable, format_count
from kafkastore.errors import CorruptIndexError
from kafkastore.formats.indexes import transaction_index
from kafkastore.log.time_text import format_time
from kafkastore.segment.index_file import OffsetIndex, TimeIndex, check_order
from kafkastore.segment.transaction_index_file import TransactionIndex

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafkastore.cli.dump.options import DumpOptions


def dump_offset_index(path: Path, options: DumpOptions) -> int:
    """Print an offset index; return 0, raise as `_check` does."""
    with OffsetIndex.open(path) as index:
        shown = StreamedTable(slot=8, offset=20, position=12)
        for slot, (offset, position) in enumerate(index.entries().tolist()):
            if options.as_json:
                write_json(
                    {"kind": "offset_index_entry", "file": str(path), "slot": slot,
                     "offset": offset, "position": position}
                )
            else:
                shown.add(slot, offset, position)
        _check(index, options)
    return 0


def dump_time_index(path: Path, options: DumpOptions) -> int:
    """Print a time index; return 0, raise as `_check` does."""
    with TimeIndex.open(path) as index:
        shown = StreamedTable(slot=8, timestamp=20, offset=20, time=-24)
        for slot, (timestamp, offset) in enumerate(index.entries().tolist()):
            if options.as_json:
                write_json(
                    {"kind": "time_index_entry", "file": str(path), "slot": slot,
                     "timestamp": timestamp, "offset": offset}
                )
            else:
                shown.add(slot, timestamp, offset, format_time(timestamp, options.zone))
        _check(index, options)
    return 0


def dump_transaction_index(path: Path, options: DumpOptions) -> int:
    """Print a transaction index; return 0, raise if a broker would refuse it."""
    index = TransactionIndex.open(path)
    try:
        _show_aborted_txns(path, index.entries(), options)
    except CorruptIndexError as error:  # unknown version: entries before it are printed
        before = transaction_index.parse(index.entry_bytes()[: error.position])
        _show_aborted_txns(path, before, options)
        raise
    if not index.entry_count and not options.as_json:
        print("no entries")
    index.check()
    check_order(index)
    return 0


def _show_aborted_txns(path: Path, entries: NDArray[np.void], options: DumpOptions) -> None:
    """Print decoded entries of a transaction index."""
    shown = StreamedTable(
        slot=8, producer_id=20, first_offset=20, last_offset=20, last_stable_offset=20
    )
    names = entries.dtype.names or ()
    for slot, entry in enumerate(entries.tolist()):
        if options.as_json:
            write_json(
                {"kind": "transaction_index_entry", "file": str(path), "slot": slot,
                 **dict(zip(names, entry, strict=True))}
            )
        else:
            shown.add(slot, *entry)


def _check(index: OffsetIndex | TimeIndex, options: DumpOptions) -> None:
    """Report padding after the entries; raise for disorder or a partial entry."""
    used = index.used_entry_count
    padding = index.entry_count - used
    if options.as_json and padding:
        write_json(
            {"kind": "zero_padding", "file": str(index.path), "slot": used, "slots": padding}
        )
    elif padding:
        print(f"{format_count(padding, 'slot')} of zeros after them, preallocated")
    elif not used and not options.as_json:
        print("no entries")
    check_order(index)
