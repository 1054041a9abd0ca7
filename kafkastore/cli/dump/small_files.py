"""Print checkpoints, snapshots and metadata files, for ``kafkastore dump``."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.tables import StreamedTable, print_table
from kafkastore.errors import CorruptCheckpointError, CorruptionError
from kafkastore.formats.state import file_names, producer_snapshot
from kafkastore.formats.state.checkpoints import (
    parse_clean_shutdown_marker,
    parse_leader_epoch_checkpoint,
    parse_meta_properties,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from kafkastore.formats.state.quorum_state import NO_ID, QuorumState, parse_quorum_state
from kafkastore.log.time_text import format_time
from kafkastore.segment.small_file import read_whole

if TYPE_CHECKING:
    from kafkastore.cli.dump.options import DumpOptions

ParsedT = TypeVar("ParsedT")

#: Lines before a checkpoint's entries: its version and the number of entries.
_HEAD_LINES = 2

#: Fields of a producer snapshot in which a negative number means "none".
_NONE_IF_NEGATIVE = (
    "last_sequence", "last_offset", "coordinator_epoch", "current_txn_first_offset",
)


def _dump_offset_checkpoint(path: Path, options: DumpOptions) -> int:
    """Print the offset of each partition."""
    offsets, error = _parse_lines(path, parse_offset_checkpoint)
    _show(
        path, options, "offset_checkpoint_entry", ("topic", "partition", "offset"),
        ((*topic_partition, offset) for topic_partition, offset in offsets.items()),
    )
    return _done(error)


def _dump_leader_epoch_checkpoint(path: Path, options: DumpOptions) -> int:
    """Print the start offset of each leader epoch."""
    epochs, error = _parse_lines(path, parse_leader_epoch_checkpoint)
    _show(path, options, "leader_epoch", ("epoch", "start_offset"), epochs)
    return _done(error)


def _dump_meta_properties(path: Path, options: DumpOptions) -> int:
    """Print the properties."""
    properties = _parse(path, parse_meta_properties)
    _show(path, options, "property", ("name", "value"), properties.items())
    return 0


def _dump_partition_metadata(path: Path, options: DumpOptions) -> int:
    """Print the topic id."""
    topic_id = _parse(path, parse_partition_metadata)
    _show(path, options, "partition_metadata", ("topic_id",), [(topic_id,)])
    return 0


def _dump_quorum_state(path: Path, options: DumpOptions) -> int:
    """Print the fields of the quorum state."""
    state = _parse(path, parse_quorum_state)
    if options.as_json:
        write_json({"kind": "quorum_state", "file": str(path), **state._asdict()})
    else:
        print_table(("name", "value"), ((name, str(each)) for name, each in _known(state)))
    return 0


def _known(state: QuorumState) -> Iterator[tuple[str, object]]:
    """Yield the fields that are known, with their names."""
    for name, value in state._asdict().items():
        if value not in (None, NO_ID):
            yield name.replace("_", " "), ", ".join(map(str, value)) if name == "voters" else value


def _dump_clean_shutdown_marker(path: Path, options: DumpOptions) -> int:
    """Print the content of the clean shutdown marker."""
    epoch = _parse(path, parse_clean_shutdown_marker)
    if options.as_json:
        write_json({"kind": "clean_shutdown", "file": str(path), "broker_epoch": epoch})
    else:
        shown = "no broker epoch" if epoch is None else f"broker epoch {epoch}"
        print(f"clean shutdown, {shown}")
    return 0


def dump_producer_snapshot(path: Path, options: DumpOptions) -> int:
    """Print the producers of a snapshot; raise after that if its checksum is wrong."""
    data = read_whole(path, CorruptCheckpointError)
    error: CorruptionError | None = None
    try:
        entries = producer_snapshot.parse(data)
    except CorruptCheckpointError as found:
        entries, error = producer_snapshot.whole_entries(data), found.located(path)
    if options.as_json:
        names = entries.dtype.names or ()
        rows = (map(_none_if_negative, names, entry) for entry in entries.tolist())
        _show(path, options, "producer_snapshot_entry", names, rows)
    else:
        shown = StreamedTable(
            producer_id=20, epoch=6, last_sequence=13, last_offset=20, offset_delta=12, time=-24,
            coordinator_epoch=17, open_transaction_from=21,
        )
        for row in entries.tolist():
            producer_id, epoch, sequence, offset, delta, timestamp, coordinator, first = row
            shown.add(
                producer_id, epoch, _or_dash(sequence), _or_dash(offset), delta,
                format_time(timestamp, options.zone), _or_dash(coordinator), _or_dash(first),
            )
        if not len(entries) and error is None:
            print("no producers")
    return _done(error)


def _none_if_negative(name: str, number: int) -> int | None:
    """Return None where a negative number of a snapshot means "none"."""
    return None if name in _NONE_IF_NEGATIVE and number < 0 else number


def _or_dash(number: int) -> str:
    return str(number) if number >= 0 else "-"


DUMPS_BY_NAME: Mapping[str, Callable[[Path, DumpOptions], int]] = {
    file_names.RECOVERY_POINT_CHECKPOINT: _dump_offset_checkpoint,
    file_names.LOG_START_OFFSET_CHECKPOINT: _dump_offset_checkpoint,
    file_names.HIGH_WATERMARK_CHECKPOINT: _dump_offset_checkpoint,
    file_names.CLEANER_CHECKPOINT: _dump_offset_checkpoint,
    file_names.LEADER_EPOCH_CHECKPOINT: _dump_leader_epoch_checkpoint,
    file_names.META_PROPERTIES: _dump_meta_properties,
    file_names.PARTITION_METADATA: _dump_partition_metadata,
    file_names.QUORUM_STATE: _dump_quorum_state,
    file_names.CLEAN_SHUTDOWN_FILE: _dump_clean_shutdown_marker,
}


def _parse(path: Path, parse: Callable[[bytes], ParsedT]) -> ParsedT:
    """Parse a file; an error has its path."""
    try:
        return parse(read_whole(path, CorruptCheckpointError))
    except CorruptCheckpointError as error:
        raise error.located(path) from error


def _parse_lines(
    path: Path, parse: Callable[[bytes], ParsedT]
) -> tuple[ParsedT, CorruptionError | None]:
    """Parse a checkpoint; return entries, and the error if it is corrupt."""
    data = read_whole(path, CorruptCheckpointError)
    try:
        return parse(data), None
    except CorruptCheckpointError as error:
        whole_lines = data[: error.position].splitlines()[_HEAD_LINES:]
        entries = b"".join(line + b"\n" for line in whole_lines)
        before = b"0\n%d\n" % len(whole_lines) + entries
        located = error.located(path)
    try:
        return parse(before), located
    except CorruptCheckpointError:  # the first lines are corrupt
        return parse(b""), located


def _done(error: CorruptionError | None) -> int:
    if error is not None:
        raise error
    return 0


def _show(
    path: Path,
    options: DumpOptions,
    kind: str,
    names: tuple[str, ...],
    rows: Iterable[Iterable[Any]],
) -> None:
    """Print rows as a table or as JSON."""
    if options.as_json:
        for row in rows:
            write_json({"kind": kind, "file": str(path), **dict(zip(names, row, strict=True))})
    else:
        print_table(
            [name.replace("_", " ") for name in names],
            ([str(cell) for cell in row] for row in rows),
            right="partition,offset,epoch,start offset",
        )
