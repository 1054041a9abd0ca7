"""Print the batches and records of a ``.log``, for ``kafkastore dump``."""
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkastore.cli.dump.payloads import decode_control, decoder_for
from kafkastore.cli.output.bytes_text import json_bytes
from kafkastore.cli.output.failures import print_note, print_problem
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.tables import StreamedTable, format_count, format_value
from kafkastore.errors import CorruptionError
from kafkastore.formats.records.record_batch import Record, RecordBatch
from kafkastore.formats.state.file_names import LOG_SUFFIX, parse_segment_file, segment_file_name
from kafkastore.formats.topics.cluster_metadata import MASKED
from kafkastore.log.batch_columns import TIMESTAMP_TYPE_NAMES, batch_rows
from kafkastore.log.partition_files import PartitionFiles
from kafkastore.log.time_text import format_time
from kafkastore.segment.log_file import BatchRun, LogFile, SegmentBounds
from kafkastore.shown_text import SHORTENED, format_bytes

if TYPE_CHECKING:
    from kafkastore.cli.dump.options import DumpOptions
    from kafkastore.cli.dump.payloads import Decoder


def dump_log(path: Path, options: DumpOptions) -> int:
    """Print the batches of a log, with their records if requested.

    Returns how many batches fail their checksum. Raises CorruptionError where bytes break the
    format or, with records, at the first wrong checksum; everything before that has been printed.
    """
    shown = StreamedTable(
        position=10, size=8, base_offset=12, last_offset=12, magic=5, codec=-6, count=6,
        newest=24, type=-13, epoch=5, producer=12, checksum=-8, marks=-1,
    )
    problems, valid_bytes = 0, 0
    decoder = decoder_for(path, show_secrets=options.show_secrets) if options.records else None
    with LogFile(path) as log:
        for run, index, batch in _batches_within(log, options.max_bytes):
            valid_bytes = batch["position"] + batch["size"]
            problems += not batch["crc_valid"]
            if options.as_json:
                write_json({"kind": "batch", "file": str(path), **batch})
            else:
                _print_batch(shown, batch, options)
            if options.records:
                _dump_records(
                    path, run, index, options, decode_control if batch["is_control"] else decoder
                )
        if valid_bytes < log.size and options.max_bytes is None:
            with LogFile(path, _bounds_of(path)) as placed:
                placed.check_end(valid_bytes)
            print_note(
                f"{path} has {format_count(log.size - valid_bytes, 'byte')} after its last "
                f"complete batch, from byte {valid_bytes} on: an incomplete batch, or preallocated "
                "zeros; a broker truncates them"
            )
    if problems:
        batches = format_count(problems, "batch", "batches")
        print_problem(f"{batches} of {path} with a wrong checksum")
    return problems


def _bounds_of(path: Path) -> SegmentBounds | None:
    """Return the position of a ``.log`` among its segments, or None."""
    file = parse_segment_file(path.name)
    if file is None or path.name != segment_file_name(file.base_offset, LOG_SUFFIX):
        return None
    bases = PartitionFiles(path.parent).base_offsets
    following = (base for base in bases if base > file.base_offset)
    return SegmentBounds(file.base_offset, next(following, None))


def _batches_within(
    log: LogFile, max_bytes: int | None
) -> Iterator[tuple[BatchRun, int, dict[str, Any]]]:
    """Yield the batches within `max_bytes`: each run, an index in it, and its row."""
    limit = log.size if max_bytes is None else max_bytes
    for run in log.runs(verify_crc=True):
        ends = run.headers["position"] + run.headers["size"]
        chosen = np.flatnonzero(ends <= limit)
        for index, batch in zip(chosen.tolist(), batch_rows(run, chosen), strict=True):
            yield run, index, batch
        if ends[-1] >= limit:  # the rest may be corrupt and was not requested
            return


def _print_batch(shown: StreamedTable, batch: dict[str, Any], options: DumpOptions) -> None:
    producer = "-"
    if batch["producer_id"] is not None:
        producer = f"{batch['producer_id']}/{batch['producer_epoch']}"
        if batch["base_sequence"] >= 0:
            producer += f"/{batch['base_sequence']}"
    marks = [
        mark
        for mark, is_set in (
            ("transactional", batch["is_transactional"]),
            (f"control {batch['control_type'] or '?'}", batch["is_control"]),
            (f"deletes tombstones at {format_time(batch['delete_horizon'], options.zone)}",
             batch["delete_horizon"] is not None),
        )
        if is_set
    ]
    shown.add(
        batch["position"],
        batch["size"],
        format_value(batch["base_offset"]),
        batch["last_offset"],
        batch["magic"],
        batch["codec"],
        format_value(batch["count"]),
        format_time(batch["max_timestamp"], options.zone),
        batch["timestamp_type"] if batch["magic"] else "-",
        format_value(batch["leader_epoch"]),
        producer,
        "ok" if batch["crc_valid"] else "WRONG",
        ", ".join(marks),
    )


def _dump_records(
    path: Path, run: BatchRun, index: int, options: DumpOptions, decoder: Decoder | None
) -> None:
    """Print the records of a batch."""
    try:
        batch = RecordBatch(run.batch(index), int(run.headers["position"][index]))
        batch.verify()
        records = batch.records()
    except CorruptionError as error:
        raise error.located(path) from error
    for record in records:
        decoded = None if decoder is None else decoder(record)
        is_masked = decoded is not None and decoded.is_masked
        if options.as_json:
            fields = json_record(record, headers=True)
            if is_masked:
                fields.pop("value_base64", None)
                fields["value"] = MASKED
            if decoded is not None:
                fields["decoded"] = decoded.fields
            write_json({"kind": "record", "file": str(path), **fields})
        else:
            print("    " + _record_line(record, options, is_masked=is_masked))
            if decoded is not None:
                print("        " + json.dumps(decoded.fields))


def json_record(record: Record, *, headers: bool) -> dict[str, Any]:
    """Return a record by JSON field names, with its headers if `headers`."""
    fields: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": TIMESTAMP_TYPE_NAMES[record.timestamp_type],
        "leader_epoch": record.leader_epoch,
        **json_bytes("key", record.key),
        **json_bytes("value", record.value),
    }
    if headers:
        fields["headers"] = [
            {"name": name, **json_bytes("value", value)} for name, value in record.headers
        ]
    return fields


def _record_line(record: Record, options: DumpOptions, *, is_masked: bool) -> str:
    limit = None if options.full else SHORTENED
    parts = [
        f"offset {record.offset}",
        format_time(record.timestamp, options.zone),
        f"key {format_bytes(record.key, limit)}",
        f"value {MASKED if is_masked else format_bytes(record.value, limit)}",
    ]
    if record.headers:
        parts.append(f"headers {format_headers(record, limit)}")
    return "  ".join(parts)


def format_headers(record: Record, limit: int | None = None) -> str:
    """Format a record's headers as ``name=value`` pairs, separated by commas."""
    return ", ".join(
        f"{format_bytes(name.encode('utf-8', 'surrogateescape'), limit)}="
        f"{format_bytes(value, limit)}"
        for name, value in record.headers
    )
