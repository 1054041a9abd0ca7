"""Print the batches and records of a ``.log``, for ``kafkastore dump``."""
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkastore.cli.dump.payloads import decoder_for
from kafkastore.cli.output.bytes_text import SHORTENED, format_bytes, json_bytes
from kafkastore.cli.output.failures import print_note, print_problem
from kafkastore.cli.output.json_lines import write_json
from kafkastore.cli.output.tables import StreamedTable, format_count, format_number
from kafkastore.errors import CorruptionError
from kafkastore.formats.records.compression import Codec
from kafkastore.formats.records.control_records import ControlRecordType, first_control_record
from kafkastore.formats.records.record_batch import Record, RecordBatch, TimestampType
from kafkastore.formats.state.file_names import LOG_SUFFIX, parse_segment_file, segment_file_name
from kafkastore.log.partition_files import PartitionFiles
from kafkastore.log.time_text import format_time
from kafkastore.segment.log_file import BatchRun, LogFile, SegmentBounds

if TYPE_CHECKING:
    from kafkastore.cli.dump.options import DumpOptions
    from kafkastore.cli.dump.payloads import Decoder

_CODEC_MASK, _LOG_APPEND_TIME = 0x07, 0x08
_TRANSACTIONAL, _CONTROL, _DELETE_HORIZON = 0x10, 0x20, 0x40

_CODEC_NAMES = {int(codec): codec.name.lower() for codec in Codec}

#: Kafka's names of the timestamp types.
TIMESTAMP_TYPE_NAMES = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


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
    decoder = decoder_for(path) if options.records else None
    with LogFile(path) as log:
        for run, index in _batches_within(log, options.max_bytes):
            batch = _batch(run, index)
            valid_bytes = batch["position"] + batch["size"]
            problems += not batch["crc_valid"]
            if options.as_json:
                write_json({"kind": "batch", "file": str(path), **batch})
            else:
                _print_batch(shown, batch, options)
            if options.records:
                _dump_records(path, run, index, options, None if batch["is_control"] else decoder)
        if valid_bytes < log.size and options.max_bytes is None:
            with LogFile(path, _bounds_of(path)) as placed:
                placed.check_end(valid_bytes)
            print_note(
                f"{path} has {format_count(log.size - valid_bytes, 'byte')} after its last whole "
                f"batch, from byte {valid_bytes} on: torn or preallocated; a broker cuts them off"
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


def _batches_within(log: LogFile, max_bytes: int | None) -> Iterator[tuple[BatchRun, int]]:
    """Yield the batches within `max_bytes`: each run, and an index in it."""
    limit = log.size if max_bytes is None else max_bytes
    end = 0
    for run in log.runs(verify_crc=True):
        for index in range(len(run.headers)):
            end = int(run.headers["position"][index]) + int(run.headers["size"][index])
            if end > limit:
                return
            yield run, index
        if end >= limit:  # the rest may be corrupt and was not requested
            return


def _batch(run: BatchRun, index: int) -> dict[str, Any]:
    """Return a batch's header by JSON names; None for missing fields."""
    header = run.headers[index]
    attributes, magic = int(header["attributes"]), int(header["magic"])
    codec = attributes & _CODEC_MASK
    is_wrapper = magic < 2 and codec > 0
    is_control = magic == 2 and bool(attributes & _CONTROL)
    producer_id = int(header["producer_id"])
    epoch = int(header["leader_epoch"])
    return {
        "position": int(header["position"]),
        "size": int(header["size"]),
        "base_offset": None if is_wrapper else int(header["base_offset"]),
        "last_offset": int(header["last_offset"]),
        "magic": magic,
        "codec": _CODEC_NAMES.get(codec, f"unknown ({codec})"),
        "count": None if is_wrapper else int(header["count"]),
        "max_timestamp": int(header["max_timestamp"]),
        "timestamp_type": TIMESTAMP_TYPE_NAMES[_timestamp_type(magic, attributes)],
        "leader_epoch": epoch if epoch >= 0 else None,
        "producer_id": producer_id if producer_id >= 0 else None,
        "producer_epoch": int(header["producer_epoch"]) if producer_id >= 0 else None,
        "base_sequence": int(header["base_sequence"]) if producer_id >= 0 else None,
        "is_transactional": magic == 2 and bool(attributes & _TRANSACTIONAL),
        "is_control": is_control,
        "control_type": _control_type(run, index) if is_control else None,
        "delete_horizon_ms": (
            int(header["base_timestamp"]) if magic == 2 and attributes & _DELETE_HORIZON else None
        ),
        "crc": int(header["crc"]),
        "crc_valid": bool(header["crc_valid"]),
    }


def _control_type(run: BatchRun, index: int) -> str | int | None:
    """Return the type of a control batch: its name, or its number if unknown.

    None if it cannot be read, or if compaction has removed the control record.
    """
    try:
        record = first_control_record(RecordBatch(run.batch(index)))
    except CorruptionError:
        return None
    if record is None:
        return None
    return record.type.name if isinstance(record.type, ControlRecordType) else record.type


def _timestamp_type(magic: int, attributes: int) -> TimestampType:
    if magic == 0:
        return TimestampType.NO_TIMESTAMP_TYPE
    by_broker = attributes & _LOG_APPEND_TIME
    return TimestampType.LOG_APPEND_TIME if by_broker else TimestampType.CREATE_TIME


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
            (f"deletes tombstones at {format_time(batch['delete_horizon_ms'], options.zone)}",
             batch["delete_horizon_ms"] is not None),
        )
        if is_set
    ]
    shown.add(
        batch["position"],
        batch["size"],
        format_number(batch["base_offset"]),
        batch["last_offset"],
        batch["magic"],
        batch["codec"],
        format_number(batch["count"]),
        format_time(batch["max_timestamp"], options.zone),
        batch["timestamp_type"] if batch["magic"] else "-",
        format_number(batch["leader_epoch"]),
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
        decoded = None if decoder is None else {"decoded": decoder(record)}
        if options.as_json:
            fields = json_record(record, headers=True) | (decoded or {})
            write_json({"kind": "record", "file": str(path), **fields})
        else:
            print("    " + _record_line(record, options))
            if decoded is not None:
                print("        " + json.dumps(decoded["decoded"]))


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


def _record_line(record: Record, options: DumpOptions) -> str:
    limit = None if options.full else SHORTENED
    parts = [
        f"offset {record.offset}",
        format_time(record.timestamp, options.zone),
        f"key {format_bytes(record.key, limit)}",
        f"value {format_bytes(record.value, limit)}",
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
